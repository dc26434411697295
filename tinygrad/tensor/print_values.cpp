/// \file Printing values as NumPy does, and one-line descriptions.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ostream>

#include "tinygrad/base/math.h"
#include "tinygrad/tensor/host_memory.h"
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

std::string not_finite(double x) { return std::isnan(x) ? "nan" : x < 0 ? "-inf" : "inf"; }

/// Returns where the digits after the point end.
size_t fraction_end(const std::string& s) { return std::min(s.find('e'), s.size()); }
size_t decimals(const std::string& s) { return fraction_end(s) - s.find('.') - 1; }

/// Returns the texts of floats, with their points and exponents in the same columns from the right.
std::vector<std::string> float_texts(const std::vector<ConstValue>& v, bool single) {
  double lo = INFINITY, hi = 0;
  for (const ConstValue& c : v)
    if (double a = std::abs(c.as_double()); std::isfinite(a) && a != 0) {
      lo = std::min(lo, a);
      hi = std::max(hi, a);
    }
  const bool science = hi >= 1e8 || (hi > 0 && (lo < 1e-4 || hi / lo > 1000));
  auto text = [&](double x) {
    if (!std::isfinite(x)) return not_finite(x);
    return science ? scientific(x, single) : fixed(x, single);
  };
  std::vector<std::string> out;
  for (const ConstValue& c : v) out.push_back(text(c.as_double()));
  auto has_point = [](const std::string& s) { return s.find('.') != std::string::npos; };
  size_t after = 0;
  for (const std::string& s : out)
    if (has_point(s)) after = std::max(after, decimals(s));
  for (std::string& s : out)
    if (has_point(s)) s.insert(fraction_end(s), after - decimals(s), science ? '0' : ' ');
  return out;
}

/// Returns the texts of all elements, padded to equal width.
std::vector<std::string> texts(const std::vector<ConstValue>& v, DType d) {
  std::vector<std::string> out;
  if (d.is_float()) out = float_texts(v, d != dtypes::float64);
  else
    for (const ConstValue& c : v) out.push_back(!d.is_bool() ? to_string(c.i) : c.i ? "True" : "False");
  size_t width = 0;
  for (const std::string& s : out) width = std::max(width, s.size());
  for (std::string& s : out) s.insert(0, width - s.size(), ' ');
  return out;
}

/// An odometer over the displayed coordinates of a tensor; a row of dots counts as one coordinate of its axis.
class Odometer {
 public:
  explicit Odometer(const std::vector<int64_t>& shape, bool summary)
      : shown_(shape.size()), at_(shape.size(), 0), stride_(shape.size(), 1) {
    for (size_t a = 0; a < shape.size(); a++)
      for (int64_t i = 0; i < shape[a]; i++) {
        if (summary && shape[a] > 2 * kEdge && i == kEdge) {
          shown_[a].push_back(kDots);
          i = shape[a] - kEdge;
        }
        shown_[a].push_back(i);
      }
    for (size_t a = shape.size(); a-- > 1;) stride_[a - 1] = stride_[a] * shape[a];
  }
  /// Returns the axis whose dots are at the current position; the number of axes where there are none.
  size_t dots_axis() const {
    size_t a = 0;
    while (a < at_.size() && shown_[a][at_[a]] != kDots) a++;
    return a;
  }
  bool at_dots() const { return dots_axis() < at_.size(); }
  /// Returns the axis to advance: that of the dots, else the last one.
  size_t axis() const { return std::min(dots_axis(), at_.size() - 1); }
  /// Advances `axis`; returns how many axes rolled over.
  size_t next(size_t axis) {
    for (size_t a = axis + 1; a-- > 0;) {
      if (++at_[a] < shown_[a].size()) return axis - a;
      at_[a] = 0;
    }
    return axis + 1;
  }
  bool in_row() const { return at_.back() > 0; }
  size_t offset() const {
    int64_t o = 0;
    for (size_t a = 0; a < at_.size(); a++) o += shown_[a][at_[a]] * stride_[a];
    return static_cast<size_t>(o);
  }

 private:
  static constexpr int64_t kDots = -1;
  std::vector<std::vector<int64_t>> shown_;  // coordinates of each axis
  std::vector<size_t> at_;
  std::vector<int64_t> stride_;
};

/// Lays out the texts of the displayed elements in nested brackets, with rows wrapped at the line width.
std::string layout(Odometer at, size_t nd, const std::vector<std::string>& text) {
  size_t k = 0, column = nd;
  std::string out(nd, '[');
  for (bool more = true; more;) {
    const bool dots = at.at_dots();
    const size_t axis = at.axis();
    const std::string word = dots ? "..." : text[k++];
    if (axis == nd - 1 && at.in_row()) {
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
    const size_t rolled = at.next(axis);
    more = rolled <= axis;
    // `rolled` axes ended: close them, start a new line and open as many.
    if (!more) out += std::string(dots ? axis + 1 : nd, ']');
    else if (axis < nd - 1 || rolled > 0) {
      const size_t keep = axis + 1 - rolled;  // axes that stay open
      out += std::string(rolled, ']') + std::string(nd - keep, '\n') + std::string(keep, ' ');
      const size_t opened = at.axis() + 1 - keep;
      out += std::string(opened, '[');
      column = keep + opened;
    }
  }
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
  const DType d = t.stored_dtype();
  const HostBytes memory = copied_bytes(t);
  const std::span<const std::byte> bytes = memory.bytes;
  const std::vector<int64_t> shape = t.shape().ints();
  const int64_t total = t.numel();
  if (total == 0) return os << "[]";
  if (shape.empty()) {
    const std::string s = texts({load_const(bytes.data(), d)}, d)[0];
    return os << (d.is_float() && s.back() == '.' ? s + "0" : s);
  }
  const Odometer begin(shape, total > kSummaryAbove);
  std::vector<ConstValue> values;
  Odometer at = begin;
  for (bool more = true; more;) {
    const size_t axis = at.axis();
    if (!at.at_dots()) values.push_back(load_const(&bytes[at.offset() * static_cast<size_t>(d.itemsize())], d));
    more = at.next(axis) <= axis;
  }
  return os << layout(begin, shape.size(), texts(values, d));
}

}  // namespace tg
