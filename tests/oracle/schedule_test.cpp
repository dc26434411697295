/// \file Every operation of the table through the scheduler: its kernel ASTs, evaluated plainly, against PyTorch.
/// Between the dense evaluator (no scheduler) and the device tests (with code generation), so that a failure names its
/// stage.
#include <gtest/gtest.h>

#include "oracle/op_cases.h"
#include "tinygrad/base/context.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/grad/function.h"
#include "unit/schedule_util.h"

namespace tg::oracle {
namespace {

/// Values of tensors by running their schedule's kernel ASTs.
std::vector<std::vector<double>> run(const Tensors& tensors) {
  GraphScope g;
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(inline_functions(t.contiguous().uop()));
  const Context uncached{{"SCACHE", 0}};  // literals stay literals: this reads inputs by their slots
  BoundSchedule s = create_schedule(roots);
  test::Memory memory;
  auto read = [&](UOp b) {
    auto slot = b.arg<ParamArg>().slot;
    if (memory.count(slot)) return;
    BufferRef buffer = buffer_table::get(b);
    ASSERT_TRUE(buffer) << b;
    if (!buffer->is_allocated()) {
      memory[slot].assign(static_cast<size_t>(buffer->size()), ConstValue(std::nan("")));
      return;
    }  // an output
    std::vector<std::byte> bytes(static_cast<size_t>(buffer->nbytes()));
    buffer->copy_out(bytes);
    for (int64_t i = 0; i < buffer->size(); i++)
      memory[slot].push_back(load_const(&bytes[static_cast<size_t>(i * b.dtype().itemsize())], b.dtype()));
  };
  for (UOp b : s.inputs) read(b);
  test::run_schedule(s, memory);
  test::Dense dense;
  std::vector<std::vector<double>> out;
  for (UOp r : s.results) {
    UOp b = base_of(r);
    read(b);
    dense.buffers[b] = memory.at(b.arg<ParamArg>().slot);
    out.emplace_back();
    for (const ConstValue& v : dense(r)) out.back().push_back(v.as_double());
  }
  return out;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
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

class Scheduled : public testing::TestWithParam<Recorded> {};

TEST_P(Scheduled, MatchesPyTorch) {
  const Recorded& r = GetParam();
  if (is_kernel_by_hand(r.name)) GTEST_SKIP() << "a kernel written by hand: only devices run it";
  auto it = op_cases().find(r.name);
  ASSERT_NE(it, op_cases().end());
  Tensors in;
  for (size_t i = 0; i < r.inputs.size(); i++) in.push_back(input(r.inputs[i], static_cast<int64_t>(i) + 1));
  Tensor out = it->second.call(in);
  double tolerance = r.dtype == dtypes::float16 ? 1e-3 : r.dtype.is_float() ? it->second.tolerance : 0;
  Tensors wanted{out};
  if (!r.gradients.empty()) {
    Tensor seed = Tensor::from(input_values(out.numel(), 77, -1, 1), out.shape(), {.dtype = dtypes::float32});
    Tensors targets;
    for (const Tensor& t : in)
      if (t.dtype() == dtypes::float32) targets.push_back(t);
    for (const Tensor& t : out.gradient(targets, seed)) wanted.push_back(t);
  }
  auto got = run(wanted);
  expect_close(got[0], r.values, tolerance, "value");
  size_t n = 1;
  for (size_t i = 0; i < in.size() && !r.gradients.empty(); i++) {
    if (in[i].dtype() != dtypes::float32) continue;
    std::vector<double> want = r.gradients[i];
    if (want.empty()) want.assign(static_cast<size_t>(in[i].numel()), 0.0);
    expect_close(got[n++], want, 10 * it->second.tolerance, str("gradient of input ", i));
  }
}
INSTANTIATE_TEST_SUITE_P(Table, Scheduled, testing::ValuesIn(recorded(TG_TESTS_DIR "/oracle/cases.tsv")),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tg::oracle
