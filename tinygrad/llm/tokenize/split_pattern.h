/// \file Regular expressions of tokenizers, published for Oniguruma, run by PCRE2 with Unicode properties and limits.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tg::llm {

inline constexpr size_t kMaxPatternBytes = size_t(1) << 14;
/// Steps of backtracking of one match, and KiB of memory: what a pattern may cost where the compiled form counts them.
inline constexpr uint32_t kMatchSteps = 20'000'000, kMatchKiB = 256 * 1024;

class SplitPattern {
 public:
  /// Compiles a pattern. FormatError naming `name` for one that is too long or not a regular expression.
  SplitPattern(std::string_view pattern, std::string_view name);

  /// Looks for matches in one text.
  class Search {
   public:
    Search(const SplitPattern& pattern, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    /// Finds the first match that begins at text[from] or later; false when there is none. ValueError for one that
    /// costs more than kMatchSteps.
    bool find(size_t from, size_t& begin, size_t& end);
    /// Looks at another text from now on.
    void reset(std::string_view text) { text_ = text; }

   private:
    struct State;
    const SplitPattern& pattern_;
    std::string_view text_;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

/// Returns an expression that matches just this text.
std::string quoted_pattern(std::string_view text);

}  // namespace tg::llm
