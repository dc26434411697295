/// \file Headers of .npy files.
#include "tinygrad/io/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/base/math.h"

namespace tg::io {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr uint64_t kAlignment = 64;

const std::pair<std::string_view, DType> kTypes[] = {
    {"b1", dtypes::bool_},  {"i1", dtypes::int8},    {"u1", dtypes::uint8},   {"i2", dtypes::int16},
    {"u2", dtypes::uint16}, {"i4", dtypes::int32},   {"u4", dtypes::uint32},  {"i8", dtypes::int64},
    {"u8", dtypes::uint64}, {"f2", dtypes::float16}, {"f4", dtypes::float32}, {"f8", dtypes::float64}};

/// Names the kinds of arrays that are known and refused.
std::string_view refused_kind(char code) {
  switch (code) {
    case 'O': return "objects, which would have to be unpickled";
    case 'V': return "records or raw bytes";
    case 'S':
    case 'a':
    case 'U': return "texts";
    case 'M':
    case 'm': return "times";
    case 'c': return "complex numbers";
    default: return "an unknown type";
  }
}

/// Reads the one dictionary a header holds: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, uint64_t at, std::string_view what) : text_(text), what_(what), base_(at) {}

  NpyHeader parse() {
    NpyHeader out;
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      const uint64_t at = at_;
      const std::string_view key = quoted();
      expect(':');
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      check(which >= 0, at, "the key '", key, "', expected descr, fortran_order and shape");
      check(!std::exchange(seen[which], true), at, "the key '", key, "' twice");
      if (which == 0) descr(out);
      if (which == 1) out.fortran_order = boolean();
      if (which == 2) shape(out);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    check(seen[0] && seen[1] && seen[2], 0, "a header without descr, fortran_order or shape");
    skip_blanks();
    check(at_ == text_.size(), at_, "something behind the dictionary");
    return out;
  }

 private:
  template <class... A> void check(bool ok, uint64_t at, const A&... got) const {
    if (!ok) [[unlikely]]
      throw FormatError(str(what_, ": byte ", base_ + at, ": got ", got...));
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) at_++;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    const bool there = accept(c);
    check(there, at_, "a header that is no dictionary as NumPy writes it, expected '", c, "'");
  }
  std::string_view quoted() {
    skip_blanks();
    check(at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"'), at_, "no text in quotes");
    const size_t end = text_.find(text_[at_], at_ + 1);
    check(end != std::string_view::npos, at_, "a text without its closing quote");
    const std::string_view out = text_.substr(at_ + 1, end - at_ - 1);
    check(out.find('\\') == std::string_view::npos, at_, "a text with an escape");
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    skip_blanks();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    check(false, at_, "a fortran_order that is neither True nor False");
    return false;
  }
  void descr(NpyHeader& out) {
    skip_blanks();
    const uint64_t at = at_;
    check(at_ < text_.size() && text_[at_] != '[' && text_[at_] != '(', at,
          "an array of records, expected one of numbers");
    const std::string_view type = quoted();
    check(type.size() >= 2, at, "the type '", type, "'");
    const bool ordered = type[0] == '<' || type[0] == '>' || type[0] == '|' || type[0] == '=';
    const std::string_view name = type.substr(ordered ? 1 : 0);
    const std::optional<DType> known = npy_type(name);
    check(known.has_value(), at, "the type '", type, "', ", refused_kind(name.empty() ? ' ' : name[0]));
    out.dtype = *known;
    out.big_endian = type[0] == '>' && out.dtype.itemsize() > 1;
  }
  void shape(NpyHeader& out) {
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      int64_t n = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
      check(error == std::errc() && n >= 0, at_, "a shape with something else than sizes of 0 or more");
      check(out.shape.size() < kMaxNpyAxes, at_, "more than ", kMaxNpyAxes, " axes");
      at_ = static_cast<size_t>(end - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') at_++;  // as Python 2 wrote numbers
      out.shape.push_back(n);
      if (accept(',')) continue;
      expect(')');
      break;
    }
  }

  std::string_view text_, what_;
  uint64_t base_;
  size_t at_ = 0;
};

}  // namespace

std::optional<DType> npy_type(std::string_view name) {
  for (const auto& [text, dtype] : kTypes)
    if (text == name) return dtype;
  return {};
}

NpyHeader parse_npy(std::span<const uint8_t> file, std::string_view what) {
  const auto* text = reinterpret_cast<const char*>(file.data());
  TG_CHECK(FormatError, file.size() >= 10 && std::string_view(text, kMagic.size()) == kMagic, what, ": got ",
           file.size(), " bytes that do not begin like a .npy file");
  const unsigned major = file[6], minor = file[7];
  TG_CHECK(FormatError, major >= 1 && major <= 3 && minor == 0, what, ": byte 6: got version ", major, ".", minor,
           ", expected 1.0, 2.0 or 3.0");
  const uint64_t start = major == 1 ? 10 : 12;
  TG_CHECK(FormatError, file.size() >= start, what, ": byte 8: got a file that ends before the length of its header");
  uint64_t length = uint64_t{file[8]} | uint64_t{file[9]} << 8;
  if (major > 1) length |= uint64_t{file[10]} << 16 | uint64_t{file[11]} << 24;
  TG_CHECK(FormatError, length <= kMaxNpyHeader && length <= file.size() - start, what, ": byte 8: got a header of ",
           length, " bytes in a file of ", file.size(), ", expected at most ", kMaxNpyHeader);
  NpyHeader out = HeaderParser({text + start, static_cast<size_t>(length)}, start, what).parse();
  out.data_start = start + length;
  const std::optional<int64_t> count = checked_prod(out.shape);
  const std::optional<int64_t> bytes = count ? checked_mul<int64_t>(*count, out.dtype.itemsize()) : std::nullopt;
  const uint64_t left = file.size() - out.data_start;
  TG_CHECK(FormatError, bytes && static_cast<uint64_t>(*bytes) == left, what, ": byte ", out.data_start, ": got ", left,
           " bytes of elements, expected ", bytes ? str(*bytes) : "more than there can be", " for the header's shape");
  out.bytes = left;
  return out;
}

std::string npy_header(DType dtype, std::span<const int64_t> shape) {
  const auto* known =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.second == dtype; });
  TG_CHECK(DTypeError, known != std::end(kTypes), "[npy] got ", dtype, ", a type NumPy has not: cast it");
  std::string sizes;
  for (size_t i = 0; i < shape.size(); i++)
    sizes += str(i ? " " : "", shape[i], i + 1 < shape.size() || shape.size() == 1 ? "," : "");
  std::string text = str("{'descr': '", dtype.itemsize() == 1 ? '|' : '<', known->first,
                         "', 'fortran_order': False, 'shape': (", sizes, "), }");
  const uint64_t unpadded = kMagic.size() + 4 + text.size() + 1;
  text.append(round_up(unpadded, kAlignment) - unpadded, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());  // 64 axes of 20 digits are far below 2^16
  std::string out(kMagic);
  out += {'\x01', '\0', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return out + text;
}

}  // namespace tg::io
