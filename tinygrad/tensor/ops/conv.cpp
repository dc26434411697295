/// \file Convolution and pooling over any number of spatial axes: windows as a view, then multiply and reduce.
#include "tinygrad/tensor/ops/conv.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/elementary.h"
#include "tinygrad/tensor/ops/image.h"
#include "tinygrad/tensor/ops/product.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/multi.h"

namespace tg {
using namespace tensor_detail;

using conv::PadList, conv::spatial_pads, conv::with_lead;

namespace {
int64_t ceil_div(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
int64_t floor_div(int64_t a, int64_t b) { return -ceil_div(-a, b); }
}  // namespace

PadList conv::spatial_pads(const Ints& p, size_t n, const char* op) {
  PadList out(n);
  if (p.size() == 2 * n && n > 0) {
    for (size_t i = 0; i < n; i++) out[n - 1 - i] = {p[2 * i], p[2 * i + 1]};
    return out;
  }
  std::vector<int64_t> v = per_axis(p, n, op, "padding");
  for (size_t i = 0; i < n; i++) out[i] = {v[i], v[i]};
  return out;
}
PadList conv::with_lead(const PadList& p, size_t ndim) {
  PadList out(ndim - p.size(), {0, 0});
  out.insert(out.end(), p.begin(), p.end());
  return out;
}

namespace {
using P = std::pair<SInt, SInt>;

/// Sizes of a view as windows along the last n axes.
struct WindowView {
  WindowView(const Shape& shape, const Ints& kernel_sizes, const Ints& stride, const Ints& dilation)
      : sh(shape), n(kernel_sizes.size()), kernel(kernel_sizes), in(n), out(n) {
    TG_CHECK(ShapeError, sh.size() >= n, "[pool] got shape ", sh, " for a kernel of ", n,
             " axes, expected at least as many");
    lead = sh.size() - n;
    step = per_axis(stride, n, "pool", "stride");
    dil = per_axis(dilation, n, "pool", "dilation");
    for (size_t i = 0; i < n; i++) {
      in[i] = sh[lead + i].value();
      TG_CHECK(ShapeError, kernel[i] > 0 && step[i] > 0 && dil[i] > 0, "[pool] got kernel ", kernel[i], ", stride ",
               step[i], ", dilation ", dil[i], ", expected 1 or more");
      TG_CHECK(ShapeError, dil[i] * (kernel[i] - 1) < in[i], "[pool] got kernel ", kernel[i], " with dilation ", dil[i],
               " for ", in[i], " elements (shape ", sh, "), expected a kernel that fits");
      out[i] = (in[i] - dil[i] * (kernel[i] - 1) - 1) / step[i] + 1;
      overlapping |= kernel[i] > step[i] || dil[i] != 1;
      strided |= step[i] != 1;
    }
  }

  const Shape& sh;
  size_t n, lead = 0;
  std::vector<int64_t> kernel, step, dil, in, out;
  bool overlapping = false, strided = false;

  /// Returns a shape: the leading axes unchanged, then one or two entries per axis.
  template <class... F> Shape shape_with(F... f) const {
    Shape r(sh.begin(), sh.begin() + static_cast<long>(lead));
    for (size_t i = 0; i < n; i++) (r.push_back(f(i)), ...);
    return r;
  }
  /// Returns a list of pairs: for the leading axes all (`whole`) or no elements, then one or two entries per axis.
  template <class... F> ops::Pairs pairs_with(bool whole, F... f) const {
    ops::Pairs r;
    for (size_t i = 0; i < lead; i++) r.push_back({0, whole ? sh[i] : SInt(0)});
    for (size_t i = 0; i < n; i++) (r.push_back(f(i)), ...);
    return r;
  }
  /// Permutes the entries of each axis: those in `inner` stay with the axis, those in `outer` are grouped by entry.
  UOp permute(UOp u, const std::vector<size_t>& outer, size_t entries, const std::vector<size_t>& inner = {}) const {
    std::vector<int> order;
    for (size_t i = 0; i < lead; i++) order.push_back(static_cast<int>(i));
    for (size_t j : outer)
      for (size_t i = 0; i < n; i++) order.push_back(static_cast<int>(lead + entries * i + j));
    for (size_t i = 0; i < n; i++)
      for (size_t j : inner) order.push_back(static_cast<int>(lead + entries * i + j));
    return ops::permute(u, order);
  }
};

/// Returns rows of length `step`, of which the first `kernel` elements are used.
UOp disjoint_windows(UOp u, const WindowView& v) {
  u = ops::shrink(u, v.pairs_with(true, [&](size_t i) { return P(0, std::min(v.in[i], v.out[i] * v.step[i])); }));
  u = ops::pad(
      u, v.pairs_with(false, [&](size_t i) { return P(0, std::max<int64_t>(0, v.out[i] * v.step[i] - v.in[i])); }));
  u = ops::reshape(u, v.shape_with([&](size_t i) { return v.out[i]; }, [&](size_t i) { return v.step[i]; }));
  u = ops::shrink(
      u, v.pairs_with(true, [&](size_t i) { return P(0, v.out[i]); }, [&](size_t i) { return P(0, v.kernel[i]); }));
  return v.permute(u, {0, 1}, 2);
}

/// Windows that overlap, as rows of taps.
///
/// y[k, o] = x[o * step + k * dilation]. The axis is repeated K times, each row padded to W - d, the whole shifted by
/// (K-1) * d and read in rows of W: row k then starts k * d elements later than row 0. Both this view and its gradient
/// are affine in k and o.
///
/// Of stride s > 1: with k = t * s + r the element is x[(o + t) * s + r], so the rows are those of ceil(K / s) taps t
/// of dilation s, each read in pieces (o, r), and (t, r) are the taps. The gradient then sums, for every element, over
/// the few t that reach it; a strided view of K rows would sum over all K, of which one in s contributes.
class OverlappingWindows {
 public:
  explicit OverlappingWindows(const WindowView& view)
      : v_(view), taps_(v_.kernel), far_(v_.dil), reach_(v_.in), split_(v_.n) {
    for (size_t i = 0; i < v_.n; i++) {
      if (v_.kernel[i] <= v_.step[i] || v_.step[i] == 1 || v_.dil[i] != 1) continue;
      split_[i] = any_split_ = true;
      taps_[i] = ceil_div(v_.kernel[i], v_.step[i]);
      far_[i] = v_.step[i];
      reach_[i] = (v_.out[i] + taps_[i] - 1) * v_.step[i];
    }
  }

