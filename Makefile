# The commands of the README. `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.locked-$(shell sha256sum requirements/dev.lock | cut -c1-12)

.PHONY: help setup lock generate lint test test-fast demo down bench-startup
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | column -ts $$'\t'

setup: $(STAMP) ## make .venv from the lock file

$(STAMP):
	@test -x $(PY) || python3 -m venv .venv
	@.venv/bin/pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements/dev.lock)"
	@.venv/bin/uv pip sync --quiet --python $(PY) --require-hashes requirements/dev.lock
	@.venv/bin/uv pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

lock: setup ## resolve requirements/*.in anew
	@cd requirements && for f in operator dask dev; do ../.venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header $$f.in -o $$f.lock; done
	@cd requirements && ../.venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header -c dask.lock dask-cpu.in -o dask-cpu.lock

generate: setup ## write the files that are made from others (crds/, the chart's copy, docs)
	@$(PY) -m gpudask.api.crd > crds/gpudaskclusters.yaml
	@cp crds/gpudaskclusters.yaml charts/gpudask/crds/
	@$(PY) -m gpudask.api.reference > docs/reference.md
