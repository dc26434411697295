/// \file Masks of a vocabulary, by state of a schema's machine.
#include "tinygrad/llm/constraint/mask_cache.h"

#include <algorithm>

namespace tg::llm::constraint {

MaskCache::MaskCache(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), v_(std::move(vocabulary)), table_(std::make_shared<StateTable>(*grammar_)) {}

Position MaskCache::start() {
  const std::lock_guard lock(mutex_);
  return {table_, table_->start()};
}

/// Brings a position into the table of now, which is a new one where the old one is full.
void MaskCache::refresh(Position& at) {
  if (table_->full()) {
    table_ = std::make_shared<StateTable>(*grammar_);
    masks_.clear();
    texts_.clear();
  }
  if (at.table == table_) return;
  at.state = table_->import(*at.table, at.state);
  at.table = table_;
}

std::shared_ptr<const Mask> MaskCache::mask(Position& at) {
  const std::lock_guard lock(mutex_);
  refresh(at);
  const auto found = masks_.find(at.state);
  if (found != masks_.end()) return found->second;
  table_->machine().allow(grammar_->options.limits.mask_steps);
  auto bits = std::make_shared<Mask>(v_->words, 0);
  Machine::Stacks others;
  const Machine::Stacks stacks = table_->stacks(at.state);
  for (const int32_t stack : stacks) {
    int32_t alone = -1;
    if (table_->machine().lone_text(stack, static_cast<int64_t>(v_->longest), alone)) add_text(stack, alone, *bits);
    else others.push_back(stack);
  }
  if (!others.empty()) walk(table_->number(std::move(others)), 0, v_->sorted.size(), *bits, nullptr);
  if (masks_.size() >= kMaxMasks) masks_.clear();
  masks_.emplace(at.state, bits);
  return bits;
}

bool MaskCache::accept(Position& at, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  refresh(at);
  table_->machine().allow(grammar_->options.limits.mask_steps);
  int32_t state = at.state;
  for (const char c : bytes) {
    state = table_->step(state, static_cast<uint8_t>(c));
    if (state == StateTable::kDead) return false;
  }
  at.state = state;
  return true;
}

bool MaskCache::finished(const Position& at) {
  const std::lock_guard lock(mutex_);
  return at.table->machine().finished(at.table->stacks(at.state));
}

bool MaskCache::exhausted(const Position& at) {
  const std::lock_guard lock(mutex_);
  return at.table->machine().exhausted(at.table->stacks(at.state));
}

/// Adds what a string allows. Strings of one kind share the work; tokens that end the string go on as its surroundings
/// have it.
void MaskCache::add_text(int32_t stack, int32_t alone, Mask& bits) {
  if (texts_.size() >= kMaxMasks) texts_.clear();
  auto found = texts_.find(alone);
  if (found == texts_.end()) {  // kept once it is complete: a walk may pass a limit
    TextMask fresh{Mask(v_->words, 0), {}};
    walk(table_->number({alone}), 0, v_->sorted.size(), fresh.bits, &fresh.leaving);
    found = texts_.emplace(alone, std::move(fresh)).first;
  }
  const TextMask& t = found->second;
  for (size_t i = 0; i < bits.size(); i++) bits[i] |= t.bits[i];
  const int32_t from = table_->number({stack});
  for (const auto& [begin, end] : t.leaving) walk(from, begin, end, bits, nullptr);
}

bool MaskCache::leaves(int32_t state) const {
  const Machine::Stacks& stacks = table_->stacks(state);
  return std::binary_search(stacks.begin(), stacks.end(), Machine::kOutside);
}

/// Sets the bits of the sorted tokens [begin, end) that fit. Where a string is looked at alone, tokens that leave it
/// are listed instead.
void MaskCache::walk(int32_t from, size_t begin, size_t end, Mask& bits, Ranges* leaving) {
  std::vector<int32_t> path(v_->longest + 1, from);
  size_t valid = 0;  // bytes of the token before that fit
  for (size_t i = begin; i < end;) {
    const std::string& token = v_->tokens[v_->sorted[i]];
    size_t n = i == begin ? 0 : std::min<size_t>(v_->shared[i], valid);
    bool left = false;
    for (; n < token.size(); n++) {
      table_->machine().spend();
      const int32_t to = table_->step(path[n], static_cast<uint8_t>(token[n]));
      path[n + 1] = to;
      left = leaving && to != StateTable::kDead && leaves(to);
      if (to == StateTable::kDead || left) break;
    }
    valid = n;
    if (n == token.size()) {
      bits[v_->sorted[i] / 64] |= uint64_t{1} << (v_->sorted[i] % 64);
      i++;
      continue;
    }
    const size_t first = i++;
    while (i < end && v_->shared[i] > n) i++;  // they begin with what does not fit
    if (left) leaving->emplace_back(first, i);
  }
}

std::shared_ptr<MaskCache> MaskCaches::of(const std::shared_ptr<const Grammar>& grammar,
                                          const std::shared_ptr<const Vocabulary>& vocabulary) {
  const std::lock_guard lock(mutex_);
  for (const auto& [known, cache] : all_)
    if (known == vocabulary) return cache;
  if (all_.size() >= kMaxVocabularies) all_.erase(all_.begin());
  all_.emplace_back(vocabulary, std::make_shared<MaskCache>(grammar, vocabulary));
  return all_.back().second;
}

}  // namespace tg::llm::constraint
