# Two commands on a machine that has python3.11 and make: `make demo` and `make test`.

PYTHON ?= python3.11
PORT ?= 3000
BIN := .venv/bin

# The one table of versions is in pyproject.toml.
TORCH := $(shell sed -n 's/^ *"\(torch==[^"]*\)",\{0,1\}$$/\1/p' pyproject.toml)

.PHONY: demo ui test check
.DELETE_ON_ERROR:

demo: .venv/ready ## three models to ONNX and ExecuTorch through Dagster
	$(BIN)/zooport demo

ui: .venv/ready ## the asset graph, with what the demo made
	DAGSTER_HOME="$$($(BIN)/python -m orchestration.instance)" $(BIN)/dagster dev -w workspace.yaml -p $(PORT)

test: .venv/ready
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch first and by name: resolved along with everything else, it can come as a build for CUDA, gigabytes that nobody here needs
.venv/ready: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "zooport needs $(PYTHON); set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "installing into .venv, once; this takes some minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check '$(TORCH)'
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@
