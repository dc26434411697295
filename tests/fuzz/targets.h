/// \file The parsers of foreign bytes as fuzz targets. A target takes any bytes: it returns, or throws FormatError; all
/// else is a failure. The regression test (foreign/fuzz_test.cpp) runs each over corpus/NAME and mutations of it;
/// -DTG_FUZZ=ON builds fuzz_NAME with libFuzzer.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "tinygrad/base/error.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/io/safetensors.h"
#include "tinygrad/io/tar.h"
#include "tinygrad/nn/cifar.h"
#include "tinygrad/nn/idx.h"

namespace tg::fuzz {

using Bytes = std::span<const uint8_t>;
inline constexpr uint64_t kLimit = 1 << 20;  // of what a compressed input may grow to

inline void idx(Bytes in) {
  const nn::IdxArray a = nn::parse_idx(in, "fuzz", kLimit);
  uint64_t bytes = a.dtype == dtypes::float64                               ? 8
                   : a.dtype == dtypes::int32 || a.dtype == dtypes::float32 ? 4
                   : a.dtype == dtypes::int16                               ? 2
                                                                            : 1;
  for (int64_t d : a.shape) bytes *= d;
  TG_ASSERT(bytes == a.data.size() && !a.shape.empty(), "shape and data disagree");
}

inline void gzip(Bytes in) { TG_ASSERT(io::gunzip(in, kLimit, "fuzz").size() <= kLimit, "limit passed"); }

inline void tar(Bytes in) {
  for (const io::TarEntry& e : io::tar_entries(in, "fuzz"))
    TG_ASSERT(e.offset <= in.size() && e.size <= in.size() - e.offset, "entry outside of the archive");
}

inline void cifar(Bytes in) {
  const nn::CifarBytes c = nn::parse_cifar10_archive(in, "fuzz", 1);
  TG_ASSERT(c.train_labels.size() == 5 && c.test_images.size() == nn::kCifarImageBytes, "incomplete set");
}

inline void safetensors(Bytes in) {
  const io::Safetensors f = io::parse_safetensors(in, in.size(), "fuzz");
  TG_ASSERT(f.data_start <= in.size(), "data outside of the file");
  for (const io::SafetensorsEntry& e : f.entries) {
    uint64_t bytes = static_cast<uint64_t>(e.dtype.itemsize());
    for (int64_t d : e.shape) bytes *= static_cast<uint64_t>(d);
    TG_ASSERT(e.begin <= e.end && e.end <= in.size() - f.data_start && bytes == e.end - e.begin,
              "entry outside of the file");
  }
}

struct Target {
  std::string_view name;
  void (*run)(Bytes);
};
inline constexpr Target kTargets[] = {
    {"idx", idx}, {"gzip", gzip}, {"tar", tar}, {"cifar", cifar}, {"safetensors", safetensors}};

}  // namespace tg::fuzz
