# make demo · make test · make torture · make bench · make docs · make lint: each sets up .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := torch==2.13.0

# Real data, if it lies beside the project; tests that need it are skipped otherwise.
ifneq ($(wildcard ../shared/data),)
export P2PLANE_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test torture bench docs lint clean

demo: $(READY)
	$(BIN)/p2plane demo

# A process for each core; tests of one file stay together.
test: lint
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

# Faults and abuse: twenty minutes. TABLE=docs/torture.md writes the page of what was tried and what happened.
torture: $(READY)
	$(BIN)/python -m pytest torture $(if $(TABLE),--table $(TABLE))

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/layer.py

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# torch goes first and by its exact version, so that nothing else can choose a build of it.
$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist site benchmarks/results
