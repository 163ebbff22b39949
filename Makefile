# Everything starts from python3 alone: each target makes .venv and installs what it needs, once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The release that the tests run with. Where pip is not offered a CPU build of it, this brings gigabytes of CUDA: point pip at one.
TORCH ?= torch==2.13.0

.PHONY: demo test test-all lint bench bench-quick reproduce docs clean
.DELETE_ON_ERROR:

# The optimal geometry of a real long-tailed data set: table, picture, file.
demo: $(VENV)/.installed-demo
	@mkdir -p demo
	$(BIN)/optgeom solve --profile places-lt --loss supcon --batch-size 256 --views 2 --temperature 0.1 \
		--out demo/places-lt.npz --plot demo/places-lt.png

# One process per core, so one thread each.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --rooms --numprocesses auto --dist worksteal

# Once before each release; its figures are in docs/testing.md.
test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --rooms --cov=optgeom --cov-report=term-missing:skip-covered

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every table of benchmarks/README.md, written one by one; an hour. What an interrupted run left: benchmarks/run.py --resume.
bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py

# Small sizes, once, into a temporary folder: does everything still run? Minutes.
bench-quick: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py --quick

# Every experiment of docs/reproduction.md, its figures and the page: minutes on two processors.
reproduce: $(VENV)/.installed-reproduce
	OMP_NUM_THREADS=1 $(BIN)/python docs/reproduction/run.py

# The documentation as a static site that opens from disk, site/index.html; every link is checked, and a warning is an error.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/python docs/website/check_site.py site

# Outputs and caches; the environment stays (remove $(VENV) by hand).
clean:
	rm -rf demo dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find optgeom cli tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A stamp an extra set: installing again only when the requirements change.
$(VENV)/.installed-demo: EXTRAS := plot
$(VENV)/.installed-dev: EXTRAS := torch,data,plot,io,distributed,dev
$(VENV)/.installed-dev: PINNED := '$(TORCH)'
$(VENV)/.installed-reproduce: EXTRAS := torch,data,plot
$(VENV)/.installed-reproduce: PINNED := '$(TORCH)'
$(VENV)/.installed-docs: EXTRAS := docs
$(VENV)/.installed-bench: EXTRAS := torch,data,plot,io,distributed,dev,bench
$(VENV)/.installed-bench: PINNED := '$(TORCH)'
$(VENV)/.installed-%: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]' $(PINNED)
	@touch $@
