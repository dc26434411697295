/// \file How kernels say what they copy in boxes.
#include "tinygrad/target/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "helpers/error_text.h"

namespace tg {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TensorMap kHalves{
    .slot = 1, .itemsize = 2, .width = 8192, .height = 4096, .box_width = 64, .box_height = 128},
    kWords{.slot = 2, .itemsize = 4, .width = 36, .height = 7, .box_width = 32, .box_height = 8};

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

TEST(TensorMaps, TextIsReadAgain) {
  EXPECT_EQ(kHalves.text(), "1 2 8192 4096 64 128");
  for (const TensorMap& m : {kHalves, kWords}) EXPECT_EQ(TensorMap::from_text(m.text()), m);
}

TEST(TensorMaps, ImagesSayWhichTheyHave) {
  const std::vector<TensorMap> both{kHalves, kWords};
  const std::string code(
      "\x7f"
      "ELF tinygrad tensors\0;",
      24);
  EXPECT_THAT(maps_of_image(bytes_of(code + image_text(both) + code)), ElementsAre(kHalves, kWords));
  EXPECT_TRUE(maps_of_image(bytes_of(code + image_text({}))).empty());
  EXPECT_TRUE(maps_of_image(bytes_of(code)).empty());
}

TEST(TensorMaps, DamagedImagesAreErrors) {
  const std::vector<TensorMap> both{kHalves, kWords};
  const std::string text = image_text(both);
  const size_t begin = image_text({}).size() - 3;
  for (size_t end = begin + 1; end < text.size() - 3; end++)
    EXPECT_THAT(test::error_text<FormatError>([&] { maps_of_image(bytes_of(text.substr(0, end))); }),
                HasSubstr("tensor maps are cut off"))
        << end;
  for (const auto& [from, to] :
       {std::pair("8192", "8191"), {" 64 128", " 65 128"}, {" 64 128", " 64 257"}, {"1 2", "1 3"}}) {
    std::string changed = text;
    changed.replace(changed.find(from), std::string(from).size(), to);
    EXPECT_THAT(test::error_text<FormatError>([&] { maps_of_image(bytes_of(changed)); }),
                HasSubstr("expected rows of 128 bytes that begin at multiples of 16"));
  }
}

}  // namespace
}  // namespace tg
