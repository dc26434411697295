/// \file Operators that select and write elements by number.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// Counts negative indices from the end.
Tensor from_front(const Tensor& index, int64_t size) {
  const Tensor i = index.cast(dtypes::int64);
  return i.lt(Tensor(0)).where(i + size, i);
}

/// Returns elements of a row the host has, by numbers it has.
HostRef host_gather(const HostArray& row, const HostArray& index) {
  std::vector<size_t> at;
  const auto n = static_cast<int64_t>(row.count());
  for (const HostInt& i : index.ints) {
    const int64_t k = i.value.value() < 0 ? i.value.value() + n : i.value.value();
    TG_CHECK(IndexError, k >= 0 && k < n, "got index ", i.value, " for ", n, " elements");
    at.push_back(static_cast<size_t>(k));
  }
  return host_take(row, at, index.shape);
}

/// Refuses an input of indices that are no integers.
void check_index(const NodeContext& c, size_t i) {
  const Value& v = c.value(i);
  const std::optional<DType> d = v.strings() ? std::nullopt : storage_dtype(v.elem());
  c.check(d && d->is_int(), "input ", i, " has elements of type ", elem_name(v.elem()), ", expected integers");
}

Values gather(NodeContext& c) {
  const Value& v = c.value(0);
  const Shape s = v.shape();
  check_index(c, 1);
  const int axis = normal_axis(c.attr("axis", int64_t{0}), static_cast<int64_t>(s.size()));
  const HostArray* index = c.known(1);
  if (const HostArray* row = v.host(); row && s.size() == 1 && index && !index->symbolic())
    return {host_gather(*row, *index)};
  if (const StringArray* texts = v.strings(); texts && s.size() == 1) {
    const HostRef at = c.host(1);
    TextList out(c, static_cast<int64_t>(at->count()));
    for (size_t i = 0; i < at->count(); i++) {
      const auto k = static_cast<int64_t>(at->number(i));
      out.add(texts->texts.at(static_cast<size_t>(k < 0 ? k + s[0].value() : k)));
    }
    return {out.in_shape(at->shape)};
  }
  const Tensor x = c.tensor(0);
  if (index && index->count() == 1 && !index->symbolic()) {  // a view
    const int64_t n = x.shape(axis), k = index->ints[0].value.value(), at = k < 0 ? k + n : k;
    TG_CHECK(IndexError, at >= 0 && at < n, "got index ", k, " for ", n, " elements");
    const Tensor one = x.slice(axis, at, at + 1);
    Shape out(s.begin(), s.begin() + axis);
    for (size_t i = 0; i < index->shape.size(); i++) out.push_back(1);
    out.insert(out.end(), s.begin() + axis + 1, s.end());
    return {moved(v, one.reshape(out))};
  }
  std::vector<Index> at(static_cast<size_t>(axis), Index(Slice()));
  at.emplace_back(c.tensor(1).cast(dtypes::int64));
  return {moved(v, x.index(at))};
}

Values gather_elements(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int axis = normal_axis(c.attr("axis", int64_t{0}), x.ndim());
  return {moved(c.value(0), x.gather(axis, from_front(c.tensor(1), x.shape(axis))))};
}

/// Returns the numbers of rows that tuples of indices name, in the axes after the first `lead`.
Tensor row_numbers(const NodeContext& c, const Tensor& index, const Shape& s, int64_t lead) {
  const int64_t k = index.shape(-1);
  c.check(lead >= 0 && lead + k <= static_cast<int64_t>(s.size()), "indices of ", k, " numbers for shape ", s);
  Tensor out = Tensor::zeros(Shape{}, {.dtype = dtypes::int64, .device = c.device()});
  for (int64_t i = 0; i < k; i++) {
    const int64_t n = s[static_cast<size_t>(lead + i)].value();
    out = out * n + from_front(index.slice(-1, i, i + 1).squeeze(-1), n);
  }
  Shape places = index.shape();
  places.pop_back();
  return out.expand(places);
}

Values gather_nd(NodeContext& c) {
  const Tensor x = c.tensor(0), index = c.tensor(1);
  const int64_t lead = c.attr("batch_dims", int64_t{0}), k = index.shape(-1);
  const Shape s = x.shape(), is = index.shape();
  const auto b = static_cast<size_t>(lead);
  const Tensor rows = row_numbers(c, index, s, lead);  // (batch..., places...)
  const int64_t batch = product(s, 0, b), size = product(s, b, b + static_cast<size_t>(k));
  const Shape rest(s.begin() + lead + k, s.end());
  Shape flat{batch * size}, out(is.begin(), is.end() - 1);
  flat.insert(flat.end(), rest.begin(), rest.end());
  out.insert(out.end(), rest.begin(), rest.end());
  const Tensor start = count_along(batch, 0, 2, dtypes::int64, c.device()) * size;
  const Tensor numbers = (rows.reshape(Shape{batch, -1}) + start).reshape(Shape{-1});
  return {moved(c.value(0), x.reshape(flat).index({Index(numbers)}).reshape(out))};
}

