/// \file Operators of ai.onnx.ml: encoders, scalers and linear models.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

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

/// The keys or values of a LabelEncoder: numbers in their own type, or texts.
struct Labels {
  HostRef numbers;  ///< null: texts
  std::vector<std::string> texts;
  size_t size() const { return numbers ? numbers->count() : texts.size(); }
};
HostRef row_of(const TensorProto& t) { return host_array_of(t.bytes.bytes, number_dtype(t.type), {t.count()}); }
HostRef host_floats(std::vector<double> v) {
  const auto n = static_cast<int64_t>(v.size());
  return HostArray::of(dtypes::float32, {n}, {{}, std::move(v)});
}
Labels labels_in(const NodeContext& c, const std::string& side) {
  if (const TensorProto* t = c.attr_tensor(side + "_tensor")) {
    if (t->type == ElemType::kString) return {nullptr, {t->strings.begin(), t->strings.end()}};
    return {row_of(*t), {}};
  }
  if (c.has_attribute(side + "_floats")) return {host_floats(c.attr_floats(side + "_floats")), {}};
  if (c.has_attribute(side + "_int64s")) {
    const std::vector<int64_t> v = c.attr_ints(side + "_int64s");
    return {HostArray::of_ints({v.begin(), v.end()}), {}};
  }
  return {nullptr, c.attr_strings(side + "_strings")};
}

/// What a LabelEncoder does: `otherwise` is what stands for unknown keys.
struct Mapping {
  Labels keys, values, otherwise;
};
Mapping mapping_of(const NodeContext& c) {
  if (c.opset() < 2) {  // classes and their numbers
    Labels keys{nullptr, c.attr_strings("classes_strings")};
    std::vector<HostInt> numbers;
    for (size_t i = 0; i < keys.size(); i++) numbers.emplace_back(static_cast<int64_t>(i));
    return {std::move(keys),
            {HostArray::of_ints(std::move(numbers)), {}},
            {HostArray::of_ints({c.attr("default_int64", int64_t{-1})}), {}}};
  }
  Mapping m{labels_in(c, "keys"), labels_in(c, "values"), {}};
  c.check(m.keys.size() > 0 && m.keys.size() == m.values.size(), "has ", m.keys.size(), " keys and ", m.values.size(),
          " values");
  if (c.attr_tensor("default_tensor")) m.otherwise = labels_in(c, "default");
  else if (!m.values.numbers) m.otherwise = {nullptr, {c.attr("default_string", "_Unused")}};
  else if (m.values.numbers->dtype.is_float()) m.otherwise = {host_floats({c.attr("default_float", -0.0)}), {}};
  else m.otherwise = {HostArray::of_ints({c.attr("default_int64", int64_t{-1})}), {}};
  c.check(m.otherwise.size() == 1 && !m.otherwise.numbers == !m.values.numbers,
          "the default is no single value of the type of the values");
  return m;
}

/// Returns a number that is equal for equal elements: NaN is equal to itself, -0 to 0.
int64_t key_of(const HostArray& h, size_t i, bool integers) {
  if (integers) return h.ints[i].value.value();
  const double v = h.number(i);
  return std::bit_cast<int64_t>(std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v + 0.0);
}

/// Maps numbers to numbers as an expression: of equal keys the first counts, so that at most one is equal.
Tensor mapped_numbers(const NodeContext& c, const Tensor& x, const Mapping& m) {
  c.check(m.keys.numbers != nullptr, "input 0 has type ", x.dtype(), ", expected texts, as the keys are");
  const bool integers = x.dtype().is_int() && m.keys.numbers->dtype.is_int();
  std::set<int64_t> seen;
  std::vector<size_t> first;
  for (size_t i = 0; i < m.keys.size(); i++)
    if (seen.insert(key_of(*m.keys.numbers, i, integers)).second) first.push_back(i);
  const std::vector<int64_t> shape{static_cast<int64_t>(first.size())};
  const DType wide = integers ? dtypes::int64 : dtypes::float64;
  const Tensor keys = host_take(*m.keys.numbers, first, shape)->tensor(c.device()).cast(wide),
               values = host_take(*m.values.numbers, first, shape)->tensor(c.device());
  const Tensor otherwise = m.otherwise.numbers->tensor(c.device()).cast(values.dtype()).reshape(Shape{});
  const Tensor item = x.cast(wide).unsqueeze(-1);
  const Tensor hit = integers ? item.eq(keys) : item.eq(keys).bitwise_or(item.isnan().bitwise_and(keys.isnan()));
  const Tensor found = hit.where(values, values.zeros_like()).sum(-1).cast(values.dtype());
  return hit.any(-1).where(found, otherwise).cast(values.dtype());
}

/// Returns the place of each element among the keys, if it is one of them.
std::vector<std::optional<size_t>> places_of(const NodeContext& c, const Labels& keys) {
  std::vector<std::optional<size_t>> out;
  const auto look_up = [&](const auto& known, const auto& key) {
    const auto at = known.find(key);
    out.push_back(at == known.end() ? std::nullopt : std::optional(at->second));
  };
  if (const StringArray* s = c.value(0).strings()) {
    std::map<std::string, size_t> known;
    for (size_t i = 0; i < keys.texts.size(); i++) known.emplace(keys.texts[i], i);
    for (const std::string& t : s->texts) look_up(known, t);
    return out;
  }
  const HostRef h = c.data(0);
  c.check(keys.numbers != nullptr, "input 0 has type ", h->dtype, ", expected texts, as the keys are");
  const bool integers = h->dtype.is_int() && keys.numbers->dtype.is_int();
  std::map<int64_t, size_t> known;
  for (size_t i = 0; i < keys.size(); i++) known.emplace(key_of(*keys.numbers, i, integers), i);
  for (size_t i = 0; i < h->count(); i++) look_up(known, key_of(*h, i, integers));
  return out;
}

Values label_encoder(NodeContext& c) {
  const Mapping m = mapping_of(c);
  if (!c.value(0).strings() && m.values.numbers) return {mapped_numbers(c, c.tensor(0), m)};
  const std::vector<std::optional<size_t>> at = places_of(c, m.keys);
  const std::vector<int64_t> shape = c.value(0).shape().ints();
  if (!m.values.numbers) {
    TextList out(c, static_cast<int64_t>(at.size()));
    for (const auto& i : at) out.add(i ? m.values.texts[*i] : m.otherwise.texts[0]);
    return {out.in_shape(shape)};
  }
  HostElements out;
  for (const auto& i : at) {
    const HostArray& from = i ? *m.values.numbers : *m.otherwise.numbers;
    if (from.dtype.is_float()) out.floats.push_back(from.floats[i.value_or(0)]);
    else out.ints.push_back(from.ints[i.value_or(0)]);
  }
  const DType d = m.values.numbers->dtype;
  c.check(d.is_float() ? out.ints.empty() : out.floats.empty(), "the default is of another type than the values");
  return {HostArray(d, shape, std::move(out)).tensor(c.device())};
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
