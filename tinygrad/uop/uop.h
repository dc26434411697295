/// \file The one node type of the IR. A UOp is (op, dtype, sources, argument, tag), immutable and hash-consed within
/// its graph: structural equality is pointer equality. A UOp handle is a bare pointer and owns nothing; see graph.h for
/// who does.
#pragma once
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/uop/arg.h"
#include "tinygrad/uop/ops.h"

namespace tg {

class UOp;
using UOps = std::vector<UOp>;

/// 64-byte header followed by `nsrc` sources. Only Graph makes and frees them.
struct Node;

/// A literal, the value of a CONST. Integers and bools as 128-bit, floats as double, or Invalid (a poisoned index).
struct ConstValue {
  enum Kind : uint8_t { kInt, kFloat, kInvalid } kind = kInt;
  int128 i = 0;
  double f = 0;
  ConstValue() = default;
  ConstValue(int v) : kind(kInt), i(v) {}
  ConstValue(bool v) : kind(kInt), i(v) {}
  ConstValue(int64_t v) : kind(kInt), i(v) {}
  ConstValue(uint64_t v) : kind(kInt), i(v) {}
  ConstValue(int128 v) : kind(kInt), i(v) {}
  ConstValue(float v) : kind(kFloat), f(v) {}
  ConstValue(double v) : kind(kFloat), f(v) {}
  static ConstValue invalid() {
    ConstValue c;
    c.kind = kInvalid;
    return c;
  }
  bool is_int() const { return kind == kInt; }
  double as_double() const { return kind == kFloat ? f : static_cast<double>(i); }
};

/// Handle of a node. Cheap to copy and compare; valid as long as its graph keeps the node (see GraphScope, Arena,
/// UOpRef). The empty handle `UOp()` is a null pointer: it may be compared, tested and asked is() and in(), nothing
/// else.
class UOp {
 public:
  constexpr UOp() = default;
  constexpr explicit UOp(const Node* n) : n_(n) {}
  constexpr explicit operator bool() const { return n_ != nullptr; }
  constexpr bool operator==(const UOp&) const = default;
  constexpr const Node* node() const { return n_; }

  /// Parts of the node, as they were given to make().
  inline Ops op() const;
  inline DType dtype() const;
  inline uint32_t nsrc() const;
  inline UOp src(size_t i) const;
  inline std::span<const UOp> srcs() const;
  inline ArgKind arg_kind() const;
  Arg arg() const;
  inline uint64_t tag() const;  ///< 0: none
  inline uint32_t id() const;   ///< dense within the graph; for side tables, never for order
  /// Merkle hash of (op, dtype, arg, sources' keys): the content identity, equal in every run. The tag is not part of
  /// it.
  inline const Hash128& key() const;
  inline OpSet src_ops() const;  ///< ops of the direct sources
  /// The typed argument, e.g. `u.arg<RangeArg>().type`; InternalError when it is of another kind.
  template <class T> const T& arg() const;
  inline bool is(Ops op) const { return n_ && this->op() == op; }
  inline bool in(OpSet s) const { return n_ && s.has(op()); }

  // ---- literals ----
  /// Says whether it is a literal.
  inline bool is_const() const { return is(Ops::CONST); }
  bool is_const_int(int128 v) const;  ///< a CONST of integer or bool type with this value
  bool is_invalid() const;            ///< the Invalid literal
  ConstValue const_value() const;     ///< of a CONST
  int128 const_int() const;           ///< of an integer or bool CONST
  double const_float() const;         ///< of any numeric CONST
  inline int64_t int_arg() const;     ///< the argument of nodes that carry an integer (GETTUPLE, UNSHARD, CALL, ...)

