/// \file GGUF: what is written is read, typed access, and corrupt files are refused with offset, field and reason.
#include "tinygrad/io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>

#include "temp_dir.h"
#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gguf_writer.h"

namespace tg::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using ::testing::ThrowsMessage;

std::vector<uint8_t> corpus(const std::string& file) {
  return read_file(std::string(TG_TESTS_DIR) + "/fuzz/corpus/gguf/" + file, 1 << 20);
}

TEST(Gguf, EveryTypeOfValue) {
  const std::vector<uint8_t> b = corpus("good_values");
  const Gguf g = parse_gguf(b, "model");
  const GgufMetadata& m = g.metadata;
  EXPECT_EQ(g.version, 3u);
  EXPECT_EQ(m.size(), 15u);
  for (size_t i = 0; i < 13; i++) EXPECT_EQ(m.entries()[i].value.index(), i) << "the index is the number of the type";
  EXPECT_EQ(m.integer("u8", 0, 255), 255);
  EXPECT_EQ(m.integer("i8", -128, 127), -1);
  EXPECT_EQ(m.integer("u16", 0, 65535), 65535);
  EXPECT_EQ(m.integer("i16", -1, -1), -1);
  EXPECT_EQ(m.integer("u32", 0, INT64_MAX), 4294967295);
  EXPECT_EQ(m.integer("i32", -1, 0), -1);
  EXPECT_EQ(m.integer("i64", -1, 0), -1);
  EXPECT_EQ(m.real("f32"), 0.5);
  EXPECT_EQ(m.real("f64"), 0.25);
  EXPECT_TRUE(m.flag("yes"));
  EXPECT_EQ(m.string("text"), "a");
  EXPECT_THAT(m.integers("list", -1, 2), ElementsAre(-1, 2));
  EXPECT_THAT(m.reals("list"), ElementsAre(-1, 2));
  EXPECT_THAT(m.strings("texts"), ElementsAre("a", ""));
  const auto& nested = std::get<GgufArray>(m.find("nested")->value);
  ASSERT_EQ(nested.arrays.size(), 2u);
  EXPECT_EQ(nested.arrays[0].numbers[0], 7);
  EXPECT_THAT(nested.arrays[1].strings, ElementsAre("x"));
}

TEST(Gguf, FallbacksAndSingleValues) {
  const std::vector<uint8_t> b = corpus("good_values");
  const Gguf g = parse_gguf(b, "model");
  const GgufMetadata& m = g.metadata;
  EXPECT_FALSE(m.contains("none"));
  EXPECT_EQ(m.integer_or("none", 7, 0, 1), 7);
  EXPECT_EQ(m.integer_or("u8", 7, 0, 255), 255);
  EXPECT_EQ(m.real_or("none", 0.5), 0.5);
  EXPECT_EQ(m.real_or("u8", 0.5), 255);
  EXPECT_TRUE(m.flag_or("none", true));
  EXPECT_EQ(m.string_or("none", "x"), "x");
  EXPECT_THAT(m.integers("u8", 0, 255), ElementsAre(255));
  EXPECT_THAT(m.reals("f32"), ElementsAre(0.5));
}

TEST(Gguf, TypedAccessSaysKeyAndOffset) {
  const std::vector<uint8_t> b = corpus("good_values");
  const Gguf g = parse_gguf(b, "model");
  const GgufMetadata& m = g.metadata;
  const auto refused = [](auto&& get, const char* why) {
    EXPECT_THAT(get, ThrowsMessage<FormatError>(HasSubstr(why)));
  };
  refused([&] { m.integer("none", 0, 1); }, "model: the metadata has no none");
  refused([&] { m.integer("u8", 0, 254); }, "model: byte 24 (u8): got 255, expected 0 to 254");
  refused([&] { m.integer("u64", 0, INT64_MAX); }, "(u64): got 18446744073709551615");
  refused([&] { m.integer("yes", 0, 1); }, "(yes): got a value of type bool, expected an integer");
  refused([&] { m.integer("f32", 0, 1); }, "type float32, expected an integer");
  refused([&] { m.integer_or("text", 0, 0, 1); }, "type string, expected an integer");
  refused([&] { m.flag("u8"); }, "type uint8, expected bool");
  refused([&] { m.string("list"); }, "type array, expected string");
  refused([&] { m.strings("list"); }, "an array of int32, expected one of strings");
  refused([&] { m.integers("texts", 0, 1); }, "an array of string, expected one of integers");
  refused([&] { m.integers("list", 0, 2); }, "got -1, expected 0 to 2");
  refused([&] { m.reals("nested"); }, "an array of array, expected one of numbers");
}

