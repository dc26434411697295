/// \file Small arrays whose elements the host knows.
#include "tinygrad/onnx/host_array.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "tinygrad/base/error.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/uop.h"

namespace tg::onnx {
namespace {

/// Wraps an integer to what `d` holds.
int64_t wrapped(int64_t v, DType d) { return static_cast<int64_t>(truncate_int(v, d)); }

/// Divides as tensors of integers do in ONNX: towards zero.
int64_t divided(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a / b;
}
/// The remainder with the sign of the divisor.
int64_t modulo(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
int64_t add_wrapped(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t sub_wrapped(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t mul_wrapped(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

struct BinaryRow {
  std::string_view op;
  bool compares;
  int64_t (*ints)(int64_t, int64_t);
  double (*floats)(double, double);
  UOp (*symbolic)(UOp, UOp);  ///< null: it needs numbers
};
const BinaryRow kBinary[] = {
    {"Add", false, add_wrapped, [](double a, double b) { return a + b; }, [](UOp a, UOp b) { return a + b; }},
    {"Sub", false, sub_wrapped, [](double a, double b) { return a - b; }, [](UOp a, UOp b) { return a - b; }},
    {"Mul", false, mul_wrapped, [](double a, double b) { return a * b; }, [](UOp a, UOp b) { return a * b; }},
    {"Div", false, divided, [](double a, double b) { return a / b; }, [](UOp a, UOp b) { return a / b; }},
    {"Mod", false, modulo, nullptr, [](UOp a, UOp b) { return a % b; }},
    {"Min", false, [](int64_t a, int64_t b) { return std::min(a, b); }, nullptr, nullptr},
    {"Max", false, [](int64_t a, int64_t b) { return std::max(a, b); }, nullptr, nullptr},
    {"Equal", true, [](int64_t a, int64_t b) { return int64_t{a == b}; },
     [](double a, double b) { return (a == b) ? 1.0 : 0.0; }, nullptr},
    {"Less", true, [](int64_t a, int64_t b) { return int64_t{a < b}; },
     [](double a, double b) { return (a < b) ? 1.0 : 0.0; }, nullptr},
    {"LessOrEqual", true, [](int64_t a, int64_t b) { return int64_t{a <= b}; },
     [](double a, double b) { return (a <= b) ? 1.0 : 0.0; }, nullptr},
    {"Greater", true, [](int64_t a, int64_t b) { return int64_t{a > b}; },
     [](double a, double b) { return (a > b) ? 1.0 : 0.0; }, nullptr},
    {"GreaterOrEqual", true, [](int64_t a, int64_t b) { return int64_t{a >= b}; },
     [](double a, double b) { return (a >= b) ? 1.0 : 0.0; }, nullptr},
    {"And", true, [](int64_t a, int64_t b) { return int64_t{a && b}; }, nullptr, nullptr},
    {"Or", true, [](int64_t a, int64_t b) { return int64_t{a || b}; }, nullptr, nullptr},
    {"Xor", true, [](int64_t a, int64_t b) { return int64_t{!a != !b}; }, nullptr, nullptr},
};
struct UnaryRow {
  std::string_view op;
  int64_t (*ints)(int64_t);
  double (*floats)(double);
};
const UnaryRow kUnary[] = {
    {"Neg", [](int64_t a) { return sub_wrapped(0, a); }, [](double a) { return -a; }},
    {"Abs", [](int64_t a) { return a < 0 ? sub_wrapped(0, a) : a; }, [](double a) { return std::fabs(a); }},
    {"Not", [](int64_t a) { return int64_t{!a}; }, nullptr},
    {"Floor", nullptr, [](double a) { return std::floor(a); }},
    {"Ceil", nullptr, [](double a) { return std::ceil(a); }},
    {"Sqrt", nullptr, [](double a) { return std::sqrt(a); }},
    {"Round", nullptr, [](double a) { return std::nearbyint(a); }},
};

template <class Row, size_t N> const Row* find_row(const Row (&rows)[N], std::string_view op) {
  const auto* const row = std::ranges::find(rows, op, &Row::op);
  return row == std::end(rows) ? nullptr : row;
}

/// Combines two integers of which one is symbolic; nothing where the operator needs numbers.
std::optional<HostInt> combine_symbolic(const BinaryRow& row, const HostInt& a, const HostInt& b) {
  if (row.op == "Equal" && a.value == b.value) return HostInt(1);
  if (!row.symbolic) return {};
  GraphScope scope;
  return HostInt(SInt(simplify(row.symbolic(a.value.uop(), b.value.uop()))));
}

std::optional<HostInt> combine(const BinaryRow& row, const HostInt& a, const HostInt& b, DType d) {
  if (a.symbolic() || b.symbolic()) return combine_symbolic(row, a, b);
  return HostInt(wrapped(row.ints(a.value.value(), b.value.value()), d));
}

}  // namespace

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t n = std::ranges::find(shape, 0) == shape.end() ? 1 : 0;
  for (const int64_t d : shape)
    TG_CHECK(ShapeError, d >= 0 && !__builtin_mul_overflow(n, d, &n), "[onnx] got shape ",
             Shape{std::span<const int64_t>(shape)}, ", expected one that an array can have");
  return n;
}

bool is_host_size(const std::vector<int64_t>& shape) {
  const auto is_small = [](int64_t d) { return d >= 0 && d <= kMostHostElements; };
  return std::ranges::all_of(shape, is_small) && element_count(shape) <= kMostHostElements;
}

HostArray::HostArray(DType d, std::vector<int64_t> sizes, HostElements elements)
    : dtype(d), shape(std::move(sizes)), ints(std::move(elements.ints)), floats(std::move(elements.floats)) {
  const auto expected = static_cast<size_t>(element_count(shape));
  TG_CHECK(ShapeError, count() == expected && ints.size() + floats.size() == expected, "[onnx] got ", count(),
           " elements of type ", dtype, " for shape ", Shape{std::span<const int64_t>(shape)}, ", expected ", expected);
}
HostRef HostArray::of_ints(std::vector<HostInt> v, DType d) {
  const auto n = static_cast<int64_t>(v.size());
  return of(d, {n}, {std::move(v), {}});
}
HostRef HostArray::scalar(const HostInt& v, DType d) { return of(d, {}, {{v}, {}}); }

bool HostArray::symbolic() const { return std::ranges::any_of(ints, &HostInt::symbolic); }

double HostArray::number(size_t i) const {
  return dtype.is_float() ? floats.at(i) : static_cast<double>(ints.at(i).value.value());
}

Tensor HostArray::tensor(const std::string& device) const {
  const std::lock_guard hold(lock_);
  if (made_.defined()) return made_;
  const Shape sizes{std::span<const int64_t>(shape)};
  const TensorOptions options{.dtype = dtype, .device = device};
  if (symbolic()) {
    GraphScope scope;
    Tensors parts;
    for (const HostInt& v : ints) parts.push_back(Tensor::from_uop(v.value.uop()).cast(dtype).reshape(Shape{1}));
    return Tensor::cat(parts).reshape(sizes);  // not remembered: it holds the values of variables
  }
  const auto literal = [&](size_t i) { return dtype.is_float() ? Scalar(floats[i]) : Scalar(ints[i].value.value()); };
  if (count() == 1) return made_ = Tensor::full(sizes, literal(0), options);
  std::vector<std::byte> bytes(count() * static_cast<size_t>(dtype.itemsize()));
  for (size_t i = 0; i < count(); i++)
    store_const(&bytes[i * static_cast<size_t>(dtype.itemsize())],
                eval_cast(literal(i).value, dtype.is_float() ? dtypes::weakfloat : dtypes::weakint, dtype), dtype);
  return made_ = Tensor::from_bytes(bytes, dtype, sizes, {.device = device});
}

HostRef host_array_of(std::span<const std::byte> bytes, DType dtype, std::vector<int64_t> shape) {
  HostElements out;
  const auto size = static_cast<size_t>(dtype.itemsize());
  for (size_t at = 0; at + size <= bytes.size(); at += size) {
    const ConstValue v = load_const(&bytes[at], dtype);
    if (dtype.is_float()) out.floats.push_back(v.as_double());
    else out.ints.emplace_back(static_cast<int64_t>(v.i));
  }
  return HostArray::of(dtype, std::move(shape), std::move(out));
}

std::optional<std::vector<int64_t>> broadcast_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()), 1);
  for (const auto* s : {&a, &b})
    for (size_t i = 0; i < s->size(); i++) {
      int64_t& to = out[out.size() - s->size() + i];
      const int64_t n = (*s)[i];
      if (n != to && n != 1 && to != 1) return {};
      if (to == 1) to = n;
    }
  return out;
}

std::vector<size_t> broadcast_positions(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  const size_t extra = to.size() - from.size();
  std::vector<int64_t> strides(to.size(), 0);
  for (int64_t step = 1, i = static_cast<int64_t>(from.size()) - 1; i >= 0; i--) {
    const int64_t n = from[static_cast<size_t>(i)];
    strides[extra + static_cast<size_t>(i)] = n == 1 ? 0 : step;
    step *= n;
  }
  std::vector<size_t> out(static_cast<size_t>(element_count(to)));
  for (size_t k = 0; k < out.size(); k++) {
    auto rest = static_cast<int64_t>(k);
    int64_t at = 0;
    for (size_t i = to.size(); i-- > 0; rest /= to[i]) at += rest % to[i] * strides[i];
    out[k] = static_cast<size_t>(at);
  }
  return out;
}

HostRef host_take(const HostArray& a, const std::vector<size_t>& at, std::vector<int64_t> shape) {
  HostElements out;
  for (const size_t i : at) {
    TG_CHECK(IndexError, i < a.count(), "[onnx] got place ", i, " of an array of ", a.count(), " elements");
    if (a.dtype.is_float()) out.floats.push_back(a.floats[i]);
    else out.ints.push_back(a.ints[i]);
  }
  return HostArray::of(a.dtype, std::move(shape), std::move(out));
}

HostRef host_take_along(const HostArray& a, size_t axis, const std::vector<int64_t>& at) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < a.shape.size(); i++)
    if (i != axis) (i < axis ? outer : inner) *= a.shape[i];
  std::vector<size_t> places;
  for (int64_t o = 0; o < outer; o++)
    for (const int64_t k : at)
      for (int64_t i = 0; i < inner; i++) places.push_back(static_cast<size_t>((o * a.shape[axis] + k) * inner + i));
  std::vector<int64_t> shape = a.shape;
  shape[axis] = static_cast<int64_t>(at.size());
  return host_take(a, places, std::move(shape));
}

