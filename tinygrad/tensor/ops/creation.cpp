/// \file Creation from data, constants and ranges.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/index_range.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
using namespace tensor_detail;

namespace {
void check_shape(const Shape& shape, const char* op) {
  for (const SInt& n : shape)
    TG_CHECK(ShapeError, n.symbolic() || n.value() >= 0, "[", op, "] got shape ", shape,
             ", expected sizes that are not negative");
  if (!shape.symbolic()) shape.numel();
}

/// Makes a float constant a leaf of its own: equal constants that shared a node would get each other's gradient. The
/// tag is part of no key.
UOp own_leaf(UOp u) {
  static uint64_t made = 0;  // under the graph's lock
  return u.dtype().is_float() && device_of(u).empty() ? u.rtag(++made) : u;
}

/// Returns a constant expression as the options ask: on another device than the default one with storage.
Tensor made(const OpScope& s, UOp u, const TensorOptions& o) {
  Tensor t = s(own_leaf(u));
  if (!o.device.empty()) {
    std::string device = Device::canonical(o.device);
    if (device != Device::default_name()) t = t.to(device);
  }
  if (o.requires_grad) t.requires_grad_(*o.requires_grad);
  return t;
}

void check_like(const Tensor& t, const TensorOptions& o, const char* op) {
  TG_CHECK(DeviceError, o.device.empty() || t.devices().size() == 1, "[", op,
           "] cannot specify `device` on `*_like` of a multi device tensor: got ", o.device, " for one on ",
           t.device());
}

struct Flat {
  std::vector<Scalar> values;
  std::vector<int64_t> shape;
};

void flatten_literal(const Literal& l, size_t depth, Flat& out) {  // recursion as deep as the braces in the program
  if (!l.is_list) {
    TG_CHECK(ShapeError, depth == out.shape.size(), "[Tensor] got a number where the lists before it have ",
             out.shape.size() - depth, " more levels, expected lists of equal depth");
    out.values.push_back(l.scalar);
    return;
  }
  int64_t n = static_cast<int64_t>(l.list.size());
  if (depth == out.shape.size() && out.values.empty()) out.shape.push_back(n);
  TG_CHECK(ShapeError, depth < out.shape.size() && out.shape[depth] == n,
           "[Tensor] got lists of different lengths or depths, expected ",
           depth < out.shape.size() ? str(out.shape[depth], " elements at level ", depth, ", got ", n)
                                    : std::string("numbers at this level"));
  for (const Literal& e : l.list) flatten_literal(e, depth + 1, out);
}

template <class T, class F> Tensor packed(const Flat& f, F&& get, const TensorOptions& o) {
  std::vector<T> data;
  for (const Scalar& v : f.values) data.push_back(static_cast<T>(get(v)));
  return Tensor::from_bytes(std::as_bytes(std::span(data)), dtype_of_v<T>, Shape(std::span<const int64_t>(f.shape)), o);
}
}  // namespace

Tensor::Tensor(std::initializer_list<Literal> data, const TensorOptions& o) {
  OpScope s;
  Flat f;
  flatten_literal(Literal(data), 0, f);
  bool all_bool = !f.values.empty(), any_float = f.values.empty();
  int128 lo = 0, hi = 0;
  for (const Scalar& v : f.values) {
    all_bool &= v.dtype.is_bool();
    any_float |= v.dtype.is_float();
    if (v.value.is_int()) {
      lo = std::min(lo, v.value.i);
      hi = std::max(hi, v.value.i);
    }
  }
  TensorOptions want = o;
  Tensor t;
  if (all_bool)
    t = from(std::vector<bool>([&] {
               std::vector<bool> b;
               for (auto& v : f.values) b.push_back(v.value.i != 0);
               return b;
             }()),
             o)
            .reshape(Shape(std::span<const int64_t>(f.shape)));
  else if (any_float) {
    if (!want.dtype) want.dtype = dtypes::default_float();
    t = packed<double>(f, [](const Scalar& v) { return v.value.as_double(); }, want);
  } else {
    const bool large = hi > int_max(dtypes::int64);
    if (!want.dtype)
      want.dtype = least_upper_dtype(ops::strong_type(lo, dtypes::weakint), ops::strong_type(hi, dtypes::weakint));
    ops::check_holds(*want.dtype, lo);
    ops::check_holds(*want.dtype, hi);
    if (large) t = packed<uint64_t>(f, [](const Scalar& v) { return v.value.i; }, want);
    else t = packed<int64_t>(f, [](const Scalar& v) { return v.value.i; }, want);
  }
  *this = t;
}

