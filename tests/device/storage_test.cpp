/// \file Tensors of files: slices and bit casts move to a computing device without the rest of the file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "tinygrad/tensor/tensor.h"

namespace tg {
namespace {

class Storage : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("tg_storage_" + std::to_string(getpid()))).string();
    std::vector<float> v(24);
    std::iota(v.begin(), v.end(), 0.0f);
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(v.data()), 96);
    file_ = Tensor::empty({24}, {.dtype = dtypes::float32, .device = "DISK:" + path_});
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
  Tensor file_;
};

TEST_F(Storage, SliceIsOneCopyOfItsBytes) {
  Tensor t = file_(Slice(3, 6)).to(Tensor::ones({1}).device());
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{3, 4, 5}));
}
TEST_F(Storage, RowsOfAMatrix) {
  Tensor t = file_.reshape({4, 6})(Slice(1, 3));
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(file_.reshape({4, 6})(2, Slice(1, 4)).to_vector<float>(), (std::vector<float>{13, 14, 15}));
}
TEST_F(Storage, ScatteredViews) {
  EXPECT_EQ(file_(Slice(None, None, 8)).to_vector<float>(), (std::vector<float>{0, 8, 16}));
  EXPECT_EQ(file_.reshape({4, 6})(Slice(), 5).to_vector<float>(), (std::vector<float>{5, 11, 17, 23}));
  EXPECT_EQ(file_.reshape({4, 6}).permute({1, 0})(0).to_vector<float>(), (std::vector<float>{0, 6, 12, 18}));
}
TEST_F(Storage, BitsAsOtherTypes) {
  EXPECT_EQ(file_(Slice(1, 2)).bitcast(dtypes::int32).to_vector<int>(), (std::vector<int>{0x3f800000}));
  EXPECT_EQ(file_(Slice(1, 2)).bitcast(dtypes::uint8).to_vector<int>(), (std::vector<int>{0, 0, 0x80, 0x3f}));
  Tensor bytes = file_.bitcast(dtypes::uint8);
  EXPECT_EQ(bytes.numel(), 96);
  EXPECT_EQ(bytes(Slice(8, 16)).bitcast(dtypes::float32).to_vector<float>(), (std::vector<float>{2, 3}));
}
TEST_F(Storage, ViewOfWhatIsNotWrittenYet) {
  const std::string other = path_ + "_new";
  Tensor t = Tensor::arange(0, 10).to("DISK:" + other);
  EXPECT_EQ(t(Slice(4, 7)).to_vector<int>(), (std::vector<int>{4, 5, 6}));
  t.realize();
  EXPECT_EQ(std::filesystem::file_size(other), 40u);
  EXPECT_EQ(t(Slice(4, 7)).to_vector<int>(), (std::vector<int>{4, 5, 6}));
  std::filesystem::remove(other);
}

}  // namespace
}  // namespace tg
