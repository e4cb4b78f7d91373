# make demo     compile a transformer and a convolutional net, compare with eager
# make test     all tests
# make fast     one of fifty tests, in a minute
# make lint     ruff, mypy --strict
# make sizes    lines per folder, longest functions
# make bench    speed, compile time and overhead, beside eager and the peer
#
# A fresh machine needs Python 3.11 or newer and gcc or clang; everything else goes into .venv.
# PYTHON=python3.12 uses another interpreter, with an environment of its own (.venv-3.12).

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell $(p) -c pass 2>/dev/null && command -v $(p))))
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(origin PYTHON),file)
VENV ?= .venv
else
VENV ?= .venv-$(VERSION)
endif
BIN := $(VENV)/bin
# Packages are compiled when all are there: by all cores, without their tests and transformers' models.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile
TORCH ?= 2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

CORES := $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')
WORKERS ?= $(CORES)
ARGS ?=

# Spinning OpenMP threads slow everything down as soon as two processes share the cores.
export OMP_WAIT_POLICY ?= PASSIVE
PYTEST := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

.PHONY: all env demo test fast lint sizes bench bench-env clean
all: test

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The CPU build is a tenth of the size of the default one: from where pip looks anyway, from PyTorch's index,
# else whatever build there is.
$(VENV)/.torch-$(TORCH): $(VENV)/.created
	$(INSTALL) "torch==$(TORCH)+cpu" 2>/dev/null \
	  || $(INSTALL) --retries 1 --timeout 20 --extra-index-url $(TORCH_INDEX) "torch==$(TORCH)+cpu" 2>/dev/null \
	  || $(INSTALL) "torch==$(TORCH)"
	@touch $@

$(VENV)/.installed: $(VENV)/.torch-$(TORCH) constraints.txt pyproject.toml
	@$(BIN)/python -c 'import nvidia' 2>/dev/null || cuda=,cuda; \
	$(INSTALL) -c constraints.txt -e ".[dev,compiler$$cuda]" 2>/dev/null || { \
	  $(INSTALL) -c constraints.txt -e ".[dev]" || exit 1; \
	  [ -z "$$cuda" ] || $(INSTALL) -c constraints.txt -e ".[cuda]" 2>/dev/null \
	    || echo "NVRTC cannot be installed: tests that build kernels of GPUs are skipped"; \
	  $(INSTALL) -c constraints.txt -e ".[compiler]" 2>/dev/null \
	    || echo "ziglang cannot be installed: tests that build with its clang are skipped"; \
	}
	$(BIN)/python -m compileall -q -j 0 -x 'site-packages/.*/(tests?|transformers/models)/' src $(VENV)/lib/python*/site-packages || true
	@touch $@

env: $(VENV)/.installed

demo: env
	$(BIN)/python examples/demo.py $(ARGS)

test: env
	$(PYTEST) $(ARGS)

fast: env
	PLIANT_TEST_EVERY=50 $(PYTEST) -m "not slow and not multiprocess" $(ARGS)

lint: env
	$(BIN)/ruff check .
	$(BIN)/mypy

sizes: env
	$(BIN)/python -m tools.sizes

bench: env
	$(BIN)/python -m benchmarks.speed $(ARGS)
	$(BIN)/python -m benchmarks.compile_time $(ARGS)
	$(BIN)/python -m benchmarks.overhead $(ARGS)
	$(BIN)/python -m benchmarks.patterns

# Image models for the benchmarks. Only the Python part of torchvision is used, hence no dependencies.
bench-env: env
	$(INSTALL) --no-deps -c constraints.txt timm torchvision

clean:
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache
