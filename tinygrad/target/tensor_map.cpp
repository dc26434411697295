/// \file The text of tensor maps.
#include "tinygrad/target/tensor_map.h"

#include <algorithm>
#include <cstdio>

#include "tinygrad/base/error.h"
#include "tinygrad/target/shared_matrix.h"

namespace tg {

std::string TensorMap::text() const {
  return str(slot, " ", itemsize, " ", width, " ", height, " ", box_width, " ", box_height);
}

TensorMap TensorMap::from_text(std::string_view text) {
  TensorMap m;
  long long n[4] = {};
  TG_ASSERT(std::sscanf(std::string(text).c_str(), "%d %d %lld %lld %lld %lld", &m.slot, &m.itemsize, &n[0], &n[1],
                        &n[2], &n[3]) == 6,
            "no tensor map: ", text);
  m.width = n[0];
  m.height = n[1];
  m.box_width = n[2];
  m.box_height = n[3];
  return m;
}

bool is_possible(const TensorMap& m) {
  constexpr int64_t kMostElements = int64_t{1} << 32, kMostStride = int64_t{1} << 40;
  const bool type = m.itemsize == 1 || m.itemsize == 2 || m.itemsize == 4;
  return type && m.slot >= 0 && m.width > 0 && m.height > 0 && m.width <= kMostElements && m.height <= kMostElements &&
         m.width * m.itemsize % kTensorAlignment == 0 && m.width * m.itemsize < kMostStride &&
         m.box_width * m.itemsize == kMatrixRow && m.box_height > 0 && m.box_height <= kMostBoxRows;
}

namespace {
constexpr std::string_view kMark = "tinygrad tensor maps ", kEnd = "end";
}

std::string image_text(std::span<const TensorMap> maps) {
  std::string text(kMark);
  for (const TensorMap& m : maps) text += m.text() + ";";
  return text + std::string(kEnd);
}

std::vector<TensorMap> maps_of_image(std::span<const uint8_t> image) {
  const auto mark = std::search(image.begin(), image.end(), kMark.begin(), kMark.end());
  std::vector<TensorMap> maps;
  if (mark == image.end()) return maps;
  for (auto at = mark + static_cast<std::ptrdiff_t>(kMark.size());;) {
    const auto end = std::find(at, image.end(), uint8_t{';'});
    if (std::string_view(kEnd) == std::string(at, at + std::min<std::ptrdiff_t>(image.end() - at, 3))) return maps;
    const std::string text(at, end);
    TG_CHECK(FormatError,
             end != image.end() && std::count(text.begin(), text.end(), ' ') == 5 &&
                 text.find_first_not_of("0123456789 ") == std::string::npos && text.size() < 100,
             "[load] got an image whose tensor maps are cut off");
    maps.push_back(TensorMap::from_text(text));
    TG_CHECK(FormatError, is_possible(maps.back()), "[load] got an image with the tensor map ", text,
             ", expected rows of 128 bytes that begin at multiples of 16");
    at = end + 1;
  }
}

}  // namespace tg
