/// \file The specs accept what docs/ir.md shows and name what they refuse.
#include "tinygrad/uop/spec.h"

#include <gmock/gmock.h>

#include "tinygrad/base/context.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
using ::testing::HasSubstr;
using namespace dtypes;

class SpecTest : public ::testing::Test {
 protected:
  Arena arena_;
  ArenaScope scope_{arena_};

  static UOp shape(std::vector<int64_t> v) { return UOp::shape_stack(v); }
  static UOp buffer(int64_t slot, std::vector<int64_t> dims, DType d = float32) {
    return UOp::make(Ops::BUFFER, d, {shape(dims)}, Arg(ParamArg{slot, AddrSpace::kGlobal, "CPU"}));
  }
  static UOp param(int64_t slot, int64_t n, DType d = float32) {
    return UOp::make(Ops::PARAM, d, {shape({n})}, Arg(ParamArg{slot}));
  }
  static UOp kernel(UOps effects) { return UOp::sink(effects, Arg(KernelInfo{})); }
  static std::string refusal(UOp u, const Spec& s) {
    try {
      verify(u, s, "a stage");
    } catch (const InternalError& e) { return e.what(); }
    return "accepted";
  }
  static std::string program_refusal(const UOps& p) {
    try {
      verify_program(p, "a stage");
    } catch (const InternalError& e) { return e.what(); }
    return "accepted";
  }
};

TEST_F(SpecTest, TextsOfProgramsAreWellFormed) {
  const UOp number = UOp::constant(ConstValue(int64_t{0}), int32);
  const UOp memory = UOp::make(Ops::BUFFER, uint64, {shape({4})}, Arg(ParamArg{0, AddrSpace::kLocal}));
  const UOp place = memory.index({number}), on = UOp::constant(ConstValue(int64_t{1}), bool_);
  const auto barrier = [&](const UOps& src, Arg arg) {
    return refusal(UOp::make(Ops::BARRIER, void_, src, std::move(arg)), spec_kernel());
  };
  for (const char* text : {"copies", "0", "12", "cluster 2"}) EXPECT_EQ(barrier({}, Arg(text)), "accepted") << text;
  for (const char* text : {"", "begin", "copy", "-1", "1x", "1 ", "99999999999999999999", "cluster", "cluster ",
                           "cluster 0", "cluster 2 2", "cluster x", "cluster 1000", "expect 2"})
    EXPECT_THAT(barrier({}, Arg(text)), HasSubstr("one of the forms of BARRIER")) << text;
  EXPECT_THAT(barrier({}, Arg(int64_t{-1})), HasSubstr("one of the forms of BARRIER"));
  for (const char* text : {"begin 3 2 33", "expect 4096", "release 1"})
    EXPECT_EQ(barrier({place, on}, Arg(text)), "accepted") << text;
  for (const char* text : {"await", "room"}) EXPECT_EQ(barrier({place, number}, Arg(text)), "accepted") << text;
  for (const char* text : {"begin", "begin 3 2", "begin 3 0 33", "begin 3 2 33 4", "begin a b c", "begin  3 2 33",
                           "expect", "expect -1", "release 0", "await", "room 1", "", "begin 99999999 2 33"})
    EXPECT_THAT(barrier({place, on}, Arg(text)), HasSubstr("one of the forms of BARRIER")) << text;
  const auto special = [&](const char* name) {
    return refusal(UOp::make(Ops::SPECIAL, int32, {number}, Arg(name)), spec_kernel());
  };
  for (const char* name : {"gidx0", "lidx2"}) EXPECT_EQ(special(name), "accepted") << name;
  for (const char* name : {"", "g", "gidx", "gidx3", "lidx9", "idx0", "gidx00", "xidx0"})
    EXPECT_THAT(special(name), HasSubstr("gidx or lidx and a dimension up to 2")) << name;
  const auto matrix = [&](DType d, const char* text) {
    return refusal(UOp::make(Ops::CUSTOMI, d, {place}, Arg(text)), spec_kernel());
  };
  for (const char* text : {"x1", "x4", "x4.trans"}) EXPECT_EQ(matrix(uint32, text), "accepted") << text;
  for (const char* text : {"", "x", "x0", "x5", "4", "x4.tran", ".trans", "x44"})
    EXPECT_NE(matrix(uint32, text), "accepted") << text;
  for (const char* text : {"k 16 1024", "mn 8192 1024"}) EXPECT_EQ(matrix(uint64, text), "accepted") << text;
  for (const char* text : {"", "k", "k 16", "m 16 1024", "k 16 1024 1", "k a b", "k -16 1024"})
    EXPECT_NE(matrix(uint64, text), "accepted") << text;
  const UOp load = UOp::make(Ops::CUSTOMI, uint32, {place}, Arg("x4"));
  EXPECT_EQ(refusal(UOp::make(Ops::GETTUPLE, uint32, {load}, Arg(int64_t{3})), spec_kernel()), "accepted");
  EXPECT_NE(refusal(UOp::make(Ops::GETTUPLE, uint32, {load}, Arg(int64_t{-1})), spec_kernel()), "accepted");
  const auto box = [&](const char* text) {
    return refusal(UOp::make(Ops::CUSTOM, void_, {place, memory, number, param(0, 64), number, number}, Arg(text)),
                   spec_kernel());
  };
  EXPECT_EQ(box("box 2 0 2 8192 8192 64 128"), "accepted");
  for (const char* text : {"box ", "box x", "box 0 0 2 8192 8192 64 128", "box 2 0 2 8192 8192 64",
                           "box 2 0 2 8192 8192 64 128 1", "box 2 a 2 8192 8192 64 128"})
    EXPECT_NE(box(text), "accepted") << text;
}

