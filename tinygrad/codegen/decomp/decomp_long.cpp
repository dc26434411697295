/// \file 64-bit integers for targets without them: a value is two uint32 words, the low one first in memory.
#include "tinygrad/base/math.h"
#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/codegen/decomp/word_pair.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"

namespace tg {
namespace {
using namespace words;
using dtypes::float32, dtypes::float64, dtypes::int32, dtypes::int64, dtypes::uint32, dtypes::uint64;

bool is_long(DType d) { return d == int64 || d == uint64; }
/// Quotient and remainder, bit by bit; both 0 for a divisor of 0.
std::pair<Pair, Pair> divided(Pair a, Pair b) {
  Pair q = literal(0), r = literal(0);
  for (int i = 63; i >= 0; i--) {
    UOp bit = ((i >= 32 ? a.high : a.low) >> word(static_cast<uint32_t>(i % 32))) & word(1);
    UOp carry = r.high >> word(31);  // the remainder has 65 bits for a moment
    r = {(r.low << word(1)) | bit, (r.high << word(1)) | (r.low >> word(31))};
    UOp fits = either(is_set(carry), less(r, b, false).logical_not());
    r = choose(fits, difference(r, b), r);
    UOp one = fits.cast(uint32) << word(static_cast<uint32_t>(i % 32));
    (i >= 32 ? q.high : q.low) = (i >= 32 ? q.high : q.low) | one;
  }
  UOp zero = is_set(b.low | b.high).logical_not();
  return {choose(zero, literal(0), q), choose(zero, literal(0), r)};
}
Pair division(Ops op, Pair a, Pair b, bool is_signed) {
  const bool quotient = op == Ops::CDIV || op == Ops::FLOORDIV, floor = op == Ops::FLOORDIV || op == Ops::FLOORMOD;
  if (!is_signed) {
    auto [q, r] = divided(a, b);
    return quotient ? q : r;
  }
  UOp na = negative(a, true), nb = negative(b, true), apart = na.ne(nb);
  auto [q, r] = divided(choose(na, negated(a), a), choose(nb, negated(b), b));
  q = choose(apart, negated(q), q);
  r = choose(na, negated(r), r);
  if (floor) {
    UOp wrong = both(apart, is_set(r.low | r.high));
    q = choose(wrong, sum(q, literal(-1)), q);
    r = choose(wrong, sum(r, b), r);
  }
  return quotient ? q : r;
}

class Longs {
 public:
  explicit Longs(const Renderer& renderer) : renderer_(renderer) {}

  UOp run(UOp sink) {
    const UOps order = sink.toposort();
    for (UOp u : order)
      if (u.is(Ops::BUFFER)) slots_ = std::max(slots_, u.arg<ParamArg>().slot + 1);
    for (UOp u : order) {
      if (is_long(u.dtype())) value(u);
      else other_.set(u, rest(u));
    }
    return other_.get(sink);
  }

 private:
  Pair pair(UOp u) const {
    TG_ASSERT(low_.has(u), "no words for ", u);
    return {low_.get(u), high_.get(u)};
  }
  void set(UOp u, Pair p) {
    low_.set(u, p.low);
    high_.set(u, p.high);
  }

  /// Truncates; saturates as every cast to a 64-bit integer.
  Pair from_float(UOp f, bool is_signed) const {
    if (f.dtype().itemsize() < 4) f = f.cast(float32);
    auto c = [&](double v) { return f.const_like(ConstValue(v)); };
    UOp minus = f < c(0), m = minus.where(f * c(-1), f);
    m = m.ne(m).where(c(0), m);
    UOp whole = UOp::alu(Ops::TRUNC, {m});
    const double least = is_signed ? 0x1p63 : 0x1p64;  // the first magnitude out of range
    UOp over = (m < c(least)).logical_not(), under = both(minus, (m < c(0x1p63)).logical_not());
    UOp safe = either(over, under).where(c(0), whole);
    UOp high = UOp::alu(Ops::TRUNC, {safe * c(0x1p-32)}), low = safe + high * c(-0x1p32);
    Pair p{low.cast(uint32), high.cast(uint32)};
    p = choose(minus, negated(p), p);
    p = choose(over, literal(is_signed ? int128{INT64_MAX} : int128{UINT64_MAX}), p);
    return choose(under, literal(int128{1} << 63), p);
  }
  UOp to_float(Pair p, bool is_signed, DType d) const {
    auto high = [&](DType in) { return is_signed ? p.high.bitcast(int32).cast(in) : p.high.cast(in); };
    if (!renderer_.supports(float64)) return to_float32(p, is_signed, d != float32).cast(d);
    if (d != float64) {
      // The sum is rounded here and again below: the bits that decide the first rounding become one (sticky) bit.
      UOp large = (word(1u << 22) < p.high + word(1u << 21)),
          odd = is_set(p.low & word(0xfff)).where(word(0x800), word(0));
      p.low = large.where((p.low & word(~0xfffu)) | odd, p.low);
    }
    return (high(float64) * UOp::constant(ConstValue(0x1p32), float64) + p.low.cast(float64)).cast(d);
  }
  static Pair split(UOp native) { return {native.cast(uint32), (native >> ConstValue(32)).cast(uint32)}; }
  static UOp joined(Pair p, DType d) { return (p.high.cast(uint64) << ConstValue(32) | p.low.cast(uint64)).bitcast(d); }

