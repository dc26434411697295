/// \file Methods the table of recorded cases cannot hold: creation, storage, devices, random words, files, and Winograd
/// against the direct convolution.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <fstream>
#include <set>

#include "temp_dir.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/io/fetch.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

using V = std::vector<float>;
using ::testing::ElementsAre;

void expect_near(const Tensor& got, const Tensor& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  V g = got.to_vector<float>(), w = want.to_vector<float>();
  for (size_t i = 0; i < g.size(); i++)
    ASSERT_NEAR(g[i], w[i], tolerance * (1 + std::abs(w[i]))) << what << " element " << i;
}

TEST(Api, LikeAnother) {
  Tensor h = Tensor::full({2, 3}, 1.5, {.dtype = dtypes::float16}), i({1, 2});
  EXPECT_EQ(h.zeros_like().dtype(), dtypes::float16);
  EXPECT_THAT(h.ones_like(dtypes::int32).to_vector<int>(), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_EQ(h.empty_like().shape(), (Shape{2, 3}));
  EXPECT_EQ(h.empty_like({.dtype = dtypes::int8}).dtype(), dtypes::int8);
  EXPECT_EQ(Tensor::invalids({4}, {.dtype = dtypes::uint8}).nbytes(), 4);
  EXPECT_EQ(h.element_size(), 2);
  EXPECT_TRUE(h.is_floating_point() && !i.is_floating_point());
  EXPECT_THAT(i.const_like(7).to_vector<int>(), ElementsAre(7, 7));
  EXPECT_EQ(i.full_like(2.5, {.dtype = dtypes::float64}).dtype(), dtypes::float64);
  EXPECT_EQ(i.ufix(3).dtype(), dtypes::int32);
  EXPECT_EQ(h.ufix(3).dtype(), dtypes::float16);
  EXPECT_EQ(i.to_long().dtype(), dtypes::int64);
  EXPECT_EQ(i.to_short().dtype(), dtypes::int16);
  EXPECT_EQ(i.to_double().dtype(), dtypes::float64);
}

TEST(Api, Bits) {
  Tensor x({1, -2, 7});
  EXPECT_THAT(x.bitwise_not().to_vector<int>(), ElementsAre(-2, 1, -8));
  EXPECT_THAT(x.alu(Ops::MAX, {x.zeros_like()}).to_vector<int>(), ElementsAre(1, 0, 7));
  x <<= 2;
  EXPECT_THAT(x.to_vector<int>(), ElementsAre(4, -8, 28));
  x >>= 1;
  EXPECT_THAT(x.to_vector<int>(), ElementsAre(2, -4, 14));
  x |= 1;
  x &= 15;
  EXPECT_THAT(x.to_vector<int>(), ElementsAre(3, 13, 15));
  x ^= 2;
  x %= 5;
  EXPECT_THAT(x.to_vector<int>(), ElementsAre(1, 0, 3));
  EXPECT_THAT(Tensor({1.f, -1.f}).swish().to_vector<float>(),
              ElementsAre(::testing::FloatNear(0.731059f, 1e-5f), ::testing::FloatNear(-0.268941f, 1e-5f)));
}

TEST(Api, PowersWithLargeExponents) {
  const Tensor x({1.1f, -1.05f, 0.9f});
  for (double c : {-65.0, -66.0, -67.0, -64.0, 64.0, 65.0, 97.0}) {
    const V got = x.pow(c).to_vector<float>(), in = x.to_vector<float>();
    for (size_t i = 0; i < in.size(); i++) {
      const double want = std::pow(static_cast<double>(in[i]), c);
      EXPECT_NEAR(got[i], want, 1e-5 * std::abs(want)) << in[i] << " to the " << c;
    }
  }
}

/// Ops that methods do not make, but graphs of one's own may hold.
TEST(Api, GradientsOfSingleOps) {
  const Tensor x({1.f, -2.f, 3.f}), y({2.f, 4.f, -0.5f}), z({5.f, 6.f, 7.f});
  const Tensor q = x.alu(Ops::FDIV, {y});
  EXPECT_THAT(q.to_vector<float>(), ElementsAre(0.5, -0.5, -6));
  Tensors g = q.sum().gradient({x, y});
  EXPECT_THAT(g[0].to_vector<float>(), ElementsAre(0.5, 0.25, -2));
  EXPECT_THAT(g[1].to_vector<float>(), ElementsAre(-0.25, 0.125, -12));
  const Tensor whole = x.alu(Ops::FLOORDIV, {y});
  EXPECT_THAT(whole.to_vector<float>(), ElementsAre(0, -1, -6));
  EXPECT_THAT((whole * x).sum().gradient({x})[0].to_vector<float>(), ElementsAre(0, -1, -6));
  g = x.alu(Ops::MULACC, {y, z}).sum().gradient({x, y, z});
  EXPECT_THAT(g[0].to_vector<float>(), ElementsAre(2, 4, -0.5));
  EXPECT_THAT(g[1].to_vector<float>(), ElementsAre(1, -2, 3));
  EXPECT_THAT(g[2].to_vector<float>(), ElementsAre(1, 1, 1));
}

TEST(Api, ShapesThatVary) {
  Tensor x = Tensor::arange(8).reshape(8, 1);
  Tensor some = x.shrink({{0, Variable("n", 1, 8).bind(3)}, {0, 1}});
  EXPECT_EQ(some.max_shape(), (Shape{8, 1}));
  EXPECT_EQ(some.max_numel(), 8);
  EXPECT_EQ(x.size(0), 8);
  Tensor square = Tensor::ones(4, 4), k = square.tril(Variable("k", -3, 3).bind(1));
  EXPECT_EQ(k.sum().item<float>(), 13);
}

TEST(Api, BlobAndSequential) {
  alignas(64) float memory[4] = {1, 2, 3, 4};
  if (Tensor::zeros(1).device() == "CPU") {
    Tensor t = Tensor::from_blob(memory, {2, 2}, dtypes::float32);
    EXPECT_THAT((t + 1).to_vector<float>(), ElementsAre(2, 3, 4, 5));
  }
  Tensor y =
      Tensor({1.f, 2.f}).sequential({[](const Tensor& x) { return x * 3; }, [](const Tensor& x) { return x + 1; }});
  EXPECT_THAT(y.to_vector<float>(), ElementsAre(4, 7));
}

TEST(Api, DevicesAndMarks) {
  Tensor x({1.f, 2.f}, {.device = "CPU"});
  x.requires_grad_();
  (x * 3).sum().backward();
  Tensor c = x.clone();
  EXPECT_THAT(c.grad().to_vector<float>(), ElementsAre(3, 3));
  x.to_("INTERP");
  EXPECT_EQ(x.device(), "INTERP");
  EXPECT_EQ(x.grad().device(), "INTERP");
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 2));
  EXPECT_EQ(c.clone("INTERP").device(), "INTERP");
  Tensor statistic = Tensor::zeros(2);
  statistic.is_param_(false);
  EXPECT_FALSE(statistic.is_param());
  Tensor z({2.f, 3.f});
  Tensor g = (z.contiguous_backward() * z).sum().gradient({z})[0];
  EXPECT_THAT(g.to_vector<float>(), ElementsAre(4, 6));
}

