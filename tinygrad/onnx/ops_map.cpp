/// \file Operators of ai.onnx.ml on maps, which the host computes.
#include <charconv>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

using Keys = std::vector<ValueMap::Key>;

/// Reads keys from one of two attributes, integers or texts.
Keys keys_of(const NodeContext& c, const char* ints, const char* texts) {
  c.check(c.has_attribute(ints) != c.has_attribute(texts), "expected one of the attributes ", ints, " and ", texts);
  Keys out;
  for (const int64_t k : c.attr_ints(ints)) out.emplace_back(k);
  for (std::string& k : c.attr_strings(texts)) out.emplace_back(std::move(k));
  return out;
}

/// Makes a map of each row of numbers.
Values zip_map(NodeContext& c) {
  const Keys keys = keys_of(c, "classlabels_int64s", "classlabels_strings");
  const Shape shape = c.value(0).shape();
  c.check(shape.size() == 1 || shape.size() == 2, "got shape ", shape, ", expected one or two axes");
  c.check(shape.back() == static_cast<int64_t>(keys.size()), "got rows of ", shape.back(), " numbers for ", keys.size(),
          " keys");
  const HostRef h = c.data(0);
  Sequence out;
  out.elem = h->dtype == dtypes::float64 ? ElemType::kDouble : ElemType::kFloat;
  for (size_t at = 0; at < h->count(); at += keys.size()) {
    ValueMap m{{}, out.elem};
    for (size_t k = 0; k < keys.size(); k++) m.items.insert_or_assign(keys[k], h->number(at + k));
    out.items.emplace_back(std::move(m));
  }
  return {out};
}

/// Returns items as one value of their type: texts or numbers.
Value array_of(const NodeContext& c, const std::vector<ValueMap::Item>& items, std::vector<int64_t> shape,
               ElemType elem) {
  if (elem == ElemType::kString) {
    std::vector<std::string> texts;
    for (const ValueMap::Item& i : items) texts.push_back(std::get<std::string>(i));
    return StringArray::of(std::move(shape), std::move(texts));
  }
  if (elem == ElemType::kInt64) {
    std::vector<int64_t> out;
    for (const ValueMap::Item& i : items) out.push_back(std::get<int64_t>(i));
    return Tensor::from(out, shape_of(shape), {.device = c.device()});
  }
  std::vector<double> out;
  for (const ValueMap::Item& i : items) out.push_back(std::get<double>(i));
  return Tensor::from(out, shape_of(shape), {.device = c.device()}).cast(c.dtype_of(elem));
}

/// Returns what stands for an item that is not there.
ValueMap::Item nothing_of(ElemType elem) {
  if (elem == ElemType::kString) return std::string();
  return elem == ElemType::kInt64 ? ValueMap::Item(int64_t{0}) : ValueMap::Item(0.0);
}

/// Puts the items of a map, or of each of a sequence, in the places that a vocabulary gives their keys.
Values dict_vectorizer(NodeContext& c) {
  const Keys keys = keys_of(c, "int64_vocabulary", "string_vocabulary");
  Values maps{c.value(0)};
  if (c.value(0).sequence()) maps = c.sequence(0).items;
  const ElemType elem = c.value(0).elem();
  std::vector<ValueMap::Item> out;
  for (const Value& v : maps) {
    c.check(v.map() && v.elem() == elem, "got ", v.kind(), ", expected a map of ", elem_name(elem));
    for (const ValueMap::Key& k : keys) {
      const auto at = v.map()->items.find(k);
      out.push_back(at == v.map()->items.end() ? nothing_of(elem) : at->second);
    }
  }
  const std::vector<int64_t> shape{static_cast<int64_t>(maps.size()), static_cast<int64_t>(keys.size())};
  return {array_of(c, out, shape, elem)};
}

/// Reads a number that is all of a text.
template <class T> T number_of(const std::string& text) {
  T out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  TG_CHECK(ValueError, error == std::errc() && end == text.data() + text.size(), "got text \"", text.substr(0, 32),
           "\", expected a number");
  return out;
}

/// Converts an item; a number becomes a text with six digits after the point, as ONNX Runtime writes it.
ValueMap::Item converted(const ValueMap::Item& v, ElemType to) {
  const auto* text = std::get_if<std::string>(&v);
  if (to == ElemType::kString) return text ? *text : std::to_string(std::get<double>(v));
  if (to == ElemType::kFloat) return text ? number_of<double>(*text) : std::get<double>(v);
  if (text) return number_of<int64_t>(*text);
  const double number = std::get<double>(v);
  TG_CHECK(ValueError, number > -9.2e18 && number < 9.2e18, "got ", number, ", expected a 64-bit integer");
  return static_cast<int64_t>(number);
}

/// Returns the items of a map of integers in the order of their keys, or each in the place that its key is.
Values cast_map(NodeContext& c) {
  const ValueMap& m = c.map(0);
  const std::string type = c.choice("cast_to", "TO_FLOAT", {"TO_FLOAT", "TO_STRING", "TO_INT64"});
  const ElemType to = type == "TO_FLOAT"    ? ElemType::kFloat
                      : type == "TO_STRING" ? ElemType::kString
                                            : ElemType::kInt64;
  const bool sparse = c.choice("map_form", "DENSE", {"DENSE", "SPARSE"}) == "SPARSE";
  const int64_t most = c.attr("max_map", int64_t{1});
  c.check(!sparse || (most >= 0 && most <= 1 << 24), "attribute max_map is ", most);
  c.check(m.elem != ElemType::kInt64, "got a map of integers, expected one of floats or texts");
  const ValueMap::Item none = to == ElemType::kString ? ValueMap::Item("0.f") : nothing_of(to);
  std::vector<ValueMap::Item> out(sparse ? static_cast<size_t>(most) : 0, none);
  for (const auto& [key, v] : m.items) {
    const auto* at = std::get_if<int64_t>(&key);
    c.check(at, "got keys that are texts, expected integers");
    TG_CHECK(ValueError, !sparse || *at >= 0, "got key ", *at, ", expected a place");
    if (!sparse) out.push_back(converted(v, to));
    else if (*at < most) out[static_cast<size_t>(*at)] = converted(v, to);
  }
  const auto n = static_cast<int64_t>(out.size());
  return {array_of(c, out, {1, n}, to)};
}

const OperatorRow kRows[] = {
    {"ai.onnx.ml", "ZipMap", 1, zip_map},
    {"ai.onnx.ml", "DictVectorizer", 1, dict_vectorizer},
    {"ai.onnx.ml", "CastMap", 1, cast_map},
};

}  // namespace

OperatorRows map_operators() { return kRows; }

}  // namespace tg::onnx