TEST_F(SpecTest, TensorGraphs) {
  UOp x = buffer(1, {4, 6}), y = buffer(2, {4, 6});
  UOp r = UOp::make(Ops::RESHAPE, float32, {x, shape({24})});
  UOp e = UOp::make(Ops::EXPAND, float32, {buffer(3, {1, 6}), shape({4, 6})});
  UOp p = UOp::make(Ops::PERMUTE, float32, {x}, Arg(std::vector<int64_t>{1, 0}));
  UOp pad = UOp::make(Ops::PAD, float32, {x, shape({1, 0}), shape({6, 6})});
  UOp sum = UOp::make(Ops::REDUCE, float32, {x + y}, Arg(ReduceArg{Ops::ADD, {1}}));
  UOp st = x.store(y * UOp::constant(ConstValue(2.0), weakfloat)), after = x.after({st});
  EXPECT_EQ(refusal(UOp::sink(UOps{r, e, p, pad, sum, after}), spec_tensor()), "accepted");

  EXPECT_THAT(refusal(UOp::make(Ops::RESHAPE, float32, {x, shape({25})}), spec_tensor()),
              HasSubstr("as many elements"));
  EXPECT_THAT(refusal(UOp::make(Ops::PERMUTE, float32, {x}, Arg(std::vector<int64_t>{1, 1})), spec_tensor()),
              HasSubstr("permutation"));
  EXPECT_THAT(refusal(UOp::make(Ops::REDUCE, float32, {x}, Arg(ReduceArg{Ops::ADD, {2}})), spec_tensor()),
              HasSubstr("axes"));
  EXPECT_THAT(refusal(UOp::make(Ops::REDUCE, float32, {x}, Arg(ReduceArg{Ops::CMPLT, {1}})), spec_tensor()),
              HasSubstr("ADD, MUL or MAX"));
  EXPECT_THAT(refusal(UOp::make(Ops::ADD, float32, {x, buffer(4, {4, 6}, int32)}), spec_tensor()),
              HasSubstr("one dtype"));
  EXPECT_THAT(refusal(x.store(buffer(5, {6, 4})), spec_tensor()), HasSubstr("type and shape"));
  EXPECT_THAT(refusal(UOp::range(4, 0), spec_tensor()), HasSubstr("come with kernels"));
}