  Pair cast_to_long(UOp x, bool is_signed) const {
    const DType from = x.dtype();
    if (is_long(from)) return pair(x);
    UOp v = other_.get(x);
    if (from.is_float()) return from_float(v, is_signed);
    if (from.is_bool() || from.is_unsigned()) return {v.cast(uint32), word(0)};
    if (from.is_weak()) {
      if (const Bounds b = bounds_of(x); b.lo < INT32_MIN || b.hi > INT32_MAX) return split(v.cast(uint64));
    }
    UOp low = v.cast(int32);
    return {low.bitcast(uint32), sign_word(low.bitcast(uint32))};
  }

  static bool is_memory(UOp u) {
    while (u.is(Ops::AFTER)) u = u.src(0);
    return u.in(groups::kDefines);
  }
  static UOp word_index(UOp i, int64_t k) {
    if (i.is(Ops::WHERE) && i.src(2).is_invalid()) return word_index(i.src(1), k).valid(i.src(0));
    return i * ConstValue(2) + ConstValue(k);
  }

  /// Returns the index of an INDEX. One that needs 64 bits on the way fits 32 in the end, as the elements do.
  UOp index(UOp u) const {
    if (!is_long(u.src(1).dtype())) return other_.get(u.src(1));
    UOp base = u.src(0);
    while (base.is(Ops::AFTER)) base = base.src(0);
    const int128 size = base.src(0).src(0).const_int();
    TG_CHECK(DTypeError, size <= INT32_MAX, "[render] got a buffer of ", static_cast<int64_t>(size),
             " elements, an index of 32 bits reaches ", INT32_MAX);
    return pair(u.src(1)).low.bitcast(int32);
  }

  void value(UOp u) {
    const bool is_signed = u.dtype() == int64;
    if (u.in(groups::kDefines)) {
      ParamArg arg = u.arg<ParamArg>();
      if (arg.addrspace == AddrSpace::kAlu) return set(u, split(u));  // what a kernel is called with has 64 bits
      if (is_register(u)) {
        UOp low = UOp::make(u.op(), uint32, u.srcs(), Arg(arg), u.tag());
        arg.slot = slots_++;
        set(u, {low, UOp::make(u.op(), uint32, u.srcs(), Arg(arg), u.tag())});
      } else {
        const int64_t size = static_cast<int64_t>(u.src(0).src(0).const_int());
        other_.set(u, UOp::make(u.op(), uint32, {UOp::shape_stack(std::vector<int64_t>{2 * size})}, Arg(arg), u.tag()));
      }
      return;
    }
    if (u.is(Ops::AFTER)) {
      if (is_memory(u) && !is_register(u)) other_.set(u, rest(u, uint32));
      else set(u, {with_first(u, pair(u.src(0)).low), with_first(u, pair(u.src(0)).high)});
      return;
    }
    if (u.is(Ops::INDEX)) {
      UOp i = index(u);
      if (is_register(u)) set(u, {pair(u.src(0)).low.index({i}), pair(u.src(0)).high.index({i})});
      else set(u, {other_.get(u.src(0)).index({word_index(i, 0)}), other_.get(u.src(0)).index({word_index(i, 1)})});
      return;
    }
    set(u, computed(u, is_signed));
  }