/// Writes `updates` at `index` along an axis, combined as `how` says.
Tensor scattered(const NodeContext& c, const Tensor& x, int axis, const Tensor& index, const Tensor& updates,
                 const std::string& how) {
  if (how == "none") return x.scatter(axis, index, updates);
  static const std::map<std::string, ScatterReduce> kHow{{"add", ScatterReduce::kSum},
                                                         {"mul", ScatterReduce::kProd},
                                                         {"max", ScatterReduce::kMax},
                                                         {"min", ScatterReduce::kMin}};
  const auto at = kHow.find(how);
  c.check(at != kHow.end(), "attribute reduction is \"", how, "\", expected none, add, mul, max or min");
  return x.scatter_reduce(axis, index, updates, at->second).cast(x.dtype());
}

Values scatter_elements(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int axis = normal_axis(c.attr("axis", int64_t{0}), x.ndim());
  return {scattered(c, x, axis, from_front(c.tensor(1), x.shape(axis)), c.tensor(2), c.attr("reduction", "none"))};
}

Values scatter_nd(NodeContext& c) {
  const Tensor x = c.tensor(0), index = c.tensor(1), updates = c.tensor(2);
  const Shape s = x.shape();
  const auto k = static_cast<size_t>(index.shape(-1));
  const int64_t rows = product(s, 0, k), each = product(s, k, s.size());
  const Tensor at = row_numbers(c, index, s, 0).reshape(Shape{-1, 1});
  const Shape wide{at.shape()[0], each};
  const Tensor out = scattered(c, x.reshape(Shape{rows, each}), 0, at.expand(wide), updates.reshape(wide),
                               c.attr("reduction", "none"));
  return {out.reshape(s)};
}

/// Writes new rows into a cache at a place for each of a batch, perhaps around its end.
Values tensor_scatter(NodeContext& c) {
  const Tensor past = c.tensor(0), update = c.tensor(1);
  const int axis = normal_axis(c.attr("axis", int64_t{-2}), past.ndim());
  const bool circular = c.choice("mode", "linear", {"linear", "circular"}) == "circular";
  const int64_t rank = past.ndim(), size = past.shape(axis);
  Tensor at = count_along(update.shape(axis), axis, rank, dtypes::int64, c.device());
  if (c.has(2)) at = at + along_axis(c.tensor(2).cast(dtypes::int64), 0, rank);
  if (circular) at = at.mod(Tensor(size));
  return {past.scatter(axis, at.expand(update.shape()), update)};
}

Values one_hot(NodeContext& c) {
  const Tensor index = c.tensor(0), values = c.tensor(2);
  const auto depth = static_cast<int64_t>(c.number(1));
  const int64_t rank = index.ndim() + 1;
  const int axis = normal_axis(c.attr("axis", int64_t{-1}), rank);
  const Tensor at = from_front(index, depth).unsqueeze(axis);
  const Tensor hit = count_along(depth, axis, rank, dtypes::int64, c.device()).eq(at);
  return {hit.where(values.slice(0, 1, 2).reshape(Shape{}), values.slice(0, 0, 1).reshape(Shape{}))};
}

Values non_zero(NodeContext& c) {
  const HostRef h = c.data(0);
  std::vector<std::vector<int64_t>> found(h->shape.size());
  for (size_t i = 0; i < h->count(); i++) {
    if (h->number(i) == 0) continue;
    auto rest = static_cast<int64_t>(i);
    for (size_t axis = h->shape.size(); axis-- > 0; rest /= h->shape[axis])
      found[axis].push_back(rest % h->shape[axis]);
  }
  std::vector<int64_t> all;
  for (const auto& row : found) all.insert(all.end(), row.begin(), row.end());
  const auto n = found.empty() ? int64_t{0} : static_cast<int64_t>(found[0].size());
  return {Tensor::from(all, {static_cast<int64_t>(found.size()), n}, {.device = c.device()})};
}

