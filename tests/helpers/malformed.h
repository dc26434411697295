/// \file Damage to valid files, the same for every number: fields that lie, parts that overlap, repeat or are missing,
/// and text that nests or counts too far.
#pragma once
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tg::test {

/// Changes bytes in ways that parsers are known to fall for. The same seed makes the same changes on every machine.
class Damage {
 public:
  explicit Damage(uint64_t seed) : random_(seed) {}

  /// Returns `file` with one to four changes; parts of `other`, another valid file, may get into it.
  std::string operator()(std::string file, const std::string& other) {
    for (uint64_t edits = 1 + below(4); edits > 0; edits--) edit(file, other);
    if (file.size() > kMostBytes) file.resize(kMostBytes);
    return file;
  }

 private:
  static constexpr size_t kMostBytes = 1 << 20;

  /// Returns a number from 0 to n - 1. Not std::uniform_int_distribution: libraries differ in it.
  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }

  /// Returns a place: half of them in the first or last bytes, where headers and directories are.
  size_t place(const std::string& file) {
    constexpr size_t kHeader = 300, kEnd = 100;
    const size_t n = file.size();
    switch (below(4)) {
      case 0: return below(std::min(n, kHeader));
      case 1: return n - 1 - below(std::min(n, kEnd));
      default: return below(n);
    }
  }

  void edit(std::string& file, const std::string& other) {
    if (file.empty()) {
      file = other.substr(0, below(other.size() + 1));
      return;
    }
    switch (below(12)) {
      case 0:
      case 1:
      case 2: return integer(file);
      case 3: return number_in_text(file);
      case 4: return file.resize(one_in(2) ? place(file) : file.size() - std::min<size_t>(file.size(), 1 + below(9)));
      case 5: return copy_range(file);
      case 6: return static_cast<void>(file.erase(place(file), 1 + below(one_in(2) ? 8 : file.size())));
      case 7: return repeat(file);
      case 8: return splice(file, other);
      case 9: return nest(file);
      case 10: return string_in_text(file);
      default: file[place(file)] ^= static_cast<char>(1 << below(8));
    }
  }

  /// Overwrites an integer of 1, 2, 4 or 8 bytes, in either byte order.
  void integer(std::string& file) {
    const size_t width = size_t{1} << below(4), at = place(file);
    if (at + width > file.size()) return;
    uint64_t old = 0;
    std::memcpy(&old, file.data() + at, width);
    const uint64_t size = file.size();
    const uint64_t values[] = {0,          1,        2,          0x7f,       0x80,       0xff,       0x7fff,
                               0xffff,     0x10000,  0x7fffffff, 0x80000000, 1 << 20,    0xffffffff, 0x7fffffffffffffff,
                               1ULL << 63, ~0ULL,    1ULL << 62, 1ULL << 61, 1ULL << 40, size,       size - 1,
                               size + 1,   size / 2, size - at,  at,         old + 1,    old - 1,    old * 2,
                               ~old,       0 - size, old << 32,  1000000000};
    uint64_t v = values[below(std::size(values))];
    unsigned char raw[8];
    std::memcpy(raw, &v, 8);
    if (one_in(3)) std::reverse(raw, raw + width);
    std::memcpy(file.data() + at, raw, width);
  }

  /// Replaces a decimal number of a text.
  void number_in_text(std::string& file) {
    static constexpr const char* kNumbers[] = {"0",
                                               "-1",
                                               "-0",
                                               "1",
                                               "2147483648",
                                               "4294967296",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "-9223372036854775809",
                                               "18446744073709551616",
                                               "1e999",
                                               "-1e308",
                                               "0.5",
                                               "NaN",
                                               "1e5",
                                               "007",
                                               "null",
                                               "[]",
                                               "{}",
                                               "\"1\"",
                                               "99999999999999999999999999999999",
                                               "true"};
    size_t begin = place(file);
    while (begin < file.size() && !std::isdigit(static_cast<unsigned char>(file[begin]))) begin++;
    if (begin == file.size()) return;
    size_t end = begin;
    while (end < file.size() && std::isdigit(static_cast<unsigned char>(file[end]))) end++;
    file.replace(begin, end - begin, kNumbers[below(std::size(kNumbers))]);
  }

  /// Replaces what stands between two quotation marks.
  void string_in_text(std::string& file) {
    const size_t begin = file.find('"', place(file));
    if (begin == std::string::npos) return integer(file);
    const size_t end = file.find('"', begin + 1);
    if (end == std::string::npos) return;
    const std::string texts[] = {"",
                                 "..",
                                 "/etc/passwd",
                                 "../../x",
                                 "a/b",
                                 std::string(1, '\0'),
                                 "\\ud800",
                                 "\\u0000",
                                 "\xff\xfe",
                                 std::string(below(100000), 'a'),
                                 "{{ x }}",
                                 "<0x-1>",
                                 "x\\n\x1b[2J",
                                 "__metadata__",
                                 "F64",
                                 "O",
                                 "I8",
                                 "cposix\nsystem\n",
                                 "model.safetensors"};
    file.replace(begin + 1, end - begin - 1, texts[below(std::size(texts))]);
  }

  /// Writes a part of the file over another part of it, so that tables name things twice or overlap.
  void copy_range(std::string& file) {
    const size_t from = place(file), n = std::min<size_t>(file.size() - from, 1 + below(one_in(2) ? 16 : 512));
    const std::string part = file.substr(from, n);
    const size_t to = place(file);
    if (one_in(2)) file.insert(to, part);
    else file.replace(to, std::min(n, file.size() - to), part.substr(0, file.size() - to));
  }

  /// Repeats a part many times.
  void repeat(std::string& file) {
    const size_t from = place(file), n = std::min<size_t>(file.size() - from, 1 + below(one_in(2) ? 8 : 200));
    const std::string part = file.substr(from, n);
    std::string many;
    for (uint64_t i = 1 + below(one_in(4) ? 20000 : 50); i > 0 && many.size() < kMostBytes / 4; i--) many += part;
    file.insert(from, many);
  }

  void splice(std::string& file, const std::string& other) {
    if (other.empty()) return;
    const size_t from = below(other.size());
    file.insert(place(file), other.substr(from, 1 + below(300)));
  }

  /// Inserts openings without end: brackets, marks of pickles, lists of GGUF.
  void nest(std::string& file) {
    static constexpr std::string_view kOpenings[] = {
        "[", "{\"a\":", "(", "]", "{% if x %}", "{{ (", "\x85", "}", std::string_view("\t\0\0\0\1\0\0\0\0\0\0\0", 12)};
    const std::string_view opening = kOpenings[below(std::size(kOpenings))];
    std::string many;
    for (uint64_t i = 1 + below(one_in(3) ? 50000 : 200); i > 0 && many.size() < kMostBytes / 4; i--) many += opening;
    file.insert(place(file), many);
  }

  std::mt19937_64 random_;
};

}  // namespace tg::test