Tensor Tensor::scalar(Scalar v, std::optional<DType> dtype) {
  if (dtype) return leaf_scalar(v, dtype);
  GraphScope g;  // never realized by EAGER: it is a literal
  return Tensor(std::make_shared<Impl>(UOp::constant(v.value, v.dtype)));
}
Tensor tensor_detail::leaf_scalar(Scalar v, std::optional<DType> dtype) {
  GraphScope g;
  if (dtype) ops::check_holds(*dtype, v.value);
  return Tensor(std::make_shared<Tensor::Impl>(own_leaf(UOp::constant(v.value, dtype.value_or(v.dtype)))));
}
bool tensor_detail::is_differentiable_leaf(UOp u) {
  return u.dtype().is_float() && (!u.dtype().is_weak() || mark_of(u));
}

Tensor Tensor::constants(const std::vector<Scalar>& values, std::optional<DType> dtype) {
  OpScope s;
  if (values.empty()) return s(ops::full({0}, 0, dtype.value_or(dtypes::default_float())));
  DType d = values[0].dtype;
  for (const Scalar& v : values) d = least_upper_dtype(d, v.dtype);
  if (!dtype) {
    dtype = strong_dtype(d);
    for (const Scalar& v : values)
      if (d == dtypes::weakint) dtype = least_upper_dtype(*dtype, ops::strong_type(v.value, d));
  }
  UOps parts;
  for (const Scalar& v : values) {
    ops::check_holds(*dtype, v.value);
    parts.push_back(UOp::constant(v.value, *dtype));
  }
  return s(UOp::stack(parts));
}

/// Converts on the host, so that a literal of another type costs no kernel.
static std::vector<std::byte> converted(std::span<const std::byte> data, DType from, DType to) {
  size_t n = data.size() / static_cast<size_t>(from.itemsize());
  std::vector<std::byte> out(n * static_cast<size_t>(to.itemsize()));
  auto put = [&](size_t i, auto v) { std::memcpy(&out[i * sizeof v], &v, sizeof v); };
  for (size_t i = 0; i < n; i++) {
    auto get = [&](auto v) {
      std::memcpy(&v, &data[i * sizeof v], sizeof v);
      return v;
    };
    double f = from == dtypes::float64 ? get(double{}) : 0;
    int128 v = from == dtypes::int64    ? get(int64_t{})
               : from == dtypes::uint64 ? static_cast<int128>(get(uint64_t{}))
                                        : 0;
    if (from.is_float()) v = to.is_float() || std::isnan(f) || std::abs(f) > 1e30 ? 0 : static_cast<int128>(f);
    else f = static_cast<double>(v);
    if (to.is_int() && !from.is_float()) v = truncate_int(v, to);
    switch (to.id()) {
      case DTypeId::kBool: put(i, static_cast<uint8_t>(from.is_float() ? f != 0 : v != 0)); break;
      case DTypeId::kInt8:
      case DTypeId::kUInt8: put(i, static_cast<uint8_t>(v)); break;
      case DTypeId::kInt16:
      case DTypeId::kUInt16: put(i, static_cast<uint16_t>(v)); break;
      case DTypeId::kInt32:
      case DTypeId::kUInt32: put(i, static_cast<uint32_t>(v)); break;
      case DTypeId::kInt64:
      case DTypeId::kUInt64: put(i, static_cast<uint64_t>(v)); break;
      case DTypeId::kFloat16: put(i, float_to_half(static_cast<float>(f))); break;
      case DTypeId::kBFloat16: put(i, float_to_bfloat16(static_cast<float>(f))); break;
      case DTypeId::kFloat32: put(i, static_cast<float>(f)); break;
      case DTypeId::kFloat64: put(i, f); break;
      default: put(i, float_to_fp8(static_cast<float>(f), to));
    }
  }
  return out;
}

Tensor Tensor::from_bytes(std::span<const std::byte> data, DType dtype, const Shape& shape, const TensorOptions& o) {
  OpScope s;
  check_shape(shape, "Tensor");
  TG_CHECK(DTypeError, !dtype.is_weak() && !dtype.is_void(), "[Tensor] got data of type ", dtype,
           ", expected one with a size");
  DType want = o.dtype.value_or(dtype);
  TG_CHECK(DTypeError, !want.is_weak() && !want.is_void(), "[Tensor] got dtype ", want, ", expected one with a size");
  TG_CHECK(ShapeError, static_cast<int64_t>(data.size()) == shape.numel() * dtype.itemsize(), "[Tensor] got ",
           data.size(), " bytes of ", dtype, " for shape ", shape, ", expected ", shape.numel() * dtype.itemsize());
  std::vector<std::byte> bytes;
  bool on_host = want != dtype && (dtype == dtypes::float64 || dtype == dtypes::int64 || dtype == dtypes::uint64);
  if (on_host) {
    bytes = converted(data, dtype, want);
    data = bytes;
    dtype = want;
  }
  const std::string device = Device::canonical(o.device);
  UOp u = new_storage(shape, dtype, is_device_list(device) ? split_devices(device)[0] : device);
  if (!data.empty()) with_oom_report([&] { buffer_table::get(u)->copy_in(data); });
  note_host_values(u, data, dtype);
  Tensor t = s(u);
  if (is_device_list(device)) t = t.to(device);
  if (want != dtype) t = t.cast(want);
  if (o.requires_grad) t.requires_grad_(*o.requires_grad);
  return t;
}

void Tensor::check_count(size_t values, const Shape& shape) {
  // reshape() would fill in a -1
  const bool known = std::none_of(shape.begin(), shape.end(), [](const SInt& n) { return n.max() < 0; });
  TG_CHECK(ShapeError, !known || shape.numel() == static_cast<int64_t>(values), "[from] got ", values,
           " values for shape ", shape, ", expected ", shape.numel());
}

Tensor Tensor::from_blob(void* data, const Shape& shape, const TensorOptions& o, std::shared_ptr<void> owner) {
  OpScope s;
  check_shape(shape, "from_blob");
  TG_CHECK(DTypeError, o.dtype && !o.dtype->is_void(), "[from_blob] got no dtype for shape ", shape,
           ", expected the type of the elements: from_blob(data, shape, dtypes::float32), or a pointer that has one");
  TG_CHECK(DTypeError, !o.dtype->is_weak(), "[from_blob] got dtype ", *o.dtype, ", expected one with a size");
  std::string name = Device::canonical(o.device);
  TG_CHECK(DeviceError, !is_device_list(name), "[from_blob] got devices ", name,
           ", expected one: memory lies in one place");
  UOp u = new_buffer(shape, *o.dtype, name);
  buffer_table::attach(static_cast<uint64_t>(u.arg<ParamArg>().slot),
                       Buffer::from_external(name, data, shape.numel(), *o.dtype, std::move(owner)));
  Tensor t = s(u);
  if (o.requires_grad) t.requires_grad_(*o.requires_grad);
  return t;
}

Tensor Tensor::from_file(const std::string& path, const TensorOptions& o) {
  OpScope s;
  std::error_code failed;
  const uintmax_t bytes = std::filesystem::file_size(path, failed);
  TG_CHECK(FileError, !failed, "[Tensor] cannot open ", path, ": ", failed.message());
  DType d = o.dtype.value_or(dtypes::uint8);
  TG_CHECK(DTypeError, !d.is_weak() && !d.is_void(), "[Tensor] got dtype ", d, ", expected one with a size");
  Tensor t = empty({static_cast<int64_t>(bytes) / d.itemsize()}, {.dtype = d, .device = "DISK:" + path});
  return o.device.empty() ? t : t.to(o.device);
}

Tensor Tensor::full(const Shape& shape, Scalar value, const TensorOptions& o) {
  OpScope s;
  check_shape(shape, "full");
  const DType d = o.dtype ? *o.dtype : ops::strong_type(value.value, value.dtype);
  ops::check_holds(d, value.value);
  return made(s, ops::full(shape, value.value, d), o);
}
Tensor Tensor::zeros(const Shape& shape, const TensorOptions& o) { return full(shape, 0.0, o); }
Tensor Tensor::ones(const Shape& shape, const TensorOptions& o) { return full(shape, 1.0, o); }

Tensor Tensor::empty(const Shape& shape, const TensorOptions& o) {
  OpScope s;
  check_shape(shape, "empty");
  Tensor t = s(new_storage(ops::max_shape(shape), o.dtype.value_or(dtypes::default_float()), o.device));
  if (shape.symbolic()) t = s(t.shrink_to(shape));
  if (o.requires_grad) t.requires_grad_(*o.requires_grad);
  return t;
}
Tensor Tensor::full_like(Scalar value, std::optional<DType> dtype) const {
  OpScope s;
  UOp u = uop_of(*this, "full_like");
  const DType d = dtype ? *dtype : ops::strong_type(u);
  ops::check_holds(d, value.value);
  return s(placed_like(ops::full(shape_of(u), value.value, d), u));
}
Tensor Tensor::empty_like(std::optional<DType> dtype) const {
  OpScope s;
  UOp u = uop_of(*this, "empty_like");
  const DType d = dtype.value_or(strong_dtype(u.dtype()));
  if (!is_multi(u)) return s(new_storage(shape_of(u), d, device_or_default(u)));
  UOps parts;
  for (const std::string& name : split_devices(device_of(u))) parts.push_back(new_storage(shard_shape(u), d, name));
  return s(join_shards(parts, shard_axes(u), device_of(u)));
}

Tensor Tensor::full_like(Scalar value, const TensorOptions& o) const {
  TensorOptions want = o;
  if (!want.dtype) want.dtype = strong_dtype(dtype());
  check_like(*this, o, "full_like");
  Tensor t = full(shape(), value, want);
  OpScope s;
  return is_multi(uop()) ? s(placed_like(t.uop(), uop())) : t;
}
Tensor Tensor::empty_like(const TensorOptions& o) const {
  if (devices().size() > 1 && o.device.empty()) {
    Tensor t = empty_like(o.dtype);
    return o.requires_grad ? t.requires_grad_(*o.requires_grad) : t;
  }
  return empty(max_shape(),
               {o.dtype.value_or(strong_dtype(dtype())), o.device.empty() ? device() : o.device, o.requires_grad})
      .shrink_to(shape());
}

Tensor Tensor::arange(Scalar start, Scalar stop, Scalar step, const TensorOptions& o) {
  OpScope s;
  bool is_float = start.dtype.is_float() || stop.dtype.is_float() || step.dtype.is_float();
  double a = start.value.as_double(), z = stop.value.as_double(), d = step.value.as_double();
  TG_CHECK(ValueError, d != 0 && std::isfinite(a) && std::isfinite(z) && std::isfinite(d), "[arange] got start ", a,
           ", stop ", z, ", step ", d, ", expected finite numbers and a step other than 0");
  double count = std::ceil((z - a) / d);
  if (!is_float) {
    int128 gap = stop.value.i - start.value.i, by = step.value.i;
    count = static_cast<double>((gap + by + (by > 0 ? -1 : 1)) / by);
  }
  TG_CHECK(ShapeError, count < 4e18, "[arange] got ", count, " elements, which is too many");
  int64_t n = std::max<int64_t>(static_cast<int64_t>(count), 0);
  DType dtype = o.dtype.value_or(is_float ? dtypes::default_float() : dtypes::default_int());
  if (!is_float && n > 0) {
    int128 first = start.value.i, last = first + static_cast<int128>(n - 1) * step.value.i, lo = std::min(first, last),
           hi = std::max(first, last);
    if (!o.dtype && (lo < int_min(dtype) || hi > int_max(dtype))) dtype = dtypes::int64;
    TG_CHECK(OverflowError, !(dtype.is_int() || dtype.is_bool()) || (lo >= int_min(dtype) && hi <= int_max(dtype)),
             "[arange] got values from ", static_cast<double>(lo), " to ", static_cast<double>(hi), ", which ", dtype,
             " cannot hold");
  }
  if (n == 0) return made(s, ops::full({0}, 0, dtype), o);
  // Counts in integers, then scales once: the same value as a product in the target type.
  UOp u = ops::arange(n, dtype.is_int() ? dtype : n > (int64_t{1} << 31) ? dtypes::int64 : dtypes::int32);
  u = ops::cast(u, dtype);
  if (d != 1) u = u * u.const_like(is_float ? ConstValue(d) : step.value);
  if (a != 0) u = u + u.const_like(is_float ? ConstValue(a) : start.value);
  return made(s, u, o);
}

