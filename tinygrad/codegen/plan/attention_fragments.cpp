/// \file Fragments of attention.
#include "tinygrad/codegen/plan/attention_fragments.h"

#include <bit>

#include "tinygrad/base/error.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr int kAllBits = 8;  // of a coordinate, at least

UOp or_zero(UOp u) { return u ? u : UOp::constant(int64_t{0}); }
UOp added(UOp a, UOp b) { return a && b ? fold_add(a, b) : or_zero(a ? a : b); }

/// Returns the names of a layout that begin with `letter`.
std::string only(std::string_view names, char letter) {
  std::string out;
  for (size_t at = 0; at < names.size(); at += 3)
    if (names[at] == letter) out += (out.empty() ? "" : " ") + std::string(names.substr(at, 2));
  return out;
}
}  // namespace

int AttentionFragments::bits_of(std::string_view names, char letter) {
  return static_cast<int>((only(names, letter).size() + 1) / 3);
}

bool AttentionFragments::fits(const TensorCore& core) {
  if (core.threads < 2 || core.reads_memory() || core.pack != 2 || core.a.itemsize() != 2 || core.a != core.b)
    return false;
  const FragmentLayout& c = core.layout[2];
  if (core.layout[0].threads.size() != c.threads.size()) return false;
  // The threads of a row are neighbours.
  const auto columns = static_cast<size_t>(bits_of(c.threads, 'n'));
  for (size_t bit = 0; bit * 3 < c.threads.size(); bit++)
    if (c.threads[bit * 3] != (bit < columns ? 'n' : 'm')) return false;
  return true;
}

bool AttentionFragments::keeps_results(const TensorCore& core) {
  const FragmentLayout &a = core.layout[0], &c = core.layout[2];
  if (!fits(core) || core.threads != 32 || !c.registers.starts_with("n0")) return false;
  for (int t = 0; t < core.threads; t++) {
    const FragmentElement factor = fragment_element(a, t, 0), result = fragment_element(c, t, 0);
    if (factor.m != result.m || factor.k * core.pack != result.n) return false;
  }
  return true;
}

AttentionFragments::AttentionFragments(const TensorCore& core, UOp row, UOp column, bool loads, KernelContext& names)
    : core_(core),
      loads_(loads),
      threads_{{column, bits_of(core.layout[2].threads, 'n')}, {row, bits_of(core.layout[2].threads, 'm')}},
      names_(names) {}

UOp AttentionFragments::row(UOp number) const {
  const std::string own = only(core_.layout[2].registers, 'm');
  return added(fragment_coordinate(threads_, core_.layout[2].threads, 'm', 0, kAllBits),
               fragment_coordinate({{number, bits_of(own, 'm')}}, own, 'm', 0, kAllBits));
}
UOp AttentionFragments::column(UOp number) const {
  const std::string own = only(core_.layout[2].registers, 'n');
  return added(fragment_coordinate(threads_, core_.layout[2].threads, 'n', 0, kAllBits),
               fragment_coordinate({{number, bits_of(own, 'n')}}, own, 'n', 0, kAllBits));
}

UOp AttentionFragments::registers(size_t operand) const {
  return names_.range(fragment_registers(core_.layout[operand]), AxisType::kUnroll);
}

AttentionFragments::Operand AttentionFragments::loaded(UOp memory, UOp row, UOp step, UOp from, int64_t stride,
                                                       size_t operand, const char* way) const {
  const UOp number = registers(operand);
  const UOp at = fold_add(fold_add(from, fold_mul(row, stride)), step);
  const std::string name = str("x", fragment_registers(core_.layout[operand]), way);
  return {UOp::make(Ops::CUSTOMI, dtypes::uint32, {memory.index({at}).load(), number}, Arg(name)), number};
}

