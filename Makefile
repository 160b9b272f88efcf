# Each target is one command; `make help` lists them.
JOBS ?= $(shell nproc)
# CI turns warnings into errors: make WERROR=ON test
WERROR ?= OFF
export JOBS
.DEFAULT_GOAL := help
space := $(subst ,, )
.NOTPARALLEL:
.PHONY: help setup build all demo quick test test-isa test-zoo test-onnx test-packages test-cuda python stubs wheel wheel-abi3 test-python test-all check tsan fuzz fuzz-long mutate bad-input bench bench-shared bench-compare peers bench-peers bench-torch gpu-pack gpu-check plan-accuracy memory-curves package format lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: ## installs what is missing (Debian packages)
	@tools/setup.sh --check >/dev/null || tools/setup.sh

# Sources compile in batches, which takes less than half as long; `make build` compiles each by
# itself, after which a change takes seconds. A build folder keeps its way until `make build`.
build: setup ## the program, the library, tests, examples and benchmarks, each source by itself, in build/release
	@$(call build_preset,release,,-DWEFT_UNITY=OFF)

all: setup ## the same, in batches where nothing was built before
	@$(call build_preset,release)

TARGETS ?= weft_tests
tests: setup # what the tests run, or TARGETS
	@$(call build_preset,release,--target $(TARGETS))

demo: setup ## builds the program alone, plans a small run, then trains it
	@$(call build_preset,release,--target weft_program)
	@tools/demo.sh

quick: setup ## between commits: format, layers, and the quick tests of what a change touches
	@tools/quick.sh

test: tests ## the quick tests
	@tools/test.sh release -L quick

test-isa: tests ## ops, kernels, passes and training under every instruction set that the host has
	@tools/test_isa.sh release

test-zoo: tests ## every model on 1, 2, 3 and 8 threads, files above 2 and 4 GiB, and runs that are killed
	@tools/test.sh release -R '^((train|models)\.zoo|train\.kill|io)\.slow$$'

test-onnx: tests ## the cases of the onnx package's backend suite, that the list of operators is complete, and onnxruntime on what weft writes
	@tools/setup.sh --onnx
	@build/onnx-venv/bin/python tools/onnx_cases.py build/onnx-cases
	@build/onnx-venv/bin/python tools/onnx_cases.py --table build/release --check
	@ONNX_CASES=$(CURDIR)/build/onnx-cases PEERS_PYTHON=$(CURDIR)/build/onnx-venv/bin/python tools/test.sh release -R '^(onnx|onnx\.slow|(train|cli)\.onnx\.slow)$$'

test-packages: all ## installs the packages in bare roots, and runs what they hold
	@tools/test.sh release -R '^package/'

# The tests to run, as a pattern of ctest.
CUDA_TESTS ?= ^gpu/|\.(nvrtc|cudnn)$$|\.cuda(\.(refused|reversed|shuffled|unrecorded))?$$
test-cuda: all ## the CUDA backend, and all of gpu-check in small sizes, on a driver that pretends to have a GPU; kernels through NVRTC, plans of cuDNN
	@tools/test.sh release -R '$(CUDA_TESTS)'

python: all ## the extension of the Python package, for PYTHONPATH=python build/python-venv/bin/python
	@tools/setup.sh --python-build
	@tools/python.sh

stubs: all ## the same, and the signatures of the extension for editors, python/weft/_weft/*.pyi
	@tools/setup.sh --python-build
	@tools/python.sh stubs

wheel: all ## the wheel of the Python package, with its libraries inside, in build/wheel
	@tools/setup.sh --python-build
	@tools/wheel.sh

wheel-abi3: all ## the wheel for Python 3.12 and later, in build/wheel-abi3, tried in a root of Debian 13
	@tools/setup.sh --python-build
	@tools/wheel_abi3.sh

# The tests to run, as pytest takes them: make test-python PYTHON_TESTS='tests/python/torch -k sizes'
PYTHON_TESTS ?= tests/python -m 'not slow'
test-python: python ## the quick tests of the Python package, and of its backend of PyTorch
	@tools/setup.sh --python
	@PYTHONPATH=python build/python-venv/bin/python -m pytest -q -p no:cacheprovider \
	  -n $(JOBS) --dist loadfile $(PYTHON_TESTS)

# The first seed of make fuzz-python, and how many graphs: a failure prints its seed.
FUZZ_SEED ?= $(shell date +%s)
FUZZ_COUNT ?= 2000
fuzz-python: python ## random graphs of torch's operations, and random events between steps, beside eager torch: ten minutes
	@tools/setup.sh --python
	@PYTHONPATH=python OMP_NUM_THREADS=1 build/python-venv/bin/python tests/python/torch/fuzz_graphs.py --seed $(FUZZ_SEED) --count $(FUZZ_COUNT)
	@PYTHONPATH=python OMP_NUM_THREADS=1 build/python-venv/bin/python tests/python/torch/fuzz_steps.py --seed $(FUZZ_SEED) --count $$(($(FUZZ_COUNT) / 20))

# The Python that has PyTorch and JAX; if empty, nothing is compared with them.
PEERS_VENV := $(CURDIR)/build/peers-venv/bin/python
PEERS_PYTHON ?= $(PEERS_VENV)
peers: ## PyTorch and JAX in build/peers-venv, where PEERS_PYTHON names no other Python
	@test "$(PEERS_PYTHON)" != "$(PEERS_VENV)" || tools/setup.sh --peers

