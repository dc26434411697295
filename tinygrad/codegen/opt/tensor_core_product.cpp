/// \file Packing of factors into words, and the sum of dot products in place of the sum of products.
#include "tinygrad/codegen/opt/tensor_core_product.h"

#include <algorithm>
#include <tuple>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
using dtypes::uint32;
constexpr double kManyUses = 8;  // of a word, from which packing it element by element pays

/// A sum of products.
struct Sum {
  UOp reduce, x, y;  // the factors before they are widened; empty where they are not
  UOp factors[2];    // as they are multiplied
  UOp narrow(size_t i) const { return i ? y : x; }
};
bool is_narrow(DType d) {
  return d == dtypes::int8 || d == dtypes::uint8 || d == dtypes::int16 || d == dtypes::bfloat16 ||
         d == dtypes::float16 || d.is_fp8();
}
bool reads_memory(UOp v) {
  const UOps nodes = v.toposort();
  return std::any_of(nodes.begin(), nodes.end(), [](UOp u) { return u.is(Ops::LOAD); });
}
bool is_word(DType d) { return d == dtypes::int32 || d == dtypes::uint32; }

/// Returns the narrow value that a factor was before it was widened, exactly, to `wide`; empty where it was none.
UOp before_widening(UOp v, DType wide) {
  if (v.is(Ops::CAST) && v.dtype() == wide && is_narrow(v.src(0).dtype())) return v.src(0);
  if (v.is(Ops::WHERE) && v.src(2).is_const() && !v.src(2).is_invalid() && v.src(2).const_float() == 0)
    if (UOp inner = before_widening(v.src(1), wide)) return v.src(0).where(inner, UOp::constant(0, inner.dtype()));
  return {};
}

/// Returns a value that reads memory whether `gate` holds or not; empty where it would read beyond the end.
UOp without_gate(UOp v, UOp gate) {
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp u : v.toposort()) {
    if (!u.is(Ops::INDEX) || !u.src(1).is(Ops::WHERE)) continue;
    const UOp at = u.src(1);
    if (at.src(0) != gate || !at.src(2).is_invalid()) continue;
    if (!u.src(0).is(Ops::PARAM) || vmin(at.src(1)) < 0 || vmax(at.src(1)) >= vmax(u.src(0).src(0))) return {};
    map.push_back({at, at.src(1)});
  }
  return v.substitute(map);
}
/// Moves the gate of a product, gate ? x * y : 0, into the factor that depends on what it asks, as gradients of padded
/// convolutions have it: the other one is the same for all results then. Returns the product itself where there is no
/// gate, or none that moves.
UOp with_gate_inside(UOp v) {
  if (!v.is(Ops::WHERE) || !v.src(1).is(Ops::MUL) || !v.src(2).is_const() || v.src(2).is_invalid() ||
      v.src(2).const_float() != 0)
    return v;
  const UOp gate = v.src(0), product = v.src(1);
  for (size_t f : {0, 1}) {
    const UOp other = without_gate(product.src(1 - f), gate);
    const auto needs_all = [&](UOp x) {
      return std::ranges::all_of(ranges_of(gate), [&](UOp r) { return depends_on(x, r); });
    };
    if (!other || needs_all(other) || !needs_all(product.src(f))) continue;
    const UOp gated = gate.where(product.src(f), UOp::constant(0, product.src(f).dtype()));
    return f == 0 ? UOp::alu(Ops::MUL, {gated, other}) : UOp::alu(Ops::MUL, {other, gated});
  }
  return v;
}

/// `together`: for instructions of several threads.
Sum find_sum(UOp sink, bool together) {
  Sum s;
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE)) continue;
    if (s.reduce || u.arg<ReduceArg>().op != Ops::ADD || !(is_word(u.dtype()) || u.dtype() == dtypes::float32))
      return {};
    s.reduce = u;
  }
  if (!s.reduce) return {};
  UOp v = together ? with_gate_inside(s.reduce.src(0)) : s.reduce.src(0);
  if (v.is(Ops::MUL)) {
    s.factors[0] = v.src(0);
    s.factors[1] = v.src(1);
    s.x = before_widening(v.src(0), s.reduce.dtype());
    s.y = before_widening(v.src(1), s.reduce.dtype());
  }
  // Products of 8 bits whose sum ends in 8 bits: wrapping in between makes no difference.
  if (v.is(Ops::CAST) && v.src(0).is(Ops::MUL) && v.src(0).dtype().is_int() && v.src(0).dtype().itemsize() == 1 &&
      is_word(v.dtype())) {
    for (UOp u : sink.toposort())
      for (UOp src : u.srcs())
        if (src == s.reduce && !(u.is(Ops::CAST) && u.dtype().is_int() && u.dtype().itemsize() == 1)) return {};
    s.x = v.src(0).src(0);
    s.y = v.src(0).src(1);
  }
  for (UOp* f : {&s.x, &s.y})
    if (*f && (!is_narrow(f->dtype()) || f->dtype().is_float() != s.reduce.dtype().is_float() || !reads_memory(*f)))
      return {};
  return s;
}

