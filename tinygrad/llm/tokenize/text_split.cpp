#include "tinygrad/llm/tokenize/text_split.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

/// Collects the stretches of one span, told apart as matches and what lies between them, into words.
class Collector {
 public:
  Collector(std::vector<TextSpan>& out, SplitBehavior behavior) : out_(out), behavior_(behavior) {}
  void begin() {
    fresh_ = true;
    last_match_ = false;
  }
  void add(size_t from, size_t to, bool match) {
    if (from == to) return;
    const TextSpan span{static_cast<uint32_t>(from), static_cast<uint32_t>(to)};
    bool join = false;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!match) out_.push_back(span);
        return;
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kMergedWithPrevious: join = match && !last_match_; break;
      case SplitBehavior::kMergedWithNext: join = last_match_ && !match; break;
      case SplitBehavior::kContiguous: join = match == last_match_; break;
    }
    if (join && !fresh_) out_.back().end = span.end;
    else out_.push_back(span);
    fresh_ = false;
    last_match_ = match;
  }

 private:
  std::vector<TextSpan>& out_;
  SplitBehavior behavior_;
  bool fresh_ = true, last_match_ = false;
};

class PatternStep : public SplitStep {
 public:
  PatternStep(SplitPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void split(SplitText& t) const override {
    std::vector<TextSpan> out;
    out.reserve(t.spans.size() + t.text.size() / 4);
    Collector words(out, behavior_);
    SplitPattern::Search search(pattern_, {});
    for (const TextSpan span : t.spans) {
      // A word is all that the pattern sees: lookarounds stop at its ends.
      const std::string_view text = t.at(span);
      search.reset(text);
      words.begin();
      size_t done = 0, from = 0, begin = 0, end = 0;
      while (from <= text.size() && search.find(from, begin, end)) {
        words.add(span.begin + done, span.begin + begin, invert_);
        words.add(span.begin + begin, span.begin + end, !invert_);
        done = end;
        from = end > begin ? end : end < text.size() ? end + utf8_length(text[end]) : end + 1;
      }
      words.add(span.begin + done, span.end, invert_);
    }
    t.spans = std::move(out);
  }

 private:
  SplitPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ClassStep : public SplitStep {
 public:
  ClassStep(bool (*is_match)(char32_t), SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  void split(SplitText& t) const override {
    std::vector<TextSpan> out;
    Collector words(out, behavior_);
    for (const TextSpan span : t.spans) {
      const std::string_view text = t.at(span);
      words.begin();
      size_t done = 0;
      for (size_t i = 0; i < text.size();) {
        const size_t begin = i;
        if (!is_match_(next_char(text, i))) continue;
        words.add(span.begin + done, span.begin + begin, false);
        words.add(span.begin + begin, span.begin + i, true);
        done = i;
      }
      words.add(span.begin + done, span.end, false);
    }
    t.spans = std::move(out);
  }

 private:
  bool (*is_match_)(char32_t);
  SplitBehavior behavior_;
};

class MarkStep : public SplitStep {
 public:
  MarkStep(std::string mark, PrependMark prepend, bool split)
      : mark_(std::move(mark)), prepend_(prepend), split_(split) {}
  void split(SplitText& t) const override {
    std::string text;
    std::vector<TextSpan> out;
    for (const TextSpan span : t.spans) {
      const std::string_view word = t.at(span);
      size_t begin = text.size();
      const bool wanted =
          prepend_ == PrependMark::kAlways || (prepend_ == PrependMark::kFirst && t.first && span.begin == 0);
      if (wanted && !word.starts_with(' ') && !word.starts_with(mark_)) text += mark_;
      for (const char c : word) {
        if (c == ' ') text += mark_;
        else text += c;
      }
      if (!split_) {
        out.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(text.size())});
        continue;
      }
      while (begin < text.size()) {
        const size_t end = std::min(text.find(mark_, begin + 1), text.size());
        out.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
        begin = end;
      }
    }
    t.text = std::move(text);
    t.spans = std::move(out);
  }

 private:
  std::string mark_;
  PrependMark prepend_;
  bool split_;
};

class ByteLevelStep : public SplitStep {
 public:
  ByteLevelStep(bool add_prefix_space, bool spell) : add_prefix_space_(add_prefix_space), spell_(spell) {}
  void split(SplitText& t) const override {
    std::string text;
    for (TextSpan& span : t.spans) {
      const std::string_view word = t.at(span);
      const auto begin = static_cast<uint32_t>(text.size());
      const std::string_view prefix = add_prefix_space_ && !word.starts_with(' ') ? " " : "";
      if (spell_) {
        append_byte_spelling(text, prefix);
        append_byte_spelling(text, word);
      } else {
        text += prefix;
        text += word;
      }
      span = {begin, static_cast<uint32_t>(text.size())};
    }
    t.text = std::move(text);
  }

 private:
  bool add_prefix_space_, spell_;
};

/// The characters of byte-level vocabularies: bytes that print stand for themselves, the others for U+0100 and on.
std::array<char32_t, 256> byte_chars() {
  std::array<char32_t, 256> chars{};
  char32_t next = 256;
  for (char32_t b = 0; b < 256; b++) {
    const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    chars[b] = prints ? b : next++;
  }
  return chars;
}
const std::array<char32_t, 256> kByteChars = byte_chars();

/// The bytes of characters below 512, -1 for those that stand for none.
std::array<int16_t, 512> char_bytes() {
  std::array<int16_t, 512> bytes;
  bytes.fill(-1);
  const std::array<char32_t, 256> chars = byte_chars();
  for (size_t b = 0; b < 256; b++) bytes[chars[b]] = static_cast<int16_t>(b);
  return bytes;
}
const std::array<int16_t, 512> kCharBytes = char_bytes();

}  // namespace

constexpr std::string_view kGpt2PatternText =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kGpt2Pattern = kGpt2PatternText;

std::unique_ptr<SplitStep> split_at_pattern(SplitPattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<PatternStep>(std::move(pattern), behavior, invert);
}
std::unique_ptr<SplitStep> split_at_class(bool (*is_match)(char32_t), SplitBehavior behavior) {
  return std::make_unique<ClassStep>(is_match, behavior);
}
std::unique_ptr<SplitStep> split_at_marks(std::string mark, PrependMark prepend, bool split) {
  return std::make_unique<MarkStep>(std::move(mark), prepend, split);
}
std::unique_ptr<SplitStep> byte_level_step(bool add_prefix_space, bool spell) {
  return std::make_unique<ByteLevelStep>(add_prefix_space, spell);
}

void append_byte_spelling(std::string& out, std::string_view bytes) {
  for (const char b : bytes) append_utf8(out, kByteChars[static_cast<unsigned char>(b)]);
}

bool append_spelled_bytes(std::string& out, std::string_view spelling) {
  const size_t before = out.size();
  for (size_t i = 0; i < spelling.size();) {
    const char32_t c = next_char(spelling, i);
    if (c >= kCharBytes.size() || kCharBytes[c] < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(kCharBytes[c]);
  }
  return true;
}

}  // namespace tg::llm
