/// \file Operators that make, move, cut and join elements, and those about shapes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"
#include "tinygrad/uop/symbolic.h"

namespace tg::onnx {
namespace {

/// Returns a list from input `i` since version `since`, from the attribute before.
std::vector<int64_t> ints_of(const NodeContext& c, const char* name, size_t i, int64_t since,
                             std::vector<int64_t> otherwise = {}) {
  if (c.opset() < since || !c.has(i)) return c.attr_ints(name, std::move(otherwise));
  return c.ints(i);
}

Values constant(NodeContext& c) {
  if (const TensorProto* t = c.attr_tensor("value")) return {c.run().constant(*t)};
  const DType f = c.dtype_of(ElemType::kFloat);
  const auto floats = [&](const std::vector<double>& v, std::vector<int64_t> shape) {
    return Values{HostArray::of(f, std::move(shape), {{}, v})};
  };
  if (const Attribute* a = c.find("value_float")) return floats({static_cast<double>(a->f)}, {});
  if (c.has_attribute("value_floats")) {
    const std::vector<double> v = c.attr_floats("value_floats");
    return floats(v, {static_cast<int64_t>(v.size())});
  }
  if (c.has_attribute("value_int")) return {HostArray::scalar(c.required_int("value_int"))};
  if (c.has_attribute("value_ints")) {
    const std::vector<int64_t> v = c.attr_ints("value_ints");
    return {HostArray::of_ints({v.begin(), v.end()})};
  }
  if (c.has_attribute("value_string")) return {StringArray::of({}, {c.attr("value_string", "")})};
  if (c.has_attribute("value_strings")) {
    std::vector<std::string> v = c.attr_strings("value_strings");
    return {StringArray::of({static_cast<int64_t>(v.size())}, v)};
  }
  c.fail("has none of value, value_float, value_floats, value_int, value_ints, value_string and value_strings");
}

Values shape(NodeContext& c) {
  const Shape s = c.value(0).shape();
  const auto rank = static_cast<int64_t>(s.size());
  const auto bound = [&](const char* name, int64_t otherwise) {
    const int64_t v = c.attr(name, otherwise);
    return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank);
  };
  const int64_t from = bound("start", 0), to = bound("end", rank);
  std::vector<HostInt> out;
  for (int64_t i = from; i < to; i++) out.emplace_back(s[static_cast<size_t>(i)]);
  return {HostArray::of_ints(std::move(out))};
}

Values size(NodeContext& c) {
  GraphScope scope;
  const Shape s = c.value(0).shape();
  return {HostArray::scalar(HostInt(product(s, 0, s.size())))};
}

/// Returns the value with its elements in another shape of as many.
Value reshaped(const Value& v, const Shape& to) {
  if (const StringArray* s = v.strings()) return StringArray::of(to.ints(), s->texts);
  if (const HostArray* h = v.host(); h && !to.symbolic()) {
    return HostArray::of(h->dtype, to.ints(), {h->ints, h->floats});
  }
  return moved(v, v.as_tensor().reshape(to));
}

/// Replaces the one size of -1 by what is left for it.
Shape with_rest(const NodeContext& c, const Shape& from, Shape to) {
  const auto rest = std::ranges::find_if(to, [](const SInt& n) { return n == -1; });
  if (rest == to.end()) return to;
  GraphScope scope;
  Shape others = to;
  others.erase(others.begin() + (rest - to.begin()));
  const SInt all = product(from, 0, from.size()), known = product(others, 0, others.size());
  if (all.symbolic() || known.symbolic()) {
    *rest = SInt(simplify(all.uop() / known.uop()));
    return to;
  }
  c.check(known.value() != 0 && all.value() % known.value() == 0, "shape ", to, " does not divide ", from);
  *rest = all.value() / known.value();
  return to;
}

Values reshape(NodeContext& c) {
  const Shape from = c.value(0).shape();
  Shape to = c.opset() < 5 ? shape_of(c.attr_ints("shape")) : c.sizes(1);
  if (!c.flag("allowzero"))
    for (size_t i = 0; i < to.size(); i++)
      if (to[i] == 0) {
        c.check(i < from.size(), "shape ", to, " keeps the size of axis ", i, ", which an input of shape ", from,
                " lacks");
        to[i] = from[i];
      }
  GraphScope scope;
  return {reshaped(c.value(0), with_rest(c, from, to))};
}

Values flatten(NodeContext& c) {
  const Shape s = c.value(0).shape();
  const auto rank = static_cast<int64_t>(s.size());
  int64_t axis = c.attr("axis", int64_t{1});
  if (axis < 0) axis += rank;
  c.check(axis >= 0 && axis <= rank, "axis ", axis, " is none of an input of ", rank, " axes");
  GraphScope scope;
  return {reshaped(c.value(0),
                   Shape{product(s, 0, static_cast<size_t>(axis)), product(s, static_cast<size_t>(axis), s.size())})};
}

Values squeeze(NodeContext& c) {
  const Shape s = c.value(0).shape();
  const auto rank = static_cast<int64_t>(s.size());
  const bool given = c.opset() >= 13 ? c.has(1) : c.has_attribute("axes");
  const std::vector<int> axes = normal_axes(given ? ints_of(c, "axes", 1, 13) : std::vector<int64_t>(), rank);
  Shape out;
  for (int i = 0; i < rank; i++) {
    const SInt& n = s[static_cast<size_t>(i)];
    const bool named = std::ranges::find(axes, i) != axes.end();
    TG_CHECK(ShapeError, !named || n == 1, "got axis ", i, " of shape ", s, ", expected one of size 1");
    if (given ? !named : n != 1) out.push_back(n);
  }
  return {reshaped(c.value(0), out)};
}

Values unsqueeze(NodeContext& c) {
  Shape s = c.value(0).shape();
  const std::vector<int64_t> axes = ints_of(c, "axes", 1, 13);
  const auto rank = static_cast<int64_t>(s.size() + axes.size());
  std::vector<int> at = normal_axes(axes, rank);
  std::ranges::sort(at);
  for (const int i : at) s.insert(s.begin() + std::min<long>(i, static_cast<long>(s.size())), SInt(1));
  return {reshaped(c.value(0), s)};
}

Values transpose(NodeContext& c) {
  const Value& v = c.value(0);
  const auto rank = static_cast<int64_t>(v.shape().size());
  std::vector<int64_t> order = c.attr_ints("perm");
  if (!c.has_attribute("perm"))
    for (int64_t i = rank; i-- > 0;) order.push_back(i);
  const std::vector<int> axes = normal_axes(order, rank);
  std::vector<int> each(static_cast<size_t>(rank));
  std::iota(each.begin(), each.end(), 0);
  if (v.host() && std::ranges::is_permutation(axes, each)) return {host_transpose(*v.host(), axes)};
  return {moved(v, v.as_tensor(c.device()).permute(axes))};
}

Values concat(NodeContext& c) {
  c.check(c.count() > 0, "got no inputs, expected at least one");
  const int64_t axis = c.opset() < 4 ? c.attr("axis", int64_t{1}) : c.required_int("axis");
  const auto is_row = [](const Value& v) { return v.host() && v.host()->shape.size() == 1; };
  if (std::ranges::all_of(c.values(), is_row)) {
    HostElements out;
    for (const Value& v : c.values()) {
      TG_CHECK(DTypeError, v.host()->dtype == c.known(0)->dtype, "got inputs of types ", c.known(0)->dtype, " and ",
               v.host()->dtype, ", expected one type");
      out.ints.insert(out.ints.end(), v.host()->ints.begin(), v.host()->ints.end());
      out.floats.insert(out.floats.end(), v.host()->floats.begin(), v.host()->floats.end());
    }
    const auto n = static_cast<int64_t>(out.ints.size() + out.floats.size());
    if (n <= kMostHostElements) return {HostArray::of(c.known(0)->dtype, {n}, std::move(out))};
  }
  Tensors parts;
  for (const Tensor& t : c.tensors())
    if (t.shape() != Shape{0} || c.count() == 1) parts.push_back(t);  // an empty row fits everywhere
  if (parts.empty()) return {c.tensor(0)};
  return {moved(c.value(0), Tensor::cat(parts, normal_axis(axis, parts[0].ndim())))};
}

/// Sizes of the parts: given, or as equal as can be, the last one smaller.
std::vector<int64_t> split_sizes(const NodeContext& c, int64_t n) {
  if (c.opset() >= 13 ? c.has(1) : c.has_attribute("split")) return ints_of(c, "split", 1, 13);
  const int64_t parts =
      c.opset() >= 18 ? c.attr("num_outputs", static_cast<int64_t>(c.outputs())) : static_cast<int64_t>(c.outputs());
  c.check(parts > 0 && parts == static_cast<int64_t>(c.outputs()), "num_outputs is ", parts, ", but there are ",
          c.outputs(), " outputs");
  const int64_t each = (n + parts - 1) / parts;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < parts; i++) out.push_back(std::clamp<int64_t>(n - i * each, 0, each));
  return out;
}

