/// \file Which messages sums, gathers and broadcasts are made of.
#include <gtest/gtest.h>

#include <numeric>

#include "tinygrad/runtime/world/algorithm.h"

namespace tg {
namespace {

std::vector<int> ranks(int n) {
  std::vector<int> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}
std::vector<int> machines(int n, int each) {
  std::vector<int> out;
  for (int r = 0; r < n; r++) out.push_back(r / each);
  return out;
}
Algorithm way(CollectiveKind what, int n, int64_t elements, int each = 0, DType d = dtypes::float32) {
  return algorithm_of({.what = what, .dtype = d, .elements = elements, .group = ranks(n)}, 0,
                      machines(n, each ? each : n));
}
constexpr auto kSum = CollectiveKind::kAllReduce, kBroadcast = CollectiveKind::kBroadcast,
               kGather = CollectiveKind::kAllGather, kScatter = CollectiveKind::kReduceScatter;
constexpr int64_t kKiB = 256;  // elements

TEST(CollectiveAlgorithm, SumsByTheirSize) {
  EXPECT_EQ(way(kSum, 2, 64 * kKiB), Algorithm::kDirect);
  EXPECT_EQ(way(kSum, 2, 65 * kKiB), Algorithm::kParts);
  EXPECT_EQ(way(kSum, 4, 5 * kKiB), Algorithm::kDirect);
  EXPECT_EQ(way(kSum, 4, 10 * kKiB), Algorithm::kDoubling);
  EXPECT_EQ(way(kSum, 4, 20 * kKiB), Algorithm::kParts);
  EXPECT_EQ(way(kSum, 1024, 1), Algorithm::kDoubling) << "ten messages and not a thousand";
  EXPECT_EQ(way(kSum, 1024, 65 * kKiB), Algorithm::kParts);
}

TEST(CollectiveAlgorithm, NarrowFloatsAreRoundedOnce) {
  for (const int n : {4, 64, 1024})
    for (const int64_t elements : {1, 1000, 5000})
      EXPECT_NE(way(kSum, n, elements, 0, dtypes::bfloat16), Algorithm::kDoubling);
  EXPECT_EQ(way(kSum, 16, 1 << 20, 8, dtypes::bfloat16), Algorithm::kParts);
  EXPECT_EQ(way(kGather, 16, 1 << 20, 8, dtypes::bfloat16), Algorithm::kHierarchy);
  EXPECT_EQ(way(kSum, 1024, 1, 0, dtypes::int8), Algorithm::kDoubling);
}

TEST(CollectiveAlgorithm, MachinesOfSeveralProcesses) {
  EXPECT_EQ(way(kSum, 16, 1 << 20, 8), Algorithm::kHierarchy);
  EXPECT_EQ(way(kSum, 64, 16, 8), Algorithm::kDoubling);
  EXPECT_EQ(way(kGather, 16, 1 << 20, 8), Algorithm::kHierarchy);
  EXPECT_EQ(way(kScatter, 16, 1 << 20, 8), Algorithm::kHierarchy);
  EXPECT_EQ(way(kSum, 16, 1 << 20, 16), Algorithm::kParts) << "one machine";
  EXPECT_EQ(way(kSum, 16, 1 << 20, 1), Algorithm::kParts) << "one process on each";
  EXPECT_EQ(way(kSum, 15, 1 << 20, 8), Algorithm::kParts) << "eight and seven";
}

TEST(CollectiveAlgorithm, Broadcasts) {
  EXPECT_EQ(way(kBroadcast, 2, 1 << 20), Algorithm::kDirect);
  EXPECT_EQ(way(kBroadcast, 64, 1), Algorithm::kTree);
  EXPECT_EQ(way(kBroadcast, 8, 1 << 20), Algorithm::kParts);
}

TEST(CollectiveAlgorithm, AllProcessesChooseTheSame) {
  const std::vector<int> places = machines(12, 4);
  for (const CollectiveKind what : {kSum, kGather, kScatter, kBroadcast})
    for (int64_t elements = 1; elements < 1 << 24; elements *= 3) {
      const Collective c{.what = what, .elements = elements, .group = ranks(12)};
      for (int r = 1; r < 12; r++) EXPECT_EQ(algorithm_of(c, r, places), algorithm_of(c, 0, places));
    }
}

TEST(CollectiveAlgorithm, HierarchiesKnowPlaces) {
  const std::vector<int> group{0, 2, 4, 5, 6, 7}, places{0, 0, 0, 1, 1, 1, 0, 1};
  const auto h = hierarchy_of(group, 6, places);
  ASSERT_TRUE(h);
  EXPECT_EQ(h->ranks.size(), 2u);
  EXPECT_FALSE(hierarchy_of({0, 2, 3}, 0, places)) << "two and one";
}

/// Everything that is sent arrives: who gets a value of N bytes got N from others.
TEST(CollectiveAlgorithm, BytesOfBroadcasts) {
  for (const int n : {2, 3, 5, 8, 64})
    for (const int64_t elements : {int64_t{1} * n, int64_t{1 << 20} * n}) {
      Collective c{.what = kBroadcast, .elements = elements, .group = ranks(n), .root = n / 2};
      int64_t sent = 0;
      for (int r = 0; r < n; r++) sent += sent_bytes(c, r, machines(n, n));
      EXPECT_EQ(sent, (n - 1) * elements * 4) << n << " " << elements;
    }
}

TEST(CollectiveAlgorithm, BytesBetweenMachinesAreThoseOfOneProcess) {
  const Collective c{.what = kSum, .elements = 1 << 20, .group = ranks(8)};
  const int64_t bytes = 4 << 20;
  // 3/4 twice within the machine, and a quarter's half twice between the two.
  EXPECT_EQ(sent_bytes(c, 3, machines(8, 4)), 2 * bytes * 3 / 4 + bytes / 4);
  EXPECT_EQ(sent_bytes(c, 3, machines(8, 8)), 2 * bytes * 7 / 8);
}

}  // namespace
}  // namespace tg
