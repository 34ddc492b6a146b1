# Everything happens in .venv; nothing outside this directory is touched.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS := .venv/.docs

.PHONY: install reproduce docs test quick reliability lint wheel bench clean

INSTALL = if $(BIN)/python -m pip --version >/dev/null 2>&1; then PIP="$(BIN)/python -m pip"; \
	else PIP="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	$$PIP install --quiet --disable-pip-version-check -c constraints.txt

install: $(READY)

# ensurepip is missing on some machines: a venv without pip, filled by the system's pip, is the same in the end.
$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv 2>/dev/null || $(PYTHON) -m venv --clear --without-pip .venv
	@$(INSTALL) -e '.[dev,explore,slurm]'
	@touch $@

# Sphinx and its 26 packages: only what builds the site installs them.
$(DOCS): $(READY)
	@$(INSTALL) -e '.[docs]'
	@touch $@

reproduce: $(READY)
	$(BIN)/iclflow reproduce --out results

# The site into site/index.html, which opens from disk. The first call draws small figures for the gallery (minutes),
# unless `make reproduce` has made them; later calls use them again until the program changes.
docs: $(DOCS)
	$(BIN)/python docs/site/build.py --out site

# One worker more than two cores: tests of pages, schedulers and kills wait for others a third of their time.
test: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs train.py
	$(BIN)/python -m pytest -n 3 --dist worksteal

# What a change needs first, in about a minute: the order of rooms, records, units, data, models, theory, the slow twin.
quick: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs train.py
	$(BIN)/python -m pytest -n 2 --dist worksteal $(QUICK)

QUICK := tests/test_architecture.py tests/test_config.py tests/test_units.py tests/test_in_words.py \
	tests/test_overlay.py tests/test_staircase_detection.py tests/test_public_command.py tests/data tests/models \
	tests/engines/test_agreement.py::test_engines_repeat_the_slow_twin tests/engines/test_verdict.py \
	$(addprefix tests/theory/test_, algorithm.py early_phase.py lazy.py merged.py separate.py single_mode.py white.py) \
	$(addprefix tests/sweeps/test_, expected.py grid.py own_data.py signals.py telling.py unreadable.py) \
	tests/probing/test_parts.py

# The full counts of tests/reliability: kills, damage, dead workers and schedulers, full disks (half an hour).
reliability: $(READY)
	ICLFLOW_RELIABILITY=full $(BIN)/python -m pytest tests/reliability tests/test_notebooks.py -rs

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs train.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/fill_readme.py docs/site train.py
	$(BIN)/mypy

# The wheel, built, installed and used in a fresh environment outside this directory.
wheel: $(READY)
	.ci/check-wheel

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .xla_cache
