/// \file Target as text.
#include "tinygrad/target/target.h"

#include <algorithm>

#include "tinygrad/base/error.h"

namespace tg {

bool Target::has(std::string_view feature) const {
  return std::binary_search(features.begin(), features.end(), feature);
}

std::string Target::feature_string() const {
  std::string result;
  for (const std::string& f : features) result += (result.empty() ? "+" : ",+") + f;
  return result;
}

std::string Target::key() const {
  return str(device, ":", renderer, ":", arch, ",", cpu, ",", feature_string(), ";v", vector_bytes, ";r",
             vector_registers, ";l1 ", l1_bytes, ";l2 ", l2_bytes, ";l3 ", l3_bytes, ";c", cores, ";s ", shared_bytes,
             ";g ", group_threads, ",", group_limit[0], ",", group_limit[1], ",", group_limit[2], ",", grid_limit[0],
             ",", grid_limit[1], ",", grid_limit[2],
             images.width ? str(";i ", images.width, ",", images.height, ",", images.pitch) : "");
}

}  // namespace tg