TEST_F(SpecTest, OpsOnTypesTheyAreNotDefinedOn) {
  UOp f = buffer(1, {4}), i = buffer(2, {4}, int32), b = buffer(3, {4}, bool_), l = buffer(4, {4}, uint64);
  for (Ops op : {Ops::EXP2, Ops::LOG2, Ops::SIN, Ops::SQRT, Ops::RECIPROCAL})
    EXPECT_THAT(refusal(UOp::alu(op, {i}), spec_tensor()), HasSubstr("not defined on operands of this type")) << op;
  EXPECT_THAT(refusal(UOp::alu(Ops::FDIV, {i, i}), spec_tensor()), HasSubstr("not defined"));
  for (Ops op : {Ops::SHL, Ops::SHR, Ops::XOR, Ops::AND, Ops::OR, Ops::CDIV, Ops::THREEFRY})
    EXPECT_THAT(refusal(UOp::alu(op, {f, f}), spec_tensor()), HasSubstr("not defined")) << op;
  EXPECT_THAT(refusal(UOp::alu(Ops::SUB, {b, b}), spec_tensor()), HasSubstr("not defined"));
  EXPECT_THAT(refusal(UOp::alu(Ops::THREEFRY, {i, i}), spec_tensor()), HasSubstr("not defined"));
  UOps good{UOp::alu(Ops::SIN, {f}), UOp::alu(Ops::SHL, {i, i}), UOp::alu(Ops::THREEFRY, {l, l}),
            UOp::alu(Ops::XOR, {b, b})};
  EXPECT_EQ(refusal(UOp::sink(good), spec_tensor()), "accepted");
}

TEST_F(SpecTest, NodesAreVerifiedAsTheyAreMade) {
  const UOp f = param(0, 4), i = param(1, 4, int32);
  const auto make = [&](Ops op, DType d, UOps src) { return UOp::make(op, d, src); };
  EXPECT_NO_THROW(make(Ops::ADD, float32, {f, i})) << "not asked for";
  EXPECT_THAT(refusal(make(Ops::EXP2, int32, {i}), spec_tensor()), HasSubstr("not defined on operands of this type"));
  const Context all{{"SPEC", 2}};
  EXPECT_NO_THROW(make(Ops::MUL, float32, {f, f}));
  try {
    make(Ops::MUL, float32, {f, i});
    FAIL() << "accepted";
  } catch (const InternalError& e) { EXPECT_THAT(e.what(), HasSubstr("one dtype")); }
  EXPECT_THROW(make(Ops::SIN, int32, {i}), InternalError);
  EXPECT_THROW(make(Ops::CMPLT, float32, {f, f}), InternalError);
}

TEST_F(SpecTest, Kernels) {
  UOp in = param(1, 16), out = param(0, 16), i = UOp::range(16, 0), k = UOp::range(4, 1, AxisType::kReduce);
  UOp gate = i < 8;
  UOp load = gate.where(in.index({(i + k).valid(gate)}).load(), UOp::constant(ConstValue(0.0), float32));
  UOps reds{k}, outs{i};
  UOp sum = load.reduce(Ops::ADD, reds);
  UOp sink = kernel({out.index({i}).store(sum).end(outs)});
  EXPECT_EQ(refusal(sink, spec_kernel()), "accepted");

  EXPECT_THAT(refusal(kernel({out.index({i}).store(UOp::make(Ops::CONTIGUOUS, float32, {load}))}), spec_kernel()),
              HasSubstr("no movement"));
  EXPECT_THAT(refusal(kernel({out.index({i}).store(UOp::make(Ops::LOAD, float32, {in}))}), spec_kernel()),
              HasSubstr("reads an INDEX"));
  EXPECT_THAT(refusal(kernel({UOp::make(Ops::STORE, void_, {out.index({i}), i})}), spec_kernel()),
              HasSubstr("type of its INDEX"));
  EXPECT_THAT(refusal(UOp::sink(UOps{}), spec_kernel()), HasSubstr("KernelInfo"));
  EXPECT_THAT(
      refusal(kernel({out.index({i}).store(UOp::make(Ops::REDUCE, float32, {load}, Arg(ReduceArg{Ops::ADD, {0}})))}),
              spec_kernel()),
      HasSubstr("ranges, not axes"));
  EXPECT_THAT(refusal(UOp::make(Ops::CMPLT, int32, {i, k}), spec_kernel()), HasSubstr("comparison is bool"));
  EXPECT_THAT(refusal(UOp::make(Ops::ADD, weakint, {i}), spec_kernel()), HasSubstr("number of operands"));
  EXPECT_THAT(refusal(UOp::make(Ops::CONST, int8, {}, Arg(300)), spec_kernel()), HasSubstr("fits its type"));
  // The message shows the stage and the neighbourhood.
  EXPECT_THAT(refusal(UOp::make(Ops::ADD, weakint, {i}), spec_kernel()),
              ::testing::AllOf(HasSubstr("after 'a stage'"), HasSubstr("RANGE weakint")));
}

