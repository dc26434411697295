/// \file Accesses that are blocks of a transposed matrix: strided vectors that are adjacent in memory.
///
/// Lane l of member c is at low + l * stride + c. So memory holds rows, of which each member is a column; a renderer
/// loads or stores rows and transposes in registers, where each member alone would be a gather or a scatter.
#pragma once
#include "tinygrad/render/program_view.h"

namespace tg {

/// Loads, or stores, of one buffer, type and stride, c-th column c of the block. Nothing between the first and the last
/// of them in the program begins or ends a loop or may change what they read or write.
struct LaneBlock {
  UOps members;
  UOp first, last;       ///< in the order of the program
  int64_t first_at = 0;  ///< column of `first`
  MemAccess access;      ///< of `first`
  bool gated = false;    ///< all members have the gate of `first`, those of interleaved columns one each
  bool aligned = false;  ///< of runs: it begins at a multiple of its size, where the buffer does
  bool words = false;    ///< two or four adjacent bytes, at known offsets of the lanes: a word for each lane
  int group = -1;        ///< words of two bytes: LaneBlocks::group()
  int number = 0;        ///< of this block in the group
};

/// Blocks of words of two bytes, each the same in `run` lanes: one register has room for the words of all of them, and
/// a conversion of them (halves to floats) is computed once. Word d of block i (for lanes from d * run) goes to element
/// d * run + i of sixteen.
struct WordGroup {
  static constexpr int kHalves = 32;  ///< of a register
  struct Part {
    int64_t offset;  ///< bytes from the first block
    int shift;  ///< in halves: the register is read that much earlier, so that words of different blocks do not collide
    std::vector<int> places;  ///< elements of the register that its words are in
  };
  int run = 1;
  std::vector<Part> parts;
};

/// The blocks of a program: at least two columns, more than `near` elements between adjacent lanes. Stores with fewer
/// elements between them are blocks when they leave no gap: rows follow each other, columns are interleaved. With
/// `words` the bytes of words are blocks, too.
class LaneBlocks {
 public:
  explicit LaneBlocks(const ProgramView& view);
  LaneBlocks(const ProgramView& view, int64_t near) : LaneBlocks(view) { find(near, false); }
  void find(int64_t near, bool words);
  /// Finds runs instead: scalars side by side in a parameter, of `most` bytes at most, that are one access. They are
  /// blocks of one lane; stores may have gates of their own.
  void find_runs(int64_t most);
  /// The block of a LOAD or STORE; nullptr: it is in none.
  const LaneBlock* of(UOp u) const;
  const WordGroup& group(int number) const { return groups_[static_cast<size_t>(number)]; }

 private:
  friend class BlockFinder;
  void group_words(size_t begin, const std::vector<int64_t>& offsets);
  std::vector<LaneBlock> blocks_;
  std::vector<WordGroup> groups_;
  std::vector<int> block_of_;  // by position; -1: none
  const ProgramView& view_;
};

/// Splits adjacent columns into parts of 2, 4, ... `most` of them (start, size); the last may overlap the one before.
std::vector<std::pair<int, int>> block_parts(int columns, int most);

/// One step of a transposition: register i and i + bit (of those without the bit) become two shuffles of their
/// elements.
struct ExchangeStep {
  int bit;
  std::vector<int64_t> low, high;  ///< elements of both registers for register i, and for i + bit
};
/// Returns the steps that exchange the number of one of `registers` registers of `lanes` elements with the low bits of
/// an element's index: first those within 16 bytes, as processors have them, then those of whole groups of 16 bytes.
/// Both numbers are powers of two.
std::vector<ExchangeStep> exchange_steps(int registers, int lanes, int itemsize);
/// Returns the register that holds register `i` of the result after these steps.
int exchanged_register(int i, int registers, int itemsize);

}  // namespace tg