  UOp view(UOp u) const {
    u = rows(u);
    if (v_.strided) u = strides(u);
    return v_.permute(u, {1, 0}, 2);
  }

 private:
  int64_t used(size_t i) const { return split_[i] ? v_.out[i] * v_.step[i] : (v_.out[i] - 1) * v_.step[i] + 1; }
  int64_t kept(size_t i) const { return split_[i] ? v_.step[i] : 1; }

  /// Returns a row of `used` elements for each tap.
  UOp rows(UOp u) const {
    const auto& reach = reach_;
    if (any_split_) {
      u = ops::shrink(u, v_.pairs_with(true, [&](size_t i) { return P(0, std::min(v_.in[i], reach[i])); }));
      u = ops::pad(u, v_.pairs_with(false, [&](size_t i) { return P(0, std::max<int64_t>(0, reach[i] - v_.in[i])); }));
    }
    auto one = [](size_t) { return int64_t{1}; };
    auto k = [&](size_t i) { return taps_[i]; };
    auto r = [&](size_t i) { return reach[i]; };
    auto w = [&](size_t i) { return reach[i] + (taps_[i] - 1) * far_[i]; };  // the padded row
    auto v = [&](size_t i) { return w(i) - (taps_[i] > 1 ? far_[i] : 0); };
    u = ops::expand(ops::reshape(u, v_.shape_with(one, r)), v_.shape_with(k, r));
    u = ops::pad(u,
                 v_.pairs_with(false, [](size_t) { return P(0, 0); }, [&](size_t i) { return P(0, v(i) - reach[i]); }));
    u = ops::reshape(u, v_.shape_with([&](size_t i) { return taps_[i] * v(i); }));
    u = ops::pad(u, v_.pairs_with(false, [&](size_t i) {
      return taps_[i] > 1 ? P((taps_[i] - 1) * far_[i], far_[i]) : P(0, 0);
    }));
    u = ops::reshape(u, v_.shape_with(k, w));
    return ops::shrink(u, v_.pairs_with(
                              true, [&](size_t i) { return P(0, taps_[i]); },
                              [&](size_t i) { return P((taps_[i] - 1) * far_[i], used(i)); }));
  }

  /// Splits the rows into pieces of length `step`, of which every element is a tap, or only the first one is used.
  UOp strides(UOp u) const {
    auto k = [&](size_t i) { return taps_[i]; };
    auto o = [&](size_t i) { return v_.out[i]; };
    u = ops::pad(u, v_.pairs_with(
                        false, [](size_t) { return P(0, 0); },
                        [&](size_t i) { return P(0, v_.out[i] * v_.step[i] - used(i)); }));
    u = ops::reshape(u, v_.shape_with(k, o, [&](size_t i) { return v_.step[i]; }));
    u = ops::shrink(u, v_.pairs_with(
                           true, [&](size_t i) { return P(0, taps_[i]); }, [&](size_t i) { return P(0, v_.out[i]); },
                           [&](size_t i) { return P(0, kept(i)); }));
    u = v_.permute(u, {}, 3, {0, 2, 1});
    u = ops::reshape(u, v_.shape_with([&](size_t i) { return taps_[i] * kept(i); }, o));
    return ops::shrink(
        u,
        v_.pairs_with(true, [&](size_t i) { return P(0, v_.kernel[i]); }, [&](size_t i) { return P(0, v_.out[i]); }));
  }

