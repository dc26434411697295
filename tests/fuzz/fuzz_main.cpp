/// \file All fuzz targets as one libFuzzer program: FUZZ_TARGET says which one runs. tests/fuzz/run.py runs them all.
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.h"

namespace {

/// Returns the target that FUZZ_TARGET names; ends the program when there is none.
const tg::fuzz::Target& chosen() {
  const char* name = std::getenv("FUZZ_TARGET");
  for (const tg::fuzz::Target& t : tg::fuzz::kTargets)
    if (name && t.name == name) return t;
  std::fprintf(stderr, "fuzz: FUZZ_TARGET is '%s', expected one of:", name ? name : "");
  for (const tg::fuzz::Target& t : tg::fuzz::kTargets)
    std::fprintf(stderr, " %.*s", static_cast<int>(t.name.size()), t.name.data());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tg::fuzz::Target& target = chosen();
  try {
    target.run({data, size});
  } catch (const tg::FormatError&) {  // the right answer to most inputs
  }
  return 0;
}
