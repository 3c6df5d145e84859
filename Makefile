# Needs Python 3.11 or newer, git, make and a package index. `make PYTHON=python3.12` chooses another interpreter.
# uv installs where there is one; `make UV=` has pip do it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv)
WORKERS := 3
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile

.PHONY: help install demo docs check test test-services coverage dead-code soak clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /	/' | expand -t 16

install: $(VENV)/installed  ## create .venv with pinned versions of everything that development needs

# $(1): extras. uv does not read pip's index settings, so pip tries again. pip compiles on one core; compileall uses all.
define install_extras
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(if $(UV),$(UV) pip install --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]' ||) \
	  $(PIP) --constraint constraints.txt --editable '.[$(1)]'
	$(BIN)/python -m compileall -q -q -j 0 $(VENV)/lib autoopt flows || true  # templates of libraries are no Python
endef

$(VENV)/installed: pyproject.toml constraints.txt
	$(call install_extras,dev)
	touch $@ $(VENV)/demo

$(VENV)/demo: pyproject.toml constraints.txt
	$(call install_extras,plots)
	touch $@

demo: $(VENV)/demo  ## install what the demo needs, and optimize the model that ships with the project
	$(BIN)/autoopt run dags/quickstart.yaml

docs: install  ## build the documentation as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: install  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: install  ## tests that need only Python packages
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m "not service and not soak"

test-services: install  ## tests that need PostgreSQL, a Prefect server, Chromium
	tests/services.sh
	$(BIN)/pytest -n 3 --dist loadfile -m "service and not soak"

coverage: install  ## branch coverage of `make test`, as a table and in htmlcov/
	$(BIN)/pytest -n 3 --dist loadfile -m "not service and not soak" --cov --cov-report=term --cov-report=html

dead-code: install  ## code that nothing calls (vulture); names called by string are false alarms
	$(BIN)/vulture

soak: install  ## the long variants
	$(BIN)/pytest -m soak -o timeout=7200

clean:  ## remove everything these targets created
	rm -rf $(VENV) out .autoopt site htmlcov .coverage*
	find autoopt flows tests -name __pycache__ -prune -exec rm -r {} +