  const WindowView& v_;
  std::vector<int64_t> taps_, far_, reach_;  // of each axis: its taps, the distance between them, the extent they reach
  std::vector<bool> split_;
  bool any_split_ = false;
};
}  // namespace

Tensor Tensor::pool_view(const Ints& kernel, const Ints& stride, const Ints& dilation) const {
  OpScope s;
  const Shape sh = shape();
  const WindowView v(sh, kernel, stride, dilation);
  return s(v.overlapping ? OverlappingWindows(v).view(uop()) : disjoint_windows(uop(), v));
}

Tensor Tensor::conv2d(const Tensor& weight, const Tensor& bias, const ConvOptions& o) const {
  OpScope s;
  uop_of(*this, "conv2d");
  uop_of(weight, "conv2d");
  if (ndim() + 1 == weight.ndim()) return s(unsqueeze(0).conv2d(weight, bias, o).squeeze(0));  // without a batch
  const auto is_symbolic = [](const SInt& n) { return n.symbolic(); };
  if (const Shape xs = shape(), ws = weight.shape();
      xs.size() == ws.size() && xs.size() >= 3 && std::any_of(xs.begin() + 1, xs.end(), is_symbolic)) {
    // Pads each image to the maximum sizes, computes, and cuts the result back to these sizes.
    size_t n = xs.size() - 2;
    const Shape begin(xs.size(), SInt(0));
    Shape most = max_shape();
    most[0] = xs[0];
    Tensor r = from_uop(UOp::make(Ops::PAD, dtype(), {uop(), begin.stack(), most.stack()})).conv2d(weight, bias, o);
    Shape out = r.shape();
    out[0] = xs[0];
    const PadList pads = spatial_pads(o.padding, n, "conv2d");
    std::vector<int64_t> step = per_axis(o.stride, n, "conv2d", "stride"),
                         dil = per_axis(o.dilation, n, "conv2d", "dilation");
    for (size_t i = 0; i < n; i++) {
      if (!xs[2 + i].symbolic()) continue;
      SInt room = ops::plus(xs[2 + i], pads[i].first + pads[i].second - dil[i] * (ws[2 + i].value() - 1) - 1);
      out[2 + i] = ops::plus(ops::simplified(SInt(room.uop() / UOp::constant(step[i]))), 1);
    }
    return s(r.shrink_to(out));
  }
  const auto fits = [&] {
    return o.groups > 0 && weight.shape(1) * o.groups == shape(1) && weight.shape(0) % o.groups == 0;
  };
  if (ndim() == 4 && weight.ndim() == 4 && image::are_wanted(*this, weight) && fits()) {
    const Tensor r = image_conv2d(weight, bias, o);
    return s(o.dtype ? r : r.cast(least_upper_dtype(dtype(), weight.dtype())));
  }
  Tensor r = conv::direct(*this, weight, o);
  if (!bias.defined()) return s(r);
  Shape line(static_cast<size_t>(ndim()), SInt(1));
  line[1] = weight.shape(0);
  TG_CHECK(ShapeError, bias.numel() == weight.shape(0), "[conv2d] got bias ", bias.shape(), ", expected ",
           weight.shape(0), " elements");
  return s(r + bias.reshape(line));
}

namespace {
/// Returns the windows of x, (batch, groups, 1, out..., in, kernel...), and the weight they are multiplied by.
std::pair<Tensor, Tensor> factors(const Tensor& x, const Tensor& weight, int64_t g, const std::vector<int64_t>& step,
                                  const std::vector<int64_t>& dil) {
  const Shape ws = weight.shape();
  const size_t n = step.size();
  const int64_t cout = ws[0].value(), cin = ws[1].value();
  Ints kernel;
  for (size_t i = 0; i < n; i++) kernel.push_back(ws[2 + i].value());
  const Tensor v = x.pool_view(kernel, Ints(step), Ints(dil));  // (bs, cin_all, out..., kernel...)
  Shape split{v.shape()[0], g, 1, cin}, wsplit{1, g, cout / g};
  for (size_t i = 0; i < 2 * n; i++) split.push_back(v.shape(static_cast<int>(2 + i)));
  std::vector<int> order{0, 1, 2};
  for (size_t i = 0; i < n; i++) {
    order.push_back(static_cast<int>(4 + i));
    wsplit.push_back(1);
  }
  order.push_back(3);
  wsplit.push_back(cin);
  for (size_t i = 0; i < n; i++) {
    order.push_back(static_cast<int>(4 + n + i));
    wsplit.push_back(kernel[i]);
  }
  return {v.reshape(split).permute(order), weight.reshape(wsplit)};
}

// Thresholds below which columns cost no more than polyphase components: few input channels (the product of columns has
// the larger tiles), and sums so long that storing columns takes negligible time in comparison.
constexpr int64_t kPhaseChannels = 8, kLongSums = 512;
constexpr double kFewColumns = 2;

/// Whether the gradient of the input becomes a transposed convolution: overlapping strided windows.
bool gradient_in_phases(const Tensor& x, const Tensor& weight, int64_t g, const std::vector<int64_t>& step,
                        const std::vector<int64_t>& dil, const PadList& pads) {
  if (!x.dtype().is_float() || x.dtype().is_weak() || x.dtype() != weight.dtype() || is_multi(x.uop()) ||
      is_multi(weight.uop()) || x.shape()[0].symbolic())
    return false;
  if (x.shape(1) / g < kPhaseChannels || weight.shape(0) / g >= kLongSums) return false;
  bool overlapping = false;
  double columns = 1;
  for (size_t i = 0; i < step.size(); i++) {
    if ((step[i] > 1 && dil[i] > 1) || pads[i].first < 0 || pads[i].second < 0) return false;
    const int64_t k = weight.shape(static_cast<int>(2 + i));
    overlapping |= step[i] > 1 && k > step[i];
    columns *= static_cast<double>(k) / static_cast<double>(step[i]);
  }
  return overlapping && columns >= kFewColumns;
}
}  // namespace

std::pair<Tensor, Tensor> conv::gradients(const Tensor& g, const Tensor& x, const Tensor& weight,
                                          const std::vector<int64_t>& form) {
  const size_t n = form.size() / 4;
  std::vector<int64_t> step, dil;
  PadList pads;
  Ints rest, around(std::vector<int64_t>(2 * n));
  for (size_t i = 0; i < n; i++) {
    const int64_t* f = form.data() + 1 + 4 * i;
    step.push_back(f[0]);
    dil.push_back(f[1]);
    pads.push_back({f[2], f[3]});
    const int axis = static_cast<int>(2 + i);
    rest.push_back(x.shape(axis) - ((g.shape(axis) - 1) * f[0] - f[2] - f[3] + f[1] * (weight.shape(axis) - 1) + 1));
    around[2 * (n - 1 - i)] = f[2];
    around[2 * (n - 1 - i) + 1] = f[3];
  }
  Tensor dx = g.conv_transpose2d(
      weight, {},
      {.groups = form[0], .stride = Ints(step), .dilation = Ints(dil), .padding = around, .output_padding = rest});
  auto [windows, w] = factors(x.pad(with_lead(pads, n + 2)), weight, form[0], step, dil);
  Shape sums(w.shape());
  Axes summed(std::vector<int>{0});
  for (size_t i = 0; i < n; i++) {
    sums[3 + i] = windows.shape(static_cast<int>(3 + i));
    summed.list.push_back(static_cast<int>(3 + i));
  }
  sums[0] = g.shape(0);
  for (size_t i = 3 + n; i < sums.size(); i++) sums[i] = 1;
  return {dx, sum_of_products(windows, g.reshape(sums), summed).reshape(weight.shape())};
}

static void check_steps(const std::vector<int64_t>& steps, const char* what) {
  for (int64_t s : steps) TG_CHECK(ShapeError, s > 0, "[conv2d] got ", what, " ", s, ", expected 1 or more");
}

Tensor conv::direct(const Tensor& t, const Tensor& weight, const ConvOptions& o) {
  const Shape xs = t.shape(), ws = weight.shape();
  TG_CHECK(ShapeError, xs.size() == ws.size() && xs.size() >= 3, "[conv2d] got input ", xs, " and weight ", ws,
           ", expected equal numbers of axes: (batch, in, ...) and (out, in / groups, ...)");
  size_t n = xs.size() - 2;
  check_steps(per_axis(o.stride, n, "conv2d", "stride"), "stride");
  check_steps(per_axis(o.dilation, n, "conv2d", "dilation"), "dilation");
  const SInt& bs = xs[0];
  const int64_t cin_all = xs[1].value(), cout = ws[0].value(), cin = ws[1].value(), g = o.groups;
  TG_CHECK(ShapeError, g > 0 && g * cin == cin_all && cout % g == 0, "[conv2d] got input ", xs, " and weight ", ws,
           " with ", g, " groups, expected ", g, " x ", cin,
           " input channels and output channels divisible by the groups");
  Ints kernel;
  for (size_t i = 0; i < n; i++) kernel.push_back(ws[2 + i].value());
  const PadList pads = spatial_pads(o.padding, n, "conv2d");
  Tensor x = t.pad(with_lead(pads, xs.size()));
  for (size_t i = 0; i < n; i++) {
    int64_t d = per_axis(o.dilation, n, "conv2d", "dilation")[i];
    TG_CHECK(ShapeError, x.shape(static_cast<int>(2 + i)) > d * (kernel[i] - 1), "[conv2d] got input ", xs,
             " and weight ", ws, ", expected a kernel that fits into the padded input");
  }
  auto all = [](const Ints& v, int64_t want) {
    return std::all_of(v.begin(), v.end(), [&](int64_t e) { return e == want; });
  };
  if (env::WINO && !bs.symbolic() && all(kernel, 3) && all(o.stride, 1) && all(o.dilation, 1)) {
    const DType factors = least_upper_dtype(t.dtype(), weight.dtype()), wide = wide_dtype(factors, o.dtype);
    if (wide == factors) return winograd(t, weight, g, pads, o.dtype);
    const Tensor r = winograd(t.cast(wide), weight.cast(wide), g, pads, o.dtype);
    return !o.dtype && factors.is_float() ? r.cast(factors) : r;
  }
  const std::vector<int64_t> step = per_axis(o.stride, n, "conv2d", "stride"),
                             dil = per_axis(o.dilation, n, "conv2d", "dilation");
  auto [windows, w] = factors(x, weight, g, step, dil);
  Axes inner(std::vector<int>{});
  for (size_t i = 0; i <= n; i++) inner.list.push_back(static_cast<int>(3 + n + i));
  Tensor r = sum_of_products(windows, w, inner, o.dtype);
  Shape out{bs, cout};
  for (size_t i = 0; i < n; i++) out.push_back(windows.shape(static_cast<int>(3 + i)));
  if (r.dtype() == t.dtype() && gradient_in_phases(t, weight, g, step, dil, pads)) {
    std::vector<int64_t> form{g};
    for (size_t i = 0; i < n; i++) form.insert(form.end(), {step[i], dil[i], pads[i].first, pads[i].second});
    return Tensor::from_uop(
        UOp::make(Ops::CUSTOM_GRADIENT, r.dtype(), {r.reshape(out).uop(), t.uop(), weight.uop()}, Arg(form)));
  }
  return r.reshape(out);
}

namespace {
/// One axis of a transposed convolution. With k = t * step + r and o + before = q * step + r the output is a sum over
/// the taps t of x[q - t] w[t * step + r].
struct Spread {
  int64_t in, kernel, step, dilation, before, out;
  int64_t taps() const { return step > 1 ? ceil_div(kernel, step) : kernel; }
  int64_t first() const { return floor_div(before, step); }  // row q
  int64_t rows() const { return floor_div(before + out - 1, step) - first() + 1; }
};
/// The polyphase components r in [phase, phase + phases) of an axis, computed together with `taps` taps, in `rows` rows
/// from `first` on.
struct Phases {
  int64_t phase, phases, taps, first, rows;
};
Phases phases_of(const Spread& a, int64_t phase, int64_t phases, int64_t taps) {
  const int64_t first = std::max(a.first(), ceil_div(a.before - (phase + phases - 1), a.step)),
                last = floor_div(a.before + a.out - 1 - phase, a.step);
  return {phase, phases, taps, first, last - first + 1};
}

/// Returns the sums of these components: (batch, channels, then rows and components of each axis).
Tensor spread_part(const Tensor& t, const Tensor& weight, const std::vector<Spread>& axes,
                   const std::vector<Phases>& part, int64_t g) {
  const Shape xs = t.shape(), ws = weight.shape();
  const size_t n = axes.size();
  const SInt& bs = xs[0];
  const int64_t cin = ws[0].value() / g, cout = ws[1].value();
  auto axis = [](size_t i) { return static_cast<int>(i); };
  PadList grow, tail{{0, 0}, {0, 0}, {0, 0}};
  Ints taps, dilation;
  Shape kernel{g, cin, cout}, apart{g, cin, cout}, image{bs, g, 1, cin}, w_shape{1, g, cout}, out{bs, g * cout};
  std::vector<int> w_order{0, 2}, x_order{0, 1, 2}, flipped;
  ops::Pairs kept{{0, g}, {0, cin}, {0, cout}};
  Axes summed(std::vector<int>{});
  for (size_t i = 0; i < n; i++) {
    const Spread& a = axes[i];
    const Phases& p = part[i];
    const int64_t all = a.taps(), step = a.step;
    grow.push_back({(p.taps - 1) * a.dilation - p.first, p.first + p.rows - a.in});
    taps.push_back(p.taps);
    dilation.push_back(a.dilation);
    kernel.push_back(a.kernel);
    tail.push_back({0, all * step - a.kernel});
    apart.push_back(all);
    apart.push_back(step);
    kept.push_back({0, p.taps});
    kept.push_back({p.phase, p.phases});
    flipped.push_back(axis(3 + 2 * i));
    w_order.push_back(axis(4 + 2 * i));
    w_shape.push_back(1);
    w_shape.push_back(p.phases);
    image.push_back(p.rows);
    image.push_back(1);
    x_order.push_back(axis(4 + 2 * i));
    x_order.push_back(axis(5 + 2 * i));
    out.push_back(p.rows);
    out.push_back(p.phases);
  }
  w_order.push_back(1);
  w_shape.push_back(cin);
  x_order.push_back(3);
  summed.list.push_back(axis(3 + 2 * n));
  for (size_t i = 0; i < n; i++) {
    image.push_back(taps[i]);
    w_shape.push_back(taps[i]);
    w_order.push_back(axis(3 + 2 * i));
    x_order.push_back(axis(4 + 2 * n + i));
    summed.list.push_back(axis(4 + 2 * n + i));
  }
  Tensor w = weight.reshape(kernel).pad(tail).reshape(apart);
  w = Tensor::from_uop(ops::shrink(w.uop(), kept)).flip(flipped).permute(w_order).reshape(w_shape);
  Tensor x = t.pad(with_lead(grow, xs.size())).pool_view(taps, 1, dilation).reshape(image).permute(x_order);
  return sum_of_products(x, w, summed).reshape(out);
}

/// Inserts zeros between the elements of the input and convolves with the reversed kernel.
Tensor spread_with_zeros(const Tensor& t, const Tensor& weight, const std::vector<Spread>& axes, int64_t g) {
  const Shape xs = t.shape(), ws = weight.shape();
  Shape split{g, ws[0].value() / g, ws[1].value()}, merged{ws[1].value() * g, ws[0].value() / g};
  Shape wide{xs[0], xs[1]}, flat = wide, cut = wide;
  std::vector<int> order{0, 2, 1}, spatial;
  PadList zeros{{0, 0}, {0, 0}}, grow;
  Ints dilation;
  for (size_t i = 0; i < axes.size(); i++) {
    const Spread& a = axes[i];
    split.push_back(a.kernel);
    merged.push_back(a.kernel);
    order.push_back(static_cast<int>(3 + i));
    spatial.push_back(static_cast<int>(3 + i));
    wide.push_back(a.in);
    wide.push_back(1);
    zeros.push_back({0, 0});
    zeros.push_back({0, a.step - 1});
    flat.push_back(a.in * a.step);
    const int64_t size = a.in > 0 ? (a.in - 1) * a.step + 1 : 0, before = (a.kernel - 1) * a.dilation - a.before;
    cut.push_back(size);
    dilation.push_back(a.dilation);
    grow.push_back({before, a.out + (a.kernel - 1) * a.dilation - before - size});
  }
  Tensor w = weight.reshape(split).permute(order).flip(spatial).reshape(merged);
  return t.reshape(wide)
      .pad(zeros)
      .reshape(flat)
      .shrink_to(cut)
      .pad(with_lead(grow, xs.size()))
      .conv2d(w, {}, {.groups = g, .dilation = dilation});
}
constexpr int64_t kFewPhases = 4;  // codegen unrolls up to this many

/// Computes the polyphase components as further axes of a convolution's result: no products with inserted zeros. Where
/// the kernel is no multiple of the stride, its first components have one more tap than the others: one sum for each
/// kind.
Tensor spread_in_phases(const Tensor& t, const Tensor& weight, const std::vector<Spread>& axes, int64_t g) {
  const size_t n = axes.size();
  std::vector<std::vector<Phases>> of(n);
  size_t count = 1;
  for (size_t i = 0; i < n; i++) {
    const Spread& a = axes[i];
    const int64_t taps = a.taps(), more = a.step > 1 && a.kernel % a.step ? a.kernel % a.step : a.step;
    of[i].push_back(phases_of(a, 0, more, taps));
    if (more < a.step && taps > 1) of[i].push_back(phases_of(a, more, a.step - more, taps - 1));
    std::erase_if(of[i], [](const Phases& p) { return p.rows <= 0; });
    // Padding may cut off everything x reaches: nothing to gain there.
    const bool reached = std::all_of(of[i].begin(), of[i].end(), [&](const Phases& p) {
      return p.first - (p.taps - 1) * a.dilation < a.in && p.first + p.rows > 0;
    });
    if (of[i].empty() || !reached) return spread_with_zeros(t, weight, axes, g);
    count *= of[i].size();
  }
  // Enumerates the kinds of components of the axes from `i` on, the last one fastest.
  Tensors parts;
  for (size_t c = 0; c < count; c++) {
    std::vector<Phases> part(n);
    for (size_t i = n, at = c; i-- > 0; at /= of[i].size()) part[i] = of[i][at % of[i].size()];
    parts.push_back(spread_part(t, weight, axes, part, g));
  }
  for (size_t i = n; i-- > 0;) {
    const Spread& a = axes[i];
    Tensors next;
    for (size_t c = 0; c < parts.size(); c += of[i].size()) {
      Tensors row;
      for (size_t k = 0; k < of[i].size(); k++) {
        const Phases& p = of[i][k];
        PadList pads(2 + 2 * n, {0, 0});
        pads[2 + 2 * i] = {p.first - a.first(), a.first() + a.rows() - p.first - p.rows};
        if (of[i].size() == 1)
          pads[3 + 2 * i] = {p.phase, a.step - p.phase - p.phases};  // components without a tap are zero
        row.push_back(parts[c + k].pad(pads));
      }
      next.push_back(Tensor::cat(row, static_cast<int>(3 + 2 * i)));
    }
    parts = next;
  }
  // Many components of which padding cuts some off are stored next to each other: no loop could walk them and the rows.
  bool many = false;
  for (const Spread& a : axes) many |= a.step > kFewPhases && a.before % a.step != 0;
  if (many && count == 1) parts[0] = parts[0].contiguous();
  Shape whole{parts[0].shape()[0], parts[0].shape()[1]};
  ops::Pairs seen{{0, whole[0]}, {0, whole[1]}};
  for (const Spread& a : axes) {
    whole.push_back(a.rows() * a.step);
    seen.push_back({a.before - a.first() * a.step, a.out});
  }
  return Tensor::from_uop(ops::shrink(parts[0].reshape(whole).uop(), seen));
}

}  // namespace

Tensor Tensor::conv_transpose2d(const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& o) const {
  OpScope s;
  if (ndim() + 1 == weight.ndim()) return s(unsqueeze(0).conv_transpose2d(weight, bias, o).squeeze(0));
  const Shape xs = shape(), ws = weight.shape();
  TG_CHECK(ShapeError,
           xs.size() == ws.size() && xs.size() >= 3 && xs[1] == ws[0] && o.groups > 0 && ws[0].value() % o.groups == 0,
           "[conv_transpose2d] got input ", xs, " and weight ", ws, " with ", o.groups,
           " groups, expected (batch, in, ...) and (in, out / groups, ...)");
  const size_t n = xs.size() - 2;
  const std::vector<int64_t> step = per_axis(o.stride, n, "conv_transpose2d", "stride"),
                             dil = per_axis(o.dilation, n, "conv_transpose2d", "dilation"),
                             extra = per_axis(o.output_padding, n, "conv_transpose2d", "output_padding");
  const PadList p = spatial_pads(o.padding, n, "conv_transpose2d");
  if (xs.symbolic()) {
    // Pads to the maximum sizes, computes, and cuts the result back to these sizes.
    Tensor r = from_uop(UOp::make(Ops::PAD, dtype(), {uop(), Shape(xs.size(), SInt(0)).stack(), max_shape().stack()}))
                   .conv_transpose2d(weight, bias, o);
    Shape out = r.shape();
    out[0] = xs[0];
    for (size_t i = 0; i < n; i++)
      if (xs[2 + i].symbolic())
        out[2 + i] =
            ops::simplified(SInt((xs[2 + i].uop() - max_shape()[2 + i].value()) * step[i] + out[2 + i].value()));
    return s(r.shrink_to(out));
  }
  std::vector<Spread> axes;
  bool dense = true, steps = false;
  for (size_t i = 0; i < n; i++) {
    const int64_t m = xs[2 + i].value(), k = ws[2 + i].value();
    TG_CHECK(ShapeError, k > 0 && step[i] > 0 && dil[i] > 0, "[conv_transpose2d] got kernel ", k, ", stride ", step[i],
             ", dilation ", dil[i], ", expected 1 or more");
    // The stride of a single element is arbitrary: with the kernel's own stride each output has one tap.
    const int64_t apart = m == 1 && dil[i] == 1 ? std::max(step[i], k) : step[i];
    axes.push_back({m, k, apart, dil[i], p[i].first,
                    (m > 0 ? (m - 1) * step[i] + 1 : 0) + (k - 1) * dil[i] - p[i].first - p[i].second + extra[i]});
    dense &= (apart == 1 || dil[i] == 1) && m > 0 && axes.back().out > 0;
    steps |= apart > 1;
  }
  Tensor r = steps && dense ? spread_in_phases(*this, weight, axes, o.groups)
                            : spread_with_zeros(*this, weight, axes, o.groups);
  if (!bias.defined()) return s(r);
  Shape line(xs.size(), SInt(1));
  line[1] = r.shape(1);
  TG_CHECK(ShapeError, bias.numel() == r.shape(1), "[conv_transpose2d] got bias ", bias.shape(), ", expected ",
           r.shape(1), " elements");
  return s(r + bias.reshape(line));
}

namespace {
struct Pool {
  Ints kernel, stride, dilation;
  PadList pads, grown;  ///< as asked, and with what ceil_mode adds
};
Pool pool_of(const Tensor& t, const PoolOptions& o, const char* op) {
  Pool p;
  const Shape sh = t.shape();
  size_t n = o.kernel_size.each ? 2 : o.kernel_size.size();
  TG_CHECK(ShapeError, sh.size() >= n, "[", op, "] got shape ", sh, " for a kernel of ", n,
           " axes, expected at least as many");
  p.kernel = per_axis(o.kernel_size, n, op, "kernel_size");
  p.stride = o.stride.empty() ? p.kernel : Ints(per_axis(o.stride, n, op, "stride"));
  p.dilation = per_axis(o.dilation, n, op, "dilation");
  p.pads = p.grown = spatial_pads(o.padding, n, op);
  for (size_t i = 0; i < n; i++) {
    int64_t in = sh[sh.size() - n + i].value() + p.pads[i].first + p.pads[i].second,
            span = p.dilation[i] * (p.kernel[i] - 1) + 1;
    TG_CHECK(ShapeError, p.kernel[i] > 0 && p.stride[i] > 0 && p.dilation[i] > 0 && in >= span, "[", op, "] got shape ",
             sh, " and a kernel of ", p.kernel[i], ", expected a kernel that fits and strides of 1 or more");
    if (!o.ceil_mode) continue;
    int64_t out = ceil_div(in - span, p.stride[i]) + 1;
    if ((out - 1) * p.stride[i] >= in - p.pads[i].second) out--;  // a window must start inside
    p.grown[i].second += std::max<int64_t>(0, (out - 1) * p.stride[i] + span - in);
  }
  return p;
}
Axes last_axes(size_t n) {
  Axes a(std::vector<int>{});
  for (size_t i = 0; i < n; i++) a.list.push_back(-static_cast<int>(i) - 1);
  return a;
}
}  // namespace

/// Returns the windows of a max pooling; padding is lower than every value.
static Tensor max_windows(const Tensor& t, const Pool& p) {
  bool padded = false;
  for (auto [a, b] : p.grown) padded |= a != 0 || b != 0;
  Tensor x = t;
  if (padded) {
    DType d = t.stored_dtype();
    UOp inside = ops::full(t.shape(), true, dtypes::bool_);
    ops::Pairs pairs(static_cast<size_t>(t.ndim()) - p.grown.size(), {0, 0});
    for (auto [a, b] : p.grown) pairs.push_back({a, b});
    x = Tensor::from_uop(ops::pad(inside, pairs))
            .where(Tensor::from_uop(ops::pad(t.uop(), pairs)),
                   Tensor::from_uop(UOp::constant(identity_element(Ops::MAX, d), d)));
  }
  return x.pool_view(p.kernel, p.stride, p.dilation);
}

Tensor Tensor::max_pool2d(const PoolOptions& o) const {
  OpScope s;
  Pool p = pool_of(*this, o, "max_pool2d");
  return s(max_windows(*this, p).max({.axis = last_axes(p.kernel.size())}));
}

std::pair<Tensor, Tensor> Tensor::max_pool2d_with_indices(const PoolOptions& o) const {
  OpScope s;
  Pool p = pool_of(*this, o, "max_pool2d");
  Axes inner = last_axes(p.kernel.size());
  Tensor windows = max_windows(*this, p), top = windows.max({.axis = inner, .keepdim = true});
  const Shape sh = shape();
  Shape spatial(sh.end() - static_cast<long>(p.kernel.size()), sh.end());
  int64_t n = spatial.numel();
  // Positions count down, so that the first of equal elements has the largest; padding is below all of them.
  Tensor position = max_windows(arange(n, 0, -1, {.dtype = dtypes::int32}).reshape(spatial), p);
  Tensor same = windows == from_uop(ops::detach_from_storage(uop_of(top, "max_pool2d")));
  if (dtype().is_float()) same = same | windows.isnan();  // which the maximum of its window is, but does not equal
  Tensor index = n - same.where(position, INT32_MIN).max({.axis = inner});
  return {s(top.reshape(index.shape())), s(index)};
}

Tensor Tensor::max_unpool2d(const Tensor& indices, const PoolOptions& o, const Ints& output_size) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, sh.size() >= 3 && indices.shape() == sh, "[max_unpool2d] got values ", sh, " and indices ",
           indices.shape(), ", expected equal shapes (batch, channels, ...)");
  size_t n = sh.size() - 2;
  Shape out(sh.begin(), sh.begin() + 2), rows = out;
  std::vector<int64_t> kernel = per_axis(o.kernel_size.size() == 2 && n != 2 ? Ints(o.kernel_size[0]) : o.kernel_size,
                                         n, "max_unpool2d", "kernel_size");
  std::vector<int64_t> step = o.stride.empty() ? kernel : per_axis(o.stride, n, "max_unpool2d", "stride"),
                       dil = per_axis(o.dilation, n, "max_unpool2d", "dilation");
  PadList pads = spatial_pads(o.padding, n, "max_unpool2d");
  TG_CHECK(ShapeError, output_size.empty() || output_size.size() >= n, "[max_unpool2d] got output_size of ",
           output_size.size(), " axes, expected ", n);
  for (size_t i = 0; i < n; i++)
    out.push_back(output_size.empty() ? (sh[2 + i].value() - 1) * step[i] - pads[i].first - pads[i].second +
                                            dil[i] * (kernel[i] - 1) + 1
                                      : output_size[output_size.size() - n + i]);
  rows.push_back(Shape(out.begin() + 2, out.end()).numel());
  const Tensor flat = flatten(2), places = indices.flatten(2), empty = full(rows, 0, {.dtype = dtype()});
  if (!dtype().is_float()) return s(empty.scatter(2, places, flat).reshape(out));
  // Overlapping windows may name one position twice: its gradient goes to each of them.
  auto spread = custom_gradient(
      [&](const Tensor& v, const Tensor& i) { return empty.scatter(2, i, v); },
      [](const Tensor& g, const Tensor&, const Tensor& i) { return Tensors{g.gather(2, i), Tensor()}; });
  return s(spread(flat, places).reshape(out));
}

