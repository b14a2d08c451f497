# Everything a developer or a new user does. `make serve` and `make test` set up all they need.

PYTHON ?= python3
MODEL ?= smollm2
SERVE_ARGS ?=
TEST_ARGS ?=
TEST_JOBS ?= 2
PEERS ?= bench/peers
BENCH_ARGS ?=
QUALITY_ARGS ?=
FUZZ_ARGS ?=
CHAOS_ARGS ?=
RECORD_ARGS ?=
GPU_CHECK_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Not compiled: Python does so for what is imported, which is a small part of what is installed.
INSTALL := $(PIP) install --no-compile -c constraints.txt
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard kernels/cpu/src/*)

.PHONY: install serve test fuzz chaos check format proto proto-base bench bench-quality bench-cpu bench-routing bench-router bench-tracing gpu-check dashboard record-metrics page-images system-deps clean

install: $(VENV)/.serve ## What serving needs.

serve: $(VENV)/.serve ## Serve MODEL (default: a small model from PyPI) on ports 8000 and 50051.
	$(BIN)/octavo serve $(MODEL) $(SERVE_ARGS)

# torch has one thread in the tests' own processes, where several would wait for each other beside the
# other jobs'. Files go in their order, so that the last are short ones (tests/unit) and no job ends
# long before another.
test: $(VENV)/.test ## Install what the tests need and run them all, TEST_JOBS files at a time.
	PATH="$(CURDIR)/$(BIN):$$PATH" GOMP_SPINCOUNT=1000 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder $(TEST_ARGS)

fuzz: $(VENV)/.test ## Thousands of valid and invalid bodies to every operation; reports in build/fuzz.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

chaos: $(VENV)/.test ## Kills, freezes and cuts engines and routers under load, and keeps the books.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.chaos $(CHAOS_ARGS)

check: $(VENV)/.test ## Format, lint, types, import rules, contracts, generated files.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=protos:. $(BIN)/lint-imports
	cd protos && ../$(BIN)/buf lint
	cd protos && ../$(BIN)/buf breaking --against released.binpb
	cd protos && ../$(BIN)/buf format --diff --exit-code
	PATH="$(CURDIR)/$(BIN):$$PATH" protos/generate.sh --check
	$(BIN)/clang-format --dry-run --Werror kernels/cpu/src/*.cpp kernels/cpu/src/*.h kernels/cpu/bench/*.cpp

format: $(VENV)/.test ## Format everything.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cd protos && ../$(BIN)/buf format -w
	$(BIN)/clang-format -i kernels/cpu/src/*.cpp kernels/cpu/src/*.h kernels/cpu/bench/*.cpp

proto: $(VENV)/.test ## Regenerate stubs and the HTTP adapter from the protos.
	PATH="$(CURDIR)/$(BIN):$$PATH" protos/generate.sh

proto-base: $(VENV)/.test ## At a release: make today's protos what later changes must not break.
	cd protos && ../$(BIN)/buf build -o released.binpb

bench: $(VENV)/.test ## Measure a fresh server of MODEL; tables here, JSON and plots in bench/.
	tests/bench/run.sh $(MODEL)

bench-quality: $(VENV)/.test ## Perplexity and agreement of each precision; the table here, files in bench/.
	$(BIN)/python -m tests.bench.quality $(QUALITY_ARGS)

bench-cpu: $(VENV)/.test ## Octavo and its peers side by side (docs/benchmarks-cpu.md); results in bench/.
	$(BIN)/python -m tests.bench.cpu --peers $(PEERS) $(BENCH_ARGS)

bench-routing: $(VENV)/.test ## Prefix-aware routing against round-robin on three engines (docs/benchmarks-fleet.md).
	PYTHONPATH=protos:. $(BIN)/python -m tests.bench.routing $(BENCH_ARGS)

bench-router: $(VENV)/.test ## CPU time of the router for each token (docs/benchmarks-fleet.md).
	PYTHONPATH=protos:. $(BIN)/python -m tests.bench.router_cost $(BENCH_ARGS)

bench-tracing: $(VENV)/.test ## What tracing costs: servers with and without it, in turn (docs/tracing.md).
	PYTHONPATH=protos:. $(BIN)/python -m tests.bench.tracing_cost $(BENCH_ARGS)

gpu-check: $(VENV)/.serve ## Check and measure the GPU path on a machine that has one (docs/gpu.md).
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=protos:. $(BIN)/python -m tests.gpu_check $(GPU_CHECK_ARGS)

dashboard: $(VENV)/.test ## Write the Grafana dashboard that the chart installs.
	$(BIN)/python -m helm.dashboard

record-metrics: $(VENV)/.test ## Record what /metrics shows when a server is overloaded, frozen, …, for the alerts' tests.
	PYTHONPATH=protos:. $(BIN)/python -m tests.helm.record_metrics $(RECORD_ARGS)

page-images: $(VENV)/.test ## Take the pictures of docs/page.md again, with a real model under load.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.page.images $(MODEL) docs/images

# RUNLEVEL=1: services that come along are not started.
APT := RUNLEVEL=1 apt-get install -y -qq --no-install-recommends

system-deps: ## Debian packages that the tests use: other languages' clients, a real Prometheus, nginx and Chromium.
	apt-get update -qq
	command -v g++ >/dev/null || $(APT) g++
	command -v node >/dev/null || $(APT) nodejs npm
	command -v promtool >/dev/null || $(APT) prometheus
	command -v nginx >/dev/null || $(APT) nginx-light
	command -v chromium >/dev/null || $(APT) chromium
	command -v javac >/dev/null || $(APT) default-jdk-headless
	command -v grpc_cpp_plugin >/dev/null || \
		$(APT) pkg-config protobuf-compiler protobuf-compiler-grpc libgrpc++-dev
# Without …-protobuf-1-5-dev an older package is taken, with which programs build but do not run.
	command -v protoc-gen-go-grpc >/dev/null || \
		$(APT) golang-go protobuf-compiler protoc-gen-go-grpc protoc-gen-go-1-5 golang-google-grpc-dev \
		golang-google-protobuf-dev golang-google-genproto-dev golang-github-golang-protobuf-1-5-dev
	command -v grpc_java_plugin >/dev/null || \
		$(APT) protobuf-compiler protobuf-compiler-grpc-java-plugin libgrpc-java libprotobuf-java libnetty-java \
		libperfmark-java libguava-java libgoogle-common-protos-java libgeronimo-annotation-1.3-spec-java

clean: ## Forget the environment and everything built.
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	touch $@

# torch goes first and alone: its pinned build is then what everything else finds installed.
$(VENV)/.torch: $(VENV)/.pip constraints.txt
	$(INSTALL) torch
	touch $@

$(VENV)/.serve: $(VENV)/.torch $(SOURCES)
	$(INSTALL) -e '.[engine]'
	touch $@

# Has all that serving needs as well: built and resolved once, not twice.
$(VENV)/.test: $(VENV)/.torch $(SOURCES)
	$(INSTALL) -e '.[engine,bench]' --group dev --group test
	touch $(VENV)/.serve $@
