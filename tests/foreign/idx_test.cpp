/// \file IDX arrays: types, byte order, compressed and plain files, messages.
#include "tinygrad/nn/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

#include "tinygrad/base/error.h"
#include "tinygrad/base/process.h"
#include "tinygrad/io/file.h"

namespace tg::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<uint8_t> bytes(std::initializer_list<int> list) { return std::vector<uint8_t>(list.begin(), list.end()); }

template <class T> std::vector<T> values(const IdxArray& a) {
  std::vector<T> v(a.data.size() / sizeof(T));
  std::memcpy(v.data(), a.data.data(), a.data.size());
  return v;
}

TEST(Idx, BytesAndShape) {
  const IdxArray a = parse_idx(bytes({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255}), "x");
  EXPECT_EQ(a.dtype, dtypes::uint8);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_THAT(a.data, ElementsAre(1, 2, 3, 4, 5, 255));
}

TEST(Idx, ValuesBecomeHostOrder) {
  EXPECT_THAT(values<int16_t>(parse_idx(bytes({0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 2, 0xff, 0xfe}), "x")),
              ElementsAre(258, -2));
  EXPECT_THAT(values<int32_t>(parse_idx(bytes({0, 0, 0x0C, 1, 0, 0, 0, 1, 0, 1, 0, 2}), "x")), ElementsAre(65538));
  EXPECT_THAT(values<float>(parse_idx(bytes({0, 0, 0x0D, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0}), "x")), ElementsAre(1.5f));
  EXPECT_THAT(values<double>(parse_idx(bytes({0, 0, 0x0E, 1, 0, 0, 0, 1, 0xc0, 4, 0, 0, 0, 0, 0, 0}), "x")),
              ElementsAre(-2.5));
}

TEST(Idx, EmptyDimensionHoldsNothing) {
  EXPECT_TRUE(parse_idx(bytes({0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 0}), "x").data.empty());
}

TEST(Idx, MessagesNameTheFileAndBothSizes) {
  const auto parse = [](std::initializer_list<int> list) {
    return [data = bytes(list)] { parse_idx(data, "some/file.gz"); };
  };
  EXPECT_THAT(parse({0, 0, 8, 1, 0, 0, 0, 9, 1}),
              ThrowsMessage<FormatError>("[idx] some/file.gz: got 1 bytes of elements, expected 9"));
  EXPECT_THAT(parse({0, 0, 0x0E, 2, 255, 255, 255, 255, 255, 255, 255, 255}),
              ThrowsMessage<FormatError>(HasSubstr("overflow")));
  EXPECT_THAT(parse({0, 0, 8, 9}), ThrowsMessage<FormatError>("[idx] some/file.gz: got 9 dimensions, expected 1 to 8"));
  EXPECT_THAT(parse({'P', 'K', 8, 1}), ThrowsMessage<FormatError>("[idx] some/file.gz: not an IDX file"));
}

TEST(Idx, FilesPlainAndCompressed) {
  const TempDir dir;
  const std::vector<uint8_t> plain = bytes({0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9});
  io::write_file_atomic(dir.path() / "plain", plain);
  const std::string gz = (dir.path() / "packed.gz").string();
  gzFile out = gzopen(gz.c_str(), "wb");
  ASSERT_EQ(gzwrite(out, plain.data(), plain.size()), static_cast<int>(plain.size()));
  gzclose(out);
  EXPECT_THAT(read_idx(dir.path() / "plain").data, ElementsAre(7, 8, 9));
  EXPECT_THAT(read_idx(gz).data, ElementsAre(7, 8, 9));
  EXPECT_THROW(read_idx(gz, 10), FormatError) << "the content has 11 bytes";
  EXPECT_THROW(read_idx(dir.path() / "plain", 10), FormatError);
  EXPECT_THROW(read_idx(dir.path() / "absent"), FileError);
  EXPECT_THROW(read_idx(dir.path()), FileError) << "a directory";
}

}  // namespace
}  // namespace tg::nn
