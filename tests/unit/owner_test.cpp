/// \file Private nodes: what is built under an owner equals nothing that was built without.
#include "tinygrad/uop/owner.h"

#include <gtest/gtest.h>

#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
UOp buffer() {
  return UOp::make(Ops::BUFFER, dtypes::float32, {UOp::shape_stack(std::vector<int64_t>{4})},
                   Arg(ParamArg{1 << 20, AddrSpace::kGlobal, "CPU"}));
}
UOp doubled() { return UOp::alu(Ops::MUL, {buffer(), UOp::constant(2.0, dtypes::float32)}); }

TEST(Owner, NodesBuiltUnderOneAreItsOwn) {
  GraphScope scope;
  const UOp outside = doubled();
  set_owner(7);
  const UOp inside = doubled();
  EXPECT_EQ(inside, doubled()) << "shared within the owner";
  EXPECT_EQ(UOp::constant(int64_t{3}), UOp::constant(int64_t{3}));
  const UOp size = UOp::variable("n", 1, 4) + UOp::constant(int64_t{1}), b = buffer();
  set_owner(8);
  EXPECT_NE(inside, doubled());
  EXPECT_EQ(set_owner(0), 8u);
  EXPECT_NE(inside, outside);
  EXPECT_EQ(outside, doubled());
  EXPECT_EQ(inside.key(), outside.key()) << "caches know no owners";
  EXPECT_EQ(owner_of(inside), 7u);
  EXPECT_EQ(owner_of(outside), 0u);
  EXPECT_EQ(size, UOp::variable("n", 1, 4) + UOp::constant(int64_t{1})) << "sizes are public";
  EXPECT_EQ(b, buffer());
  EXPECT_EQ(as_public(inside), outside);
}

TEST(Owner, KeepsTheMark) {
  GraphScope scope;
  const UOp marked = doubled().rtag(5);
  set_owner(3);
  const UOp inside = doubled().rtag(5);
  set_owner(0);
  EXPECT_EQ(mark_of(inside), 5u);
  EXPECT_NE(inside, marked);
  EXPECT_EQ(as_public(inside), marked);
}

}  // namespace
}  // namespace tg
