/// \file Matrix and dot product instructions as data: one table of descriptors for processors and GPUs, see
/// docs/kernels.md and docs/gpu_codegen.md.
#pragma once
#include <string_view>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Where the elements of a matrix are: in which thread of those that compute together, and in which of its registers.
/// A letter and a digit for each bit of the number of the thread, and of the register, the lowest first: "m3" is bit 3
/// of the row, "n" that of the column, "k" that of the step of the sum, counted in registers of `pack` elements.
/// Threads whose numbers differ in a bit called "--" hold the same.
struct FragmentLayout {
  std::string_view threads, registers;
};

/// out[n, m] += sum over k of a[m, k] * b[k, n], computed by `threads` threads together. A register holds `pack`
/// elements that follow each other along k: with more than one of them it is a word of 32 bits.
///
/// With one thread the n axis is the lanes: of `a` a thread holds k values of one row, of `b` k values for each lane,
/// and the k values are one word. Such an instruction is elementwise on words: lane = acc + a.word . b.word, whatever
/// the number of lanes.
struct TensorCore {
  const char* name;     ///< the argument of WMMA
  const char* arch;     ///< what the architecture of a target begins with
  const char* feature;  ///< any of these, separated by blanks; empty: every processor of the architecture
  int n, m, k;          ///< n = 0: as many as there are lanes
  int threads, pack;
  DType a, b, out;
  bool exact;                  ///< gives the same numbers as separate operations do
  FragmentLayout layout[3]{};  ///< of a, b and out, with more than one thread; of a and b empty: see reads_memory()
  const char* operand = "";    ///< C type of the registers of a, and of b, as the instruction takes them
  const char* text = "";       ///< the instruction in the language of the targets; $a, $b, $c: its operands
  bool rounds = false;         ///< rounds its factors: only where ALLOW_TF32 says that they need no more

  /// Returns the registers of k that one instruction sums over, of all threads.
  int words() const { return k / pack; }
  /// True for the multiply-adds of a warp, which are no instruction of their own: each thread multiplies its rows of a
  /// by its columns of b.
  bool multiply_adds() const { return threads > 1 && *text == 0; }
  /// True for instructions that read a and b from the memory of a group, where target/shared_matrix.h says, and go on
  /// while other instructions of their threads run. They have one register of each operand, its descriptor.
  bool reads_memory() const { return threads > 1 && layout[0].threads.empty(); }
};

/// Bits of the coordinates of an element.
struct FragmentElement {
  int m = 0, n = 0, k = 0;
};
/// Returns the registers of each thread for a matrix with this layout.
int fragment_registers(const FragmentLayout& layout);
/// Returns which element a register of a thread holds; `k` counts registers, not elements.
FragmentElement fragment_element(const FragmentLayout& layout, int thread, int number);

/// Returns all of them; TC_SELECT refers to their indices.
const std::vector<TensorCore>& tensor_core_table();
/// Returns those a target has, best first.
std::vector<const TensorCore*> tensor_cores_of(const Target& target);
/// Looks one up by the argument of a WMMA; null when there is none of this name.
const TensorCore* find_tensor_core(std::string_view name);

}  // namespace tg
