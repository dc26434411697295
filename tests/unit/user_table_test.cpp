/// \file Users of nodes: found from their sources, gone with their nodes, also where ids are used again.
#include "tinygrad/uop/user_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tinygrad/uop/graph.h"

namespace tg {
namespace {

UOp buffer(int64_t slot) {
  return UOp::make(Ops::BUFFER, dtypes::float32, {UOp::shape_stack(std::vector<int64_t>{4})},
                   Arg(ParamArg{slot, AddrSpace::kGlobal, "CPU"}));
}
UOp scaled(UOp u, double by) { return u * UOp::constant(ConstValue(by), dtypes::float32); }

std::vector<std::pair<UOp, uint32_t>> users_of(UOp u) {
  std::vector<std::pair<UOp, uint32_t>> out;
  user_table::each(u, [&](UOp user, uint32_t slot) { out.emplace_back(user, slot); });
  std::sort(out.begin(), out.end(),
            [](auto& a, auto& b) { return std::pair(a.first.id(), a.second) < std::pair(b.first.id(), b.second); });
  return out;
}

TEST(UserTable, NamesUsersAndTheSourceTheyHave) {
  GraphScope g;
  const UOp a = buffer(1 << 20), b = buffer((1 << 20) + 1), sum = a + b, square = a * a;
  const auto users = users_of(a);
  ASSERT_EQ(users.size(), 3u);
  EXPECT_EQ(users[0], std::pair(sum, sum.src(0) == a ? 0u : 1u));
  EXPECT_EQ(users[1], std::pair(square, 0u));
  EXPECT_EQ(users[2], std::pair(square, 1u));
  EXPECT_EQ(users_of(b).size(), 1u);
  EXPECT_TRUE(users_of(square).empty());
  EXPECT_EQ(a + b, sum) << "the same node";
  EXPECT_EQ(users_of(b).size(), 1u) << "and no other user";
}

TEST(UserTable, KeepsNoUsersOfLiteralsAndShapes) {
  GraphScope g;
  const UOp shape = UOp::shape_stack(std::vector<int64_t>{4}), two = UOp::constant(ConstValue(2.0), dtypes::float32);
  const UOp u = buffer(1 << 20) * two;
  EXPECT_EQ(u.src(0).src(0), shape);
  EXPECT_TRUE(user_table::entries(two).empty());
  EXPECT_TRUE(user_table::entries(shape).empty());
}

TEST(UserTable, ForgetsUsersThatDie) {
  UOpRef a;
  {
    GraphScope g;
    a = UOpRef(buffer(1 << 20));
    UOpRef kept(scaled(a, 2.0));
    scaled(a, 3.0);
    EXPECT_EQ(users_of(a).size(), 2u);
  }
  GraphScope g;
  EXPECT_TRUE(users_of(a).empty());
}

TEST(UserTable, StaysSmallWhileUsersComeAndGo) {
  UOpRef a, kept;
  {
    GraphScope g;
    a = UOpRef(buffer(1 << 20));
    kept = UOpRef(scaled(a, 0.5));
  }
  for (int i = 0; i < 10000; i++) {
    GraphScope g;
    scaled(a, i + 1.0);
  }
  GraphScope g;
  EXPECT_LE(user_table::entries(a).size(), 4u);
  ASSERT_EQ(users_of(a).size(), 1u);
  EXPECT_EQ(users_of(a)[0].first, kept.get());
}

TEST(UserTable, HoldsManyUsers) {
  UOpRef a;
  std::vector<UOpRef> kept;
  {
    GraphScope g;
    a = UOpRef(buffer(1 << 20));
    for (int i = 0; i < 1000; i++) kept.emplace_back(scaled(a, i + 1.0));
  }
  GraphScope g;
  EXPECT_EQ(users_of(a).size(), 1000u);
  kept.resize(10);
  for (int i = 0; i < 2000; i++) kept.emplace_back(scaled(a, -i - 1.0));  // the first ones are dropped on the way
  const auto users = users_of(a);
  for (const UOpRef& k : kept)
    EXPECT_TRUE(std::any_of(users.begin(), users.end(), [&](auto& u) { return u.first == k.get(); }));
}

TEST(UserTable, NamesWhatWasComputedIntoANode) {
  GraphScope g;
  const UOp a = buffer(1 << 20), value = scaled(a, 2.0), result = buffer((1 << 20) + 1);
  EXPECT_TRUE(users_of(result).empty());
  Graph::global().forward(value, result);
  ASSERT_EQ(users_of(result).size(), 1u);
  EXPECT_EQ(users_of(result)[0], std::pair(value, user_table::kForward));
}

}  // namespace
}  // namespace tg
