/// \file Every op on every type and width, each way to touch memory, loops and reductions: interpreter and compiled
/// code against uop/eval.
#include <gtest/gtest.h>

#include "render_helpers.h"

namespace tg {
namespace {
using namespace test;

struct Case {
  std::string renderer, arch;
  int lanes;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.renderer << ' ' << c.arch << ' ' << c.lanes; }
std::string print(const testing::TestParamInfo<Case>& i) {
  std::string s = i.param.renderer + "_" + i.param.arch + "_" + std::to_string(i.param.lanes);
  for (char& c : s)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return s;
}
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& arch : processors())
    for (int lanes : {1, 4, 8, 16}) all.push_back({"LLVM", arch, lanes});
  // A process for each kernel: the widths each processor is for.
  for (int lanes : {1, 4, 8, 16}) all.push_back({"CLANG", processors()[1], lanes});
  all.push_back({"CLANG", processors()[0], 4});
  for (int lanes : {4, 8, 16}) all.push_back({"CLANG", processors()[2], lanes});
  return all;
}

/// out_k[i] = f_k(a[i], b[i], c[i]) for 64 elements, `lanes` at a time.
struct Elementwise {
  static constexpr int64_t kCount = 128;
  ArenaRef arena = std::make_shared<Arena>();
  UOps effects;
  int slots = 0;
  UOp loop, index;
  int lanes;
  explicit Elementwise(int n) : lanes(n) {
    ArenaScope scope(*arena);
    loop = range(kCount / lanes, 0);
    index = loop * i32(lanes);
    if (lanes > 1) index = index + range(lanes, 1, AxisType::kVector);
  }
  UOp in(DType d) { return param(slots++, d, kCount).index({index}).load(); }
  void out(UOp v) { effects.push_back(param(slots++, v.dtype(), kCount).index({index}).store(v)); }
  std::shared_ptr<Program> program() { return program_of(arena, end(group(effects), loop), slots); }
};

class Render : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().renderer == "CLANG" && clang_path().empty()) GTEST_SKIP() << "no clang";
    if (GetParam().renderer == "LLVM" && !llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  }
  Target target() const { return test::target(GetParam().renderer, GetParam().arch); }
};

TEST_P(Render, Arithmetic) {
  using enum Ops;
  const Target t = target();
  const OpSet native = make_renderer(t)->ops();
  for (DType d : all_types()) {
    Elementwise e(GetParam().lanes);
    std::vector<std::pair<Ops, DType>> done;
    std::shared_ptr<Program> p;
    {
      ArenaScope scope(*e.arena);
      UOp a = e.in(d), b = e.in(d), c = e.in(dtypes::bool_);
      for (int o = 0; o < kOpCount; o++) {
        const Ops op = static_cast<Ops>(o);
        if (!native.has(op) || !alu_loop(op, d) || (op == MULACC && d == dtypes::float16) ||
            (op == TRUNC && !d.is_float()))
          continue;
        UOp v = op == WHERE              ? c.where(a, b)
                : groups::kUnary.has(op) ? UOp::alu(op, {a})
                : op == MULACC           ? UOp::alu(op, {a, b, a})
                                         : UOp::alu(op, {a, b});
        e.out(v);
        done.push_back({op, v.dtype()});
      }
      p = e.program();
    }
    Memory m(static_cast<size_t>(e.slots));
    m[0] = inputs(d, e.kCount, 1);
    m[1] = inputs(d, e.kCount, 2);
    m[2] = inputs(dtypes::bool_, e.kCount, 3);
    Memory expected = m;
    for (size_t k = 0; k < done.size(); k++) {
      m[3 + k].resize(static_cast<size_t>(e.kCount) * eval_itemsize(done[k].second));
      expected[3 + k] = m[3 + k];
      const void* binary[3] = {m[0].data(), m[1].data(), m[0].data()};
      const void* choice[3] = {m[2].data(), m[0].data(), m[1].data()};
      alu_loop(done[k].first, d)(expected[3 + k].data(), done[k].first == WHERE ? choice : binary,
                                 static_cast<size_t>(e.kCount));
    }
    Memory interpreted = m;
    run_interp(p, interpreted);
    for (size_t k = 0; k < done.size(); k++)
      EXPECT_EQ(interpreted[3 + k], expected[3 + k]) << done[k].first << " of " << d;
    Compiled code = compile(p, t);
    if (!code.kernel) continue;
    code(m);
    for (size_t k = 0; k < done.size(); k++) {
      const int64_t at = first_difference(m[3 + k], expected[3 + k], done[k].second, done[k].first == MAX);
      if (at < 0) continue;
      auto value = [&](const Bytes& x, DType xd) {
        return load_const(x.data() + static_cast<size_t>(at) * eval_itemsize(xd), xd).as_double();
      };
      ADD_FAILURE() << done[k].first << " of " << d << ": element " << at << ": " << value(m[0], d) << ", "
                    << value(m[1], d) << " gave " << value(m[3 + k], done[k].second) << ", expected "
                    << value(expected[3 + k], done[k].second);
    }
  }
}

