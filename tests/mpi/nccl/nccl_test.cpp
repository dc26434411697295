/// \file Exchanges of the memory of GPUs by NCCL, over the fake ones: values that each process computes by itself, what
/// is called, and what happens when calls fail.
#include <gtest/gtest.h>

#include "mpi/nccl/fake_nccl_access.h"
#include "tinygrad/base/context.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using distributed::rank;
using distributed::size;
using fake::calls;

constexpr int64_t kSizes[] = {1, 2, 7, 63, 1000, 4099};
const DType kTypes[] = {dtypes::bool_,    dtypes::int8,    dtypes::uint8,   dtypes::int16,   dtypes::uint16,
                        dtypes::int32,    dtypes::uint32,  dtypes::int64,   dtypes::uint64,  dtypes::float16,
                        dtypes::bfloat16, dtypes::float32, dtypes::float64, dtypes::fp8e4m3, dtypes::fp8e5m2};
/// Whether NCCL combines values of a type.
bool is_combined(DType d) {
  return !d.is_bool() && d != dtypes::int16 && d != dtypes::uint16 && !(d.is_float() && d.itemsize() == 1);
}

const Mesh& world() {
  static const auto* mesh = new Mesh({{"data", -1}});
  return *mesh;
}
/// Element i of process r: sums and products of all of them are exact in every type.
float value_of(DType d, int r, int64_t i) {
  const auto v = static_cast<float>((i * 7 + r * 3 + i / 5) % 3);
  return d.is_bool() ? static_cast<float>(v == 1) : v;
}
std::vector<float> values_of(DType d, int r, int64_t n, int64_t first = 0) {
  std::vector<float> out;
  for (int64_t i = 0; i < n; i++) out.push_back(value_of(d, r, first + i));
  return out;
}
Tensor tensor_of(DType d, int64_t n, int r = rank()) {
  return Tensor::from(values_of(d, r, n), Shape{n}).cast(d).contiguous().realize();
}
std::vector<float> floats(const Tensor& t) { return t.cast(dtypes::float32).to_vector<float>(); }
/// Combines what all processes have, from element `first` on.
std::vector<float> combined(DType d, Ops op, int64_t n, int64_t first = 0) {
  std::vector<float> out = values_of(d, 0, n, first);
  for (int r = 1; r < size(); r++)
    for (int64_t i = 0; i < n; i++) {
      float& a = out[static_cast<size_t>(i)];
      const float b = value_of(d, r, first + i);
      a = op == Ops::MAX || (d.is_bool() && op == Ops::ADD) ? std::max(a, b) : op == Ops::ADD ? a + b : a * b;
    }
  return out;
}

class Nccl : public testing::Test {
 protected:
  void SetUp() override { fake::cuda_control().set_delay(60); }
  void TearDown() override {
    Device::synchronize();
    EXPECT_STREQ(fake::nccl_control().take_violations(), "");
    EXPECT_STREQ(fake::cuda_control().take_violations(), "");
  }
};

TEST_F(Nccl, AllReduce) {
  for (DType d : kTypes)
    for (Ops op : {Ops::ADD, Ops::MUL, Ops::MAX})
      for (int64_t n : {1, 7, 1000}) {
        const size_t before = calls("ncclAllReduce");
        EXPECT_EQ(floats(distributed::all_reduce(tensor_of(d, n), world(), {"data"}, op)), combined(d, op, n))
            << d << ' ' << op << " of " << n;
        EXPECT_EQ(calls("ncclAllReduce") - before, is_combined(d) && !(op == Ops::MAX && d.is_float()))
            << d << ' ' << op;
      }
}