Values split(NodeContext& c) {
  const Shape s = c.value(0).shape();
  const int axis = normal_axis(c.attr("axis", int64_t{0}), static_cast<int64_t>(s.size()));
  const std::vector<int64_t> sizes = split_sizes(c, s[static_cast<size_t>(axis)].value());
  Values out;
  if (const HostArray* h = c.known(0); h && s.size() == 1) {
    size_t at = 0;
    for (const int64_t n : sizes) {
      TG_CHECK(ShapeError, n >= 0 && at + static_cast<size_t>(n) <= h->count(), "got sizes beyond ", h->count(),
               " elements");
      std::vector<size_t> part(static_cast<size_t>(n));
      std::iota(part.begin(), part.end(), at);
      at += part.size();
      out.emplace_back(host_take(*h, part, {n}));
    }
    return out;
  }
  for (Tensor& t : c.tensor(0).split(sizes, axis)) out.push_back(moved(c.value(0), std::move(t)));
  return out;
}

/// Start, end and step of one axis.
struct Cut {
  int axis;
  SInt from, to;
  int64_t step;
};

std::vector<Cut> cuts_of(const NodeContext& c, int64_t rank) {
  const bool attributes = c.opset() < 10;
  const Shape from = attributes ? shape_of(c.attr_ints("starts")) : c.sizes(1);
  const Shape to = attributes ? shape_of(c.attr_ints("ends")) : c.sizes(2);
  c.check(from.size() == to.size(), "starts and ends have ", from.size(), " and ", to.size(), " numbers");
  std::vector<int64_t> axes(from.size()), steps(from.size(), 1);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  axes = ints_of(c, "axes", 3, 10, axes);
  if (!attributes && c.has(4)) steps = c.ints(4);
  c.check(axes.size() == from.size() && steps.size() == from.size(), "axes and steps have ", axes.size(), " and ",
          steps.size(), " numbers for ", from.size(), " starts");
  std::vector<Cut> out;
  for (size_t i = 0; i < axes.size(); i++) out.push_back({normal_axis(axes[i], rank), from[i], to[i], steps[i]});
  return out;
}

