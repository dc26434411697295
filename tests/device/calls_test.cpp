/// \file Pending graphs as calls, functions of hardware that is not there, tensors in content addressed storage.
#include <gtest/gtest.h>

#include <cstdlib>

#include "device_facts.h"
#include "temp_dir.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;

TEST(Callify, KeepsValuesAndGradients) {
  Tensor a({1.f, 2.f, 3.f}), b({4.f, 5.f, 6.f}), c = a + b, d = a * b;
  callify({c, d});
  EXPECT_EQ((c * 2).to_vector<float>(), (Floats{10, 14, 18}));
  EXPECT_EQ(d.to_vector<float>(), (Floats{4, 10, 18}));
  Tensor loss = (a * a).sum();
  callify({loss});
  loss.backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (Floats{2, 4, 6}));
}

TEST(Callify, LeavesConstantsStorageAndWrites) {
  Tensor k = Tensor(2.f) + 3.f, stored = Tensor({1.f, 2.f}).contiguous().realize(),
         x = Tensor::zeros({2}).contiguous().realize();
  x.assign(x + 1);
  Tensor y = x * 2;
  callify({k, stored, y, y});
  EXPECT_EQ(k.item<float>(), 5.f);
  EXPECT_EQ(y.to_vector<float>(), (Floats{2, 2}));
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(stored.to_vector<float>(), (Floats{1, 2}));
}

TEST(DecodeHevcFrame, ChecksItsArgumentsAndNeedsADecoder) {
  Tensor chunk = Tensor::empty({64}, {.dtype = dtypes::uint8}), state = Tensor::empty({16}, {.dtype = dtypes::uint8});
  Variable pos("pos", 0, 100);
  EXPECT_THROW(decode_hevc_frame(chunk, pos.bind(1), {8, 8}, state, {state}), ShapeError);
  EXPECT_THROW(decode_hevc_frame(chunk, pos.bind(1), {}, state), ShapeError);
  try {
    Tensor frame = decode_hevc_frame(chunk, pos.bind(3), {8, 8}, state);  // with EAGER=1 this is where it is realized
    EXPECT_EQ(frame.shape(), (Shape{8, 8}));
    frame.realize();
    FAIL() << "no device here decodes";
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("no video decoder"), std::string::npos) << e.what();
  }
}

TEST(FsStore, RoundTripsThroughAFolder) {
  TG_NEEDS_VALUES();  // they name the files
  testing::TempDir dir;
  setenv("TINYFS_ENDPOINT", (dir / "chunks").c_str(), 1);
  Tensor t({1.f, 2.f, 3.f}), address = nn::fs_store(t);
  EXPECT_EQ(address.shape(), (Shape{16}));
  EXPECT_EQ(nn::fs_load(address, 12).bitcast(dtypes::float32).to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(nn::fs_store(t.clone()).to_vector<uint8_t>(), address.to_vector<uint8_t>());
  EXPECT_THROW(nn::fs_load(t, 12), DTypeError);
  EXPECT_THROW(nn::fs_load(Tensor::zeros({16}, {.dtype = dtypes::uint8}), 5), FileError);
  unsetenv("TINYFS_ENDPOINT");
}

}  // namespace
}  // namespace tg
