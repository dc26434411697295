/// \file Files that become shorter while tensors of them are lazy: a typed error instead of SIGBUS.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "temp_dir.h"
#include "tinygrad/io/file.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempDir;
using ::testing::ThrowsMessage;

constexpr int64_t kNumbers = 1 << 16;

std::string saved(const TempDir& dir) {
  nn::safe_save({{"w", Tensor::arange(kNumbers).cast(dtypes::float32)}}, dir / "w.safetensors");
  return dir / "w.safetensors";
}

TEST(ShrinkingFile, KernelsThatReadItAreAnError) {
  const TempDir dir;
  const std::string file = saved(dir);
  const Tensor w = nn::safe_load(file).at("w");
  const Tensor other = Tensor::ones({4}).contiguous().realize();
  fs::resize_file(file, 8192);
  EXPECT_THAT([&] { (w + 1).contiguous().realize(); },
              ThrowsMessage<FileError>(HasSubstr("[map_file] a file became shorter while tensors of it were read")));
  EXPECT_EQ((other + 1).to_vector<float>(), std::vector<float>(4, 2.f)) << "others are as before";
}

TEST(ShrinkingFile, CopiesFromTheDiskAreAnError) {
  const TempDir dir;
  std::ofstream(dir / "x", std::ios::binary) << std::string(1 << 18, 'x');
  const Tensor t = Tensor::from_file(dir / "x");
  EXPECT_EQ(t.shrink({{SInt(0), SInt(4)}}).to("CPU").to_vector<int>(), std::vector<int>(4, 'x'));
  fs::resize_file(dir / "x", 4096);
  EXPECT_THAT([&] { t.to("CPU").contiguous().realize(); }, ThrowsMessage<FileError>(HasSubstr("became shorter")));
}

TEST(ShrinkingFile, ParsersSurviveIt) {
  const TempDir dir;
  const std::string file = saved(dir);
  const nn::ByteSource source = nn::ByteSource::of_file(file, "safe_load");
  fs::resize_file(file, 0);
  EXPECT_THROW(nn::safe_load(source), Error);
}

TEST(ShrinkingFile, AFileThatIsReplacedStays) {
  const TempDir dir;
  const std::string file = saved(dir);
  const Tensor w = nn::safe_load(file).at("w");
  nn::safe_save({{"w", Tensor::zeros({2})}}, file);
  EXPECT_EQ((w + 1).sum().item<double>(), static_cast<double>(kNumbers) * (kNumbers + 1) / 2);
}

volatile sig_atomic_t own_handler_called = 0;

TEST(ShrinkingFile, OtherFaultsGoToTheHandlerBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fault = [](bool own_handler) {
    const TempDir dir;
    if (own_handler) signal(SIGBUS, [](int) { _exit(own_handler_called == 0 ? 7 : 8); });
    std::ofstream(dir / "ours") << std::string(8192, 'x');
    const io::MappedFile ours = io::map_file(dir / "ours");  // installs the handler of the library
    std::ofstream(dir / "theirs") << std::string(8192, 'x');
    const int fd = ::open((dir / "theirs").c_str(), O_RDONLY);
    auto* theirs = static_cast<volatile char*>(mmap(nullptr, 8192, PROT_READ, MAP_SHARED, fd, 0));
    fs::resize_file(dir / "theirs", 0);
    fs::resize_file(dir / "ours", 0);
    if (ours.bytes[4096] != 0) std::exit(1);  // ours reads as zero
    static_cast<void>(theirs[4096]);
    std::exit(2);
  };
  EXPECT_EXIT(fault(true), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(fault(false), ::testing::KilledBySignal(SIGBUS), "");
}

TEST(DiskDevice, AFileThatCannotBeMappedForWritingIsStillThere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const TempDir dir;
    std::ofstream(dir / "x", std::ios::binary) << std::string(64 << 20, 'x');
    Tensor t = Tensor::from_file(dir / "x");
    if (t.shrink({{SInt(0), SInt(1)}}).to("CPU").item<int>() != 'x') std::exit(1);
    const Tensor one = Tensor({1}).cast(dtypes::uint8).realize();
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (32 << 20);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    try {
      t.shrink({{SInt(0), SInt(1)}}).assign(one).realize();
      std::exit(2);
    } catch (const FileError&) {}
    std::exit(t.shrink({{SInt(5), SInt(6)}}).to("CPU").item<int>() == 'x' ? 0 : 3);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tg
