/// \file The distribution of fragments.
#include "tinygrad/codegen/opt/fragments.h"

#include <bit>

#include "tinygrad/codegen/opt/final_ranges.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
using Part = KernelAxes::FragmentPart;

/// A range whose value is some bits of the number of a thread or of a register; the lowest come first.
struct Digit {
  UOp range;
  int bits;
};

/// Returns bits [from, from + count) of a digit.
UOp bits_of(const Digit& d, int from, int count) {
  UOp value = d.range;
  if (from) value = UOp::alu(Ops::FLOORDIV, {value, UOp::constant(int64_t{1} << from)});
  if (from + count < d.bits) value = UOp::alu(Ops::FLOORMOD, {value, UOp::constant(int64_t{1} << count)});
  return value;
}

/// Returns what the digits of a number contribute to bits [bit, bit + bits) of a coordinate, as a number of these bits;
/// empty: nothing. `names` says what each bit of the number is.
UOp coordinate(const std::vector<Digit>& digits, std::string_view names, const Part& to) {
  UOp sum;
  for (const Digit& d : digits) {
    const std::string_view own = names.substr(0, static_cast<size_t>(3 * d.bits));
    auto bit_at = [&](int i) {
      const char* name = &own[static_cast<size_t>(3 * i)];
      const int bit = name[1] - '0';
      return name[0] == to.letter && bit >= to.bit && bit < to.bit + to.bits ? bit : -1;
    };
    for (int i = 0, run = 1; i < d.bits; i += run) {
      run = 1;
      const int first = bit_at(i);
      if (first < 0) continue;
      while (i + run < d.bits && bit_at(i + run) == first + run) run++;
      UOp term = fold_mul(bits_of(d, i, run), int64_t{1} << (first - to.bit));
      sum = sum ? fold_add(sum, term) : term;
    }
    names.remove_prefix(std::min(names.size(), static_cast<size_t>(3 * d.bits)));
  }
  return sum;
}

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
  /// Returns an operand at the coordinates that each register of each thread holds.
  UOp operand(UOp value, const FragmentLayout& layout, Digit number) const {
    std::vector<std::pair<UOp, UOp>> map;
    auto place = [&](const Part& part) {
      const UOp t = coordinate(threads_, layout.threads, part), r = coordinate({number}, layout.registers, part);
      TG_ASSERT(t || r, "a layout without bit ", part.bit, " of ", part.letter);
      map.push_back({ranges_.numbered(part.axis), t && r ? fold_add(t, r) : t ? t : r});
    };
    for (const std::vector<Part>* parts : {&fragment_.threads, &fragment_.registers})
      for (const Part& p : *parts)
        if (p.letter == (&layout == &fragment_.core->layout[0] ? 'm' : 'n')) place(p);
    const int words = fragment_.core->words();
    if (words > 1) place({'k', 0, std::countr_zero(static_cast<unsigned>(words)), fragment_.sum});
    if (!reads_stage(value)) return value.substitute(map);
    const StageRead r(value);  // what is staged keeps its ranges
    UOps at{r.stage};
    for (UOp c : r.coordinates) at.push_back(c.substitute(map));
    return UOp::make(Ops::INDEX, value.dtype(), at).load();
  }

  const KernelAxes::Fragment& fragment_;
  const FinalRanges& ranges_;
  KernelContext& names_;
  std::vector<Digit> threads_;
  UOp register_;
};
}  // namespace

UOp distribute_fragments(UOp sink, const FinalRanges& ranges, KernelContext& names) {
  if (!ranges.kernel().fragment().core) return sink;
  const Distribution d(ranges, names);
  return translate(sink, [&](UOp u, UOps& src) {
    if (u.is(Ops::WMMA)) return d.distributed(same_or_with(u, src));
    if (!u.is(Ops::REDUCE)) return same_or_with(u, src);
    std::erase(src, d.sum());
    return src.size() == 1 ? src[0] : UOp::make(u.op(), u.dtype(), src, u.arg(), u.tag());
  });
}

}  // namespace tg