TEST(Gguf, TableOfTensors) {
  const std::vector<uint8_t> b = corpus("good_tensors");
  const Gguf g = parse_gguf(b, "model");
  ASSERT_EQ(g.tensors.size(), 3u);
  EXPECT_EQ(g.tensors[0].name, "w");
  EXPECT_THAT(g.tensors[0].shape, ElementsAre(2, 3)) << "the slowest axis first";
  EXPECT_EQ(g.tensors[0].offset, g.data_start);
  EXPECT_EQ(g.data_start % 32, 0u);
  EXPECT_EQ(g.tensors[1].type, GgmlType::kQ8_0);
  EXPECT_EQ(g.tensors[1].bytes, 34u);
  EXPECT_EQ(g.tensors[2].numel(), 0);
}

TEST(Gguf, ReasonsOfRefusal) {
  const std::pair<const char*, const char*> cases[] = {
      {"bad_magic", "byte 0 (magic)"},
      {"bad_version_1", "byte 4 (version): got 1"},
      {"bad_big_endian", "big endian"},
      {"bad_header_cut", "byte 16 (count of metadata): got 4 bytes, expected 8: the file is cut off"},
      {"bad_count_of_tensors", "byte 8 (count of tensors): got 9223372036854775808, expected at most 0"},
      {"bad_count_of_pairs", "byte 16 (count of metadata): got 18446744073709551615"},
      {"bad_key_length", "byte 24 (key of metadata): got a length of 18446744073709551615"},
      {"bad_key_control", "control characters"},
      {"bad_key_twice", "byte 38 (a): the key stands twice"},
      {"bad_value_type", "byte 33 (a): got the type 13 of values"},
      {"bad_bool", "byte 37 (a): got the bool 2"},
      {"bad_bool_in_list", "byte 50 (a): got the bool 255"},
      {"bad_string_length", "byte 37 (a): got a length of 4611686018427387904"},
      {"bad_list_length", "byte 41 (a): got 2305843009213693952, expected at most 2"},
      {"bad_list_of_strings", "byte 41 (a): got 1099511627776, expected at most 2"},
      {"bad_list_of_lists", "byte 41 (a): got 1125899906842624, expected at most 2"},
      {"bad_lists_too_deep", "arrays more than 4 deep"},
      {"bad_alignment_0", "byte 24 (general.alignment): got 0, expected a power of two up to 1048576"},
      {"bad_alignment_odd", "got 33"},
      {"bad_alignment_large", "got 2147483648"},
      {"bad_alignment_type", "another type than uint32"},
      {"bad_name_twice", "(w): the tensor stands twice"},
      {"bad_many_axes", "(w): got 9 axes, expected at most 8"},
      {"bad_axis_negative", "(w): got an axis of 1844674407370955161"},
      {"bad_shape_wraps", "(w): got a shape of more bytes than the 160 of the file"},
      {"bad_empty_shape_wraps", "(w): got an empty shape of axes too large to multiply"},
      {"bad_tensor_type", "(w): got the type 42 of tensors"},
      {"bad_tensor_type_withdrawn", "got the type 4 of tensors"},
      {"bad_row", "(w): got rows of 33 elements in Q8_0 blocks of 32"},
      {"bad_rows_shorter_than_blocks", "(w): got rows of 16 elements in Q8_0 blocks of 32"},
      {"bad_data_cut", "(w): takes 24 bytes from 96 on in a file of 119"},
      {"bad_no_data", "(data): the file ends before the data"},
      {"bad_offset", "(w): got the offset 18446744073709551584"},
      {"bad_offset_misaligned", "(w): got the offset 4, expected a multiple of 32"},
      {"bad_overlap", "(b): shares bytes with a"},
  };
  for (const auto& [file, why] : cases) {
    const std::vector<uint8_t> b = corpus(file);
    EXPECT_THAT([&] { parse_gguf(b, "model"); },
                ThrowsMessage<FormatError>(AllOf(HasSubstr("[gguf] model: byte "), HasSubstr(why))))
        << file;
  }
}

