/// \file Tensor: what users hold. A shared handle of a lazy expression: methods build graph nodes and check shapes,
/// types and devices at once; nothing is computed before `realize`, `item`, `data` or printing asks for it.
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tinygrad/tensor/nested.h"
#include "tinygrad/tensor/options.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {

struct BoundSchedule;
class Mesh;
class Tensor;
using Tensors = std::vector<Tensor>;
struct Index;
class TensorItem;

/// A handle of a value or an expression. Methods check what they are given at once and compute nothing.
///
/// Sections begin with what holds for all of their functions: the shapes and types of results, and the errors that
/// functions throw besides those of any method:
/// Errors: ValueError for an undefined tensor; IndexError for an axis that does not exist (negative ones count from the
/// end), ValueError for one named twice; ShapeError for a symbolic size where a number is needed, and for a list of
/// another length than the axes; DeviceError for operands on different devices.
class Tensor {
 public:
  struct Impl;  // tensor/impl.h

  // ---- creation (creation.cpp) ----
  // Shapes: as asked for; the `*_like` functions: this tensor's. Types: o.dtype; without one the default float, of data
  // their own, of integers the default int. The tensor is on o.device, by default the default device.
  // Errors: ShapeError for negative sizes, for more elements than int64 counts and for data that do not fill the shape;
  // DTypeError for a type without a size (weakint, weakfloat, void); DeviceError for an unknown device, for one where
  // several are needed, and for a `*_like` of a tensor on several devices that is asked for another one.
  /// An undefined tensor: only `defined()`, assignment and destruction are allowed.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  /// Makes this handle another name of `t`; nothing is written. Elements of a temporary are written by at().
  Tensor& operator=(const Tensor& t) & = default;
  Tensor& operator=(Tensor&& t) & noexcept = default;
  template <std::convertible_to<Tensor> T> void operator=(T&&) && {
    static_assert(
        sizeof(T) == 0,
        "x[i] = v and x(i, j) = v would change nothing: elements are written by x.at(i) = v and x.at(i, j) = v");
  }
  /// A scalar. It has no device and adapts to the type of the other operand (dtype weakint, weakfloat or bool).
  template <Arithmetic T> Tensor(T v) : Tensor(scalar(v)) {}
  /// Nested lists: `Tensor({{1.f, 2.f}, {3.f, 4.f}})`. Floats give the default float, integers the default int (int64
  /// when one does not fit), bools bool.
  Tensor(std::initializer_list<Literal> data, const TensorOptions& o = {});
  template <std::same_as<DType> D>
  Tensor(std::initializer_list<Literal> data, D dtype) : Tensor(data, TensorOptions{.dtype = dtype}) {}
  /// A vector's or span's elements as a 1-d tensor of their type (copied), or of the shape that is given.
  template <Arithmetic T>
  explicit Tensor(const std::vector<T>& data, const TensorOptions& o = {}) : Tensor(from(data, o)) {}
  template <Arithmetic T, std::same_as<DType> D>
  Tensor(const std::vector<T>& data, D dtype) : Tensor(data, TensorOptions{.dtype = dtype}) {}
  /// Nested vectors and arrays, a row each: `std::vector<std::vector<float>>`. ShapeError when rows differ in length.
  template <nested::Rows T> explicit Tensor(const T& rows, const TensorOptions& o = {}) : Tensor(from(rows, o)) {}
  template <nested::Rows T, std::same_as<DType> D>
  Tensor(const T& rows, D dtype) : Tensor(rows, TensorOptions{.dtype = dtype}) {}
  template <nested::Rows T> static Tensor from(const T& rows, const TensorOptions& o = {}) {
    const nested::Flat<T> f(rows);
    return from_bytes(std::as_bytes(std::span(f.values)), dtype_of_v<nested::Number<T>>,
                      Shape(std::span<const int64_t>(f.shape)), o);
  }
  template <Arithmetic T> static Tensor from(const std::vector<T>& data, const TensorOptions& o = {}) {
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<uint8_t> bytes(data.begin(), data.end());
      return from_bytes(std::as_bytes(std::span(bytes)), dtypes::bool_, {static_cast<int64_t>(data.size())}, o);
    } else return from(std::span<const T>(data), {static_cast<int64_t>(data.size())}, o);
  }
  template <Arithmetic T>
  static Tensor from(const std::vector<T>& data, const Shape& shape, const TensorOptions& o = {}) {
    check_count(data.size(), shape);
    return from(data, o).reshape(shape);
  }
  template <Arithmetic T> static Tensor from(std::span<const T> data, const Shape& shape, const TensorOptions& o = {}) {
    return from_bytes(std::as_bytes(data), dtype_of_v<T>, shape, o);
  }
  /// Row-major elements of type `dtype` as bytes; `o.dtype` converts. ShapeError when they do not fit the shape.
  static Tensor from_bytes(std::span<const std::byte> data, DType dtype, const Shape& shape,
                           const TensorOptions& o = {});
  /// The tensor of a graph node: must be called under a GraphScope.
  static Tensor from_uop(UOp u);
  /// Wraps memory without a copy: host memory for the CPU, a device address otherwise. It must outlive the tensor,
  /// through the caller or `owner`. The type is `o.dtype`, else that of the pointer; a void pointer has none, which is
  /// a DTypeError.
  static Tensor from_blob(void* data, const Shape& shape, const TensorOptions& o, std::shared_ptr<void> owner = {});
  template <std::same_as<DType> D>
  static Tensor from_blob(void* data, const Shape& shape, D dtype, const std::string& device = {},
                          std::shared_ptr<void> owner = {}) {
    return from_blob(data, shape, TensorOptions{.dtype = dtype, .device = device}, std::move(owner));
  }
  template <Arithmetic T>
    requires(!std::is_const_v<T>)
  static Tensor from_blob(T* data, const Shape& shape, const TensorOptions& o = {}, std::shared_ptr<void> owner = {}) {
    return from_blob(static_cast<void*>(data), shape, {o.dtype.value_or(dtype_of_v<T>), o.device, o.requires_grad},
                     std::move(owner));
  }
  static Tensor scalar(Scalar v, std::optional<DType> dtype = {});
  /// A short vector of literals without storage, of the given type or the values' common one.
  static Tensor constants(const std::vector<Scalar>& values, std::optional<DType> dtype = {});
  /// A file's elements (uint8, or o.dtype) on the DISK device, copied to o.device when named. FileError without a file.
  static Tensor from_file(const std::string& path, const TensorOptions& o = {});
  /// The bytes at an http(s) or file address as uint8 on the DISK device: downloaded once, then read from the cache
  /// (see io/fetch.h). Throws FileError when it cannot be fetched, FormatError for damaged gzip data, ValueError for
  /// another kind of address.
  static Tensor from_url(const std::string& url, bool gunzip = false, const TensorOptions& o = {});

  /// Constants need no storage until they are assigned to. A negative or overflowing size is a ShapeError.
  static Tensor full(const Shape& shape, Scalar value, const TensorOptions& o = {});
  static Tensor zeros(const Shape& shape, const TensorOptions& o = {});  ///< of the default float
  static Tensor ones(const Shape& shape, const TensorOptions& o = {});
  /// Storage with undefined contents.
  static Tensor empty(const Shape& shape, const TensorOptions& o = {});
  static Tensor invalids(const Shape& shape, const TensorOptions& o = {}) {
    return empty(shape, o);
  }  ///< scratch nobody reads before it is written
  /// The same functions with sizes as arguments, with or without options or a type: zeros(2, 3), zeros(2, 3, {.device =
  /// "CPU"}), zeros(2, 3, dtypes::int32), zeros({2, 3}, dtypes::int32).
  TG_BY_SIZES(zeros)
  TG_BY_SIZES(ones)
  TG_BY_SIZES(empty)
  template <std::same_as<DType> D> static Tensor full(const Shape& shape, Scalar value, D dtype) {
    return full(shape, value, TensorOptions{.dtype = dtype});
  }
  Tensor full_like(Scalar value, std::optional<DType> dtype = {}) const;
  Tensor zeros_like(std::optional<DType> dtype = {}) const { return full_like(0, dtype); }
  Tensor ones_like(std::optional<DType> dtype = {}) const { return full_like(1, dtype); }
  Tensor empty_like(std::optional<DType> dtype = {}) const;
  Tensor const_like(Scalar value, std::optional<DType> dtype = {}) const { return full_like(value, dtype); }
  /// Also on another device.
  Tensor full_like(Scalar value, const TensorOptions& o) const;
  Tensor empty_like(const TensorOptions& o) const;
  Tensor rand_like(const TensorOptions& o) const;
  Tensor randn_like(const TensorOptions& o) const;
  /// start, start + step, ... below (step < 0: above) stop: default int (int64 when needed), or default float when an
  /// argument is a float; 1-d. Throws ValueError for a step of 0 and numbers that are not finite, OverflowError for
  /// values that o.dtype cannot hold, ShapeError for too many elements.
  static Tensor arange(Scalar start, Scalar stop, Scalar step = 1, const TensorOptions& o = {});
  static Tensor arange(Scalar stop) { return arange(0, stop); }
  static Tensor arange(Scalar stop, const TensorOptions& o) { return arange(0, stop, 1, o); }
  static Tensor arange(Scalar start, Scalar stop, const TensorOptions& o) { return arange(start, stop, 1, o); }
  template <std::same_as<DType> D> static Tensor arange(Scalar stop, D dtype) {
    return arange(0, stop, 1, TensorOptions{.dtype = dtype});
  }
  template <std::same_as<DType> D> static Tensor arange(Scalar start, Scalar stop, D dtype) {
    return arange(start, stop, 1, TensorOptions{.dtype = dtype});
  }
  /// arange of integers that may be symbolic, which makes the size symbolic. ValueError for a step of unknown sign.
  static Tensor arange_symbolic(const SInt& start, const SInt& stop, const SInt& step = 1, const TensorOptions& o = {});
  /// `steps` numbers from start to stop, both included: 1-d, of o.dtype or the default float. Throws ValueError for
  /// negative steps, DTypeError for bool.
  static Tensor linspace(double start, double stop, int64_t steps, const TensorOptions& o = {});
  /// (n, m), by default (n, n): 1 where row and column are equal, else 0.
  static Tensor eye(const SInt& n, const std::optional<SInt>& m = {}, const TensorOptions& o = {});
  static Tensor eye(const SInt& n, const TensorOptions& o) { return eye(n, n, o); }
  template <std::same_as<DType> D> static Tensor eye(const SInt& n, D dtype) {
    return eye(n, n, TensorOptions{.dtype = dtype});
  }
  /// Coordinates of a grid from tensors of at most one axis, all of the grid's shape; `ij`: the first varies along axis
  /// 0. Throws ShapeError for more axes.
  static Tensors meshgrid(const Tensors& t, bool ij = true);

  // ---- random numbers (random.cpp): the stream depends on seed, order of creation and sizes only ----
  // Shapes: as asked for. Types: o.dtype (a float type), by default the default float; randint: an integer type, int32.
  // Errors: ShapeError for negative sizes; DTypeError for a type of another kind; ValueError for bounds in the wrong
  // order, a negative deviation, and several devices at once; DeviceError for a `*_like` on another device.
  /// Starts the stream of random numbers from its beginning; equal seeds give equal numbers on every device.
  static void manual_seed(uint64_t seed = 0);
  /// Uniform in [0, 1). Without `contiguous` the values are generated where they are used and take no storage.
  static Tensor rand(const Shape& shape, const TensorOptions& o = {}, bool contiguous = true);
  static Tensor randn(const Shape& shape, const TensorOptions& o = {});  ///< standard normal
  static Tensor randint(const Shape& shape, const RandintOptions& o = {});
  static Tensor uniform(const Shape& shape, const UniformOptions& o = {});
  static Tensor normal(const Shape& shape, const NormalOptions& o = {});
  TG_BY_SIZES(rand)
  TG_BY_SIZES(randn)
  /// Weights of layers: glorot_uniform needs an axis at least (ShapeError); of (out, in, ...) `in, ...` is the fan-in.
  static Tensor scaled_uniform(const Shape& shape, const TensorOptions& o = {});  ///< +-1/sqrt(number of elements)
  static Tensor glorot_uniform(const Shape& shape, const TensorOptions& o = {});
  static Tensor kaiming_uniform(const Shape& shape, double a = 0.01, const TensorOptions& o = {});
  static Tensor kaiming_normal(const Shape& shape, double a = 0.01, const TensorOptions& o = {});
  Tensor rand_like(std::optional<DType> dtype = {}) const;
  Tensor randn_like(std::optional<DType> dtype = {}) const;
  /// `num` words of threefry bits for a key and a counter of two uint32 words (low first). ShapeError from 2^32 on.
  static Tensor random_bits(const Tensor& key, const Tensor& counter, int64_t num);
  /// The numbers 0 to n - 1 in random order: (n,), int32 by default. Throws ValueError for a negative n.
  static Tensor randperm(int64_t n, const TensorOptions& o = {});
  /// Indices drawn with the weights in this tensor's rows (or its one row): (rows, samples) or (samples,), int32.
  /// Throws ShapeError for other than one or two axes, ValueError for more samples than weights without replacement.
  Tensor multinomial(int64_t samples = 1, bool replacement = false) const;
  /// Zeroes elements with probability p and scales the others by 1/(1-p) in training mode (`Tensor::training()`), else
  /// returns the tensor itself. Throws ValueError unless 0 <= p <= 1, and for symbolic sizes.
  Tensor dropout(double p = 0.5) const;
  static bool training();  ///< TRAINING of this thread: `Context ctx{{"TRAINING", 1}}`

  // ---- properties ----
  /// Returns what is known without computing anything. Throws ValueError for an undefined tensor. Sizes may be
  /// symbolic; shape(axis) throws IndexError for an axis that does not exist.
  bool defined() const { return impl_ != nullptr; }
  UOp uop() const;  ///< valid as long as the tensor keeps it
  DType dtype() const;
  Shape shape() const;
  int64_t shape(int axis) const;  ///< size of one axis
  int64_t ndim() const;
  int64_t dim() const { return ndim(); }
  int64_t numel() const;
  Shape size() const { return shape(); }
  int64_t size(int axis) const { return shape(axis); }
  Shape max_shape() const;  ///< symbolic sizes at their greatest: what storage has room for
  int64_t max_numel() const { return max_shape().numel(); }
  int64_t nbytes() const;
  int64_t element_size() const;
  /// The type of the values when stored: dtype(); for expressions of literals only, the default type of their kind, or
  /// int64 where that is too narrow.
  DType stored_dtype() const;
  std::string device() const;  ///< canonical name, of several devices a list ("CPU,CPU:1"); of a constant without one:
                               ///< the default device
  std::vector<std::string> devices() const;
  std::optional<int> shard_axis()
      const;  ///< the axis along which each of several devices has a slice; none: each has the whole tensor
  bool is_floating_point() const { return dtype().is_float(); }
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }  ///< the same handle

  // ---- types ----
  // Shapes: the operand's. Types: the one in the name. Errors: DTypeError for void and for a name of no type.
  /// Converts elements to another dtype, of the same shape. Floats become integers by truncation.
  Tensor cast(DType d) const;
  Tensor cast(std::string_view name) const { return cast(dtypes::from_name(name)); }  ///< "float16", "half", "int", ...
  /// The same bits as another type. With a different size the last axis shrinks or grows; ShapeError when its elements
  /// do not fill whole new ones, DTypeError for literals, which have no bits.
  Tensor bitcast(DType d) const;
  Tensor to_float() const { return cast(dtypes::float32); }
  Tensor half() const { return cast(dtypes::float16); }
  Tensor bfloat16() const { return cast(dtypes::bfloat16); }
  Tensor to_double() const { return cast(dtypes::float64); }
  Tensor to_long() const { return cast(dtypes::int64); }
  Tensor to_short() const { return cast(dtypes::int16); }
  Tensor to_int() const { return cast(dtypes::int32); }
  Tensor to_bool() const { return cast(dtypes::bool_); }

  // ---- movement (movement.cpp): views, nothing is copied ----
  // Types: the operand's. Shapes: in the comments; without one as NumPy's or PyTorch's function of that name has them.
  // Errors: ShapeError for sizes that do not fit the operand's.
  /// Shapes: the one asked for, of which one size may be -1. ShapeError when the number of elements differs.
  Tensor reshape(const Shape& shape) const;
  Tensor view(const Shape& shape) const { return reshape(shape); }
  /// Shapes: the one asked for, by NumPy broadcasting; -1 keeps a size. ShapeError where the old is not 1 or the new.
  Tensor expand(const Shape& shape) const;
  /// Axis i of the result is axis order[i] of this. ShapeError unless each axis is named once.
  Tensor permute(const std::vector<int>& order) const;
  template <std::integral... I> Tensor reshape(I... d) const { return reshape(Shape{static_cast<int64_t>(d)...}); }
  template <std::integral... I> Tensor view(I... d) const { return reshape(d...); }
  template <std::integral... I> Tensor expand(I... d) const { return expand(Shape{static_cast<int64_t>(d)...}); }
  template <std::integral... I>
    requires(sizeof...(I) > 1)
  Tensor permute(I... d) const {
    return permute(std::vector<int>{static_cast<int>(d)...});
  }
  Tensor transpose(int a = 1, int b = 0) const;
  Tensor T() const { return transpose(); }
  /// [start, end) of each axis; sizes may be symbolic. ShapeError unless there is a range for each axis, within it.
  Tensor shrink(const std::vector<std::pair<SInt, SInt>>& ranges) const;
  /// (before, after) of each axis; negative values shrink. ShapeError for other than a pair for each axis, and to
  /// reflect more than an axis has.
  Tensor pad(const std::vector<std::pair<int64_t, int64_t>>& padding, const PadOptions& o = {}) const;
  Tensor pad(std::initializer_list<std::pair<int64_t, int64_t>> p, const PadOptions& o = {}) const {
    return pad(std::vector<std::pair<int64_t, int64_t>>(p), o);
  }
  /// Symbolic amounts of a constant, 0 or more.
  Tensor pad(const std::vector<std::pair<SInt, SInt>>& padding, const PadOptions& o = {}) const;
  /// {left, right, top, bottom, ...}, the last axis first.
  Tensor pad(const Ints& padding, const PadOptions& o = {}) const;
  Tensor pad_to(const Shape& shape, const Scalar& value = 0) const;  ///< grows at the end; -1 keeps a size
  Tensor shrink_to(const Shape& shape) const;                        ///< keeps [0, n) of each axis; -1 keeps it whole
  Tensor flip(const std::vector<int>& axes) const;
  Tensor flip(int axis) const { return flip(std::vector<int>{axis}); }
  Tensor squeeze() const;
  Tensor squeeze(int axis) const;
  Tensor unsqueeze(int axis) const;
  Tensor flatten(int start = 0, int end = -1) const;
  Tensor unflatten(int axis, const Shape& sizes) const;
  Tensor repeat(const Ints& repeats) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int> axis = {}) const;
  /// Parts along an axis: of `size` (the last may be smaller), of `sizes`, which must add up to it (ShapeError), or
  /// `chunks` of equal size but the last. ValueError for fewer than one chunk.
  Tensors split(int64_t size, int axis = 0) const;
  Tensors split(const std::vector<int64_t>& sizes, int axis = 0) const;
  Tensors chunk(int64_t chunks, int axis = 0) const;
  /// Windows of `size` elements every `step` along one axis, appended as a new last axis. ShapeError for a window that
  /// is larger than the axis or a step below 1.
  Tensor unfold(int axis, int64_t size, int64_t step) const;
  /// Patterns of named axes as in einops: `rearrange("b (h d) t -> b h t d", {{"h", 4}})`.
  /// ValueError for a pattern that is not understood, ShapeError for one that does not fit the shape.
  Tensor rearrange(const std::string& formula, const std::vector<std::pair<std::string, int64_t>>& sizes = {}) const;
  /// Elements shifted along axes (without axes: of the flattened tensor), those that leave come in at the other end.
  Tensor roll(const Ints& shifts, const Axes& axes = {}) const;
  /// diagonal: the diagonals of two axes as a new last axis; diag: of a vector the matrix with that diagonal, of a
  /// matrix its diagonal. ShapeError for too few or, of diag, too many axes.
  Tensor diagonal(int offset = 0, int axis1 = 0, int axis2 = 1) const;
  Tensor diag() const;
  /// Joins tensors along an axis, old or new; types are promoted. ValueError for none, ShapeError where sizes differ.
  static Tensor cat(const Tensors& tensors, int axis = 0);
  static Tensor stack(const Tensors& tensors, int axis = 0);
  Tensor cat(const Tensor& other, int axis = 0) const { return cat(Tensors{*this, other}, axis); }
  /// Windows of a pooling or convolution over the last axes: (..., o1, o2, ..., k1, k2, ...).
  Tensor pool_view(const Ints& kernel, const Ints& stride = 1, const Ints& dilation = 1) const;

  // ---- elementwise (elementwise.cpp, activation.cpp); binary methods broadcast and promote ----
  /// Functions of each element: the result has the shape of the operand. Functions whose values are no integers give
  /// the default float for integers and bool; the others keep the dtype; predicates give bool. Bitwise ones throw
  /// DTypeError for floats, clamp ValueError without a bound. Outside of its domain a function is NaN, as in IEEE 754;
  /// nothing is thrown.
  Tensor neg() const;
  Tensor logical_not() const;
  Tensor bitwise_not() const;
  Tensor reciprocal() const;
  Tensor trunc() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tan() const;
  Tensor asin() const;
  Tensor acos() const;
  Tensor atan() const;
  Tensor sinh() const;
  Tensor cosh() const;
  Tensor asinh() const;
  Tensor acosh() const;
  Tensor atanh() const;
  Tensor exp() const;
  Tensor exp2() const;
  Tensor log() const;
  Tensor log2() const;
  Tensor log10() const;
  Tensor square() const;
  Tensor abs() const;
  Tensor sign() const;  ///< -1, 0 or 1
  Tensor ceil() const;
  Tensor floor() const;
  Tensor round() const;  ///< half to even
  Tensor isnan() const;
  Tensor isinf(bool positive = true, bool negative = true) const;
  Tensor isfinite() const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  Tensor allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  Tensor erf() const;
  Tensor relu() const;
  Tensor relu6() const;
  Tensor sigmoid() const;
  Tensor tanh() const;
  Tensor silu() const;
  Tensor swish() const { return silu(); }
  Tensor gelu(bool tanh_approximation = true) const;
  Tensor quick_gelu() const;
  Tensor elu(double alpha = 1) const;
  Tensor celu(double alpha = 1) const;
  Tensor selu(double alpha = 1.67326, double gamma = 1.0507) const;
  Tensor leaky_relu(double slope = 0.01) const;
  Tensor hardtanh(double lo = -1, double hi = 1) const;
  Tensor hardsigmoid(double alpha = 1.0 / 6, double beta = 0.5) const;
  Tensor hardswish() const;
  Tensor softplus(double beta = 1) const;
  Tensor softsign() const;
  Tensor logsigmoid() const;
  Tensor mish() const;
  Tensor clamp(const std::optional<Tensor>& lo, const std::optional<Tensor>& hi = {}) const;
  Tensor clip(const std::optional<Tensor>& lo, const std::optional<Tensor>& hi = {}) const { return clamp(lo, hi); }

  /// Functions of two operands, elementwise: shapes are broadcast, dtypes promoted; comparisons give bool. Throws
  /// ShapeError for shapes that do not broadcast, DTypeError for bitwise functions of floats, shifts of others than
  /// integers, threefry of others than uint64, and pow of integers with negative exponents; DeviceError for operands on
  /// two devices.
  Tensor add(const Tensor& o) const;
  Tensor sub(const Tensor& o) const;
  Tensor mul(const Tensor& o) const;
  Tensor div(const Tensor& o) const;  ///< true division: integers give the default float
  Tensor div(const Tensor& o, Rounding r) const {
    return r == Rounding::kFloor ? floor_div(o) : r == Rounding::kTrunc ? trunc_div(o) : div(o);
  }
  Tensor floor_div(const Tensor& o) const;  ///< rounds down
  Tensor trunc_div(const Tensor& o) const;  ///< rounds to zero
  Tensor mod(const Tensor& o) const;        ///< the sign of the divisor
  Tensor fmod(const Tensor& o) const;       ///< the sign of the dividend
  Tensor pow(const Tensor& o) const;
  Tensor maximum(const Tensor& o) const;
  Tensor minimum(const Tensor& o) const;
  Tensor bitwise_and(const Tensor& o) const;
  Tensor bitwise_or(const Tensor& o) const;
  Tensor bitwise_xor(const Tensor& o) const;
  Tensor lshift(const Tensor& o) const;
  Tensor rshift(const Tensor& o) const;
  Tensor eq(const Tensor& o) const;
  Tensor ne(const Tensor& o) const;
  Tensor lt(const Tensor& o) const;
  Tensor gt(const Tensor& o) const;
  Tensor le(const Tensor& o) const;
  Tensor ge(const Tensor& o) const;
  Tensor copysign(const Tensor& o) const;
  Tensor logaddexp(const Tensor& o) const;
  Tensor threefry(const Tensor& seed) const;  ///< of uint64: 20 rounds of Threefry2x32 on the two halves
  /// This and all `others` added (bool: or) or multiplied (bool: and).
  Tensor usum(const Tensors& others) const;
  Tensor uprod(const Tensors& others) const;
  /// One graph operation on this and `others`, which are broadcast and of one type already (comparisons, selection and
  /// casts as the op demands). ValueError for an operation that is not elementwise.
  Tensor alu(Ops op, const Tensors& others = {}) const;
  /// `v` as a tensor of the same kind: of this tensor's type when that can hold it.
  Tensor ufix(Scalar v) const;
  Tensor lerp(const Tensor& end, const Tensor& weight) const;
  /// x where this condition holds, else y: all three broadcast, x and y promote. DTypeError unless it is bool.
  Tensor where(const Tensor& x, const Tensor& y) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;

  // ---- reduces (reduce.cpp): `x.sum()`, `x.sum(1)`, `x.sum({0, 1})`, `x.sum({.axis = {1}, .keepdim = true})` ----
  // Shapes: without the axes of the reduce, or with size 1 for keepdim; of softmax, cumulative functions, norms and
  // sorting the operand's. Types: the operand's where no comment says another; functions whose values are no integers
  // give the default float for integers.
