/// \file Content addressed storage: hashes as the format has them, trees of chunks, and stores whose chunks are
/// damaged, missing or lies.
#include "tinygrad/io/tinyfs.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temp_dir.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/sha256.h"

namespace tg::io {
namespace {
std::string hex(std::string_view text) {
  return to_hex(shake128({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}
std::vector<uint8_t> pattern(size_t n) {
  std::vector<uint8_t> v(n);
  for (size_t i = 0; i < n; i++) v[i] = static_cast<uint8_t>(i * 31 + i / 255);
  return v;
}

TEST(ForeignTinyfs, Shake128OfTheStandard) {
  EXPECT_EQ(hex(""), "7f9c2ba4e88f827d616045507605853e");
  EXPECT_EQ(hex("abc"), "5881092dd818bf5cf8a3ddb793fbcba7");
  EXPECT_NE(hex(std::string(168, 'a')), hex(std::string(167, 'a')));
}

TEST(ForeignTinyfs, RoundTrips) {
  testing::TempDir dir;
  auto store = open_store(dir / "chunks");
  for (size_t n : {size_t{1}, size_t{4096}, kChunkBytes, kChunkBytes + 1, 3 * kChunkBytes - 5}) {
    const std::vector<uint8_t> bytes = pattern(n);
    const ChunkHash h = store_bytes(*store, bytes);
    EXPECT_EQ(load_bytes(*store, h, n), bytes) << n;
    EXPECT_EQ(store_bytes(*store, bytes), h) << "the address is that of the contents";
    EXPECT_EQ(load_bytes(*open_store(dir / "chunks"), h, n), bytes) << "kept in the folder";
  }
  EXPECT_THROW(store_bytes(*store, {}), ValueError);
}

TEST(ForeignTinyfs, DamagedAndMissingChunks) {
  testing::TempDir dir;
  auto store = open_store(dir / "chunks");
  const ChunkHash h = store_bytes(*store, pattern(2 * kChunkBytes));
  for (auto& file : std::filesystem::directory_iterator(dir / "chunks")) {
    const std::string path = file.path().string();
    std::filesystem::rename(path, dir / "aside");
    EXPECT_THROW(load_bytes(*store, h, 2 * kChunkBytes), FileError);
    std::ofstream(path) << "short";
    EXPECT_THROW(load_bytes(*store, h, 2 * kChunkBytes), FormatError);
    std::filesystem::copy_file(dir / "aside", path, std::filesystem::copy_options::overwrite_existing);
    std::fstream(path, std::ios::in | std::ios::out).put('?');
    EXPECT_THROW(load_bytes(*store, h, 2 * kChunkBytes), FormatError);
    std::filesystem::rename(dir / "aside", path);
  }
  EXPECT_EQ(load_bytes(*store, h, 2 * kChunkBytes), pattern(2 * kChunkBytes));
  EXPECT_THROW(load_bytes(*store, ChunkHash{}, 10), FileError);
}

TEST(ForeignTinyfs, ServerThatNeverAnswers) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size), 0);
  const Context patience{{"TINYFS_TIMEOUT", 1}, {"TINYFS_ENDPOINT", str("127.0.0.1:", ntohs(at.sin_port))}};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(store_bytes(*open_store(""), std::vector<uint8_t>(10)), FileError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  close(listener);
}

TEST(ForeignTinyfs, NoServer) {
  EXPECT_THROW(open_store("127.0.0.1:1"), FileError);
  EXPECT_THROW(open_store("nonsense"), FileError);
}

}  // namespace
}  // namespace tg::io