HostRef host_transpose(const HostArray& a, const std::vector<int>& order) {
  std::vector<int64_t> strides(order.size(), 1), shape(order.size()), index(order.size(), 0);
  for (size_t i = order.size(); i-- > 1;) strides[i - 1] = strides[i] * a.shape[i];
  for (size_t i = 0; i < order.size(); i++) shape[i] = a.shape[static_cast<size_t>(order[i])];
  std::vector<size_t> places;
  for (size_t n = 0; n < a.count(); n++) {
    int64_t at = 0;
    for (size_t i = 0; i < order.size(); i++) at += index[i] * strides[static_cast<size_t>(order[i])];
    places.push_back(static_cast<size_t>(at));
    for (size_t i = order.size(); i-- > 0 && ++index[i] == shape[i];) index[i] = 0;
  }
  return host_take(a, places, std::move(shape));
}

HostRef host_binary(std::string_view op, const HostArray& a, const HostArray& b) {
  const BinaryRow* row = find_row(kBinary, op);
  if (!row || a.dtype != b.dtype) return {};
  const std::optional<std::vector<int64_t>> shape = broadcast_shape(a.shape, b.shape);
  if (!shape || !is_host_size(*shape)) return {};
  const DType d = row->compares ? dtypes::bool_ : a.dtype;
  if (a.dtype.is_float() ? !row->floats : !row->ints) return {};
  HostElements out;
  const std::vector<size_t> i = broadcast_positions(a.shape, *shape), j = broadcast_positions(b.shape, *shape);
  for (size_t k = 0; k < i.size(); k++) {
    if (!a.dtype.is_float()) {
      const std::optional<HostInt> v = combine(*row, a.ints[i[k]], b.ints[j[k]], d);
      if (!v) return {};
      out.ints.push_back(*v);
    } else if (const double v = row->floats(a.floats[i[k]], b.floats[j[k]]); row->compares) {
      out.ints.emplace_back(static_cast<int64_t>(v));
    } else {
      out.floats.push_back(truncate_float(v, d));
    }
  }
  return HostArray::of(d, *shape, std::move(out));
}