/// Returns one axis of positions where a condition on the host holds.
Values compress(NodeContext& c) {
  Tensor x = c.tensor(0);
  const HostRef condition = c.data(1);
  const std::optional<int64_t> axis = c.optional_int("axis");
  if (!axis) x = x.reshape(Shape{-1});
  std::vector<int64_t> at;
  for (size_t i = 0; i < condition->count(); i++)
    if (condition->number(i) != 0) at.push_back(static_cast<int64_t>(i));
  std::vector<Index> index(static_cast<size_t>(axis ? normal_axis(*axis, x.ndim()) : 0), Index(Slice()));
  if (at.empty()) return {x.slice(static_cast<int>(index.size()), 0, 0)};
  index.emplace_back(Tensor::from(at, {.device = c.device()}));
  return {x.index(index)};
}

Values top_k(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int64_t k = c.opset() < 10 ? c.required_int("k") : c.integer(1);
  const int axis = normal_axis(c.attr("axis", int64_t{-1}), x.ndim());
  const auto [values, at] = x.topk(k, axis, c.flag("largest", true), true);
  return {values, at.cast(dtypes::int64)};
}

/// Returns integers that compare as the elements do: NaN is equal to itself and above all, -0 is 0.
int64_t comparable(const HostArray& h, size_t i) {
  if (!h.dtype.is_float()) {
    const int64_t v = h.ints[i].value.value();
    return h.dtype == dtypes::uint64 ? v ^ INT64_MIN : v;
  }
  const double v = std::isnan(h.floats[i]) ? std::numeric_limits<double>::quiet_NaN() : h.floats[i] + 0.0;
  const auto bits = std::bit_cast<int64_t>(v);
  return bits < 0 ? bits ^ INT64_MAX : bits;
}

/// The elements or slices without repetitions, sorted or in the order they come in; the host compares them.
Values unique(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const std::optional<int64_t> named = c.optional_int("axis");
  const int axis = named ? normal_axis(*named, x.ndim()) : 0;
  const Tensor rows = named ? x.permute(moved_axis(x.ndim(), axis, 0)) : x.reshape(Shape{-1});
  const int64_t n = rows.shape(0), each = n ? rows.numel() / n : 0;
  const HostRef h = c.run().read_data(rows);
  std::map<std::vector<int64_t>, size_t> numbers;  // of each different slice
  std::vector<int64_t> first, count, inverse;
  std::vector<const std::vector<int64_t>*> keys;
  for (int64_t i = 0; i < n; i++) {
    std::vector<int64_t> key;
    for (int64_t k = 0; k < each; k++) key.push_back(comparable(*h, static_cast<size_t>(i * each + k)));
    const auto [at, is_new] = numbers.try_emplace(std::move(key), first.size());
    if (is_new) {
      first.push_back(i);
      count.push_back(0);
      keys.push_back(&at->first);
    }
    count[at->second]++;
    inverse.push_back(static_cast<int64_t>(at->second));
  }
  std::vector<size_t> order(first.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (c.flag("sorted", true)) std::ranges::sort(order, [&](size_t a, size_t b) { return *keys[a] < *keys[b]; });
  std::vector<int64_t> place(order.size()), firsts, counts;
  for (size_t i = 0; i < order.size(); i++) {
    place[order[i]] = static_cast<int64_t>(i);
    firsts.push_back(first[order[i]]);
    counts.push_back(count[order[i]]);
  }
  for (int64_t& i : inverse) i = place[static_cast<size_t>(i)];
  const auto tensor = [&](const std::vector<int64_t>& v) { return Tensor::from(v, {.device = c.device()}); };
  Tensor out = firsts.empty() ? rows : rows.index({Index(tensor(firsts))});
  if (named) out = out.permute(moved_axis(x.ndim(), 0, axis));
  return {out, tensor(firsts), tensor(inverse), tensor(counts)};
}

const OperatorRow kRows[] = {
    {"", "Gather", 1, gather},
    {"", "GatherElements", 11, gather_elements},
    {"", "GatherND", 11, gather_nd},
    {"", "Scatter", 9, scatter_elements},
    {"", "ScatterElements", 11, scatter_elements},
    {"", "ScatterND", 11, scatter_nd},
    {"", "TensorScatter", 24, tensor_scatter},
    {"", "OneHot", 9, one_hot},
    {"", "NonZero", 9, non_zero},
    {"", "Compress", 9, compress},
    {"", "TopK", 1, top_k},
    {"", "Unique", 11, unique},
};

}  // namespace

OperatorRows index_operators() { return kRows; }

}  // namespace tg::onnx