/// Returns the slice of Python that a cut is: bounds beyond the axis are its ends.
Slice slice_of(const Cut& cut, const SInt& size) {
  if (cut.from.symbolic() || cut.to.symbolic() || size.symbolic()) {
    const bool whole = !cut.to.symbolic() && cut.to.value() >= INT32_MAX;
    return whole ? Slice(cut.from, None, cut.step) : Slice(cut.from, cut.to, cut.step);
  }
  const int64_t n = size.value();
  int64_t from = cut.from.value(), to = cut.to.value();
  if (from < 0) from = std::max<int64_t>(from, -n - 1) + n;  // values near -2^63 must not wrap
  if (to < 0) to = std::max<int64_t>(to, -n - 1) + n;
  if (cut.step > 0) return {std::clamp<int64_t>(from, 0, n), std::clamp<int64_t>(to, 0, n), cut.step};
  from = std::clamp<int64_t>(from, -1, n - 1);
  to = std::clamp<int64_t>(to, -1, n - 1);
  if (from <= to) return {0, 0, 1};
  return to < 0 ? Slice(from, None, cut.step) : Slice(from, to, cut.step);
}

/// Returns the elements of an array that the host has.
HostRef host_slice(const HostArray& h, const Cut& cut) {
  const int64_t n = h.shape[static_cast<size_t>(cut.axis)], step = std::clamp(cut.step, -n - 1, n + 1);
  const Slice s = slice_of(cut, n);
  std::vector<int64_t> at;
  const int64_t from = s.start.value->value(), to = s.stop.value ? s.stop.value->value() : -1;
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step) at.push_back(i);
  return host_take_along(h, static_cast<size_t>(cut.axis), at);
}