Tensor Tensor::arange_symbolic(const SInt& start, const SInt& stop, const SInt& step, const TensorOptions& o) {
  OpScope s;
  if (!start.symbolic() && !stop.symbolic() && !step.symbolic())
    return s(arange(start.value(), stop.value(), step.value(), o));
  UOp by = step.uop();
  Bounds b = bounds_of(by);
  TG_CHECK(ValueError, b.lo > 0 || b.hi < 0, "[arange] got step ", step,
           ", expected one that is always positive or always negative");
  UOp gap = stop.uop() - start.uop(), one = UOp::constant(int64_t{1});
  SInt count = start == 0 && step == 1 ? stop : SInt(simplify((gap + by + (b.lo > 0 ? one.neg() : one)) / by));
  DType d = o.dtype.value_or(dtypes::default_int());
  UOp u = ops::arange(std::max<int64_t>(count.max(), 0), d);
  if (count.symbolic())
    u = ops::shrink(
        u, {{SInt(0), bounds_of(count.uop()).lo >= 0 ? count : SInt(count.uop().maximum(UOp::constant(int64_t{0})))}});
  return made(s, u * ops::cast(by, d) + ops::cast(start.uop(), d), o);
}

Tensor Tensor::linspace(double start, double stop, int64_t steps, const TensorOptions& o) {
  OpScope s;
  DType d = o.dtype.value_or(dtypes::default_float());
  TG_CHECK(ValueError, steps >= 0, "[linspace] got ", steps, " steps, expected 0 or more");
  TG_CHECK(DTypeError, !d.is_bool(), "[linspace] got dtype bool, expected a number type");
  if (steps <= 1) return made(s, ops::full({steps}, start, d), o);
  const DType f = least_upper_dtype(least_upper_float(d), dtypes::default_float());
  const UOp place = ops::arange(steps, dtypes::int32), last = place.const_like(steps - 1);
  // From the nearer end, so that both ends are exact and nothing is beyond them.
  const auto at = [&](UOp i, double from, double step) {
    const UOp x = ops::cast(i, f);
    return x * x.const_like(step) + x.const_like(from);
  };
  const double step = (stop - start) / static_cast<double>(steps - 1);
  const UOp first = place < place.const_like(steps / 2);
  return made(s, ops::cast(first.where(at(place, start, step), at(last - place, stop, -step)), d), o);
}

Tensor Tensor::eye(const SInt& n, const std::optional<SInt>& m, const TensorOptions& o) {
  OpScope s;
  const SInt cols = m.value_or(n);
  TG_CHECK(ShapeError, n.max() >= 0 && cols.max() >= 0, "[eye] got ", n, " rows and ", cols,
           " columns, expected sizes that are not negative");
  DType d = o.dtype.value_or(dtypes::default_float());
  if (n == 0 || cols == 0) return made(s, ops::full({n, cols}, 0, d), o);
  auto number = [](const SInt& size) { return arange_symbolic(0, size, 1, {.dtype = dtypes::int32}); };
  return made(s, (number(n).unsqueeze(-1) == number(cols)).cast(d).uop(), o);
}

Tensors Tensor::meshgrid(const Tensors& t, bool ij) {
  OpScope s;
  Shape grid;
  for (const Tensor& x : t) {
    TG_CHECK(ShapeError, x.ndim() <= 1, "[meshgrid] got shape ", x.shape(), ", expected 0 or 1 axes");
    grid.push_back(x.numel());
  }
  Tensors out;
  for (size_t i = 0; i < t.size(); i++) {
    Shape one(t.size(), SInt(1));
    size_t axis = !ij && t.size() > 1 && i < 2 ? 1 - i : i;
    one[axis] = t[i].numel();
    Shape full = grid;
    if (!ij && t.size() > 1) std::swap(full[0], full[1]);
    out.push_back(t[i].reshape(one).expand(full));
  }
  return out;
}

}  // namespace tg
