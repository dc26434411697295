/// \file Kernels of attention, marked as the scheduler does, and their values in float64.
#pragma once
#include <array>
#include <cmath>
#include <limits>

#include "kernels.h"
#include "tinygrad/schedule/attention_form.h"

namespace tg::testing {
inline constexpr double kInf = std::numeric_limits<double>::infinity();

struct Sizes {
  int64_t heads, rows, over, inner, columns;
  bool causal = false;
  int64_t shift = 1;             // a row sees so many more than the rows before it
  bool variable_rows = false;    // `rows` is the most there may be
  DType type = dtypes::float32;  // of queries, keys and values
};

/// Marks the kernel as the scheduler does, where it is recognised.
inline KernelPtr marked(const KernelPtr& k, bool by_groups = false) {
  ArenaScope scope(*k->arena);
  k->sink = k->sink.with_arg(Arg(KernelInfo{.attention = match_attention(k->sink, by_groups).has_value()}));
  return k;
}

/// out[h, i, d] = sum_j exp2(s_ij - max s) v_jd / sum_j exp2(s_ij - max s), s = q k^T / 2
inline KernelPtr attention(const Sizes& n, bool max_of_other = false, bool by_groups = false) {
  KernelMaker k;
  UOp out = k.param(0, n.heads * n.rows * n.columns), q = k.param(1, n.heads * n.rows * n.inner, n.type),
      key = k.param(2, n.heads * n.over * n.inner, n.type), v = k.param(3, n.heads * n.over * n.columns, n.type);
  const auto at = [](UOp p, UOp i) {
    UOp x = p.index({i}).load();
    return x.dtype() == dtypes::float32 ? x : x.cast(dtypes::float32);
  };
  UOp h = k.loop(n.heads);
  UOp i = n.variable_rows ? UOp::range(UOp::variable("rows", 1, n.rows), RangeArg{{k.ranges++}, AxisType::kLoop})
                          : k.loop(n.rows);
  UOp d = k.loop(n.columns), j = k.red(n.over), j2 = k.red(n.over), j3 = k.red(n.over), r = k.red(n.inner);
  auto scores = [&](UOp of, double scale) {
    UOp product = at(q, (h * n.rows + i) * n.inner + r) * at(key, (h * n.over + of) * n.inner + r);
    UOp s = product.reduce(Ops::ADD, UOps{r}) * ConstValue(scale);
    return n.causal ? (of < i + ConstValue(n.shift)).where(s, UOp::constant(-kInf, dtypes::float32)) : s;
  };
  UOp most = scores(j2, max_of_other ? 0.25 : 0.5).reduce(Ops::MAX, UOps{j2}) * ConstValue(-1.0);
  auto power = [&](UOp of) { return UOp::alu(Ops::EXP2, {(scores(of, 0.5) + most) * ConstValue(1.5)}); };
  UOp total = power(j3).reduce(Ops::ADD, UOps{j3});
  UOp weight = at(v, (h * n.over + j) * n.columns + d);
  UOp mean = (power(j) / total * weight).reduce(Ops::ADD, UOps{j});
  return marked(
      k.finish(out.index({(h * n.rows + i) * n.columns + d}).store(mean + ConstValue(0.25)).end(UOps{h, i, d})),
      by_groups);
}

inline std::vector<double> expected(const Memory& m, const Sizes& n) {
  auto at = [&](size_t slot, int64_t i) { return m[slot][static_cast<size_t>(i)].as_double(); };
  std::vector<double> out;
  for (int64_t h = 0; h < n.heads; h++)
    for (int64_t i = 0; i < n.rows; i++) {
      std::vector<double> s(static_cast<size_t>(n.over));
      double most = -kInf, total = 0;
      for (int64_t j = 0; j < n.over; j++) {
        double x = 0;
        for (int64_t r = 0; r < n.inner; r++)
          x += at(1, (h * n.rows + i) * n.inner + r) * at(2, (h * n.over + j) * n.inner + r);
        if (n.causal && j >= i + n.shift) x = -kInf;
        s[static_cast<size_t>(j)] = x * 0.5;
        most = std::isnan(most) || std::isnan(x) ? std::nan("") : std::max(most, x * 0.5);
      }
      for (double& x : s) total += x = std::exp2((x - most) * 1.5);
      for (int64_t d = 0; d < n.columns; d++) {
        double sum = 0;
        for (int64_t j = 0; j < n.over; j++)
          sum += s[static_cast<size_t>(j)] / total * at(3, (h * n.over + j) * n.columns + d);
        out.push_back(sum + 0.25);
      }
    }
  return out;
}

/// out[h, i, d] = sum_gj f w[h, g, j, d] + 1, f = exp2(s / 2) (t + 1 / 4) where the mask is open, s and t sums of
/// products of rows i and positions g, j.
struct ProductSizes {
  int64_t heads, rows, over, inner, columns, group = 1;
  int mask = 0;  // 1: open for j < i + shift, -1: for j > i + shift
  int64_t shift = 1;
  bool two = true;  // false: f has no t
  bool open(int64_t i, int64_t j) const { return mask == 0 || (mask > 0 ? j < i + shift : j > i + shift); }
};
inline KernelPtr product(const ProductSizes& n) {
  KernelMaker k;
  const int64_t places = n.heads * n.group * n.over;
  UOp out = k.param(0, n.heads * n.rows * n.columns), a = k.param(1, n.heads * n.rows * n.inner),
      b = k.param(2, places * n.inner), w = k.param(3, places * n.columns);
  UOp h = k.loop(n.heads), i = k.loop(n.rows), d = k.loop(n.columns), j = k.red(n.over),
      g = n.group > 1 ? k.red(n.group) : UOp();
  UOp place = (g ? h * n.group + g : h) * n.over + j;
  const auto sum = [&](double scale) {
    UOp r = k.red(n.inner);
    return (a.index({(h * n.rows + i) * n.inner + r}).load() * b.index({place * n.inner + r}).load())
               .reduce(Ops::ADD, UOps{r}) *
           ConstValue(scale);
  };
  UOp f = UOp::alu(Ops::EXP2, {sum(0.5)});
  if (n.two) f = f * (sum(0.75) + ConstValue(0.25));
  if (n.mask > 0) f = (j < i + ConstValue(n.shift)).where(f, f.const_like(0));
  if (n.mask < 0) f = (i + ConstValue(n.shift) < j).where(f, f.const_like(0));
  UOps over{j};
  if (g) over.insert(over.begin(), g);
  UOp total = (f * w.index({place * n.columns + d}).load()).reduce(Ops::ADD, over);
  return marked(
      k.finish(out.index({(h * n.rows + i) * n.columns + d}).store(total + ConstValue(1.0)).end(UOps{h, i, d})));
}
/// Compares the result of a product with float64.
inline void expect_product(const Memory& m, const ProductSizes& n) {
  auto at = [&](size_t slot, int64_t i) { return m[slot][static_cast<size_t>(i)].as_double(); };
  for (int64_t row = 0; row < n.heads * n.rows; row++) {
    std::vector<double> want(static_cast<size_t>(n.columns), 1.0);
    double scale = 1;
    for (int64_t j = 0; j < n.group * n.over; j++) {
      if (!n.open(row % n.rows, j % n.over)) continue;
      const int64_t place = row / n.rows * n.group * n.over + j;
      double s = 0;
      for (int64_t c = 0; c < n.inner; c++) s += at(1, row * n.inner + c) * at(2, place * n.inner + c);
      const double f = std::exp2(s / 2) * (n.two ? 0.75 * s + 0.25 : 1);
      for (int64_t d = 0; d < n.columns; d++) want[static_cast<size_t>(d)] += f * at(3, place * n.columns + d);
      scale += std::abs(f);
    }
    for (int64_t d = 0; d < n.columns; d++)
      ASSERT_NEAR(at(0, row * n.columns + d), want[static_cast<size_t>(d)], 2e-6 * scale)
          << "row " << row << " column " << d;
  }
}

/// max s + log2 sum_j exp2((s_j - max s) 3 / 2)
struct TotalSizes {
  int64_t heads, rows, over;
  bool causal = false;
};
inline constexpr int64_t kTotalInner = 2;
inline KernelPtr total(const TotalSizes& n) {
  KernelMaker k;
  UOp out = k.param(0, n.heads * n.rows), q = k.param(1, n.heads * n.rows * kTotalInner),
      key = k.param(2, n.heads * n.over * kTotalInner);
  UOp h = k.loop(n.heads), i = k.loop(n.rows);
  const auto scores = [&](UOp j) {
    UOp r = k.red(kTotalInner);
    UOp s =
        (q.index({(h * n.rows + i) * kTotalInner + r}).load() * key.index({(h * n.over + j) * kTotalInner + r}).load())
            .reduce(Ops::ADD, UOps{r});
    return n.causal ? (j < i + ConstValue(int64_t{1})).where(s, s.const_like(-kInf)) : s;
  };
  UOp j = k.red(n.over), s = scores(j), j2 = k.red(n.over), most = s.substitute({{j, j2}}).reduce(Ops::MAX, UOps{j2});
  UOp power = UOp::alu(Ops::EXP2, {(s + most * ConstValue(-1.0)) * ConstValue(1.5)});
  UOp value = most + UOp::alu(Ops::LOG2, {power.reduce(Ops::ADD, UOps{j})});
  return marked(k.finish(out.index({h * n.rows + i}).store(value).end(UOps{h, i})));
}
/// Compares the result of a total with float64.
inline void expect_total(const Memory& m, const TotalSizes& n) {
  for (int64_t row = 0; row < n.heads * n.rows; row++) {
    double top = -kInf, sum_of_powers = 0;
    std::vector<double> x;
    for (int64_t c = 0; c < (n.causal ? std::min(n.over, row % n.rows + 1) : n.over); c++) {
      double sum = 0;
      for (int64_t d = 0; d < kTotalInner; d++)
        sum += m[1][static_cast<size_t>(row * kTotalInner + d)].as_double() *
               m[2][static_cast<size_t>((row / n.rows * n.over + c) * kTotalInner + d)].as_double();
      x.push_back(sum);
      top = std::max(top, sum);
    }
    for (double v : x) sum_of_powers += std::exp2((v - top) * 1.5);
    ASSERT_NEAR(m[0][static_cast<size_t>(row)].as_double(), top + std::log2(sum_of_powers), 1e-5) << "row " << row;
  }
}

}  // namespace tg::testing