Values slice(NodeContext& c) {
  const Shape s = c.value(0).shape();
  const std::vector<Cut> cuts = cuts_of(c, static_cast<int64_t>(s.size()));
  for (const Cut& cut : cuts) TG_CHECK(ValueError, cut.step != 0, "got a step of 0");
  const auto is_known = [](const Cut& cut) { return !cut.from.symbolic() && !cut.to.symbolic(); };
  if (c.known(0) && is_host_size(c.known(0)->shape) && std::ranges::all_of(cuts, is_known)) {
    HostRef out = c.value(0).host_ref();
    for (const Cut& cut : cuts) out = host_slice(*out, cut);
    return {out};
  }
  std::vector<Index> at(s.size(), Index(Slice()));
  for (const Cut& cut : cuts)
    at[static_cast<size_t>(cut.axis)] = Index(slice_of(cut, s[static_cast<size_t>(cut.axis)]));
  return {moved(c.value(0), c.tensor(0).index(at))};
}

Values expand(NodeContext& c) {
  const Shape from = c.value(0).shape(), to = c.sizes(1);
  if (const HostArray* h = c.known(0); h && !to.symbolic()) {
    const auto shape = broadcast_shape(h->shape, to.ints());
    if (shape && is_host_size(*shape)) return {host_take(*h, broadcast_positions(h->shape, *shape), *shape)};
  }
  Shape out = to.size() >= from.size() ? to : from;
  const size_t rank = out.size();
  for (size_t i = 0; i < rank; i++) {
    const SInt a = i + from.size() >= rank ? from[i + from.size() - rank] : SInt(1);
    const SInt b = i + to.size() >= rank ? to[i + to.size() - rank] : SInt(1);
    out[i] = a == 1 ? b : a;
  }
  return {moved(c.value(0), c.tensor(0).expand(out))};
}

Values tile(NodeContext& c) {
  const Tensor x = c.tensor(0);
  if (c.opset() >= 6) return {moved(c.value(0), x.repeat(Ints(c.ints(1))))};
  std::vector<int64_t> repeats(static_cast<size_t>(x.ndim()), 1);
  repeats[static_cast<size_t>(normal_axis(c.integer(2), x.ndim()))] = c.integer(1);
  return {x.repeat(Ints(repeats))};
}

/// Numbers as a range of the host where they are few, else as an expression.
Values range(NodeContext& c) {
  const DType d = c.known(0) ? c.known(0)->dtype : c.tensor(0).dtype();
  if (d.is_float()) {
    const double from = c.number(0), to = c.number(1), step = c.number(2);
    TG_CHECK(ValueError, step != 0, "got a step of 0");
    const auto n = std::max(whole(std::ceil((to - from) / step)), int64_t{0});
    const Tensor k = Tensor::arange(0, n, 1, {.dtype = wide_float(d), .device = c.device()});
    return {(k * step + from).cast(d)};
  }
  const SInt from = c.sizes(0).at(0), to = c.sizes(1).at(0), step = c.sizes(2).at(0);
  if (from.symbolic() || to.symbolic() || step.symbolic())
    return {Tensor::arange_symbolic(from, to, step, {.dtype = d, .device = c.device()})};
  TG_CHECK(ValueError, step != 0, "got a step of 0");
  const int128 span = int128{to.value()} - from.value(), by = step.value();
  const int128 n = span == 0 || (span < 0) != (by < 0) ? 0 : (span + by + (by > 0 ? -1 : 1)) / by;
  if (n > kMostHostElements)
    return {Tensor::arange(from.value(), to.value(), step.value(), {.dtype = d, .device = c.device()})};
  std::vector<HostInt> out;
  for (int64_t i = 0; i < static_cast<int64_t>(n); i++) out.emplace_back(from.value() + i * step.value());
  return {HostArray::of_ints(std::move(out), d)};
}

