/// \file Files of other libraries: each class of attack on their readers is refused with its reason and place, nothing
/// is run, and limits hold before memory is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <fstream>

#include "temp_dir.h"
#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/npy.h"
#include "tinygrad/io/pickle.h"
#include "tinygrad/io/torch_file.h"
#include "tinygrad/io/zip.h"
#include "tinygrad/nn/extract.h"
#include "tinygrad/nn/npy_file.h"
#include "tinygrad/nn/state_file.h"
#include "tinygrad/nn/torch_load.h"

namespace tg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using Bytes = std::vector<uint8_t>;

Bytes corpus(const std::string& file) {
  return io::read_file(std::string(TG_TESTS_DIR) + "/fuzz/corpus/" + file, 1 << 20);
}
Bytes bytes_of(std::string_view s) { return {s.begin(), s.end()}; }

io::Pickle pickle(std::span<const uint8_t> in) {
  static constexpr io::PickleName kKnown[] = {{"collections", "OrderedDict"}, {"_codecs", "encode"}};
  return io::parse_pickle(in, kKnown, "x.pkl");
}

struct Refusal {
  const char* file;
  const char* reason;
};
void PrintTo(const Refusal& r, std::ostream* out) { *out << r.file; }

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithReasonAndPlace) {
  const std::string file = GetParam().file;
  const Bytes in = corpus(file);
  try {
    if (file.starts_with("zip/")) io::zip_entries(in, "x", 1 << 20);
    else if (file.starts_with("npy/")) io::parse_npy(in, "x");
    else if (file.starts_with("pickle/")) pickle(in);
    else io::parse_torch_file(in, "x");
    ADD_FAILURE() << file << " was accepted";
  } catch (const FormatError& e) {
    EXPECT_THAT(e.what(), HasSubstr(GetParam().reason));
    EXPECT_TRUE(std::string_view(e.what()).starts_with("x")) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, Refused,
    ::testing::Values(
        // lengths and counts that are not those of the file
        Refusal{"zip/bad_count", "byte 297: got 3 entries in a directory of 102 bytes"},
        Refusal{"zip/bad_directory_offset", "got a directory of 102 bytes at 2147483647"},
        Refusal{"zip/bad_local_offset", "got a.txt at byte 2147483632, outside of the archive"},
        Refusal{"zip/bad_size_huge", "past the end of the files' bytes"},
        Refusal{"zip/bad_zip64_missing", "got a.txt of 4294967295 bytes stored in 5"},
        Refusal{"zip/bad_name_length", "byte 223: got a record past the end of the directory"},
        Refusal{"npy/bad_length_2", "byte 8: got a header of 4294967295 bytes"},
        Refusal{"pickle/bad_text_length_64", "got an early end, expected 18446744073709551615 more bytes"},
        Refusal{"pickle/bad_frame", "got a frame of 18446744073709551615 bytes"},
        Refusal{"torch/bad_legacy_count_huge", "got 4611686018427387904 elements of storage 0"},
        Refusal{"torch/bad_short_storage", "byte 272: got 23 bytes of x/data/0, expected 24"},
        // products and sums that wrap
        Refusal{"npy/bad_overflow", "expected more than there can be"},
        Refusal{"npy/bad_wraps", "expected more than there can be"},
        Refusal{"torch/bad_stride_overflow", "got a tensor with more elements or axes than there can be"},
        // ranges outside of others, or shared
        Refusal{"zip/bad_overlap", "byte 40: got two entries that share bytes"},
        Refusal{"torch/bad_outside", "got a tensor outside of the 6 elements of its storage 0"},
        Refusal{"torch/bad_outside_by_stride", "got a tensor outside of the 6 elements"},
        Refusal{"torch/bad_negative_stride", "byte 145: got -3, expected a number of 0 or more"},
        // bombs
        Refusal{"zip/bad_bomb", "got deflated entries of more than 1048576 bytes together"},
        Refusal{"zip/bad_ratio", "got a of 268435456 bytes deflated to 12, more than deflate can do"},
        Refusal{"pickle/bad_nested", "got objects nested more than 200 deep"},
        Refusal{"pickle/bad_nested_tuples", "got objects nested more than 200 deep"},
        Refusal{"pickle/bad_memo_huge", "got the memo's entry 4294967295"},
        Refusal{"torch/bad_copies_set", "got more copies of objects than 33554432 bytes and 8 times the pickle's"},
        Refusal{"torch/bad_copies_size", "got more copies of objects than 33554432 bytes"},
        Refusal{"torch/bad_copies_dictionary", "got more copies of objects than 33554432 bytes"},
        Refusal{"torch/bad_copies_pairs", "got more copies of objects than 33554432 bytes"},
        Refusal{"torch/bad_copies_text", "got more copies of objects than 33554432 bytes"},
        Refusal{"pickle/bad_cycle", "got an object that contains itself"},
        // two readings of one file
        Refusal{"zip/bad_twice", "got two entries called a"},
        Refusal{"zip/bad_prefix", "expected one that ends at 307"},
        Refusal{"zip/bad_local_name", "byte 30: got another name in the local header of a.txt"},
        Refusal{"npy/bad_twice", "byte 27: got the key 'descr' twice"},
        Refusal{"torch/bad_two_sizes", "got storage 0 with another size or type than before"},
        // code in data
        Refusal{"pickle/bad_system", "byte 2: got the name posix.system, which is not among those"},
        Refusal{"pickle/bad_eval_stack_global", "got the name builtins.eval"},
        Refusal{"pickle/bad_close_name", "got the name collections.OrderedDict2"},
        Refusal{"pickle/bad_dotted_name", "got the name collections.OrderedDict.os"},
        Refusal{"pickle/bad_inst", "got opcode 105 ('i')"}, Refusal{"pickle/bad_obj", "got the name posix.system"},
        Refusal{"pickle/bad_ext", "got opcode 130"}, Refusal{"pickle/bad_protocol_0", "got opcode 108"},
        Refusal{"pickle/bad_build_on_a_list", "got a state for something that was not made by a call"},
        Refusal{"npy/bad_objects", "byte 20: got the type '|O', objects, which would have to be unpickled"},
        Refusal{"npy/bad_call", "byte 10: got a header that is no dictionary"},
        Refusal{"torch/bad_system", "byte 42: got the name posix.system"},
        Refusal{"torch/bad_from_type_of_itself", "got a tensor that is made by itself"},
        Refusal{"torch/bad_opaque", "got the name lib.Config, which is not among those"},
        Refusal{"torch/bad_opaque_root", "got the name lib.Net"},
        Refusal{"torch/bad_byteorder", "got byte order 'bigger', expected little or big"},
        Refusal{"torch/bad_bytes_in_big_endian", "got a tensor of float32 in a storage of bytes in a big-endian file"},
        Refusal{"torch/bad_codec", "got the codec rot13, expected latin1"},
        Refusal{"torch/bad_latin1", "got a text for latin1 with other characters"},
        Refusal{"torch/bad_quantized_tensor", "got a quantized tensor (torch._utils._rebuild_qtensor)"}),
    [](const auto& info) {
      std::string name = info.param.file;
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

TEST(Pickle, ReadsPlainData) {
  const Bytes in = corpus("pickle/good_plain");
  const io::Pickle p = pickle(in);
  EXPECT_EQ(p.size, in.size());
  const io::PickleNode& root = p[p.root];
  ASSERT_EQ(root.kind, io::PickleKind::kList);
  ASSERT_EQ(root.items.size(), 11u);
  EXPECT_EQ(p[root.items[0]].kind, io::PickleKind::kNone);
  EXPECT_EQ(p[root.items[1]].integer, 1);
  EXPECT_EQ(p[root.items[2]].integer, -1);
  EXPECT_EQ(p[root.items[4]].integer, 70000);
  EXPECT_EQ(p[root.items[5]].kind, io::PickleKind::kLongInt);
  EXPECT_EQ(p[root.items[6]].number, 1.5);
  EXPECT_EQ(p[root.items[7]].text, "x");
}

TEST(Pickle, SharedPartsAreOneObject) {
  const Bytes in = corpus("pickle/good_shared");
  const io::Pickle p = pickle(in);
  const std::vector<io::PickleId>& items = p[p.root].items;
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(items[0], items[2]);
}

TEST(Pickle, NumberOfObjectsIsBounded) {
  Bytes in = bytes_of("\x80\x02");
  in.insert(in.end(), io::kMaxPickleNodes + 1, ']');
  in.push_back('.');
  EXPECT_THAT([&] { pickle(in); }, ::testing::ThrowsMessage<FormatError>(HasSubstr("got more than 4194304 objects")));
}

TEST(Pickle, StackIsBounded) {
  Bytes in = bytes_of("\x80\x02N");
  in.insert(in.end(), io::kMaxPickleItems + 1, '2');
  in.push_back('.');
  EXPECT_THAT([&] { pickle(in); },
              ::testing::ThrowsMessage<FormatError>(HasSubstr("got a stack of more than 16777216")));
}

/// Writes lists that contain the one before twice: a short pickle with 2^n paths to its innermost list.
std::string doubled_lists(int n) {
  std::string out = "\x80\x02]q";
  out += '\0';
  for (int i = 0; i < n; i++) {
    out += "0](h";
    out += static_cast<char>(i);
    out += 'h';
    out += static_cast<char>(i);
    out += "eq";
    out += static_cast<char>(i + 1);
  }
  return out + ".";
}

std::filesystem::path torch_file(const TempDir& dir, const std::string& content) {
  io::ZipWriter zip;
  zip.add("x/data.pkl", {{reinterpret_cast<const uint8_t*>(content.data()), content.size()}});
  const std::filesystem::path path = dir / "x.pt";
  io::write_file_atomic(path, zip.finish());
  return path;
}

TEST(TorchLoad, SharedPartsDoNotMultiply) {
  const TempDir dir;
  const std::filesystem::path path = torch_file(dir, doubled_lists(100));
  const nn::TorchValue v = nn::torch_load_value(path);  // 101 objects
  EXPECT_EQ(v.size(), 2u);
  EXPECT_EQ(v[0].id(), v[1].id());
  EXPECT_THAT([&] { v.state_dict(); }, ::testing::ThrowsMessage<FormatError>(HasSubstr("or names of more than")));
}

TEST(TorchLoad, LongNamesDoNotMultiply) {
  const TempDir dir;
  std::string content("\x80\2}X", 4);  // {"x" * 60000: [(), (), ...]}
  const uint32_t length = 60000;
  content.append(reinterpret_cast<const char*>(&length), sizeof length).append(length, 'x');
  content += "](" + std::string(5000, ')') + "es.";
  const nn::TorchValue v = nn::torch_load_value(torch_file(dir, content));
  EXPECT_EQ(v.entry(0).second.size(), 5000u);
  EXPECT_THAT([&] { v.state_dict(); }, ::testing::ThrowsMessage<FormatError>(HasSubstr("or names of more than")));
}

TEST(TorchLoad, ObjectsOfOtherLibrariesAreSkippedByName) {
  const TempDir dir;
  const auto load = [&](const char* file, bool keep) {
    std::filesystem::copy_file(std::string(TG_TESTS_DIR) + "/fuzz/corpus/torch/" + file, dir / "x.pt",
                               std::filesystem::copy_options::overwrite_existing);
    return nn::torch_load_value(dir / "x.pt", {.keep_opaque = keep});
  };
  ::testing::internal::CaptureStderr();
  const nn::TorchValue v = load("bad_opaque", true);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tinygrad: [torch_load] " + dir / "x.pt" + ": left out objects of lib.Config\n");
  EXPECT_EQ(v.at("a").as_tensor().numel(), 6);
  EXPECT_EQ(v.at("b").kind(), io::TorchKind::kOpaque);
  EXPECT_EQ(v.at("b").as_text(), "lib.Config");
  EXPECT_EQ(v.state_dict().size(), 1u);
  EXPECT_THROW(load("bad_opaque", false), FormatError);
  EXPECT_THAT(
      [&] { load("bad_opaque_root", true); },
      ::testing::ThrowsMessage<FormatError>(HasSubstr("got an object of lib.Net as a whole, expected tensors")));
}

TEST(TorchLoad, BigEndianStoragesAreTurned) {
  const TempDir dir;
  Bytes in = corpus("torch/good_big_endian");
  std::string text(in.begin(), in.end()), raw;
  for (const float f : {0.f, 1.f, 2.5f, -3.f, 4.f, 5e-3f}) {
    const uint32_t bits = __builtin_bswap32(std::bit_cast<uint32_t>(f));
    raw.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  }
  text.replace(text.rfind(std::string(24, '\0')), 24, raw);
  std::ofstream(dir / "x.pt", std::ios::binary) << text;
  EXPECT_EQ(nn::torch_load_value(dir / "x.pt").as_tensor().to_vector<float>(),
            (std::vector<float>{0.f, 1.f, 2.5f, -3.f, 4.f, 5e-3f}));
}

TEST(TorchLoad, TensorsOfBothFormats) {
  const TempDir dir;
  for (const char* file : {"good_zip", "good_legacy", "good_permuted"}) {
    Bytes in = corpus(std::string("torch/") + file);
    const std::vector<float> values{0, 1, 2, 3, 4, 5};
    const std::string raw(reinterpret_cast<const char*>(values.data()), 24), zeros(24, '\0');
    std::string text(in.begin(), in.end());
    text.replace(text.rfind(zeros), 24, raw);
    const std::filesystem::path path = dir / file;
    std::ofstream(path, std::ios::binary) << text;
    const nn::TorchValue v = nn::torch_load_value(path);
    const bool permuted = file == std::string("good_permuted");
    EXPECT_EQ(v.as_tensor().shape(), permuted ? (Shape{3, 2}) : (Shape{2, 3})) << file;
    EXPECT_EQ(v.as_tensor().to_vector<float>(), permuted ? (std::vector<float>{0, 3, 1, 4, 2, 5}) : values) << file;
    v.as_tensor().assign(v.as_tensor().full_like(0)).realize();
    EXPECT_EQ(nn::torch_load(path).size(), 1u);
    EXPECT_EQ(nn::torch_load(path)[0].second.sum().item<float>(), 15) << "the file was written to";
  }
  std::filesystem::remove(dir / "good_zip");
  EXPECT_THROW(nn::torch_load(dir / "good_zip"), FileError);
}

TEST(TorchLoad, AccessorsCheckKinds) {
  const TempDir dir;
  const std::string content("\x80\x02}X\x01\0\0\0aK\x05s.", 13);
  const nn::TorchValue v = nn::torch_load_value(torch_file(dir, content));
  EXPECT_EQ(v.at("a").as_int(), 5);
  EXPECT_EQ(v.at("a").as_float(), 5.0);
  EXPECT_FALSE(v.find("b"));
  EXPECT_THROW(v.at("b"), IndexError);
  EXPECT_THROW(v.as_tensor(), ValueError);
  EXPECT_THROW(v.at("a").as_text(), ValueError);
  EXPECT_THROW(v.at("a").size(), ValueError);
  EXPECT_THROW(v[0], ValueError);
  EXPECT_THROW(v.entry(1), IndexError);
}

TEST(Zip, WrittenArchivesAreReadAndAligned) {
  const std::string a = "alpha", b(100, 'b');
  const auto span = [](const std::string& s) {
    return std::span(reinterpret_cast<const uint8_t*>(s.data()), s.size());
  };
  io::ZipWriter zip;
  zip.add("a", {span(a), span(b)});
  zip.add("empty", {});
  zip.add("b", {span(b)});
  EXPECT_THROW(zip.add("a", {}), ValueError);
  EXPECT_THROW(zip.add("", {}), ValueError);
  EXPECT_THROW(zip.add("\xff", {}), ValueError);
  Bytes out;
  for (const auto part : zip.finish()) out.insert(out.end(), part.begin(), part.end());
  const std::vector<io::ZipEntry> e = io::zip_entries(out, "x");
  ASSERT_EQ(e.size(), 3u);
  EXPECT_EQ(io::zip_read(out, e[0], "x"), bytes_of(a + b));
  EXPECT_EQ(io::zip_read(out, e[1], "x"), Bytes());
  for (const io::ZipEntry& entry : e) EXPECT_EQ(entry.offset % 64, 0u);
  out[e[0].offset] ^= 1;
  EXPECT_THROW(io::zip_read(out, e[0], "x"), FormatError);
  EXPECT_NO_THROW(io::zip_read(out, e[0], "x", /*check_crc=*/false));
}

TEST(Zip, DamagedContentIsRefused) {
  Bytes in = corpus("zip/good_deflated");
  const io::ZipEntry e = io::zip_entries(in, "x").at(0);
  EXPECT_EQ(io::zip_read(in, e, "x").size(), 300u);
  io::ZipEntry longer = e, shorter = e;
  longer.size++;
  shorter.size--;
  EXPECT_THROW(io::zip_read(in, longer, "x"), FormatError);
  EXPECT_THROW(io::zip_read(in, shorter, "x"), FormatError);
  in[e.offset + 3] ^= 0x55;
  EXPECT_THROW(io::zip_read(in, e, "x"), FormatError);
}

TEST(Npy, SavedArraysComeBack) {
  const TempDir dir;
  const Tensor t = Tensor::arange(24).reshape(2, 3, 4).cast(dtypes::int16).permute({2, 0, 1});
  nn::npy_save(t, dir / "x.npy");
  const Tensor back = nn::npy_load(dir / "x.npy");
  EXPECT_EQ(back.shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(back.dtype(), dtypes::int16);
  EXPECT_EQ(back.to_vector<int>(), t.to_vector<int>());
  nn::npz_save({{"a", t}, {"none", Tensor::zeros(0, 3)}, {"one", Tensor({2.5f}).reshape(Shape{})}}, dir / "x.npz");
  const nn::StateDict all = nn::npz_load(dir / "x.npz");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all.at("a").to_vector<int>(), t.to_vector<int>());
  EXPECT_EQ(all.at("none").shape(), (Shape{0, 3}));
  EXPECT_EQ(all.at("one").item<float>(), 2.5f);
  EXPECT_THROW(nn::npy_save(t.bfloat16(), dir / "y.npy"), DTypeError);
  EXPECT_THROW(nn::npz_save({{"a", t}, {"a", t}}, dir / "y.npz"), ValueError);
  EXPECT_THROW(nn::npy_load(dir / "none.npy"), FileError);
}

TEST(Archives, TensorIsReadAsAFile) {
  nn::TensorIO f(Tensor::from_bytes(std::as_bytes(std::span("Hello", 5)), dtypes::uint8, {int64_t{5}}));
  Bytes out(3);
  EXPECT_EQ(f.read(out), 3u);
  EXPECT_EQ(out, bytes_of("Hel"));
  EXPECT_EQ(f.read(out), 2u);
  EXPECT_EQ(f.read(out), 0u);
  EXPECT_EQ(f.seek(-1, nn::TensorIO::From::kEnd), 4u);
  EXPECT_EQ(f.seek(INT64_MIN, nn::TensorIO::From::kHere), 0u);
  EXPECT_EQ(f.seek(INT64_MAX), 5u);
  EXPECT_THROW(nn::TensorIO(Tensor({1.f})), ValueError);
}

TEST(Archives, TarIsPartsOfItsBytes) {
  const std::string dir = std::string(TG_TESTS_DIR) + "/fuzz/corpus/";
  const nn::StateDict files = nn::tar_extract(dir + "tar/good_ustar");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_THAT(files.at("a.txt").to_vector<int>(), ElementsAre('a', 'l', 'p', 'h', 'a'));
  EXPECT_EQ(nn::zip_extract(dir + "zip/good_deflated").at("a").numel(), 300);
  EXPECT_THROW(nn::zip_extract(dir + "zip/good_deflated", 299), FormatError);
  EXPECT_EQ(nn::gz_extract(dir + "gzip/good_text").numel(), 300);
  EXPECT_THROW(nn::gz_extract(dir + "gzip/good_text", 299), FormatError);
}

TEST(StridedView, EveryLayoutOfARow) {
  std::vector<int> values(60);
  for (int i = 0; i < 60; i++) values[static_cast<size_t>(i)] = i;
  const Tensor row(values);
  const nn::StridedLayout layouts[] = {{0, {60}, {1}},
                                       {7, {}, {}},
                                       {0, {3, 20}, {20, 1}},
                                       {0, {20, 3}, {1, 20}},
                                       {5, {2, 3}, {20, 1}},
                                       {1, {3, 10}, {20, 2}},
                                       {4, {3, 5, 2}, {0, 2, 1}},
                                       {59, {1, 1}, {9, 5}},
                                       {0, {10, 4}, {1, 1}},
                                       {3, {4, 3}, {14, 5}},
                                       {2, {2, 2, 2}, {29, 7, 3}},
                                       {12, {3, 4}, {16, 1}},
                                       {0, {4, 0}, {3, 1}},
                                       {44, {2, 2, 3}, {8, 5, 1}}};
  for (const nn::StridedLayout& layout : layouts) {
    std::vector<int> expected;
    int64_t count = 1;
    for (const int64_t n : layout.shape) count *= n;
    for (int64_t i = 0; i < count; i++) {
      int64_t at = static_cast<int64_t>(layout.offset), rest = i;
      for (size_t a = layout.shape.size(); a-- > 0; rest /= layout.shape[a])
        at += rest % layout.shape[a] * layout.strides[a];
      expected.push_back(static_cast<int>(at));
    }
    const Tensor t = nn::strided_view(row, layout);
    EXPECT_EQ(t.shape(), Shape{std::span<const int64_t>(layout.shape)});
    EXPECT_EQ(t.to_vector<int>(), expected) << t.shape() << " from " << layout.offset;
  }
}

TEST(SafetensorsShards, IndexDecidesWhatIsLoaded) {
  const TempDir dir;
  nn::StateDict model;
  for (int i = 0; i < 5; i++) model.emplace_back("w" + std::to_string(i), Tensor::full({10}, float(i)));
  nn::safe_save_sharded(model, dir / "", {.max_bytes = 80});
  EXPECT_EQ(nn::safe_load(dir / "").size(), 5u);
  EXPECT_EQ(nn::safe_load(dir / "model.safetensors.index.json").at("w4").to_vector<float>(), std::vector<float>(10, 4));
  std::ofstream(dir / "model.safetensors.index.json")
      << R"({"weight_map": {"w0": "model-00001-of-00003.safetensors", "w9": "model-00001-of-00003.safetensors"}})";
  EXPECT_THAT([&] { nn::safe_load(dir / ""); },
              ::testing::ThrowsMessage<FormatError>(HasSubstr("model-00001-of-00003.safetensors has no w9")));
}

TEST(WriteFile, RightsAreThoseOfTheUmaskOrOfTheFileBefore) {
  const TempDir dir;
  const Bytes content = bytes_of("abc");
  const std::span<const uint8_t> part(content);
  const auto mode = [&](const char* name) {
    struct stat info{};
    return ::stat((dir / name).c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  };
  const mode_t before = ::umask(077);
  io::write_file_atomic(dir / "a", content);
  io::write_file_durable(dir / "b", std::span(&part, 1));
  ::umask(002);
  io::write_file_atomic(dir / "c", content);
  io::write_file_durable(dir / "d", std::span(&part, 1));
  ::chmod((dir / "c").c_str(), 0640);
  ::chmod((dir / "d").c_str(), 0600);
  const Bytes other = bytes_of("other");
  io::write_file_atomic(dir / "c", other);
  io::write_file_durable(dir / "d", std::span(&part, 1));
  ::umask(before);
  EXPECT_EQ(mode("a"), 0600u);
  EXPECT_EQ(mode("b"), 0600u);
  EXPECT_EQ(mode("c"), 0640u);
  EXPECT_EQ(mode("d"), 0600u);
  EXPECT_EQ(io::read_file(dir / "c", 10), other);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / ""), {}), 4);
}

TEST(WriteFileDurable, LeavesNothingElse) {
  const TempDir dir;
  const Bytes content = bytes_of("abc");
  const std::span<const uint8_t> part(content);
  io::write_file_durable(dir / "x", std::span(&part, 1));
  io::write_file_durable(dir / "x", std::span(&part, 1));
  EXPECT_EQ(io::read_file(dir / "x", 10), content);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / ""), {}), 1);
  EXPECT_THROW(io::write_file_durable(dir / "no/x", std::span(&part, 1)), FileError);
}

}  // namespace
}  // namespace tg
