/// \file Files of torch.save as tensors and plain values.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tinygrad/io/torch_file.h"
#include "tinygrad/nn/byte_source.h"
#include "tinygrad/nn/state.h"

namespace tg::nn {

/// A value in a torch file: a number, a text, a tensor, or a container of values. Handles are cheap to copy and keep
/// what they refer to. Accessors throw ValueError for a value of another kind.
class TorchValue {
 public:
  using Kind = io::TorchKind;

  /// What the value is, and its value as that. Throws ValueError where it is of another kind.
  Kind kind() const;
  bool is_none() const { return kind() == Kind::kNone; }
  bool as_bool() const;
  int64_t as_int() const;
  double as_float() const;  ///< of a float or an integer
  /// The text of a string, bytes, the class of an opaque object, or the bytes of an integer of more than 64 bits.
  std::string_view as_text() const;
  /// Of the shape and type in the file.
  const Tensor& as_tensor() const;

  size_t size() const;  ///< of a list, tuple, set or dictionary
  /// Returns an element of a list, a tuple or a set. Throws ValueError for another kind,
  /// IndexError for an index out of range.
  TorchValue operator[](size_t i) const;
  /// Key and value number i of a dictionary, in the order of the file. IndexError where it has fewer.
  std::pair<TorchValue, TorchValue> entry(size_t i) const;
  /// The value of a text key; `at` throws IndexError when there is none.
  std::optional<TorchValue> find(std::string_view key) const;
  TorchValue at(std::string_view key) const;

  /// All tensors in this value, under the keys and numbers on the way to them, joined by dots: "model.layers.0.weight".
  /// FormatError for more names than a sane file has.
  StateDict state_dict() const;

  /// Numbers objects within one file: shared parts have the same one.
  uint32_t id() const { return id_; }

 private:
  struct Contents;
  friend TorchValue torch_load_value(const ByteSource& source, bool keep_opaque);
  TorchValue(std::shared_ptr<const Contents> contents, uint32_t id) : contents_(std::move(contents)), id_(id) {}
  const io::TorchNode& node() const;
  TorchValue with(uint32_t id) const { return {contents_, id}; }

  std::shared_ptr<const Contents> contents_;
  uint32_t id_;
};

struct TorchLoadOptions {
  /// Objects of classes that are not read become values of kind kOpaque, and a line on the error output names the
  /// classes; false: they are a FormatError.
  bool keep_opaque = true;
};

/// Returns what torch.save wrote, in the zip format or an older one. Nothing in the file is run. Tensors are the file's
/// pages on the CPU, read when they are used; those of one storage that overlap are views of one tensor. FileError,
/// FormatError (see io/torch_file.h).
TorchValue torch_load_value(const std::filesystem::path& path, const TorchLoadOptions& o = {});
TorchValue torch_load_value(const ByteSource& source, bool keep_opaque = true);
/// Returns the tensors in it by name; other values are left out.
StateDict torch_load(const std::filesystem::path& path, const TorchLoadOptions& o = {});

}  // namespace tg::nn
