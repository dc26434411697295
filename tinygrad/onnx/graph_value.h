/// \file Value: what an edge of an ONNX graph carries.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tinygrad/onnx/host_array.h"
#include "tinygrad/onnx/proto.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::onnx {

class Value;
using Values = std::vector<Value>;

/// Texts, row-major, that fill their shape: the host computes with them. Immutable; shared by value.
class StringArray {
 public:
  const std::vector<int64_t> shape;
  const std::vector<std::string> texts;

  /// ShapeError when the texts are not as many as the shape has.
  StringArray(std::vector<int64_t> sizes, std::vector<std::string> elements);
  static std::shared_ptr<const StringArray> of(std::vector<int64_t> sizes, std::vector<std::string> elements) {
    return std::make_shared<const StringArray>(std::move(sizes), std::move(elements));
  }
};
using StringRef = std::shared_ptr<const StringArray>;
/// A list of values, none of which is a list: ONNX has no lists of lists. `elem` is what an empty one would hold.
struct Sequence {
  Values items;
  ElemType elem = ElemType::kFloat;
};
/// Numbers or texts by keys, all of one type: the host computes with them.
struct ValueMap {
  using Key = std::variant<int64_t, std::string>;
  using Item = std::variant<int64_t, double, std::string>;
  std::map<Key, Item> items;
  ElemType elem = ElemType::kFloat;  ///< of the items: INT64, FLOAT, DOUBLE or STRING
};

/// A tensor, a small array that the host knows, texts, a sequence, a map, or nothing (an optional without a value, an
/// input that is left out). Cheap to copy.
class Value {
 public:
  Value() = default;
  Value(Tensor t, ElemType elem = ElemType::kUndefined) : held_(std::move(t)), elem_(elem) {}
  Value(HostRef h) : held_(std::move(h)) {}
  Value(StringRef s) : held_(std::move(s)) {}
  /// FormatError for a sequence in the sequence.
  Value(Sequence s);
  Value(ValueMap m) : held_(std::make_shared<const ValueMap>(std::move(m))) {}

  bool is_none() const { return std::holds_alternative<std::monostate>(held_); }
  /// Each returns null where the value is of another kind.
  const Tensor* tensor() const { return std::get_if<Tensor>(&held_); }
  const HostArray* host() const { return pointer<const HostArray>(); }
  const StringArray* strings() const { return pointer<const StringArray>(); }
  const Sequence* sequence() const { return pointer<const Sequence>(); }
  const ValueMap* map() const { return pointer<const ValueMap>(); }
  /// Whether it is made of numbers or texts, which have a shape.
  bool has_shape() const { return tensor() || host() || strings(); }
  HostRef host_ref() const { return host() ? std::get<HostRef>(held_) : HostRef(); }

  /// Returns the numbers as a tensor, made on `device` where the host has them; FormatError for other kinds.
  Tensor as_tensor(const std::string& device = {}) const;
  /// Sizes of numbers and texts; ValueError for other kinds.
  Shape shape() const;
  /// The element type, also one that is stored wider.
  ElemType elem() const;
  /// What the value is, for messages: "a tensor", "texts", ...
  const char* kind() const;

 private:
  template <class T> const T* pointer() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&held_);
    return p ? p->get() : nullptr;
  }
  std::variant<std::monostate, Tensor, HostRef, StringRef, std::shared_ptr<const Sequence>,
               std::shared_ptr<const ValueMap>>
      held_;
  ElemType elem_ = ElemType::kUndefined;  ///< kUndefined: that of the tensor's dtype
};

}  // namespace tg::onnx
