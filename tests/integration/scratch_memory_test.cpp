/// \file Kernels whose scratch memory cannot be had: an error, not the end of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <thread>

#include "tinygrad/base/context.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/runtime/scratch.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

TEST(ScratchMemory, WatchTells) {
  const HostFaultWatch before;
  EXPECT_NE(thread_scratch(1 << 20), nullptr);
  EXPECT_NO_THROW(before.check());
  EXPECT_EQ(thread_scratch(int64_t{1} << 60), nullptr);
  EXPECT_THAT([&] { before.check(); },
              ::testing::ThrowsMessage<OutOfMemoryError>(
                  "[scratch] no memory for 1152921504606846976 bytes of scratch memory of a thread"));
  EXPECT_NO_THROW(HostFaultWatch().check());
  EXPECT_NE(thread_scratch(1 << 20), nullptr) << "smaller ones are there again";
}

/// Allows this process the address space it has, and 1 MiB. Returns the limit before.
rlimit keep_address_space() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (1 << 20);
  const rlimit limit{most, before.rlim_max};
  setrlimit(RLIMIT_AS, &limit);
  return before;
}

/// Runs a kernel with panels in scratch memory in a thread that has none yet, with no address space left.
[[noreturn]] void run_without_memory() {
  const Context one{{"NUM_CPU_THREADS", 1}};
  const auto product = [] {
    const Context same{{"NUM_CPU_THREADS", 1}};
    static const Tensor a = Tensor::ones({512, 512}).contiguous().realize(),
                        b = Tensor::ones({512, 512}).contiguous().realize();
    return a.matmul(b).realize().to_vector<float>().at(7);
  };
  if (product() != 512) std::exit(2);
  std::atomic<bool> go{false};
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    try {
      product();
      std::cerr << "no scratch memory was needed\n";
      std::exit(3);
    } catch (const OutOfMemoryError& e) { std::cerr << "error: " << e.what() << "\n"; }
  });
  const rlimit before = keep_address_space();
  go = true;
  other.join();
  setrlimit(RLIMIT_AS, &before);
  if (product() != 512) std::exit(4);  // of the first thread, which has its memory
  std::exit(0);
}

TEST(ScratchMemory, KernelsWithoutItAreAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_without_memory(), ::testing::ExitedWithCode(0), "error: .scratch. no memory for");
}

}  // namespace
}  // namespace tg
