/// \file Weighted means below a maximum: what is recognised, and the blocks codegen makes of it, for vectors of every
/// size and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels.h"
#include "tinygrad/schedule/attention_form.h"

namespace tg {
namespace {
using namespace testing;
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Sizes {
  int64_t heads, rows, over, inner, columns;
  bool causal = false;
  int64_t shift = 1;           // a row sees so many more than the rows before it
  bool variable_rows = false;  // `rows` is the most there may be
};

/// Marks the kernel as the scheduler does, where it is recognised.
KernelPtr marked(const KernelPtr& k) {
  ArenaScope scope(*k->arena);
  k->sink = k->sink.with_arg(Arg(KernelInfo{.attention = match_attention(k->sink).has_value()}));
  return k;
}

/// out[h, i, d] = sum_j exp2(s_ij - max s) v_jd / sum_j exp2(s_ij - max s), s = q k^T / 2
KernelPtr attention(const Sizes& n, bool max_of_other = false) {
  KernelMaker k;
  UOp out = k.param(0, n.heads * n.rows * n.columns), q = k.param(1, n.heads * n.rows * n.inner),
      key = k.param(2, n.heads * n.over * n.inner), v = k.param(3, n.heads * n.over * n.columns);
  UOp h = k.loop(n.heads);
  UOp i = n.variable_rows ? UOp::range(UOp::variable("rows", 1, n.rows), RangeArg{{k.ranges++}, AxisType::kLoop})
                          : k.loop(n.rows);
  UOp d = k.loop(n.columns), j = k.red(n.over), j2 = k.red(n.over), j3 = k.red(n.over), r = k.red(n.inner);
  auto scores = [&](UOp at, double scale) {
    UOp product =
        q.index({(h * n.rows + i) * n.inner + r}).load() * key.index({(h * n.over + at) * n.inner + r}).load();
    UOp s = product.reduce(Ops::ADD, UOps{r}) * ConstValue(scale);
    return n.causal ? (at < i + ConstValue(n.shift)).where(s, UOp::constant(-kInf, dtypes::float32)) : s;
  };
  UOp most = scores(j2, max_of_other ? 0.25 : 0.5).reduce(Ops::MAX, UOps{j2}) * ConstValue(-1.0);
  auto power = [&](UOp at) { return UOp::alu(Ops::EXP2, {(scores(at, 0.5) + most) * ConstValue(1.5)}); };
  UOp total = power(j3).reduce(Ops::ADD, UOps{j3});
  UOp weight = v.index({(h * n.over + j) * n.columns + d}).load();
  UOp mean = (power(j) * UOp::alu(Ops::RECIPROCAL, {total}) * weight).reduce(Ops::ADD, UOps{j});
  return marked(
      k.finish(out.index({(h * n.rows + i) * n.columns + d}).store(mean + ConstValue(0.25)).end(UOps{h, i, d})));
}

std::vector<double> expected(const Memory& m, const Sizes& n) {
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

bool is_blocked(const Program& p) {
  return std::any_of(p.insts.begin(), p.insts.end(),
                     [](UOp u) { return u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal; });
}

/// Compiles, runs in two parts as two threads would, and compares.
void check(const Sizes& n, const Renderer& r, const std::function<void(Memory&)>& change = nullptr,
           const CodegenOptions& o = {}, int64_t rows = 0) {
  const KernelPtr k = attention(n);
  auto p = to_program(*k, r, o);
  Vars vars;
  if (n.variable_rows) vars["rows"] = rows;
  EXPECT_TRUE(is_blocked(*p));
  Memory memory = random_memory(*k, 3);
  if (change) change(memory);
  const std::vector<double> want = expected(memory, n);
  const auto before = memory[0];
  ArenaScope scope(*p->arena);
  const auto extent = p->thread_extent ? static_cast<int64_t>(p->thread_extent.const_int()) : 1;
  LinearEval a(memory, vars), b(memory, vars);
  if (extent > 1) {
    a.begin = extent / 2;
    a.end = extent;
    a.run(p->insts);
    b.begin = 0;
    b.end = extent / 2;
    b.run(p->insts);
  } else a.run(p->insts);
  for (size_t i = 0; i < want.size(); i++) {
    const double got = memory[0][i].as_double();
    if (n.variable_rows && static_cast<int64_t>(i) / n.columns % n.rows >= rows) {
      ASSERT_EQ(got, before[i].as_double()) << "element " << i << " is behind the last row";
      continue;
    }
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got)) << "element " << i << ": " << got;
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(got, want[i]) << "element " << i;
    } else {
      ASSERT_NEAR(got, want[i], 1e-5 * (1 + std::abs(want[i]))) << "element " << i;
    }
  }
}

TEST(AttentionBlocks, Recognised) {
  const KernelPtr k = attention({2, 32, 64, 4, 16});
  ArenaScope scope(*k->arena);
  const auto f = match_attention(k->sink);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->over.src(0).const_int(), 64);
  EXPECT_EQ(f->row.src(0).const_int(), 32);
  EXPECT_EQ(f->column.src(0).const_int(), 16);
  EXPECT_EQ(f->top.arg<ReduceArg>().op, Ops::MAX);
  EXPECT_TRUE(f->total);
  EXPECT_TRUE(f->weight.is(Ops::LOAD));
}

