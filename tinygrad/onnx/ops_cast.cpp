/// \file Operators that change element types.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

/// Returns a number as NumPy prints it for texts.
std::string number_text(double v, DType d) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "INF" : "-INF";
  char buffer[64];
  const auto end = d == dtypes::float64 ? std::to_chars(buffer, buffer + sizeof buffer, v).ptr
                                        : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(v)).ptr;
  const std::string text(buffer, end);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

Value texts_of(const NodeContext& c, const HostArray& h) {
  TextList out(c, static_cast<int64_t>(h.count()));
  for (size_t i = 0; i < h.count(); i++)
    out.add(h.dtype.is_float()  ? number_text(h.floats[i], h.dtype)
            : h.dtype.is_bool() ? (h.number(i) != 0 ? "True" : "False")
                                : std::to_string(h.ints[i].value.value()));
  return out.in_shape(h.shape);
}

/// Parses a number as XML Schema writes it: also INF and NaN.
double parsed(const std::string& text) {
  size_t from = text.find_first_not_of(' ');
  if (from != std::string::npos && text[from] == '+') from++;
  std::string body = from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') + 1 - from);
  std::ranges::transform(body, body.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
  double v = 0;
  const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), v);
  TG_CHECK(ValueError, error == std::errc() && end == body.data() + body.size(), "got text \"", text.substr(0, 32),
           "\", expected a number");
  return v;
}

Value parsed_texts(const StringArray& s, DType d) {
  HostElements out;
  for (const std::string& text : s.texts) {
    const double v = parsed(text);
    if (d.is_float()) out.floats.push_back(truncate_float(v, d));
    else out.ints.emplace_back(whole(v));
  }
  return HostArray::of(d, s.shape, std::move(out));
}

Value converted(const NodeContext& c, const Value& v, ElemType to) {
  if (to == ElemType::kString) return v.strings() ? v : texts_of(c, *c.data(0));
  const DType d = c.dtype_of(to);
  if (v.strings()) return parsed_texts(*v.strings(), d);
  const bool plain = packed_bits(to) == 0 && to != ElemType::kFloat8E8M0;
  if (const HostArray* h = v.host(); h && plain)
    if (HostRef out = host_cast(*h, d)) return out;
  return cast_value(c.tensor(0), to, d, c.flag("saturate", true), c.attr("round_mode", "up"));
}

Values cast(NodeContext& c) {
  if (c.opset() < 6) {  // the type is a name
    const std::string name = c.attr("to", "");
    for (int32_t i = 1; i < static_cast<int32_t>(ElemType::kCount); i++)
      if (elem_name(static_cast<ElemType>(i)) == name) return {converted(c, c.value(0), static_cast<ElemType>(i))};
    c.fail("attribute to is \"", name.substr(0, 32), "\", expected a type");
  }
  return {converted(c, c.value(0), static_cast<ElemType>(c.required_int("to")))};
}

Values cast_like(NodeContext& c) { return {converted(c, c.value(0), c.value(1).elem())}; }

Values bit_cast(NodeContext& c) {
  return {c.tensor(0).bitcast(c.dtype_of(static_cast<ElemType>(c.required_int("to"))))};
}

const OperatorRow kRows[] = {
    {"", "Cast", 1, cast},
    {"", "CastLike", 15, cast_like},
    {"", "BitCast", 26, bit_cast},
};

}  // namespace

OperatorRows cast_operators() { return kRows; }

}  // namespace tg::onnx