Tensor Tensor::interpolate(const Ints& size, Interpolation mode, bool align_corners) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, !size.empty() && size.size() <= sh.size(), "[interpolate] got ", size.size(),
           " sizes for shape ", sh, ", expected 1 to ", sh.size());
  TG_CHECK(ValueError, !align_corners || mode == Interpolation::kLinear,
           "[interpolate] got align_corners with a nearest mode, expected linear");
  Tensor x = mode == Interpolation::kLinear ? as_float(*this) : *this;  // bytes are rounded once, after all axes
  for (size_t k = 0; k < size.size(); k++) {
    size_t axis = sh.size() - 1 - k;
    int64_t in = sh[axis].value(), out = size[size.size() - 1 - k];
    TG_CHECK(ShapeError, out > 0 && in > 0, "[interpolate] got size ", out, " for ", in,
             " elements, expected 1 or more");
    Shape line(sh.size(), SInt(1));
    line[axis] = out;
    auto rows = [&](const Tensor& i) {
      std::vector<Index> at(axis, Index(Slice()));
      at.push_back(Index(i));
      return x.index(at);
    };
    Tensor i = arange(out);
    if (mode == Interpolation::kLinear) {
      Tensor num = align_corners ? i * (in - 1) : (i * 2 + 1) * in - out;
      int64_t den = align_corners ? std::max<int64_t>(out - 1, 1) : out * 2;
      num = num.clamp(0, (in - 1) * den);
      Tensor low = num.floor_div(den), high = (num + (den - 1)).floor_div(den),
             part = (num % den).to_float() / static_cast<double>(den);
      x = rows(low).lerp(rows(high), part.reshape(line));
    } else {
      double scale = static_cast<double>(in) / static_cast<double>(out);
      Tensor f = i.to_float();
      x = rows((mode == Interpolation::kNearestExact ? (f + 0.5) * scale : f * scale).to_int());
    }
  }
  return s((dtype() == dtypes::uint8 ? x.round() : x).cast(dtype()));
}

