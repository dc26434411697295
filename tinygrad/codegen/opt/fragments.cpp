/// \file The distribution of fragments.
#include "tinygrad/codegen/opt/fragments.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/opt/final_ranges.h"
#include "tinygrad/codegen/scratch/lower_stage.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
using Part = KernelAxes::FragmentPart;

using Digit = FragmentDigit;

/// Returns bits [from, from + count) of a digit.
UOp bits_of(const Digit& d, int from, int count) {
  UOp value = d.range;
  if (from) value = UOp::alu(Ops::FLOORDIV, {value, UOp::constant(int64_t{1} << from)});
  if (from + count < d.bits) value = UOp::alu(Ops::FLOORMOD, {value, UOp::constant(int64_t{1} << count)});
  return value;
}

}  // namespace

UOp fragment_coordinate(const std::vector<FragmentDigit>& digits, std::string_view names, char letter, int bit,
                        int bits) {
  UOp sum;
  for (const Digit& d : digits) {
    const std::string_view own = names.substr(0, static_cast<size_t>(3 * d.bits));
    auto bit_at = [&](int i) {
      const char* name = &own[static_cast<size_t>(3 * i)];
      const int own_bit = name[1] - '0';
      return name[0] == letter && own_bit >= bit && own_bit < bit + bits ? own_bit : -1;
    };
    for (int i = 0, run = 1; i < d.bits; i += run) {
      run = 1;
      const int first = bit_at(i);
      if (first < 0) continue;
      while (i + run < d.bits && bit_at(i + run) == first + run) run++;
      UOp term = fold_mul(bits_of(d, i, run), int64_t{1} << (first - bit));
      sum = sum ? fold_add(sum, term) : term;
    }
    names.remove_prefix(std::min(names.size(), static_cast<size_t>(3 * d.bits)));
  }
  return sum;
}

namespace {
UOp coordinate(const std::vector<Digit>& digits, std::string_view names, const Part& to) {
  return fragment_coordinate(digits, names, to.letter, to.bit, to.bits);
}

/// Returns the LOAD of an element of 16 bits whose bits `v` holds; empty: it is something else.
UOp half_of(UOp v) {
  if (!v.is(Ops::CAST)) return {};
  v = v.src(0).is(Ops::BITCAST) ? v.src(0).src(0) : v.src(0);
  return v.is(Ops::LOAD) && v.nsrc() == 1 && v.dtype().itemsize() == 2 && v.src(0).src(0).is(Ops::PARAM) ? v : UOp();
}
}  // namespace

std::optional<Halves> halves_of(UOp word) {
  if (!word.is(Ops::OR)) return {};
  for (size_t upper : {1, 0}) {
    const UOp shifted = word.src(upper);
    if (!shifted.is(Ops::SHL) || !shifted.src(1).is_const_int(16)) continue;
    const UOp low = half_of(word.src(1 - upper)), high = half_of(shifted.src(0));
    if (!low || !high || low.src(0).src(0) != high.src(0).src(0)) return {};
    const AffineIndex from(low.src(0).src(1)), to(high.src(0).src(1));
    const auto step = static_cast<int64_t>(to.offset - from.offset);
    if (!from.rest.empty() || !to.rest.empty() || from.terms != to.terms || step < 2) return {};
    return Halves{low, step};
  }
  return {};
}

namespace {
UOp word_of(UOp low, UOp high) {
  return UOp::alu(Ops::OR, {low.cast(dtypes::uint32),
                            UOp::alu(Ops::SHL, {high.cast(dtypes::uint32), UOp::constant(16, dtypes::uint32)})});
}
UOp or_zero(UOp v) { return v ? v : UOp::constant(int64_t{0}); }

/// The ranges of an instruction in a kernel.
class Distribution {
 public:
  Distribution(const FinalRanges& ranges, KernelContext& names)
      : fragment_(ranges.kernel().fragment()), ranges_(ranges), names_(names) {
    for (const Part& p : fragment_.threads) threads_.push_back({ranges.numbered(p.axis), p.bits});
    int64_t step = 1;
    register_ = UOp::constant(int64_t{0});
    for (const Part& p : fragment_.registers) {
      register_ = fold_add(register_, fold_mul(ranges.numbered(p.axis), step));
      step <<= p.bits;
    }
  }
  UOp sum() const { return ranges_.numbered(fragment_.sum); }

  /// Returns WMMA over what each thread holds.
  UOp distributed(UOp product) const {
    const TensorCore& core = *fragment_.core;
    UOps src(5);
    src[2] = register_;
    for (size_t i = 0; i < 2; i++) {
      const int n = fragment_registers(core.layout[i]);
      src[3 + i] = names_.range(n, AxisType::kUnroll);
      src[i] = operand(product.src(i), core.layout[i], {src[3 + i], std::countr_zero(static_cast<unsigned>(n))});
    }
    return UOp::make(Ops::WMMA, product.dtype(), src, product.arg());
  }

 private:
  using Map = std::vector<std::pair<UOp, UOp>>;

