/// \file Masks of a vocabulary, by state of a schema's machine. Replies under one schema and vocabulary share them, on
/// any threads.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tinygrad/llm/constraint/state_table.h"

namespace tg::llm::constraint {

/// Tokens in the order of their bytes, so that equal beginnings are followed once.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<uint32_t> sorted;  ///< numbers of tokens that have bytes
  std::vector<uint32_t> shared;  ///< bytes that each shares with the one before
  size_t words = 0;
  size_t longest = 0;
};

using Mask = std::vector<uint64_t>;

/// Where a text stands: a state of a table. The cache may replace its table by an empty one; what stands in the old one
/// is brought over when it is used again.
struct Position {
  std::shared_ptr<StateTable> table;
  int32_t state = StateTable::kDead;
};

class MaskCache {
 public:
  /// Most masks that are kept: 19 KB each for 150,000 tokens.
  static constexpr size_t kMaxMasks = 512;

  MaskCache(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);
  Position start();
  /// Returns the tokens that fit.
  std::shared_ptr<const Mask> mask(Position& at);
  /// Goes on by bytes; false, without a change, where they do not fit.
  bool accept(Position& at, std::string_view bytes);
  bool finished(const Position& at);
  bool exhausted(const Position& at);

 private:
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  /// What a string allows, whatever lies around it.
  struct TextMask {
    Mask bits;
    Ranges leaving;  ///< sorted tokens that end the string and go on
  };

  void refresh(Position& at);
  void add_text(int32_t stack, int32_t alone, Mask& bits);
  void walk(int32_t from, size_t begin, size_t end, Mask& bits, Ranges* leaving);
  bool leaves(int32_t state) const;

  std::mutex mutex_;
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const Vocabulary> v_;
  std::shared_ptr<StateTable> table_;
  std::unordered_map<int32_t, std::shared_ptr<const Mask>> masks_;
  std::unordered_map<int32_t, TextMask> texts_;
};

/// The caches of one schema, one for each vocabulary that it was used with lately.
class MaskCaches {
 public:
  static constexpr size_t kMaxVocabularies = 4;
  std::shared_ptr<MaskCache> of(const std::shared_ptr<const Grammar>& grammar,
                                const std::shared_ptr<const Vocabulary>& vocabulary);

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::shared_ptr<const Vocabulary>, std::shared_ptr<MaskCache>>> all_;
};

}  // namespace tg::llm::constraint
