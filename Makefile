# The short face of the build. CMake presets do the work: cmake --preset dev && cmake --build --preset dev
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
VENV ?= .venv
# More options of CMake, as in CONFIGURE=-DTG_CCACHE=ON.
CONFIGURE ?=
FORMAT = clang-format-19
TIDY = clang-tidy-19
SOURCES = git ls-files -z -- '*.cpp' '*.h' | xargs -0 -r

.PHONY: help demo deps build-deps release dev test python test-python asan ubsan tsan format check complexity bench compare env-docs
.PHONY: webgpu fuzz clean test-cl test-backend test-cuda site

help:
	@echo "make demo    install what is missing, build, train a convnet on MNIST"
	@echo "make test    install what is missing, build, run all tests but the slow ones"
	@echo "make test-backend DEV=NAME [BACKEND=FILE.cpp]   run all of tests/device on a device: what works, what fails, how fast it is"
	@echo "make test-cl   run all of tests/device on OpenCL, in both forms of kernels"
	@echo "make test-cuda   the same on an NVIDIA GPU, with NVRTC from PyPI"
	@echo "make python  build the Python module tinygrad_cpp into .venv;   make test-python   and run its tests (numpy, pytest, hypothesis, jinja2, jsonschema, mypy, basedpyright, onnx from PyPI)"
	@echo "make release|dev|asan|ubsan|tsan   build one preset into build/<preset>; the sanitizers also test"
	@echo "make fuzz    build the fuzz targets with clang and sanitizers, run each for FUZZ_SECONDS (30)"
	@echo "make compare build release and compare it with other libraries (from PyPI)"
	@echo "make bench   build release and run the benchmarks;   make format   format the sources"
	@echo "make site    the pages and a reference of the headers as a web site in build/site (mkdocs-material from PyPI, doxygen)"
	@echo "make check   layers, sources, coverage, comments of headers, format;   make complexity   cognitive complexity of every function (minutes the first time)"

demo: release
	build/release/bin/tg mnist --steps 200

deps:
	@scripts/install-deps.sh

build-deps:
	@scripts/install-deps.sh --build

release: build-deps
	cmake --preset release $(CONFIGURE)
	cmake --build --preset release --parallel $(JOBS) --target tg

dev: deps
	cmake --preset dev $(CONFIGURE)
	cmake --build --preset dev --parallel $(JOBS)

check:
	python3 tools/check_layers.py
	python3 tools/check_source.py
	python3 tools/api_coverage.py --check
	@if command -v doxygen >/dev/null; then python3 tools/check_docs.py; else echo "no doxygen: comments of headers not checked"; fi
	@if command -v $(FORMAT) >/dev/null; then echo "checking the format"; $(SOURCES) $(FORMAT) --dry-run --Werror; else echo "no $(FORMAT): format not checked"; fi

complexity:
	@[ -e build/dev/compile_commands.json ] || cmake --preset dev
	python3 tools/complexity.py build/dev

test: deps check webgpu
	cmake --preset dev $(CONFIGURE)
	cmake --build --preset dev --parallel $(JOBS)
	ctest --preset dev --parallel $(JOBS)

# Its cases are in ctest too, but make test runs some of them.
test-cl: deps
	cmake --preset dev
	cmake --build --preset dev --parallel $(JOBS) --target test-cl

# The environment sees the system's packages too, so that an installed numpy or torch is used.
$(VENV)/bin/python:
	python3 -m venv --system-site-packages $(VENV)

# The library of DEV=WEBGPU for the tests, which leave it out where there is none.
webgpu: deps $(VENV)/bin/python
	@ls $(VENV)/lib/python*/site-packages/wgpu/resources/libwgpu_native* >/dev/null 2>&1 || \
	  $(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps wgpu || echo "no wheel of wgpu: no tests of DEV=WEBGPU"

python: deps $(VENV)/bin/python
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check "nanobind>=2.4" "scikit-build-core>=0.10"
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall $(PIP_FLAGS) .

test-python: python
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check numpy pytest hypothesis jinja2 "jsonschema[format-nongpl]" mypy basedpyright onnx
	cd python/tests && ../../$(VENV)/bin/python -m pytest -q .

# DEV=NAME, and BACKEND="FILE.cpp ..." for a device that is registered outside of the library.
BACKEND ?=
space := $(subst ,, )
test-backend: deps
	@[ -n "$(DEV)" ] || { echo "make test-backend needs DEV=NAME, and BACKEND=FILE.cpp for a device outside of the library"; exit 1; }
	@for f in $(BACKEND); do [ -f "$$f" ] || { echo "make test-backend: there is no file $$f"; exit 1; }; done
	cmake --preset dev "-DTG_BACKENDS=$(subst $(space),;,$(abspath $(BACKEND)))"
	cmake --build --preset dev --parallel $(JOBS) --target test_device device_speed tg
	python3 tools/test_backend.py build/dev/bin/test_device $(DEV)

# All of tests/device on an NVIDIA GPU, then how fast it is. NVRTC comes from PyPI, unless the variable names another one.
test-cuda: deps $(VENV)/bin/python
	@[ -n "$(NVRTC)" ] || $(VENV)/bin/python -m pip install -q --disable-pip-version-check nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12
	NVRTC="$${NVRTC:-$$(ls $(abspath $(VENV))/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12)}" $(MAKE) --no-print-directory test-backend DEV=CUDA

asan ubsan tsan: deps
	cmake --preset $@ $(CONFIGURE)
	cmake --build --preset $@ --parallel $(JOBS)
	ctest --preset $@ --parallel $(JOBS)

FUZZ_SECONDS ?= 30
fuzz:
	@scripts/install-deps.sh --fuzz
	cmake --preset asan -B build/fuzz -DCMAKE_CXX_COMPILER="$$(scripts/fuzz-compiler.sh || echo clang-with-libFuzzer-not-found)" \
	  -DTG_SANITIZE=address,undefined -DTG_SANITIZE_READERS=ON -DTG_FUZZ=ON -DTG_APPS=OFF -DTG_EXAMPLES=OFF -DTG_BENCHMARKS=OFF -DTG_LLVM=OFF
	cmake --build build/fuzz --parallel $(JOBS) --target fuzz
	tests/fuzz/run.py build/fuzz/bin/fuzz $(FUZZ_SECONDS)

bench: release
	build/release/bin/tg bench

compare: release
	python3 benchmarks/compare.py

format:
	$(SOURCES) $(FORMAT) -i

site: $(VENV)/bin/python
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check mkdocs-material
	PATH="$(abspath $(VENV))/bin:$$PATH" python3 tools/site.py build/site

env-docs: release
	build/release/bin/tg env --markdown > docs/env.md

clean:
	rm -rf build
