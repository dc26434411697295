/// \file Operators of ai.onnx.ml: encoders, scalers and linear models.
#include <algorithm>
#include <cmath>
#include <map>

#include "tinygrad/onnx/ml_scores.h"
#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

Tensor floats_tensor(const NodeContext& c, const std::vector<double>& v) {
  return Tensor::from(v, {.device = c.device()}).cast(dtypes::float32);
}
Tensor as_floats(const NodeContext& c, size_t i) {
  const Tensor x = c.tensor(i);
  return x.dtype() == dtypes::float64 ? x : x.cast(dtypes::float32);
}

Values array_feature_extractor(NodeContext& c) {
  const Tensor x = c.tensor(0), at = c.tensor(1).cast(dtypes::int64).reshape(Shape{-1});
  c.check(x.ndim() > 0, "got a scalar, expected features along an axis");
  std::vector<Index> index(static_cast<size_t>(x.ndim() - 1), Index(Slice()));
  index.emplace_back(at);
  const Tensor out = x.index(index);
  return {x.ndim() == 1 ? out.unsqueeze(0) : out};
}

Values binarizer(NodeContext& c) {
  const Tensor x = c.tensor(0);
  return {x.gt(Tensor(c.attr("threshold", 0.0))).cast(x.dtype())};
}

Values scaler(NodeContext& c) {
  const Tensor x = as_floats(c, 0);
  return {((x - floats_tensor(c, c.attr_floats("offset", {0}))) * floats_tensor(c, c.attr_floats("scale", {1})))
              .cast(dtypes::float32)};
}

Values normalizer(NodeContext& c) {
  const Tensor x = as_floats(c, 0);
  const std::string norm = c.choice("norm", "MAX", {"MAX", "L1", "L2"});
  const Tensor size = norm == "MAX"  ? x.max(-1, true)
                      : norm == "L1" ? x.abs().sum(-1, true)
                                     : (x * x).sum(-1, true).sqrt();
  return {size.eq(Tensor(0.0)).where(x, x / size).cast(dtypes::float32)};
}

/// Replaces one value, also NaN, by a value for each column or all.
Values imputer(NodeContext& c) {
  const Tensor x = c.tensor(0);
  if (c.has_attribute("imputed_value_int64s")) {
    const Tensor with = Tensor::from(c.attr_ints("imputed_value_int64s"), {.device = c.device()});
    return {x.eq(Tensor(c.attr("replaced_value_int64", int64_t{0}))).where(with, x)};
  }
  const double replaced = c.attr("replaced_value_float", 0.0);
  const Tensor with = floats_tensor(c, c.attr_floats("imputed_value_floats", {0}));
  return {(std::isnan(replaced) ? x.isnan() : x.eq(Tensor(replaced))).where(with, x).cast(x.dtype())};
}

Values feature_vectorizer(NodeContext& c) {
  Tensors parts;
  const std::vector<int64_t> sizes = c.attr_ints("inputdimensions");
  for (size_t i = 0; i < c.count(); i++) {
    Tensor t = c.tensor(i).cast(dtypes::float32);
    if (t.ndim() == 1) t = t.unsqueeze(0);
    parts.push_back(i < sizes.size() && sizes[i] < t.shape(1) ? t.slice(1, 0, sizes[i]) : t);
  }
  return {Tensor::cat(parts, 1)};
}

Values one_hot_encoder(NodeContext& c) {
  const bool zeros = c.flag("zeros", true);
  const auto known = [&](const Tensor& hit) {
    TG_CHECK(ValueError, zeros, "attribute zeros of 0 is not supported for values that may be unknown");
    return hit.cast(dtypes::float32);
  };
  if (const StringArray* s = c.value(0).strings()) {
    const std::vector<std::string> words = c.attr_strings("cats_strings");
    std::vector<float> out;
    for (const std::string& text : s->texts)
      for (const std::string& w : words) out.push_back(text == w ? 1 : 0);
    Shape shape = shape_of(s->shape);
    shape.push_back(static_cast<int64_t>(words.size()));
    return {Tensor::from(out, shape, {.device = c.device()})};
  }
  const Tensor x = c.tensor(0).cast(dtypes::int64).unsqueeze(-1);
  return {known(x.eq(Tensor::from(c.attr_ints("cats_int64s"), {.device = c.device()})))};
}