/// Returns an operand of which each thread reads its own elements. `across`: rows of memory are steps of the sum.
AttentionFragments::Operand AttentionFragments::read(UOp memory, UOp from, int64_t stride, bool second,
                                                     bool across) const {
  const FragmentLayout& layout = core_.layout[second ? 1 : 0];
  const UOp number = registers(second ? 1 : 0);
  const std::string names = str(layout.threads, layout.registers.empty() ? "" : " ", layout.registers);
  std::vector<FragmentDigit> digits = threads_;
  if (!layout.registers.empty())
    digits.push_back({number, std::countr_zero(static_cast<unsigned>(fragment_registers(layout)))});
  const UOp row = or_zero(fragment_coordinate(digits, names, second ? 'n' : 'm', 0, kAllBits)),
            step = fold_mul(or_zero(fragment_coordinate(digits, names, 'k', 0, kAllBits)), core_.pack);
  const auto element = [&](int64_t i) {
    const UOp k = fold_add(step, UOp::constant(i));
    const UOp at = across ? fold_add(fold_mul(k, stride), row) : fold_add(fold_mul(row, stride), k);
    return memory.index({fold_add(from, at)}).load();
  };
  return {word_of(element(0), element(1)), number};
}

/// Eight threads give the rows of each register.
AttentionFragments::Operand AttentionFragments::along(UOp memory, UOp from, int64_t stride, bool second) const {
  if (!loads_) return read(memory, from, stride, second, false);
  const FragmentLayout& layout = core_.layout[second ? 1 : 0];
  const std::string names =
      str(layout.threads.substr(6), layout.registers.empty() ? "" : " ", layout.registers, " -- --");
  const UOp row = or_zero(fragment_coordinate(threads_, names, second ? 'n' : 'm', 0, kAllBits)),
            word = or_zero(fragment_coordinate(threads_, names, 'k', 0, kAllBits));
  return loaded(memory, row, fold_mul(word, core_.pack), from, stride, second ? 1 : 0, "");
}
AttentionFragments::Operand AttentionFragments::across(UOp memory, UOp from, int64_t stride) const {
  if (!loads_) return read(memory, from, stride, true, true);
  const FragmentLayout& layout = core_.layout[1];
  const std::string names = str("e0 k0 k1", layout.registers.empty() ? "" : " ", layout.registers, " -- --");
  const UOp word = or_zero(fragment_coordinate(threads_, names, 'k', 0, kAllBits)),
            element = or_zero(fragment_coordinate(threads_, names, 'e', 0, 1));
  return loaded(memory, fold_add(fold_mul(word, core_.pack), element), UOp::constant(int64_t{0}), from, stride, 1,
                ".trans");
}

AttentionFragments::Source AttentionFragments::source(UOp number, int64_t element) const {
  const std::string_view names = core_.layout[0].registers;
  const std::vector<FragmentDigit> digits{
      {number, std::countr_zero(static_cast<unsigned>(fragment_registers(core_.layout[0])))}};
  const UOp row = or_zero(fragment_coordinate(digits, names, 'm', 0, kAllBits)),
            word = or_zero(fragment_coordinate(digits, names, 'k', 0, kAllBits));
  return {UOp::alu(Ops::FLOORDIV, {row, UOp::constant(int64_t{row_threads(core_)})}),
          UOp::alu(Ops::FLOORDIV, {fold_mul(word, core_.pack), UOp::constant(int64_t{core_.n})}),
          UOp::constant(element)};
}

UOp AttentionFragments::product(const Operand& a, const Operand& b, UOp row_number, UOp column_number) const {
  const std::string_view names = core_.layout[2].registers;
  UOp number;
  int seen[2] = {0, 0};  // bits of rows, of columns
  for (size_t at = 0, bit = 0; at < names.size(); at += 3, bit++) {
    const bool of_column = names[at] == 'n';
    const UOp from = of_column ? column_number : row_number;
    const int64_t below = int64_t{1} << seen[of_column]++, all = of_column ? columns_each(core_) : rows_each(core_);
    UOp digit = below > 1 ? UOp::alu(Ops::FLOORDIV, {from, UOp::constant(below)}) : from;
    if (below * 2 < all) digit = UOp::alu(Ops::FLOORMOD, {digit, UOp::constant(int64_t{2})});
    const UOp term = fold_mul(digit, int64_t{1} << bit);
    number = number ? fold_add(number, term) : term;
  }
  return UOp::make(Ops::WMMA, core_.out, {a.value, b.value, number, a.number, b.number}, Arg(std::string(core_.name)));
}

}  // namespace tg
