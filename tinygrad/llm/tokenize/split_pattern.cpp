#include "tinygrad/llm/tokenize/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tinygrad/base/error.h"

namespace tg::llm {
namespace {

/// The property White_Space as the inside of a class: \s of PCRE2 has U+180E too.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// Returns the index behind the class that begins at p[i] == '['.
size_t class_end(std::string_view p, size_t i) {
  int depth = 0;
  for (; i < p.size(); i++) {
    if (p[i] == '\\') {
      i++;
    } else if (p[i] == '[') {
      depth++;
    } else if (p[i] == ']' && --depth == 0) {
      return i + 1;
    }
  }
  return p.size();
}

/// Returns whether "{Name}" follows, the name of a script and not of a general category, which has one or two letters.
bool is_script(std::string_view p) {
  const size_t end = p.find('}');
  return p.starts_with('{') && end != p.npos && end > 3 && p[1] != '^' && p.substr(1, end - 1) != "Any";
}

/// Rewrites what Oniguruma reads differently: \s, \h (a hexadecimal digit), scripts, classes [A&&[^B]] (A without B).
std::string for_pcre2(std::string_view p) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < p.size(); i++) {
    if (p[i] == '\\' && i + 1 < p.size()) {
      const char c = p[++i];
      if (c == 's' || c == 'h') {
        const std::string_view inside = c == 's' ? kSpaces : "0-9a-fA-F";
        out += in_class ? std::string(inside) : str("[", inside, "]");
      } else if ((c == 'p' || c == 'P') && is_script(p.substr(i + 1))) {
        out += str("\\", c, "{sc:");  // PCRE2 would take the script extensions
        i++;
      } else if (c == 'S' && !in_class) {
        out += str("[^", kSpaces, "]");
      } else {
        out += '\\';
        out += c;
      }
      continue;
    }
    if (p[i] == '[' && !in_class) {
      const size_t end = class_end(p, i), both = p.substr(i, end - i).find("&&[^");
      if (both != p.npos && end >= i + 2 && p.substr(end - 2, 2) == "]]") {
        const size_t behind = i + both + 4;
        out += str("(?:(?![", for_pcre2(p.substr(behind, end - 2 - behind)), "])");
        out += str(for_pcre2(str(p.substr(i, both), "]")), ")");
        i = end - 1;
        continue;
      }
      in_class = true;
    } else if (p[i] == ']' && in_class && out.back() != '[' && !out.ends_with("[^")) {
      in_class = false;
    }
    out += p[i];
  }
  return out;
}

}  // namespace

struct SplitPattern::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  bool jit = false;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

struct SplitPattern::Search::State {
  pcre2_match_data* data = nullptr;
  ~State() { pcre2_match_data_free(data); }
};

SplitPattern::SplitPattern(std::string_view pattern, std::string_view name) {
  TG_CHECK(FormatError, pattern.size() <= kMaxPatternBytes, "[tokenizer] ", name, ": got a pattern of ", pattern.size(),
           " bytes, expected at most ", kMaxPatternBytes);
  auto made = std::make_shared<Code>();
  const std::string p = for_pcre2(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  // PCRE2_MULTILINE: $ is the end of a line too, as in Oniguruma's syntax. Callouts and \C are of no use here.
  made->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(p.data()), p.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (made->code == nullptr) {
    PCRE2_UCHAR text[128] = {};
    pcre2_get_error_message(error, text, sizeof text);
    throw FormatError(str("[tokenizer] ", name, ": got the pattern ", pattern.substr(0, 200), ": ",
                          reinterpret_cast<const char*>(text), " at ", at));
  }
  made->context = pcre2_match_context_create(nullptr);
  TG_CHECK(OutOfMemoryError, made->context != nullptr, "[tokenizer] no memory for a pattern");
  pcre2_set_match_limit(made->context, kMatchSteps);
  pcre2_set_heap_limit(made->context, kMatchKiB);
  made->jit = pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(made);
}

SplitPattern::Search::Search(const SplitPattern& pattern, std::string_view text)
    : pattern_(pattern), text_(text), state_(std::make_unique<State>()) {
  state_->data = pcre2_match_data_create(1, nullptr);
  TG_CHECK(OutOfMemoryError, state_->data != nullptr, "[tokenizer] no memory for a match");
}
SplitPattern::Search::~Search() = default;

bool SplitPattern::Search::find(size_t from, size_t& begin, size_t& end) {
  const Code& code = *pattern_.code_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  int rc = code.jit
               ? pcre2_jit_match(code.code, subject, text_.size(), from, 0, state_->data, code.context)
               : pcre2_match(code.code, subject, text_.size(), from, PCRE2_NO_UTF_CHECK, state_->data, code.context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps what it backtracks to on the heap
    rc = pcre2_match(code.code, subject, text_.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state_->data,
                     code.context);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    PCRE2_UCHAR text[128] = {};
    pcre2_get_error_message(rc, text, sizeof text);
    throw ValueError(str("[tokenizer] got a text of ", text_.size(),
                         " bytes that a pattern cannot split: ", reinterpret_cast<const char*>(text)));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_->data);
  begin = ends[0];
  end = ends[1];
  return from <= begin && begin <= end && end <= text_.size();  // \K in a lookaround may turn them around
}

std::string quoted_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<signed char>(c) > 0 && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') &&
        !(c >= 'a' && c <= 'z'))
      out += '\\';
    out += c;
  }
  return out;
}

}  // namespace tg::llm
