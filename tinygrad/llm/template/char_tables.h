/// \file Properties of characters that categories do not tell.
#pragma once
#include <cstdint>
#include <string>

namespace tg::llm {

/// Returns whether a character is a digit that is not decimal, such as a superscript.
bool is_other_digit(uint32_t c);
/// Returns whether a letter stands for a number.
bool is_letter_number(uint32_t c);
/// Returns whether a character that is no letter of that case counts as one.
bool is_other_upper(uint32_t c);
bool is_other_lower(uint32_t c);
/// Returns the characters of an upper case that has several; empty for all others.
std::u32string long_upper(uint32_t c);

}  // namespace tg::llm