TEST(Api, RandomWords) {
  auto words = [](uint32_t a, uint32_t b) { return Tensor::from(std::vector<uint32_t>{a, b}); };
  Tensor bits = Tensor::random_bits(words(11, 22), words(33, 44), 5);  // recorded from tinygrad
  EXPECT_THAT(bits.to_vector<uint32_t>(), ElementsAre(30312997u, 1831745279u, 4136144620u, 4078864043u, 2440811421u));
  EXPECT_EQ(Tensor::random_bits(words(1, 2), words(3, 4), 0).numel(), 0);
  Tensor fry = Tensor::from(std::vector<uint64_t>{5, 6, 7}).threefry(Tensor::from(std::vector<uint64_t>{1, 2, 3}));
  EXPECT_THAT(fry.to_vector<uint64_t>(), ElementsAre(2658481902456610144u, 8594984736180289358u, 4527902657714873468u));
}

TEST(Api, MoreRandomWordsThanACounterHas) {
  if (env::EAGER) GTEST_SKIP() << "computing each operation at once would store 64 GiB";
  Tensor t = Tensor::rand({int64_t{1} << 17, int64_t{1} << 17});
  EXPECT_EQ(t.numel(), int64_t{1} << 34);
  EXPECT_EQ(t.dtype(), dtypes::float32);
}

TEST(Api, RandomLike) {
  Tensor::manual_seed(7);
  Tensor lazy = Tensor::rand({6}, {}, /*contiguous=*/false);
  Tensor::manual_seed(7);
  EXPECT_EQ(lazy.to_vector<float>(), Tensor::rand(6).to_vector<float>());
  Tensor h = Tensor::zeros({300}, {.dtype = dtypes::float16});
  EXPECT_EQ(h.rand_like().dtype(), dtypes::float16);
  V u = h.rand_like({.dtype = dtypes::float32}).to_vector<float>(),
    n = h.randn_like({.dtype = dtypes::float32}).to_vector<float>();
  double mean = 0, square = 0;
  for (float v : u) ASSERT_TRUE(v >= 0 && v < 1);
  for (float v : n) {
    mean += v / 300;
    square += v * v / 300;
  }
  EXPECT_NEAR(mean, 0, 0.25);
  EXPECT_NEAR(square, 1, 0.4);
  std::vector<int> drawn = Tensor({0.0, 3.0, 0.0, 1.0}).multinomial(50, true).to_vector<int>();
  for (int i : drawn) EXPECT_TRUE(i == 1 || i == 3);
  std::vector<int> each = Tensor({0.1, 3.0, 0.2, 1.0}).multinomial(4).to_vector<int>();
  EXPECT_EQ(std::set<int>(each.begin(), each.end()).size(), 4u);
}

