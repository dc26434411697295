/// \file Fuzz target of Darknet's configurations.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "models/darknet.h"
#include "tinygrad/base/error.h"

namespace tg::fuzz {

/// Layers whose sizes nothing overflows with, and which read layers before them alone.
inline void darknet(std::span<const uint8_t> in) {
  int64_t at = 0;
  for (const models::DarknetLayer& layer :
       models::parse_darknet({reinterpret_cast<const char*>(in.data()), in.size()}, "fuzz")) {
    const auto size = [](int64_t n) { return n >= 1 && n <= 1 << 16; };
    TG_ASSERT(size(layer.filters) && size(layer.size) && size(layer.stride) && size(layer.classes), "no size");
    for (const int64_t from : layer.from) TG_ASSERT(from >= 0 && from < at, "a layer that is not before it");
    for (const auto& [width, height] : layer.anchors) TG_ASSERT(width >= 1 && height >= 1, "no anchor");
    at++;
  }
}

}  // namespace tg::fuzz
