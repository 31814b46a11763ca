# The project's commands. Each works from a clean clone; `make help` lists them.

PYTHON ?= python3

# Tried in turn if no interpreter was chosen and python3 is missing or too old.
ifeq ($(origin PYTHON),file)
FALLBACKS := python3.13 python3.12 python3.11
endif

VENV := .venv
PEER := .venv-peer
DURABLE_PEER := .venv-durable-peer
BENCHMARKS := $(sort $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))
CACHES := .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE # the tests start hundreds of interpreters, which share what one of them compiled

# Fails on a Python that is too old; prints the version and the interpreter behind any active virtual environment.
IDENTIFY := import os, sys; sys.version_info >= (3, 11) or sys.exit(1); \
	print(sys.version.split()[0], os.path.realpath(sys._base_executable))

# $(call environment,directory,input files,arguments of pip install): make a virtual environment match its inputs.
#
# A stamp inside it names the interpreter, the place and the inputs. It is removed before anything is installed and
# written when all is done, so an interrupted install never passes for a finished one. Changed inputs are installed on
# top; without a stamp, or with another interpreter or place than the stamp's, the environment is created again.
define environment
	@set -eu; \
	interpreter=; \
	for candidate in "$(PYTHON)" $(FALLBACKS); do \
		interpreter=$$("$$candidate" -c '$(IDENTIFY)' 2>/dev/null) && break; \
	done; \
	if [ -z "$$interpreter" ]; then \
		echo "error: Amplifier needs Python 3.11 or newer; not found as: $(PYTHON) $(FALLBACKS)" >&2; \
		echo "  fix: name one, for example: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
		exit 1; \
	fi; \
	stamp=$(1)/.stamp; \
	place="$$interpreter in $$(pwd -P)"; \
	wanted=$$(printf '%s\n' "$$place"; cksum $(2)); \
	if [ "$$(cat $$stamp 2>/dev/null)" = "$$wanted" ] && $(1)/bin/python -c '' 2>/dev/null; then exit 0; fi; \
	if [ "$$(head -n 1 $$stamp 2>/dev/null)" != "$$place" ] || ! $(1)/bin/python -c 'import pip' 2>/dev/null; then \
		echo "Creating $(1) with Python $$interpreter"; \
		rm -rf $(1); \
		"$${interpreter#* }" -m venv $(1); \
	fi; \
	rm -f $$stamp; \
	echo "Installing into $(1)"; \
	$(1)/bin/python scripts/install_packages.py $(3); \
	printf '%s\n' "$$wanted" > $$stamp
endef

# Scripts and tests that compare with the reference kernel find its interpreter in this variable.
WITH_PEER := AMPLIFIER_PEER_PYTHON="$$(pwd -P)/$(PEER)/bin/python"
WITH_PEERS := $(WITH_PEER) AMPLIFIER_DURABLE_PEER_PYTHON="$$(pwd -P)/$(DURABLE_PEER)/bin/python"

.PHONY: help install run serve test check format lint types imports suite pages pictures bench compat soak simulate fuzz clean peer durable-peer browser

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

install: ## Create .venv with the pinned packages; does nothing if nothing changed
	$(call environment,$(VENV),pyproject.toml constraints.txt hatch_build.py src/amplifier_core/_version.py \
		$(sort $(wildcard modules/*/pyproject.toml)),--constraint constraints.txt --editable '.[dev]')

run: install ## Show an agent at work in a sample project, without a key or a network
	@$(VENV)/bin/python examples/first_run.py

serve: install ## Start the daemon for your home, until Ctrl-C
	@$(VENV)/bin/python -m amplifierd serve

test: lint ## Run everything CI runs: lint, types, imports and the test suite
	@$(MAKE) --jobs 3 imports types suite

suite: install browser ## Run the tests, in twice as many processes as there are cores: many of them wait
	@$(VENV)/bin/python -m pytest --processes $$((2 * $$(getconf _NPROCESSORS_ONLN))) || { \
		printf '\nWhat failed beside others is run again, alone. It fails the suite if it fails again.\n'; \
		$(VENV)/bin/python -m pytest --last-failed --last-failed-no-failures none; }

check: lint types imports ## Run lint, types and imports

format: install ## Rewrite the code in the project's format
	@$(VENV)/bin/python -m ruff check --fix .
	@$(VENV)/bin/python -m ruff format .

lint: install ## Check for mistakes and unformatted code
	@$(VENV)/bin/python -m ruff check .
	@$(VENV)/bin/python -m ruff format --check .

types: install ## Check the types
	@$(VENV)/bin/python -m mypy

imports: install ## Check the import rules
	@$(VENV)/bin/python scripts/check_imports.py

pages: install ## Regenerate the generated pages and the terminal recording of the documentation
	@$(VENV)/bin/python scripts/write_pages.py
	@$(VENV)/bin/python scripts/record_terminal.py

pictures: install ## Take the screenshots for the documentation, in a real browser
	@PYTHONPATH=tests/stand_ins:tests/cli:tests/daemon/http $(VENV)/bin/python -m tests.page.pictures

bench: install peer durable-peer ## Run every benchmark, side by side with the reference kernel and other agents
	@status=0; for script in $(BENCHMARKS); do \
		printf '\n%s\n' "$$script"; \
		$(WITH_PEERS) $(VENV)/bin/python "$$script" || status=1; \
	done; exit $$status

compat: install peer ## Run our contract suites on the reference kernel, and explain every difference
	@$(WITH_PEER) $(VENV)/bin/python -m pytest tests/compat

simulate: install ## Run 10,000 seeds of a simulated cluster; prints those that fail
	@$(VENV)/bin/python tests/simulation/simulate.py --seeds 10000 --processes $$(getconf _NPROCESSORS_ONLN)

soak: install ## Kill sessions, commands, a loaded daemon and a cluster, fail every write, and check what is left; needs a quiet machine
	@$(VENV)/bin/python tests/soak crash_soak --kills 100
	@$(VENV)/bin/python tests/soak command_soak --kills 100 --way continue
	@$(VENV)/bin/python tests/soak command_soak --kills 100 --way run
	@$(VENV)/bin/python tests/soak io_sweep
	@$(VENV)/bin/python tests/soak daemon_soak --streaming 100 --idle 1000 --turns 5 --limits
	@$(VENV)/bin/python tests/soak stream_soak --idle 1000 --unread 16 --streaming 20 --turns 15
	@$(VENV)/bin/python tests/soak cluster_gate --rounds 100
	@$(VENV)/bin/python tests/soak cluster_soak --sessions 200 --minutes 10

fuzz: install ## Try every property with hundreds of random values, and send the daemon thousands of random requests
	@$(VENV)/bin/python -m pytest -q -m hypothesis --hypothesis-profile fuzz
	@AMPLIFIER_FUZZ_EXAMPLES=300 $(VENV)/bin/python -m pytest -q tests/daemon/http/test_fuzz.py tests/daemon/http/every_operation/test_all_events.py

clean: ## Remove the virtual environments, build results and caches
	@rm -rf $(VENV) $(PEER) $(DURABLE_PEER) build dist $(CACHES)
	@find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

browser: # for the tests of the page, which skip without one
	@scripts/install_browser.sh

peer:
	$(call environment,$(PEER),benchmarks/peer-requirements.txt,--requirement benchmarks/peer-requirements.txt)

durable-peer: # agents of others that store their turns, for benchmarks/durable.py
	$(call environment,$(DURABLE_PEER),benchmarks/durable-peer-requirements.txt,--requirement benchmarks/durable-peer-requirements.txt)
