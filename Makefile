# FarmIQ. Every target sets up what it needs; the second time that is quick.

SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
FARMIQ := $(VENV)/bin/farmiq
READY := $(VENV)/ready
# Five workers: tests share one set of engines and two cores, and often wait for others.
WORKERS ?= 5
ARGS ?=

export FARMIQ_STATE_DIR ?= $(CURDIR)/.farmiq
# The repository is the package: nothing of the user's own site-packages leaks in.
export PYTHONNOUSERSITE := 1
# Tests start services by the hundred: each of our files is compiled once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
LAST_FAILED := .pytest_cache/v/cache/lastfailed

.PHONY: help demo smoke test test-fast test-again test-long pictures check bench bench-long requirements docs kubernetes archive prove-install texts lock sbom audit clean

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## the whole system with a simulated farm; Ctrl-C stops it
	@$(FARMIQ) demo $(ARGS)

smoke: $(READY) ## the demo's farm for a minute without a terminal, then 0 lost and 0 twice
	@$(FARMIQ) smoke $(ARGS)

test: $(READY) ## all tests but the long ones, on real engines
	@$(FARMIQ) stack fetch --browser >/dev/null
	@rm -f $(LAST_FAILED)
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not long" --durations 25 $(ARGS)

test-fast: $(READY) ## the tests that need no engine, and those of SQL: about a minute
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not long" $(ARGS) tests/unit tests/house tests/sql

pictures: $(READY) ## every page light and dark, 360 and 1180 px wide, below artefacts/screenshots
	@$(FARMIQ) stack fetch --browser >/dev/null
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup --pictures --timeout 900 $(ARGS) tests/browser

test-again: $(READY) ## the tests that failed in the last `make test`, once more and each alone
	@$(PY) tools/test-again

test-long: $(READY) ## soak and fuzz runs, and the properties with examples of every run's own
	@$(FARMIQ) stack fetch --browser >/dev/null
	@$(PY) -m pytest -m "long or hypothesis" --hypothesis-profile=exploring $(ARGS)

check: $(READY) ## style, types, import contracts
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

bench: $(READY) ## measure us and a ceiling in the same run, print the ratios
	@status=0; for part in ingest delivery rollups figures history alerts pages cameras vision inference; do $(FARMIQ) bench $$part $(ARGS) || status=$$?; done; exit $$status

bench-long: $(READY) ## figures and history at 100 million readings: about an hour, 50 GB of disk
	@$(FARMIQ) bench figures --large $(ARGS)
	@$(FARMIQ) bench history --readings 100000000 $(ARGS)

requirements: $(READY) ## each requirement and the tests that show it (JSON=1 for scripts)
	@$(PY) -m tests.house.requirements $(if $(JSON),--json)

docs: $(READY) ## make docs/asyncapi.json, docs/openapi-*.json, metrics.md, dashboards again from the code
	@$(FARMIQ) asyncapi --out docs/asyncapi.json
	@for site in edge cloud; do $(FARMIQ) openapi $$site --out docs/openapi-$$site.json; done
	@$(FARMIQ) metrics --out docs/operate/metrics.md
	@$(PY) tools/dashboards

kubernetes: $(READY) ## make deploy/kubernetes again from the services, queues and routes
	@$(PY) tools/kubernetes

archive: $(READY) ## all that a Debian machine without internet needs, in one file below dist/
	@$(PY) tools/archive $(ARGS)

prove-install: archive ## install that archive on a bare Debian, boot, use, break and undo it (root)
	@tools/prove-install

texts: $(READY) ## write new texts of the pages into the catalogues of languages
	@$(PY) tools/texts

lock: $(READY) ## resolve the pins of pyproject.toml into requirements.lock (needs uv)
	@uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --output-file requirements.lock

sbom: ## the bill of materials of this tree, CycloneDX, in artefacts/sbom.json
	@python3 tools/sbom artefacts/sbom.json && echo artefacts/sbom.json

audit: ## known weaknesses of the pinned packages, by pip-audit (needs uv and the internet)
	@uv tool run pip-audit@2.10.1 --strict --disable-pip --require-hashes --requirement requirements.lock

clean: ## remove everything that these targets made; stops local stacks first
	@if [ -x $(FARMIQ) ]; then $(FARMIQ) stack down --all --delete-data; \
	  $(PY) -c "from farmiq.lab.stack import postgres; postgres.remove_copied()"; fi
	@rm -rf $(VENV) .farmiq artefacts dist .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find farmiq tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml tools/environment
	@tools/environment $(VENV) >&2
