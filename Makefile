# The commands of the README. `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
# The one that .venv is made with. The images have 3.11, and what runs on the local cluster has to have the same.
PYTHON := $(or $(shell command -v python3.11),python3)
UV := .venv/bin/uv
STAMP := .venv/.locked-$(shell cat requirements/dev.lock pyproject.toml | sha256sum | cut -c1-12)
COMPILE := $(abspath $(UV)) pip compile --quiet --python-version 3.11 --generate-hashes --no-header
CHECKED := operator local images benchmarks charts docs/modules.py examples tests
# Needs no cluster, no server and no network, waits for the start of few programs, and leaves long simulations out.
FAST := -m "not api and not dask and not e2e and not registry and not browser and not program and not simulation"
# A file's tests stay together: they share what they start. The real cluster is one, so its tests are no part of this.
# Half of the time they wait: three at a time are fast on two CPUs, and still get what they need to be in time.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder
# The real cluster waits most of the time, too. What runs beside it gives way to it: all of `make test` takes as long as
# the tests on the real cluster, one after the other, and those without it are done before.
GIVES_WAY := nice -n 5

# To tests/e2e/provider.py: the cluster, the image of Dask's pods, and the operator's.
GIVEN = E2E_KUBECONFIG="$(abspath $(KUBECONFIG))" E2E_IMAGE="$(IMAGE)" E2E_OPERATOR_IMAGE="$(OPERATOR_IMAGE)"

# Where it is set, each of the processes that the tests start compiles the package anew, and pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help machine images setup lock generate manifests lint test test-without-cluster test-cluster test-on-cluster test-idle test-local-cluster test-fast test-e2e test-stock properties soak orders takeovers hostile chaos chaos-jobs leaks demo down bench-startup bench-clients bench-scaling bench-scale bench-ha bench-gpu
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | column -ts $$'\t'

setup: $(STAMP) ## make .venv from the lock file

$(STAMP):
	@echo "making .venv from requirements/dev.lock"
	@test -x $(PY) || $(PYTHON) local/host/machine.py
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@.venv/bin/pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements/dev.lock)"
	@$(UV) pip sync --quiet --compile-bytecode --python $(PY) --require-hashes requirements/dev.lock
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

# First what the machine lacks, in one list; on a cluster of one's own nothing of it is needed.
machine:
ifeq ($(IMAGE)$(OPERATOR_IMAGE),)
	@command -v $(PYTHON) > /dev/null || { printf 'This machine lacks:\n- Python 3.11: apt-get install python3 python3-venv\n'; exit 1; }
	@$(PYTHON) local/host/machine.py cluster
endif

demo: machine setup ## a mixed cluster on a real Kubernetes on this machine (or KUBECONFIG=... IMAGE=... OPERATOR_IMAGE=...)
ifneq ($(IMAGE)$(OPERATOR_IMAGE),)
	@: $(if $(and $(KUBECONFIG),$(IMAGE),$(OPERATOR_IMAGE)),,$(error a cluster of your own takes all three: \
	  KUBECONFIG=... IMAGE=... OPERATOR_IMAGE=...))
	@$(PY) -m local install --image "$(OPERATOR_IMAGE)" --default-image "$(IMAGE)"
	@$(PY) -m local.demo --image "$(IMAGE)" $(ARGS)
else
	@: $(if $(filter command,$(firstword $(origin KUBECONFIG))),$(error a cluster of your own takes all three: \
	  KUBECONFIG=... IMAGE=... OPERATOR_IMAGE=...))
	@$(PY) -m local up
	@$(PY) -m local install
	@env -u KUBECONFIG $(PY) -m local.demo
endif

down: setup ## end the local Kubernetes; caches stay
	@$(PY) -m local down

images: ## build all images, push them to REGISTRY=... [TAG=...], print the helm install that uses them
	@$(PYTHON) images/publish.py --registry="$(REGISTRY)" --tag="$(TAG)" --engine="$(ENGINE)" \
	  --build-args="$(BUILD_ARGS)" --push-args="$(PUSH_ARGS)"