HostRef host_unary(std::string_view op, const HostArray& a) {
  const UnaryRow* row = find_row(kUnary, op);
  if (!row || a.symbolic() || (a.dtype.is_float() ? !row->floats : !row->ints)) return {};
  HostElements out;
  for (const double v : a.floats) out.floats.push_back(truncate_float(row->floats(v), a.dtype));
  for (const HostInt& v : a.ints) out.ints.emplace_back(wrapped(row->ints(v.value.value()), a.dtype));
  return HostArray::of(a.dtype, a.shape, std::move(out));
}

HostRef host_where(const HostArray& condition, const HostArray& a, const HostArray& b) {
  if (a.dtype != b.dtype || condition.symbolic()) return {};
  std::optional<std::vector<int64_t>> shape = broadcast_shape(a.shape, b.shape);
  if (shape) shape = broadcast_shape(*shape, condition.shape);
  if (!shape || !is_host_size(*shape)) return {};
  const std::vector<size_t> i = broadcast_positions(a.shape, *shape), j = broadcast_positions(b.shape, *shape),
                            c = broadcast_positions(condition.shape, *shape);
  HostElements out;
  for (size_t k = 0; k < c.size(); k++) {
    const bool first = condition.number(c[k]) != 0;
    if (a.dtype.is_float()) out.floats.push_back(first ? a.floats[i[k]] : b.floats[j[k]]);
    else out.ints.push_back(first ? a.ints[i[k]] : b.ints[j[k]]);
  }
  return HostArray::of(a.dtype, *shape, std::move(out));
}

HostRef host_cast(const HostArray& a, DType to) {
  if (to.is_fp8() || to.is_weak()) return {};
  HostElements out;
  for (size_t i = 0; i < a.count(); i++) {
    if (a.symbolic() && a.ints[i].symbolic()) {
      if (to.is_float() || to.is_bool()) return {};
      out.ints.push_back(a.ints[i]);
    } else if (to.is_float()) {
      out.floats.push_back(truncate_float(a.number(i), to));
    } else if (to.is_bool()) {
      out.ints.emplace_back(int64_t{a.number(i) != 0});
    } else if (!a.dtype.is_float()) {
      out.ints.emplace_back(wrapped(a.ints[i].value.value(), to));
    } else {
      const double v = a.floats[i];
      if (!(std::fabs(v) < 9e18)) return {};  // what tensors make of it is what counts
      out.ints.emplace_back(wrapped(static_cast<int64_t>(v), to));
    }
  }
  return HostArray::of(to, a.shape, std::move(out));
}

}  // namespace tg::onnx
