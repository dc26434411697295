/// \file Printing values as NumPy does, and one-line descriptions.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ostream>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/uop/eval.h"

namespace tg {
namespace {
constexpr int kPrecision = 8, kLineWidth = 75;
constexpr int64_t kSummaryAbove = 1000, kEdge = 3;

std::string digits(double v, bool single, std::chars_format format, int precision = -1) {
  char buf[512];
  auto put = [&](auto x) {
    return precision < 0 ? std::to_chars(buf, buf + sizeof buf, x, format)
                         : std::to_chars(buf, buf + sizeof buf, x, format, precision);
  };
  auto end = single ? put(static_cast<float>(v)).ptr : put(v).ptr;
  return std::string(buf, end);
}

/// Formats in fixed notation with as many decimals as needed, at most 8: "1.", "0.5".
std::string fixed(double v, bool single) {
  std::string s = digits(v, single, std::chars_format::fixed);
  size_t dot = s.find('.');
  if (dot != std::string::npos && s.size() - dot - 1 > kPrecision) {
    s = digits(v, false, std::chars_format::fixed, kPrecision);
    while (s.back() == '0') s.pop_back();
  }
  return s.find('.') == std::string::npos ? s + '.' : s;
}
std::string scientific(double v, bool single) {
  std::string s = digits(v, single, std::chars_format::scientific);
  size_t e = s.find('e'), dot = s.find('.');
  if (dot == std::string::npos) s.insert(e, ".");
  else if (e - dot - 1 > kPrecision) {
    s = digits(v, false, std::chars_format::scientific, kPrecision);
    e = s.find('e');
    while (s[e - 1] == '0') s.erase(--e, 1);
  }
  return s;
}

/// Returns the texts of all elements, padded to equal width.
std::vector<std::string> texts(const std::vector<ConstValue>& v, DType d) {
  std::vector<std::string> out;
  if (!d.is_float()) {
    for (const ConstValue& c : v)
      out.push_back(d.is_bool() ? (c.i ? "True" : "False") : [&] {
        std::string s;
        int128 n = c.i;
        bool neg = n < 0;
        do {
          s += static_cast<char>('0' + static_cast<int>(neg ? -(n % 10) : n % 10));
          n /= 10;
        } while (n);
        if (neg) s += '-';
        return std::string(s.rbegin(), s.rend());
      }());
  } else {
    bool single = d != dtypes::float64;
    double lo = INFINITY, hi = 0;
    for (const ConstValue& c : v)
      if (double a = std::abs(c.as_double()); std::isfinite(a) && a != 0) {
        lo = std::min(lo, a);
        hi = std::max(hi, a);
      }
    bool science = hi >= 1e8 || (hi > 0 && (lo < 1e-4 || hi / lo > 1000));
    size_t after = 0;
    for (const ConstValue& c : v) {
      double x = c.as_double();
      out.push_back(std::isnan(x)   ? "nan"
                    : std::isinf(x) ? (x < 0 ? "-inf" : "inf")
                    : science       ? scientific(x, single)
                                    : fixed(x, single));
      if (!std::isfinite(x)) continue;
      size_t dot = out.back().find('.'), end = science ? out.back().find('e') : out.back().size();
      after = std::max(after, end - dot - 1);
    }
    for (size_t i = 0; i < out.size(); i++) {
      if (!std::isfinite(v[i].as_double())) continue;
      size_t dot = out[i].find('.'), end = science ? out[i].find('e') : out[i].size();
      out[i].insert(end, after - (end - dot - 1), science ? '0' : ' ');
    }
  }
  size_t width = 0;
  for (const std::string& s : out) width = std::max(width, s.size());
  for (std::string& s : out) s.insert(0, width - s.size(), ' ');
  return out;
}
}  // namespace

std::string repr(const Tensor& t) {
  if (!t.defined()) return "Tensor()";
  return str("<Tensor ", t.shape(), ' ', t.dtype(), " on ", t.device(), t.is_realized() ? ", realized" : ", lazy",
             t.grad().defined() ? ", with grad>" : ">");
}

std::ostream& operator<<(std::ostream& os, const Tensor& t) {
  if (!t.defined()) return os << "Tensor()";
  DType d = t.stored_dtype();
  std::span<const std::byte> bytes = t.bytes();
  std::vector<int64_t> shape = t.shape().ints();
  size_t size = static_cast<size_t>(d.itemsize()), nd = shape.size();
  int64_t total = t.numel();
  bool summary = total > kSummaryAbove;
  if (total == 0) return os << "[]";
  // The displayed coordinates of each axis (-1: dots).
  std::vector<std::vector<int64_t>> shown(nd);
  for (size_t a = 0; a < nd; a++)
    for (int64_t i = 0; i < shape[a]; i++) {
      if (summary && shape[a] > 2 * kEdge && i == kEdge) {
        shown[a].push_back(-1);
        i = shape[a] - kEdge;
      }
      shown[a].push_back(i);
    }
  std::vector<int64_t> stride(nd, 1);
  for (size_t a = nd; a-- > 1;) stride[a - 1] = stride[a] * shape[a];
  // An odometer over the displayed coordinates; rows of dots count as one on their axis.
  std::vector<size_t> at(nd, 0);
  std::vector<ConstValue> values;
  auto next = [&](size_t from) {  // advances axis `from`; returns how many axes rolled over
    for (size_t a = from + 1; a-- > 0;) {
      if (++at[a] < shown[a].size()) return from - a;
      at[a] = 0;
    }
    return from + 1;
  };
  auto value_at = [&] {
    int64_t o = 0;
    for (size_t a = 0; a < nd; a++) o += shown[a][at[a]] * stride[a];
    return load_const(&bytes[static_cast<size_t>(o) * size], d);
  };
  auto dots_axis = [&]() -> int {
    for (size_t a = 0; a < nd; a++)
      if (shown[a][at[a]] < 0) return static_cast<int>(a);
    return -1;
  };
  if (nd == 0) {
    ConstValue v = load_const(bytes.data(), d);
    if (!d.is_float()) return os << texts({v}, d)[0];
    std::string s = texts({v}, d)[0];
    return os << (s.back() == '.' ? s + "0" : s);
  }
  for (bool more = true; more;) {
    int dots = dots_axis();
    if (dots < 0) values.push_back(value_at());
    more = next(dots < 0 ? nd - 1 : static_cast<size_t>(dots)) <= (dots < 0 ? nd - 1 : static_cast<size_t>(dots));
  }
  std::vector<std::string> text = texts(values, d);
  std::fill(at.begin(), at.end(), 0);
  size_t k = 0, column = 0;
  std::string out(nd, '[');
  column = nd;
  for (bool more = true; more;) {
    int dots = dots_axis();
    size_t axis = dots < 0 ? nd - 1 : static_cast<size_t>(dots);
    std::string word = dots < 0 ? text[k++] : "...";
    if (axis == nd - 1 && at[nd - 1] > 0) {
      if (column + 1 + word.size() > kLineWidth - nd) {
        while (out.back() == ' ') out.pop_back();
        out += '\n' + std::string(nd, ' ');
        column = nd;
      } else {
        out += ' ';
        column++;
      }
    }
    out += word;
    column += word.size();
    size_t rolled = next(axis);
    more = rolled <= axis;
    // `rolled` axes ended: close them, start a new line and open as many.
    if (!more) out += std::string(dots < 0 ? nd : axis + 1, ']');
    else if (axis < nd - 1 || rolled > 0) {
      size_t keep = axis + 1 - rolled;  // axes that stay open
      out += std::string(rolled, ']') + std::string(nd - keep, '\n') + std::string(keep, ' ');
      bool opens_dots = dots_axis() >= 0 && static_cast<size_t>(dots_axis()) < nd - 1;
      size_t opened = (opens_dots ? static_cast<size_t>(dots_axis()) + 1 : nd) - keep;
      out += std::string(opened, '[');
      column = keep + opened;
    }
  }
  return os << out;
}

}  // namespace tg
