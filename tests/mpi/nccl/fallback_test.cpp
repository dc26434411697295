/// \file Where some process cannot use NCCL all of them exchange through the host, or get an error where one insists.
#include <gtest/gtest.h>

#include "mpi/nccl/fake_nccl_access.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using distributed::rank;
using distributed::size;

/// The sum of 1 + rank over all, and what was said on the way.
float sum_of_ranks(std::string* notes) {
  const Mesh mesh({{"data", -1}});
  const Tensor x = Tensor::full({5}, static_cast<float>(rank() + 1)).contiguous().realize();
  testing::internal::CaptureStderr();
  const float out = distributed::all_reduce(x, mesh, {"data"}).sum().item<float>() / 5;
  *notes = testing::internal::GetCapturedStderr();
  return out;
}

TEST(NcclFallback, ThroughTheHost) {
  const char* const expected = std::getenv("NCCL_TEST_NOTE");  // null: nothing is said
  for (int i = 0; i < 2; i++) {
    std::string notes;
    EXPECT_EQ(sum_of_ranks(&notes), static_cast<float>(size() * (size() + 1)) / 2);
    if (!expected || i) EXPECT_EQ(notes.find("NCCL"), std::string::npos) << notes;
    else EXPECT_NE(notes.find(expected), std::string::npos) << notes;
  }
  EXPECT_EQ(fake::calls("ncclCommInitRankConfig"), 0u);
}

TEST(NcclInsists, OrAnErrorInAll) {
  std::string notes;
  try {
    sum_of_ranks(&notes);
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& e) {
    testing::internal::GetCapturedStderr();
    EXPECT_NE(std::string(e.what()).find(std::getenv("NCCL_TEST_NOTE")), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("[NCCL] got NCCL=2, but "), std::string::npos) << e.what();
  } catch (const PeerError& e) {  // another one was sooner
    testing::internal::GetCapturedStderr();
    EXPECT_NE(std::string(e.what()).find("[NCCL] got NCCL=2, but "), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tg
