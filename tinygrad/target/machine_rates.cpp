/// \file The rates in which processors differ.
#include "tinygrad/target/machine_rates.h"

#include <algorithm>

namespace tg {

MachineRates machine_rates(const Target& target) {
  MachineRates r;
  const bool x86 = target.arch == "x86_64";
  // Zen 1 to 4 run 512-bit operations in two halves.
  const bool halves = target.cpu.starts_with("znver") && target.cpu != "znver5";
  r.datapath_bytes = halves ? std::min(target.vector_bytes, 32) : target.vector_bytes;
  if (x86 && target.vector_bytes == 64) r.masked_load = 0.25;  // masks have registers and units of their own
  r.hoists_loads = !x86;
  return r;
}

}  // namespace tg
