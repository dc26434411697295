/// \file gzip, tar and whole files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tinygrad/base/error.h"
#include "tinygrad/base/process.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/io/tar.h"

namespace tg::io {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<uint8_t> corpus(const std::string& file) {
  return read_file(std::string(TG_TESTS_DIR) + "/fuzz/corpus/" + file, 1 << 20);
}
std::string text(std::span<const uint8_t> b) { return {b.begin(), b.end()}; }

TEST(Gzip, MembersAreJoined) { EXPECT_EQ(text(gunzip(corpus("gzip/good_two_members"), 100, "x")), "onetwo"); }

TEST(Gzip, LimitIsExact) {
  const std::vector<uint8_t> packed = corpus("gzip/good_text");  // 300 bytes
  EXPECT_EQ(gunzip(packed, 300, "x").size(), 300u);
  EXPECT_THAT(
      [&] { gunzip(packed, 299, "data.gz"); },
      ThrowsMessage<FormatError>("[gunzip] data.gz: got more than 299 bytes of content, expected at most that"));
  EXPECT_THROW(gunzip(packed, 0, "x"), FormatError);
  EXPECT_TRUE(gunzip(corpus("gzip/good_empty_member"), 0, "x").empty());
}

TEST(Gzip, LargeContentGrowsInSteps) {
  std::vector<uint8_t> content(5 << 20);
  for (size_t i = 0; i < content.size(); i++) content[i] = static_cast<uint8_t>(i >> 12);
  const TempDir dir;
  const std::string path = (dir.path() / "x.gz").string();
  gzFile out = gzopen(path.c_str(), "wb1");
  gzwrite(out, content.data(), content.size());
  gzclose(out);
  EXPECT_EQ(gunzip(read_file(path, 1 << 20), 8 << 20, "x"), content);
}

TEST(Tar, EntriesPointIntoTheArchive) {
  const std::vector<uint8_t> archive = corpus("tar/good_ustar");
  const std::vector<TarEntry> e = tar_entries(archive, "x");
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].name, "a.txt");
  EXPECT_EQ(text(std::span(archive).subspan(e[0].offset, e[0].size)), "alpha");
  EXPECT_EQ(e[1].name, "dir/b.bin");
  EXPECT_EQ(e[1].size, 700u);
}

TEST(Tar, LongNames) {
  std::string expected;
  for (int i = 0; i < 120; i++) expected += "d/";
  EXPECT_EQ(tar_entries(corpus("tar/good_gnu_long"), "x").at(0).name, expected + "end");
  std::string accents;
  for (int i = 0; i < 100; i++) accents += "é";
  EXPECT_EQ(tar_entries(corpus("tar/good_pax_long"), "x").at(0).name, accents);
}

TEST(Tar, MessagesNameTheArchive) {
  EXPECT_THAT([] { tar_entries(corpus("tar/bad_size_past_end"), "a.tar"); },
              ThrowsMessage<FormatError>(HasSubstr("[tar] a.tar: entry at byte 0 has 134217727 bytes, ")));
  EXPECT_THAT([] { tar_entries(corpus("tar/bad_checksum"), "a.tar"); },
              ThrowsMessage<FormatError>("[tar] a.tar: corrupt header at byte 0"));
}

TEST(File, AtomicWriteReplaces) {
  const TempDir dir;
  const auto path = dir.path() / "f";
  const std::vector<uint8_t> a{1, 2, 3}, b{4};
  write_file_atomic(path, a);
  write_file_atomic(path, b);
  EXPECT_EQ(read_file(path, 10), b);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << "nothing else is left";
  EXPECT_THROW(write_file_atomic(dir.path() / "no" / "folder", a), FileError);
  EXPECT_THROW(read_file(path, 0), FormatError);
}

}  // namespace
}  // namespace tg::io
