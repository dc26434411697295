/// \file Text for people: colours, sizes, times, counts; digits of 128-bit integers.
#include "tinygrad/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "tinygrad/base/env.h"
#include "tinygrad/base/math.h"

namespace tg {

std::string colored(std::string_view text, Color color, bool bright) {
  if (env::NO_COLOR) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", (bright ? 90 : 30) + static_cast<int>(color), text);
}

std::string without_color(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      i = std::min(text.find('m', i), text.size());
    } else {
      out += text[i];
    }
  }
  return out;
}

size_t printed_width(std::string_view text) {
  const std::string plain = without_color(text);
  return static_cast<size_t>(
      std::count_if(plain.begin(), plain.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

static std::string fill(std::string_view text, size_t width) {
  const size_t used = printed_width(text);
  return std::string(used < width ? width - used : 0, ' ');
}
std::string pad_right(std::string_view text, size_t width) { return std::string(text) + fill(text, width); }
std::string pad_left(std::string_view text, size_t width) { return fill(text, width) + std::string(text); }

static size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); j++) row[j] = j;
  for (size_t i = 0; i < a.size(); i++) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); j++) {
      const size_t change =
          diagonal + (std::toupper(static_cast<unsigned char>(a[i])) != std::toupper(static_cast<unsigned char>(b[j])));
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const auto best =
      std::min_element(known.begin(), known.end(), [&](auto& a, auto& b) { return edits(name, a) < edits(name, b); });
  return best == known.end() ? std::string() : *best;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t size = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (size == 0 || size > text.size() - i) return false;
    uint32_t code = size == 1 ? lead : lead & (0x7fU >> size);
    for (size_t j = 1; j < size; j++) {
      const auto next = static_cast<uint8_t>(text[i + j]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 0x3fU);
    }
    static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
    i += size;
  }
  return true;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    unsigned byte = 0;
    const char* end = text.data() + i + 3;
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(text.data() + i + 1, end, byte, 16).ptr == end;
    out += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return is_utf8(out) ? out : std::string(text);
}

// Three significant digits, the unit chosen so that one to three are before the point.
static std::string scaled(double v, const char* const* units, size_t n) {
  size_t unit = 0;
  while (unit + 1 < n && std::abs(v) >= 999.5) {
    v /= 1000;
    unit++;
  }
  const double a = std::abs(v);
  return fmt::format("{:.{}f} {}", v, a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2, units[unit]);
}

std::string human_bytes(double bytes) {
  static constexpr std::array kUnits{"B", "KB", "MB", "GB", "TB", "PB"};
  if (std::abs(bytes) < 999.5) return fmt::format("{:.0f} B", bytes);
  return scaled(bytes, kUnits.data(), kUnits.size());
}

std::string human_seconds(double seconds) {
  static constexpr std::array kUnits{"ns", "us", "ms", "s"};
  return scaled(seconds * 1e9, kUnits.data(), kUnits.size());
}

std::string human_count(double count) {
  static constexpr std::array kUnits{"", "K", "M", "G", "T", "P"};
  if (std::abs(count) < 999.5) return fmt::format("{:.0f}", count);
  return scaled(count, kUnits.data(), kUnits.size());
}

std::string to_string(int128 v) {
  // Digits from the negative side, which can represent the minimum.
  std::string digits;
  const bool negative = v < 0;
  if (!negative) v = -v;
  do digits += static_cast<char>('0' - static_cast<int>(v % 10));
  while (v /= 10);
  if (negative) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

}  // namespace tg
