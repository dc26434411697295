/// \file Arguments of Tensor methods: scalars, nested literals, axes, slices and the option structs for designated
/// initializers.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

/// Arguments (2, 3, dtypes::int32): integers and then a type.
template <class... A>
concept SizesAndType = sizeof...(A) >= 2 && (static_cast<size_t>(std::integral<A>) + ... + 0) == sizeof...(A) - 1 &&
                       std::same_as<std::tuple_element_t<sizeof...(A) - 1, std::tuple<A...>>, DType>;
/// The integers among such arguments.
template <class... A> Shape sizes_of(const A&... a) {
  Shape s;
  auto add = [&](const auto& v) {
    if constexpr (std::integral<std::decay_t<decltype(v)>>) s.push_back(static_cast<int64_t>(v));
  };
  (add(a), ...);
  return s;
}

/// Calls X(operator, method) for the operators that also update: a + b, a += b.
// clang-format off
#define TG_FOR_EACH_OPERATOR(X) \
  X(+, add) X(-, sub) X(*, mul) X(/, div) X(%, mod) X(&, bitwise_and) X(|, bitwise_or) X(^, bitwise_xor) \
  X(<<, lshift) X(>>, rshift)
// clang-format on

/// Declares the forms of a creating function that take sizes as arguments, see Tensor::zeros.
#define TG_BY_SIZES(name)                                                                                              \
  template <std::integral... I> static Tensor name(I... sizes) { return name(Shape{static_cast<int64_t>(sizes)...}); } \
  template <std::integral A> static Tensor name(A a, const TensorOptions& o) { return name(sizes_of(a), o); }          \
  template <std::integral A, std::integral B> static Tensor name(A a, B b, const TensorOptions& o) {                   \
    return name(sizes_of(a, b), o);                                                                                    \
  }                                                                                                                    \
  template <std::integral A, std::integral B, std::integral C>                                                         \
  static Tensor name(A a, B b, C c, const TensorOptions& o) {                                                          \
    return name(sizes_of(a, b, c), o);                                                                                 \
  }                                                                                                                    \
  template <std::integral A, std::integral B, std::integral C, std::integral D>                                        \
  static Tensor name(A a, B b, C c, D d, const TensorOptions& o) {                                                     \
    return name(sizes_of(a, b, c, d), o);                                                                              \
  }                                                                                                                    \
  template <std::same_as<DType> D> static Tensor name(const Shape& shape, D dtype) {                                   \
    return name(shape, TensorOptions{.dtype = dtype});                                                                 \
  }                                                                                                                    \
  template <class... A>                                                                                                \
    requires SizesAndType<A...>                                                                                        \
  static Tensor name(A... a) {                                                                                         \
    return name(sizes_of(a...), TensorOptions{.dtype = std::get<DType>(std::tuple(a...))});                            \
  }

/// A value with the type a literal has: bool, weakint or weakfloat.
struct Scalar {
  ConstValue value;
  DType dtype = dtypes::weakint;
  Scalar() = default;
  template <Arithmetic T> Scalar(T v) {
    if constexpr (std::is_same_v<T, bool>) {
      value = ConstValue(v);
      dtype = dtypes::bool_;
    } else if constexpr (std::is_floating_point_v<T>) {
      value = ConstValue(static_cast<double>(v));
      dtype = dtypes::weakfloat;
    } else if constexpr (std::is_signed_v<T>) value = ConstValue(static_cast<int64_t>(v));
    else value = ConstValue(static_cast<uint64_t>(v));
  }
};

/// A value or a list of literals: `{{1, 2}, {3, 4}}`. All lists of one level must have the same length.
struct Literal {
  bool is_list = false;
  Scalar scalar;
  std::vector<Literal> list;
  template <Arithmetic T> Literal(T v) : scalar(v) {}
  Literal(std::initializer_list<Literal> l) : is_list(true), list(l) {}
};

/// One integer or a list: strides, paddings, sizes of kernels.
struct Ints : std::vector<int64_t> {
  Ints() = default;
  template <std::integral T> Ints(T v) : std::vector<int64_t>{static_cast<int64_t>(v)}, each(true) {}
  Ints(std::initializer_list<int64_t> l) : std::vector<int64_t>(l) {}
  Ints(std::vector<int64_t> v) : std::vector<int64_t>(std::move(v)) {}
  bool each = false;  ///< a plain number, for every axis there is; a list of one is for one axis
};

