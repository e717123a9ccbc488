# Two commands do everything on a machine with Python 3.11+ and make:
#   make reproduce   the paper's experiment, at full size
#   make test        checks and tests; make test-real those on real processes and in a browser
PYTHON ?= python3
BIN := .venv/bin
OUT ?= out/reproduce

.PHONY: help venv browser reproduce test test-kernels test-real quick check docs bench mutants clean

help:
	@echo "make reproduce | test | test-real | quick | check | docs | bench | mutants | venv | clean"

venv: .venv/.ready

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "codedfl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[study,dev,docs,plots,he,flare,explore,cluster]'
	@touch $@

reproduce: venv
	$(BIN)/codedfl reproduce --out $(OUT)

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# pages are tested in Chromium, which the system's package manager brings if it may; without it these tests are skipped
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null; } || \
	  echo "Chromium is missing and cannot be installed here: pages are not tested in a browser"

# one thread each; three workers on two processors, because some tests wait. Bytecode is kept even where the environment
# says otherwise: rewriting assertions takes each worker nine seconds
PYTEST = PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest
SPREAD = -n 3 --dist loadfile --no-loadscope-reorder

# everything that one process can do; types are checked on one processor while kernels are compiled on the other
test: venv
	@$(MAKE) --no-print-directory -j 2 --output-sync=target check test-kernels
	$(PYTEST) $(SPREAD) -m "not kernels and not real"

test-kernels: venv
	$(PYTEST) -m kernels

# what needs processes beside its own: fleets on NVIDIA FLARE, clusters, killed commands, pages in Chromium, and the site
# with its tutorials executed
test-real: venv browser
	$(PYTEST) $(SPREAD) -m real

# daily work: what needs no process, no fleet and no long training
quick: venv
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile \
	  tests/network tests/solvers tests/scenario tests/task tests/training tests/engines tests/schemes/plain \
	  tests/schemes/test_registry.py tests/codes tests/test_settings.py tests/test_progress.py tests/test_storage.py

# pages that come from the code, then the site: out/site/index.html needs no server and no network
docs: venv
	$(BIN)/codedfl settings --markdown > docs/settings.md
	$(BIN)/codedfl security --markdown > docs/secrecy.md
	$(BIN)/python tests/documents.py
	$(BIN)/python docs/messages.py
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html -c docs . out/site

bench: venv
	$(BIN)/python -m benchmarks

# make mutants FILES="src/codedfl/codes/mds.py ..." COUNT=100 SEED=1: which random changes does no test notice?
mutants: venv
	PYTHONPATH=tests $(BIN)/python -m mutation --count $(or $(COUNT),100) --seed $(or $(SEED),1) $(FILES)

clean:
	rm -rf .venv out runs build .pytest_cache .mypy_cache .ruff_cache .hypothesis
