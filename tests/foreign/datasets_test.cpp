/// \file The data sets: the MNIST of the repository, CIFAR-10 in both forms, search order, altered files, downloads
/// from file URLs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/io/file.h"
#include "tinygrad/nn/dataset_files.h"

namespace tg::nn::datasets {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

fs::path repository_mnist() { return fs::path(source_data_dir()) / "mnist"; }

TEST(Datasets, Mnist) {
  const MnistBytes d = mnist_bytes(false, {.download = false, .directories = {repository_mnist()}});
  EXPECT_EQ(d.train_images.size(), 60000u * 28 * 28);
  EXPECT_EQ(d.test_images.size(), 10000u * 28 * 28);
  ASSERT_EQ(d.train_labels.size(), 60000u);
  ASSERT_EQ(d.test_labels.size(), 10000u);
  EXPECT_EQ((std::vector<int>(d.train_labels.begin(), d.train_labels.begin() + 5)), (std::vector<int>{5, 0, 4, 1, 9}));
  EXPECT_EQ(std::count(d.test_labels.begin(), d.test_labels.end(), 1), 1135);
  EXPECT_NEAR(std::accumulate(d.train_images.begin(), d.train_images.end(), 0.0) / d.train_images.size(), 33.3184,
              1e-4);
}

TEST(Datasets, DirectoryWithoutAllFilesIsPassedOver) {
  const TempDir partial;
  fs::copy_file(repository_mnist() / "t10k-labels-idx1-ubyte.gz", partial.path() / "t10k-labels-idx1-ubyte.gz");
  EXPECT_EQ(
      mnist_bytes(false, {.download = false, .directories = {partial.path(), repository_mnist()}}).test_labels.size(),
      10000u);
  EXPECT_THAT([&] { mnist_bytes(false, {.download = false, .directories = {partial.path()}}); },
              ThrowsMessage<FileError>(AllOf(HasSubstr(partial.path().string()), HasSubstr("TINYGRAD_DATA"))));
}

TEST(Datasets, AlteredFileIsRefused) {
  const TempDir dir;
  for (const auto& f : fs::directory_iterator(repository_mnist()))
    fs::copy_file(f.path(), dir.path() / f.path().filename());
  const DataOptions only{.download = false, .directories = {dir.path()}};
  const fs::path labels = dir.path() / "t10k-labels-idx1-ubyte.gz";
  fs::remove(labels);
  std::vector<uint8_t> plain{0, 0, 8, 1, 0, 0, 0x27, 0x10};
  plain.resize(10008);
  io::write_file_atomic(dir.path() / "t10k-labels-idx1-ubyte", plain);
  EXPECT_THAT(
      [&] { mnist_bytes(false, only); },
      ThrowsMessage<FormatError>(AllOf(HasSubstr("t10k-labels-idx1-ubyte: got SHA-256"), HasSubstr("ff7bcfd4"))));
  plain.pop_back();
  io::write_file_atomic(dir.path() / "t10k-labels-idx1-ubyte", plain);
  EXPECT_THAT([&] { mnist_bytes(false, only); },
              ThrowsMessage<FormatError>(HasSubstr("got 10007 bytes, expected 10008")));
  std::ofstream(labels) << "not gzip";
  EXPECT_THROW(mnist_bytes(false, only), FormatError);
}

TEST(Datasets, SearchOrder) {
  const Context data{{"TINYGRAD_DATA", "/somewhere/data"}};
  const std::vector<fs::path> d = search_directories("mnist");
  ASSERT_GE(d.size(), 4u);
  EXPECT_EQ(d[0], "/somewhere/data/mnist");
  EXPECT_EQ(d[1], "/somewhere/data");
  EXPECT_EQ(d[2], fs::path(cache_dir()) / "datasets" / "mnist");
  EXPECT_EQ(d[3], repository_mnist());
}

std::vector<uint8_t> cifar_batch(int records, int seed) {
  std::vector<uint8_t> b;
  for (int i = 0; i < records; i++) {
    b.push_back(static_cast<uint8_t>((i + seed) % 10));
    b.insert(b.end(), kCifarImageBytes, static_cast<uint8_t>(i * 16 + seed));
  }
  return b;
}

void write_cifar(const fs::path& dir, int records) {
  for (int i = 1; i <= 5; i++)
    io::write_file_atomic(dir / ("data_batch_" + std::to_string(i) + ".bin"), cifar_batch(records, i));
  io::write_file_atomic(dir / "test_batch.bin", cifar_batch(records, 6));
}

TEST(Cifar, DirectoryAndArchiveAgree) {
  const TempDir dir;
  write_cifar(dir.path(), 3);
  const CifarBytes c = read_cifar10(dir.path(), 3);
  EXPECT_EQ(c.train_labels, (std::vector<uint8_t>{1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6, 5, 6, 7}));
  EXPECT_EQ(c.test_labels, (std::vector<uint8_t>{6, 7, 8}));
  ASSERT_EQ(c.train_images.size(), 15 * kCifarImageBytes);
  EXPECT_EQ(c.train_images[kCifarImageBytes], 16 + 1);
  EXPECT_EQ(c.test_images.back(), 2 * 16 + 6);
  const fs::path archive = dir.path() / "all.tar.gz";
  ASSERT_TRUE(
      run_process({"tar", "-C", dir.path().string(), "-czf", archive.string(), "data_batch_1.bin", "data_batch_2.bin",
                   "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"})
          .ok());
  const CifarBytes packed = read_cifar10(archive, 3);
  EXPECT_EQ(packed.train_images, c.train_images);
  EXPECT_EQ(packed.test_labels, c.test_labels);
}

TEST(Cifar, WrongSizesAndLabels) {
  std::vector<uint8_t> images, labels;
  EXPECT_THAT([&] { parse_cifar10_batch(cifar_batch(2, 0), 3, "b.bin", images, labels); },
              ThrowsMessage<FormatError>("[cifar] b.bin: got 6146 bytes, expected 3 records of 3073"));
  std::vector<uint8_t> bad = cifar_batch(2, 0);
  bad[kCifarRecordBytes] = 10;
  EXPECT_THAT([&] { parse_cifar10_batch(bad, 2, "b.bin", images, labels); },
              ThrowsMessage<FormatError>("[cifar] b.bin: record 1 has label 10, expected 0 to 9"));
  const TempDir dir;
  EXPECT_THROW(read_cifar10(dir.path()), FileError);
  write_cifar(dir.path(), 3);
  EXPECT_THROW(read_cifar10(dir.path(), 4), FormatError);
  EXPECT_THROW(cifar_bytes({.download = false, .directories = {dir.path()}}), FormatError)
      << "the published batches have 10000 images";
  EXPECT_THROW(cifar_bytes({.download = false, .directories = {dir.path() / "none"}}), FileError);
}

TEST(Cifar, UnbalancedClassesAreNotThePublishedSet) {
  const TempDir dir;
  fs::create_directories(dir.path() / "cifar-10-batches-bin");
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                           "data_batch_5.bin", "test_batch.bin"}) {
    std::ofstream(dir.path() / "cifar-10-batches-bin" / name);
    fs::resize_file(dir.path() / "cifar-10-batches-bin" / name, 10000 * kCifarRecordBytes);  // all labels 0
  }
  EXPECT_THAT([&] { cifar_bytes({.download = false, .directories = {dir.path()}}); },
              ThrowsMessage<FormatError>(HasSubstr("got 50000 and 10000 images of class 0")));
}

TEST(Download, VerifiesBeforeTheFileAppears) {
  if (!has_program("curl")) GTEST_SKIP() << "curl is not installed";
  const TempDir dir;
  const std::vector<uint8_t> content{'d', 'a', 't', 'a'};
  io::write_file_atomic(dir.path() / "source", content);
  const std::string url = "file://" + (dir.path() / "source").string(),
                    absent = "file://" + (dir.path() / "absent").string();
  const fs::path to = dir.path() / "new" / "folder" / "copy";
  download({absent, url}, to, 100, sha256_hex(content));
  EXPECT_EQ(io::read_file(to, 100), content);
  const fs::path other = dir.path() / "other";
  EXPECT_THAT([&] { download({absent, url}, other, 100, std::string(64, '0')); },
              ThrowsMessage<FileError>(AllOf(HasSubstr(absent), HasSubstr("SHA-256"))));
  EXPECT_THROW(download({url}, other, 3, sha256_hex(content)), FileError) << "larger than expected";
  EXPECT_FALSE(fs::exists(other));
}

}  // namespace
}  // namespace tg::nn::datasets
