/// \file Every operation of the table: values, shape and type against PyTorch, gradients against PyTorch, on the dense
/// evaluator.
#include <gtest/gtest.h>

#include "oracle/dense.h"
#include "oracle/op_cases.h"

namespace tg::oracle {
namespace {

std::vector<Recorded> all() { return recorded(TG_TESTS_DIR "/oracle/cases.tsv"); }

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); i++) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << what << " element " << i;
      continue;
    }
    if (got[i] == want[i]) continue;  // infinities too
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << " element " << i;
  }
}

class Ops : public testing::TestWithParam<Recorded> {};

TEST_P(Ops, MatchesPyTorch) {
  const Recorded& r = GetParam();
  if (is_kernel_by_hand(r.name)) GTEST_SKIP() << "a kernel written by hand: only devices run it";
  auto it = op_cases().find(r.name);
  ASSERT_NE(it, op_cases().end()) << "cases.tsv has a case without a call in op_cases.h";
  Tensors in;
  for (size_t i = 0; i < r.inputs.size(); i++) in.push_back(input(r.inputs[i], static_cast<int64_t>(i) + 1));
  Tensor out = it->second.call(in);
  EXPECT_EQ(out.dtype(), r.dtype);
  EXPECT_EQ(out.shape(), r.shape);
  double tolerance = r.dtype == dtypes::float16 ? 1e-3 : it->second.tolerance;
  expect_near(evaluate(out)->numbers(), r.values, r.dtype.is_float() ? tolerance : 0, "value");
  if (r.gradients.empty()) return;
  Tensor seed = Tensor::from(input_values(out.numel(), 77, -1, 1), out.shape(), {.dtype = dtypes::float32});
  Tensors targets;
  std::vector<std::vector<double>> want;
  for (size_t i = 0; i < in.size(); i++)
    if (in[i].dtype() == dtypes::float32) {
      targets.push_back(in[i]);
      want.push_back(r.gradients[i]);
    }
  Tensors grads = out.gradient(targets, seed);
  for (size_t i = 0; i < targets.size(); i++) {
    EXPECT_EQ(grads[i].shape(), targets[i].shape());
    EXPECT_EQ(grads[i].dtype(), targets[i].dtype());
    if (want[i].empty()) want[i].assign(static_cast<size_t>(targets[i].numel()), 0.0);
    expect_near(evaluate(grads[i])->numbers(), want[i], 10 * it->second.tolerance, str("gradient of input ", i));
  }
}
INSTANTIATE_TEST_SUITE_P(Table, Ops, testing::ValuesIn(all()), [](const auto& info) { return info.param.name; });

TEST(OpTable, EveryCallIsRecorded) {
  std::vector<Recorded> r = all();
  ASSERT_GT(r.size(), 200u);
  for (auto& [name, c] : op_cases())
    EXPECT_TRUE(std::any_of(r.begin(), r.end(), [&](const Recorded& x) { return x.name == name; }))
        << name << " is not in cases.tsv: run record.py";
}

}  // namespace
}  // namespace tg::oracle
