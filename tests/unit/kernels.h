/// \file Kernels to test codegen with, a renderer that prints nothing, and the comparison of a program with its
/// kernel's meaning.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "kernel_eval.h"
#include "tinygrad/codegen/codegen.h"

namespace tg::testing {

class TestRenderer : public Renderer {
 public:
  explicit TestRenderer(int vector_bytes = 16, bool threads = true, bool locals = false, int cores = 2)
      : Renderer(target(vector_bytes, cores)), threads_(threads), locals_(locals) {}
  OpSet ops() const override { return groups::kAlu; }
  bool supports(DType) const override { return true; }
  bool has_threads() const override { return threads_; }
  bool has_locals() const override { return locals_; }
  bool has_prefetch() const override { return true; }
  std::string render(const Program& p) const override { return p.name; }

 private:
  static Target target(int bytes, int cores) {
    Target t;
    t.device = "TEST";
    t.renderer = "TEST";
    t.arch = "x86_64";
    t.vector_bytes = bytes;
    t.vector_registers = bytes == 64 ? 32 : 16;
    t.cores = cores;
    return t;
  }
  bool threads_, locals_;
};

/// A kernel under construction: parameters and ranges by number.
struct KernelMaker {
  ArenaRef arena = std::make_shared<Arena>();
  std::unique_ptr<ArenaScope> scope = std::make_unique<ArenaScope>(*arena);
  int ranges = 0;
  UOp param(int slot, int64_t size, DType d = dtypes::float32) {
    return UOp::make(Ops::PARAM, d, {UOp::shape_stack(std::vector<int64_t>{size})},
                     Arg(ParamArg{slot, AddrSpace::kGlobal, "", "", 0, 0}));
  }
  UOp loop(int64_t n) { return UOp::range(n, ranges++, AxisType::kLoop); }
  UOp red(int64_t n) { return UOp::range(n, ranges++, AxisType::kReduce); }
  std::shared_ptr<Kernel> finish(UOps effects) {
    auto k = std::make_shared<Kernel>();
    k->sink = UOp::sink(effects, Arg(KernelInfo{}));
    k->arena = arena;
    k->key = k->sink.key();
    scope.reset();
    return k;
  }
  std::shared_ptr<Kernel> finish(UOp effect) { return finish(UOps{effect}); }
};
using KernelPtr = std::shared_ptr<Kernel>;

inline Memory random_memory(const Kernel& k, uint32_t seed) {
  ArenaScope scope(*k.arena);
  std::mt19937 rng(seed);
  Memory m;
  for (UOp u : k.sink.toposort()) {
    if (!u.is(Ops::PARAM) || u.arg<ParamArg>().addrspace != AddrSpace::kGlobal) continue;
    auto slot = static_cast<size_t>(u.arg<ParamArg>().slot);
    if (m.size() <= slot) m.resize(slot + 1);
    m[slot].resize(static_cast<size_t>(u.src(0).src(0).const_int()));
    for (ConstValue& v : m[slot]) {
      if (u.dtype().is_float()) v = truncate_float(std::uniform_real_distribution<double>(-2, 2)(rng), u.dtype());
      else if (u.dtype().is_bool()) v = ConstValue(int(rng() % 2));
      else v = ConstValue(int(rng() % 7));
    }
  }
  return m;
}

/// Compiles and compares on random data; returns the program.
inline std::shared_ptr<Program> check_kernel(const KernelPtr& k, const Renderer& r, const CodegenOptions& o,
                                             Vars vars = {}) {
  auto p = to_program(*k, r, o);
  Memory want = random_memory(*k, 1), got = want;
  {
    ArenaScope scope(*k->arena);
    AstEval(want, vars).run(k->sink);
  }
  {
    ArenaScope scope(*p->arena);
    int64_t extent =
        p->thread_extent && p->thread_extent.is_const() ? static_cast<int64_t>(p->thread_extent.const_int()) : -1;
    // In two parts, as two threads would.
    if (r.has_locals()) {
      run_grid(*p, got, vars);
    } else if (extent > 1) {
      LinearEval a(got, vars), b(got, vars);
      a.begin = extent / 3;
      a.end = extent;
      a.run(p->insts);
      b.begin = 0;
      b.end = extent / 3;
      b.run(p->insts);
    } else {
      LinearEval(got, vars).run(p->insts);
    }
  }
  for (size_t s = 0; s < want.size(); s++)
    for (size_t i = 0; i < want[s].size(); i++) {
      double a = want[s][i].as_double(), b = got[s][i].as_double();
      if (!(std::isnan(a) && std::isnan(b)) && !(a == b) && !(std::abs(a - b) <= 1e-4 * (1 + std::abs(a)))) {
        ADD_FAILURE() << "buffer " << s << " element " << i << ": " << b << ", expected " << a;
        return p;
      }
    }
  return p;
}

// ---- kernels ----
inline KernelPtr elementwise(int64_t n, int64_t m) {
  KernelMaker k;
  UOp a = k.param(1, n * m), b = k.param(2, m), o = k.param(0, n * m), i = k.loop(n), j = k.loop(m), at = i * m + j;
  return k.finish(
      o.index({at}).store(a.index({at}).load() * b.index({j}).load() + a.index({at}).load()).end(UOps{i, j}));
}
inline KernelPtr transpose(int64_t n, int64_t m) {
  KernelMaker k;
  UOp a = k.param(1, n * m), o = k.param(0, n * m), i = k.loop(n), j = k.loop(m);
  return k.finish(o.index({i * m + j}).store(a.index({j * n + i}).load()).end(UOps{i, j}));
}
inline KernelPtr reduce_rows(int64_t n, int64_t m, Ops op = Ops::ADD, DType d = dtypes::float32) {
  KernelMaker k;
  UOp a = k.param(1, n * m, d), o = k.param(0, n, d), i = k.loop(n), j = k.red(m);
  return k.finish(o.index({i}).store(a.index({i * m + j}).load().reduce(op, UOps{j})).end(UOps{i}));
}
inline KernelPtr reduce_columns(int64_t n, int64_t m) {
  KernelMaker k;
  UOp a = k.param(1, n * m), o = k.param(0, m), j = k.loop(m), i = k.red(n);
  return k.finish(o.index({j}).store(a.index({i * m + j}).load().reduce(Ops::ADD, UOps{i})).end(UOps{j}));
}
inline KernelPtr reduce_all(int64_t n, Ops op = Ops::ADD) {
  KernelMaker k;
  UOp a = k.param(1, n), o = k.param(0, 1), i = k.red(n);
  return k.finish(o.index({UOp::constant(int64_t{0})}).store(a.index({i}).load().reduce(op, UOps{i})));
}
inline KernelPtr count_ones(int64_t n, int64_t m) {  // a value that does not depend on the reduced range
  KernelMaker k;
  UOp a = k.param(1, n), o = k.param(0, n), i = k.loop(n), j = k.red(m);
  return k.finish(o.index({i}).store(a.index({i}).load().reduce(Ops::ADD, UOps{j})).end(UOps{i}));
}
/// The divisor of a window's mean where padding does not count: taps inside of the image, for every position of n
/// rows of m.
inline KernelPtr count_taps(int64_t n, int64_t m, int64_t taps) {
  KernelMaker k;
  UOp a = k.param(1, n * m), o = k.param(0, n * m), i = k.loop(n), j = k.loop(m), t = k.red(taps);
  UOp outside = (i < ConstValue(1)) & (t < ConstValue(1)), at = i * m + j;
  UOp counted =
      outside.where(UOp::constant(0, dtypes::float32), UOp::constant(1, dtypes::float32)).reduce(Ops::ADD, UOps{t});
  return k.finish(o.index({at}).store(a.index({at}).load() * counted).end(UOps{i, j}));
}
/// Sums over the m elements up to each of n positions, all of them shifted by one element; before the first there is
/// padding.
inline KernelPtr sums_of_shifted(int64_t n, int64_t m) {
  KernelMaker k;
  UOp a = k.param(1, n), b = k.param(2, 1), o = k.param(0, n), i = k.loop(n), j = k.red(m);
  UOp at = i + j - (m - 1), inside = (at < ConstValue(0)).logical_not();
  UOp x = a.index({at.valid(inside)}).load(), shift = b.index({UOp::constant(int64_t{0}).valid(inside)}).load();
  UOp value = inside.where(x + shift, UOp::constant(0, dtypes::float32));
  return k.finish(o.index({i}).store(value.reduce(Ops::ADD, UOps{j})).end(UOps{i}));
}
inline KernelPtr matmul(int64_t n, int64_t m, int64_t l, bool ta = false, bool tb = false) {
  KernelMaker k;
  UOp a = k.param(1, n * l), b = k.param(2, l * m), o = k.param(0, n * m), i = k.loop(n), j = k.loop(m), r = k.red(l);
  UOp x = a.index({ta ? r * n + i : i * l + r}).load(), y = b.index({tb ? j * l + r : r * m + j}).load();
  return k.finish(o.index({i * m + j}).store((x * y).reduce(Ops::ADD, UOps{r})).end(UOps{i, j}));
}
/// Factors of types `a` and `b`, widened to `wide`, in which their products are summed; the sum is stored in `out`.
inline KernelPtr narrow_matmul(int64_t n, int64_t m, int64_t l, DType a_type, DType b_type, DType wide, bool ta,
                               bool tb, std::optional<DType> out = {}) {
  KernelMaker k;
  UOp a = k.param(1, n * l, a_type), b = k.param(2, l * m, b_type), o = k.param(0, n * m, out.value_or(wide));
  UOp i = k.loop(n), j = k.loop(m), r = k.red(l);
  UOp x = a.index({ta ? r * n + i : i * l + r}).load(), y = b.index({tb ? j * l + r : r * m + j}).load();
  UOp sum = (x.cast(wide) * y.cast(wide)).reduce(Ops::ADD, UOps{r});
  return k.finish(o.index({i * m + j}).store(sum.cast(out.value_or(wide))).end(UOps{i, j}));
}
inline KernelPtr conv(int64_t bs, int64_t ic, int64_t oc, int64_t h, int64_t w, int64_t f, int64_t pad,
                      int64_t step = 1) {
  KernelMaker k;
  int64_t oh = (h + 2 * pad - f) / step + 1, ow = (w + 2 * pad - f) / step + 1;
  UOp in = k.param(1, bs * ic * h * w), wt = k.param(2, oc * ic * f * f), o = k.param(0, bs * oc * oh * ow);
  UOp n = k.loop(bs), c = k.loop(oc), y = k.loop(oh), x = k.loop(ow), q = k.red(ic), ky = k.red(f), kx = k.red(f);
  UOp iy = (step > 1 ? y * step : y) + ky - pad, ix = (step > 1 ? x * step : x) + kx - pad,
      at = ((n * ic + q) * h + iy) * w + ix;
  UOp v;
  if (pad) {
    UOp ok = (iy.ge(iy.const_like(0)) & (iy < h)) & (ix.ge(ix.const_like(0)) & (ix < w));
    v = ok.where(in.index({at.valid(ok)}).load(), UOp::constant(0.0, dtypes::float32));
  } else {
    v = in.index({at}).load();
  }
  UOp u = wt.index({((c * ic + q) * f + ky) * f + kx}).load();
  return k.finish(o.index({((n * oc + c) * oh + y) * ow + x})
                      .store((v * u).reduce(Ops::ADD, UOps{q, ky, kx}))
                      .end(UOps{n, c, y, x}));
}
inline KernelPtr depthwise(int64_t bs, int64_t channels, int64_t h, int64_t w, int64_t f, int64_t pad) {
  KernelMaker k;
  int64_t oh = h + 2 * pad - f + 1, ow = w + 2 * pad - f + 1;
  UOp in = k.param(1, bs * channels * h * w), wt = k.param(2, channels * f * f),
      o = k.param(0, bs * channels * oh * ow);
  UOp n = k.loop(bs), c = k.loop(channels), y = k.loop(oh), x = k.loop(ow), ky = k.red(f), kx = k.red(f);
  UOp iy = y + ky - pad, ix = x + kx - pad, at = ((n * channels + c) * h + iy) * w + ix;
  UOp ok = (iy.ge(iy.const_like(0)) & (iy < h)) & (ix.ge(ix.const_like(0)) & (ix < w));
  UOp v = pad ? ok.where(in.index({at.valid(ok)}).load(), UOp::constant(0.0, dtypes::float32)) : in.index({at}).load();
  UOp u = wt.index({(c * f + ky) * f + kx}).load();
  return k.finish(o.index({((n * channels + c) * oh + y) * ow + x})
                      .store((v * u).reduce(Ops::ADD, UOps{ky, kx}))
                      .end(UOps{n, c, y, x}));
}
inline KernelPtr conv_weight_grad(int64_t bs, int64_t ic, int64_t oc, int64_t h, int64_t w, int64_t f) {
  KernelMaker k;
  int64_t oh = h - f + 1, ow = w - f + 1;
  UOp in = k.param(1, bs * ic * h * w), g = k.param(2, bs * oc * oh * ow), o = k.param(0, oc * ic * f * f);
  UOp c = k.loop(oc), q = k.loop(ic), ky = k.loop(f), kx = k.loop(f), n = k.red(bs), y = k.red(oh), x = k.red(ow);
  UOp v = in.index({((n * ic + q) * h + (y + ky)) * w + (x + kx)}).load(),
      u = g.index({((n * oc + c) * oh + y) * ow + x}).load();
  return k.finish(o.index({((c * ic + q) * f + ky) * f + kx})
                      .store((v * u).reduce(Ops::ADD, UOps{n, y, x}))
                      .end(UOps{c, q, ky, kx}));
}
/// A weight gradient with everything a convolution can have. `ic`, `oc`: channels of one group.
struct WeightGrad {
  int64_t bs = 1, ic = 1, oc = 1, h = 1, w = 1, f = 1, pad = 0, stride = 1, dilation = 1, groups = 1;
  int64_t out(int64_t n) const { return (n + 2 * pad - dilation * (f - 1) - 1) / stride + 1; }
};
inline KernelPtr conv_weight_grad(const WeightGrad& s) {
  KernelMaker k;
  const int64_t oh = s.out(s.h), ow = s.out(s.w), ics = s.ic * s.groups, ocs = s.oc * s.groups;
  UOp in = k.param(1, s.bs * ics * s.h * s.w), g = k.param(2, s.bs * ocs * oh * ow),
      o = k.param(0, ocs * s.ic * s.f * s.f);
  UOp e = s.groups > 1 ? k.loop(s.groups) : UOp::constant(int64_t{0}), c = k.loop(s.oc), q = k.loop(s.ic),
      ky = k.loop(s.f), kx = k.loop(s.f);
  UOp n = k.red(s.bs), y = k.red(oh), x = k.red(ow), oc = e * s.oc + c;
  UOp iy = y * s.stride + ky * s.dilation - s.pad, ix = x * s.stride + kx * s.dilation - s.pad;
  UOp at = ((n * ics + (e * s.ic + q)) * s.h + iy) * s.w + ix,
      ok = (iy.ge(iy.const_like(0)) & (iy < s.h)) & (ix.ge(ix.const_like(0)) & (ix < s.w));
  UOp v =
      s.pad ? ok.where(in.index({at.valid(ok)}).load(), UOp::constant(0.0, dtypes::float32)) : in.index({at}).load();
  UOp u = g.index({((n * ocs + oc) * oh + y) * ow + x}).load();
  UOps loops{c, q, ky, kx};
  if (s.groups > 1) loops.insert(loops.begin(), e);
  return k.finish(
      o.index({((oc * s.ic + q) * s.f + ky) * s.f + kx}).store((v * u).reduce(Ops::ADD, UOps{n, y, x})).end(loops));
}
/// Sums what a convolution in steps of `step` read, back to where it came from; the columns are stored.
inline KernelPtr columns_to_image(int64_t n, int64_t h, int64_t w, int64_t f, int64_t step, int64_t pad) {
  KernelMaker k;
  int64_t oh = (h + 2 * pad - f) / step + 1, ow = (w + 2 * pad - f) / step + 1;
  UOp in = k.param(1, n * f * f * oh * ow), o = k.param(0, n * h * w), c = k.loop(n), y = k.loop(h), x = k.loop(w),
      ky = k.red(f), kx = k.red(f);
  UOp py = y + pad - ky, px = x + pad - kx, s = UOp::constant(step), zero = UOp::constant(int64_t{0});
  UOp ok = (py.ge(zero) & (py / s < oh) & (py % s < 1)) & (px.ge(zero) & (px / s < ow) & (px % s < 1));
  UOp at = (((c * f + ky) * f + kx) * oh + py / s) * ow + px / s;
  UOp v = ok.where(in.index({at.valid(ok)}).load(), UOp::constant(0.0, dtypes::float32));
  return k.finish(o.index({(c * h + y) * w + x}).store(v.reduce(Ops::ADD, UOps{ky, kx})).end(UOps{c, y, x}));
}
/// The same as a sum over the windows that hold an element: those of its phase.
inline KernelPtr taps_to_image(int64_t n, int64_t h, int64_t w, int64_t f, int64_t step, int64_t pad) {
  KernelMaker k;
  int64_t oh = (h + 2 * pad - f) / step + 1, ow = (w + 2 * pad - f) / step + 1, taps = (f + step - 1) / step;
  UOp in = k.param(1, n * f * f * oh * ow), o = k.param(0, n * h * w), c = k.loop(n), y = k.loop(h), x = k.loop(w),
      ty = k.red(taps), tx = k.red(taps);
  UOp s = UOp::constant(step), zero = UOp::constant(int64_t{0}), oy = (y + pad) / s - ty, ox = (x + pad) / s - tx,
      ky = ty * step + (y + pad) % s, kx = tx * step + (x + pad) % s;
  UOp ok = (oy.ge(zero) & (oy < oh) & (ky < f)) & (ox.ge(zero) & (ox < ow) & (kx < f));
  UOp at = (((c * f + ky) * f + kx) * oh + oy) * ow + ox;
  UOp v = ok.where(in.index({at.valid(ok)}).load(), UOp::constant(0.0, dtypes::float32));
  return k.finish(o.index({(c * h + y) * w + x}).store(v.reduce(Ops::ADD, UOps{ty, tx})).end(UOps{c, y, x}));
}
inline KernelPtr softmax(int64_t n, int64_t m) {  // three passes over a row in one kernel
  KernelMaker k;
  UOp a = k.param(1, n * m), o = k.param(0, n * m), i = k.loop(n), j = k.loop(m), r = k.red(m), s = k.red(m);
  auto at = [&](UOp c) { return a.index({i * m + c}).load(); };
  auto exp = [&](UOp x) { return UOp::alu(Ops::EXP2, {x}); };
  UOp top = at(r).reduce(Ops::MAX, UOps{r}), sum = exp(at(s) - top).reduce(Ops::ADD, UOps{s});
  return k.finish(o.index({i * m + j}).store(exp(at(j) - top) * UOp::alu(Ops::RECIPROCAL, {sum})).end(UOps{i, j}));
}
/// The gradient of softmax from its input: p = exp(a - max) / sum, o = p * (g - sum of p * g), three passes with the
/// same exponentials. Small ones only: evaluated point by point it takes m^4 steps a row.
inline KernelPtr softmax_grad(int64_t n, int64_t m) {
  KernelMaker k;
  UOp a = k.param(1, n * m), g = k.param(2, n * m), o = k.param(0, n * m), i = k.loop(n), j = k.loop(m), r = k.red(m),
      s = k.red(m), t = k.red(m);
  auto at = [&](UOp p, UOp c) { return p.index({i * m + c}).load(); };
  UOp top = at(a, r).reduce(Ops::MAX, UOps{r});
  auto exp = [&](UOp c) { return UOp::alu(Ops::EXP2, {at(a, c) - top}); };
  UOp inverse = UOp::alu(Ops::RECIPROCAL, {exp(s).reduce(Ops::ADD, UOps{s})}),
      dot = (exp(t) * inverse * at(g, t)).reduce(Ops::ADD, UOps{t});
  return k.finish(o.index({i * m + j}).store(exp(j) * inverse * (at(g, j) - dot)).end(UOps{i, j}));
}
inline KernelPtr variance(int64_t n, int64_t m) {  // a chain of reduces over one range, and two that share loops
  KernelMaker k;
  UOp a = k.param(1, n * m), o = k.param(0, n), p = k.param(2, n), i = k.loop(n), r = k.red(m);
  UOp x = a.index({i * m + r}).load(), mean = x.reduce(Ops::ADD, UOps{r}) * ConstValue(1.0 / static_cast<double>(m)),
      d = x - mean;
  UOp top = x.reduce(Ops::MAX, UOps{r});
  return k.finish(UOps{o.index({i}).store((d * d).reduce(Ops::ADD, UOps{r})).end(UOps{i}),
                       p.index({i}).store(top + mean).end(UOps{i})});
}
inline KernelPtr nested(int64_t n, int64_t m, int64_t l) {  // a reduce of a product with a reduce
  KernelMaker k;
  UOp a = k.param(1, n * m), b = k.param(2, m * l), o = k.param(0, n), i = k.loop(n), r = k.red(m), s = k.red(l);
  UOp in = b.index({r * l + s}).load().reduce(Ops::MAX, UOps{s});
  return k.finish(o.index({i}).store((a.index({i * m + r}).load() * in).reduce(Ops::ADD, UOps{r})).end(UOps{i}));
}
inline KernelPtr nested_dependent(int64_t n, int64_t m,
                                  int64_t l) {  // the inner reduce depends on the outer loop and range
  KernelMaker k;
  UOp a = k.param(1, n * m), b = k.param(2, m * l), o = k.param(0, n), i = k.loop(n), r = k.red(m), s = k.red(l);
  UOp in = (b.index({r * l + s}).load() * a.index({i * m + r}).load()).reduce(Ops::MAX, UOps{s});
  return k.finish(o.index({i}).store((a.index({i * m + r}).load() + in).reduce(Ops::ADD, UOps{r})).end(UOps{i}));
}
/// A masked sum over taps of sums over channels.
inline KernelPtr conv_input_grad(int64_t bs, int64_t ic, int64_t oc, int64_t h, int64_t w, int64_t f,
                                 DType d = dtypes::float32) {
  KernelMaker k;
  int64_t oh = h - f + 1, ow = w - f + 1;
  UOp g = k.param(1, bs * oc * oh * ow, d), wt = k.param(2, oc * ic * f * f, d), o = k.param(0, bs * ic * h * w, d);
  UOp n = k.loop(bs), q = k.loop(ic), y = k.loop(h), x = k.loop(w), ky = k.red(f), kx = k.red(f), c = k.red(oc);
  UOp gy = y - ky, gx = x - kx, ok = (gy.ge(gy.const_like(0)) & (gy < oh)) & (gx.ge(gx.const_like(0)) & (gx < ow));
  UOp v = g.index({(((n * oc + c) * oh + gy) * ow + gx).valid(ok)}).load() *
          wt.index({((c * ic + q) * f + ky) * f + kx}).load();
  UOp sum = ok.where(v.reduce(Ops::ADD, UOps{c}), UOp::constant(0, d)).reduce(Ops::ADD, UOps{ky, kx});
  return k.finish(o.index({((n * ic + q) * h + y) * w + x}).store(sum).end(UOps{n, q, y, x}));
}
/// The input gradient of a padded convolution, times another tensor.
inline KernelPtr padded_input_grad(int64_t bs, int64_t ic, int64_t oc, int64_t h, int64_t w, int64_t f, int64_t pad) {
  KernelMaker k;
  const int64_t oh = h + 2 * pad - f + 1, ow = w + 2 * pad - f + 1;
  UOp g = k.param(1, bs * oc * oh * ow), wt = k.param(2, oc * ic * f * f), by = k.param(3, bs * ic * h * w),
      o = k.param(0, bs * ic * h * w);
  UOp n = k.loop(bs), q = k.loop(ic), y = k.loop(h), x = k.loop(w), ky = k.red(f), kx = k.red(f), c = k.red(oc);
  UOp gy = y - ky + pad, gx = x - kx + pad,
      ok = (gy.ge(gy.const_like(0)) & (gy < oh)) & (gx.ge(gx.const_like(0)) & (gx < ow));
  UOp v = g.index({(((n * oc + c) * oh + gy) * ow + gx).valid(ok)}).load() *
          wt.index({((c * ic + q) * f + ky) * f + kx}).load();
  UOp sum = ok.where(v, UOp::constant(0.0, dtypes::float32)).reduce(Ops::ADD, UOps{ky, kx, c}),
      at = ((n * ic + q) * h + y) * w + x;
  return k.finish(o.index({at}).store(sum * by.index({at}).load()).end(UOps{n, q, y, x}));
}
inline UOp is_top(UOp x, UOp top) { return x.ne(top).logical_not().cast(dtypes::float32); }
/// Which elements are the maximum of their window, adjacent windows of f x f.
inline KernelPtr pool_gradient(int64_t n, int64_t h, int64_t f) {
  KernelMaker k;
  const int64_t o = h / f;
  UOp x = k.param(1, n * h * h), top = k.param(2, n * o * o), out = k.param(0, n * h * h), c = k.loop(n), i = k.loop(h),
      j = k.loop(h);
  UOp at = (c * h + i) * h + j, of = (c * o + i / f) * o + j / f;
  return k.finish(out.index({at}).store(is_top(x.index({at}).load(), top.index({of}).load())).end(UOps{c, i, j}));
}
/// How many elements of each window equal its maximum, windows of f x f of stride `step`.
inline KernelPtr pool_ties(int64_t n, int64_t h, int64_t f, int64_t step) {
  KernelMaker k;
  const int64_t o = (h - f) / step + 1;
  UOp x = k.param(1, n * h * h), top = k.param(2, n * o * o), out = k.param(0, n * o * o), c = k.loop(n), i = k.loop(o),
      j = k.loop(o);
  UOp p = k.red(f), q = k.red(f), at = (c * o + i) * o + j;
  UOp v = x.index({(c * h + i * step + p) * h + j * step + q}).load();
  return k.finish(
      out.index({at}).store(is_top(v, top.index({at}).load()).reduce(Ops::ADD, UOps{p, q})).end(UOps{c, i, j}));
}
inline KernelPtr gather(int64_t n, int64_t m) {
  KernelMaker k;
  UOp a = k.param(1, m), x = k.param(2, n, dtypes::int32), o = k.param(0, n), i = k.loop(n);
  UOp at = x.index({i}).load().cast(dtypes::weakint), ok = at < m;
  return k.finish(
      o.index({i}).store(ok.where(a.index({at.valid(ok)}).load(), UOp::constant(0.0, dtypes::float32))).end(UOps{i}));
}
inline KernelPtr pad_flip(int64_t n, int64_t m) {  // out[i, j] = in[i, m - 1 - j], two zeros left and one right
  KernelMaker k;
  UOp a = k.param(1, n * m), o = k.param(0, n * (m + 3)), i = k.loop(n), j = k.loop(m + 3), c = j - 2,
      ok = c.ge(c.const_like(0)) & (c < m);
  UOp v = ok.where(a.index({(i * m + (c * -1 + (m - 1))).valid(ok)}).load(), UOp::constant(0.0, dtypes::float32));
  return k.finish(o.index({i * (m + 3) + j}).store(v).end(UOps{i, j}));
}
inline KernelPtr strided(int64_t n) {  // every second element, stored where even
  KernelMaker k;
  UOp a = k.param(1, 2 * n), o = k.param(0, n), i = k.loop(n), ok = (i % 2) < 1;
  return k.finish(o.index({i.valid(ok)}).store(a.index({i * 2}).load()).end(UOps{i}));
}
inline KernelPtr reshaped(int64_t n, int64_t m, int64_t l) {  // (n, m, l) -> (n, l, m) read through one flat range
  KernelMaker k;
  UOp a = k.param(1, n * m * l), o = k.param(0, n * m * l), f = k.loop(n * m * l);
  UOp i = f / (l * m), r = f % (l * m), y = r / m, x = r % m;
  return k.finish(o.index({f}).store(a.index({(i * m + x) * l + y}).load()).end(UOps{f}));
}
inline KernelPtr mixed_types(int64_t n) {
  KernelMaker k;
  UOp a = k.param(1, n, dtypes::float64), b = k.param(2, n, dtypes::int32), c = k.param(3, n, dtypes::bool_),
      o = k.param(0, n), p = k.param(4, n, dtypes::uint8);
  UOp i = k.loop(n), x = a.index({i}).load(), y = b.index({i}).load(), z = c.index({i}).load();
  UOp v = z.where(x.cast(dtypes::float32) + y.cast(dtypes::float32), UOp::constant(-1.0, dtypes::float32));
  return k.finish(
      UOps{o.index({i}).store(v).end(UOps{i}),
           p.index({i}).store((y.cast(dtypes::uint8) + ConstValue(3)) * z.cast(dtypes::uint8)).end(UOps{i})});
}
inline KernelPtr arange_sum(int64_t n, int64_t m) {  // arithmetic on indices, an integer accumulator
  KernelMaker k;
  UOp o = k.param(0, n, dtypes::int32), i = k.loop(n), j = k.red(m);
  UOp v = (j < (i + 1)).where(UOp::constant(1, dtypes::int32), UOp::constant(0, dtypes::int32));
  return k.finish(o.index({i}).store(v.reduce(Ops::ADD, UOps{j})).end(UOps{i}));
}
inline KernelPtr in_place(int64_t n) {
  KernelMaker k;
  UOp a = k.param(0, n), b = k.param(1, n), i = k.loop(n);
  return k.finish(a.index({i}).store(a.index({i}).load() + b.index({i}).load() * ConstValue(0.5)).end(UOps{i}));
}

/// Rows of blocks of 16 bytes and a scale, two numbers a byte, times a vector.
inline KernelPtr quantized(int64_t n, int64_t blocks) {
  KernelMaker k;
  const int64_t columns = 32 * blocks;
  UOp q = k.param(1, n * blocks * 16, dtypes::uint8), d = k.param(2, n * blocks), x = k.param(3, columns),
      o = k.param(0, n);
  UOp i = k.loop(n), r = k.red(columns), byte = q.index({(i * blocks + r / 32) * 16 + r % 16}).load();
  UOp nibble = (r / 16 % 2 < 1)
                   .where(byte & byte.const_like(3), UOp::alu(Ops::SHR, {byte, byte.const_like(2)}))
                   .cast(dtypes::float32);
  UOp v = (nibble - ConstValue(1.0)) * d.index({i * blocks + r / 32}).load() * x.index({r}).load();
  return k.finish(o.index({i}).store(v.reduce(Ops::ADD, UOps{r})).end(UOps{i}));
}
inline std::vector<std::pair<std::string, std::function<KernelPtr()>>> all_kernels() {
  std::vector<std::pair<std::string, std::function<KernelPtr()>>> all;
  auto add = [&](std::string name, std::function<KernelPtr()> f) { all.emplace_back(std::move(name), std::move(f)); };
  for (auto [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {5, 32}, {17, 3}, {4, 64}, {2, 131}}) {
    std::string s = "_" + std::to_string(n) + "_" + std::to_string(m);
    add("elementwise" + s, [=] { return elementwise(n, m); });
    add("transpose" + s, [=] { return transpose(n, m); });
    add("reduce_rows" + s, [=] { return reduce_rows(n, m); });
    add("reduce_rows_max" + s, [=] { return reduce_rows(n, m, Ops::MAX); });
    add("reduce_rows_mul_int" + s, [=] { return reduce_rows(n, m, Ops::MUL, dtypes::int32); });
    add("reduce_columns" + s, [=] { return reduce_columns(n, m); });
    add("reduce_all" + s, [=] { return reduce_all(n * m); });
    add("reduce_all_max" + s, [=] { return reduce_all(n * m, Ops::MAX); });
    add("count_ones" + s, [=] { return count_ones(n, m); });
    add("count_taps" + s, [=] { return count_taps(n, m, 5); });
    add("sums_of_shifted" + s, [=] { return sums_of_shifted(n, m); });
    add("softmax" + s, [=] { return softmax(n, m); });
    add("variance" + s, [=] { return variance(n, m); });
    add("gather" + s, [=] { return gather(n * m, 5); });
    add("pad_flip" + s, [=] { return pad_flip(n, m); });
    add("strided" + s, [=] { return strided(n * m); });
    add("mixed_types" + s, [=] { return mixed_types(n * m); });
    add("arange_sum" + s, [=] { return arange_sum(n, m); });
    add("in_place" + s, [=] { return in_place(n * m); });
  }
  for (auto [n, m, l] : {std::array<int64_t, 3>{1, 1, 1},
                         {3, 17, 5},
                         {16, 16, 16},
                         {33, 20, 7},
                         {1, 40, 30},
                         {24, 1, 33},
                         {13, 64, 9}}) {
    std::string s = "_" + std::to_string(n) + "_" + std::to_string(m) + "_" + std::to_string(l);
    for (int t = 0; t < 4; t++)
      add("matmul" + s + "_t" + std::to_string(t), [=] { return matmul(n, m, l, t & 1, t & 2); });
    add("nested" + s, [=] { return nested(n, m, l); });
    add("nested_dependent" + s, [=] { return nested_dependent(n, m, l); });
    add("reshaped" + s, [=] { return reshaped(n, m, l); });
  }
  add("conv_3", [] { return conv(2, 3, 4, 9, 20, 3, 0); });
  add("conv_3_padded", [] { return conv(2, 2, 5, 7, 8, 3, 1); });
  add("conv_5", [] { return conv(1, 2, 8, 12, 24, 5, 0); });
  add("conv_input_grad", [] { return conv_input_grad(2, 3, 4, 8, 20, 3); });
  add("columns_to_image_2", [] { return columns_to_image(2, 12, 40, 3, 2, 1); });
  add("columns_to_image_3", [] { return columns_to_image(2, 9, 48, 4, 3, 2); });
  add("columns_to_image_odd", [] { return columns_to_image(1, 11, 21, 5, 2, 2); });
  add("conv_weight_grad", [] { return conv_weight_grad(2, 2, 3, 8, 20, 3); });
  for (int64_t n : {1, 5, 12}) add("quantized_" + std::to_string(n), [=] { return quantized(n, 2 * n); });
  return all;
}

}  // namespace tg::testing