TEST_P(Render, Conversions) {
  const Target t = target();
  for (DType d : all_types()) {
    Elementwise e(GetParam().lanes);
    std::vector<std::pair<bool, DType>> done;
    std::shared_ptr<Program> p;
    {
      ArenaScope scope(*e.arena);
      UOp a = e.in(d);
      for (DType to : all_types()) {
        if (to != d) {
          e.out(a.cast(to));
          done.push_back({false, to});
        }
        if (to != d && to.itemsize() == d.itemsize()) {
          e.out(a.bitcast(to));
          done.push_back({true, to});
        }
      }
      p = e.program();
    }
    Memory m(static_cast<size_t>(e.slots));
    m[0] = inputs(d, e.kCount, 4);
    Memory expected = m;
    for (size_t k = 0; k < done.size(); k++) {
      const DType to = done[k].second;
      const size_t item = eval_itemsize(to), n = static_cast<size_t>(e.kCount);
      m[1 + k].resize(n * item);
      expected[1 + k].resize(n * item);
      for (size_t i = 0; i < n; i++) {
        const ConstValue v = load_const(&m[0][i * eval_itemsize(d)], d);
        if (!done[k].first) store_const(&expected[1 + k][i * item], eval_cast(v, d, to), to);
        else if (to.is_bool()) expected[1 + k][i] = m[0][i] != 0;
        else std::memcpy(&expected[1 + k][i * item], &m[0][i * item], item);
      }
    }
    Memory interpreted = m;
    run_interp(p, interpreted);
    auto check = [&](const Memory& got, const char* who) {
      for (size_t k = 0; k < done.size(); k++) {
        const int64_t at = first_difference(got[1 + k], expected[1 + k], done[k].second);
        if (at < 0) continue;
        auto value = [&](const Bytes& x, DType xd) {
          return load_const(x.data() + static_cast<size_t>(at) * eval_itemsize(xd), xd).as_double();
        };
        ADD_FAILURE() << who << (done[k].first ? ": bitcast " : ": cast ") << d << " to " << done[k].second << ": "
                      << value(m[0], d) << " gave " << value(got[1 + k], done[k].second) << ", expected "
                      << value(expected[1 + k], done[k].second);
      }
    };
    check(interpreted, "interp");
    Compiled code = compile(p, t);
    if (!code.kernel) continue;
    code(m);
    check(m, "compiled");
  }
}

