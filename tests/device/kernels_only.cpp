/// \file The cases on a device that compiles kernels and runs none (DEV=NULL:CUDA:sm_90): every value reads as zero, so
/// what a case expects of values says nothing there. What counts is that every kernel can be made: an exception that
/// leaves a case is a failure, and whatever else fails is not.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"

namespace tg {
namespace {

/// Keeps what a case reports from GoogleTest while it lives.
class Reports final : public testing::ScopedFakeTestPartResultReporter {
 public:
  Reports() : ScopedFakeTestPartResultReporter(INTERCEPT_ALL_THREADS, &unused_) {}
  void ReportTestPartResult(const testing::TestPartResult& r) override {
    const std::lock_guard lock(mutex_);
    if (r.skipped()) skipped_ = r.message();
    // GoogleTest reports an exception that left a case while it handles it.
    else if (r.failed() && std::current_exception()) thrown_.emplace_back(r.message());
  }
  const std::vector<std::string>& thrown() const { return thrown_; }
  const std::optional<std::string>& skipped() const { return skipped_; }

 private:
  testing::TestPartResultArray unused_;
  std::mutex mutex_;
  std::vector<std::string> thrown_;
  std::optional<std::string> skipped_;
};

class KernelsOnly final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override { reports_ = std::make_unique<Reports>(); }
  void OnTestEnd(const testing::TestInfo&) override {
    std::unique_ptr<Reports> held = std::move(reports_);
    if (!held) return;
    const std::vector<std::string> thrown = held->thrown();
    const std::optional<std::string> skipped = held->skipped();
    held.reset();
    for (const std::string& what : thrown) ADD_FAILURE() << what;
    if (skipped) GTEST_SKIP() << *skipped;
  }

 private:
  std::unique_ptr<Reports> reports_;
};

/// Skips all cases where the compiler is not found.
class CompilerIsThere final : public testing::Environment {
 public:
  void SetUp() override {
    const std::string& renderer = Device::get().target().renderer;
    const std::string missing = renderer == "CUDA"  ? nvrtc_missing()
                                : renderer == "HIP" ? amdgpu_missing()
                                : renderer == "PTX" ? llvm_plugin_missing()
                                                    : "";
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

const bool installed = [] {
  const std::string dev = env::DEV.get();  // other devices are opened by their cases
  const bool runs_nothing = dev == "NULL" || dev.starts_with("NULL:");
  if (!runs_nothing) return false;
  testing::UnitTest::GetInstance()->listeners().Append(new KernelsOnly);
  testing::AddGlobalTestEnvironment(new CompilerIsThere);
  return true;
}();

}  // namespace
}  // namespace tg
