/// \file The parsers of foreign bytes as fuzz targets. A target takes any bytes: it returns, or throws FormatError; all
/// else is a failure. The regression test (foreign/fuzz_test.cpp) runs each over corpus/NAME and mutations of it;
/// -DTG_FUZZ=ON builds fuzz_NAME with libFuzzer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "tinygrad/base/error.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/io/npy.h"
#include "tinygrad/io/pickle.h"
#include "tinygrad/io/safetensors.h"
#include "tinygrad/io/tar.h"
#include "tinygrad/io/torch_file.h"
#include "tinygrad/io/zip.h"
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

inline void safetensors_index(Bytes in) {
  const io::SafetensorsIndex index =
      io::parse_safetensors_index({reinterpret_cast<const char*>(in.data()), in.size()}, "fuzz");
  for (const auto& [tensor, file] : index.files)
    TG_ASSERT(file.find('/') == std::string::npos && file != ".." && !file.empty(), "file outside of the folder");
}

inline void zip(Bytes in) {
  uint64_t content = 0;
  for (const io::ZipEntry& e : io::zip_entries(in, "fuzz", kLimit)) {
    TG_ASSERT(e.offset <= in.size() && e.packed_size <= in.size() - e.offset, "entry outside of the archive");
    TG_ASSERT(e.deflated || e.size == e.packed_size, "stored entry of another size");
    if (e.deflated) content += e.size;
    try {
      TG_ASSERT(io::zip_read(in, e, "fuzz").size() == e.size, "content of another size");
    } catch (const FormatError&) {  // one entry that is damaged
      if (e.deflated) continue;
    }
  }
  TG_ASSERT(content <= kLimit, "limit passed");
}

inline void npy(Bytes in) {
  const io::NpyHeader h = io::parse_npy(in, "fuzz");
  uint64_t bytes = static_cast<uint64_t>(h.dtype.itemsize());
  for (const int64_t d : h.shape) bytes *= static_cast<uint64_t>(d);
  TG_ASSERT(h.data_start <= in.size() && bytes == h.bytes && h.bytes == in.size() - h.data_start,
            "shape and data disagree");
}

inline void pickle(Bytes in) {
  static constexpr io::PickleName kKnown[] = {{"collections", "OrderedDict"}, {"_codecs", "encode"}};
  const io::Pickle p = io::parse_pickle(in, kKnown, "fuzz");
  TG_ASSERT(p.root < p.nodes.size() && p.size <= in.size(), "no root");
  for (const io::PickleNode& n : p.nodes)
    for (const io::PickleId id : n.items) TG_ASSERT(id < p.nodes.size(), "a part that is not there");
}

inline void check_torch(const io::TorchFile& f, size_t size) {
  for (const io::TorchTensor& t : f.tensors) {
    const io::TorchStorage& s = f.storages.at(t.storage);
    const uint64_t room = s.in_file ? size - std::min<uint64_t>(s.offset, size) : s.own.size();
    TG_ASSERT(s.bytes <= room, "storage outside of the file");
    uint64_t last = t.offset;
    bool empty = false;
    for (size_t i = 0; i < t.shape.size(); i++) {
      empty |= t.shape[i] == 0;
      last += static_cast<uint64_t>(t.shape[i] - 1) * static_cast<uint64_t>(t.strides[i]);
    }
    TG_ASSERT(empty || last < s.bytes / static_cast<uint64_t>(t.dtype.itemsize()), "tensor outside of its storage");
  }
}

inline void torch(Bytes in) {
  try {
    check_torch(io::parse_torch_file(in, "fuzz", /*keep_opaque=*/true), in.size());
  } catch (const FormatError&) {  // so it is without opaque objects
  }
  check_torch(io::parse_torch_file(in, "fuzz"), in.size());
}

struct Target {
  std::string_view name;
  void (*run)(Bytes);
};
inline constexpr Target kTargets[] = {{"idx", idx},
                                      {"gzip", gzip},
                                      {"tar", tar},
                                      {"cifar", cifar},
                                      {"safetensors", safetensors},
                                      {"safetensors_index", safetensors_index},
                                      {"zip", zip},
                                      {"npy", npy},
                                      {"pickle", pickle},
                                      {"torch", torch}};

}  // namespace tg::fuzz