/// Reduces over all axes, one, or some; keepdim leaves them with size 1. Throws IndexError for an axis that does
/// not exist, ValueError for one that is named twice. (Lists are a template because GCC takes options for a list, too.)
#define TG_REDUCE(name)                                                                                               \
  Tensor name(const ReduceOptions& o) const;                                                                          \
  Tensor name() const { return name(ReduceOptions{}); }                                                               \
  Tensor name(int axis, bool keepdim = false) const { return name(ReduceOptions{.axis = axis, .keepdim = keepdim}); } \
  template <std::same_as<int> Axis> Tensor name(std::initializer_list<Axis> axes, bool keepdim = false) const {       \
    return name(ReduceOptions{.axis = axes, .keepdim = keepdim});                                                     \
  }
  TG_REDUCE(sum)  // accumulates in sum_acc_dtype: small integers and bool give int32/uint32
  TG_REDUCE(prod)
  TG_REDUCE(max)
  TG_REDUCE(min)
  TG_REDUCE(mean)  // integers give float
  TG_REDUCE(any)
  TG_REDUCE(all)
  TG_REDUCE(logsumexp)
#undef TG_REDUCE
  Tensor var(const VarOptions& o = {}) const;
  Tensor std(const VarOptions& o = {}) const;
  Tensor var(int axis, bool keepdim = false) const { return var(VarOptions{.axis = axis, .keepdim = keepdim}); }
  Tensor std(int axis, bool keepdim = false) const { return std(VarOptions{.axis = axis, .keepdim = keepdim}); }
  std::pair<Tensor, Tensor> var_mean(const VarOptions& o = {}) const;
  /// Positions of the greatest, the least element, the first of equals: int32 or int64. ShapeError where there is none.
  Tensor argmax(const ArgOptions& o = {}) const;
  Tensor argmin(const ArgOptions& o = {}) const;
  Tensor argmax(int axis, bool keepdim = false) const { return argmax(ArgOptions{.axis = axis, .keepdim = keepdim}); }
  Tensor argmin(int axis, bool keepdim = false) const { return argmin(ArgOptions{.axis = axis, .keepdim = keepdim}); }
  std::pair<Tensor, Tensor> std_mean(const VarOptions& o = {}) const;
  /// Over one or more axes; with `dtype`, computed and returned in that type.
  Tensor softmax(const Axes& axis = -1, std::optional<DType> dtype = {}) const;
  Tensor softmin(const Axes& axis = -1, std::optional<DType> dtype = {}) const { return neg().softmax(axis, dtype); }
  Tensor log_softmax(const Axes& axis = -1, std::optional<DType> dtype = {}) const;
  Tensor cumsum(int axis = 0) const;
  Tensor cumprod(int axis) const;
  std::pair<Tensor, Tensor> cummax(int axis = 0) const;  ///< values, and the first index they were seen at
  std::pair<Tensor, Tensor> cummin(int axis = 0) const;
  Tensor logcumsumexp(int axis = 0) const;
  Tensor normalize(double p = 2, int axis = 1, double eps = 1e-12) const;
  Tensor layernorm(const Axes& axis = -1, double eps = 1e-5) const;
  /// (x - mean) * invstd * weight + bias; each has the sizes of the axes `axis`; weight and bias may be undefined.
  /// ShapeError for other sizes.
  Tensor batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& invstd,
                   const Axes& axis = 1) const;
  Tensor rms_norm(int axis = -1, double eps = 1e-6) const;
  /// Values and indices, sorted along one axis; stable.
  std::pair<Tensor, Tensor> sort(int axis = -1, bool descending = false) const;
  Tensor argsort(int axis = -1, bool descending = false) const { return sort(axis, descending).second; }
  /// The k greatest (or least) elements along an axis, in order, and their positions. Throws ValueError unless 0 <= k
  /// <= the axis, and for sorted = false; IndexError for a tensor without axes.
  std::pair<Tensor, Tensor> topk(int64_t k, int axis = -1, bool largest = true, bool sorted = true) const;

  // ---- matrices (linalg.cpp) ----
  // Shapes: matrices are the last two axes, those before them are broadcast. Types: promoted; products of narrow floats
  // are summed in float32, those of integers in 32 bits. Errors: ShapeError for sizes that do not fit.
  /// NumPy's matmul for any number of axes >= 1: (..., m, k) and (..., k, n) give (..., m, n); accumulates and returns
  /// `dtype` when given. Throws ShapeError unless the inner sizes are equal.
  Tensor dot(const Tensor& w, std::optional<DType> dtype = {}) const;
  Tensor matmul(const Tensor& w, std::optional<DType> dtype = {}) const { return dot(w, dtype); }
  Tensor matmul(const Tensor& w, bool reverse, std::optional<DType> dtype = {}) const {
    return reverse ? w.dot(*this, dtype) : dot(w, dtype);
  }
  template <class T>
    requires(!std::convertible_to<const T&, Tensor>)
  Tensor dot(const T&) const {
    static_assert(std::convertible_to<const T&, Tensor>,
                  "dot() takes a tensor. A layer is called instead: layer(x), or its weight is used: "
                  "x.dot(layer.weight.transpose())");
    return *this;
  }
  template <class T>
    requires(!std::convertible_to<const T&, Tensor>)
  Tensor matmul(const T& w) const {
    return dot(w);
  }
  /// x @ weight + bias, weight (in, out); a 1-d weight multiplies. bias may be undefined.
  Tensor linear(const Tensor& weight, const Tensor& bias = {}, std::optional<DType> dtype = {}) const;
  /// The operand with 0 below (triu) or above (tril) a diagonal. ShapeError for fewer than two axes.
  Tensor triu(const SInt& diagonal = 0) const;
  Tensor tril(const SInt& diagonal = 0) const;
  /// Q (..., m, m) and R (..., m, n) by Householder reflections. Throws DTypeError for others than floats.
  std::pair<Tensor, Tensor> qr() const;
  struct Svd;
  /// U, S (descending) and V^T by one-sided Jacobi rotations; not full: U (..., m, k), V^T (..., k, n), k = min(m, n).
  /// Throws DTypeError for others than floats.
  Svd svd(bool full_matrices = true) const;
  /// Iterates an odd matrix polynomial that drives singular values towards 1 (Muon): shape and type of the operand.
  /// Throws DTypeError for others than floats, ValueError for negative steps or no coefficients.
  Tensor newton_schulz(int steps, const std::vector<double>& coefficients, double eps = 1e-7) const;
  /// Keccak over the last axis of bytes (uint8): "sha3_224", "sha3_256" or "shake_128" (16 bytes); the last axis of the
  /// result is the digest. Throws ValueError for another name or rate, ShapeError for a tensor without axes.
  Tensor keccak(const std::string& variant = "sha3_256") const;
  /// Any sponge: `rate` bytes a block, (200 - rate) / 2 bytes of digest, `suffix` the domain byte.
  Tensor keccak(int64_t rate, int64_t suffix) const;
  /// 16 bytes that depend on all bytes of the tensor: shake_128 in a tree of 4 KiB leaves.
  Tensor hash() const;
  /// Letters name axes, "..." stands for unnamed ones; without "->" the letters used once are kept, sorted. Throws
  /// ValueError for a formula that is not understood or does not fit the operands, ShapeError for sizes that differ.
  static Tensor einsum(const std::string& formula, const Tensors& operands, std::optional<DType> dtype = {});
  struct Attention;
  /// softmax(q k^T / sqrt(d)) v over the last two axes: q (..., n, d), key (..., m, d), value (..., m, e) give
  /// (..., n, e). Scores are summed and normalized in float32 at least; the type is that of q and value together.
  /// Throws ShapeError for fewer than two axes and for heads that do not divide, ValueError for a mask with is_causal.
  Tensor scaled_dot_product_attention(const Tensor& key, const Tensor& value, const Attention& o) const;
  Tensor scaled_dot_product_attention(const Tensor& key, const Tensor& value) const;
  template <std::convertible_to<Tensor> M = Tensor>
  Tensor scaled_dot_product_attention(const Tensor& key, const Tensor& value, const M& mask, double dropout_p = 0,
                                      bool is_causal = false, bool enable_gqa = false) const;

  // ---- convolution and pooling (conv.cpp), any number of spatial axes ----
  // Shapes: (batch, channels, spatial...); spatial sizes as in PyTorch. Types: the operand's, of a convolution promoted
  // with the weight's, or o.dtype. Errors: ShapeError for sizes that do not fit: channels and groups, a kernel larger
  // than the padded input, lists of another length than the spatial axes.
  /// x (batch, in, ...), weight (out, in / groups, kernel...), bias (out) or undefined.
  Tensor conv2d(const Tensor& weight, const Tensor& bias, const ConvOptions& o) const;
  Tensor conv2d(const Tensor& weight, const ConvOptions& o = {}) const { return conv2d(weight, Tensor(), o); }
  template <std::convertible_to<Tensor> B = Tensor> Tensor conv2d(const Tensor& weight, const B& bias) const {
    return conv2d(weight, bias, ConvOptions{});
  }
  /// The same result computed in the layouts of texture memory: rows of four channels. 2-d only.
  Tensor image_conv2d(const Tensor& weight, const Tensor& bias, const ConvOptions& o) const;
  Tensor image_conv2d(const Tensor& weight, const ConvOptions& o = {}) const {
    return image_conv2d(weight, Tensor(), o);
  }
  template <std::convertible_to<Tensor> B = Tensor> Tensor image_conv2d(const Tensor& weight, const B& bias) const {
    return image_conv2d(weight, bias, ConvOptions{});
  }
  /// dot() through image_conv2d. ShapeError unless the inner sizes are equal.
  Tensor image_dot(const Tensor& w, std::optional<DType> dtype = {}) const;
  /// x (batch, in, ...), weight (in, out / groups, kernel...).
  Tensor conv_transpose2d(const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& o) const;
  Tensor conv_transpose2d(const Tensor& weight, const ConvTransposeOptions& o = {}) const {
    return conv_transpose2d(weight, Tensor(), o);
  }
  template <std::convertible_to<Tensor> B = Tensor> Tensor conv_transpose2d(const Tensor& weight, const B& bias) const {
    return conv_transpose2d(weight, bias, ConvTransposeOptions{});
  }
  /// Maximum and mean of windows over as many last axes as o.kernel_size has; padding is no maximum and, unless
  /// count_include_pad, no part of a mean.
  Tensor max_pool2d(const PoolOptions& o = {}) const;
  Tensor avg_pool2d(const PoolOptions& o = {}) const;
  /// Also returns the position of each maximum in the flattened spatial axes, int32.
  std::pair<Tensor, Tensor> max_pool2d_with_indices(const PoolOptions& o = {}) const;
  /// Scatters pooled values back to their positions, zeros elsewhere. `output_size`: of the spatial axes, when the
  /// pooling does not determine it. ShapeError unless indices have the shape of the values.
  Tensor max_unpool2d(const Tensor& indices, const PoolOptions& o = {}, const Ints& output_size = {}) const;
  /// Resizes the last axes to `size`. ValueError for align_corners with another mode than linear.
  Tensor interpolate(const Ints& size, Interpolation mode = Interpolation::kLinear, bool align_corners = false) const;

  // ---- losses (loss.cpp) ----
  // Shapes: a scalar, or with Reduction::kNone a loss for each label. Types: that of the logits. Errors: ShapeError for
  // labels that do not fit the logits, DTypeError for class labels that are no integers, ValueError for label_smoothing
  // outside of 0 to 1.
  // Labels that are ignore_index, or -100 as in PyTorch, have no loss and do not count; the loss of one that is no
  // class is NaN, or with CHECK_INDEX=1 an IndexError.
  /// Integer labels Y for logits (..., classes).
  Tensor sparse_categorical_crossentropy(const Tensor& y, const CrossEntropyOptions& o = {}) const;
  /// Labels (integers) or probabilities Y for logits with classes on axis 1 (0 for 1-d).
  Tensor cross_entropy(const Tensor& y, const CrossEntropyOptions& o = {}) const;
  /// Integer labels Y for log-probabilities (batch, classes, ...); `weight` (classes,) counts each class as much.
  Tensor nll_loss(const Tensor& y, const Tensor& weight, const CrossEntropyOptions& o) const;
  Tensor nll_loss(const Tensor& y, const CrossEntropyOptions& o = {}) const { return nll_loss(y, Tensor(), o); }
  template <std::convertible_to<Tensor> W = Tensor> Tensor nll_loss(const Tensor& y, const W& weight) const {
    return nll_loss(y, weight, CrossEntropyOptions{});
  }
  /// Probabilities Y for probabilities, for logits, or values for values, elementwise.
  Tensor binary_crossentropy(const Tensor& y, Reduction r = Reduction::kMean) const;
  Tensor binary_crossentropy_logits(const Tensor& y, Reduction r = Reduction::kMean,
                                    const Tensor& pos_weight = {}) const;
  Tensor mse_loss(const Tensor& y, Reduction r = Reduction::kMean) const;

  // ---- indexing (index.cpp, setitem.cpp, scatter.cpp) ----
  // Shapes: NumPy's. Types: the operand's. Errors: IndexError for indices that name no element or do not broadcast,
  // DTypeError for indices that are no integers, ShapeError for values that do not fit, DeviceError for indices on
  // another device; ValueError for a step of 0 and for slices with symbolic bounds whose size could be negative.
  // Tensors out of range are an IndexError if they are constant or came from the host, else with CHECK_INDEX=1.
  /// NumPy indexing: `x(1, Slice(0, 4), None, Ellipsis, rows)`. Integers, slices of any step, None (a new axis) and
  /// Ellipsis give views. Integer tensors or lists gather: adjacent ones are replaced in place by the axes they
  /// broadcast to, others put those first; negative ones count from the end, computed ones out of range give 0. A bool
  /// tensor stands for the positions where it holds, and is computed at once. Integers out of range, too many indices,
  /// float indices, indices that do not broadcast: IndexError. An index of whole axes only returns the tensor itself.
  template <class... I> Tensor operator()(I&&... i) const;
  Tensor index(const std::vector<Index>& indices) const;
  Tensor operator[](int64_t i) const;
  Tensor operator[](const Tensor& rows) const;
  Tensor operator[](const Slice& s) const;
  /// x(..., Slice(start, stop, step), ...) along one axis: a view.
  Tensor slice(int axis, const Slice::Bound& start, const Slice::Bound& stop = None,
               std::optional<int64_t> step = {}) const;
  /// Elements to write: `x.at(Slice(1, 3), 0) = v`, `x.at(rows) += 1`.
  template <class... I> TensorItem at(I&&... i) const;
  /// Writes `value` (broadcast) to the elements `indices` name; of several values for one element the last is kept. A
  /// tensor with storage is written in place, and everything that views the storage sees it; another tensor's
  /// expression is replaced by one with the new elements. Gradients flow to the value and to the elements not
  /// overwritten. ShapeError, DTypeError (literals take the tensor's type), DeviceError, IndexError.
  void setitem(const std::vector<Index>& indices, const Tensor& value) const;
  /// Returns a copy with `value` (broadcast) at `indices`; `accumulate` adds, once for each time an element is named.
  Tensor index_put(const std::vector<Index>& indices, const Tensor& value, bool accumulate = false) const;
  /// Returns whether another live tensor that is no view of this one's storage was computed from this tensor and is
  /// still pending, apart from `besides` and its sources. It goes on reading the old elements after a setitem.
  bool has_other_uses(const Tensors& besides = {}) const;
  /// The element that `index` names along `axis`, at each position of index; 0 where it is out of range (negative).
  Tensor gather(int axis, const Tensor& index) const;
  /// Returns a copy with `src` (a scalar, or at least as large as index) written at `index` along `axis` (the last one
  /// wins; out of range or negative: dropped).
  Tensor scatter(int axis, const Tensor& index, const Tensor& src) const;
  Tensor scatter_add(int axis, const Tensor& index, const Tensor& src) const;
  /// Combines `src` with the old values at `index`. Without include_self the old values of written positions do not
  /// contribute.
  Tensor scatter_reduce(int axis, const Tensor& index, const Tensor& src, ScatterReduce how,
                        bool include_self = true) const;
  /// The elements where `mask` holds, in order. With `size` the result has that many (cut off, or filled with `fill`)
  /// and nothing is computed now.
  Tensor masked_select(const Tensor& mask, std::optional<int64_t> size = {}, const Tensor& fill = 0) const;
  /// Coordinates of the nonzero elements, int32 (count, axes); `size` as in masked_select.
  Tensor nonzero(std::optional<int64_t> size = {}, const Tensor& fill = 0) const;
  /// (..., classes) of integers (...): 1 at the class, all 0 of computed numbers that are no class; default int.
  /// Throws DTypeError for others than integers, ValueError for negative classes, IndexError as an index does.
  Tensor one_hot(int64_t classes) const;

  /// f_n(... f_2(f_1(x))).
  Tensor sequential(const std::vector<std::function<Tensor(const Tensor&)>>& functions) const;

  // ---- graph edges ----
  /// Where the graph is cut, stored or moved to: detach() stops gradients, to() copies to a device (nothing where it is
  /// there) or converts to a dtype. Shapes and types: the operand's. Throws DeviceError for a device that cannot be
  /// opened.
  Tensor detach() const;
  Tensor contiguous() const;  ///< the value row-major in storage; the tensor itself when it lies in storage like that
  Tensor contiguous_backward() const;  ///< itself; its gradient is made contiguous
  Tensor to(const std::string& device) const;
  template <std::same_as<DType> D> Tensor to(D dtype) const { return cast(dtype); }
  const Tensor& to_(const std::string& device) const;  ///< moves this handle, and its gradient
  /// Distributes over several devices (multi.cpp): the whole tensor on each, or with `axis` a slice on each.
  /// DeviceError when it is on several already; ShapeError when the slices would not be equal. See docs/multi.md.
  Tensor shard(const std::vector<std::string>& devices, std::optional<int> axis = {}) const;
  const Tensor& shard_(const std::vector<std::string>& devices,
                       std::optional<int> axis = {}) const;  ///< moves this handle
  Tensor shard_like(const Tensor& other) const;              ///< on the devices of `other`, along its axis
  /// Distributes over the processes of a mesh: spec[i] names the axis of the mesh along which axis i has slices, "" for
  /// none; without any each process has the whole tensor. All processes have the same tensor before, or a tensor on
  /// several processes, whose slices move. ShapeError when slices would not be equal. See docs/distributed.md.
  Tensor shard(const Mesh& mesh, const std::vector<std::string>& spec) const;
  const Tensor& shard_(const Mesh& mesh, const std::vector<std::string>& spec) const;  ///< moves this handle
  Tensor replicate(const Mesh& mesh) const { return shard(mesh, {}); }                 ///< the whole tensor on each
  /// Makes a tensor of slices that processes have, all of one shape, else ShapeError; without `spec` they are the same.
  static Tensor from_local(const Tensor& part, const Mesh& mesh, const std::vector<std::string>& spec);
  Tensor to_local() const;  ///< what this process has of a tensor on several, else the tensor
  Tensor clone(const std::string& device = {}) const;  ///< a copy in storage of its own, with a copy of the gradient

  // ---- effects (realize.cpp, assign.cpp) ----
  // Shapes and types: the operand's. Errors: what compiling and running throw: CompileError, DeviceError,
  // OutOfMemoryError, Cancelled; JitError for what a captured function cannot do.
  /// Computes the value into storage. ValueError for an expression of a tensor that was overwritten since.
  Tensor realize() const;
  /// The kernels `realize` would run.
  BoundSchedule schedule() const;
  /// Says in text how `realize` would compute this value: what is stored and why, each kernel with its plan, the cost
  /// model's account and its measured time (the kernels run on memory of their own); `source`: with source and machine
  /// code. inspect (tensor/inspect_tensors.h) returns the same as data.
  std::string explain(bool source = false) const;
  /// Writes `value` (broadcast) into this tensor's storage; every tensor that views the storage sees it, pending
  /// expressions built before read the old value. A tensor without storage takes the new value's expression.
  /// ShapeError, DTypeError, DeviceError when it does not fit; ValueError for a view whose elements share places; Error
  /// for a view of a file that is not in one piece.
  const Tensor& assign(const Tensor& value) const;
  /// Points this handle to another expression of the same shape. ShapeError for another one.
  const Tensor& replace(const Tensor& value) const;
  bool is_realized() const;
  /// x += v: writes x + v into x's storage; updates by several threads all count.