Tensor Tensor::avg_pool2d(const PoolOptions& o) const {
  OpScope s;
  Pool p = pool_of(*this, o, "avg_pool2d");
  size_t nd = static_cast<size_t>(ndim());
  Axes inner = last_axes(p.kernel.size());
  auto windows = [&](const Tensor& t, const PadList& pads) {
    return t.pad(with_lead(pads, nd)).pool_view(p.kernel, p.stride, p.dilation);
  };
  if (o.count_include_pad && !o.ceil_mode) return s(windows(*this, p.grown).mean({.axis = inner}));
  // Half types hold neither the sum of a large window nor the number of its elements.
  const DType d = dtype(), wide = wide_dtype(d);
  PadList rest = p.grown;
  if (o.count_include_pad)
    for (size_t i = 0; i < p.pads.size(); i++)
      rest[i] = {p.grown[i].first - p.pads[i].first, p.grown[i].second - p.pads[i].second};
  const Tensor counted = o.count_include_pad ? pad(with_lead(p.pads, nd)) : *this;
  const Tensor mean =
      windows(cast(wide), p.grown).sum({.axis = inner}) / windows(counted.ones_like(wide), rest).sum({.axis = inner});
  return s(d.is_float() ? mean.cast(d) : mean);
}

}  // namespace tg