  // ---- building: nodes go into the thread's current graph ----
  /// Builds a node, or returns the one that equals it; the rules of uop/fold.cpp apply as it is built.
  static UOp make(Ops op, DType dtype, std::span<const UOp> src, const Arg& arg = {}, uint64_t tag = 0);
  static UOp make(Ops op, DType dtype, std::initializer_list<UOp> src, const Arg& arg = {}, uint64_t tag = 0) {
    return make(op, dtype, std::span<const UOp>(src.begin(), src.size()), arg, tag);
  }
  /// Makes a CONST of type `d`; the value is rounded or wrapped to that type.
  static UOp constant(ConstValue v, DType d);
  static UOp constant(int64_t v) { return constant(ConstValue(v), dtypes::weakint); }  ///< weakint
  static UOp constant(bool v) { return constant(ConstValue(v), dtypes::bool_); }
  static UOp invalid();                                                ///< Invalid, of bool type
  UOp const_like(ConstValue v) const { return constant(v, dtype()); }  ///< scalar CONST of this node's type
  /// An ALU node; its dtype follows from op and sources (comparison -> bool, WHERE -> branches). A weak literal operand
  /// takes the type of the other operands. InternalError when operand types differ otherwise.
  static UOp alu(Ops op, std::span<const UOp> src);
  static UOp alu(Ops op, std::initializer_list<UOp> src) {
    return alu(op, std::span<const UOp>(src.begin(), src.size()));
  }
  UOp cast(DType d) const;  ///< this node when it already has type d
  UOp bitcast(DType d) const;
  static UOp range(UOp end, RangeArg arg, DType d = dtypes::weakint);
  static UOp range(int64_t end, int32_t id, AxisType type = AxisType::kLoop);
  /// A variable with bounds, both included. ValueError for an empty range.
  static UOp variable(std::string name, int64_t vmin, int64_t vmax, DType d = dtypes::weakint);
  static UOp stack(std::span<const UOp> src);
  static UOp shape_stack(
      std::span<const int64_t> dims);  ///< STACK of weakint CONSTs: the shape operand of movement ops, BUFFER, PARAM
  static UOp sink(std::span<const UOp> src, const Arg& arg = {}) { return make(Ops::SINK, dtypes::void_, src, arg); }
  UOp index(std::initializer_list<UOp> idx) const;
  UOp load() const { return make(Ops::LOAD, dtype(), {*this}); }
  UOp load(UOp alt, UOp gate) const { return make(Ops::LOAD, dtype(), {*this, alt, gate}); }
  UOp store(UOp value) const { return make(Ops::STORE, dtypes::void_, {*this, value}); }
  UOp after(std::initializer_list<UOp> deps) const;
  UOp end(std::span<const UOp> ranges) const;
  UOp reduce(Ops op, std::span<const UOp> ranges) const;  ///< kernel form
  UOp where(UOp t, UOp f) const { return alu(Ops::WHERE, {*this, t, f}); }
  UOp valid(UOp gate) const;  ///< WHERE(gate, this, Invalid); this when the gate is true
  UOp logical_not() const;
  UOp ne(UOp o) const { return alu(Ops::CMPNE, {*this, o}); }
  UOp eq(UOp o) const { return ne(o).logical_not(); }
  UOp lt(UOp o) const { return alu(Ops::CMPLT, {*this, o}); }
  UOp ge(UOp o) const { return lt(o).logical_not(); }
  UOp maximum(UOp o) const { return alu(Ops::MAX, {*this, o}); }
  UOp minimum(UOp o) const;  ///< -max(-x, -y); integers: ~max(~x, ~y)
  UOp neg() const;           ///< x * -1; bool: not

  /// The same node with some parts changed; the tag stays.
  UOp with_srcs(std::span<const UOp> src) const;
  UOp with_arg(const Arg& arg) const;
  UOp with_dtype(DType d) const;
  UOp rtag(uint64_t tag) const;  ///< the same node with another tag (0: none)

  // ---- walking (never recursive) ----
  /// All nodes this one depends on, itself last, each once, sources before users; order is deterministic.
  UOps toposort() const;
  /// Replaces every occurrence of the left nodes by the right ones; replacements are not searched again.
  UOp substitute(std::span<const std::pair<UOp, UOp>> map) const;
  UOp substitute(std::initializer_list<std::pair<UOp, UOp>> map) const {
    return substitute(std::span<const std::pair<UOp, UOp>>(map.begin(), map.size()));
  }
  /// Unbound and bound variables this node depends on, sorted by name.
  UOps variables() const;
  bool depends_on(UOp other) const;

