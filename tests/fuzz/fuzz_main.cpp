/// \file Entry point of libFuzzer for the target TG_FUZZ_TARGET.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const tg::fuzz::Target& target : tg::fuzz::kTargets) {
    if (target.name != TG_FUZZ_TARGET) continue;
    try {
      target.run({data, size});
    } catch (const tg::FormatError&) {  // the right answer to most inputs
    }
  }
  return 0;
}