Values constant_of_shape(NodeContext& c) {
  const Shape s = c.sizes(0);
  const TensorProto* t = c.attr_tensor("value");
  const DType f = c.dtype_of(ElemType::kFloat);
  const Value v = t ? c.run().constant(*t) : Value();
  c.check(!t || t->count() == 1, "value has ", t ? t->count() : 0, " elements, expected one");
  const DType d = t ? v.as_tensor().dtype() : f;
  const HostArray* h = v.host();
  if (h && !s.symbolic() && !d.is_float() && is_host_size(s.ints()))
    return {host_take(*h, std::vector<size_t>(static_cast<size_t>(s.numel()), 0), s.ints())};
  if (t && !h) return {moved(v, v.as_tensor().reshape(Shape{}).expand(s))};
  const Scalar value = !h ? Scalar(0.0) : d.is_float() ? Scalar(h->floats[0]) : Scalar(h->ints[0].value.value());
  return {Tensor::full(s, value, {.dtype = d, .device = c.device()})};
}

Values eye_like(NodeContext& c) {
  const Shape s = c.value(0).shape();
  c.check(s.size() == 2, "got shape ", s, ", expected a matrix");
  const std::optional<int64_t> type = c.optional_int("dtype");
  const DType d = type ? c.dtype_of(static_cast<ElemType>(*type)) : c.value(0).as_tensor().dtype();
  const int64_t rows = s[0].value(), columns = s[1].value(), k = c.attr("k", int64_t{0});
  const Tensor i = count_along(rows, 0, 2, dtypes::int64, c.device()),
               j = count_along(columns, 1, 2, dtypes::int64, c.device());
  return {(i + k).eq(j).cast(d)};
}

Values trilu(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int64_t k = c.integer_or(1, 0);
  return {c.flag("upper", true) ? x.triu(k) : x.tril(k)};
}

/// Cuts a channel axis into blocks of an image, or the other way.
Values depth_to_space(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int64_t b = c.required_int("blocksize");
  const Shape s = x.shape();
  c.check(s.size() == 4 && b > 0 && b <= 1 << 15 && s[1].value() % (b * b) == 0, "got shape ", s, " for blocksize ", b);
  const int64_t depth = s[1].value() / (b * b);
  const bool columns_first = c.choice("mode", "DCR", {"DCR", "CRD"}) == "DCR";
  const Tensor parts = columns_first ? x.reshape(Shape{s[0], b, b, depth, s[2], s[3]}).permute(0, 3, 4, 1, 5, 2)
                                     : x.reshape(Shape{s[0], depth, b, b, s[2], s[3]}).permute(0, 1, 4, 2, 5, 3);
  return {parts.reshape(Shape{s[0], depth, s[2].value() * b, s[3].value() * b})};
}
Values space_to_depth(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int64_t b = c.required_int("blocksize");
  const Shape s = x.shape();
  c.check(s.size() == 4 && b > 0 && s[2].value() % b == 0 && s[3].value() % b == 0, "got shape ", s, " for blocksize ",
          b);
  const int64_t h = s[2].value() / b, w = s[3].value() / b;
  const bool blocks_first = c.choice("mode", "DCR", {"DCR", "CRD"}) == "DCR";
  const Tensor parts = x.reshape(Shape{s[0], s[1], h, b, w, b});
  const Tensor ordered = blocks_first ? parts.permute(0, 3, 5, 1, 2, 4) : parts.permute(0, 1, 3, 5, 2, 4);
  return {ordered.reshape(Shape{s[0], s[1].value() * b * b, h, w})};
}

/// Amounts before and after each axis, for the axes that are given.
std::vector<std::pair<int64_t, int64_t>> pad_amounts(const NodeContext& c, int64_t rank) {
  const std::vector<int64_t> pads = c.opset() < 11 ? c.attr_ints(c.opset() < 2 ? "paddings" : "pads") : c.ints(1);
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (c.opset() >= 18 && c.has(3)) axes = c.ints(3);
  c.check(pads.size() == 2 * axes.size(), "pads has ", pads.size(), " numbers for ", axes.size(), " axes");
  std::vector<std::pair<int64_t, int64_t>> out(static_cast<size_t>(rank), {0, 0});
  for (size_t i = 0; i < axes.size(); i++)
    out[static_cast<size_t>(normal_axis(axes[i], rank))] = {pads[i], pads[i + axes.size()]};
  return out;
}

