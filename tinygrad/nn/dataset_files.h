/// \file The files of the data sets: search directories, checksums, download sources.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/nn/cifar.h"

namespace tg::nn::datasets {

/// Images are 28 x 28 grey values, labels 0 to 9: 60000 for training, 10000 for testing.
struct MnistBytes {
  std::vector<uint8_t> train_images, train_labels, test_images, test_labels;
};

struct DataOptions {
  bool download = true;                                 ///< fetch what no directory holds
  std::vector<std::filesystem::path> directories = {};  ///< look here only; empty: search_directories()
};

/// Returns where the data set `name` ("mnist", "fashion-mnist", "cifar") is searched, in this order:
/// $TINYGRAD_DATA/name, $TINYGRAD_DATA, the user's cache, data/name of the source tree, installed_data_dirs(),
/// data/name of each folder above the program (and share/tinygrad/data/name there) and of each folder above the current
/// one.
std::vector<std::filesystem::path> search_directories(std::string_view name);
/// Returns datasets/name in tg::cache_dir(), the download folder.
std::filesystem::path cache_directory(std::string_view name);

/// Reads MNIST, or Fashion-MNIST, from the first directory that has all four files (.gz or unpacked); otherwise
/// downloads into the cache. Sizes and checksums are verified: a file that differs is a FormatError; data that is found
/// nowhere and cannot be fetched a FileError.
MnistBytes mnist_bytes(bool fashion = false, const DataOptions& options = {});
/// Reads CIFAR-10 from the first directory with cifar-10-binary.tar.gz or the six batch files (also in
/// cifar-10-batches-bin); errors as above.
CifarBytes cifar_bytes(const DataOptions& options = {});

/// Fetches a file with `curl` or `wget` from the first of `urls` that yields exactly these bytes; it appears at `to`
/// whole or not at all.
void download(const std::vector<std::string>& urls, const std::filesystem::path& to, uint64_t max_bytes,
              std::string_view sha256);

}  // namespace tg::nn::datasets
