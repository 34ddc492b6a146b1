# Everything happens in .venv; nothing outside this directory is touched.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: install reproduce test reliability lint bench clean

install: $(READY)

# ensurepip is missing on some machines: a venv without pip, filled by the system's pip, is the same in the end.
$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv 2>/dev/null || $(PYTHON) -m venv --clear --without-pip .venv
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then PIP="$(BIN)/python -m pip"; \
	 else PIP="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	 $$PIP install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,explore]'
	@touch $@

reproduce: $(READY)
	$(BIN)/iclflow reproduce --out results

test: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs train.py
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The full counts of tests/reliability: kills, damage, dead workers and schedulers, full disks (about 20 minutes).
reliability: $(READY)
	ICLFLOW_RELIABILITY=full $(BIN)/python -m pytest tests/reliability -rs

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs train.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/fill_readme.py train.py
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .ruff_cache .mypy_cache
