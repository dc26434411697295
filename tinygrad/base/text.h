/// \file Text for people: colours, sizes, times, counts.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg {

/// ANSI colours in the order of their codes.
enum class Color : uint8_t { kBlack, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan, kWhite };

/// Returns `text` between the codes that switch a colour on and off; `text` alone under NO_COLOR.
std::string colored(std::string_view text, Color color, bool bright = false);
/// Returns `text` without colour codes.
std::string without_color(std::string_view text);
/// Returns the width on the terminal: code points outside of colour codes.
size_t printed_width(std::string_view text);
/// Returns `text` padded with spaces to `width` on the right (or left); colour codes take no room.
std::string pad_right(std::string_view text, size_t width);
std::string pad_left(std::string_view text, size_t width);

/// Returns the one of `known` with the smallest edit distance from `name`, ignoring case; empty when there is none to
/// choose.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

/// Returns whether `text` is UTF-8: no overlong forms, surrogates or code points above U+10FFFF.
bool is_utf8(std::string_view text);
/// Returns a part of a URI with %XX read as bytes. Anything else stays, and so does a text whose bytes are not UTF-8.
std::string percent_decoded(std::string_view text);

std::string human_bytes(double bytes);      ///< "512 B", "1.50 KB", "2.00 GB"; powers of 1000
std::string human_seconds(double seconds);  ///< "85.0 ns", "1.25 us", "3.00 ms", "12.3 s"
std::string human_count(double count);      ///< "950", "1.20 K", "3.40 M", "5.60 G", "7.00 T"

}  // namespace tg