/// Loads and stores of every form; the interpreter is the judge (its own form is the definition: element by element).
TEST_P(Render, Memory) {
  const Target t = target();
  const int lanes = GetParam().lanes;
  if (lanes == 1) return;
  for (DType d : {dtypes::bool_, dtypes::uint8, dtypes::int16, dtypes::float16, dtypes::float32, dtypes::int64,
                  dtypes::float64}) {
    for (DType it : {dtypes::int32, dtypes::int64}) {
      auto arena = std::make_shared<Arena>();
      std::shared_ptr<Program> p;
      constexpr int64_t kBig = 1024;
      int slots = 0;
      {
        ArenaScope scope(*arena);
        UOp in = param(slots++, d, kBig), table = param(slots++, dtypes::int32, kBig),
            mask = param(slots++, dtypes::bool_, kBig), flag = param(slots++, dtypes::bool_, 8);
        auto constant = [&](int64_t v) { return UOp::constant(ConstValue(v), it); };
        UOp r = UOp::range(constant(4), RangeArg{{0}, AxisType::kLoop}, it),
            lane = UOp::range(constant(lanes), RangeArg{{1}, AxisType::kVector}, it);
        UOp base = r * constant(lanes), unit = base + lane;
        UOp where = table.index({unit}).load(), gate = mask.index({unit}).load(), one = flag.index({r}).load();
        UOp alt = in.index({constant(3)}).load();
        UOps effects;
        auto out = [&](UOp v) { effects.push_back(param(slots++, d, kBig).index({unit}).store(v)); };
        for (int64_t s : {2, 3, 4, 5, 7}) out(in.index({lane * constant(s) + r * constant(3)}).load());
        for (int64_t s : {-1, -2, -3, -6}) out(in.index({lane * constant(s) + (r + constant(100))}).load());
        out(in.index({where}).load());
        out(in.index({unit}).load(alt, gate));
        out(in.index({lane * constant(-1) + (r + constant(100))}).load(in.index({unit}).load(), gate));
        out(in.index({lane * constant(3) + r}).load(UOp::constant(ConstValue(0), d), gate));
        out(in.index({where}).load(alt, gate));
        out(in.index({unit}).load(alt, one));
        out(gate.where(in.index({r}).load(alt, one), in.index({unit}).load()));
        out(in.index({r}).load(UOp::constant(ConstValue(1), d), gate));
        auto store = [&](UOp index, UOp v, UOp g = UOp()) {
          UOp i = param(slots++, d, kBig).index({index});
          effects.push_back(g ? gated_store(i, v, g) : i.store(v));
        };
        UOp v = in.index({unit}).load();
        store(unit, v, gate);
        store(unit, alt);
        store(unit, v, one);
        store(lane * constant(-1) + (base + constant(200)), v);
        store(lane * constant(-1) + (base + constant(200)), v, gate);
        store(lane * constant(3) + base * constant(3), v);
        store(lane * constant(3) + base * constant(3), v, gate);
        store(where, v);
        store(where, v, gate);
        store(r, alt, one);
        p = program_of(arena, end(group(effects), r), slots);
      }
      Memory m(static_cast<size_t>(slots));
      for (Bytes& b : m) b.assign(static_cast<size_t>(kBig) * eval_itemsize(d), 0);
      m[0] = inputs(d, kBig, 5);
      m[2] = inputs(dtypes::bool_, kBig, 6);
      m[3] = inputs(dtypes::bool_, 8, 8);
      m[1].resize(kBig * 4);
      std::mt19937 random(7);
      for (size_t i = 0; i < kBig; i++) {
        int32_t v = static_cast<int32_t>(random() % kBig);
        std::memcpy(&m[1][i * 4], &v, 4);
      }
      Memory expected = m;
      run_interp(p, expected);
      Compiled code = compile(p, t);
      if (!code.kernel) continue;
      code(m);
      for (size_t k = 0; k < m.size(); k++)
        EXPECT_EQ(m[k] == expected[k], true) << "slot " << k << " of " << d << " indexed by " << it;
    }
  }
}

