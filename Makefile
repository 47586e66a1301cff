# Everything a fresh clone needs: a virtual environment of its own, then run, test, lint.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Three steps, each with its mark: what Pigeon needs to run, then what its chat needs, then its tests and checks.
READY := $(VENV)/.ready
CHAT := $(VENV)/.ready-chat
DEV := $(VENV)/.ready-dev
# An environment of its own: Ray is large, and the tests of everything else must pass without it.
RAY := .venv-ray
# Python with the modules of tests/ and scripts/.
TESTS_PYTHON := cd tests && PYTHONPATH=../scripts ../$(BIN)/python
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: undo-storm undo-bench demo chat demo-raw test faults faults-limits fuzz mutants serve-flood serve-storm serve-cuts serve-bench workspace-storm workspace-bench ray-tests batch-storm batch-bench mcp-bench acp-bench chat-speed interop lint types schema docs sdk house divergences pins picture bench bench-peers release-check clean

# One conversation, as a person reads it.
demo: $(READY)
	@$(BIN)/python examples/demo.py
	@printf '%s\n' '' \
	  'That was a whole conversation. Next:' \
	  '  make demo-raw          the same protocol as the JSON lines that programs see' \
	  '  make chat              a chat with you; it says how to get a key, or takes the demo model' \
	  '  README.md              what else there is'

# The chat, with the extras that it needs.
chat: $(CHAT)
	@$(BIN)/pigeon

# The lines themselves.
demo-raw: $(READY)
	@printf '%s\n' \
	  '{"id":"1","type":"prompt","message":"list the files, please"}' \
	  | $(BIN)/pigeon --mode rpc --model demo --dialect pi-latest --no-session

# What fails is run once more, alone, and named: a machine that stalls for seconds fails no run.
test: $(DEV)
	$(BIN)/python scripts/run_tests.py

faults: $(DEV)
	$(TESTS_PYTHON) -m stress.agent_faults $(or $(N),200) $(or $(SEED),1)

# Random sequences of changes and undos, and what a checkpoint costs.
undo-storm: $(DEV)
	$(TESTS_PYTHON) -m stress.undo_storm -n $(or $(N),10000) --seed $(or $(SEED),1)

undo-bench: $(DEV)
	$(BIN)/python scripts/undo_bench.py

faults-limits: $(DEV)
	$(TESTS_PYTHON) -m stress.limit_faults $(or $(N),500) $(or $(SEED),1)

# N shell commands, run where only harmless programs can be found; permission rules must have known what runs.
fuzz: $(DEV)
	$(TESTS_PYTHON) -m stress.shell_fuzzer $(or $(N),10000) $(or $(SEED),1)

# So many deliberate damages to the source, in copies of it: do the tests notice them? PACKAGE is one, as `mcp` or
# `frontends.acp`; JOBS run at once; ARGS may be --again (what nothing had noticed), --list (the sample alone) or
# --unreached (the code that no test reaches, without any damage).
mutants: $(DEV)
	$(TESTS_PYTHON) -m stress.mutants $(or $(N),150) $(or $(SEED),1) --package "$(PACKAGE)" --jobs $(or $(JOBS),1) $(ARGS)

serve-flood: $(DEV)
	$(TESTS_PYTHON) -m stress.connection_flood $(or $(N),10000)

# Clients of `pigeon serve` that lose their connection so often, and then workers that are killed so often.
serve-storm: $(DEV)
	$(TESTS_PYTHON) -m stress.serve_storm $(or $(N),1000) $(or $(KILLS),200) $(or $(SEED),1) $(or $(SHARED),1)

# So many prompts of one client whose connection is cut all the time; each event must come once, each prompt run once.
serve-cuts: $(DEV)
	PIGEON_CUT_PROMPTS=$(or $(N),150) PIGEON_CUT_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s --timeout 3600 \
	  tests/frontends/serve/test_broken_connections.py

# So many cuts of connections to another machine, and kills on either side: no file half written, no command run twice.
workspace-storm: $(DEV)
	$(TESTS_PYTHON) -m stress.workspace_storm $(or $(N),300) $(or $(SEED),1)

# What workspaces elsewhere cost, over a network with DELAY milliseconds each way; ARGS are options of the script.
workspace-bench: $(DEV)
	$(TESTS_PYTHON) -m stress.workspace_bench --delay $(or $(DELAY),0) $(ARGS)

# What served conversations cost; ARGS are options of the script.
serve-bench: $(DEV)
	$(BIN)/python scripts/serve_bench.py $(ARGS)

# Pigeon beside the other agents that are installed; writes docs/speed.md and its pictures. ARGS are options.
bench: $(DEV)
	PYTHONPATH=scripts $(BIN)/python -m bench $(ARGS)

