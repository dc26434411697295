/// \file Pre-tokenizers: steps that split a text into the words a model sees.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/tokenize/split_pattern.h"

namespace tg::llm {

/// A stretch of text[begin, end).
struct TextSpan {
  uint32_t begin, end;
};
/// A text and the words found in it so far, in order.
struct SplitText {
  std::string text;
  std::vector<TextSpan> spans;
  bool first;  ///< the text begins where the input does

  std::string_view at(TextSpan s) const { return std::string_view(text).substr(s.begin, s.end - s.begin); }
};

/// What becomes of the matches of a pattern.
enum class SplitBehavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class SplitStep {
 public:
  virtual ~SplitStep() = default;
  virtual void split(SplitText& text) const = 0;
};

/// Splits at the matches of a pattern; `invert`: matches count as what lies between them, and that as matches.
std::unique_ptr<SplitStep> split_at_pattern(SplitPattern pattern, SplitBehavior behavior, bool invert = false);
/// Splits at characters of a class.
std::unique_ptr<SplitStep> split_at_class(bool (*is_match)(char32_t), SplitBehavior behavior);
/// Puts a space mark for each space, and one before the text where `prepend` says so; `split`: words begin at marks.
enum class PrependMark : uint8_t { kNever, kFirst, kAlways };
std::unique_ptr<SplitStep> split_at_marks(std::string mark, PrependMark prepend, bool split);
/// Writes words as byte-level vocabularies spell them (`spell`), a space before those that lack it
/// (`add_prefix_space`).
std::unique_ptr<SplitStep> byte_level_step(bool add_prefix_space, bool spell);

/// The expression of GPT-2, which byte-level pre-tokenizers use on their own.
extern const std::string_view kGpt2Pattern;

/// Appends bytes as byte-level vocabularies spell them: a printable character for each.
void append_byte_spelling(std::string& out, std::string_view bytes);
/// Appends the bytes that a token of a byte-level vocabulary spells; false, and nothing is appended, when a character
/// stands for no byte.
bool append_spelled_bytes(std::string& out, std::string_view spelling);

}  // namespace tg::llm
