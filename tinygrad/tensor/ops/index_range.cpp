/// \file Checks that indices name elements.
#include "tinygrad/tensor/ops/index_range.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "tinygrad/base/env.h"
#include "tinygrad/base/math.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/variables.h"

namespace tg::tensor_detail {
namespace {
/// Longer data is not looked at when it is copied.
constexpr size_t kMostElements = 65536;

/// By slot of a BUFFER. Guarded by the graph's lock.
std::unordered_map<int64_t, ValueRange>& ranges() {
  static auto* r = new std::unordered_map<int64_t, ValueRange>;
  return *r;
}

template <class T> ValueRange range_of(std::span<const std::byte> data) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const auto at = [&](size_t i) {
    T v;
    std::memcpy(&v, &data[i * sizeof(T)], sizeof(T));
    return v;
  };
  T least = at(0), largest = least;
  bool nan = false;
  for (size_t i = 0; i < data.size() / sizeof(T); i++) {
    const T v = at(i);
    least = std::min(least, v);
    largest = std::max(largest, v);
    if constexpr (std::is_floating_point_v<T>) nan |= v != v;
  }
  return nan ? ValueRange{kNaN, kNaN} : ValueRange{static_cast<double>(least), static_cast<double>(largest)};
}

std::optional<ValueRange> range_of(std::span<const std::byte> data, DType dtype) {
  switch (dtype.id()) {
    case DTypeId::kInt8: return range_of<int8_t>(data);
    case DTypeId::kUInt8: return range_of<uint8_t>(data);
    case DTypeId::kInt16: return range_of<int16_t>(data);
    case DTypeId::kUInt16: return range_of<uint16_t>(data);
    case DTypeId::kInt32: return range_of<int32_t>(data);
    case DTypeId::kUInt32: return range_of<uint32_t>(data);
    case DTypeId::kInt64: return range_of<int64_t>(data);
    case DTypeId::kUInt64: return range_of<uint64_t>(data);
    case DTypeId::kFloat32: return range_of<float>(data);
    case DTypeId::kFloat64: return range_of<double>(data);
    default: return {};
  }
}

int64_t slot_of(UOp buffer) { return buffer.arg<ParamArg>().slot; }

/// An element that is not allowed, and where it is.
struct Wrong {
  int128 value = 0;
  Shape at;
};

Shape position(size_t flat, const Shape& shape) {
  Shape at(shape.size(), SInt(0));
  auto rest = static_cast<int64_t>(flat);
  for (size_t a = shape.size(); a-- > 0; rest /= shape[a].value()) at[a] = rest % shape[a].value();
  return at;
}

/// Returns the first element that `allowed` refuses, by reading all of them.
std::optional<Wrong> first_wrong(const Tensor& t, const auto& allowed) {
  const DType d = t.stored_dtype();
  const std::span<const std::byte> bytes = t.bytes();
  const auto size = static_cast<size_t>(d.itemsize());
  for (size_t i = 0; i < bytes.size() / size; i++)
    if (const int128 v = load_const(&bytes[i * size], d).i; !allowed(v)) return Wrong{v, position(i, t.shape())};
  return {};
}

/// Returns an element out of lo..hi: of what the host knows, or with CHECK_INDEX=1 of all.
std::optional<Wrong> outside(const Tensor& t, int64_t lo, int64_t hi) {
  const auto allowed = [&](int128 v) { return v >= lo && v <= hi; };
  const Bounds b = bounds_of(t.uop());
  if ((b.lo >= lo && b.hi <= hi) || t.shape().symbolic() || t.numel() == 0) return {};
  if (is_checked(t)) return first_wrong(t, allowed);
  const std::optional<ValueRange> r = host_range(t);
  if (!r || (r->least >= static_cast<double>(lo) && r->largest <= static_cast<double>(hi))) return {};
  if (JitCore::capturing())  // reads nothing
    return Wrong{static_cast<int128>(r->least < static_cast<double>(lo) ? r->least : r->largest), {}};
  return first_wrong(t, allowed);
}

std::string place_text(const Wrong& w) { return w.at.empty() ? std::string() : str(" at ", w.at); }
}  // namespace

bool is_checked(const Tensor& t) {
  if (!env::CHECK_INDEX || JitCore::capturing()) return false;
  return std::ranges::none_of(t.uop().toposort(), [](UOp u) { return u.is(Ops::PARAM) && !is_variable(u); });
}

void note_host_values(UOp buffer, std::span<const std::byte> data, DType dtype) {
  if (data.empty() || data.size() / static_cast<size_t>(dtype.itemsize()) > kMostElements) return;
  if (const std::optional<ValueRange> r = range_of(data, dtype)) ranges()[slot_of(buffer)] = *r;
}

void forget_host_values(int64_t slot) { ranges().erase(slot); }

std::optional<ValueRange> host_range(const Tensor& t) {
  GraphScope g;
  UOp u = t.uop();
  if (const UOp c = ops::constant_of(u)) return ValueRange{c.const_value().as_double(), c.const_value().as_double()};
  constexpr OpSet kSameElements =
      Ops::RESHAPE | Ops::EXPAND | Ops::PERMUTE | Ops::FLIP | Ops::DETACH | Ops::CONTIGUOUS | Ops::COPY | Ops::CAST;
  std::vector<DType> casts;
  for (; u.in(kSameElements); u = u.src(0))
    if (u.is(Ops::CAST)) casts.push_back(u.dtype());
  if (!u.is(Ops::BUFFER) || is_stale(u)) return {};
  const auto known = ranges().find(slot_of(u));
  if (known == ranges().end()) return {};
  const ValueRange r = known->second;
  const auto keeps = [&](DType d) {
    return d.is_float() == u.dtype().is_float() && !d.is_bool() &&
           (d.is_float() ||
            (r.least >= static_cast<double>(int_min(d)) && r.largest <= static_cast<double>(int_max(d))));
  };
  return std::ranges::all_of(casts, keeps) ? std::optional(r) : std::nullopt;
}

void check_axis_index(const Tensor& index, size_t axis, const Shape& shape, IndexRule rule) {
  GraphScope g;
  const int64_t n = shape[axis].max();
  const std::optional<Wrong> w = outside(index, rule.wraps ? -n : 0, n - 1);
  if (!w) return;
  const std::string allowed = n == 0 ? "none, as the axis is empty" : str(rule.wraps ? -n : 0, " to ", n - 1);
  throw IndexError(str("[", rule.op, "] got index ", to_string(w->value), place_text(*w), " for axis ", axis,
                       " of shape ", shape, ", which is out of bounds, expected ", allowed));
}

void check_classes(const Tensor& numbers, int64_t classes, const char* op) {
  GraphScope g;
  if (const std::optional<Wrong> w = outside(numbers, 0, classes - 1))
    throw IndexError(str("[", op, "] got ", to_string(w->value), place_text(*w), " for ", classes,
                         " classes, which is out of bounds, expected 0 to ", classes - 1));
}

void check_labels_of(const Tensor& labels, int64_t classes, std::span<const int64_t> ignored, const char* op) {
  if (!is_checked(labels) || labels.shape().symbolic()) return;
  const auto allowed = [&](int128 v) {
    return (v >= 0 && v < classes) || std::ranges::any_of(ignored, [&](int64_t i) { return v == i; });
  };
  if (const std::optional<Wrong> w = first_wrong(labels, allowed))
    throw IndexError(str("[", op, "] got label ", to_string(w->value), place_text(*w), " for ", classes,
                         " classes, which is out of bounds, expected 0 to ", classes - 1, " or ignore_index"));
}

}  // namespace tg::tensor_detail