# Installs the other agents into a cache folder; ARGS may name some of them.
bench-peers: $(DEV)
	PYTHONPATH=scripts $(BIN)/python -m bench.install $(ARGS)

# How fast the chat starts and answers keys; ARGS is the command of another program to compare the start with.
chat-speed: $(DEV)
	$(TESTS_PYTHON) -m stress.chat_speed $(ARGS)

# What ten configured tool servers cost the start; ARGS are options of the script.
mcp-bench: $(DEV)
	$(BIN)/python scripts/mcp_bench.py $(ARGS)

# The first answer of `pigeon acp`, and what 200 sessions leave behind.
acp-bench: $(DEV)
	PYTHONPATH=scripts $(BIN)/python scripts/acp_bench.py

# 200 tasks of `pigeon batch` on every engine, with so many kills of drivers, workers and raylets; Ray is used if it is installed.
batch-storm: $(DEV)
	$(TESTS_PYTHON) -m stress.batch_storm $(or $(KILLS),50) $(or $(SEED),1)

# What a task of `pigeon batch` costs beyond `pigeon -p`, and the memory of the driver over many tasks.
batch-bench: $(DEV)
	$(BIN)/python scripts/batch_bench.py $(ARGS)

# The tests of batches with Ray itself, in an environment that has it (a few hundred MB, only then); ARGS are pytest's.
ray-tests: $(RAY)/.ready
	$(RAY)/bin/python -m pytest -rs tests/frontends/batch/test_ray_engine.py tests/frontends/batch/test_ray_results.py $(ARGS)

interop: $(DEV)
	PIGEON_INTEROP=1 $(BIN)/python -m pytest -m interop

lint: $(DEV)
	$(BIN)/ruff check src tests scripts examples
	$(BIN)/ruff format --check src tests scripts

types: $(DEV)
	$(BIN)/mypy

schema: $(DEV)
	$(BIN)/pigeon schema > schema/protocol.schema.json

# The reference of the library is made from the exports that `sdk` makes.
docs: $(DEV) sdk
	$(BIN)/python scripts/protocol_tables.py
	$(BIN)/python scripts/model_tables.py
	$(BIN)/python scripts/extension_tables.py
	$(BIN)/python scripts/permission_tables.py
	$(BIN)/python scripts/library_reference.py

sdk: $(DEV)
	$(BIN)/python scripts/sdk_commands.py

# The picture of README: a real chat with a scripted model, recorded and drawn.
picture: $(DEV)
	PYTHONPATH=tests $(BIN)/python scripts/terminal_picture.py

house: $(DEV)
	$(BIN)/python scripts/house.py

# Wheel and sdist, each installed into an empty environment with what pip finds for it, and used there.
release-check: $(DEV)
	$(BIN)/python scripts/release_check.py --out dist

divergences: $(DEV)
	$(TESTS_PYTHON) -m support.contract

pins: $(DEV)
	$(BIN)/python scripts/make_pins.py

.PHONY: faults-agents agents-bench

# N runs with trees of agents, of which every fifth kills the program and starts it again.
faults-agents: $(DEV)
	$(TESTS_PYTHON) -m stress.tree_faults $(or $(N),500) $(or $(SEED),1)

# What 50 agents that work at once cost; ARGS are options of the script, which can measure oh-my-pi's program, too.
agents-bench: $(DEV)
	$(BIN)/python scripts/agents_bench.py $(ARGS)

$(READY): pyproject.toml requirements.txt
	@echo 'Installing Pigeon and the packages it needs into $(VENV) (only now; up to a minute) ...'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Pigeon needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 demo")'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $(READY)

$(CHAT): $(READY) requirements-chat.txt
	@echo 'Installing what the chat needs into $(VENV) (only now; up to a minute) ...'
	@$(PIP) install --require-hashes -r requirements-chat.txt
	@touch $(CHAT)

$(DEV): $(READY) requirements-chat.txt requirements-dev.txt
	@echo 'Installing what the tests and checks need into $(VENV) (only now; up to a minute) ...'
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $(DEV)

$(RAY)/.ready: pyproject.toml requirements.txt requirements-chat.txt requirements-dev.txt
	@echo 'Installing Ray and the packages of the tests into $(RAY) (only now; a minute or two) ...'
	@$(PYTHON) -m venv $(RAY)
	@$(RAY)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements.txt -r requirements-dev.txt
	@$(RAY)/bin/python -m pip --quiet --disable-pip-version-check install --no-build-isolation -e '.[ray]'
	@touch $(RAY)/.ready

clean:
	rm -rf $(VENV) $(RAY) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
