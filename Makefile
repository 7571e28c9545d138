# What a developer types. Each target says in one line what is missing and how to install it.
#   make demo   build, then a shop's A/B test from nothing to a report
#   make test   every test
#   make check  format, lints as errors, the pure crates' tests (seconds once built)
#   make s3-server  versitygw, a real S3 server, for make test (by Go; without it moto does)
#   make bench  the benchmarks of docs/BENCHMARKS.md (QUICK=1: small data)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
UPLAKE := $(CARGO_TARGET_DIR)/release/uplake
VENV ?= $(CARGO_TARGET_DIR)/venv
# Where make s3-server puts it; one on PATH does as well.
S3_SERVER := $(abspath $(CARGO_TARGET_DIR))/bin/versitygw
S3_SERVER_VERSION := v1.8.0

need = @command -v $(1) >/dev/null || { echo "missing: $(1). Install it: $(2)" >&2; exit 1; }

.PHONY: help demo build test browser-test check bench rust-tools python-tools s3-server

help:
	@sed -n '2,6s/^# \{0,1\}//p' Makefile

rust-tools:
	$(call need,cargo,https://rustup.rs (Rust 1.95 or later))
	$(call need,cc,apt-get install build-essential)

python-tools:
	$(call need,python3,apt-get install python3 python3-venv (3.11 or later))
	@test -x $(VENV)/bin/python || python3 -m venv $(VENV) || { echo "missing: venv. Install it: apt-get install python3-venv" >&2; exit 1; }
	@cmp -s tests/requirements.txt $(VENV)/requirements.txt || \
	  { $(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt && cp tests/requirements.txt $(VENV)/requirements.txt; }

s3-server:
	$(call need,go,https://go.dev/dl (1.25 or later))
	@test -x $(S3_SERVER) || GOBIN=$(dir $(S3_SERVER)) go install github.com/versity/versitygw/cmd/versitygw@$(S3_SERVER_VERSION)

build: rust-tools
	cargo build --release -p uplake

demo: build
	$(UPLAKE) demo $(CARGO_TARGET_DIR)/demo

test: export PATH := $(PATH):$(dir $(S3_SERVER))
test: rust-tools python-tools build
	cargo test
	cargo test --release --workspace
	UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python -B -m pytest -q tests/sql tests/duckdb
	UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python -B -m pytest -q tests/acceptance

	@$(MAKE) --no-print-directory browser-test

# The report page in Chromium; says so if there is none.
browser-test: rust-tools
	@if command -v node >/dev/null; then node --test tests/browser/; \
	else echo "SKIPPED: the browser tests. Install node (20 or later) and chromium" >&2; fi

check: rust-tools
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	cargo test

bench: build
	$(call need,python3,apt-get install python3 python3-venv (3.11 or later))
	UPLAKE=$(UPLAKE) bench/run.sh
