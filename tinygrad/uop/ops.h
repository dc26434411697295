/// \file The list of operations and its groups. The order is the canonical order: it is the first key wherever nodes
/// are sorted.
#pragma once
#include <cstdint>
#include <iosfwd>

namespace tg {

// clang-format off
#define TG_FOR_EACH_OP(X) \
  /* defines */           X(SPECIAL) X(BUFFER) \
  /* not rendered */      X(NOOP) X(PARAM) X(FUNCTION) X(CALL) X(PROGRAM) X(LINEAR) X(SOURCE) X(BINARY) X(SINK) \
                          X(AFTER) X(GROUP) \
  /* vectors, tuples */   X(STACK) X(TUPLE) X(GETTUPLE) \
  /* memory */            X(INDEX) X(SHRINK) X(LOAD) X(STORE) \
  /* math */              X(WMMA) X(CAST) X(BITCAST) X(EXP2) X(LOG2) X(SIN) X(SQRT) X(RECIPROCAL) X(NEG) X(TRUNC) \
                          X(ADD) X(MUL) X(SHL) X(SHR) X(CDIV) X(MAX) X(CMOD) \
                          X(CMPLT) X(CMPNE) X(CMPEQ) X(XOR) X(OR) X(AND) \
                          X(THREEFRY) X(SUB) X(FDIV) X(POW) X(FLOORDIV) X(FLOORMOD) X(WHERE) X(MULACC) \
  /* control */           X(BARRIER) X(RANGE) X(IF) X(END) X(ENDIF) \
  /* literals, raw text */X(CONST) X(CUSTOM) X(CUSTOMI) \
  /* tensor graphs only */X(ARANGE) X(CONTIGUOUS) X(CONTIGUOUS_BACKWARD) X(CUSTOM_GRADIENT) X(DETACH) X(STAGE) X(COPY) \
                          X(MSELECT) X(MSTACK) X(CUSTOM_FUNCTION) \
                          X(RESHAPE) X(PERMUTE) X(EXPAND) X(PAD) X(FLIP) X(UNSHARD) X(REDUCE) X(ALLREDUCE) X(COLLECTIVE)
// clang-format on

enum class Ops : uint8_t {
#define X(name) name,
  TG_FOR_EACH_OP(X)
#undef X
};
#define X(name) +1
inline constexpr int kOpCount = 0 TG_FOR_EACH_OP(X);
#undef X

/// Returns, prints the name: "ADD".
const char* name_of(Ops op);
std::ostream& operator<<(std::ostream&, Ops);

/// A set of ops in two words.
struct OpSet {
  uint64_t lo = 0, hi = 0;
  constexpr OpSet() = default;
  constexpr OpSet(Ops op) { (static_cast<int>(op) < 64 ? lo : hi) = 1ull << (static_cast<int>(op) & 63); }
  constexpr bool has(Ops op) const { return (static_cast<int>(op) < 64 ? lo : hi) >> (static_cast<int>(op) & 63) & 1; }
  constexpr OpSet operator|(OpSet o) const {
    OpSet r;
    r.lo = lo | o.lo;
    r.hi = hi | o.hi;
    return r;
  }
  constexpr OpSet without(OpSet o) const {
    OpSet r;
    r.lo = lo & ~o.lo;
    r.hi = hi & ~o.hi;
    return r;
  }
  constexpr OpSet& operator|=(OpSet o) {
    lo |= o.lo;
    hi |= o.hi;
    return *this;
  }
  constexpr bool subset_of(OpSet o) const { return !(lo & ~o.lo) && !(hi & ~o.hi); }
  constexpr bool empty() const { return !lo && !hi; }
  constexpr bool operator==(const OpSet&) const = default;
};
constexpr OpSet operator|(Ops a, Ops b) { return OpSet(a) | OpSet(b); }

namespace groups {
using enum Ops;
inline constexpr OpSet kUnary = EXP2 | LOG2 | SIN | SQRT | RECIPROCAL | NEG | TRUNC;
inline constexpr OpSet kBinary = ADD | MUL | SHL | SHR | CDIV | MAX | CMOD | CMPLT | CMPNE | CMPEQ | XOR | OR | AND |
                                 THREEFRY | SUB | FDIV | POW | FLOORDIV | FLOORMOD;
inline constexpr OpSet kTernary = WHERE | MULACC;
inline constexpr OpSet kAlu = kUnary | kBinary | kTernary;
inline constexpr OpSet kElementwise = kAlu | CAST | BITCAST;
inline constexpr OpSet kDefines = PARAM | BUFFER;
inline constexpr OpSet kIrreducible = CONST | SPECIAL | RANGE | PARAM;
inline constexpr OpSet kMovement = RESHAPE | EXPAND | PERMUTE | PAD | SHRINK | FLIP;
inline constexpr OpSet kCommutative = ADD | MUL | MAX | CMPNE | CMPEQ | XOR | AND | OR;
inline constexpr OpSet kAssociative = ADD | MUL | AND | OR | MAX;
inline constexpr OpSet kIdempotent = OR | AND | MAX;
inline constexpr OpSet kReduce = ADD | MUL | MAX;
inline constexpr OpSet kComparison = CMPLT | CMPNE | CMPEQ;
}  // namespace groups

/// Says whether the two sources may change places.
constexpr bool is_commutative(Ops op) { return groups::kCommutative.has(op); }

}  // namespace tg
