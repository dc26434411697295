/// \file The sets of stacks a text can lead to, as numbered states whose transitions are kept once they were computed:
/// a walk over a vocabulary goes through the same few states again and again.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tinygrad/llm/constraint/schema_grammar.h"

namespace tg::llm::constraint {

class StateTable {
 public:
  static constexpr int32_t kDead = -1;  ///< the text does not fit
  /// Most states whose transitions are kept, and most states and frames at all.
  static constexpr size_t kMaxRows = 1 << 14, kMaxStates = 1 << 18, kMaxFrames = 1 << 19;

  explicit StateTable(const Grammar& grammar);
  int32_t start() const { return start_; }
  /// Returns the state behind a byte. ConstraintLimitError when there are more than kMaxStates.
  int32_t step(int32_t state, uint8_t byte);
  /// Returns the number of a sorted set of stacks; kDead for none.
  int32_t number(Machine::Stacks stacks);
  const Machine::Stacks& stacks(int32_t state) const { return *stacks_[static_cast<size_t>(state)]; }
  /// Returns the state that stands for another table's, of the same grammar.
  int32_t import(const StateTable& from, int32_t state);
  /// Returns whether the table is so full that another should take its place.
  bool full() const { return stacks_.size() > kMaxStates / 2 || machine_.frames() > kMaxFrames / 2; }
  Machine& machine() { return machine_; }

 private:
  using Row = std::array<int32_t, 256>;
  static constexpr int32_t kUnknown = -2;
  struct StacksHash {
    size_t operator()(const Machine::Stacks& s) const;
  };

  Machine machine_;
  std::unordered_map<Machine::Stacks, int32_t, StacksHash> numbers_;
  std::vector<const Machine::Stacks*> stacks_;  // the keys of numbers_
  std::vector<int32_t> row_of_;                 // of each state; -1: none yet
  std::vector<Row> rows_;
  int32_t start_;
};

}  // namespace tg::llm::constraint
