/// \file Describes this processor, and processors the user names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/target/target.h"

namespace tg {

/// One entry of DEV: "CPU:CLANG:x86_64,haswell" -> {"CPU", "CLANG", "x86_64,haswell"}; "CPU:1" -> device "CPU:1".
struct DeviceSpec {
  std::string device, renderer, arch;
};
/// Parses the ';' separated value of DEV. Throws ValueError.
std::vector<DeviceSpec> parse_dev(std::string_view dev);

/// Returns processor name, features and caches of this machine; device and renderer are left empty. Detected once.
const Target& host_processor();

/// A processor as the user describes it: "" or "native" is this one, else an architecture and, in any order, a
/// processor name and features: "x86_64,haswell", "x86_64,znver4,-avx512f", "x86_64,avx2,fma" (on the SSE2 baseline),
/// "x86_64" (the baseline itself), "arm64", "arm64,apple-m1", "riscv64" (no vectors), "riscv64,v,zvl256b",
/// "riscv64,sifive-x280". Throws ValueError for names it does not know.
Target parse_processor(std::string_view arch);

/// Returns the first feature that `code` uses and `processor` lacks, empty when code for the one runs on the other.
std::string missing_feature(const Target& code, const Target& processor);

}  // namespace tg
