# Everything needs only Python 3.11 or newer, pip and make; the rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# The index to take torch from. Where a GPU is, pip's own (empty), whose build for Linux has CUDA;
# elsewhere that of the CPU build, which saves 5 GB.
CPU_BUILD := https://download.pytorch.org/whl/cpu
TORCH ?= $(shell nvidia-smi -L > /dev/null 2>&1 || echo $(CPU_BUILD))

.DEFAULT_GOAL := help
.PHONY: help setup demo run test quick lint format docs tables notebook bench bench-peers mutants clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## .venv, with the versions in constraints.txt

FLOWER := packages/sofa-fl-flower

$(STAMP): pyproject.toml $(FLOWER)/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "Python 3.11, 3.12 or 3.13 is needed; set PYTHON=... to name one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@test -z "$(TORCH)" \
		|| $(BIN)/python -m pip install --quiet --retries 1 --no-deps -c constraints.txt torch --index-url "$(TORCH)" \
		|| echo "torch was not found at $(TORCH): pip takes its own build" >&2
	$(BIN)/python -m pip install --quiet -c constraints.txt \
		-e '.[dev,figures,ray,docs,onnx,adapters]' -e '$(FLOWER)[simulation]'
	@! nvidia-smi -L > /dev/null 2>&1 \
		|| $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
		|| echo "there is a GPU here, but the installed torch cannot use it; name an index for it: make clean setup TORCH=https://download.pytorch.org/whl/cu130" >&2
	@touch $@

demo: $(STAMP)  ## a tree that finds groups, grows, and follows clients that change
	$(BIN)/sofa-fl demo

run: $(STAMP)  ## the paper's experiment on the bundled MNIST
	$(BIN)/sofa-fl run

test: $(STAMP)  ## all tests, two processes side by side
	$(BIN)/python -m tests

quick: $(STAMP)  ## the tests that are not slow: about three minutes on two cores
	$(BIN)/python -m tests -m 'not (slow or deploy or browser)'

lint: $(STAMP)  ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## the site, into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

tables: $(STAMP)  ## the pages and tables of results, from results/*.json; ARGS='natural --missing' makes runs
	$(BIN)/python -m study $(or $(ARGS),docs)

notebook: $(STAMP)  ## run docs_build/notebook_cells.py into docs/notebook.ipynb
	$(BIN)/python docs_build/notebook.py

bench: $(STAMP)  ## ratios on this machine
	$(BIN)/python benchmarks/engines.py

bench-peers: $(STAMP)  ## the same job with other federated systems; ARGS=--quick for a look
	$(BIN)/python benchmarks/peers.py $(ARGS)

mutants: $(STAMP) .mutation/.ready  ## mutation testing of the tree's core, an hour; ARGS='*separation*' for one file
	PYTHONPATH=.mutation FEWER=10 OMP_NUM_THREADS=1 nice -n 10 $(BIN)/python -m mutmut run $(ARGS)

.mutation/.ready: constraints.txt
	$(BIN)/python -m pip install --quiet --target .mutation "$$(grep '^mutmut==' constraints.txt)" 'pytest<9.1'
	@touch $@

clean:  ## remove .venv and all that was built
	rm -rf $(VENV) .mutation mutants site .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
