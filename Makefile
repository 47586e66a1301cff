# Everything a fresh clone needs: a virtual environment of its own, then run, test, lint.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test faults faults-limits interop lint types schema docs sdk house divergences pins clean

demo: $(READY)
	@printf '%s\n' \
	  '{"id":"1","type":"prompt","message":"list the files, please"}' \
	  | $(BIN)/pigeon --mode rpc --model demo --dialect pi-latest --no-session

# pytest keeps the tests as it has compiled them, which halves the time before the first one, unless told not to.
test: $(READY)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2

faults: $(READY)
	cd tests && PYTHONPATH=../scripts ../$(BIN)/python -m fakes.fault_injection $(or $(N),200) $(or $(SEED),1)

faults-limits: $(READY)
	cd tests && PYTHONPATH=../scripts ../$(BIN)/python -m fakes.limit_faults $(or $(N),500) $(or $(SEED),1)

interop: $(READY)
	PIGEON_INTEROP=1 $(BIN)/python -m pytest -m interop

lint: $(READY)
	$(BIN)/ruff check src tests scripts examples
	$(BIN)/ruff format --check src tests scripts

types: $(READY)
	$(BIN)/mypy

schema: $(READY)
	$(BIN)/pigeon schema > schema/protocol.schema.json

docs: $(READY)
	$(BIN)/python scripts/protocol_tables.py
	$(BIN)/python scripts/extension_tables.py
	$(BIN)/python scripts/library_reference.py

sdk: $(READY)
	$(BIN)/python scripts/sdk_commands.py

house: $(READY)
	$(BIN)/python scripts/house.py

divergences: $(READY)
	cd tests && ../$(BIN)/python -m fakes.contract_manifest

pins: $(READY)
	$(BIN)/python scripts/make_pins.py

$(READY): pyproject.toml requirements.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
