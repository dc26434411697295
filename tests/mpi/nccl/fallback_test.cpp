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

/// What fails in one process while a group forms is no error: all exchange through the host.
void expect_host(const char* symbol, int where, const std::string& note) {
  if (rank() == where) fake::nccl_control().fail_call(symbol, 1, 2);
  std::string notes;
  EXPECT_EQ(sum_of_ranks(&notes), static_cast<float>(size() * (size() + 1)) / 2);
  EXPECT_NE(notes.find(str("memory of GPUs is exchanged through the host: rank ", where, ": ", note)),
            std::string::npos)
      << notes;
  EXPECT_EQ(fake::calls("ncclAllReduce"), 0u);
  EXPECT_EQ(fake::nccl_control().living(), 0);
}
TEST(NcclJoinFails, Id) { expect_host("ncclGetUniqueId", 0, "[ncclGetUniqueId] CUDA: unhandled system error"); }
TEST(NcclJoinFails, Init) {
  expect_host("ncclCommInitRankConfig", 1, "[ncclCommInitRankConfig] CUDA: unhandled system error (fake)");
}

/// Later it ends the world, with the process and the operation.
void expect_end(const char* symbol) {
  std::string notes;
  EXPECT_EQ(sum_of_ranks(&notes), static_cast<float>(size() * (size() + 1)) / 2);
  EXPECT_EQ(fake::calls("ncclAllReduce"), 1u);
  if (rank() == 1) fake::nccl_control().fail_call(symbol, 1, 2);
  try {
    sum_of_ranks(&notes);
    ADD_FAILURE() << "no error";
  } catch (const PeerError& e) {
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(e.rank, 1);
    EXPECT_NE(std::string(e.what()).find("allreduce ADD of 5 float32"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("has an error of its device: ["), std::string::npos) << e.what();
  }
}
TEST(NcclCallFails, AllReduce) { expect_end("ncclAllReduce"); }
TEST(NcclCallFails, GroupEnd) { expect_end("ncclGroupEnd"); }

}  // namespace
}  // namespace tg