#define TG_UPDATE(sym, method)                \
  Tensor& operator sym##=(const Tensor & o) { \
    GraphScope scope;                         \
    assign(method(o));                        \
    return *this;                             \
  }
  TG_FOR_EACH_OPERATOR(TG_UPDATE)
#undef TG_UPDATE

  // ---- values ----
  /// The value of a tensor with one element. DTypeError when T cannot hold such values, ValueError if it does not fit.
  template <Arithmetic T> T item() const;
  /// All elements, row-major, in host memory that lives until this tensor is assigned to, replaced, moved or dies; see
  /// host_bytes (tensor/host_memory.h). T: the dtype's own C++ type (uint16_t: half, bfloat16), else DTypeError.
  template <class T> std::span<const T> data() const {
    std::span<const std::byte> b =
        data_bytes(sizeof(T), std::is_same_v<T, bool>, std::is_floating_point_v<T>, std::is_signed_v<T>);
    return {reinterpret_cast<const T*>(b.data()), b.size() / sizeof(T)};
  }
  /// The address of data<T>(). The memory is read only: kernels that are running or cached values would not see a
  /// write. from_blob shares memory.
  template <class T> const T* data_ptr() const { return data<T>().data(); }
  /// All elements, row-major, converted as `item` does.
  template <Arithmetic T> std::vector<T> to_vector() const;
  std::span<const std::byte> bytes() const;

  // ---- gradients (gradient.cpp) ----
  /// d(sum of this * seed)/d(target) for each target, lazily, of the target's shape and type. `seed` is needed unless
  /// this is a scalar. GradientError for targets that are not floats, or that this was not computed from; ShapeError
  /// for a seed of another shape.
  Tensors gradient(const Tensors& targets, const Tensor& seed = {}) const;
  /// Adds gradients to `.grad()` of the tensors this one depends on: if some were requested by requires_grad_(), to
  /// those and to parameters; else to every live float tensor not excluded by requires_grad_(false). GradientError and
  /// ShapeError as gradient().
  const Tensor& backward(const Tensor& seed = {}) const;
  /// The gradient (undefined when there is none), of this tensor's shape and type: GradientError when it was
  /// dropped, ShapeError for a gradient of another shape, DTypeError to ask for one of integers.
  Tensor grad() const;
  void set_grad(const Tensor& g) const;
  void zero_grad() const;
  std::optional<bool> requires_grad() const;
  const Tensor& requires_grad_(bool on = true) const;
  /// Whether optimizers train this tensor: true unless is_param_(false) or requires_grad_(false) said otherwise.
  bool is_param() const;
  /// Marks the tensor as owned by a layer: trained (its gradients survive realize), or a statistic that gets no
  /// gradient.
  const Tensor& is_param_(bool on = true) const;

  // ---- calls (function.cpp; more in function.h) ----
  /// The stand-in for this tensor in the body of `call`, of its shape and type: parameter number `slot`. IndexError for
  /// a negative one.
  Tensor as_param(int64_t slot) const;
  /// The body with its parameters replaced by the arguments: shape and type of the body. ShapeError when one does not
  /// fit, IndexError when the body has a parameter without an argument.
  static Tensor call(const Tensors& args, const Tensor& body);

  /// The shared state behind the handle, for the library.
  Impl* impl() const { return impl_.get(); }
  explicit Tensor(std::shared_ptr<Impl> i) : impl_(std::move(i)) {}

 private:
  std::span<const std::byte> data_bytes(size_t size, bool is_bool, bool is_float, bool is_signed) const;
  ConstValue item_value(bool integer) const;
  std::vector<double> to_doubles() const;
  std::vector<int128> to_ints() const;
  static void check_fits(int128 v, int128 lo, int128 hi);
  static void check_count(size_t values, const Shape& shape);

  std::shared_ptr<Impl> impl_;
};

