/// \file Files of torch.save as plain data: the zip format (PyTorch 1.6 and later), the one before it, and the tar
/// format of 0.1. Nothing in a file is run or trusted.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/dtype.h"

namespace tg::io {

enum class TorchKind : uint8_t {
  kNone,
  kBool,     ///< `integer`
  kInt,      ///< `integer`
  kLongInt,  ///< `text`: more than 64 bits, little-endian two's complement
  kFloat,    ///< `number`
  kString,   ///< `text`; also dtypes ("torch.float32"), devices ("cpu") and layouts
  kBytes,    ///< `text`
  kList,     ///< `items`, as of a tuple or set
  kTuple,
  kSet,
  kDict,    ///< `items`: key, value, key, value, ...
  kTensor,  ///< `integer`: number of the tensor
  kOpaque,  ///< `text`: the class of an object that is not read
};

struct TorchNode {
  TorchKind kind = TorchKind::kNone;
  union {
    int64_t integer = 0;
    double number;
  };
  std::string_view text;
  std::vector<uint32_t> items;
};

/// Elements that tensors share. They are file[offset, offset + bytes), or `own` when the file has them packed.
struct TorchStorage {
  std::string key;
  uint64_t offset = 0, bytes = 0;
  std::vector<uint8_t> own;
  bool in_file = true;
};

/// A view of a storage: element (i, j, ...) is number offset + i * strides[0] + j * strides[1] + ... of it.
struct TorchTensor {
  uint32_t storage = 0;
  DType dtype;
  uint64_t offset = 0;
  std::vector<int64_t> shape, strides;
  bool negated = false;  ///< the values are those of the storage, with the other sign
};

/// Objects refer to each other by number; none contains itself, and nesting is bounded (io/pickle.h), but parts may be
/// shared. Texts are part of the file's bytes, of `unpacked` or of `texts`.
struct TorchFile {
  std::vector<TorchNode> nodes;
  uint32_t root = 0;
  std::vector<TorchTensor> tensors;
  std::vector<TorchStorage> storages;
  std::deque<std::string> texts;
  std::vector<uint8_t> unpacked;      ///< the pickle, if the file has it packed
  std::vector<std::string> left_out;  ///< classes of the opaque objects, each once, sorted
};

inline constexpr size_t kMaxTorchAxes = 64;
/// Bytes that copies of a pickle's objects may take beside them: as much as this, and as many times its own.
inline constexpr uint64_t kTorchDerivedBytes = uint64_t{32} << 20, kTorchDerivedTimes = 8;

/// Parses a file. Objects of classes this reader does not know are refused by name, or `keep_opaque`: kept as kOpaque,
/// without their contents, of which nothing is asked but that they can be skipped. Storages of big-endian archives are
/// turned, so they are in memory. Throws FormatError that begins with `what` and names the byte: for corrupt archives
/// and pickles (see io/zip.h, io/pickle.h), unknown classes, a file that is one such object, more copies of objects
/// than the limit, tensors outside of their storage, storages outside of the file, big-endian files of the older
/// formats, and by name for tensors that are quantized, sparse, nested, complex or without data.
TorchFile parse_torch_file(std::span<const uint8_t> file, std::string_view what, bool keep_opaque = false);

}  // namespace tg::io
