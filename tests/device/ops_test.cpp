/// \file Every operation of the table on the device under test (DEV): values against the recorded ones, and gradients
/// against the dense evaluator, or the recorded ones where that cannot run a kernel.
#include <gtest/gtest.h>

#include "device_facts.h"
#include "oracle/dense.h"
#include "oracle/op_cases.h"

namespace tg::oracle {
namespace {

class DeviceOps : public testing::TestWithParam<Recorded> {};

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); i++) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << what << " element " << i;
      continue;
    }
    if (got[i] == want[i]) continue;
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << " element " << i;
  }
}

TEST_P(DeviceOps, Value) {
  const Recorded& r = GetParam();
  TG_NEEDS_TYPE(r.dtype);
  const OpCase& c = op_cases().at(r.name);
  Tensors in;
  for (size_t i = 0; i < r.inputs.size(); i++) in.push_back(input(r.inputs[i], static_cast<int64_t>(i) + 1));
  Tensor out = c.call(in);
  EXPECT_EQ(out.dtype(), r.dtype);
  EXPECT_EQ(out.shape(), r.shape);
  double tolerance = r.dtype == dtypes::float16 ? 1e-3 : c.tolerance;
  expect_near(out.to_vector<double>(), r.values, r.dtype.is_float() ? tolerance : 0, "value");
}

TEST_P(DeviceOps, Gradient) {
  const Recorded& r = GetParam();
  if (r.gradients.empty()) return;
  const OpCase& c = op_cases().at(r.name);
  Tensors in, targets;
  std::vector<std::vector<double>> want;
  for (size_t i = 0; i < r.inputs.size(); i++) in.push_back(input(r.inputs[i], static_cast<int64_t>(i) + 1));
  for (size_t i = 0; i < in.size(); i++)
    if (in[i].dtype() == dtypes::float32) {
      in[i].requires_grad_();
      targets.push_back(in[i]);
      want.push_back(r.gradients[i]);
    }
  Tensor out = c.call(in),
         seed = Tensor::from(input_values(out.numel(), 77, -1, 1), out.shape(), {.dtype = dtypes::float32});
  Tensors grads = out.gradient(targets, seed);
  for (size_t i = 0; i < grads.size(); i++)
    if (!is_kernel_by_hand(r.name))
      want[i] = evaluate(grads[i])->numbers();  // of others the recorded values are all there is
  realize(grads);
  for (size_t i = 0; i < grads.size(); i++)
    expect_near(grads[i].to_vector<double>(), want[i], 10 * c.tolerance, str("gradient ", i));
}

INSTANTIATE_TEST_SUITE_P(Table, DeviceOps, testing::ValuesIn(recorded(TG_TESTS_DIR "/oracle/cases.tsv")),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tg::oracle