lint: setup ## ruff, mypy strict, import contracts, sizes of files and rooms
	@.venv/bin/ruff check --quiet $(CHECKED)
	@.venv/bin/ruff format --quiet --check $(CHECKED)
	@.venv/bin/mypy operator/gpudask local benchmarks charts/render.py charts/dashboards images/publish.py images/notices.py
	@.venv/bin/lint-imports --no-logo 2>/dev/null || .venv/bin/lint-imports
	@$(PY) -m pytest -q --no-header tests/docs/test_architecture.py

test-fast: setup ## what needs no cluster and no server, in a minute
	@$(PY) -m pytest -q $(FAST) $(SIDE_BY_SIDE)

test: machine setup ## everything: lint, unit, API server, chart, real schedulers, the real cluster
	@$(MAKE) --no-print-directory --jobs=2 lint test-cluster
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-without-cluster test-on-cluster
	@$(PY) -m pytest -m quiet $$(grep -rl --include='test_*.py' 'pytest\.mark\.quiet' tests) # to import all takes longer
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-idle test-local-cluster

test-without-cluster: setup # a part of test
	@$(GIVES_WAY) $(PY) -m pytest -m "not e2e and not quiet and not idle" $(SIDE_BY_SIDE)
	@$(GIVES_WAY) $(PY) -m pytest -m own_cluster $$(grep -rl --include='test_*.py' 'pytest\.mark\.own_cluster' tests/e2e)

test-cluster: setup # a part of test
	@$(PY) -m local up
	@$(PY) -m local install
	@$(PY) -m local images dask-cpu # of one test: built here, and not within that test's time

test-on-cluster: setup # a part of test
	@$(PY) -m pytest -m "e2e and alone and not quiet and not own_cluster and not ends_cluster" --durations=20 tests/e2e
	@$(PY) -m pytest -m "e2e and not alone" $(SIDE_BY_SIDE) tests/e2e

# What one makes in these minutes is nothing, but that in time; the other makes clusters, and ends them.
test-idle: setup # a part of test
	@nice -n -5 $(PY) -m pytest -m idle $$(grep -rl --include='test_*.py' 'pytest\.mark\.idle' tests)

test-local-cluster: setup # a part of test
	@$(PY) -m pytest -m ends_cluster $$(grep -rl --include='test_*.py' 'pytest\.mark\.ends_cluster' tests/e2e)

test-e2e: setup ## the tests on a real cluster: the local one (or KUBECONFIG=... IMAGE=... OPERATOR_IMAGE=... with two nodes)
ifneq ($(IMAGE)$(OPERATOR_IMAGE),)
	@: $(if $(and $(KUBECONFIG),$(IMAGE),$(OPERATOR_IMAGE)),,$(error a cluster of your own takes all three: \
	  KUBECONFIG=... IMAGE=... OPERATOR_IMAGE=...))
	@$(GIVEN) $(PY) -m pytest -m "e2e and not alone" $(SIDE_BY_SIDE) tests/e2e $(ARGS)
	@$(GIVEN) $(PY) -m pytest -m "e2e and alone" tests/e2e $(ARGS)
else
	@: $(if $(filter command,$(firstword $(origin KUBECONFIG))),$(error a cluster of your own takes all three: \
	  KUBECONFIG=... IMAGE=... OPERATOR_IMAGE=...))
	@$(PY) -m local up
	@$(PY) -m local install
	@$(PY) -m pytest -m "e2e and not alone" $(SIDE_BY_SIDE) tests/e2e $(ARGS)
	@$(PY) -m pytest -m "e2e and alone" tests/e2e $(ARGS)
endif

test-stock: machine setup ## dask-kubernetes' own tests, beside our operator (DIR=its checkout; a cluster of your own as in test-e2e)
	@$(if $(IMAGE)$(OPERATOR_IMAGE),$(GIVEN)) $(PY) -m tests.stock_suite "$(DIR)" $(ARGS)