TEST(Api, Winograd) {
  Tensor::manual_seed(3);
  struct Case {
    Shape x, w;
    ConvOptions o;
  };
  for (const Case& c :
       {Case{{2, 3, 7, 6}, {4, 3, 3, 3}, {.padding = 1}},
        Case{{1, 4, 9, 5}, {6, 2, 3, 3}, {.groups = 2, .padding = {1, 0, 2, 1}}}, Case{{2, 2, 11}, {3, 2, 3}, {}},
        Case{{1, 1, 3, 3}, {2, 1, 3, 3}, {}}, Case{{1, 2, 5, 4, 6}, {2, 2, 3, 3, 3}, {.padding = 1}}}) {
    Tensor x = Tensor::randn(c.x).realize(), w = Tensor::randn(c.w).realize(),
           bias = Tensor::randn({c.w[0].value()}).realize();
    Tensor direct = x.conv2d(w, bias, c.o), seed = Tensor::randn(direct.shape()).realize();
    Tensors want = direct.gradient({x, w, bias}, seed);
    Context wino{{"WINO", 1}};
    Tensor fast = x.conv2d(w, bias, c.o);
    std::string what = str(c.x, " ", c.w);
    Tensors got = fast.gradient({x, w, bias}, seed);
    expect_near(fast, direct, 1e-4, what);
    for (size_t i = 0; i < 3; i++) expect_near(got[i], want[i], 2e-4, str(what, " gradient ", i));
  }
}

// ---- files and addresses ----

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
std::string digest(const std::string& s) {
  return sha256_hex(std::span(reinterpret_cast<const uint8_t*>(s.data()), s.size()));
}

TEST(Fetch, FilesAreTensors) {
  testing::TempDir dir;
  write(dir / "numbers", std::string("\x01\x00\x02\x00\x03\x00", 6));
  EXPECT_THAT(Tensor::from_file(dir / "numbers").to("CPU").to_vector<int>(), ElementsAre(1, 0, 2, 0, 3, 0));
  EXPECT_THAT(Tensor::from_file(dir / "numbers", {.dtype = dtypes::int16, .device = "CPU"}).to_vector<int>(),
              ElementsAre(1, 2, 3));
  EXPECT_THROW(Tensor::from_file(dir / "none"), FileError);
  EXPECT_EQ(Tensor::from_url(dir / "numbers").to("CPU").to_vector<int>().size(), 6u);
}

TEST(Fetch, CacheIsChecked) {
  testing::TempDir dir;
  const std::string url = "file://" + (dir / "source"), kept = dir / "kept";
  write(dir / "source", "first");
  EXPECT_EQ(io::fetch(url, {.name = kept}), kept);
  write(dir / "source", "second");
  auto content = [&] {
    std::ifstream f(kept, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(f), {});
  };
  io::fetch(url, {.name = kept});
  EXPECT_EQ(content(), "first") << "the cache answers";
  io::fetch(url, {.name = kept, .sha256 = digest("second")});
  EXPECT_EQ(content(), "second") << "what has another digest is fetched again";
  EXPECT_THROW(io::fetch(url, {.name = kept, .allow_caching = false, .sha256 = digest("third")}), FormatError);
  EXPECT_EQ(content(), "second") << "a wrong download never replaces a good file";
  write(dir / "source", "third");
  io::fetch(url, {.name = kept, .allow_caching = false});
  EXPECT_EQ(content(), "third");
  EXPECT_THROW(io::fetch("file://" + (dir / "none"), {.name = dir / "other"}), FileError);
  EXPECT_THROW(io::fetch("gopher://x"), ValueError);
  EXPECT_EQ(io::fetch("/a/path"), "/a/path");
}

TEST(Fetch, Unpacks) {
  testing::TempDir dir;
  gzFile z = gzopen((dir / "text.gz").c_str(), "wb");
  gzputs(z, "unpacked");
  gzclose(z);
  std::filesystem::path p = io::fetch("file://" + (dir / "text.gz"), {.name = dir / "text", .gunzip = true});
  std::ifstream f(p);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(f), {}), "unpacked");
  // A tar archive of one file, and one whose name leaves the folder.
  auto archive = [](const std::string& name) {
    std::string head(512, '\0');
    head.replace(0, name.size(), name);
    head.replace(100, 7, "0000644");
    head.replace(124, 11, "00000000003");
    head.replace(136, 11, "00000000000");
    head[156] = '0';
    head.replace(257, 8, std::string("ustar\00000", 8));
    head.replace(148, 8, "        ");
    unsigned sum = 0;
    for (unsigned char c : head) sum += c;
    char text[8];
    snprintf(text, sizeof text, "%06o", sum);
    head.replace(148, 7, text, 7);
    return head + std::string("abc") + std::string(509 + 1024, '\0');
  };
  write(dir / "good.tar", archive("in/file"));
  std::filesystem::path folder = io::fetch("file://" + (dir / "good.tar"), {.name = dir / "good", .extract = true});
  EXPECT_EQ(std::filesystem::file_size(folder / "in" / "file"), 3u);
  write(dir / "bad.tar", archive("../escaped"));
  EXPECT_THROW(io::fetch("file://" + (dir / "bad.tar"), {.name = dir / "bad", .extract = true}), FormatError);
  EXPECT_FALSE(std::filesystem::exists(dir / "escaped"));
}

}  // namespace
}  // namespace tg
