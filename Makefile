# Paceline: `make serve` and `make test` are all that a fresh machine needs. `make help` lists the rest.

PORT ?= 8000
SCENARIOS ?= 10000
JOBS ?= 2
VENV := .venv
STAMP := $(VENV)/.installed
PROMETHEUS := $(VENV)/prometheus/usr/bin/prometheus
PACKAGES := policy engine cluster deployments
CHECKED := $(PACKAGES) benchmarks tests
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup serve chat observe test fuzz check bench reproduce browser clean moved

help:  ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Make .venv and install everything into it

serve: $(STAMP)  ## Serve the embedded model on PORT (8000)
	$(VENV)/bin/paceline models get smollm2-135m
	$(VENV)/bin/paceline serve examples/config.yaml --port $(PORT)

chat: $(STAMP)  ## Talk to the server that `make serve` started, in the terminal
	$(VENV)/bin/paceline chat --url http://127.0.0.1:$(PORT)

observe: $(STAMP)  ## Watch the server that `make serve` started: Prometheus on port 9090
	@command -v prometheus >/dev/null || $(MAKE) --no-print-directory $(PROMETHEUS)
	$(VENV)/bin/paceline observe --url http://127.0.0.1:$(PORT)

test: $(STAMP)  ## Run every test, in JOBS (2) processes
	@command -v promtool >/dev/null || $(MAKE) --no-print-directory $(PROMETHEUS) || \
	    echo "No Prometheus here: its tests are skipped."
# Two processes with two threads each on two cores would wait for each other at every barrier.
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder

fuzz: $(STAMP)  ## Try SCENARIOS (10000) random lives of an engine, from SEED on, in JOBS (2) processes
	$(VENV)/bin/python -m tests.fuzz --scenarios $(SCENARIOS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

check: $(STAMP)  ## Lint, formatting, strict types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy $(CHECKED)

bench: $(STAMP)  ## Measure tokens/s by batch size and draft length
	$(VENV)/bin/paceline models get smollm2-135m
	mkdir -p out
	$(VENV)/bin/python -m benchmarks.offline --json out/offline.json

browser:  ## Install Chromium, which the console's tests drive (Debian, as root)
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends chromium

# Stopped, it goes on where it was; from another commit it wants out/reproduce removed first.
REPRODUCED := out/reproduce
reproduce: $(STAMP)  ## The paper's experiments in short, into out/reproduce/ (docs/benchmarks.md)
	$(VENV)/bin/paceline models get smollm2-135m
	$(VENV)/bin/paceline bench characterize --out $(REPRODUCED) --batch-sizes 1,4,16 \
	    --lengths 1,2,4,8 --new-tokens 32 --repeats 2 > /dev/null
	$(VENV)/bin/paceline bench traffic --out $(REPRODUCED) --table $(REPRODUCED)/characterize.json \
	    --intervals 1.5,0.5 --cvs 1 --seconds 10 --segments 1 --timeline 0.5,2.5 \
	    --phase-seconds 8 --cycles 1 --new-tokens 64 --warm-up 10 > /dev/null
	cat $(REPRODUCED)/characterize.md $(REPRODUCED)/traffic.md > $(REPRODUCED)/report.md
	$(VENV)/bin/paceline simulate --cost a100-7b --replicas 20 --gamma 0.05,1 \
	    --report $(REPRODUCED)/simulate > /dev/null
	@echo "The reports: $(REPRODUCED)/report.md, $(REPRODUCED)/simulate/report.md"

clean:  ## Remove .venv and everything that was built (not the cached models)
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian's, into a folder of ours: no root, and nothing else of the machine changes.
$(PROMETHEUS):
	@command -v apt-get >/dev/null && command -v dpkg >/dev/null || { \
	    echo "paceline: needs Prometheus on the path, or apt-get and dpkg to get it" >&2; exit 1; }
	rm -rf $(VENV)/.prometheus && mkdir -p $(VENV)/.prometheus
	cd $(VENV)/.prometheus && apt-get -q download prometheus && \
	    dpkg -x prometheus_*.deb . && rm prometheus_*.deb
	rm -rf $(VENV)/prometheus && mv $(VENV)/.prometheus $(VENV)/prometheus

# The stamp is written last and names the folder it was made for: a virtual environment that was
# moved, or whose install was cut short, is made anew.
INSTALLING := $(VENV)/.installing
INSTALLED_FOR := $(shell cat $(STAMP) 2>/dev/null)
ifneq ($(INSTALLED_FOR),)
ifneq ($(INSTALLED_FOR),$(CURDIR))
$(STAMP): moved
endif
endif

$(STAMP): pyproject.toml constraints.txt
	@rm -f $@
	@if [ -e $(INSTALLING) ] || [ "$(INSTALLED_FOR)" != "" -a "$(INSTALLED_FOR)" != "$(CURDIR)" ]; \
	then rm -rf $(VENV); fi
	@if ! $(VENV)/bin/python -m pip --version >/dev/null 2>&1; then \
	    found=; \
	    for python in $(PYTHON) python3.11 python3 python3.12 python3.13 python3.14; do \
	        if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	            found=$$python; break; \
	        fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "paceline: needs Python 3.11 or later, and found none (set PYTHON=/path/to/python3)" >&2; \
	        exit 1; \
	    fi; \
	    if ! $$found -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	        echo "paceline: $$found lacks the venv module (on Debian: apt-get install python3-venv)" >&2; \
	        exit 1; \
	    fi; \
	    rm -rf $(VENV) && $$found -m venv $(VENV); \
	fi
	@echo "Installing the pinned packages into $(VENV): about 2 GB and several minutes, once."
	@touch $(INSTALLING)
	$(VENV)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm $(INSTALLING)
	@printf '%s\n' '$(CURDIR)' > $@