bool opposite(DType a, DType b) {
  return (a == dtypes::int8 && b == dtypes::uint8) || (a == dtypes::uint8 && b == dtypes::int8);
}

/// How the factors become operands a and b of an instruction.
struct Fit {
  UOp a, b;
  int moved = 0;  // 1, 2: the sign bit of operand a, b is flipped
};
/// Returns true when the value depends on a range that is stored contiguously: the operand that gets the lanes.
bool along_store(UOp sink, UOp value) {
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::STORE)) continue;
    for (const auto& [r, c] : AffineIndex(u.src(0).src(1)).terms)
      if (c == 1 && depends_on(value, r)) return true;
  }
  return false;
}
/// Returns the longest output range that one of the factors depends on and the other does not; empty: there is none.
UOp own_range(UOp sink, UOp factor, UOp other) {
  UOp best;
  for (UOp e : sink.srcs())
    for (UOp r : e.srcs().subspan(std::min<size_t>(1, e.nsrc()))) {
      if (!r.is(Ops::RANGE) || !r.src(0).is_const() || r.arg<RangeArg>().type != AxisType::kLoop) continue;
      if (depends_on(factor, r) && !depends_on(other, r) && (!best || r.src(0).const_int() > best.src(0).const_int()))
        best = r;
    }
  return best;
}

/// Of what threads compute together, a has the rows and b the columns, which are adjacent in neighbouring threads. Half
/// of the rows and of the columns, at least, must be results, a third where these are 16 or fewer.
bool fit_threads(const Sum& s, const TensorCore& core, UOp sink, Fit* out) {
  if (s.reduce.dtype() != core.out) return false;
  const bool wide = core.a.itemsize() >= 4;
  UOp x = wide ? s.factors[0] : s.x, y = wide ? s.factors[1] : s.y;
  if (!x || !y || x.dtype() != core.a || y.dtype() != core.b || !reads_memory(x) || !reads_memory(y)) return false;
  if (along_store(sink, x) && !along_store(sink, y)) std::swap(x, y);
  const UOp rows = own_range(sink, x, y), columns = own_range(sink, y, x);
  const auto enough = [](UOp range, int side) { return range.src(0).const_int() * (side > 16 ? 2 : 3) >= side; };
  if (!rows || !columns || !enough(rows, core.m) || !enough(columns, core.n)) return false;
  *out = {x, y, 0};
  return true;
}

bool fit(const Sum& s, const TensorCore& core, UOp sink, Fit* out) {
  if (core.threads > 1) return fit_threads(s, core, sink, out);
  if (!s.x || !s.y) return false;
  if (is_word(core.out) ? !is_word(s.reduce.dtype()) : core.out != s.reduce.dtype()) return false;
  if (core.a == dtypes::bfloat16) {
    *out = {s.x, s.y, 0};
    return s.x.dtype() == core.a && s.y.dtype() == core.b;
  }
  if (s.x.dtype().is_float()) return false;
  if (core.a == dtypes::int16) {  // every narrow integer is one
    *out = {s.x, s.y, 0};
    return true;
  }
  for (auto [p, q] : {std::pair{s.x, s.y}, {s.y, s.x}})
    if (p.dtype() == core.a && q.dtype() == core.b) {
      *out = {p, q, 0};
      return true;
    }
  // One factor of the other sign, rather the one without the lanes: then the second sum has lanes, too.
  const bool y_has_lanes = along_store(sink, s.y);
  const UOp moved = y_has_lanes ? s.x : s.y, other = y_has_lanes ? s.y : s.x;
  for (auto [m, o] : {std::pair{moved, other}, {other, moved}}) {
    if (opposite(m.dtype(), core.a) && o.dtype() == core.b) {
      *out = {m, o, 1};
      return true;
    }
    if (opposite(m.dtype(), core.b) && o.dtype() == core.a) {
      *out = {o, m, 2};
      return true;
    }
  }
  return false;
}

UOp word(int64_t v) { return UOp::constant(ConstValue(v), uint32); }