TEST_F(SpecTest, Programs) {
  UOp size = shape({16}), p = param(0, 16), q = param(1, 16), n = UOp::constant(ConstValue(16), int32);
  UOp i = UOp::range(n, RangeArg{{0}, AxisType::kLoop}, int32);
  UOp ld = q.index({i}), v = ld.load(), dst = p.index({i}), st = dst.store(v);
  UOps loop{i};
  UOp end = st.end(loop), sixteen = UOp::constant(int64_t{16}), sink = kernel({end});
  UOps good{sixteen, size, p, q, n, i, ld, v, dst, st, end, sink};
  EXPECT_EQ(program_refusal(good), "accepted");
  EXPECT_THAT(program_refusal({sixteen, size, p, q, n, i, v, ld, dst, st, end, sink}),
              HasSubstr("source stands behind"));
  EXPECT_THAT(program_refusal({sixteen, size, p, q, n, i, ld, v, dst, st, end, end, sink}),
              HasSubstr("not the innermost"));
  EXPECT_THAT(program_refusal({sixteen, size, p, q, n, i, ld, v, dst, st}), HasSubstr("never closed"));
  EXPECT_THAT(program_refusal({sixteen, size, p, q, n, i, ld, v, dst, st, end, dst.store(v + v)}),
              HasSubstr("behind its user"));
  UOp w = UOp::range(16, 3);
  EXPECT_THAT(program_refusal({sixteen, w}), HasSubstr("no weak types"));
  UOp up = UOp::range(n, RangeArg{{1}, AxisType::kUpcast}, int32);
  EXPECT_THAT(program_refusal({n, up}), HasSubstr("expanded"));
  UOp l0 = UOp::range(n, RangeArg{{2}, AxisType::kVector}, int32),
      l1 = UOp::range(n, RangeArg{{3}, AxisType::kVector}, int32);
  EXPECT_EQ(program_refusal({n, l0, l1}), "accepted") << "a fill may have lanes of its own";
  EXPECT_THAT(program_refusal({n, l0, l1, l0 + l1}), HasSubstr("two VECTOR ranges"));
  UOp one = UOp::constant(ConstValue(1.0), float32), at0 = p.index({l0}), at1 = p.index({l1}), fill0 = at0.store(one),
      fill1 = at1.store(one), barrier = UOp::make(Ops::BARRIER, void_, {fill0, fill1});
  EXPECT_EQ(program_refusal({sixteen, size, p, n, l0, l1, one, at0, fill0, at1, fill1, barrier}), "accepted")
      << "a barrier behind several fills";
  EXPECT_THAT(program_refusal({sixteen, size, p, q, n, i, ld, v, dst, st, end, UOp::make(Ops::NEG, int32, {i})}),
              HasSubstr("loop is over"));
}

}  // namespace
}  // namespace tg