/// Axes to work on; all of them by default. Negative ones count from the end.
struct Axes {
  bool all = true;
  std::vector<int> list;
  Axes() = default;
  template <std::integral T> Axes(T axis) : all(false), list{static_cast<int>(axis)} {}
  Axes(std::initializer_list<int> l) : all(false), list(l) {}
  Axes(std::vector<int> l) : all(false), list(std::move(l)) {}
};

/// How a new tensor is made. Without dtype it follows from the data; without device it is the default device.
struct TensorOptions {
  std::optional<DType> dtype = {};
  std::string device = {};
  std::optional<bool> requires_grad = {};
};

struct ReduceOptions {
  Axes axis = {};
  bool keepdim = false;
  std::optional<DType> dtype = {};  ///< of the result, and of the accumulator; sum and prod only
};
struct VarOptions {
  Axes axis = {};
  bool keepdim = false;
  double correction = 1;  ///< divides by n - correction, or by 0 where that is less
};
struct ArgOptions {
  std::optional<int> axis = {};  ///< none: the flattened tensor
  bool keepdim = false;
};
struct ConvOptions {
  int64_t groups = 1;
  Ints stride = 1, dilation = 1;
  Ints padding = 0;  ///< one number, one for each spatial axis, or {left, right, top, bottom, ...} (last axis first);
                     ///< negative ones crop
  std::optional<DType> dtype = {};  ///< of the result, and of the accumulator
};
struct ConvTransposeOptions {
  int64_t groups = 1;
  Ints stride = 1, dilation = 1, padding = 0, output_padding = 0;
};
struct PoolOptions {
  Ints kernel_size = {2, 2};  ///< a plain number: both of the last two axes; a list: as many axes as it is long
  Ints stride = {};           ///< none: the kernel size
  Ints dilation = 1, padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< average only
};
enum class Interpolation : uint8_t { kLinear, kNearest, kNearestExact };
enum class Rounding : uint8_t { kNone, kTrunc, kFloor };
enum class ScatterReduce : uint8_t { kSum, kProd, kMean, kMax, kMin };
/// How the losses of the individual elements are combined.
enum class Reduction : uint8_t { kMean, kSum, kNone };
struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0;
  std::optional<int64_t> ignore_index = {};  ///< labels that count for nothing
};
/// `value` takes part in type promotion: a tensor of integers padded with 0.5 is weakfloat.
struct PadOptions {
  Scalar value = 0;
  enum Mode : uint8_t { kConstant, kReflect, kReplicate, kCircular } mode = kConstant;
};
struct UniformOptions {
  double low = 0, high = 1;
  std::optional<DType> dtype = {};
  std::string device = {};
  std::optional<bool> requires_grad = {};
};
struct NormalOptions {
  double mean = 0, std = 1;
  std::optional<DType> dtype = {};
  std::string device = {};
  std::optional<bool> requires_grad = {};
};
struct RandintOptions {
  int64_t low = 0, high = 10;
  DType dtype = dtypes::int32;
  std::string device = {};
};

/// In a slice: no bound. In an index: a new axis of size 1.
struct NoneType {};
inline constexpr NoneType None{};
/// In an index: as many full slices as there are axes left.
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis{};

/// Python's slice: `Slice(1, 3)`, `Slice(None, None, -1)`, `Slice()` for a whole axis. Bounds may be symbolic:
/// `Slice(pos, pos + 1)`.
struct Slice {
  struct Bound {
    /// None, a number or a symbolic size.
    std::optional<SInt> value;
    UOpRef keep;  ///< a symbolic bound lives as long as the slice
    Bound() = default;
    Bound(NoneType) {}
    template <std::integral T> Bound(T v) : value(static_cast<int64_t>(v)) {}
    template <std::convertible_to<SInt> T>
      requires(!std::integral<T>)
    Bound(const T& v) : value(v) {
      if (value->symbolic()) keep = UOpRef(value->uop());
    }
  };
  Bound start, stop;
  std::optional<int64_t> step;
  Slice() = default;
  Slice(Bound end) : stop(std::move(end)) {}
  Slice(Bound begin, Bound end, std::optional<int64_t> stride = {})
      : start(std::move(begin)), stop(std::move(end)), step(stride) {}
  Slice(Bound begin, Bound end, NoneType) : start(std::move(begin)), stop(std::move(end)) {}
};

}  // namespace tg
