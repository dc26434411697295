/// \file safetensors: what is written is read, and corrupt headers are refused with the reason.
#include "tinygrad/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>

#include "temp_dir.h"
#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/nn/nn.h"
#include "tinygrad/nn/state_file.h"

namespace tg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::TempDir;
using ::testing::ThrowsMessage;

std::vector<uint8_t> corpus(const std::string& file) {
  return io::read_file(std::string(TG_TESTS_DIR) + "/fuzz/corpus/safetensors/" + file, 1 << 20);
}
io::Safetensors parse(const std::string& file) {
  const std::vector<uint8_t> b = corpus(file);
  return io::parse_safetensors(b, b.size(), "model");
}

TEST(Safetensors, Header) {
  const io::Safetensors f = parse("good_two");
  ASSERT_EQ(f.entries.size(), 2u);
  EXPECT_EQ(f.entries[0].name, "a");
  EXPECT_EQ(f.entries[0].dtype, dtypes::float32);
  EXPECT_THAT(f.entries[0].shape, ElementsAre(2));
  EXPECT_TRUE(f.entries[1].shape.empty());
  EXPECT_EQ(f.entries[1].begin, 8u);
  EXPECT_EQ(f.entries[1].end, 9u);
  EXPECT_THAT(f.metadata, ElementsAre(Pair("by", "x")));
}

TEST(Safetensors, ReasonsOfRefusal) {
  EXPECT_THAT([] { parse("bad_overlap"); }, ThrowsMessage<FormatError>(HasSubstr("model: a and b share bytes")));
  EXPECT_THAT([] { parse("bad_past_end"); }, ThrowsMessage<FormatError>(HasSubstr("a takes bytes 0 to 8 of the 4")));
  EXPECT_THAT([] { parse("bad_length"); },
              ThrowsMessage<FormatError>(
                  HasSubstr("model is no safetensors file: it does not begin with the length of a header")));
  EXPECT_THAT([] { parse("bad_type"); }, ThrowsMessage<FormatError>(HasSubstr("unknown type \"F33\"")));
  EXPECT_THAT([] { parse("bad_shape"); }, ThrowsMessage<FormatError>(HasSubstr("shape [3] and type F32 has 8 bytes")));
  EXPECT_THAT([] { parse("bad_twice"); }, ThrowsMessage<FormatError>(HasSubstr("\"a\" stands twice")));
  EXPECT_THAT([] { parse("bad_nested"); }, ThrowsMessage<FormatError>(HasSubstr("nested too deeply")));
}

TEST(Safetensors, WrittenHeadersAreAlignedAndRead) {
  const std::vector<io::SafetensorsEntry> entries{{"x \"quoted\"", dtypes::bfloat16, {2, 3}, 0, 0},
                                                  {"y", dtypes::fp8e5m2, {}, 0, 0}};
  std::string h = io::safetensors_header(entries, {{"k", "v"}});
  EXPECT_EQ(h.size() % 8, 0u);
  const io::Safetensors f =
      io::parse_safetensors({reinterpret_cast<const uint8_t*>(h.data()), h.size()}, h.size() + 13, "x");
  EXPECT_EQ(f.entries[0].name, entries[0].name);
  EXPECT_EQ(f.entries[1].begin, 12u);
  EXPECT_EQ(f.data_start, h.size());
  EXPECT_THROW(io::safetensors_header({entries[0], entries[0]}), ValueError);
  EXPECT_THROW(io::safetensors_header({{"__metadata__", dtypes::uint8, {}, 0, 0}}), ValueError);
  EXPECT_THROW(io::safetensors_header({{"a", dtypes::weakint, {}, 0, 0}}), DTypeError);
}