/// Keys and values of LabelEncoder, of whatever types.
struct Mapping {
  std::vector<double> key_numbers, value_numbers;
  std::vector<std::string> key_texts, value_texts;
  DType value_type = dtypes::float32;
  double otherwise = 0;
  std::string otherwise_text = "_Unused";
};
void add_side(const NodeContext& c, const std::string& side, std::vector<double>& numbers,
              std::vector<std::string>& texts, DType& type) {
  if (const TensorProto* t = c.attr_tensor(side + "_tensor")) {
    for (const std::string_view s : t->strings) texts.emplace_back(s);
    if (t->type == ElemType::kString) return;
    type = number_dtype(t->type);
    const HostRef h = host_array_of(t->bytes.bytes, type, t->dims);
    for (size_t i = 0; i < h->count(); i++) numbers.push_back(h->number(i));
  } else if (c.has_attribute(side + "_floats")) {
    numbers = c.attr_floats(side + "_floats");
    type = dtypes::float32;
  } else if (c.has_attribute(side + "_int64s")) {
    for (const int64_t v : c.attr_ints(side + "_int64s")) numbers.push_back(static_cast<double>(v));
    type = dtypes::int64;
  } else {
    texts = c.attr_strings(side + "_strings");
  }
}
Mapping mapping_of(const NodeContext& c) {
  Mapping m;
  DType key = dtypes::float32;
  if (c.opset() < 2) {  // classes and their numbers
    m.key_texts = c.attr_strings("classes_strings");
    for (size_t i = 0; i < m.key_texts.size(); i++) m.value_numbers.push_back(static_cast<double>(i));
    m.value_type = dtypes::int64;
    m.otherwise = static_cast<double>(c.attr("default_int64", int64_t{-1}));
    return m;
  }
  add_side(c, "keys", m.key_numbers, m.key_texts, key);
  add_side(c, "values", m.value_numbers, m.value_texts, m.value_type);
  m.otherwise =
      m.value_type.is_int() ? static_cast<double>(c.attr("default_int64", int64_t{-1})) : c.attr("default_float", -0.0);
  m.otherwise_text = c.attr("default_string", "_Unused");
  if (const TensorProto* t = c.attr_tensor("default_tensor")) {
    if (t->type == ElemType::kString) m.otherwise_text = t->strings.empty() ? "" : std::string(t->strings[0]);
    else m.otherwise = host_array_of(t->bytes.bytes, number_dtype(t->type), t->dims)->number(0);
  }
  c.check(std::max(m.key_numbers.size(), m.key_texts.size()) == std::max(m.value_numbers.size(), m.value_texts.size()),
          "keys and values are of different lengths");
  return m;
}

/// Maps numbers to numbers as an expression: at most one key is equal.
Tensor mapped_numbers(const NodeContext& c, const Tensor& x, const Mapping& m) {
  const Tensor keys = Tensor::from(m.key_numbers, {.device = c.device()}),
               values = Tensor::from(m.value_numbers, {.device = c.device()});
  const Tensor wide = x.cast(dtypes::float64).unsqueeze(-1);
  const Tensor hit = wide.eq(keys).bitwise_or(wide.isnan().bitwise_and(keys.isnan()));
  const Tensor found = hit.where(values, Tensor(0.0)).sum(-1);
  return hit.any(-1).where(found, Tensor(m.otherwise)).cast(m.value_type);
}

Values label_encoder(NodeContext& c) {
  const Mapping m = mapping_of(c);
  if (!c.value(0).strings() && m.value_texts.empty()) return {mapped_numbers(c, c.tensor(0), m)};
  std::map<std::string, size_t> texts;
  std::map<double, size_t> numbers;
  for (size_t i = 0; i < m.key_texts.size(); i++) texts.emplace(m.key_texts[i], i);
  for (size_t i = 0; i < m.key_numbers.size(); i++) numbers.emplace(m.key_numbers[i], i);
  std::vector<std::optional<size_t>> at;
  std::vector<int64_t> shape;
  if (const StringArray* s = c.value(0).strings()) {
    shape = s->shape;
    for (const std::string& t : s->texts) at.push_back(texts.contains(t) ? std::optional(texts[t]) : std::nullopt);
  } else {
    const HostRef h = c.data(0);
    shape = h->shape;
    for (size_t i = 0; i < h->count(); i++)
      at.push_back(numbers.contains(h->number(i)) ? std::optional(numbers[h->number(i)]) : std::nullopt);
  }
  if (!m.value_texts.empty()) {
    TextList out(c, static_cast<int64_t>(at.size()));
    for (const auto& i : at) out.add(i ? m.value_texts.at(*i) : m.otherwise_text);
    return {out.in_shape(shape)};
  }
  std::vector<double> out;
  for (const auto& i : at) out.push_back(i ? m.value_numbers[*i] : m.otherwise);
  return {Tensor::from(out, shape_of(shape), {.device = c.device()}).cast(m.value_type)};
}

