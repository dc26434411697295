/// \file Several tensors written to in turn, computed late and in any order: each write sees what its expression saw
/// when it was built.
#include <gtest/gtest.h>

#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {
namespace {

/// Two states: the last two inputs, and a decaying sum over them. Both are only assigned; outputs may be computed in
/// between.
void expect_states(bool outputs, bool window_first, bool stored) {
  const Tensor window = Tensor::zeros(2).clone(), sum = Tensor::zeros(1).clone();
  float w0 = 0, w1 = 0, s = 0;
  for (int i = 0; i < 4; i++) {
    const float x = 1.f + static_cast<float>(i);
    Tensor all = window.cat(Tensor({x}));
    if (stored) all = all.contiguous();
    const Tensor out = all.sum() * 2;
    window.assign(all(Slice(1, 3)));
    sum.assign(sum * 0.5 + all.sum());
    s = s * 0.5f + w0 + w1 + x;
    w0 = w1;
    w1 = x;
    if (outputs) out.realize();
  }
  if (window_first) window.realize();
  EXPECT_EQ(sum.to_vector<float>(), (std::vector<float>{s})) << outputs << window_first << stored;
  EXPECT_EQ(window.to_vector<float>(), (std::vector<float>{w0, w1})) << outputs << window_first << stored;
}

TEST(PendingWrites, SeeWhatWasThereWhenTheyWereBuilt) {
  for (bool outputs : {false, true})
    for (bool window_first : {false, true})
      for (bool stored : {false, true}) expect_states(outputs, window_first, stored);
}

TEST(PendingWrites, ReadersOfStorageThatWasFresh) {
  const Tensor a = Tensor::zeros(2).clone();
  const Tensor before = a + 1;  // reads what clone() is going to write
  (a * 2).realize();            // now it is written
  a.assign(Tensor({5.f, 6.f})).realize();
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{1, 1}));
}

/// A tensor without storage that is assigned another's storage gets its own: writes to one of them are not writes to
/// the other.
TEST(PendingWrites, AssignedStorageIsCopied) {
  const std::vector<float> one{1, 2, 3}, more{2, 3, 4};
  for (bool constant : {false, true})
    for (bool stored : {false, true}) {
      const Tensor c = Tensor(one).realize(), x = Tensor({4.f, 5.f, 6.f}).realize();
      const Tensor a = constant ? Tensor::zeros(3) : x * 0.5;
      a.assign(c);
      if (stored) a.realize();
      a.assign(a + 1);
      EXPECT_EQ(a.to_vector<float>(), more);
      EXPECT_EQ(c.to_vector<float>(), one);
      const Tensor b = constant ? Tensor::zeros(3) : x * 0.25;
      b.assign(c.detach().flip({0}));
      if (stored) b.realize();
      c.assign(c + 1);
      EXPECT_EQ(b.to_vector<float>(), (std::vector<float>{3, 2, 1}));
      EXPECT_EQ(c.to_vector<float>(), more);
    }
}

/// A value that is stored on the way to another one is not computed again for the tensor that holds it.
TEST(Realize, KeepsWhatOtherTensorsHold) {
  const Tensor x = Tensor::rand(4, 8).realize(), w = Tensor::rand(8, 8).realize();
  const Tensor held = x.matmul(w).relu().contiguous(), result = (held.matmul(w) + 1).contiguous();
  result.realize();
  EXPECT_TRUE(held.is_realized());
  const Tensor view = x.matmul(w).exp().contiguous().transpose(), sum = view.sum();
  sum.realize();
  EXPECT_FALSE(view.schedule().schedule->buffers.size() > 2) << "only a view is left to be gathered";
  EXPECT_EQ(view.to_vector<float>(), x.matmul(w).exp().transpose().to_vector<float>());
}

}  // namespace
}  // namespace tg
