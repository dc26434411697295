/// \file A linear program as its consumers (renderers, interpreter) see it: every instruction with its lanes, its
/// stride along the lanes and the ways it is used.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "tinygrad/target/program.h"
#include "tinygrad/target/tensor_map.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {

/// One instruction of a linear program.
struct Inst {
  UOp u;
  int lanes = 1;        ///< 1: scalar
  bool affine = false;  ///< an integer whose lane l is lane 0 plus l * stride, provably without wrapping
  int64_t stride = 0;
  /// Lane l minus lane 0, where that is known of an integer that is not affine: lane / 8.
  std::vector<int64_t> offsets;
  std::optional<int64_t> first;  ///< lane 0, where that is known too
  bool need_value = false;       ///< someone uses the value itself
  bool need_lane0 = false;       ///< someone uses lane 0 as the address of a vector access
};

/// How a LOAD or STORE touches memory.
struct MemAccess {
  UOp base;       ///< PARAM or BUFFER
  UOp index;      ///< of an image: the row
  UOp column;     ///< of an image; else empty
  int lanes = 1;  ///< of the index
  bool affine = true;
  int64_t stride = 0;            ///< in elements between adjacent lanes, when affine
  std::vector<int64_t> offsets;  ///< as in Inst
  int64_t size = 0;              ///< elements of the base; its maximum when symbolic
  AddrSpace space = AddrSpace::kGlobal;
};

/// True for CUSTOMI(INDEX) with a name, which does not read what is there as a LOAD does.
inline bool is_matrix_access(UOp u) { return u.is(Ops::CUSTOMI) && u.arg_kind() == ArgKind::kString; }
/// True for CUSTOMI(INDEX), "x4" or "x4.trans": the threads of a warp load matrices of 8 x 8 elements of 16 bits
/// together, one for each register (docs/gpu_codegen.md).
inline bool is_matrix_load(UOp u) { return is_matrix_access(u) && u.dtype() == dtypes::uint32; }
/// True for CUSTOMI(INDEX), text of a SharedMatrix: the descriptor of the matrix that begins there.
inline bool is_matrix_descriptor(UOp u) { return is_matrix_access(u) && u.dtype() == dtypes::uint64; }
/// Returns the registers that a matrix load gives each thread.
inline int matrix_registers(UOp load) { return load.arg<std::string>()[1] - '0'; }

/// Analyses a program once. Must be made and used under an ArenaScope of the program's arena.
class ProgramView {
 public:
  explicit ProgramView(const Program& p);
  /// All instructions, sources before users. Literals, parameters and buffers the list leaves out are included.
  const std::vector<Inst>& insts() const { return insts_; }
  const Inst& of(UOp u) const { return insts_[static_cast<size_t>(position(u))]; }
  /// Returns the index of `u` in insts(); of an AFTER, that of its first source. InternalError when the program does
  /// not contain it.
  int position(UOp u) const;
  int lanes(UOp u) const { return of(u).lanes; }
  MemAccess access(UOp index) const;
  /// Returns the index of a scalar parameter in `Program::vars`.
  int var_slot(UOp param) const;
  const Program& program() const { return p_; }

 private:
  void add(UOp u);
  void analyse(Inst& in) const;
  void find_stride(Inst& in) const;
  void find_offsets(Inst& in) const;
  void mark_address(UOp access);
  void mark_needs();
  const Program& p_;
  std::vector<Inst> insts_;
  std::vector<int> position_;  // by node id; -1: absent
};

/// Returns the node that an AFTER is an alias of.
inline UOp strip_after(UOp u) {
  while (u.is(Ops::AFTER)) u = u.src(0);
  return u;
}
/// True when the exact result of an integer ADD, SUB, MUL or SHL fits its type, judged by the bounds of the operands.
bool never_wraps(UOp u);
/// True when a shift amount is provably less than the width.
bool shift_in_range(UOp u);
/// Returns the elements of a PARAM or BUFFER; the maximum when symbolic.
int64_t storage_size(UOp base);
/// Returns the bytes from the start of one scratch BUFFER of a host kernel to the next: panels begin on lines, not all
/// on the same sets of a cache.
int64_t scratch_stride(UOp buffer);
/// Returns the bytes of scratch memory (AddrSpace::kLocal) that a host kernel takes from its thread instead of its
/// stack: all of them, when they are more than a stack should hold.
int64_t thread_scratch_bytes(const ProgramView& view);

/// Returns what a program copies in boxes: the maps that are its last parameters, each once.
std::vector<TensorMap> tensor_maps(std::span<const UOp> program);
/// Returns the memory of a group, each BUFFER with the byte it begins at: matrices that instructions read (CUSTOMI)
/// come first, so that they begin at multiples of kMatrixAlignment bytes.
std::vector<std::pair<UOp, int64_t>> group_memory(const ProgramView& view);

}  // namespace tg
