#!/bin/sh
# Installs what `make test-services` needs (PostgreSQL, Chromium with its driver, docker-compose) from Debian's
# packages: only what is missing, only as root and where there is apt. Elsewhere it says what is missing; those tests
# then skip.
set -eu

missing=""
need() { # package, command or path pattern that shows that it is there
    command -v "$2" >/dev/null 2>&1 || ls $2 >/dev/null 2>&1 || missing="$missing $1"
}
need postgresql '/usr/lib/postgresql/*/bin/initdb'
need chromium chromium
need chromium-driver chromedriver
need docker-compose docker-compose

[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$missing (install them yourself, or the tests that need them are skipped)" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1   # no service is started by being installed; the tests start their own
apt-get update -qq
apt-get install -y -qq --no-install-recommends $missing