  /// Returns the coordinates of an operand by the numbers of threads and registers, as `layout` names their bits.
  Map coordinates(const FragmentLayout& layout, const std::vector<Digit>& number, char side) const {
    Map map;
    auto place = [&](const Part& part) {
      const UOp t = coordinate(threads_, layout.threads, part), r = coordinate(number, layout.registers, part);
      map.push_back({ranges_.numbered(part.axis), t && r ? fold_add(t, r) : or_zero(t ? t : r)});
    };
    for (const std::vector<Part>* parts : {&fragment_.threads, &fragment_.registers})
      for (const Part& p : *parts)
        if (p.letter == side) place(p);
    const int words = fragment_.core->words();
    if (words > 1) place({'k', 0, std::countr_zero(static_cast<unsigned>(words)), fragment_.sum});
    return map;
  }

  /// Returns an operand at the coordinates that each register of each thread holds.
  UOp operand(UOp value, const FragmentLayout& layout, Digit number) const {
    const char side = &layout == &fragment_.core->layout[0] ? 'm' : 'n';
    if (fragment_.core->reads_memory()) return matrix_in_memory(value, side);
    const Map map = coordinates(layout, {number}, side);
    if (!reads_stage(value)) return value.substitute(map);
    const StageRead r(value);  // what is staged keeps its ranges
    const bool loads = ranges_.kernel().renderer().target().has("matrix_loads") && value.dtype() == dtypes::uint32 &&
                       layout.threads.starts_with("k0 k1 ");
    if (const auto halves = halves_of(r.value))
      if (UOp word = word_of_halves(r, *halves, map, layout, number, loads ? side : '-')) return word;
    if (loads) return loaded(read_at(r.stage, r.coordinates, address_map(layout, side, false)), layout, number, false);
    return read_at(r.stage, r.coordinates, map);
  }
  static UOp read_at(UOp stage, const UOps& coordinates, const Map& map) {
    UOps at{stage};
    for (UOp c : coordinates) at.push_back(c.substitute(map));
    return UOp::make(Ops::INDEX, stage.dtype(), at).load();
  }

  /// Returns a word of elements that memory has apart along the sum and side by side across it: the panel holds them
  /// as they lie, and words are put together when they are read. Empty where they are not. `side`: matrix loads put
  /// them together, '-': none do.
  UOp word_of_halves(const StageRead& r, const Halves& halves, const Map& map, const FragmentLayout& layout,
                     Digit number, char side) const {
    const UOp index = halves.first.src(0), half = names_.range(2, AxisType::kUnroll),
              at = fold_add(index.src(1), fold_mul(half, halves.step)),
              element = UOp::make(Ops::INDEX, dtypes::uint16, {index.src(0), at}).load();
    UOps over = r.over, coordinates = r.coordinates;
    over.push_back(half);
    if (!is_copied_across(element, over, ranges_.kernel().renderer().target())) return {};
    coordinates.push_back(half);
    const UOp panel = stage(StageKind::kTile, element, over, coordinates).src(0).src(0);
    if (side != '-')
      return loaded(read_at(panel, coordinates, address_map(layout, side, true, half)), layout, number, true);
    auto read = [&](int64_t which) {
      Map own = map;
      own.push_back({half, UOp::constant(which)});
      return read_at(panel, coordinates, own);
    };
    return word_of(read(0), read(1));
  }

