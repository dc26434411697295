/// \file Strings of templates: bytes, and which of them stand in the template itself. What a message says is never
/// trusted, whatever filters it goes through, so a tokenizer knows where special tokens may be.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/value.h"

namespace tg::llm {

struct Text {
  std::string bytes;
  std::vector<ByteRange> trusted;  ///< what stands in the template: sorted, apart
  bool markup = false;             ///< the filter `safe` or `escape` made it

  static Text of_template(std::string bytes);
  bool all_trusted() const;
  void append(const Text& other);
  void append(std::string_view untrusted);
  void append_trusted(std::string_view from_template);
  /// Returns the bytes [begin, end).
  Text slice(size_t begin, size_t end) const;
  /// Returns `made`, trusted where all of this is: what a filter made of the whole.
  Text derived(std::string made) const;
};

// ---- characters: bytes that are no UTF-8 count one each ----

/// Returns the code point at `at` and sets its length; 0xFFFD and 1 for a byte that is no UTF-8.
uint32_t char_at(std::string_view s, size_t at, size_t& length);
void append_char(std::string& out, uint32_t c);
size_t count_chars(std::string_view s);
/// Returns where the character of this number begins; the length where there are fewer.
size_t char_offset(std::string_view s, size_t number);
/// Returns whether Python's str.isspace holds.
bool is_space_char(uint32_t c);
bool is_alpha_char(uint32_t c);
bool is_digit_char(uint32_t c);
bool is_printable_char(uint32_t c);
bool is_numeric_char(uint32_t c);
bool is_upper_char(uint32_t c);
bool is_lower_char(uint32_t c);
bool is_title_char(uint32_t c);
std::string upper_text(std::string_view s);
std::string lower_text(std::string_view s);
std::string casefold_text(std::string_view s);
/// Makes the first letter of every word upper and the others lower case, as str.title does.
std::string title_text(std::string_view s);
std::string capitalize_text(std::string_view s);

// ---- how Python writes values ----

std::string python_real(double v);
std::string python_repr(std::string_view s);

}  // namespace tg::llm
