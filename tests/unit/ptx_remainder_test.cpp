/// \file Remainders of floats in PTX: the function that kernels call, run on this processor, against the C library's.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tinygrad/base/context.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "unit/kernels.h"

namespace tg {
namespace {
using namespace testing;

/// Returns the LLVM IR of a kernel for PTX that stores remainders.
std::string remainders(DType d) {
  KernelMaker k;
  UOp a = k.param(1, 64, d), b = k.param(2, 64, d), o = k.param(0, 64, d), i = k.loop(64);
  UOp r = UOp::alu(Ops::CMOD, {a.index({i}).load(), b.index({i}).load()});
  Target target = cuda_target("sm_90");
  target.renderer = "PTX";
  return to_program(*k.finish(o.index({i}).store(r).end(UOps{i})), *make_renderer(target), {})->source;
}

/// Returns the function of such a kernel in a program of this processor that applies it to `n` pairs.
std::string on_host(const std::string& source, const std::string& t, const std::string& name) {
  const size_t begin = source.find("define internal " + t + " " + name + "("), end = source.find("\n}\n", begin);
  if (begin == std::string::npos) return "";
  std::string text = source.substr(begin, end + 3 - begin);
  for (size_t at = 0; (at = source.find("declare i", at)) != std::string::npos; at++)
    text += source.substr(at, source.find('\n', at) + 1 - at);
  return text + "define void @k(ptr %bufs, ptr %vars, i64 %begin, i64 %end) {\nentry:\n  %o = load ptr, ptr %bufs\n" +
         "  %p1 = getelementptr ptr, ptr %bufs, i64 1\n  %p2 = getelementptr ptr, ptr %bufs, i64 2\n" +
         "  %a = load ptr, ptr %p1\n  %b = load ptr, ptr %p2\n  br label %loop\nloop:\n" +
         "  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]\n" + "  %at = getelementptr " + t + ", ptr %a, i64 %i\n" +
         "  %bt = getelementptr " + t + ", ptr %b, i64 %i\n  %ot = getelementptr " + t + ", ptr %o, i64 %i\n" +
         "  %x = load " + t + ", ptr %at\n  %y = load " + t + ", ptr %bt\n  %r = call " + t + " " + name + "(" + t +
         " %x, " + t + " %y)\n  store " + t + " %r, ptr %ot\n  %next = add i64 %i, 1\n" +
         "  %more = icmp slt i64 %next, %end\n  br i1 %more, label %loop, label %done\ndone:\n  ret void\n}\n";
}

template <class T, class Bits> void expect_exact(const std::string& t, const std::string& suffix, DType d) {
  const std::string source = remainders(d);
  EXPECT_EQ(source.find("frem"), std::string::npos);
  const std::string program = on_host(source, t, "@remainder_" + suffix);
  ASSERT_FALSE(program.empty()) << source;
  const T special[] = {0,        -T{0},     6,      -6, 3, -3, INFINITY, -INFINITY, NAN, std::numeric_limits<T>::max(),
                       T(1e-30), T(1e-310), T(1e30)};
  std::vector<std::pair<T, T>> pairs;
  for (T x : special)
    for (T y : special) pairs.emplace_back(x, y);
  for (T x : {std::numeric_limits<T>::denorm_min(), -std::numeric_limits<T>::denorm_min(), T(5)})
    for (T y : {T(3) * std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::min()}) {
      pairs.emplace_back(x, y);
      pairs.emplace_back(y, x);
    }
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; i++) {
    const auto x = std::bit_cast<T>(static_cast<Bits>(random())), y = std::bit_cast<T>(static_cast<Bits>(random()));
    pairs.emplace_back(x, i % 2 ? y : x * std::exp2(static_cast<T>(static_cast<int>(random() % 60) - 50)) * T(0.7));
  }
  std::vector<T> a, b;
  for (const auto& [x, y] : pairs) {
    a.push_back(x);
    b.push_back(y);
  }
  std::vector<T> got(a.size());
  Context context{{"DEV", "CPU:LLVM"}};
  Device& cpu = Device::get("CPU");
  void* buffers[] = {got.data(), a.data(), b.data()};
  cpu.load(cpu.compiler().compile(program), "k")->host_kernel()(buffers, nullptr, 0, static_cast<int64_t>(a.size()));
  for (size_t i = 0; i < a.size(); i++) {
    const T want = std::fmod(a[i], b[i]);
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got[i]) : std::bit_cast<Bits>(got[i]) == std::bit_cast<Bits>(want))
        << a[i] << " by " << b[i] << " is " << got[i] << ", expected " << want;
  }
}

TEST(PtxRemainder, IsExact) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  expect_exact<float, uint32_t>("float", "f32", dtypes::float32);
  expect_exact<double, uint64_t>("double", "f64", dtypes::float64);
  EXPECT_NE(remainders(dtypes::float16).find("@remainder_f32"), std::string::npos) << "in float32";
}

}  // namespace
}  // namespace tg