Values pad(NodeContext& c) {
  const Tensor x = c.tensor(0);
  std::vector<std::pair<int64_t, int64_t>> amounts = pad_amounts(c, x.ndim());
  const std::string mode = c.choice("mode", "constant", {"constant", "reflect", "edge", "wrap"});
  if (mode != "constant") {
    // What is cut off goes first: the rest is what is repeated.
    std::vector<std::pair<int64_t, int64_t>> cut = amounts;
    for (auto& [before, after] : cut) {
      before = std::min<int64_t>(before, 0);
      after = std::min<int64_t>(after, 0);
    }
    for (auto& [before, after] : amounts) {
      before = std::max<int64_t>(before, 0);
      after = std::max<int64_t>(after, 0);
    }
    const PadOptions::Mode how = mode == "reflect" ? PadOptions::kReflect
                                 : mode == "edge"  ? PadOptions::kReplicate
                                                   : PadOptions::kCircular;
    return {x.pad(cut).pad(amounts, {.mode = how})};
  }
  if (c.opset() < 11) return {x.pad(amounts, {.value = c.attr("value", 0.0)}).cast(x.dtype())};
  if (!c.has(2)) return {x.pad(amounts)};
  if (const std::optional<double> v = known_number(c.value(2)))
    return {x.is_floating_point() ? x.pad(amounts, {.value = *v}).cast(x.dtype())
                                  : x.pad(amounts, {.value = whole(*v)}).cast(x.dtype())};
  const Tensor inside = Tensor::ones(x.shape(), {.dtype = dtypes::bool_, .device = c.device()}).pad(amounts);
  return {inside.where(x.pad(amounts), c.tensor(2).reshape(Shape{}))};
}

Values center_crop_pad(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const std::vector<int64_t> to = c.ints(1);
  std::vector<int64_t> all(static_cast<size_t>(x.ndim()));
  std::iota(all.begin(), all.end(), int64_t{0});
  const std::vector<int> axes = normal_axes(c.attr_ints("axes", all), x.ndim());
  c.check(axes.size() == to.size(), "shape has ", to.size(), " sizes for ", axes.size(), " axes");
  std::vector<std::pair<int64_t, int64_t>> amounts(all.size(), {0, 0});
  for (size_t i = 0; i < axes.size(); i++) {
    const int64_t more = to[i] - x.shape(axes[i]);
    const int64_t before = more >= 0 ? more / 2 : -(-more / 2);
    amounts[static_cast<size_t>(axes[i])] = {before, more - before};
  }
  return {x.pad(amounts)};
}

Values reverse_sequence(NodeContext& c) {
  const Tensor x = c.tensor(0), lengths = c.tensor(1).cast(dtypes::int64);
  const int64_t batch = c.attr("batch_axis", int64_t{1}), time = c.attr("time_axis", int64_t{0});
  const Tensor n = along_axis(lengths, batch, x.ndim());
  const Tensor at = count_along(x.shape(static_cast<int>(time)), time, x.ndim(), dtypes::int64, c.device());
  const Tensor from = at.lt(n).where(n - 1 - at, at).expand(x.shape());
  return {x.gather(static_cast<int>(time), from)};
}

const OperatorRow kRows[] = {
    {"", "Constant", 1, constant},
    {"", "Shape", 1, shape},
    {"", "Size", 1, size},
    {"", "Reshape", 1, reshape},
    {"", "Flatten", 1, flatten},
    {"", "Squeeze", 1, squeeze},
    {"", "Unsqueeze", 1, unsqueeze},
    {"", "Transpose", 1, transpose},
    {"", "Concat", 1, concat},
    {"", "Split", 1, split},
    {"", "Slice", 1, slice},
    {"", "Expand", 8, expand},
    {"", "Tile", 1, tile},
    {"", "Range", 11, range},
    {"", "ConstantOfShape", 9, constant_of_shape},
    {"", "EyeLike", 9, eye_like},
    {"", "Trilu", 14, trilu},
    {"", "DepthToSpace", 1, depth_to_space},
    {"", "SpaceToDepth", 1, space_to_depth},
    {"", "Pad", 1, pad},
    {"", "CenterCropPad", 18, center_crop_pad},
    {"", "ReverseSequence", 10, reverse_sequence},
    {"com.microsoft", "Trilu", 1, trilu},
};

}  // namespace

OperatorRows shape_operators() { return kRows; }

}  // namespace tg::onnx
