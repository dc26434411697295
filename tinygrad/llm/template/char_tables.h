/// \file Properties of characters that categories do not tell.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tg::llm {

/// Returns whether a character is a digit that is not decimal, such as a superscript.
bool is_other_digit(uint32_t c);
/// Returns whether a letter stands for a number.
bool is_letter_number(uint32_t c);
/// Returns whether a character that is no letter of that case counts as one.
bool is_other_upper(uint32_t c);
bool is_other_lower(uint32_t c);
/// Returns the characters of an upper or title case that has several; empty for all others. They stand in `room`.
std::u32string_view long_upper(uint32_t c, std::u32string& room);
std::u32string_view long_title(uint32_t c, std::u32string& room);

}  // namespace tg::llm