properties: setup ## the properties with new examples; what fails says how it is tried again
	@GPUDASK_EXAMPLES=new $(PY) -m pytest -q -m "hypothesis and not e2e" $(SIDE_BY_SIDE) $(ARGS)

soak: setup ## random histories of a simulated cluster, against an oracle (ARGS="--seconds 1800 --seed 7")
	@PYTHONHASHSEED=0 $(PY) -m tests.histories $(ARGS)

orders: setup ## random orders of events for the operator, against a new one that looks (ARGS="--seed 1000 --histories 2000")
	@PYTHONHASHSEED=0 $(PY) -m tests.orders $(ARGS)

takeovers: setup ## random takeovers of a ledger by two operators, against what the pods lived (ARGS="--seed 0 --histories 2000")
	@$(PY) -m tests.takeovers $(ARGS)

hostile: setup ## attacks by an editor of one namespace, beside somebody else's clusters (ARGS="--only schedulers")
	@$(PY) -m tests.hostile $(ARGS)

chaos: setup ## programs with known answers on the real cluster, beside faults of all kinds (ARGS="--minutes 60 --seed 2")
	@$(PY) -m local up
	@$(PY) -m tests.chaos $(ARGS)

chaos-jobs: setup ## many jobs on an API server, beside faults of every kind of write for them (ARGS="--jobs 1000 --seed 1")
	@$(PY) -m tests.chaos_jobs $(ARGS)

leaks: setup ## programs that are ended in every way on the real cluster, until their clusters are gone (ARGS="--programs 16")
	@$(PY) -m local up
	@$(PY) -m tests.leaks $(ARGS)

bench-startup: setup ## how fast clusters start and scale, beside pods by hand and dask-kubernetes' operator
	@$(PY) -m local up
	@$(PY) -m local install
	@$(PY) -m benchmarks.startup --as-installed $(ARGS)

bench-clients: setup ## how long a program waits for two workers, beside the stock client and pods made by hand
	@$(PY) -m local up
	@$(PY) -m local install
	@$(PY) -m benchmarks.clients --as-installed $(ARGS)

bench-scaling: setup ## how near the scaling policy comes to an oracle, in simulated time (ARGS="--seed 7")
	@$(PY) -m benchmarks.scaling $(ARGS)

bench-scale: setup ## many clusters and pods, beside a bare client that makes the same objects (ARGS="--small")
	@$(PY) -m benchmarks.scale $(ARGS)

bench-ha: setup ## two operators: how long a takeover takes, and what a standby costs (ARGS="--small")
	@$(PY) -m benchmarks.ha $(ARGS)

bench-gpu: setup ## on real GPUs, on a cluster that has them and the operator (docs/gpu-benchmark.md)
	@$(PY) -m benchmarks.gpu $(ARGS)

lock: setup ## resolve requirements/*.in anew
	@cd requirements && for name in operator dask dask-cu13 dev lab $$(basename -as .in client-*.in preload-*.in rapids-*.in); do $(COMPILE) $$name.in -o $$name.lock; done
	@cd requirements && $(COMPILE) -c dask.lock dask-cpu.in -o dask-cpu.lock

generate: setup ## write what is made from the models: crds/, the chart's copy, docs/reference*.md, cli.md, metrics.md, modules.md
	@$(PY) -m gpudask.api.crd > crds/gpudaskclusters.yaml
	@$(PY) -m gpudask.api.crd record > crds/gpudaskrecords.yaml
	@$(PY) -m gpudask.api.crd job > crds/gpudaskjobs.yaml
	@$(PY) -m gpudask.api.crd cron-job > crds/gpudaskcronjobs.yaml
	@$(PY) -m gpudask.api.reference .
	@$(PY) -m gpudask.cli.help_page > docs/cli.md
	@$(PY) -m gpudask.metrics.reference docs/metrics.md
	@$(PY) docs/modules.py > docs/modules.md
	@$(MAKE) --no-print-directory manifests

manifests: setup ## write the plain manifests, rendered from the chart
	@$(PY) -m charts.dashboards
	@PATH="$$($(PY) -m local commands):$$PATH" $(PY) charts/render.py
