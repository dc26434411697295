#!/usr/bin/env bash
# Installs packages of Debian or Ubuntu; does nothing when all of them are there.
#   --build   what building and running tg needs
#   (none)    also what the tests and checks need
#   --fuzz    also clang's sanitizers and libFuzzer, for make fuzz and CI
set -euo pipefail
goal=${1:---test}
case "$goal" in --build | --test | --fuzz) ;; *) echo "install-deps: got $goal, expected --build or --fuzz" >&2; exit 2 ;; esac

command -v dpkg-query >/dev/null || {
  echo "install-deps: not a Debian or Ubuntu system. Needed: cmake >= 3.25, ninja, g++ >= 12 or clang >= 16, LLVM >= 17, fmt, SQLite, zlib, PCRE2, utf8proc, protozero, libjpeg-turbo, libpng, libwebp (optional), libsndfile, nlohmann-json, Boost's headers, CLI11, OpenCL's headers; for the tests GoogleTest, Google Benchmark, the OpenCL loader, PoCL, Vulkan's loader and Mesa's drivers." >&2
  exit 0
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

build=(cmake ninja-build g++ lld pkg-config libfmt-dev libcli11-dev libsqlite3-dev nlohmann-json3-dev zlib1g-dev libboost-dev libpcre2-dev libutf8proc-dev libprotozero-dev libturbojpeg0-dev libpng-dev libwebp-dev libsndfile1-dev opencl-c-headers)
tests=(git python3 python3-venv python3-dev libgtest-dev libgmock-dev libbenchmark-dev openmpi-bin ocl-icd-libopencl1 pocl-opencl-icd libvulkan1 mesa-vulkan-drivers libdw1)
# Installed where the distribution has them: the charts of tg viz; for the tests a browser for them, kernels of other processors
# under their emulator, the format, the comments of headers.
wanted=(libjs-d3)
wanted_tests=(chromium chromium-driver qemu-user g++-aarch64-linux-gnu doxygen clang-format-19 clang-tidy-19)

# LLVM: 19 where it is offered, else the newest that is at least 17. The compiler of DEV=CPU:CLANG has the same number.
llvm=""
for v in 19 22 21 20 18 17; do installed "llvm-$v-dev" && { llvm=$v; break; }; done

needed=("${build[@]}")
if [ "$goal" != --build ]; then
  needed+=("${tests[@]}")
  wanted+=("${wanted_tests[@]}")
  needed+=(${llvm:+"clang-$llvm"})
fi
[ "$goal" != --fuzz ] || wanted+=(${llvm:+"libclang-rt-$llvm-dev"})
complete=yes
[ -n "$llvm" ] || complete=no
for p in "${needed[@]}" "${wanted[@]}"; do installed "$p" || complete=no; done
[ $complete = no ] || exit 0

sudo=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "install-deps: neither root nor sudo; needed: ${needed[*]} ${llvm:-llvm}" >&2; exit 1; }
  sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
offered() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }
if [ -z "$llvm" ]; then
  for v in 19 22 21 20 18 17; do offered "llvm-$v-dev" && { llvm=$v; break; }; done
  [ -n "$llvm" ] || { echo "install-deps: no llvm-N-dev with N >= 17 is offered here" >&2; exit 1; }
  needed+=("llvm-$llvm-dev")
  [ "$goal" = --build ] || needed+=("clang-$llvm")
  [ "$goal" != --fuzz ] || wanted+=("libclang-rt-$llvm-dev")
fi
missing=()
for p in "${needed[@]}"; do installed "$p" || missing+=("$p"); done
for p in "${wanted[@]}"; do installed "$p" || { offered "$p" && missing+=("$p"); } || true; done
[ ${#missing[@]} = 0 ] && exit 0
echo "install-deps: installing ${missing[*]}"
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