/// Accumulators, nested loops, horizontal reductions, a threaded outer range, variables, scratch memory.
TEST_P(Render, Reductions) {
  const Target t = target();
  const int lanes = GetParam().lanes;
  for (DType d : {dtypes::int32, dtypes::uint8, dtypes::float32, dtypes::float64, dtypes::float16}) {
    for (Ops op : {Ops::ADD, Ops::MUL, Ops::MAX}) {
      constexpr int64_t kRows = 6, kColumns = 48;
      auto arena = std::make_shared<Arena>();
      std::shared_ptr<Program> p;
      {
        ArenaScope scope(*arena);
        UOp row = range(kRows, 0, AxisType::kThread), k = range(kColumns / lanes, 1, AxisType::kReduce),
            lane = lanes > 1 ? range(lanes, 2, AxisType::kVector) : i32(0);
        UOp n = UOp::variable("n", 0, kColumns / lanes, dtypes::int32);
        UOp j = UOp::range(n, RangeArg{{3}, AxisType::kReduce}, dtypes::int32);
        UOp out = param(0, d, kRows), out2 = param(1, d, kRows), in = param(2, d, kRows * kColumns);
        auto accumulate = [&](UOp r, int slot) {
          UOp acc = reg(slot, d, lanes),
              start = acc.index({lane}).store(UOp::constant(ConstValue(op == Ops::MUL ? 1 : 0), d));
          // The start belongs into the row's loop.
          UOp inside = UOp::make(Ops::AFTER, d, {acc, start, row});
          UOp x = in.index({row * i32(kColumns) + r * i32(lanes) + lane}).load();
          UOp sum = UOp::alu(op, {inside.after({r}).index({lane}).load(), x});
          UOp done = acc.after({end(inside.after({r}).index({lane}).store(sum), r)}).index({lane}).load();
          return lanes > 1 ? done.reduce(op, std::vector<UOp>{lane}) : done;
        };
        UOp scratch = reg(9, d, 4, AddrSpace::kLocal);
        UOp filled = scratch.index({i32(2)}).store(accumulate(k, 0));
        UOp first = out.index({row}).store(scratch.after({filled}).index({i32(2)}).load());
        UOp second = out2.index({row}).store(accumulate(j, 1));
        // Two loops in one: the order of the list is the order of execution.
        auto q = std::make_shared<Program>();
        q->name = "kernel";
        q->arena = arena;
        q->nbuffers = 3;
        q->vars = {"n"};
        UOps all = end(group({first, second}), row).toposort();
        q->insts.push_back(n);
        q->insts.push_back(row.src(0));
        q->insts.push_back(row);
        // What depends on the row alone stands in front of the inner loops.
        auto early = [&](UOp u) {
          return u.in(groups::kElementwise | Ops::CONST) && !u.depends_on(k) && !u.depends_on(j) &&
                 !(u.src_ops().has(Ops::LOAD) || u.src_ops().has(Ops::REDUCE));
        };
        for (bool first_part : {true, false})
          for (UOp u : all)
            if (!u.dtype().is_weak() && u != n && u != row && u != row.src(0) && u != lane && early(u) == first_part)
              q->insts.push_back(u);
        if (lanes > 1) q->insts.insert(q->insts.begin(), {lane.src(0), lane});
        p = q;
      }
      for (int64_t n : {int64_t{0}, int64_t{1}, kColumns / lanes}) {
        Memory m(3);
        m[0].assign(kRows * eval_itemsize(d), 0);
        m[1] = m[0];
        m[2] = inputs(d, kRows * kColumns, 9);
        Memory expected = m;
        run_interp(p, expected, {n}, 0, 3);
        run_interp(p, expected, {n}, 3, 5);
        // One row by hand: lane-wise partials, then the tree.
        const size_t item = eval_itemsize(d);
        Bytes partial(item * static_cast<size_t>(lanes));
        for (int l = 0; l < lanes; l++)
          store_const(&partial[static_cast<size_t>(l) * item], ConstValue(op == Ops::MUL ? 1 : 0), d);
        for (int64_t c = 0; c < kColumns; c += lanes) {
          const void* in[2] = {partial.data(), &m[2][static_cast<size_t>(4 * kColumns + c) * item]};
          alu_loop(op, d)(partial.data(), in, static_cast<size_t>(lanes));
        }
        for (int h = lanes / 2; h >= 1; h /= 2) {
          const void* in[2] = {partial.data(), &partial[static_cast<size_t>(h) * item]};
          alu_loop(op, d)(partial.data(), in, static_cast<size_t>(h));
        }
        EXPECT_LT(first_difference(Bytes(partial.begin(), partial.begin() + static_cast<long>(item)),
                                   Bytes(&expected[0][4 * item], &expected[0][4 * item] + item), d),
                  0);
        Compiled code = compile(p, t);
        if (!code.kernel) continue;
        code(m, {n}, 0, 3);
        code(m, {n}, 3, 5);
        for (size_t k = 0; k < 2; k++)
          EXPECT_LT(first_difference(m[k], expected[k], d, op == Ops::MAX), 0)
              << op << " of " << d << ", n = " << n << "\n"
              << code.source;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Render, testing::ValuesIn(cases()), print);

TEST(Interp, ReportsAccessOutOfBounds) {
  auto arena = std::make_shared<Arena>();
  ArenaScope scope(*arena);
  UOp r = range(5, 0);
  auto p = program_of(
      arena, end(param(0, dtypes::float32, 4).index({r}).store(UOp::constant(ConstValue(1.0), dtypes::float32)), r), 1);
  Memory m{Bytes(20)};
  try {
    run_interp(p, m);
    FAIL() << "no error";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("index 4"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("4 elements"), std::string::npos) << e.what();
  }
}

TEST(Interp, ListsPrograms) {
  Elementwise e(4);
  std::shared_ptr<Program> p;
  {
    ArenaScope scope(*e.arena);
    e.out(e.in(dtypes::float32) + e.in(dtypes::float32));
    p = e.program();
  }
  Target t;
  t.renderer = "INTERP";
  const std::string text = make_renderer(t)->render(*p);
  EXPECT_NE(text.find("ADD float32x4"), std::string::npos) << text;
  EXPECT_EQ(text, make_renderer(t)->render(*p));
}

TEST(Renderers, UnknownNameListsTheKnown) {
  Target t;
  t.renderer = "FORTRAN";
  EXPECT_THROW(make_renderer(t), DeviceError);
}

}  // namespace
}  // namespace tg
