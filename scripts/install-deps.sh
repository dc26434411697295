#!/usr/bin/env bash
# Installs what the build needs from Debian's or Ubuntu's own packages. Does nothing when all of it is there.
# With --fuzz also clang's sanitizers and libFuzzer, for make fuzz and CI.
set -euo pipefail

command -v dpkg-query >/dev/null || {
  echo "install-deps: not a Debian or Ubuntu system. Needed: cmake >= 3.25, ninja, g++ >= 12 or clang >= 16, LLVM >= 17, fmt, SQLite, zlib, PCRE2, utf8proc, nlohmann-json, Boost's headers, CLI11, GoogleTest, Google Benchmark, OpenCL's headers and loader, PoCL, Vulkan's loader and Mesa's drivers." >&2
  exit 0
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for p in cmake ninja-build g++ lld git python3 python3-venv python3-dev libfmt-dev libcli11-dev libsqlite3-dev nlohmann-json3-dev zlib1g-dev libboost-dev libpcre2-dev libutf8proc-dev pkg-config libgtest-dev libgmock-dev libbenchmark-dev openmpi-bin opencl-c-headers ocl-icd-libopencl1 pocl-opencl-icd libvulkan1 mesa-vulkan-drivers libdw1; do
  installed "$p" || missing+=("$p")
done

# LLVM: 19 where it is offered, else the newest that is at least 17. The compiler of DEV=CPU:CLANG has the same number.
llvm=""
for v in 19 22 21 20 18 17; do installed "llvm-$v-dev" && { llvm=$v; break; }; done
fuzz=${1:-}
runtime() { [ "$fuzz" != --fuzz ] || installed "libclang-rt-$llvm-dev"; }
# Kernels for other processors are run where their emulator is offered.
emulator() { installed qemu-user && installed g++-aarch64-linux-gnu; }
reference() { installed doxygen; }
page() { installed libjs-d3 && installed chromium && installed chromium-driver; }
format=yes; { installed clang-format-19 && installed clang-tidy-19; } || format=no
if [ ${#missing[@]} = 0 ] && [ -n "$llvm" ] && installed "clang-$llvm" && runtime && emulator && page && reference && { [ $format = yes ] || [ "$llvm" != 19 ]; }; then exit 0; fi

sudo=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "install-deps: neither root nor sudo; missing: ${missing[*]} ${llvm:-llvm}" >&2; exit 1; }
  sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
offered() { apt-cache show "$1" >/dev/null 2>&1; }
if [ -z "$llvm" ]; then
  for v in 19 22 21 20 18 17; do offered "llvm-$v-dev" && { llvm=$v; break; }; done
  [ -n "$llvm" ] || { echo "install-deps: no llvm-N-dev with N >= 17 is offered here" >&2; exit 1; }
  missing+=("llvm-$llvm-dev")
fi
installed "clang-$llvm" || missing+=("clang-$llvm")
runtime || { offered "libclang-rt-$llvm-dev" && missing+=("libclang-rt-$llvm-dev"); } || true
# The page of tg viz needs d3, its test a browser; doxygen finds the functions that tools/check_docs.py asks for.
for p in clang-format-19 clang-tidy-19 qemu-user g++-aarch64-linux-gnu libjs-d3 chromium chromium-driver doxygen; do installed "$p" || { offered "$p" && missing+=("$p"); } || true; done
[ ${#missing[@]} = 0 ] && exit 0
echo "install-deps: installing ${missing[*]}"
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
