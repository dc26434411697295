/// \file CIFAR-10 binary: each record is one label byte and 3072 pixels.
#include "tinygrad/nn/cifar.h"

#include <algorithm>
#include <string>

#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/io/tar.h"

namespace tg::nn {
namespace {

constexpr const char* kBatches[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
constexpr int kTestBatch = 5;
constexpr uint64_t kMaxArchiveBytes = uint64_t{1} << 29;  // the real one is 184 MB unpacked

void add_batch(CifarBytes& out, int batch, std::span<const uint8_t> bytes, uint64_t records, std::string_view name) {
  const bool test = batch == kTestBatch;
  parse_cifar10_batch(bytes, records, name, test ? out.test_images : out.train_images,
                      test ? out.test_labels : out.train_labels);
}

}  // namespace

void parse_cifar10_batch(std::span<const uint8_t> bytes, uint64_t records, std::string_view name,
                         std::vector<uint8_t>& images, std::vector<uint8_t>& labels) {
  TG_CHECK(FormatError, bytes.size() % kCifarRecordBytes == 0 && bytes.size() / kCifarRecordBytes == records,
           "[cifar] ", name, ": got ", bytes.size(), " bytes, expected ", records, " records of ", kCifarRecordBytes);
  images.reserve(images.size() + records * kCifarImageBytes);
  labels.reserve(labels.size() + records);
  for (uint64_t i = 0; i < records; i++) {
    const std::span<const uint8_t> record = bytes.subspan(i * kCifarRecordBytes, kCifarRecordBytes);
    TG_CHECK(FormatError, record[0] < 10, "[cifar] ", name, ": record ", i, " has label ", int{record[0]},
             ", expected 0 to 9");
    labels.push_back(record[0]);
    images.insert(images.end(), record.begin() + 1, record.end());
  }
}

CifarBytes parse_cifar10_archive(std::span<const uint8_t> bytes, std::string_view name, uint64_t records) {
  std::vector<uint8_t> unpacked;
  if (io::is_gzip(bytes)) {
    unpacked = io::gunzip(bytes, kMaxArchiveBytes, name);
    bytes = unpacked;
  }
  const std::vector<io::TarEntry> entries = io::tar_entries(bytes, name);
  CifarBytes out;
  for (int batch = 0; batch <= kTestBatch; batch++) {
    const auto named = [&](const io::TarEntry& e) { return e.name.substr(e.name.rfind('/') + 1) == kBatches[batch]; };
    const auto found = std::find_if(entries.begin(), entries.end(), named);
    TG_CHECK(FormatError, found != entries.end(), "[cifar] ", name, ": got an archive without ", kBatches[batch]);
    add_batch(out, batch, bytes.subspan(found->offset, found->size), records, str(name, ":", found->name));
  }
  return out;
}

CifarBytes read_cifar10(const std::filesystem::path& path, uint64_t records) {
  if (!std::filesystem::is_directory(path))
    return parse_cifar10_archive(io::read_file(path, kMaxArchiveBytes), path.string(), records);
  CifarBytes out;
  for (int batch = 0; batch <= kTestBatch; batch++) {
    const std::filesystem::path file = path / kBatches[batch];
    add_batch(out, batch, io::read_file(file, records * kCifarRecordBytes), records, file.string());
  }
  return out;
}

}  // namespace tg::nn