TEST(Safetensors, ManyNamesTakeLinearTimeAndKeepTheirOrder) {
  std::vector<io::SafetensorsEntry> entries;
  for (int i = 0; i < 200000; i++) entries.push_back({str("n", (i * 7919L) % 200000), dtypes::uint8, {1}, 0, 0});
  const auto start = std::chrono::steady_clock::now();
  const std::string header = io::safetensors_header(entries, {{"z", "1"}, {"a", "2"}});
  std::vector<uint8_t> file(header.begin(), header.end());
  file.resize(file.size() + entries.size());
  const io::Safetensors f = io::parse_safetensors(file, file.size(), "x");
  io::SafetensorsIndex index;
  for (const io::SafetensorsEntry& e : entries) index.files.emplace_back(e.name, "x.safetensors");
  const io::SafetensorsIndex read = io::parse_safetensors_index(io::safetensors_index(index), "x");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << "each name with all others: hours";
  ASSERT_EQ(f.entries.size(), entries.size());
  for (size_t i = 0; i < entries.size(); i++) ASSERT_EQ(f.entries[i].name, entries[i].name);
  EXPECT_THAT(f.metadata, ElementsAre(Pair("z", "1"), Pair("a", "2")));
  EXPECT_EQ(read.files, index.files);
}

TEST(Safetensors, ModelsComeBack) {
  const TempDir dir;
  const std::string path = dir / "model.safetensors";
  const nn::BatchNorm from(3), to(3);
  from.running_mean.assign(Tensor({1.f, 2.f, 3.f})).realize();
  nn::StateDict state = nn::get_state_dict(from);
  state.emplace_back("half", Tensor({{1.f, -2.f}}).half());
  state.emplace_back("flag", Tensor({true}));  // the next tensor starts at an odd offset
  state.emplace_back("double", Tensor({0.1, 0.2}).to_double());
  state.emplace_back("none", Tensor::zeros(0, 2));
  nn::safe_save(state, path, {{"by", "test"}});
  const nn::StateDict loaded = nn::safe_load(path);
  ASSERT_EQ(loaded.size(), state.size());
  for (size_t i = 0; i < state.size(); i++) {
    EXPECT_EQ(loaded[i].first, state[i].first);
    EXPECT_EQ(loaded[i].second.dtype(), state[i].second.dtype());
    EXPECT_EQ(loaded[i].second.shape(), state[i].second.shape());
    EXPECT_EQ(loaded[i].second.to_vector<double>(), state[i].second.to_vector<double>());
  }
  EXPECT_THAT(nn::safe_metadata(path), ElementsAre(Pair("by", "test")));
  nn::load_state_dict(to, loaded, {.strict = false});
  EXPECT_EQ(to.running_mean.to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST(Safetensors, LoadedTensorsOutliveTheFileAndDoNotChangeIt) {
  const TempDir dir;
  const std::string path = dir / "a.safetensors";
  nn::safe_save({{"a", Tensor({1.f, 2.f})}}, path);
  nn::StateDict first = nn::safe_load(path);
  first[0].second.assign(Tensor({5.f, 6.f})).realize();
  EXPECT_EQ(nn::safe_load(path).at("a").to_vector<float>(), (std::vector<float>{1, 2}));
  nn::safe_save({{"a", nn::safe_load(path).at("a") + 1}}, path);  // over the file that is being read
  EXPECT_EQ(nn::safe_load(path).at("a").to_vector<float>(), (std::vector<float>{2, 3}));
  EXPECT_EQ(first.at("a").to_vector<float>(), (std::vector<float>{5, 6}));
}

TEST(Safetensors, Errors) {
  const TempDir dir;
  EXPECT_THROW(nn::safe_load(dir / "none"), FileError);
  EXPECT_THROW(nn::safe_load(dir / ""), FileError);
  EXPECT_THROW(nn::safe_save({{"a", Tensor(1)}}, dir / "x"), DTypeError);
  EXPECT_THROW(nn::safe_save({{"a", Tensor({1.f})}}, dir / "no/x"), FileError);
  std::ofstream(dir / "empty").close();
  EXPECT_THROW(nn::safe_load(dir / "empty"), FormatError);
}

}  // namespace
}  // namespace tg