 private:
  const Node* n_ = nullptr;
};

struct Node {
  /// Parts of a node; the sources lie behind it.
  Ops op;
  DType dtype;
  ArgKind arg_kind;
  mutable uint8_t flags;
  uint32_t nsrc;
  uint32_t id;
  mutable std::atomic<uint32_t> refs;
  Hash128 hash;
  OpSet src_ops;
  uint64_t arg_bits;
  uint64_t tag;
  const UOp* src_begin() const { return reinterpret_cast<const UOp*>(this + 1); }

  enum Flag : uint8_t {
    kInZeroList = 1,  ///< waiting for the end of the scope that may free it
    kForwarded = 2,   ///< its value has been computed into a buffer
    kNeedsGrad = 4,   ///< depends on a tensor the user asked gradients for
    kCalls = 8,       ///< is a FUNCTION or depends on one
    kMulti = 64,      ///< has several devices or depends on a node that does
    kWatched = 128,   ///< new users are counted (user_table.h)
  };
};
static_assert(sizeof(Node) == 64);

inline Ops UOp::op() const { return n_->op; }
inline DType UOp::dtype() const { return n_->dtype; }
inline uint32_t UOp::nsrc() const { return n_->nsrc; }
inline UOp UOp::src(size_t i) const { return n_->src_begin()[i]; }
inline std::span<const UOp> UOp::srcs() const { return {n_->src_begin(), n_->nsrc}; }
inline ArgKind UOp::arg_kind() const { return n_->arg_kind; }
inline uint64_t UOp::tag() const { return n_->tag; }
inline uint32_t UOp::id() const { return n_->id; }
inline const Hash128& UOp::key() const { return n_->hash; }
inline int64_t UOp::int_arg() const { return static_cast<int64_t>(n_->arg_bits); }
inline OpSet UOp::src_ops() const { return n_->src_ops; }
template <class T> const T& UOp::arg() const { return Arg::view<T>(n_->arg_kind, n_->arg_bits); }

/// Structural order: by op, then by key, then by tag. The same in every run.
inline bool structural_less(UOp a, UOp b) {
  if (a.op() != b.op()) return a.op() < b.op();
  if (a.key() != b.key()) return a.key() < b.key();
  return a.tag() < b.tag();
}

/// Operators build index and kernel arithmetic; literals take the other operand's type.
UOp operator+(UOp a, UOp b);
UOp operator-(UOp a, UOp b);  ///< a + b * -1
UOp operator*(UOp a, UOp b);
UOp operator/(UOp a, UOp b);  ///< integers: floor division; floats: a * (1 / b)
UOp operator%(UOp a, UOp b);  ///< floor modulo
UOp operator&(UOp a, UOp b);
UOp operator|(UOp a, UOp b);
UOp operator^(UOp a, UOp b);
UOp operator<<(UOp a, UOp b);
UOp operator>>(UOp a, UOp b);
UOp operator<(UOp a, UOp b);
inline UOp operator-(UOp a) { return a.neg(); }
UOp operator+(UOp a, ConstValue b);
UOp operator-(UOp a, ConstValue b);
UOp operator*(UOp a, ConstValue b);
UOp operator/(UOp a, ConstValue b);
UOp operator%(UOp a, ConstValue b);
UOp operator&(UOp a, ConstValue b);
UOp operator<<(UOp a, ConstValue b);
UOp operator>>(UOp a, ConstValue b);
UOp operator<(UOp a, ConstValue b);

/// dtype that follows from op and sources; void for effects. Ops whose type is free (CAST, CONST, BUFFER, PARAM, ...)
/// are not asked.
DType derive_dtype(Ops op, std::span<const UOp> src);

/// One line: op, dtype, argument, ids of the sources.
std::ostream& operator<<(std::ostream&, UOp);

}  // namespace tg

template <> struct std::hash<tg::UOp> {
  /// Hashes by identity: equal nodes are one node.
  size_t operator()(tg::UOp u) const noexcept { return tg::mix64(reinterpret_cast<uint64_t>(u.node()) >> 4); }
};