TEST_F(Nccl, SizesOfEveryKind) {
  for (int64_t n : kSizes) {
    const int64_t all = n * size();
    const Tensor mine = tensor_of(dtypes::float32, n), whole = tensor_of(dtypes::float32, all);
    EXPECT_EQ(floats(distributed::all_reduce(mine, world(), {"data"})), combined(dtypes::float32, Ops::ADD, n));
    EXPECT_EQ(floats(distributed::reduce_scatter(whole, world(), "data")),
              combined(dtypes::float32, Ops::ADD, n, n * rank()));
    std::vector<float> gathered, exchanged;
    for (int r = 0; r < size(); r++) {
      const std::vector<float> part = values_of(dtypes::float32, r, n),
                               piece = values_of(dtypes::float32, r, n, n * rank());
      gathered.insert(gathered.end(), part.begin(), part.end());
      exchanged.insert(exchanged.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(floats(distributed::all_gather(mine, world(), "data")), gathered) << n;
    EXPECT_EQ(floats(distributed::all_to_all(whole, world(), "data", 0, 0)), exchanged) << n;
    EXPECT_EQ(floats(distributed::broadcast(mine, world(), "data", size() - 1)),
              values_of(dtypes::float32, size() - 1, n));
  }
  for (const char* f : {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv"})
    EXPECT_GE(calls(f), std::size(kSizes)) << f;
}

TEST_F(Nccl, MovedValuesOfEveryType) {
  for (DType d : kTypes) {
    const size_t before = calls("ncclAllGather");
    std::vector<float> gathered;
    for (int r = 0; r < size(); r++) {
      const std::vector<float> part = values_of(d, r, 37);
      gathered.insert(gathered.end(), part.begin(), part.end());
    }
    EXPECT_EQ(floats(distributed::all_gather(tensor_of(d, 37), world(), "data")), gathered) << d;
    EXPECT_EQ(floats(distributed::broadcast(tensor_of(d, 37), world(), "data", 1)), values_of(d, 1, 37)) << d;
    EXPECT_EQ(calls("ncclAllGather") - before, 1u) << d;
  }
}

TEST_F(Nccl, EmptyTensors) {
  const Tensor none = Tensor::zeros(0, 3).contiguous();
  EXPECT_EQ(distributed::all_reduce(none, world(), {"data"}).to_vector<float>().size(), 0u);
  EXPECT_EQ(distributed::all_gather(none, world(), "data").to_vector<float>().size(), 0u);
}

TEST_F(Nccl, RingOfSendersAndReceivers) {
  const int to = (rank() + 1) % size(), from = (rank() + size() - 1) % size();
  for (int64_t n : {5, 3000}) {
    const Tensor mine = tensor_of(dtypes::float32, n);
    Tensor sent = distributed::send(mine, to), got = distributed::receive(Tensor::zeros(n), from);
    realize({sent, got});
    EXPECT_EQ(floats(sent), values_of(dtypes::float32, rank(), n));
    EXPECT_EQ(floats(got), values_of(dtypes::float32, from, n));
  }
  EXPECT_GE(calls("ncclSend"), 2u);
}

/// Kernels before and behind, several exchanges at once, memory that is used again: the fake driver sees what is not
/// ordered.
TEST_F(Nccl, ChainsWithKernels) {
  fake::cuda_control().set_delay(300);
  Tensor x = tensor_of(dtypes::float32, 500);
  std::vector<float> want = values_of(dtypes::float32, rank(), 500);
  for (int step = 0; step < 6; step++) {
    const Tensor sum = distributed::all_reduce(x * 2 + 1, world(), {"data"}),
                 most = distributed::all_gather(x.sum().reshape({1}), world(), "data");
    x = ((sum - static_cast<float>(size())) / (2.0f * static_cast<float>(size())) + most.sum() * 0).realize();
  }
  // The mean of all, from the first step on.
  const std::vector<float> sums = combined(dtypes::float32, Ops::ADD, 500), got = floats(x);
  for (size_t i = 0; i < sums.size(); i++) EXPECT_NEAR(got[i], sums[i] / static_cast<float>(size()), 1e-5) << i;
}

TEST_F(Nccl, SmallOnesAreOneGroup) {
  Tensors in, out;
  for (int64_t k = 0; k < 5; k++) in.push_back(tensor_of(dtypes::float32, 10 + k));
  distributed::all_reduce(in[0], world(), {"data"}).realize();  // the group has formed
  const size_t groups = calls("ncclGroupStart"), sums = calls("ncclAllReduce");
  for (const Tensor& t : in) out.push_back(distributed::all_reduce(t, world(), {"data"}));
  realize(out);
  for (int64_t k = 0; k < 5; k++)
    EXPECT_EQ(floats(out[static_cast<size_t>(k)]), combined(dtypes::float32, Ops::ADD, 10 + k));
  EXPECT_EQ(calls("ncclGroupStart") - groups, 1u);
  EXPECT_EQ(calls("ncclAllReduce") - sums, 5u);
}

TEST_F(Nccl, CapturedFunctionsReplay) {
  auto step = jit([](const Tensor& x) {
    const Tensor sum = distributed::all_reduce((x + 1).contiguous(), world(), {"data"});
    return (distributed::all_gather((sum * 2).contiguous(), world(), "data").sum(0) + x.sum()).realize();
  });
  for (int i = 0; i < 6; i++) {
    const Tensor x = (tensor_of(dtypes::float32, 9) + static_cast<float>(i)).realize();
    double want = 0;
    for (int r = 0; r < size(); r++)
      for (int64_t k = 0; k < 9; k++)
        want += 2.0 * size() * (static_cast<double>(value_of(dtypes::float32, r, k)) + i + 1);
    for (int64_t k = 0; k < 9; k++) want += static_cast<double>(value_of(dtypes::float32, rank(), k)) + i;
    EXPECT_NEAR(step(x).item<float>(), want, 1e-3) << i;
  }
}

TEST_F(Nccl, CountsAndReports) {
  GlobalCounters::reset();
  const Context debug{{"DEBUG", 2}};
  testing::internal::CaptureStdout();
  distributed::all_reduce(tensor_of(dtypes::float32, 1000), world(), {"data"}).realize();
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_NE(out.find(str("allreduce ADD of 1000 float32 by ", size(), " ranks, ")), std::string::npos) << out;
  EXPECT_NE(out.find("bytes sent by NCCL"), std::string::npos) << out;
  EXPECT_EQ(GlobalCounters::collectives, 1);
  EXPECT_GT(GlobalCounters::sent, 0);
}

TEST_F(Nccl, IsToldOfWithTheDevices) {
  const std::string note = cuda_kind().describe();
  EXPECT_NE(note.find("; NCCL 2.28.9"), std::string::npos) << note;
}

/// Two axes of a mesh are groups with communicators of their own.
TEST_F(Nccl, GroupsOfASquare) {
  if (size() < 4) return;
  const Mesh square({{"rows", 2}, {"columns", -1}});
  const Tensor x = tensor_of(dtypes::float32, 20);
  for (const char* axis : {"rows", "columns"}) {
    std::vector<float> want(20);
    for (int r : square.group({axis}))
      for (size_t i = 0; i < 20; i++) want[i] += value_of(dtypes::float32, r, static_cast<int64_t>(i));
    EXPECT_EQ(floats(distributed::all_reduce(x, square, {axis})), want) << axis;
  }
}

}  // namespace
}  // namespace tg