/// Whatever is missing at the end of a file, the message says that it is.
TEST(Gguf, FilesThatAreCutOffSaySo) {
  for (const char* name : {"good_values", "good_tensors"}) {
    const std::vector<uint8_t> b = corpus(name);
    const Gguf whole = parse_gguf(b, "model");
    uint64_t end = whole.tensors.empty() ? whole.data_start : 0;
    for (const GgufTensor& t : whole.tensors) end = std::max(end, t.offset + t.bytes);
    for (size_t n = 4; n < end; n++)
      EXPECT_THAT([&] { parse_gguf(std::span(b).first(n), "model"); },
                  ThrowsMessage<FormatError>(HasSubstr("the file is cut off")))
          << name << " " << n;
  }
}

/// A header may say that any number of things follow: what is allocated for them is bounded by the file.
TEST(Gguf, LargeCountsAreRefusedAtOnce) {
  std::vector<uint8_t> b = corpus("good_values");
  const auto start = std::chrono::steady_clock::now();
  for (size_t at = 8; at + 8 <= b.size(); at++) {
    std::vector<uint8_t> in = b;
    const uint64_t huge = uint64_t{1} << 40;
    std::memcpy(in.data() + at, &huge, sizeof huge);
    try {
      parse_gguf(in, "model");
    } catch (const FormatError&) {}
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Gguf, FilesComeBack) {
  const TempDir dir;
  const std::string path = dir / "model.gguf";
  GgufWriter w(64);
  w.add("name", "test").add("n", uint32_t{7}).add("x", 0.5f).add("yes", true).add("long", int64_t{-1} << 40);
  w.add("texts", std::vector<std::string>{"a", "größe"}).add("ids", std::vector<int32_t>{1, -2});
  w.add("flags", std::vector<bool>{true, false});
  w.add_tensor("f32", Tensor({{1.f, 2.f}, {3.f, 4.f}})).add_tensor("f16", Tensor({{1.f, -2.f}}).half());
  w.add_tensor("q", Tensor::arange(64).to_float().reshape({2, 32}), GgmlType::kQ8_0);
  w.add_tensor("bf16", Tensor({1.5f, 2.5f}), GgmlType::kBF16)
      .add_tensor("scalar", Tensor::scalar(2.5, dtypes::float64));
  w.save(path);
  const GgufFile f = GgufFile::open(path);
  EXPECT_EQ(f.metadata().integer("general.alignment", 0, 1 << 20), 64);
  EXPECT_EQ(f.metadata().string("name"), "test");
  EXPECT_EQ(f.metadata().integer("long", INT64_MIN, 0), int64_t{-1} << 40);
  EXPECT_THAT(f.metadata().strings("texts"), ElementsAre("a", "größe"));
  EXPECT_THAT(f.metadata().integers("ids", -2, 1), ElementsAre(1, -2));
  EXPECT_EQ(f.tensors().size(), 5u);
  for (const GgufTensor& t : f.tensors()) EXPECT_EQ(t.offset % 64, 0u) << t.name;
  EXPECT_EQ(f.tensor("f32").to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(f.tensor("f16").dtype(), dtypes::float16) << "widened";
  EXPECT_EQ(f.tensor("bf16").dtype(), dtypes::bfloat16) << "widened";
  EXPECT_EQ(f.tensor("scalar").item<double>(), 2.5);
  EXPECT_EQ(f.find("q")->bytes, 68u);
  EXPECT_EQ(f.packed(*f.find("q")).shape(), (Shape{2, 1, 34}));
  EXPECT_EQ(f.tensor("q").shape(), (Shape{2, 32}));
  EXPECT_NEAR(f.tensor("q").to_vector<float>()[63], 63, 0.1);
  EXPECT_THAT([&] { f.tensor("none"); }, ThrowsMessage<IndexError>(HasSubstr("no tensor none")));

  GgufWriter again;  // packed bytes as they are, and values of another file
  for (const GgufMetadata::Entry& e : f.metadata().entries())
    if (e.key != "general.alignment") again.add(e.key, e.value);
  const std::span<const uint8_t> q = f.bytes(*f.find("q"));
  again.add_packed("q", {2, 32}, GgmlType::kQ8_0, {q.begin(), q.end()}).save(dir / "again.gguf");
  const GgufFile second = GgufFile::open(dir / "again.gguf");
  EXPECT_EQ(second.tensor("q").to_vector<float>(), f.tensor("q").to_vector<float>());
  EXPECT_EQ(second.metadata().size() + 1, f.metadata().size());
}

TEST(Gguf, TensorsOutliveTheFile) {
  const TempDir dir;
  const std::string path = dir / "a.gguf";
  GgufWriter().add_tensor("a", Tensor({1.f, 2.f})).save(path);
  const Tensor a = GgufFile::open(path).tensor("a");
  GgufWriter().add_tensor("a", a + 1).save(path);
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(GgufFile::open(path).tensor("a").to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(Gguf, WriterRefuses) {
  GgufWriter w;
  const Tensor x({1.f, 2.f});
  EXPECT_THROW(GgufWriter(48), ValueError);
  EXPECT_THROW(w.add("", true), ValueError);
  EXPECT_THROW(w.add("general.alignment", uint32_t{64}), ValueError);
  EXPECT_THROW(w.add("a", true).add("a", true), ValueError);
  EXPECT_THROW(w.add_tensor("x", x).add_tensor("x", x), ValueError);
  EXPECT_THROW(w.add_tensor("y\n", x), ValueError);
  EXPECT_THROW(w.add_tensor("y", Tensor({true})), DTypeError);
  EXPECT_THROW(w.add_tensor("y", x, GgmlType::kQ8_0), ShapeError);
  EXPECT_THROW(w.add_tensor("y", Tensor::zeros(1, 256), GgmlType::kQ4_K), DTypeError);
  EXPECT_THROW(w.add_packed("y", {32}, GgmlType::kQ8_0, std::vector<uint8_t>(33)), ShapeError);
  const TempDir dir;
  EXPECT_THROW(w.save(dir / "no/x"), FileError);
  EXPECT_THROW(GgufFile::open(dir / "none"), FileError);
  std::ofstream(dir / "empty").close();
  EXPECT_THROW(GgufFile::open(dir / "empty"), FormatError);
}

void save_part(const std::string& path, uint16_t number, uint16_t count, const char* tensor) {
  GgufWriter w;
  w.add("split.no", number).add("split.count", count).add_tensor(tensor, Tensor({static_cast<float>(number)}));
  w.save(path);
}

TEST(Gguf, ModelsInSeveralFiles) {
  const TempDir dir;
  const std::string first = dir / "m-00001-of-00002.gguf", second = dir / "m-00002-of-00002.gguf";
  const auto refused = [&](const std::string& path, const char* why) {
    EXPECT_THAT([&] { GgufFile::open(path); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  save_part(first, 0, 2, "a");
  EXPECT_THROW(GgufFile::open(first), FileError);
  save_part(second, 1, 2, "b");
  const GgufFile f = GgufFile::open(first);
  EXPECT_EQ(f.tensor("a").item<float>(), 0);
  EXPECT_EQ(f.tensor("b").item<float>(), 1);
  EXPECT_EQ(f.find("b")->part, 1u);
  refused(second, "expected the first");
  save_part(second, 1, 2, "a");
  refused(first, "(a): another part has a tensor of this name");
  save_part(second, 0, 2, "b");
  refused(first, "(split.no): got 0, expected 1 to 1");
  save_part(second, 1, 3, "b");
  refused(first, "(split.count): got 3, expected 2 to 2");
  save_part(dir / "x.gguf", 0, 2, "a");
  refused(dir / "x.gguf", "a name that ends with -00001-of-00002.gguf");
}

}  // namespace
}  // namespace tg::io