struct Tensor::Svd {
  Tensor u, s, vt;
};

/// How attention is computed.
struct Tensor::Attention {
  Tensor mask = {};  ///< bool (true: keep) or floats added to the scores, broadcast to (..., n, m); may be undefined
  double dropout_p = 0;     ///< part of the probabilities that become 0 in training
  bool is_causal = false;   ///< query i sees keys 0 to i alone
  bool enable_gqa = false;  ///< each head of key and value (axis -3) serves several heads of the query
};
template <std::convertible_to<Tensor> M>
Tensor Tensor::scaled_dot_product_attention(const Tensor& key, const Tensor& value, const M& mask, double dropout_p,
                                            bool is_causal, bool enable_gqa) const {
  return scaled_dot_product_attention(key, value, Attention{mask, dropout_p, is_causal, enable_gqa});
}

/// One entry of an index expression: an integer (may be symbolic), a slice, None, Ellipsis, a tensor or a list of
/// integers or bools.
struct Index {
  enum Kind : uint8_t { kInt, kSlice, kNone, kEllipsis, kTensor } kind;
  Slice slice;        ///< its start: the integer of kInt
  Tensor tensor;      ///< of integers or bools
  bool list = false;  ///< made of literals: goes to the device of what it indexes
  template <std::integral T> Index(T i) : kind(kInt), slice(i, None) {}
  template <std::convertible_to<SInt> T>
    requires(!std::integral<T>)
  Index(const T& i) : kind(kInt), slice(i, None) {}
  Index(const Slice& s) : kind(kSlice), slice(s) {}
  Index(NoneType) : kind(kNone) {}
  Index(EllipsisType) : kind(kEllipsis) {}
  Index(const Tensor& t) : kind(kTensor), tensor(t) {}
  Index(std::initializer_list<Literal> l) : kind(kTensor), tensor(l), list(true) {}
  template <std::integral T> Index(const std::vector<T>& v) : kind(kTensor), tensor(Tensor::from(v)), list(true) {}
};
template <class... I> Tensor Tensor::operator()(I&&... i) const {
  return index(std::vector<Index>{Index(std::forward<I>(i))...});
}