  /// The ranges of a panel of whole matrices: those of the rows or columns of the result, and those of the sum. What
  /// one instruction takes comes last in each, the highest bits first.
  struct MatrixRanges {
    UOps side, sum;
  };
  MatrixRanges matrix_ranges(const UOps& over, char side) const {
    MatrixRanges all;
    std::vector<std::pair<int, UOp>> parts;
    for (const std::vector<Part>* list : {&fragment_.threads, &fragment_.registers})
      for (const Part& p : *list)
        if (p.letter == side) parts.emplace_back(-p.bit, ranges_.numbered(p.axis));
    std::sort(parts.begin(), parts.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    UOps own;
    for (const auto& part : parts) own.push_back(part.second);
    for (UOp r : over)
      if (r != sum() && !contains(own, r)) (is_summed(r) ? all.sum : all.side).push_back(r);
    for (UOps* list : {&all.side, &all.sum}) std::sort(list->begin(), list->end(), nests_before);
    all.side.insert(all.side.end(), own.begin(), own.end());
    all.sum.push_back(sum());
    return all;
  }
  static bool is_summed(UOp r) { return axis_type(r) == AxisType::kUnroll || axis_type(r) == AxisType::kReduce; }

  /// Returns the descriptor of the matrix that an instruction takes from the memory of the group, which holds the
  /// operand in rows of 128 bytes: elements of 16 bits as memory has them, all else along the sum.
  UOp matrix_in_memory(UOp value, char side) const {
    if (!reads_stage(value))
      throw KernelOptError(str("[opt] ", fragment_.core->name,
                               " reads both operands from the memory of a group: they "
                               "have to be staged in a loop of the sum"));
    const StageRead r(value);
    MatrixRanges ranges = matrix_ranges(r.over, side);
    if (const auto halves = halves_of(r.value)) {
      const UOp index = halves->first.src(0), half = names_.range(2, AxisType::kUnroll),
                at = fold_add(index.src(1), fold_mul(half, halves->step)),
                element = UOp::make(Ops::INDEX, dtypes::uint16, {index.src(0), at}).load();
      UOps over = ranges.sum;
      over.push_back(half);
      const int64_t terms = product_of(over);
      over.insert(over.end(), ranges.side.begin(), ranges.side.end());
      if (is_copied_in_rows(element, over, ranges_.kernel().renderer().target()))
        return described(element, over, r, side, half, {.across = true, .leading = terms * kMatrixRow});
    }
    UOps over, words;
    for (UOp x : ranges.sum) (axis_type(x) == AxisType::kReduce ? over : words).push_back(x);
    over.insert(over.end(), ranges.side.begin(), ranges.side.end());
    over.insert(over.end(), words.begin(), words.end());
    if (product_of(words) * value.dtype().itemsize() % kMatrixRow)
      throw KernelOptError(str("[opt] ", fragment_.core->name, " reads rows of ", kMatrixRow,
                               " bytes: a step of the sum "
                               "has ",
                               product_of(words), " words of ", value.dtype().itemsize()));
    return described(r.value, over, r, side, {}, {});
  }
  static int64_t product_of(const UOps& ranges) {
    int64_t n = 1;
    for (UOp x : ranges) n *= constant_size(x);
    return n;
  }
  /// Returns the descriptor of a matrix in memory that holds `value` for all of `over`. `half`: of a word, empty: the
  /// panel has whole words.
  UOp described(UOp value, const UOps& over, const StageRead& r, char side, UOp half,
                const SharedMatrix& matrix) const {
    Map corner{{sum(), UOp::constant(int64_t{0})}};
    for (const std::vector<Part>* parts : {&fragment_.threads, &fragment_.registers})
      for (const Part& p : *parts)
        if (p.letter == side) corner.push_back({ranges_.numbered(p.axis), UOp::constant(int64_t{0})});
    if (half) corner.push_back({half, UOp::constant(int64_t{0})});
    UOps coordinates;
    for (UOp x : over) {
      const auto at = std::find(r.over.begin(), r.over.end(), x);
      coordinates.push_back(at == r.over.end() ? x : r.coordinates[static_cast<size_t>(at - r.over.begin())]);
    }
    const UOp panel = stage(StageKind::kTile, value, over, coordinates).src(0).src(0);
    return UOp::make(Ops::CUSTOMI, dtypes::uint64, {read_at(panel, coordinates, corner)}, Arg(matrix.text()));
  }

  /// Returns where the rows of 16 bytes begin that a matrix load takes from each thread: eight threads for each
  /// register, the number of the thread among them is that of the row. Rows are along the sum, or, `transposed`, have
  /// the elements of one step of it, `half` tells which of a word.
  Map address_map(const FragmentLayout& layout, char side, bool transposed, UOp half = {}) const {
    const std::string row = transposed ? std::string("e0 k0 k1") : std::string(layout.threads.substr(6)),
                      names = row + (layout.registers.empty() ? "" : " ") + std::string(layout.registers) + " -- --";
    Map map = coordinates({names, ""}, {}, side);
    if (half) map.push_back({half, or_zero(coordinate(threads_, names, {'e', 0, 1, -1}))});
    return map;
  }
  /// Returns the register of a matrix load whose rows begin at `row` (docs/gpu_codegen.md).
  static UOp loaded(UOp row, const FragmentLayout& layout, Digit number, bool transposed) {
    return UOp::make(Ops::CUSTOMI, dtypes::uint32, {row, number.range},
                     Arg(str("x", fragment_registers(layout), transposed ? ".trans" : "")));
  }

  const KernelAxes::Fragment& fragment_;
  const FinalRanges& ranges_;
  KernelContext& names_;
  std::vector<Digit> threads_;
  UOp register_;
};
}  // namespace

UOp distribute_fragments(UOp sink, const FinalRanges& ranges, KernelContext& names) {
  const TensorCore* core = ranges.kernel().fragment().core;
  if (!core) return sink;
  const Distribution d(ranges, names);
  return translate(sink, [&](UOp u, UOps& src) {
    if (u.is(Ops::WMMA)) return d.distributed(same_or_with(u, src));
    if (!u.is(Ops::REDUCE)) return same_or_with(u, src);
    std::erase(src, d.sum());
    if (core->reads_memory() && std::none_of(src.begin() + 1, src.end(), is_loop))
      throw KernelOptError(str("[opt] ", core->name, " reads what a loop of the sum has staged: there is none"));
    return src.size() == 1 ? src[0] : UOp::make(u.op(), u.dtype(), src, u.arg(), u.tag());
  });
}

}  // namespace tg
