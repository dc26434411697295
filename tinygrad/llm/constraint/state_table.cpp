/// \file The sets of stacks a text can lead to, as numbered states.
#include "tinygrad/llm/constraint/state_table.h"

#include "tinygrad/base/error.h"

namespace tg::llm::constraint {

size_t StateTable::StacksHash::operator()(const Machine::Stacks& s) const {
  uint64_t h = 0x9E3779B97F4A7C15u + s.size();
  for (const int32_t v : s) {
    h = (h ^ static_cast<uint32_t>(v)) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  }
  return h;
}

StateTable::StateTable(const Grammar& grammar) : machine_(grammar), start_(number(machine_.start())) {}

int32_t StateTable::number(Machine::Stacks stacks) {
  if (stacks.empty()) return kDead;
  const auto [found, added] = numbers_.emplace(std::move(stacks), static_cast<int32_t>(stacks_.size()));
  if (added) {
    TG_CHECK(llm::ConstraintLimitError, stacks_.size() < kMaxStates, "[json_schema] a text has more than ", kMaxStates,
             " readings that must be told apart");
    stacks_.push_back(&found->first);
    row_of_.push_back(-1);
  }
  return found->second;
}

int32_t StateTable::step(int32_t state, uint8_t byte) {
  const auto s = static_cast<size_t>(state);
  if (row_of_[s] < 0 && rows_.size() < kMaxRows) {
    row_of_[s] = static_cast<int32_t>(rows_.size());
    rows_.emplace_back().fill(kUnknown);
  }
  if (row_of_[s] >= 0) {
    const int32_t known = rows_[static_cast<size_t>(row_of_[s])][byte];
    if (known != kUnknown) return known;
  }
  TG_CHECK(llm::ConstraintLimitError, machine_.frames() <= kMaxFrames, "[json_schema] a text has more than ",
           kMaxFrames, " readings that must be told apart");
  const int32_t to = number(machine_.step(*stacks_[s], byte));
  if (row_of_[s] >= 0) rows_[static_cast<size_t>(row_of_[s])][byte] = to;
  return to;
}

int32_t StateTable::import(const StateTable& from, int32_t state) {
  return number(machine_.import(from.machine_, from.stacks(state)));
}

}  // namespace tg::llm::constraint