/// Returns one load of a word for narrow elements of a parameter that are adjacent along the range, from an offset that
/// is a multiple of k; empty where they are not.
UOp load_of_words(UOp v, UOp range, UOp words, int64_t k) {
  if (!v.is(Ops::LOAD) || v.nsrc() != 1 || v.dtype().itemsize() * k != 4) return {};
  UOp index = v.src(0);
  if (!index.src(0).is(Ops::PARAM) || index.src(1).is(Ops::WHERE) || static_cast<int64_t>(range.src(0).const_int()) % k)
    return {};
  const AffineIndex f(index.src(1));
  if (!f.rest.empty() || f.coefficient(range) != 1 || f.offset % k || f.offset < 0) return {};
  UOp at = words;
  for (const auto& [r, c] : f.terms) {
    if (r == range) continue;
    if (c % k || c < 0) return {};
    at = fold_add(at, fold_mul(r, c / k));
  }
  at = fold_add(at, UOp::constant(f.offset / k));
  return UOp::make(Ops::INDEX, uint32, {index.src(0), at}).load();
}

/// Returns k elements `v`, consecutive along the range, in one word, or one as it is. Beyond the end of the range, in
/// one of `count` words, they are 0 when `masked`, else undefined.
UOp packed(UOp v, UOp range, UOp words, int64_t k, DType element, bool masked) {
  const auto n = static_cast<int64_t>(range.src(0).const_int()), count = static_cast<int64_t>(words.src(0).const_int());
  const bool loads = k > 1 && v.dtype().itemsize() == element.itemsize() && n % k == 0;
  const UOp whole = count * k > n ? UOp::alu(Ops::CMPLT, {words, UOp::constant(n / k)}) : UOp();
  if (UOp w = whole ? whole.where(words, UOp::constant(n / k - 1)) : words;
      UOp loaded = loads ? load_of_words(v, range, w, k) : UOp())
    return whole && masked ? whole.where(loaded, word(0)) : loaded;
  const int bits = static_cast<int>(32 / k);
  const DType raw = bits == 8 ? dtypes::uint8 : dtypes::uint16;
  UOp all;
  for (int64_t i = 0; i < k; i++) {
    UOp at = fold_add(fold_mul(words, k), UOp::constant(i)), inside;
    if ((count - 1) * k + i >= n) {
      inside = UOp::alu(Ops::CMPLT, {at, UOp::constant(n)});
      at = inside.where(at, UOp::constant(n - 1));
    }
    UOp one = v.substitute({{range, at}});
    if (k == 1) return inside && masked ? inside.where(one, UOp::constant(0, one.dtype())) : one;
    if (one.dtype().itemsize() != element.itemsize()) one = one.cast(element);
    one = (one.dtype() == raw ? one : one.bitcast(raw)).cast(uint32);
    if (inside && masked) one = inside.where(one, word(0));
    if (i) one = UOp::alu(Ops::SHL, {one, word(i * bits)});
    all = all ? UOp::alu(Ops::OR, {all, one}) : one;
  }
  return all;
}

/// Returns how many outputs share each element of a factor.
double uses_of(UOp sink, UOp factor) {
  double uses = 1;
  for (UOp e : sink.srcs())
    for (UOp r : e.srcs().subspan(std::min<size_t>(1, e.nsrc())))
      if (r.is(Ops::RANGE) && !depends_on(factor, r))
        uses *= r.src(0).is_const() ? static_cast<double>(r.src(0).const_int()) : kManyUses;
  return uses;
}
/// Returns false for words that are packed element by element and used too rarely.
bool pays(UOp sink, UOp factor, UOp range, const TensorCore& core, DType element) {
  if (uses_of(sink, factor) >= kManyUses) return true;
  UOp words = UOp::range(UOp::constant((static_cast<int64_t>(range.src(0).const_int()) + core.k - 1) / core.k),
                         range.arg<RangeArg>());
  return factor.dtype().itemsize() == element.itemsize() && load_of_words(factor, range, words, core.k);
}
/// Returns the registers of a's and b's elements along `range` that an instruction is given, padded to whole
/// instructions.
int64_t word_count(UOp range, const TensorCore& core) {
  const auto n = static_cast<int64_t>(range.src(0).const_int());
  const int64_t words = (n + core.pack - 1) / core.pack, all = core.threads > 1 ? core.words() : 1;
  return (words + all - 1) / all * all;
}