  Pair computed(UOp u, bool is_signed) const {
    auto a = [&] { return pair(u.src(0)); };
    auto b = [&] { return pair(u.src(1)); };
    auto power = [&] {
      return u.src(1).is_const() && is_power_of_two(u.src(1).const_int()) ? floor_log2(u.src(1).const_int()) : -1;
    };
    switch (u.op()) {
      case Ops::CONST: return literal(u.const_int());
      case Ops::LOAD: {
        if (u.nsrc() == 1) return {a().low.load(), a().high.load()};
        UOp gate = other_.get(u.src(2));
        return {a().low.load(b().low, gate), a().high.load(b().high, gate)};
      }
      case Ops::CAST: return cast_to_long(u.src(0), is_signed);
      case Ops::BITCAST: return is_long(u.src(0).dtype()) ? a() : split(other_.get(u.src(0)).bitcast(uint64));
      case Ops::NEG: return negated(a());
      case Ops::TRUNC: return a();
      case Ops::CUSTOMI: return {with_first(u, a().low), with_first(u, a().high)};  // a value of another thread
      case Ops::ADD: return sum(a(), b());
      case Ops::SUB: return difference(a(), b());
      case Ops::MUL:
        if (u.src(1).is_const() && truncate_int(u.src(1).const_int(), int64) == -1) return negated(a());
        return product(a(), b());
      case Ops::AND: return {a().low & b().low, a().high & b().high};
      case Ops::OR: return {a().low | b().low, a().high | b().high};
      case Ops::XOR: return {a().low ^ b().low, a().high ^ b().high};
      case Ops::MAX: return choose(less(a(), b(), is_signed), b(), a());
      case Ops::WHERE: return choose(other_.get(u.src(0)), pair(u.src(1)), pair(u.src(2)));
      case Ops::MULACC: return sum(product(a(), b()), pair(u.src(2)));
      case Ops::SHL:
      case Ops::SHR:
        if (u.src(1).is_const() && u.src(1).const_int() >= 0 && u.src(1).const_int() < 64)
          return shift(u.op(), a(), static_cast<int>(u.src(1).const_int()), is_signed);
        return shift(u.op(), a(), b(), is_signed);
      case Ops::FLOORDIV:
      case Ops::CDIV:
        if (int k = power(); k >= 0 && (u.is(Ops::FLOORDIV) || !is_signed)) return shift(Ops::SHR, a(), k, is_signed);
        return division(u.op(), a(), b(), is_signed);
      case Ops::FLOORMOD:
      case Ops::CMOD:
        if (int k = power(); k >= 0 && (u.is(Ops::FLOORMOD) || !is_signed)) {
          Pair mask = literal((int128{1} << k) - 1);
          return {a().low & mask.low, a().high & mask.high};
        }
        return division(u.op(), a(), b(), is_signed);
      default:
        throw DTypeError(
            str("[EMULATED_DTYPES] got ", u.op(), " of ", u.dtype(), ", expected an operation that two words can do"));
    }
  }

  UOp with_first(UOp u, UOp first) const {
    UOps src{first};
    for (size_t i = 1; i < u.nsrc(); i++) src.push_back(other_.get(u.src(i)));
    return UOp::make(u.op(), first.dtype(), src, u.arg(), u.tag());
  }
  UOp rest(UOp u, DType d) const {
    UOps src;
    for (UOp s : u.srcs()) {
      UOp v = other_.get(s);
      if (u.is(Ops::GROUP) && v.is(Ops::GROUP)) src.insert(src.end(), v.srcs().begin(), v.srcs().end());
      else src.push_back(v);
    }
    return UOp::make(u.op(), d, src, u.arg(), u.tag());
  }

  /// Nodes of other types, some of which read longs.
  UOp rest(UOp u) const {
    bool reads = false, same = true;
    for (UOp s : u.srcs()) {
      reads |= low_.has(s);
      same &= !low_.has(s) && other_.get(s) == s;
    }
    if (same) return u;
    if (!reads) return rest(u, u.dtype());
    const bool is_signed = u.src(0).dtype() == int64;
    switch (u.op()) {
      case Ops::CMPLT: return less(pair(u.src(0)), pair(u.src(1)), is_signed);
      case Ops::CMPNE: return differ(pair(u.src(0)), pair(u.src(1)));
      case Ops::CMPEQ: return differ(pair(u.src(0)), pair(u.src(1))).logical_not();
      case Ops::INDEX: return other_.get(u.src(0)).index({index(u)});
      case Ops::BITCAST: return joined(pair(u.src(0)), u.dtype());
      case Ops::CAST: {
        const Pair p = pair(u.src(0));
        if (u.dtype().is_bool()) return is_set(p.low | p.high);
        if (u.dtype().is_float()) return to_float(p, is_signed, u.dtype());
        if (u.dtype().is_weak()) return p.low.bitcast(int32).cast(u.dtype());  // an index, which fits
        return p.low.cast(u.dtype());
      }
      case Ops::STORE: {
        const Pair at = pair(u.src(0)), v = pair(u.src(1));
        UOps low{at.low, v.low}, high{at.high, v.high};
        if (u.nsrc() > 2) {
          low.push_back(other_.get(u.src(2)));
          high.push_back(other_.get(u.src(2)));
        }
        auto store = [&](UOps& s) { return UOp::make(Ops::STORE, dtypes::void_, s, u.arg(), u.tag()); };
        return UOp::make(Ops::GROUP, dtypes::void_, {store(low), store(high)});
      }
      default:
        throw DTypeError(str("[EMULATED_DTYPES] got ", u.op(), " of ", u.src(0).dtype(),
                             ", expected an operation that two words can do"));
    }
  }

  const Renderer& renderer_;
  MemoScope low_, high_, other_;
  int64_t slots_ = 0;
};

}  // namespace

bool emulates_longs(UOp sink, const Renderer& renderer, DTypeSet emulated) {
  if (renderer.supports(int64) && !emulated.has(int64) && !emulated.has(uint64)) return false;
  for (UOp u : sink.toposort())
    if (is_long(u.dtype())) return true;
  return false;
}

UOp decompose_longs(UOp sink, const Renderer& renderer, DTypeSet emulated) {
  if (!emulates_longs(sink, renderer, emulated)) return sink;
  sink = graph_rewrite(sink, pm_long_operations(), {.name = "operations on longs"});
  return Longs(renderer).run(sink);
}

}  // namespace tg