/// Words to numbers or back, by two lists of equal length.
Values category_mapper(NodeContext& c) {
  const std::vector<std::string> words = c.attr_strings("cats_strings");
  const std::vector<int64_t> numbers = c.attr_ints("cats_int64s");
  c.check(words.size() == numbers.size(), "cats_strings and cats_int64s are of different lengths");
  if (const StringArray* s = c.value(0).strings()) {
    std::vector<int64_t> out;
    for (const std::string& t : s->texts) {
      const auto at = std::ranges::find(words, t);
      out.push_back(at == words.end() ? c.attr("default_int64", int64_t{-1})
                                      : numbers[static_cast<size_t>(at - words.begin())]);
    }
    return {Tensor::from(out, shape_of(s->shape), {.device = c.device()})};
  }
  const HostRef h = c.data(0);
  c.check(!h->dtype.is_float(), "input 0 has type ", h->dtype, ", expected integers or texts");
  TextList out(c, static_cast<int64_t>(h->count()));
  for (const HostInt& v : h->ints) {
    const auto at = std::ranges::find(numbers, v.value.value());
    out.add(at == numbers.end() ? c.attr("default_string", "_Unused")
                                : words[static_cast<size_t>(at - numbers.begin())]);
  }
  return {out.in_shape(h->shape)};
}

Values linear_regressor(NodeContext& c) {
  const Tensor x = as_floats(c, 0);
  const int64_t targets = c.attr("targets", int64_t{1});
  Tensor out = x.dot(floats_tensor(c, c.attr_floats("coefficients")).reshape(Shape{targets, -1}).transpose());
  if (c.has_attribute("intercepts")) out = out + floats_tensor(c, c.attr_floats("intercepts"));
  return {post_transformed(c, out).cast(dtypes::float32)};
}

/// Scores of classes; of two classes one score may stand for both.
Values linear_classifier(NodeContext& c) {
  const Tensor x = as_floats(c, 0);
  Tensor scores = x.dot(floats_tensor(c, c.attr_floats("coefficients")).reshape(Shape{-1, x.shape(-1)}).transpose());
  if (c.has_attribute("intercepts")) scores = scores + floats_tensor(c, c.attr_floats("intercepts"));
  const size_t classes = std::max(c.attr_ints("classlabels_ints").size(), c.attr_strings("classlabels_strings").size());
  if (scores.shape(1) == 1 && classes == 2) scores = (-scores).cat(scores, 1);
  scores = post_transformed(c, scores).cast(dtypes::float32);
  if (scores.shape(1) > 1) return {labels_of(c, scores.argmax(1), "classlabels_ints", "classlabels_strings"), scores};
  const double threshold = c.attr("post_transform", "NONE") == "NONE" ? 0 : 0.5;
  const std::vector<int64_t> labels = c.attr_ints("classlabels_ints", {1});
  return {(scores.ge(Tensor(threshold)).cast(dtypes::int64) * labels.at(0)).reshape(Shape{-1}), scores};
}

const OperatorRow kRows[] = {
    {"ai.onnx.ml", "ArrayFeatureExtractor", 1, array_feature_extractor},
    {"ai.onnx.ml", "Binarizer", 1, binarizer},
    {"ai.onnx.ml", "Scaler", 1, scaler},
    {"ai.onnx.ml", "Normalizer", 1, normalizer},
    {"ai.onnx.ml", "Imputer", 1, imputer},
    {"ai.onnx.ml", "FeatureVectorizer", 1, feature_vectorizer},
    {"ai.onnx.ml", "OneHotEncoder", 1, one_hot_encoder},
    {"ai.onnx.ml", "LabelEncoder", 1, label_encoder},
    {"ai.onnx.ml", "CategoryMapper", 1, category_mapper},
    {"ai.onnx.ml", "LinearRegressor", 1, linear_regressor},
    {"ai.onnx.ml", "LinearClassifier", 1, linear_classifier},
};

}  // namespace

OperatorRows ml_operators() { return kRows; }

}  // namespace tg::onnx