/// Elements of a tensor that can be written to. Reads as `tensor.index(...)`.
class TensorItem {
 public:
  TensorItem(const TensorItem&) = default;
  operator Tensor() const { return tensor_.index(at_); }
  const TensorItem& operator=(const Tensor& value) const {
    tensor_.setitem(at_, value);
    return *this;
  }
  const TensorItem& operator=(const TensorItem& o) { return *this = Tensor(o); }
#define TG_UPDATE(sym, method)                                    \
  const TensorItem& operator sym##=(const Tensor & value) const { \
    GraphScope scope;                                             \
    return *this = Tensor(*this).method(value);                   \
  }
  TG_FOR_EACH_OPERATOR(TG_UPDATE)
#undef TG_UPDATE

 private:
  friend class Tensor;
  struct Key {};
  TensorItem(Key, Tensor t, std::vector<Index> at) : tensor_(std::move(t)), at_(std::move(at)) {}
  Tensor tensor_;
  std::vector<Index> at_;
};
template <class... I> TensorItem Tensor::at(I&&... i) const {
  return TensorItem(TensorItem::Key{}, *this, std::vector<Index>{Index(std::forward<I>(i))...});
}

/// Operators are the methods of the same meaning, with their shapes, types and errors: +, -, *, / (true division), %
/// (floor modulo), bitwise, comparisons.
#define TG_BINARY(sym, method) \
  inline Tensor operator sym(const Tensor& a, const Tensor& b) { return a.method(b); }
