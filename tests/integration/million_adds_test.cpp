/// \file A chain of a million adds of distinct tensors builds, differentiates, schedules, compiles, runs and dies, on a
/// small stack and in seconds.
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <iostream>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kAdds = 50000;
#else
constexpr int kAdds = 1000000;
#endif

void run() {
  auto start = std::chrono::steady_clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  Tensors leaves;
  for (int i = 0; i < kAdds; i++) leaves.push_back(Tensor({1.f}));
  Tensor sum = leaves[0];
  for (int i = 1; i < kAdds; i++) sum = sum + leaves[static_cast<size_t>(i)];
  Tensors g = sum.sum().gradient({leaves[0], leaves.back()});
  EXPECT_EQ(g[0].item<float>(), 1);
  EXPECT_EQ(g[1].item<float>(), 1);
  EXPECT_EQ(sum.item<float>(), static_cast<float>(kAdds));
  leaves.clear();
  g.clear();
  sum = Tensor();
  std::cout << kAdds << " adds in " << seconds() << " s\n";
  EXPECT_LT(seconds(), 100);
}

TEST(Integration, MillionAdds) {
  // A thread with 1 MiB of stack: recursion over the graph would need hundreds.
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, size_t{1} << 20);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attr,
                [](void*) -> void* {
                  try {
                    run();
                  } catch (const std::exception& e) { ADD_FAILURE() << e.what(); }
                  return nullptr;
                },
                nullptr),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attr);
}

}  // namespace
}  // namespace tg
