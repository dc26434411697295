/// \file Reader of tar headers.
#include "tinygrad/io/tar.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

constexpr uint64_t kBlock = 512, kMaxName = 4096, kMaxPax = 1 << 16;

/// Returns the text of a fixed field: up to its first NUL.
std::string_view field(const uint8_t* header, size_t at, size_t size) {
  const char* p = reinterpret_cast<const char*>(header + at);
  return {p, static_cast<size_t>(std::find(p, p + size, '\0') - p)};
}

/// Returns octal digits between blanks, or base 256 when the first bit is set; nothing when it is neither or does not
/// fit.
std::optional<uint64_t> number(const uint8_t* header, size_t at, size_t size) {
  const uint8_t* p = header + at;
  if (p[0] & 0x80) {
    if (p[0] != 0x80) return {};
    uint64_t v = 0;
    for (size_t i = 1; i < size; i++) {
      if (v >> 55) return {};
      v = v << 8 | p[i];
    }
    return v;
  }
  std::string_view text = field(header, at, size);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v, 8);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return v;
}

/// Returns the sum of the header's bytes, its own field counted as blanks.
uint64_t checksum(const uint8_t* header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; i++) sum += i >= 148 && i < 156 ? ' ' : header[i];
  return sum;
}

struct Extended {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
};

/// Parses records "LENGTH KEY=VALUE
/// " of a pax header; only path and size are used.
bool parse_pax(std::string_view text, Extended& out) {
  while (!text.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<size_t>(end - text.data());
    if (error != std::errc() || length > text.size() || length < digits + 3 || text[digits] != ' ' ||
        text[length - 1] != '\n')
      return false;
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") {
      if (value.size() > kMaxName) return false;
      out.path = std::string(value);
    } else if (key == "size") {
      uint64_t size = 0;
      const auto [last, bad] = std::from_chars(value.data(), value.data() + value.size(), size);
      if (bad != std::errc() || last != value.data() + value.size()) return false;
      out.size = size;
    }
    text.remove_prefix(length);
  }
  return true;
}

/// Returns the size a header states, whose own bytes are checked.
uint64_t stated_size(const uint8_t* header, uint64_t at, std::string_view name) {
  TG_CHECK(FormatError, number(header, 148, 8) == checksum(header), "[tar] ", name, ": corrupt header at byte ", at);
  const std::optional<uint64_t> size = number(header, 124, 12);
  TG_CHECK(FormatError, size, "[tar] ", name, ": header at byte ", at, " has no size");
  return *size;
}

/// Returns the path in a header: name, and in ustar archives the prefix before it.
std::string stated_path(const uint8_t* header) {
  const std::string_view file = field(header, 0, 100);
  const bool ustar = field(header, 257, 5) == "ustar" && header[262] == 0;
  const std::string_view prefix = ustar ? field(header, 345, 155) : std::string_view();
  return prefix.empty() ? std::string(file) : std::string(prefix) + "/" + std::string(file);
}

/// Reads the content of an extended header: a long name ('L') or pax records ('x').
void read_extended(uint8_t type, std::string_view content, Extended& out, uint64_t at, std::string_view name) {
  TG_CHECK(FormatError, content.size() <= kMaxPax, "[tar] ", name, ": extended header at byte ", at, " has ",
           content.size(), " bytes, expected at most ", kMaxPax);
  const bool good = type == 'x' ? parse_pax(content, out) : content.size() <= kMaxName;
  TG_CHECK(FormatError, good, "[tar] ", name, ": corrupt extended header at byte ", at);
  if (type == 'L') out.path = std::string(content.substr(0, content.find('\0')));
}

}  // namespace

std::vector<TarEntry> tar_entries(std::span<const uint8_t> archive, std::string_view name) {
  std::vector<TarEntry> entries;
  Extended next;  // values of an extended header for the file after it
  uint64_t at = 0;
  const uint64_t total = archive.size();
  TG_CHECK(FormatError, total >= kBlock, "[tar] ", name, ": got ", total, " bytes, expected a header of 512");
  while (total - at >= kBlock) {
    const uint8_t* header = archive.data() + at;
    if (std::all_of(header, header + kBlock, [](uint8_t b) { return b == 0; })) return entries;  // end of archive
    const uint64_t stated = stated_size(header, at, name);
    const uint8_t type = header[156];
    const bool extension = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    const uint64_t size = extension ? stated : next.size.value_or(stated);
    at += kBlock;
    TG_CHECK(FormatError, size <= total - at, "[tar] ", name, ": entry at byte ", at - kBlock, " has ", size,
             " bytes, ", total - at, " remain");
    if (type == 'L' || type == 'x') {
      read_extended(type, {reinterpret_cast<const char*>(archive.data() + at), size}, next, at - kBlock, name);
    } else if (!extension) {
      if (type == '0' || type == '\0') entries.push_back({next.path.value_or(stated_path(header)), at, size});
      next = {};
    }
    const uint64_t padded = (size + kBlock - 1) / kBlock * kBlock;  // size <= total: cannot wrap
    at += std::min(padded, total - at);
  }
  TG_CHECK(FormatError, at == total, "[tar] ", name, ": ", total - at, " bytes follow the last entry");
  return entries;
}

}  // namespace tg::io
