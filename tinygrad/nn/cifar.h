/// \file Reader of the binary version of CIFAR-10.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace tg::nn {

/// Images are 3 x 32 x 32 (red, green, blue planes), labels 0 to 9; the whole set has 50000 for training and 10000 for
/// testing.
struct CifarBytes {
  std::vector<uint8_t> train_images, train_labels, test_images, test_labels;
};

inline constexpr uint64_t kCifarImageBytes = 3 * 32 * 32, kCifarRecordBytes = 1 + kCifarImageBytes;

/// Appends the `records` images and labels of one batch file. Throws FormatError naming `name` when its size or a label
/// is invalid.
void parse_cifar10_batch(std::span<const uint8_t> bytes, uint64_t records, std::string_view name,
                         std::vector<uint8_t>& images, std::vector<uint8_t>& labels);
/// Parses the contents of cifar-10-binary.tar.gz (or of the .tar): five training batches and a test batch of `records`
/// each.
CifarBytes parse_cifar10_archive(std::span<const uint8_t> bytes, std::string_view name, uint64_t records = 10000);
/// Reads the archive, or a directory that holds data_batch_1.bin to data_batch_5.bin and test_batch.bin.
/// Throws FileError for what is missing, FormatError for what is corrupt.
CifarBytes read_cifar10(const std::filesystem::path& archive_or_directory, uint64_t records = 10000);

}  // namespace tg::nn
