/// \file Matrix instructions of attention: where a warp has rows, keys and columns, and how it reads its operands.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/codegen/opt/fragments.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {

/// The matrix instruction of a kernel of attention: what a thread holds of results, and how it gets its operands.
class AttentionFragments {
 public:
  /// True for instructions on words of two 16-bit elements, of whose results neighbouring threads have the columns of a
  /// row.
  static bool fits(const TensorCore& core);
  /// True for those of them whose result a thread holds as it holds a first factor: probabilities become factors where
  /// they are. Of others they pass through the memory of the group.
  static bool keeps_results(const TensorCore& core);
  static int row_threads(const TensorCore& core) { return 1 << bits_of(core.layout[2].threads, 'm'); }
  static int column_threads(const TensorCore& core) { return 1 << bits_of(core.layout[2].threads, 'n'); }
  /// Rows and columns of the result that a thread has.
  static int rows_each(const TensorCore& core) { return 1 << bits_of(core.layout[2].registers, 'm'); }
  static int columns_each(const TensorCore& core) { return 1 << bits_of(core.layout[2].registers, 'n'); }

  /// `row`, `column`: the ranges of the threads of a warp, those of a row are neighbours. `loads`: operands are read by
  /// matrix loads; otherwise each thread reads its own elements.
  AttentionFragments(const TensorCore& core, UOp row, UOp column, bool loads, KernelContext& names);
  /// Returns the row, or the column, of a result that this thread has under this number.
  UOp row(UOp number) const;
  UOp column(UOp number) const;

  /// An operand: its registers, and the range that numbers them.
  struct Operand {
    UOp value, number;
  };
  /// Returns the operand that a warp reads from rows of 16-bit elements along the sum, which begins at `from` of
  /// `memory`, `stride` elements from row to row. `second`: b, of which the rows are columns of the result.
  Operand along(UOp memory, UOp from, int64_t stride, bool second) const;
  /// Returns b where rows are steps of the sum.
  Operand across(UOp memory, UOp from, int64_t stride) const;
  /// Where an element of a first factor is among results of this thread: of which row, which instruction along columns,
  /// which of its columns.
  struct Source {
    UOp row, instruction, column;
  };
  /// Returns a whose words hold `bits(source)`, 16-bit patterns of this thread's results.
  template <class F> Operand of_results(F&& bits) const {
    const UOp number = registers(0);
    return {word_of(bits(source(number, 0)), bits(source(number, 1))), number};
  }
  /// Returns the instruction: of this thread's result, the row and the column of these numbers.
  UOp product(const Operand& a, const Operand& b, UOp row_number, UOp column_number) const;

 private:
  static int bits_of(std::string_view names, char letter);
  /// Puts 16-bit patterns together.
  static UOp word_of(UOp low, UOp high) {
    return UOp::alu(Ops::OR, {low.cast(dtypes::uint32),
                              UOp::alu(Ops::SHL, {high.cast(dtypes::uint32), UOp::constant(16, dtypes::uint32)})});
  }
  UOp registers(size_t operand) const;
  Source source(UOp number, int64_t element) const;
  Operand read(UOp memory, UOp from, int64_t stride, bool second, bool across) const;
  Operand loaded(UOp memory, UOp row, UOp step, UOp from, int64_t stride, size_t operand, const char* way) const;

  const TensorCore& core_;
  const bool loads_;
  std::vector<FragmentDigit> threads_;
  KernelContext& names_;
};

}  // namespace tg