TEST(AttentionBlocks, OtherValuesAndSizesAreNot) {
  auto recognised = [](const KernelPtr& k) {
    ArenaScope scope(*k->arena);
    return match_attention(k->sink).has_value();
  };
  EXPECT_TRUE(recognised(attention({1, 32, 64, 4, 16, true})));
  EXPECT_FALSE(recognised(attention({1, 32, 64, 4, 16}, true))) << "the maximum of something else";
  EXPECT_FALSE(recognised(attention({1, 30, 64, 4, 16})));
  EXPECT_FALSE(recognised(attention({1, 32, 65, 4, 16})));
  EXPECT_FALSE(recognised(attention({1, 32, 64, 4, 10})));
  EXPECT_FALSE(recognised(softmax(32, 64)));
  EXPECT_FALSE(recognised(matmul(32, 64, 64)));
}

TEST(AttentionBlocks, VectorsOfAllSizes) {
  for (int bytes : {1, 4, 16, 32, 64}) {
    SCOPED_TRACE(bytes);
    check({1, 32, 64, 3, 16}, TestRenderer(bytes));
    check({2, 32, 192, 5, 48}, TestRenderer(bytes));
    check({1, 96, 128, 2, 16, true}, TestRenderer(bytes));
    check({2, 77, 130, 3, 16}, TestRenderer(bytes));
    check({1, 129, 301, 2, 16, true}, TestRenderer(bytes));
  }
  CodegenOptions plain;
  plain.noopt = true;
  check({2, 32, 128, 4, 16, true}, TestRenderer(32, false), nullptr, plain);
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
KernelPtr product(const ProductSizes& n) {
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
/// Runs the kernel in two parts as two threads would.
Memory run_in_parts(const KernelPtr& k, const Renderer& r, const CodegenOptions& o = {}) {
  auto p = to_program(*k, r, o);
  EXPECT_TRUE(is_blocked(*p));
  Memory memory = random_memory(*k, 3);
  ArenaScope scope(*p->arena);
  const auto extent = p->thread_extent ? static_cast<int64_t>(p->thread_extent.const_int()) : 1;
  LinearEval a(memory, {}), b(memory, {});
  a.begin = extent / 2;
  a.end = extent;
  b.begin = 0;
  b.end = extent / 2;
  a.run(p->insts);
  if (extent > 1) b.run(p->insts);
  return memory;
}
void check_product(const ProductSizes& n, const Renderer& r, const CodegenOptions& o = {}) {
  const KernelPtr k = product(n);
  const Memory m = run_in_parts(k, r, o);
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

TEST(AttentionBlocks, ProductsOfScores) {
  for (int bytes : {1, 4, 16, 32, 64}) {
    SCOPED_TRACE(bytes);
    check_product({1, 32, 64, 3, 16}, TestRenderer(bytes));
    check_product({1, 77, 130, 1, 16, 2, 1}, TestRenderer(bytes));
    check_product({1, 97, 161, 1, 16, 1, -1}, TestRenderer(bytes));
    check_product({2, 32, 64, 2, 48, 1, 1, 1, false}, TestRenderer(bytes));
  }
  CodegenOptions plain;
  plain.noopt = true;
  check_product({2, 32, 128, 4, 16, 2, 1}, TestRenderer(32, false), plain);
}

TEST(AttentionBlocks, ProductsWhoseMasksCloseBlocks) {
  for (int mask : {1, -1})
    for (int64_t shift : {-200, 0, 40, 1000}) {
      SCOPED_TRACE(str(mask, ' ', shift));
      check_product({1, 96, 320, 1, 16, 1, mask, shift}, TestRenderer(64));
      check_product({1, 67, 323, 1, 16, 2, mask, shift}, TestRenderer(64));
    }
}

/// max s + log2 sum_j exp2((s_j - max s) 3 / 2), of more heads than rows: rows are what shares keys.
TEST(AttentionBlocks, Totals) {
  for (bool causal : {false, true})
    for (const auto& [heads, rows, over] :
         std::vector<std::array<int64_t, 3>>{{80, 64, 64}, {1, 77, 301}, {2, 160, 576}}) {
      SCOPED_TRACE(str(heads, ' ', rows, ' ', over, causal ? " causal" : ""));
      KernelMaker k;
      const int64_t inner = 2, n = over, t = rows;
      UOp out = k.param(0, heads * t), q = k.param(1, heads * t * inner), key = k.param(2, heads * n * inner);
      UOp h = k.loop(heads), i = k.loop(t);
      const auto scores = [&](UOp j) {
        UOp r = k.red(inner);
        UOp s = (q.index({(h * t + i) * inner + r}).load() * key.index({(h * n + j) * inner + r}).load())
                    .reduce(Ops::ADD, UOps{r});
        return causal ? (j < i + ConstValue(int64_t{1})).where(s, s.const_like(-kInf)) : s;
      };
      UOp j = k.red(n), s = scores(j), j2 = k.red(n), most = s.substitute({{j, j2}}).reduce(Ops::MAX, UOps{j2});
      UOp power = UOp::alu(Ops::EXP2, {(s + most * ConstValue(-1.0)) * ConstValue(1.5)});
      UOp value = most + UOp::alu(Ops::LOG2, {power.reduce(Ops::ADD, UOps{j})});
      const KernelPtr kernel = marked(k.finish(out.index({h * t + i}).store(value).end(UOps{h, i})));
      {
        ArenaScope scope(*kernel->arena);
        const auto form = match_attention(kernel->sink);
        ASSERT_TRUE(form && form->kind == AttentionForm::kTotal);
        EXPECT_EQ(form->row.src(0).const_int(), rows);
      }
      const Memory m = run_in_parts(kernel, TestRenderer(32));
      for (int64_t row = 0; row < heads * t; row++) {
        double top = -kInf, total = 0;
        std::vector<double> x;
        for (int64_t c = 0; c < (causal ? std::min(n, row % t + 1) : n); c++) {
          double sum = 0;
          for (int64_t d = 0; d < inner; d++)
            sum += m[1][static_cast<size_t>(row * inner + d)].as_double() *
                   m[2][static_cast<size_t>((row / t * n + c) * inner + d)].as_double();
          x.push_back(sum);
          top = std::max(top, sum);
        }
        for (double v : x) total += std::exp2((v - top) * 1.5);
        ASSERT_NEAR(m[0][static_cast<size_t>(row)].as_double(), top + std::log2(total), 1e-5) << "row " << row;
      }
    }
}

TEST(AttentionBlocks, AVariableNumberOfRows) {
  for (int64_t rows : {1, 7, 64, 129}) {
    SCOPED_TRACE(rows);
    check({2, 130, 128, 2, 16, false, 1, true}, TestRenderer(32), nullptr, {}, rows);
    check({1, 130, 130, 2, 16, true, 1, true}, TestRenderer(32), nullptr, {}, rows);
  }
  const KernelPtr few = attention({1, 60, 128, 4, 16, false, 1, true});
  ArenaScope scope(*few->arena);
  EXPECT_FALSE(match_attention(few->sink)) << "at most 60 rows";
}

TEST(AttentionBlocks, MasksThatCloseBlocks) {
  for (int64_t shift : {-70, -33, 0, 1, 2, 40, 200, 1000}) {
    SCOPED_TRACE(shift);
    check({1, 160, 576, 3, 16, true, shift}, TestRenderer(64));
    check({1, 163, 579, 3, 16, true, shift}, TestRenderer(64));
  }
}

TEST(AttentionBlocks, NaNAndInfinity) {
  const Sizes n{1, 32, 512, 2, 16}, causal{1, 32, 512, 2, 16, true, 230};
  const double nan = std::nan("");
  for (const Sizes& s : {n, causal, Sizes{1, 71, 333, 2, 16}})
    for (double x : {nan, kInf, -kInf, 1e30, -1e30})
      for (int slot : {1, 2, 3})
        for (int64_t at : {int64_t{61}, int64_t{700}}) {
          SCOPED_TRACE(str("value ", x, " in ", slot, " at ", at, s.causal ? " causal" : ""));
          check(s, TestRenderer(32), [&](Memory& m) {
            m[static_cast<size_t>(slot)][static_cast<size_t>(at) % m[static_cast<size_t>(slot)].size()] = x;
          });
          if (HasFatalFailure()) return;
        }
  // Rows of which the first blocks, or all, are -inf: q k is there.
  for (int64_t most : {256, 300, 512}) {
    SCOPED_TRACE(most);
    check(n, TestRenderer(64), [&](Memory& m) {
      for (int64_t i = 0; i < n.rows; i++) m[1][static_cast<size_t>(2 * i)] = 1.0;
      for (int64_t j = 0; j < most; j++) m[2][static_cast<size_t>(2 * j)] = -kInf;
    });
  }
}

TEST(AttentionBlocks, ResultsDoNotDependOnTheProcessorsCores) {
  const KernelPtr k = attention({4, 64, 256, 4, 16});
  const TestRenderer r(64);
  auto p = to_program(*k, r, {});
  ASSERT_TRUE(p->thread_extent);
  Memory whole = random_memory(*k, 3), parts = whole;
  ArenaScope scope(*p->arena);
  const auto extent = static_cast<int64_t>(p->thread_extent.const_int());
  ASSERT_EQ(extent, 4);
  LinearEval(whole, {}).run(p->insts);
  for (int64_t i = extent; i-- > 0;) {
    LinearEval one(parts, {});
    one.begin = i;
    one.end = i + 1;
    one.run(p->insts);
  }
  for (size_t i = 0; i < whole[0].size(); i++) ASSERT_EQ(whole[0][i].as_double(), parts[0][i].as_double()) << i;
}

}  // namespace
}  // namespace tg
