/// \file Tables of a vocabulary: text -> token, pair of tokens -> merge, the tokens that begin at a place of a text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg::llm {

/// Tokens by their text. Hashes are seeded by the process, so that no file can choose keys that collide.
class TokenTable {
 public:
  explicit TokenTable(size_t tokens = 0);
  /// Adds a token; false, and no change, when its text is there already.
  bool add(std::string_view text, int32_t id);
  /// Returns the token with this text, or -1.
  int32_t find(std::string_view text) const;
  size_t size() const { return entries_.size(); }
  size_t longest() const { return longest_; }  ///< bytes of the longest text

 private:
  struct Entry {
    uint64_t begin, hash;
    uint32_t size;
    int32_t id;
  };
  void grow();
  std::string_view text(const Entry& e) const { return std::string_view(texts_).substr(e.begin, e.size); }
  std::string texts_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  ///< index of an entry plus one, 0: free
  size_t longest_ = 0;
};

/// What two neighbours become, and how early: the smallest rank of a word is merged first.
struct Merge {
  uint32_t rank;
  int32_t id;  ///< -1: they stay apart
};

/// Merges by the pair of tokens.
class MergeTable {
 public:
  explicit MergeTable(size_t merges = 0);
  /// Adds a merge; false, and no change, when the pair has one.
  bool add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].merge.id < 0 || slots_[i].key == key) return slots_[i].merge;
    }
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge{0, -1};
  };
  size_t slot_of(uint64_t key) const;
  std::vector<Slot> slots_;
  size_t mask_, count_ = 0;
};

/// A trie of texts: which of them begin at a place of a text, the shortest first.
class PrefixTrie {
 public:
  /// Adds a text that is not empty; false, and no change, when it is there already.
  bool add(std::string_view text, int32_t id);
  bool empty() const { return nodes_ == 1; }
  /// Calls `found(bytes, id)` for each text that `at` begins with.
  template <class F> void for_each_prefix(std::string_view at, F&& found) const {
    if (at.empty() || !begins_[static_cast<unsigned char>(at[0])]) return;
    uint32_t node = 0;
    for (size_t i = 0; i < at.size(); i++) {
      node = child(node, static_cast<unsigned char>(at[i]));
      if (node == 0) return;
      if (ids_[node] >= 0) found(i + 1, ids_[node]);
    }
  }
  /// Returns the longest text that `at` begins with: its bytes, 0 when there is none, and its id.
  size_t longest_prefix(std::string_view at, int32_t& id) const {
    size_t best = 0;
    for_each_prefix(at, [&](size_t size, int32_t found) {
      best = size;
      id = found;
    });
    return best;
  }

 private:
  struct Edge {
    uint32_t from = 0;  ///< parent * 256 + byte + 1: the low 32 bits; `high` has the rest
    uint32_t high = 0, to = 0;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;
  void grow();
  std::vector<Edge> edges_{16};
  std::vector<int32_t> ids_{-1};
  uint32_t nodes_ = 1;
  bool begins_[256] = {};
};

}  // namespace tg::llm