/// Returns the range of a sum to pack: the longest of those that are contiguous in memory; the longest of all where a
/// register holds one element, and nothing is packed. Where several threads share an instruction, at most a third of
/// its terms are padding.
UOp range_to_pack(const Sum& s, const TensorCore& core) {
  UOp range;
  std::tuple<bool, int64_t, int64_t> best{};
  for (size_t i = 1; i < s.reduce.nsrc(); i++) {
    UOp r = s.reduce.src(i);
    if (!r.src(0).is_const()) continue;
    const auto n = static_cast<int64_t>(r.src(0).const_int());
    const bool full = core.threads == 1 || word_count(r, core) * core.pack * 2 <= n * 3;
    bool unit = false;
    for (size_t f = 0; f < 2; f++)
      if (UOp v = s.narrow(f) ? s.narrow(f) : s.factors[f]) unit |= reads_adjacent(v, r);
    const std::tuple<bool, int64_t, int64_t> score =
        core.pack == 1 ? std::tuple{full, n, int64_t{unit}} : std::tuple{full, int64_t{unit}, n};
    if (full && score > best) {
      range = r;
      best = score;
    }
  }
  return range && static_cast<int64_t>(range.src(0).const_int()) >= core.pack ? range : UOp();
}
}  // namespace

bool reads_adjacent(UOp value, UOp range) {
  const UOps nodes = value.toposort();
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](UOp u) { return u.is(Ops::LOAD) && AffineIndex(u.src(0).src(1)).coefficient(range) == 1; });
}

std::vector<std::pair<UOp, int>> tensor_core_choices(UOp sink, const Renderer& renderer, int inexact, int select) {
  const std::vector<const TensorCore*> cores = renderer.tensor_cores();
  if (cores.empty()) return {};
  const Sum alone = find_sum(sink, false), together = find_sum(sink, true);
  if (!alone.reduce && !together.reduce) return {};
  std::vector<std::pair<UOp, int>> out;
  Fit f;
  for (const TensorCore* core : cores) {
    const auto number = static_cast<int>(core - tensor_core_table().data());
    if ((!core->exact && inexact < 2) || (core->rounds && inexact < 3) || (select >= 0 && select != number)) continue;
    const Sum& s = core->threads > 1 ? together : alone;
    if (!s.reduce) continue;
    if (!fit(s, *core, sink, &f)) continue;
    const UOp range = range_to_pack(s, *core);
    if (range &&
        (core->threads > 1 || (pays(sink, f.a, range, *core, core->a) && pays(sink, f.b, range, *core, core->b))))
      out.emplace_back(range, number);
  }
  return out;
}

UOp with_tensor_core(UOp sink, UOp range, int number, const Renderer& renderer) {
  const auto& table = tensor_core_table();
  if (number < 0 || number >= static_cast<int>(table.size())) return sink;
  const TensorCore& core = table[static_cast<size_t>(number)];
  const std::vector<const TensorCore*> known = renderer.tensor_cores();
  const Sum s = find_sum(sink, core.threads > 1);
  Fit f;
  if (!contains(known, &core) || !s.reduce || !range.src(0).is_const() || !fit(s, core, sink, &f)) return sink;
  const auto own = std::find(s.reduce.srcs().begin() + 1, s.reduce.srcs().end(), range);
  if (own == s.reduce.srcs().end()) return sink;
  UOp words = UOp::range(UOp::constant(word_count(range, core)), range.arg<RangeArg>());
  // Elements beyond the end must be 0 in the operand that both sums share; where they need not be finite, in both.
  const bool both = core.threads > 1;
  UOp a = packed(f.a, range, words, core.pack, core.a, both || f.moved != 1),
      b = packed(f.b, range, words, core.pack, core.b, both || f.moved == 1);
  const DType d = s.reduce.dtype();
  auto sum = [&](UOp x, UOp y) {
    UOps src{UOp::make(Ops::WMMA, d, {x, y, UOp::constant(0, d)}, Arg(std::string(core.name)))};
    for (auto r = s.reduce.srcs().begin() + 1; r != s.reduce.srcs().end(); ++r) src.push_back(*r == range ? words : *r);
    return UOp::make(Ops::REDUCE, d, src, s.reduce.arg());
  };
  if (!f.moved) return sink.substitute({{s.reduce, sum(a, b)}});
  const UOp signs = word(0x80808080);  // 128, or -128: what flipping the sign bits adds
  UOp flipped = UOp::alu(Ops::XOR, {f.moved == 1 ? a : b, signs});
  UOp total = f.moved == 1 ? sum(flipped, b) : sum(a, flipped), extra = f.moved == 1 ? sum(signs, b) : sum(a, signs);
  return sink.substitute({{s.reduce, total + extra * UOp::constant(ConstValue(truncate_int(-1, d)), d)}});
}

}  // namespace tg
