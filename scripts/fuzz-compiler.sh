#!/usr/bin/env bash
# Prints the newest clang++ (16 or later) whose libFuzzer and sanitizers are installed; nothing, and status 1, where there is none.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n' > "$work/x.cpp"
for compiler in clang++-{22,21,20,19,18,17,16} clang++; do
  command -v "$compiler" >/dev/null || continue
  [ "$("$compiler" -dumpversion | cut -d. -f1)" -ge 16 ] || continue
  "$compiler" -fsanitize=fuzzer,address,undefined "$work/x.cpp" -o "$work/x" 2>/dev/null || continue
  command -v "$compiler"
  exit 0
done
exit 1
