/// \file Derived facts of nodes: shape, integer bounds, open ranges, device. Each is one exhaustive rule per op,
/// cached, computed without recursion.
#pragma once
#include <concepts>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/uop/mesh.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// A dimension: an integer, or a symbolic expression (weakint UOp) with bounds.
class SInt {
 public:
  SInt() = default;
  /// A number of any integer type; ShapeError beyond 2^63 - 1.
  template <std::integral I> SInt(I v) : v_(static_cast<int64_t>(v)) {
    if constexpr (std::unsigned_integral<I> && sizeof(I) >= sizeof v_)
      if (v > static_cast<I>(INT64_MAX)) [[unlikely]]
        refuse_large(v);
  }
  /// A weakint CONST becomes its value.
  SInt(UOp u) {
    if (u.is_const()) v_ = static_cast<int64_t>(u.const_int());
    else sym_ = u;
  }
  bool symbolic() const { return bool(sym_); }
  int64_t value() const {
    if (sym_) [[unlikely]]
      refuse_symbolic();
    return v_;
  }
  operator int64_t() const { return value(); }
  UOp uop() const { return sym_ ? sym_ : UOp::constant(v_); }
  int64_t max() const;  ///< the value, or the maximum of the expression
  bool operator==(const SInt& o) const { return sym_ == o.sym_ && v_ == o.v_; }
  template <std::integral I> bool operator==(I o) const { return !sym_ && v_ == SInt(o).v_; }

 private:
  [[noreturn]] void refuse_symbolic() const;
  [[noreturn]] static void refuse_large(uint64_t v);
  UOp sym_;
  int64_t v_ = 0;
};
/// A symbolic size as algebra over its variables: i * 2 + 1; a bound variable with its value: i=3.
std::ostream& operator<<(std::ostream&, const SInt&);

/// Sizes, outermost first. Prints like a tuple: (2, 3).
class Shape : public std::vector<SInt> {
 public:
  using std::vector<SInt>::vector;
  template <std::integral I>  // a list that mixes numbers and symbolic sizes is one of SInt
  Shape(std::initializer_list<I> v) : std::vector<SInt>(v.begin(), v.end()) {}
  explicit Shape(std::span<const int64_t> v) : std::vector<SInt>(v.begin(), v.end()) {}
  /// The size of one axis; IndexError when there is no such axis.
  SInt& operator[](size_t axis) {
    if (axis >= size()) [[unlikely]]
      no_axis(axis);
    return data()[axis];
  }
  const SInt& operator[](size_t axis) const {
    if (axis >= size()) [[unlikely]]
      no_axis(axis);
    return data()[axis];
  }
  bool symbolic() const {
    for (const SInt& s : *this)
      if (s.symbolic()) return true;
    return false;
  }
  /// Product of the sizes; ShapeError when symbolic or beyond 2^62.
  int64_t numel() const;
  std::vector<int64_t> ints() const { return {begin(), end()}; }
  UOp stack() const;  ///< as the shape operand of movement ops

 private:
  [[noreturn]] void no_axis(size_t axis) const;
};
/// Prints (2, 3), symbolic sizes as expressions.
std::ostream& operator<<(std::ostream&, const Shape&);

/// Inclusive integer bounds; kUnbounded on either side means "no bound known".
struct Bounds {
  int128 lo, hi;
  bool operator==(const Bounds&) const = default;
  bool is_const() const { return lo == hi; }
};
inline constexpr int128 kUnbounded = static_cast<int128>(1) << 126;
constexpr int128 clamp_bound(int128 v) { return v > kUnbounded ? kUnbounded : v < -kUnbounded ? -kUnbounded : v; }
/// Sum of two bounds; a bound that is not known stays unknown.
constexpr int128 saturating_add(int128 a, int128 b) {
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  if (a == -kUnbounded || b == -kUnbounded) return -kUnbounded;
  return clamp_bound(a + b);
}
constexpr int128 saturating_mul(int128 a, int128 b) {
  int128 r{};
  if (__builtin_mul_overflow(a, b, &r)) return (a < 0) != (b < 0) ? -kUnbounded : kUnbounded;
  return clamp_bound(r);
}
constexpr Bounds add_bounds(Bounds a, Bounds b) { return {saturating_add(a.lo, b.lo), saturating_add(a.hi, b.hi)}; }

/// A counted value of one graph: as facts are made under the graph's lock, the count needs no atomics.
template <class T> class Shared {
 public:
  Shared() = default;
  explicit Shared(T v) : box_(new Box{std::move(v), 1}) {}
  Shared(const Shared& o) : box_(o.box_) {
    if (box_) box_->refs++;
  }
  Shared(Shared&& o) noexcept : box_(std::exchange(o.box_, nullptr)) {}
  Shared& operator=(Shared o) noexcept {
    std::swap(box_, o.box_);
    return *this;
  }
  ~Shared() {
    if (box_ && --box_->refs == 0) delete box_;
  }
  explicit operator bool() const { return box_ != nullptr; }
  const T& operator*() const { return box_->value; }
  const T* operator->() const { return &box_->value; }
  bool operator==(const Shared& o) const { return box_ == o.box_; }

 private:
  struct Box {
    T value;
    uint32_t refs;
  };
  Box* box_ = nullptr;
};

/// Facts that a graph caches per node (id-indexed); bounds are stored separately, as only integers have any.
struct Facts {
  Shared<Shape> shape;
  Shared<UOps> ranges;  ///< empty sets are `no_ranges`
  const std::string* device = nullptr;
  bool no_ranges = false;
  static constexpr int kAxesUnknown = -2;
  ShardAxes axes = kAxesUnknown;  ///< see shard_axes
};

/// Returns the shape of a value. Elementwise ops broadcast like NumPy. ShapeError with both shapes when the sources do
/// not fit, IndexError for a value that a FUNCTION does not have.
const Shape& shape_of(UOp u);
/// Returns the bounds of an integer or bool value; the range of its type when nothing better is known.
Bounds bounds_of(UOp u);
inline int128 vmin(UOp u) { return bounds_of(u).lo; }
inline int128 vmax(UOp u) { return bounds_of(u).hi; }
/// Returns the loops that enclose a value: RANGEs (not SPECIALs) that it depends on and that are not ended, sorted by
/// AxisType, then id.
const UOps& ranges_of(UOp u);
/// True when `range` is one of them.
bool depends_on(UOp u, UOp range);
/// Returns the name of the device that holds the value; "" for constants and pure arithmetic on them. DeviceError when
/// sources disagree, IndexError for a value that a FUNCTION does not have.
const std::string& device_of(UOp u);
/// Returns the lanes of a value: the size of the VECTOR range it depends on, 1 without one.
int lanes_of(UOp u);

/// Returns the index of the first source that names a range the op ends (STAGE, REDUCE, END: 1; ...); nsrc when it ends
/// no range.
uint32_t range_start(UOp u);
/// Broadcast of several shapes, NumPy's rule. `op` names the caller in the ShapeError for shapes that do not fit.
Shape broadcast_shapes(std::span<const Shape* const> shapes, const char* op);
/// Returns the dimensions of a shape operand (STACK of integers).
Shape dims_of(UOp stack);
/// Returns the value a GETTUPLE names, as the body of the FUNCTION has it.
UOp tuple_element(UOp u);
/// Returns the storage behind a view: strips movement ops, AFTER, CONTIGUOUS, DETACH and BITCASTs of the same width.
UOp base_of(UOp u);
/// True for a BUFFER or PARAM, possibly under RESHAPE, or one on each of several devices: storage a tensor can own and
/// assign to.
bool has_buffer_identity(UOp u);

}  // namespace tg