TG_FOR_EACH_OPERATOR(TG_BINARY)
TG_BINARY(<, lt)
TG_BINARY(>, gt)
TG_BINARY(<=, le)
TG_BINARY(>=, ge)
TG_BINARY(==, eq)
TG_BINARY(!=, ne)
#undef TG_BINARY
#undef TG_FOR_EACH_OPERATOR
#undef TG_BY_SIZES
/// Functions of each element: shape and type of the operand, bool for !.
inline Tensor operator-(const Tensor& a) { return a.neg(); }
inline Tensor operator~(const Tensor& a) { return a.bitwise_not(); }
inline Tensor operator!(const Tensor& a) { return a.logical_not(); }

/// Computes several tensors in one schedule.
void realize(const Tensors& tensors);
template <class... R> void realize(const Tensor& first, const R&... rest) { realize(Tensors{first, rest...}); }
/// The schedule `realize` would run.
BoundSchedule schedule(const Tensors& tensors);

/// Prints shape, type and device, and the expression that is pending; `print` shows values.
std::string repr(const Tensor& t);
/// Prints the values (computing them) as NumPy does.
std::ostream& operator<<(std::ostream& os, const Tensor& t);

template <Arithmetic T> T Tensor::item() const {
  constexpr bool integer = !std::is_floating_point_v<T>;
  ConstValue v = item_value(integer);
  if constexpr (!integer) return static_cast<T>(v.as_double());
  else if constexpr (std::is_same_v<T, bool>) return v.i != 0;
  else {
    check_fits(v.i, int_min(dtype_of_v<T>), int_max(dtype_of_v<T>));
    return static_cast<T>(v.i);
  }
}
template <Arithmetic T> std::vector<T> Tensor::to_vector() const {
  if constexpr (std::is_floating_point_v<T>) {
    std::vector<double> v = to_doubles();
    return std::vector<T>(v.begin(), v.end());
  } else {
    std::vector<T> out;
    for (int128 v : to_ints()) {
      if constexpr (!std::is_same_v<T, bool>) check_fits(v, int_min(dtype_of_v<T>), int_max(dtype_of_v<T>));
      out.push_back(static_cast<T>(v));
    }
    return out;
  }
}

}  // namespace tg
