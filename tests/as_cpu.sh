#!/bin/sh
# Run a command on this machine as if its CPU were another one: tests/as_cpu.sh avx2 make test
# The kernel's description of the CPU is replaced for the command and what it starts. Needs Linux; without root, it also
# needs user namespaces, in which tests with other users cannot run.
set -eu
file=$(dirname "$0")/cpus/$1.txt
shift
root=
[ "$(id -u)" = 0 ] || root=--map-root-user
exec unshare $root --mount sh -c 'mount --bind "$0" /proc/cpuinfo && exec "$@"' "$file" "$@"
