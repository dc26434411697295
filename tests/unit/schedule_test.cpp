// The scheduler: how many kernels, and that they compute what the graph says.
#include <cmath>
#include <random>

#include "schedule_util.h"
#include "tinygrad/base/context.h"
#include "tinygrad/uop/print.h"

namespace tg::test {
namespace {

[[maybe_unused]] void show(std::initializer_list<UOp> roots) {
  std::vector<UOp> r(roots);
  BoundSchedule s = create_schedule(r);
  for (const ScheduleCall& c : s.schedule->calls) {
    ArenaScope a(*c.kernel->arena);
    std::cerr << render_expr(c.kernel->sink.src(0)) << "\n\n";
  }
}
size_t kernels(std::initializer_list<UOp> roots) {
  std::vector<UOp> r(roots);
  return create_schedule(r).schedule->calls.size();
}

UOp softmax(UOp x) {
  UOp e = unary(Ops::EXP2, (x - reduce(x, Ops::MAX, {1})) * 1.4426950408889634);
  return e / sum(e, {1});
}
UOp layernorm(UOp x, UOp w, UOp b) {
  double n = static_cast<double>(shape_of(x)[1].value());
  UOp d = x - sum(x, {1}) * (1 / n);
  UOp var = sum(d * d, {1}) * (1 / n);
  return d * unary(Ops::RECIPROCAL, unary(Ops::SQRT, var + 1e-5)) * w + b;
}
/// 3x3 convolution with padding 1, stride 1: windows by shifted views.
UOp conv3x3(UOp x, UOp w) {
  Shape s = shape_of(x);
  int64_t n = s[0], c = s[1], h = s[2], wd = s[3], oc = shape_of(w)[0];
  UOp p = pad(x, {0, 0, 1, 1}, {n, c, h + 2, wd + 2});
  // (h + 2) repeated 3 times and cut to rows of h + 3: row k of the reshape starts k later.
  auto windows = [](UOp t, size_t axis, int64_t out) {
    Shape s = shape_of(t);
    int64_t in = s[axis];
    Shape one = s, many = s, flat = s, cut = s, rows = s;
    one.insert(one.begin() + static_cast<int64_t>(axis), 1);
    many.insert(many.begin() + static_cast<int64_t>(axis), 3);
    flat[axis] = 3 * in;
    cut[axis] = 3 * (in + 1);
    t = reshape(expand(reshape(t, one), many), flat);
    Shape zero(s.size(), SInt(0)), more = flat;
    more[axis] = 4 * in;
    one = s;
    many = s;
    one.insert(one.begin() + static_cast<int64_t>(axis), 1);
    many.insert(many.begin() + static_cast<int64_t>(axis), 4);
    t = reshape(expand(reshape(reshape(shrink(t, zero, s), s), one), many), more);
    t = shrink(t, zero, cut);
    rows[axis] = 3;
    rows.insert(rows.begin() + static_cast<int64_t>(axis) + 1, SInt(in + 1));
    t = reshape(t, rows);
    Shape zero2(rows.size(), SInt(0)), last = rows;
    last[axis + 1] = out;
    return shrink(t, zero2, last);
  };
  UOp win = windows(windows(p, 3, wd), 2, h);  // n, c, 3, h, 3, w
  win = reshape(permute(win, {0, 1, 3, 5, 2, 4}), {n, 1, c, h, wd, 3, 3});
  UOp y = win * reshape(w, {1, oc, c, 1, 1, 3, 3});
  return reshape(sum(y, {2, 5, 6}), {n, oc, h, wd});
}

TEST(Schedule, ElementwiseChainIsOneKernel) {
  GraphScope g;
  UOp a = buffer({4, 6}), b = buffer({6});
  UOp x = a;
  for (int i = 0; i < 10; i++) x = x * 0.5 + b;
  EXPECT_EQ(check({x}), 1u);
}

TEST(Schedule, MatmulWithEpilogueIsOneKernel) {
  GraphScope g;
  UOp a = buffer({5, 7}), b = buffer({7, 3}), bias = buffer({3});
  EXPECT_EQ(check({relu(matmul(a, b) + bias)}), 1u);
}

TEST(Schedule, SoftmaxAndLayerNorm) {
  GraphScope g;
  UOp x = buffer({4, 6}), w = buffer({6}), b = buffer({6});
  EXPECT_LE(check({softmax(x)}), 3u);
  EXPECT_LE(check({layernorm(x, w, b)}), 3u);
}

TEST(Schedule, ConvolutionWithPaddingIsOneKernel) {
  GraphScope g;
  UOp x = buffer({2, 3, 5, 4}), w = buffer({4, 3, 3, 3}), b = buffer({4});
  EXPECT_EQ(check({relu(conv3x3(x, w) + reshape(b, {1, 4, 1, 1}))}), 1u);
}

TEST(Schedule, TransposeIsOneKernel) {
  GraphScope g;
  EXPECT_EQ(check({contiguous(permute(buffer({3, 4}), {1, 0}))}), 1u);
}

TEST(Schedule, ViewsNeedNoKernel) {
  GraphScope g;
  UOp a = buffer({3, 4});
  EXPECT_EQ(check({a}), 0u);
  EXPECT_EQ(check({permute(a, {1, 0})}), 0u);
  EXPECT_EQ(check({expand(reshape(a, {1, 12}), {5, 12})}), 0u);
  EXPECT_EQ(check({contiguous(reshape(a, {12}))}), 0u);
}

TEST(Schedule, LargeSumIsTwoKernels) {
  GraphScope g;
  UOp x = buffer({16 << 20});
  std::vector<UOp> roots{sum(x, {0})};
  BoundSchedule s = create_schedule(roots);
  ASSERT_EQ(s.schedule->calls.size(), 2u);
  EXPECT_GE(s.schedule->buffers[static_cast<size_t>(s.schedule->calls[0].buffers[0])].size, 64);
  EXPECT_EQ(kernels({sum(buffer({100}), {0})}), 1u);
  EXPECT_EQ(kernels({sum(buffer({16777213}), {0})}), 2u) << "a prime number of elements";
  EXPECT_EQ(kernels({reduce(buffer({16777213}), Ops::MAX, {0})}), 1u);
  EXPECT_EQ(kernels({sum(buffer({1 << 20, 64}), {0})}), 1u) << "64 results are enough for all threads";
  EXPECT_EQ(check({sum(buffer({40009}), {0})}, 1e-3), 2u);
  Context off{{"SPLIT_REDUCEOP", 0}};
  EXPECT_EQ(kernels({sum(x, {0})}), 1u);
}

TEST(Schedule, CheapProducersAreRepeatedExpensiveOnesStored) {
  GraphScope g;
  UOp a = buffer({4, 4});
  UOp cheap = a + 1.0, dear = unary(Ops::EXP2, unary(Ops::SIN, unary(Ops::EXP2, a)));
  EXPECT_EQ(check({cheap + permute(cheap, {1, 0})}), 1u);
  EXPECT_EQ(check({dear + permute(dear, {1, 0})}), 2u);
  // Read many times by a matmul: only trivial producers are recomputed.
  UOp b = buffer({4, 5});
  EXPECT_EQ(check({matmul(a * 0.5, b)}), 1u);
  EXPECT_EQ(check({matmul(unary(Ops::EXP2, a), b)}), 2u);
}

TEST(Schedule, ValuesOfABlockAreNoReuse) {
  GraphScope g;
  // A scale made of several operations belongs to 32 columns: it is computed where it is used, once a block. One of 4
  // columns is stored.
  for (int64_t block : {32, 4}) {
    UOp q = buffer({64, 512 / block, block}), d = buffer({64, 512 / block, 1}), x = buffer({1, 512});
    UOp scale = unary(Ops::SQRT, d * d + 1.0);
    UOp w = reshape(q * expand(scale, {64, 512 / block, block}), {64, 512});
    EXPECT_EQ(check({sum(w * expand(x, {64, 512}), {1})}, 1e-5), block == 32 ? 1u : 2u) << block;
  }
}

TEST(Schedule, FewVectorsTimesPackedNumbersIsOneKernel) {
  GraphScope g;
  const auto product = [](int64_t vectors) {
    UOp q = buffer({48, 64}, dtypes::uint8), scale = buffer({48, 2}), offset = buffer({48, 2});
    const auto by_block = [](UOp b) { return reshape(expand(reshape(b, {48, 2, 1}), {48, 2, 32}), {48, 64}); };
    UOp low = UOp::alu(Ops::AND, {q, q.const_like(15)}).cast(dtypes::float32);
    return matmul(buffer({vectors, 64}), permute((low * by_block(scale) + by_block(offset)) * 0.5, {1, 0}));
  };
  for (const int64_t vectors : {2, 7, 16}) EXPECT_EQ(check({product(vectors)}), 1) << vectors;
  EXPECT_EQ(check({product(17)}), 2) << "a matrix in float32 pays for itself";
  // Sums over lanes are single numbers: transcendentals of many of them are a kernel with lanes of its own.
  EXPECT_EQ(check({unary(Ops::EXP2, product(7) * 0.01)}), 2);
  EXPECT_EQ(check({unary(Ops::EXP2, product(1) * 0.01)}), 1);
  EXPECT_EQ(check({product(7) * 0.01}), 1);
  EXPECT_EQ(check({contiguous(unary(Ops::EXP2, product(7) * 0.01) * product(7))}), 3) << "also of another sum";
  // What is dear is stored all the same.
  UOp half = buffer({48, 64}, dtypes::float16);
  UOp exponential = unary(Ops::EXP2, half.cast(dtypes::float32));
  EXPECT_EQ(check({matmul(buffer({4, 64}), permute(exponential, {1, 0}))}), 2);
}
TEST(Schedule, ChosenRowsOfStorageAreNotCopied) {
  GraphScope g;
  UOp x = buffer({9, 64, 2}), i = buffer({3}, dtypes::int32), w = buffer({3, 4, 64, 1});
  const auto weighed = [&](UOp rows) {
    return sum(expand(reshape(rows, {3, 1, 64, 2}), {3, 4, 64, 2}) * expand(w, {3, 4, 64, 2}), {2});
  };
  EXPECT_EQ(check({weighed(gather(x, {i}))}), 1);
  UOp inside = expand(reshape(i.lt(i.const_like(5)), {3, 1, 1}), {3, 64, 2}), rows = gather(x, {i});
  EXPECT_EQ(check({weighed(inside.where(rows, rows.const_like(0)))}), 1) << "nor masked by row";
  EXPECT_EQ(check({weighed(gather(x * x, {i}))}), 2) << "computed rows are";
}
TEST(Schedule, TrainingBatchNormIsFourKernels) {
  GraphScope g;
  UOp x = buffer({2, 3, 4, 5}), w = buffer({4, 3, 3, 3});
  UOp y = conv3x3(x, w);
  UOp d = y - sum(y, {0, 2, 3}) * (1.0 / 40);
  UOp z = relu(d * unary(Ops::RECIPROCAL, unary(Ops::SQRT, sum(d * d, {0, 2, 3}) * (1.0 / 40) + 1e-5)));
  EXPECT_EQ(check({z, y}, 1e-4), 4u);
}

TEST(Schedule, RootsShareStorage) {
  GraphScope g;
  UOp a = buffer({3, 4}), x = unary(Ops::EXP2, a);
  std::vector<UOp> roots{x, x, reshape(x, {12}), x + 1.0};
  BoundSchedule s = create_schedule(roots);
  EXPECT_EQ(s.schedule->calls.size(), 2u);
  EXPECT_EQ(s.results[0], s.results[1]);
  EXPECT_EQ(buffer_under(s.results[2]), s.results[0]);
  EXPECT_EQ(shape_of(s.results[2]), (Shape{12}));
  EXPECT_EQ(check({x, x, reshape(x, {12}), x + 1.0}), 2u);
}

TEST(Schedule, ForwardedNodesAreNotComputedAgain) {
  GraphScope g;
  UOp a = buffer({5}), x = unary(Ops::SIN, unary(Ops::SIN, a)), b = buffer({5});
  Graph::global().forward(x, b);
  std::vector<UOp> roots{x + 1.0, x};
  BoundSchedule s = create_schedule(roots);
  ASSERT_EQ(s.inputs.size(), 1u);
  EXPECT_EQ(s.inputs[0], b);
  EXPECT_EQ(s.results[1], b);
  EXPECT_EQ(s.schedule->results[1], -1);
  EXPECT_EQ(s.schedule->calls.size(), 1u);
}

TEST(Schedule, EmptyTensors) {
  GraphScope g;
  UOp a = buffer({0, 3});
  EXPECT_EQ(check({a + 1.0}), 0u);
  EXPECT_EQ(check({sum(a, {0})}), 1u);
  EXPECT_EQ(check({pad(a, {1, 0}, {2, 3})}), 1u);
  EXPECT_EQ(check({reduce(a, Ops::MUL, {0})}), 1u);
}

TEST(Schedule, LiteralsWithoutADevice) {
  GraphScope g;
  std::vector<UOp> roots{expand(UOp::constant(int64_t{3}), {4})};
  BoundSchedule s = create_schedule(roots);
  EXPECT_EQ(s.results[0].dtype(), strong_dtype(dtypes::weakint));
  EXPECT_EQ(s.schedule->buffers[0].device, "");
  Memory m;
  run_schedule(s, m);
  EXPECT_EQ(m.at(s.results[0].arg<ParamArg>().slot)[3].i, 3);
  EXPECT_EQ(check({arange(5) * UOp::constant(2, dtypes::int32)}), 1u);
}

TEST(Schedule, KernelsHaveNoWeakFloats) {
  GraphScope g;
  UOp half = expand(UOp::constant(ConstValue(0.5), dtypes::weakfloat), {4}), x = buffer({4});
  EXPECT_EQ(check({(half + half * half).cast(dtypes::float32) * x, pad(half, {1}, {6}).cast(dtypes::float32)}), 2u);
  EXPECT_EQ(check({sum(arange(5, dtypes::weakint) * UOp::constant(int64_t{3}), {0}).cast(dtypes::float32) * x}), 2u);
  EXPECT_EQ(check({sum(expand(reshape(buffer({4}, dtypes::float16), {4, 1}), {4, 300}), {1})}, 0.1), 1u);
  std::vector<UOp> roots{half * half, sum(half, {0}), (half + half).cast(dtypes::float32) * x};
  BoundSchedule s = create_schedule(roots);
  for (const ScheduleCall& c : s.schedule->calls) {
    ArenaScope a(*c.kernel->arena);
    for (UOp u : c.kernel->sink.toposort()) EXPECT_NE(u.dtype(), dtypes::weakfloat) << u;
  }
}

// ---- variables ----

UOp bind(UOp v, int64_t value) { return v.after({v.store(v.const_like(value))}); }

TEST(ScheduleVariables, ValueIsNoPartOfTheKey) {
  GraphScope g;
  UOp a = buffer({4}), v = UOp::variable("step", 0, 100);
  for (int64_t value : {3, 7}) {
    std::vector<UOp> roots{a * bind(v, value).cast(dtypes::float32)};
    BoundSchedule s = create_schedule(roots);
    EXPECT_EQ(s.cache_hit, value == 7);
    ASSERT_EQ(s.vars.size(), 1u);
    EXPECT_EQ(s.vars[0], std::make_pair(std::string("step"), value));
    EXPECT_EQ(s.schedule->calls[0].vars, std::vector<int32_t>{0});
    Memory m;
    m[a.arg<ParamArg>().slot] = {1.0, 2.0, 3.0, 4.0};
    run_schedule(s, m);
    EXPECT_EQ(m.at(s.results[0].arg<ParamArg>().slot)[2].as_double(), 3.0 * static_cast<double>(value));
  }
}

TEST(ScheduleVariables, TwoValuesOfOneVariable) {
  GraphScope g;
  UOp a = buffer({2}), v = UOp::variable("n", 0, 9);
  std::vector<UOp> roots{a * bind(v, 2).cast(dtypes::float32) + bind(v, 5).cast(dtypes::float32)};
  BoundSchedule s = create_schedule(roots);
  EXPECT_EQ(s.vars.size(), 2u);
  Memory m;
  m[a.arg<ParamArg>().slot] = {1.0, 10.0};
  run_schedule(s, m);
  EXPECT_EQ(m.at(s.results[0].arg<ParamArg>().slot)[1].as_double(), 25.0);
}

TEST(ScheduleVariables, SymbolicSizes) {
  GraphScope g;
  UOp a = buffer({3, 8}), v = UOp::variable("n", 1, 8);
  for (int64_t n : {2, 5}) {
    SInt size(bind(v, n));
    UOp cut = shrink(a, {0, 0}, Shape{SInt(3), size});
    std::vector<UOp> roots{sum(cut, {0, 1}), cut * 2.0};
    BoundSchedule s = create_schedule(roots);
    EXPECT_EQ(s.schedule->calls.size(), 2u);
    Memory m;
    double want = 0;
    for (int i = 0; i < 24; i++) {
      m[a.arg<ParamArg>().slot].push_back(static_cast<double>(i));
      if (i % 8 < n) want += i;
    }
    run_schedule(s, m);
    EXPECT_EQ(m.at(buffer_under(s.results[0]).arg<ParamArg>().slot)[0].as_double(), want);
    EXPECT_EQ(shape_of(s.results[1])[1], size);
    EXPECT_EQ(s.schedule->buffers[2].size, 24);
    EXPECT_EQ(m.at(buffer_under(s.results[1]).arg<ParamArg>().slot)[static_cast<size_t>(2 * n + 1)].as_double(), 34.0);
  }
}

TEST(ScheduleVariables, CacheOfKeys) {
  // What a language model does at each step: writes a row at a variable position, then reads all rows up to it.
  GraphScope g;
  UOp cache = buffer({8, 2, 3}), row = buffer({1, 2, 3}), v = UOp::variable("pos", 0, 7);
  Memory m;
  for (int i = 0; i < 48; i++) m[cache.arg<ParamArg>().slot].push_back(static_cast<double>(i));
  m[row.arg<ParamArg>().slot] = {100.0, 200.0, 300.0, 400.0, 500.0, 600.0};
  std::vector<double> values;
  for (int i = 0; i < 48; i++) values.push_back(i);
  for (int64_t pos : {2, 5}) {
    UOp at = bind(v, pos);
    SInt length(at + UOp::constant(int64_t{1}));
    UOp dest = shrink(cache, Shape{SInt(at), SInt(0), SInt(0)}, {1, 2, 3});
    UOp written = cache.after({dest.store(row)});
    UOp keys = shrink(written, {0, 0, 0}, Shape{length, SInt(2), SInt(3)});
    UOp scores = sum(permute(keys, {1, 0, 2}) * 2.0, {2});  // 2, length, 1
    std::vector<UOp> roots{sum(reshape(scores, Shape{SInt(2), length}), {1}), written};
    BoundSchedule s = create_schedule(roots);
    EXPECT_EQ(s.cache_hit, pos == 5);
    run_schedule(s, m);
    for (int i = 0; i < 6; i++) values[static_cast<size_t>(pos * 6 + i)] = 100.0 * (i + 1);
    double want[2] = {};
    for (int64_t i = 0; i <= pos; i++)
      for (size_t k = 0; k < 6; k++) want[k / 3] += 2 * values[static_cast<size_t>(i) * 6 + k];
    const Values& got = m.at(buffer_under(s.results[0]).arg<ParamArg>().slot);
    EXPECT_EQ(got[0].as_double(), want[0]);
    EXPECT_EQ(got[1].as_double(), want[1]);
  }
}

TEST(ScheduleVariables, UnboundIsAnError) {
  GraphScope g;
  std::vector<UOp> roots{buffer({2}) * UOp::variable("depth", 0, 9).cast(dtypes::float32)};
  try {
    create_schedule(roots);
    FAIL();
  } catch (const ValueError& e) { EXPECT_NE(std::string(e.what()).find("depth"), std::string::npos); }
}

// ---- devices ----

TEST(ScheduleCopy, WholeBuffersGoStraight) {
  GraphScope g;
  UOp a = buffer({4, 2});
  std::vector<UOp> roots{copy_to(a, "NULL")};
  BoundSchedule s = create_schedule(roots);
  ASSERT_EQ(s.schedule->calls.size(), 1u);
  EXPECT_EQ(s.schedule->calls[0].kind, ScheduleCall::kCopy);
  EXPECT_EQ(s.schedule->calls[0].buffers, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(s.schedule->buffers[1].device, "NULL");
  EXPECT_EQ(check({copy_to(a, "NULL")}), 1u);
  EXPECT_EQ(check({copy_to(a, "CPU")}), 0u);
}

TEST(ScheduleCopy, ViewsAreComputedFirst) {
  GraphScope g;
  UOp a = buffer({4, 2}), b = buffer({2, 4}, dtypes::float32, "NULL");
  EXPECT_EQ(check({copy_to(permute(a, {1, 0}), "NULL") + b}), 3u);
  EXPECT_EQ(check({copy_to(a * 2.0, "NULL") + reshape(b, {4, 2}), a * 2.0}), 3u);
  std::vector<UOp> mixed{a + reshape(b, {4, 2})};
  EXPECT_THROW(create_schedule(mixed), DeviceError);
}

TEST(ScheduleCopy, ArithmeticWithoutADeviceGoesToItsReaders) {
  GraphScope g;
  UOp a = buffer({6}), b = buffer({6}, dtypes::float32, "NULL");
  UOp wave = unary(Ops::SIN, unary(Ops::SIN, unary(Ops::SIN, arange(6).cast(dtypes::float32))));
  EXPECT_EQ(check({contiguous(wave) + a}), 2u);
  EXPECT_EQ(check({a + contiguous(wave), b * contiguous(wave)}), 2u);
  std::vector<UOp> roots{contiguous(wave) + b};
  BoundSchedule s = create_schedule(roots);
  for (const ScheduleBuffer& x : s.schedule->buffers) EXPECT_EQ(x.device, "NULL");
  std::vector<UOp> mixed{assign(a, b + 1.0)};
  EXPECT_THROW(create_schedule(mixed), DeviceError);
}

// ---- cache ----

TEST(ScheduleCache, OtherBuffersHit) {
  GraphScope g;
  clear_schedule_cache();
  auto graph = [](UOp a, UOp b) { return std::vector<UOp>{unary(Ops::SIN, a + b * a)}; };
  UOp a = buffer({4}), b = buffer({4}), c = buffer({4});
  EXPECT_FALSE(create_schedule(graph(a, b)).cache_hit);
  BoundSchedule s = create_schedule(graph(c, a));
  EXPECT_TRUE(s.cache_hit);
  EXPECT_EQ(s.inputs, (UOps{c, a}));
  EXPECT_FALSE(create_schedule(graph(a, a)).cache_hit) << "one buffer twice is another structure";
  EXPECT_FALSE(
      create_schedule(graph(buffer({4}, dtypes::float32, "NULL"), buffer({4}, dtypes::float32, "NULL"))).cache_hit);
  EXPECT_FALSE(create_schedule(graph(buffer({5}), buffer({5}))).cache_hit);
  Context off{{"SCACHE", 0}};
  EXPECT_FALSE(create_schedule(graph(a, b)).cache_hit);
}

TEST(ScheduleCache, EqualKernelsAreOneKernel) {
  GraphScope g;
  UOp x = buffer({2, 4, 6, 5}), w1 = buffer({4, 4, 3, 3}), w2 = buffer({4, 4, 3, 3}), w3 = buffer({4, 4, 3, 3});
  std::vector<UOp> roots{relu(conv3x3(relu(conv3x3(relu(conv3x3(x, w1)), w2)), w3))};
  BoundSchedule s = create_schedule(roots);
  ASSERT_EQ(s.schedule->calls.size(), 3u);
  EXPECT_EQ(s.schedule->calls[0].kernel, s.schedule->calls[1].kernel);
  EXPECT_EQ(s.schedule->calls[1].kernel, s.schedule->calls[2].kernel);
}

TEST(ScheduleCache, KernelsDoNotDependOnWhatWasScheduledBefore) {
  GraphScope g;
  auto keys = [] {
    Context off{{"SCACHE", 0}};
    std::vector<UOp> roots{softmax(matmul(buffer({6, 7}), buffer({7, 5}))),
                           layernorm(buffer({3, 8}), buffer({8}), buffer({8}))};
    std::vector<Hash128> out;
    BoundSchedule s = create_schedule(roots);
    for (const ScheduleCall& c : s.schedule->calls) out.push_back(c.kernel->key);
    return out;
  };
  auto first = keys();
  for (int i = 0; i < 50; i++) buffer({3}) + UOp::constant(static_cast<double>(i), dtypes::float32);
  EXPECT_EQ(keys(), first);
}

// ---- budgets, memory ----

TEST(ScheduleBudget, AMillionAddsAreManySmallKernels) {
  GraphScope g;
  UOp b[100], x = buffer({16});
  for (UOp& u : b) u = buffer({16});
  for (int64_t i = 0; i < 1000000; i++) x = x + b[(i * 7919 + i / 100) % 100];
  std::vector<UOp> roots{x};
  BoundSchedule s = create_schedule(roots);
  std::vector<Hash128> kernels;
  for (const ScheduleCall& c : s.schedule->calls) {
    ASSERT_LE(c.buffers.size(), 32u);
    kernels.push_back(c.kernel->key);
  }
  EXPECT_GT(kernels.size(), 1000u);
  std::sort(kernels.begin(), kernels.end());
  EXPECT_LE(std::unique(kernels.begin(), kernels.end()) - kernels.begin(), 200);
  EXPECT_TRUE(s.schedule->arenas.empty()) << "a chain is computed in the memory of its result";
}

TEST(ScheduleBudget, SharedIndexArithmeticDoesNotExplode) {
  GraphScope g;
  UOp i = arange(64, dtypes::weakint);
  for (int k = 0; k < 40; k++) i = i + i + UOp::constant(int64_t{1});
  // Read in more ways than a value may have before it is stored; weak types never are.
  UOp sum = buffer({4});
  for (int64_t k = 0; k < 40; k++) sum = sum + shrink(i, {k}, {4}).cast(dtypes::float32);
  std::vector<UOp> roots{sum};
  EXPECT_LE(create_schedule(roots).schedule->calls.size(), 4u);
}

TEST(ScheduleBudget, LongChainsComputeTheSame) {
  GraphScope g;
  UOp x = buffer({3}), y = buffer({3});
  for (int i = 0; i < 2500; i++) x = x * 0.5 + y;
  EXPECT_EQ(check({x}), 6u);
}

TEST(ScheduleMemory, PlanSharesAndCanBeTurnedOff) {
  GraphScope g;
  UOp x = buffer({64, 64});
  for (int i = 0; i < 6; i++) x = matmul(x, buffer({64, 64}));
  std::vector<UOp> roots{x};
  BoundSchedule s = create_schedule(roots);
  ASSERT_EQ(s.schedule->arenas.size(), 1u);
  EXPECT_EQ(s.schedule->arenas[0], std::make_pair(std::string("CPU"), int64_t{2 * 64 * 64 * 4}));
  Context off{{"NO_MEMORY_PLANNER", 1}};
  BoundSchedule t = create_schedule(roots);
  EXPECT_TRUE(t.schedule->arenas.empty());
  for (const ScheduleBuffer& b : t.schedule->buffers) EXPECT_EQ(b.offset, -1);
}

/// Bytes of intermediates in units of one (8, 8) float32, and that the values are those of the graph.
int64_t intermediates(std::initializer_list<UOp> roots) {
  check(roots);
  const UOps all(roots);
  return create_schedule(all).schedule->memory().intermediates / (8 * 8 * 4);
}

TEST(ScheduleMemory, ElementwiseStepsUpdateInPlace) {
  GraphScope g;
  UOp x = buffer({8, 8}), w = buffer({8, 8});
  auto stored = [](UOp u) { return contiguous(u); };
  UOp h = stored(matmul(x, w));
  EXPECT_EQ(intermediates({stored(relu(h) + x)}), 0) << "in the memory of the result";
  EXPECT_EQ(intermediates({matmul(stored(relu(h) * 2.0), w)}), 1) << "an intermediate in that of another";
  EXPECT_EQ(intermediates({matmul(stored(stored(stored(h + x) * 3.0) + w), w)}), 1) << "a chain of them";
  EXPECT_EQ(intermediates({stored(reshape(reshape(h, {64}) + reshape(x, {64}), {8, 8}))}), 0)
      << "the same elements under another shape";
  Context off{{"NO_MEMORY_PLANNER", 1}};
  EXPECT_EQ(intermediates({stored(relu(h) + x)}), 1);
}

TEST(ScheduleMemory, NotInPlaceWhereElementsAreReadElsewhereOrLater) {
  GraphScope g;
  UOp x = buffer({8, 8}), w = buffer({8, 8});
  UOp h = contiguous(matmul(x, w));
  auto result = [](UOp u) { return contiguous(u); };
  EXPECT_EQ(intermediates({result(h + permute(h, {1, 0}))}), 1) << "the other half of the matrix";
  EXPECT_EQ(intermediates({result(permute(h, {1, 0}) + x)}), 1);
  EXPECT_EQ(intermediates({result(flip(h, {0}) * 2.0)}), 1);
  EXPECT_EQ(intermediates({result(pad(shrink(h, {1, 0}, {7, 8}), {0, 0}, {8, 8}) + x)}), 1) << "the row below";
  EXPECT_EQ(intermediates({result(h + expand(shrink(h, {0, 0}, {1, 8}), {8, 8}))}), 1) << "a row that all rows read";
  EXPECT_EQ(intermediates({result(h + x), result(h * 2.0)}), 1) << "read by another kernel";
  EXPECT_EQ(intermediates({result(h.cast(dtypes::int32) + buffer({8, 8}, dtypes::int32))}), 1) << "another type";
  EXPECT_EQ(intermediates({result(matmul(h, w))}), 1) << "a reduction reads it many times";
}

// ---- random graphs ----

/// Random movement, elementwise, reduce, stack and gather ops on small arrays.
class Fuzz {
 public:
  explicit Fuzz(uint32_t seed) : rng_(seed) {}
  UOp grow(int steps) {
    for (int i = 0; i < 3; i++) pool_.push_back(leaf());
    for (int i = 0; i < steps; i++) {
      UOp u = step();
      if (u && shape_of(u).numel() <= 2000 && shape_of(u).size() <= 5) pool_.push_back(u);
    }
    return pool_.back();
  }
  UOp any() { return pool_[pick(pool_.size())]; }

 private:
  size_t pick(size_t n) { return rng_() % n; }
  int64_t in(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(rng_() % static_cast<uint32_t>(hi - lo + 1)); }
  UOp leaf() {
    Shape s;
    for (size_t n = pick(4); n-- > 0;) s.push_back(in(1, 5));
    return new_buffer(s, dtypes::float32, "CPU");
  }
  UOp recent() { return pool_[pool_.size() - 1 - pick(std::min<size_t>(pool_.size(), 4))]; }
  UOp step() {
    UOp x = recent();
    Shape s = shape_of(x);
    size_t n = s.size();
    switch (pick(14)) {
      case 0: {  // split or merge axes
        std::vector<int64_t> d = s.ints();
        if (n >= 2 && pick(2)) {
          size_t k = pick(n - 1);
          d[k] *= d[k + 1];
          d.erase(d.begin() + static_cast<int64_t>(k) + 1);
        } else if (n) {
          size_t k = pick(n);
          for (int64_t f = d[k]; f >= 1; f--)
            if (d[k] % f == 0 && (f == 1 || pick(2))) {
              d[k] /= f;
              d.insert(d.begin() + static_cast<int64_t>(k) + static_cast<int64_t>(pick(2)), f);
              break;
            }
        }
        return reshape(x, Shape(std::span<const int64_t>(d)));
      }
      case 1: return reshape(x, {shape_of(x).numel()});
      case 2: {
        std::vector<int64_t> p(n);
        for (size_t k = 0; k < n; k++) p[k] = static_cast<int64_t>(k);
        std::shuffle(p.begin(), p.end(), rng_);
        return permute(x, p);
      }
      case 3: return n ? flip(x, {static_cast<int64_t>(pick(n))}) : UOp();
      case 4: {
        Shape off, size;
        for (size_t k = 0; k < n; k++) {
          off.push_back(in(0, 2));
          size.push_back(s[k].value() + off[k].value() + in(0, 2));
        }
        return pad(x, off, size);
      }
      case 5: {
        Shape off, size;
        for (size_t k = 0; k < n; k++) {
          size.push_back(in(1, s[k]));
          off.push_back(in(0, s[k].value() - size[k].value()));
        }
        return shrink(x, off, size);
      }
      case 6: {
        Shape e = s;
        for (SInt& d : e)
          if (d == 1) d = in(1, 4);
        if (pick(2)) e.insert(e.begin(), SInt(in(1, 3)));
        return expand(x, e);
      }
      case 7: {
        if (!n) return {};
        std::vector<int32_t> axes;
        for (size_t k = 0; k < n; k++)
          if (pick(2)) axes.push_back(static_cast<int32_t>(k));
        return reduce(x, pick(3) ? Ops::ADD : Ops::MAX, axes);
      }
      case 8: return pick(4) ? relu(x) : unary(Ops::SIN, x);
      case 9: return contiguous(x);
      case 10: {  // a step with what broadcasts
        UOp y = any();
        if (pick(2)) y = x;
        if (y != x) {
          Shape t = shape_of(y);
          if (t.size() > n) return {};
          for (size_t k = 0; k < t.size(); k++)
            if (!(t[k] == s[n - t.size() + k]) && !(t[k] == 1) && !(s[n - t.size() + k] == 1)) return {};
        } else if (n == 2 && s[0] == s[1]) y = permute(x, {1, 0});
        else if (n) y = flip(x, {0});
        return pick(2) ? x + y : x.lt(y).where(x, y * 0.5);
      }
      case 11: {
        UOp parts[3] = {x, x * 2.0, flip(x, n ? std::vector<int64_t>{0} : std::vector<int64_t>{})};
        return UOp::stack(parts);
      }
      case 12: {
        if (!n) return {};
        int64_t d = s[0].value(), m = in(1, 6);
        UOp i = UOp::alu(Ops::FLOORMOD,
                         {arange(m) * UOp::constant(in(1, 3), dtypes::int32) + UOp::constant(in(0, 4), dtypes::int32),
                          UOp::constant(d, dtypes::int32)});
        if (n > 1 && pick(2)) {
          int64_t d1 = s[1].value();
          return gather(x,
                        {reshape(i, {m, 1}), UOp::alu(Ops::FLOORMOD, {arange(3), UOp::constant(d1, dtypes::int32)})});
        }
        return gather(x, {i});
      }
      default: return x * 0.5 + 1.0;
    }
  }
  std::mt19937 rng_;
  std::vector<UOp> pool_;
};

TEST(ScheduleFuzz, RandomGraphsComputeWhatTheySay) {
  GraphScope g;
  size_t calls = 0;
  const char* only = std::getenv("FUZZ_SEED");
  const char* many = std::getenv("FUZZ_COUNT");
  for (uint32_t seed = 0; seed < (many ? static_cast<uint32_t>(std::atoi(many)) : 400u); seed++) {
    if (only && std::to_string(seed) != only) continue;
    if (many && std::getenv("FUZZ_TRACE")) std::cerr << seed << ' ';
    Fuzz f(seed);
    UOp root = f.grow(static_cast<int>(4 + seed % 40));
    UOp other = f.any();
    SCOPED_TRACE(str("seed ", seed));
    calls += check({root, other});
    if (::testing::Test::HasFailure()) {
      show({root, other});
      break;
    }
  }
  if (!only) EXPECT_GT(calls, 400u);
  if (many) std::cerr << calls << " kernels\n";
}

TEST(ScheduleFuzz, SmallBudgetsComputeTheSame) {
  GraphScope g;
  Context ctx{{"MAX_KERNEL_BUFFERS", 2}};
  for (uint32_t seed = 1000; seed < 1150; seed++) {
    Fuzz f(seed);
    UOp root = f.grow(static_cast<int>(4 + seed % 40));
    SCOPED_TRACE(str("seed ", seed));
    check({root, f.any()});
    if (::testing::Test::HasFailure()) break;
  }
}

// ---- assigns ----

/// A buffer of 0, 1, 2, ... in memory.
struct World {
  Memory memory;
  UOp iota(int64_t n) {
    UOp b = buffer({n});
    for (int64_t i = 0; i < n; i++) memory[b.arg<ParamArg>().slot].push_back(static_cast<double>(i));
    return b;
  }
  std::vector<double> at(UOp view) {
    std::vector<double> out;
    for (const ConstValue& v : memory.at(buffer_under(view).arg<ParamArg>().slot)) out.push_back(v.as_double());
    return out;
  }
  BoundSchedule run(std::initializer_list<UOp> roots) {
    std::vector<UOp> r(roots);
    BoundSchedule s = create_schedule(r);
    run_schedule(s, memory);
    return s;
  }
};
using Doubles = std::vector<double>;

TEST(ScheduleAssign, InPlace) {
  GraphScope g;
  World w;
  UOp a = w.iota(4);
  BoundSchedule s = w.run({assign(a, a + 1.0)});
  EXPECT_EQ(s.schedule->calls.size(), 1u);
  EXPECT_EQ(s.schedule->calls[0].buffers, std::vector<int32_t>{0});
  EXPECT_EQ(s.results[0], a);
  EXPECT_EQ(w.at(a), (Doubles{1, 2, 3, 4}));
}

TEST(ScheduleAssign, ShiftedReadIsStoredFirst) {
  GraphScope g;
  World w;
  UOp a = w.iota(5);
  UOp dest = shrink(a, {1}, {4}), value = shrink(a, {0}, {4});
  BoundSchedule s = w.run({a.after({dest.store(value)})});
  EXPECT_EQ(s.schedule->calls.size(), 2u);
  EXPECT_EQ(w.at(a), (Doubles{0, 0, 1, 2, 3}));
}

TEST(ScheduleAssign, ReverseInPlace) {
  GraphScope g;
  World w;
  UOp a = w.iota(4);
  w.run({assign(a, flip(a, {0}))});
  EXPECT_EQ(w.at(a), (Doubles{3, 2, 1, 0}));
}

TEST(ScheduleAssign, PendingReaderSeesTheOldValue) {
  GraphScope g;
  World w;
  UOp a = w.iota(3), before = a * 10.0;
  BoundSchedule s = w.run({assign(a, a + 1.0), before});
  EXPECT_EQ(w.at(a), (Doubles{1, 2, 3}));
  EXPECT_EQ(w.at(s.results[1]), (Doubles{0, 10, 20}));
}

TEST(ScheduleAssign, OldAndNewInOneExpression) {
  GraphScope g;
  World w;
  UOp a = w.iota(3);
  BoundSchedule s = w.run({assign(a, a + 1.0) * 10.0 + a});
  EXPECT_EQ(w.at(a), (Doubles{1, 2, 3}));
  EXPECT_EQ(w.at(s.results[0]), (Doubles{10, 21, 32}));
}

TEST(ScheduleAssign, ViewsOfAnAssignedBuffer) {
  GraphScope g;
  World w;
  UOp a = w.iota(4), x = w.iota(2);
  UOp written = a.after({shrink(a, {1}, {2}).store(x + 7.0)});
  BoundSchedule s = w.run({shrink(written, {2}, {2}) * 2.0, written});
  EXPECT_EQ(w.at(a), (Doubles{0, 7, 8, 3}));
  EXPECT_EQ(w.at(s.results[0]), (Doubles{16, 6}));
  EXPECT_EQ(s.results[1], a);
  // Both the value and its storage are told, so that they are not computed again.
  bool told = false;
  for (auto& [node, storage] : s.stored) told |= node == written && storage == a;
  EXPECT_TRUE(told);
}

TEST(ScheduleAssign, Chain) {
  GraphScope g;
  World w;
  UOp a = w.iota(3);
  UOp a1 = assign(a, a + 1.0), a2 = assign(a1, a1 * a1), mid = a1 * 100.0;
  BoundSchedule s = w.run({a2, mid, a * 1000.0});
  EXPECT_EQ(w.at(a), (Doubles{1, 4, 9}));
  EXPECT_EQ(w.at(s.results[1]), (Doubles{100, 200, 300}));
  EXPECT_EQ(w.at(s.results[2]), (Doubles{0, 1000, 2000}));
}

/// Random programs of assigns to buffers and their parts, with expressions of new and old contents, against the same
/// program run at once.
TEST(ScheduleAssign, RandomPrograms) {
  GraphScope g;
  for (uint32_t seed = 0; seed < 500; seed++) {
    SCOPED_TRACE(str("seed ", seed));
    std::mt19937 rng(seed);
    auto pick = [&](size_t n) { return rng() % n; };
    World w;
    struct State {
      UOp node;
      Doubles value;
    };
    std::vector<State> states;  // every state a buffer ever had
    size_t now[3];              // the current ones
    UOp base[3];
    for (size_t b = 0; b < 3; b++) {
      base[b] = w.iota(6);
      now[b] = b;
      states.push_back({base[b], w.at(base[b])});
    }
    std::vector<State> roots;
    auto value = [&]() -> State {
      State a = states[pick(3) ? now[pick(3)] : pick(states.size())], b = states[now[pick(3)]];
      for (State* s : {&a, &b})
        if (!pick(3)) {
          s->node = flip(s->node, {0});
          std::reverse(s->value.begin(), s->value.end());
        }
      State out{a.node + b.node * 2.0, a.value};
      for (size_t i = 0; i < 6; i++) out.value[i] += 2 * b.value[i];
      if (!pick(5)) {
        double total = 0;
        for (double v : out.value) total += v;
        out = {expand(sum(out.node, {0}), {6}), Doubles(6, total)};
      }
      return out;
    };
    for (size_t steps = 2 + pick(5); steps-- > 0;) {
      State v = value();
      if (!pick(4)) {
        roots.push_back(v);
        continue;
      }
      size_t b = pick(3);
      State s = states[now[b]];
      int64_t from = pick(2) ? 0 : static_cast<int64_t>(pick(5)),
              size = from == 0 && pick(2) ? 6 : static_cast<int64_t>(1 + pick(static_cast<size_t>(6 - from)));
      int64_t at = static_cast<int64_t>(pick(static_cast<size_t>(7 - size)));
      s.node = s.node.after({shrink(s.node, {from}, {size}).store(shrink(v.node, {at}, {size}))});
      for (int64_t i = 0; i < size; i++) s.value[static_cast<size_t>(from + i)] = v.value[static_cast<size_t>(at + i)];
      now[b] = states.size();
      states.push_back(s);
    }
    for (size_t b : now)
      if (states[b].node.is(Ops::AFTER)) roots.push_back(states[b]);
    if (roots.empty()) continue;
    std::shuffle(roots.begin(), roots.end(), rng);
    std::vector<UOp> r;
    for (const State& s : roots) r.push_back(s.node);
    BoundSchedule s = create_schedule(r);
    run_schedule(s, w.memory);
    for (size_t i = 0; i < roots.size(); i++) {
      // A whole buffer, its current contents; or a value of its own.
      Doubles got = w.at(s.results[i]), want = roots[i].value;
      EXPECT_EQ(got, want) << "root " << i;
    }
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(ScheduleAssign, Swap) {
  GraphScope g;
  World w;
  UOp a = w.iota(3), b = w.iota(3);
  w.memory[b.arg<ParamArg>().slot] = {ConstValue(7.0), ConstValue(8.0), ConstValue(9.0)};
  w.run({assign(a, b + 0.0), assign(b, a + 0.0)});
  EXPECT_EQ(w.at(a), (Doubles{7, 8, 9}));
  EXPECT_EQ(w.at(b), (Doubles{0, 1, 2}));
}

}  // namespace
}  // namespace tg::test