test-all: all peers test-isa test-onnx check tsan wheel wheel-abi3 ## quick and slow tests, under the sanitizers and against PyTorch too, of the Python package, and short fuzzing
	@tools/setup.sh --cluster
	@PEERS_PYTHON="$(PEERS_PYTHON)" tools/test.sh release
	@tools/setup.sh --python-all
	@WEFT_PYTHON_ALL=1 $(MAKE) --no-print-directory test-python PYTHON_TESTS=tests/python
	@$(MAKE) --no-print-directory fuzz-python FUZZ_COUNT=500

# The tests to run; empty: all quick tests. PART=2/4 runs every fourth fuzzer, from the second on.
CHECKED ?=
check: setup ## quick tests and short fuzzing with verifier, poison, address and UB sanitizers
	@$(call build_preset,check,--target $(if $(CHECKED),$(sort $(patsubst %,test_%,$(basename $(CHECKED)))),weft_tests) $(shell tools/fuzz.sh --targets))
	@env -u PART tools/test.sh check -L quick $(if $(CHECKED),-R '^($(subst $(space),|,$(strip $(CHECKED))))$$')
	@tools/fuzz.sh 15

# Test programs of code with threads.
THREADED = backends codegen comm data runtime train
tsan: setup ## the tests of what has threads, under the thread sanitizer
	@$(call build_preset,tsan,--target $(addprefix test_,$(THREADED)))
	@tools/test.sh tsan -R '^($(subst $(space),|,$(THREADED)))$$'

fuzz: setup ## every fuzzer for fifteen seconds
	@$(call build_preset,check,--target fuzzers)
	@tools/fuzz.sh 15

fuzz-long: setup ## every fuzzer for an hour
	@$(call build_preset,check,--target fuzzers)
	@tools/fuzz.sh 3600

# The folders to mutate, the number of mutants of each, and the seed.
MUTATE ?= weft/artifact weft/planner weft/infer weft/optim weft/io weft/data weft/runtime weft/ops weft/passes weft/codegen weft/train weft/backends/cpu weft/models weft/onnx weft/pictures
COUNT ?= 15
SEED ?= 1
mutate: setup ## seeds faults, and lists those that the quick tests miss (MUTATE=weft/io SEED=2)
	@tools/mutate.py $(MUTATE) --count $(COUNT) --seed $(SEED) --report build/mutants.md

bad-input: tests ## what weft answers to bad input, as docs/bad-input.md
	@tools/bad_input.py build/release

bench: all ## every workload against the roofline; planning by depth
	@tools/bench.sh

bench-compare: all ## this build beside another (BEFORE=../old/build/release)
	@tools/compare_builds.py "$(BEFORE)" build/release

bench-shared: all ## two runs on the same two cores beside one alone
	@tools/side_by_side.py build/release

bench-peers: all peers ## every row of the CPU table, weft and the peers in turn
	@test -n "$(PEERS_PYTHON)" || { echo "bench-peers needs a Python that has PyTorch and JAX: leave PEERS_PYTHON unset, or name one (bench/peers/README.md)"; exit 2; }
	@python3 bench/peers/run.py --all --weft build/release/weft --python $(PEERS_PYTHON) \
	  --json build/peers/results.json --markdown build/peers/table.md --inductor-cache build/peers/inductor

bench-torch: python ## training steps of torch models beside eager and inductor (MODELS="gpt2 vit")
	@tools/setup.sh --python
	@OMP_NUM_THREADS=2 build/python-venv/bin/python bench/peers/torch_backend.py $(MODELS)

gpu-pack: all ## packs what gpu-check needs, to bring it to a machine with a GPU
	@tools/gpu_pack.sh

gpu-check: ## tests and measures on an NVIDIA GPU what gpu-pack packed: nine minutes at most
	@tools/gpu_check.py

plan-accuracy: all ## estimates beside published runs that no fit has seen: docs/plan-accuracy.md
	@tools/plan_accuracy.py build/release

memory-curves: all ## time over memory of GPT-2 and ResNet-50, as pictures in docs
	@tools/memory_curves.sh

package: all ## .deb packages and a relocatable archive, in build/package
	@tools/package.sh

format: setup ## formats every source
	@git ls-files --cached --others --exclude-standard -- '*.cpp' '*.h' | xargs -r clang-format-19 -i

lint: setup ## checks the format, and runs clang-tidy on what changed
	@tools/lint.sh

clean: ## removes every build
	@rm -rf build python/weft/_weft*

# ninja reconfigures by itself when a CMake file changes; changed flags must be passed explicitly.
#   $(call build_preset,PRESET,BUILD ARGUMENTS,CONFIGURE ARGUMENTS)
build_preset = mkdir -p build && \
	{ test -f build/$(1)/CMakeCache.txt || batches=-DWEFT_UNITY=ON; \
	  cmake --preset $(1) -DWEFT_WERROR=$(WERROR) $$batches $(3) >build/$(1).log 2>&1 || \
	  { cat build/$(1).log; exit 1; }; } && \
	cmake --build --preset $(1) -j $(JOBS) $(2)
