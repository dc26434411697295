#include "tinygrad/llm/tokenize/token_table.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"

namespace tg::llm {
namespace {

uint64_t seed() {
  static const uint64_t value = static_cast<uint64_t>(std::random_device{}()) << 32 | std::random_device{}();
  return value;
}

uint64_t hash_text(std::string_view s) {
  uint64_t h = seed() ^ (s.size() * 0x9e3779b97f4a7c15ull);
  size_t i = 0;
  for (; i + 8 <= s.size(); i += 8) {
    uint64_t w;
    std::memcpy(&w, s.data() + i, 8);
    h = mix64(h ^ w);
  }
  if (i < s.size()) {
    uint64_t w = 0;
    std::memcpy(&w, s.data() + i, s.size() - i);
    h = mix64(h ^ w);
  }
  return h;
}

/// Returns the power of two that holds `n` entries at most half full.
size_t slots_for(size_t n) {
  size_t slots = 16;
  while (slots < 2 * n) slots *= 2;
  return slots;
}

}  // namespace

TokenTable::TokenTable(size_t tokens) : slots_(slots_for(tokens)) { entries_.reserve(tokens); }

bool TokenTable::add(std::string_view text, int32_t id) {
  TG_CHECK(FormatError, text.size() < (size_t(1) << 31), "[tokenizer] got a token of ", text.size(), " bytes");
  if (slots_.size() < 2 * (entries_.size() + 1)) grow();
  const uint64_t h = hash_text(text);
  const size_t mask = slots_.size() - 1;
  size_t i = h & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    const Entry& e = entries_[slots_[i] - 1];
    if (e.hash == h && this->text(e) == text) return false;
  }
  entries_.push_back({texts_.size(), h, static_cast<uint32_t>(text.size()), id});
  texts_ += text;
  slots_[i] = static_cast<uint32_t>(entries_.size());
  longest_ = std::max(longest_, text.size());
  return true;
}

int32_t TokenTable::find(std::string_view text) const {
  if (text.size() > longest_) return -1;
  const uint64_t h = hash_text(text);
  const size_t mask = slots_.size() - 1;
  for (size_t i = h & mask; slots_[i] != 0; i = (i + 1) & mask) {
    const Entry& e = entries_[slots_[i] - 1];
    if (e.hash == h && this->text(e) == text) return e.id;
  }
  return -1;
}

void TokenTable::grow() {
  std::vector<uint32_t> slots(slots_.size() * 2);
  const size_t mask = slots.size() - 1;
  for (size_t k = 0; k < entries_.size(); k++) {
    size_t i = entries_[k].hash & mask;
    while (slots[i] != 0) i = (i + 1) & mask;
    slots[i] = static_cast<uint32_t>(k + 1);
  }
  slots_ = std::move(slots);
}

MergeTable::MergeTable(size_t merges) : slots_(slots_for(merges)), mask_(slots_.size() - 1) {}

size_t MergeTable::slot_of(uint64_t key) const {
  key = (key ^ seed()) * 0xff51afd7ed558ccdull;
  return (key ^ key >> 32) & mask_;
}

bool MergeTable::add(int32_t left, int32_t right, Merge merge) {
  TG_ASSERT(2 * (count_ + 1) <= slots_.size(), "more merges than were announced");
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  size_t i = slot_of(key);
  for (; slots_[i].merge.id >= 0; i = (i + 1) & mask_)
    if (slots_[i].key == key) return false;
  slots_[i] = {key, merge};
  count_++;
  return true;
}

namespace {
size_t edge_slot(uint64_t key, size_t mask) {
  key = (key ^ seed()) * 0xff51afd7ed558ccdull;
  return (key ^ key >> 32) & mask;
}
}  // namespace

uint32_t PrefixTrie::child(uint32_t node, unsigned char byte) const {
  const uint64_t key = (static_cast<uint64_t>(node) << 8 | byte) + 1;
  const size_t mask = edges_.size() - 1;
  for (size_t i = edge_slot(key, mask); edges_[i].to != 0; i = (i + 1) & mask)
    if (edges_[i].from == static_cast<uint32_t>(key) && edges_[i].high == key >> 32) return edges_[i].to;
  return 0;
}

bool PrefixTrie::add(std::string_view text, int32_t id) {
  TG_ASSERT(!text.empty() && id >= 0, "an empty text or no id");
  begins_[static_cast<unsigned char>(text[0])] = true;
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      if (edges_.size() < 2 * size_t(nodes_ + 1)) grow();
      TG_CHECK(FormatError, nodes_ < (1u << 31), "[tokenizer] got a vocabulary of too many bytes");
      next = nodes_++;
      ids_.push_back(-1);
      const uint64_t key = (static_cast<uint64_t>(node) << 8 | byte) + 1;
      const size_t mask = edges_.size() - 1;
      size_t i = edge_slot(key, mask);
      while (edges_[i].to != 0) i = (i + 1) & mask;
      edges_[i] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), next};
    }
    node = next;
  }
  if (ids_[node] >= 0) return false;
  ids_[node] = id;
  return true;
}

void PrefixTrie::grow() {
  std::vector<Edge> edges(edges_.size() * 2);
  const size_t mask = edges.size() - 1;
  for (const Edge& e : edges_) {
    if (e.to == 0) continue;
    size_t i = edge_slot(static_cast<uint64_t>(e.high) << 32 | e.from, mask);
    while (edges[i].to != 0) i = (i + 1) & mask;
    edges[i] = e;
  }
  edges_ = std::move(edges);
}

}  // namespace tg::llm
