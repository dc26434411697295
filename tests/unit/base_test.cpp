/// \file Small parts of base: integer arithmetic, hashes, text for people, errors, paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <vector>

#include "temp_dir.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/base/math.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/text.h"

namespace tg {
namespace {

using ::testing::HasSubstr;

TEST(Math, FloorDivisionByDefinition) {
  for (int64_t a = -30; a <= 30; a++) {
    for (int64_t b = -7; b <= 7; b++) {
      if (b == 0) continue;
      const int64_t q = floordiv(a, b), r = floormod(a, b);
      EXPECT_EQ(q * b + r, a);
      EXPECT_TRUE(r == 0 || ((r < 0) == (b < 0) && std::abs(r) < std::abs(b))) << a << " " << b;
      EXPECT_EQ(ceildiv(a, b), -floordiv(-a, b)) << a << " " << b;
      EXPECT_TRUE(floordiv(int128{a}, int128{b}) == q && floormod(int128{a}, int128{b}) == r);
    }
  }
  EXPECT_EQ(floordiv(std::numeric_limits<int64_t>::min(), int64_t{2}), std::numeric_limits<int64_t>::min() / 2);
  EXPECT_EQ(round_up(int64_t{17}, int64_t{8}), 24);
  EXPECT_EQ(round_up(int64_t{16}, int64_t{8}), 16);
}

TEST(Math, ProductsCheckOverflow) {
  EXPECT_EQ(prod(std::vector<int64_t>{2, 3, 4}), 24);
  EXPECT_EQ(prod(std::vector<int64_t>{}), 1);
  const int64_t big = int64_t{1} << 40;
  EXPECT_EQ(checked_prod(std::vector<int64_t>{big, big}), std::nullopt);
  EXPECT_EQ(checked_prod(std::vector<int64_t>{big, big, 0}), 0);
  EXPECT_EQ(checked_prod(std::vector<int64_t>{big, 1 << 20}), int64_t{1} << 60);
  EXPECT_EQ(checked_mul<int64_t>(big, big), std::nullopt);
  EXPECT_EQ(checked_add<int64_t>(std::numeric_limits<int64_t>::max(), 1), std::nullopt);
  EXPECT_EQ(checked_add<int64_t>(1, 2), 3);
  EXPECT_TRUE(checked_mul<int128>(big, big) == int128{1} << 80);
}

TEST(Math, PrintsInt128) {
  EXPECT_EQ(to_string(int128{0}), "0");
  EXPECT_EQ(to_string(int128{-105}), "-105");
  EXPECT_EQ(to_string(int128{1} << 126), "85070591730234615865843651857942052864");
  EXPECT_EQ(to_string(-(int128{1} << 126) - (int128{1} << 126)), "-170141183460469231731687303715884105728");
}

TEST(Hash, DependsOnOrderLengthAndEveryBit) {
  auto of = [](std::initializer_list<std::string_view> parts) {
    Hash128 h;
    for (std::string_view p : parts) h.add(p);
    return h;
  };
  EXPECT_EQ(of({"ab", "c"}), of({"ab", "c"}));
  EXPECT_NE(of({"ab", "c"}), of({"a", "bc"}));
  EXPECT_NE(of({"ab", "c"}), of({"c", "ab"}));
  EXPECT_NE(of({""}), of({}));
  EXPECT_NE(of({std::string_view("\0", 1)}), of({std::string_view("\0\0", 2)}));
  std::set<Hash128> seen;
  for (uint64_t i = 0; i < 100000; i++) {
    Hash128 h;
    h.add(i);
    seen.insert(h);
  }
  EXPECT_EQ(seen.size(), 100000u);
  EXPECT_EQ(Hash128(0x0123456789abcdefull, 0xfedcba9876543210ull).to_hex(), "fedcba98765432100123456789abcdef");
}

TEST(Text, Colours) {
  Context on{{"NO_COLOR", 0}};
  const std::string red = colored("hot", Color::kRed);
  EXPECT_EQ(red, "\x1b[31mhot\x1b[0m");
  EXPECT_EQ(colored("hot", Color::kRed, true), "\x1b[91mhot\x1b[0m");
  EXPECT_EQ(without_color("a " + red + "!"), "a hot!");
  EXPECT_EQ(printed_width(red + "µs"), 5u);
  EXPECT_EQ(pad_left(red, 5), "  " + red);
  EXPECT_EQ(pad_right(red, 5), red + "  ");
  EXPECT_EQ(pad_right("long", 2), "long");
  Context off{{"NO_COLOR", 1}};
  EXPECT_EQ(colored("hot", Color::kRed), "hot");
}

TEST(Text, Units) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1500), "1.50 KB");
  EXPECT_EQ(human_bytes(2e9), "2.00 GB");
  EXPECT_EQ(human_bytes(999.6e3), "1.00 MB");
  EXPECT_EQ(human_seconds(85e-9), "85.0 ns");
  EXPECT_EQ(human_seconds(1.25e-6), "1.25 us");
  EXPECT_EQ(human_seconds(0.25), "250 ms");
  EXPECT_EQ(human_seconds(5000), "5000 s");
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(3.4e6), "3.40 M");
}

TEST(Error, MessageIsBuiltOnlyOnFailure) {
  int built = 0;
  auto count = [&] { return ++built; };
  TG_CHECK(ValueError, true, count());
  EXPECT_EQ(built, 0);
  EXPECT_THROW(TG_CHECK(ValueError, false, "[op] got ", count()), ValueError);
  EXPECT_EQ(built, 1);
}

TEST(Error, InternalErrorSaysWhere) {
  try {
    internal_error("/somewhere/tinygrad/tinygrad/uop/uop.cpp", 12, "a == b", "a is 3");
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_STREQ(e.what(), "internal error at tinygrad/uop/uop.cpp:12: a == b does not hold: a is 3");
  }
  try {
    TG_ASSERT(1 + 1 == 3);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_THAT(e.what(), HasSubstr("1 + 1 == 3 does not hold"));
    EXPECT_THAT(e.what(), HasSubstr("base_test.cpp:"));
  }
}

TEST(Error, AllUserErrorsAreErrors) {
  EXPECT_THROW(throw ShapeError("s"), Error);
  EXPECT_THROW(throw DTypeError("s"), Error);
  EXPECT_THROW(throw FormatError("s"), Error);
  EXPECT_THROW(throw OutOfMemoryError("s"), Error);
  EXPECT_FALSE((std::is_base_of_v<Error, InternalError>));
}

TEST(Paths, CacheDirFollowsXdg) {
  const char* before = getenv("XDG_CACHE_HOME");
  const std::string saved = before ? before : "";
  setenv("XDG_CACHE_HOME", "/some/where", 1);
  EXPECT_EQ(cache_dir(), "/some/where/tinygrad_cpp");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_THAT(cache_dir(), HasSubstr("tinygrad_cpp"));
  if (before) setenv("XDG_CACHE_HOME", saved.c_str(), 1);
}

TEST(Paths, SourceDataIsThere) {
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(source_data_dir()) / "mnist"));
}

TEST(Paths, PluginCandidates) {
  EXPECT_EQ(plugin_candidates("no_such_plugin"), std::vector<std::string>{"libno_such_plugin.so"})
      << "only the name the loader looks up";
  EXPECT_EQ(plugin_candidates("p", "/a/file.so"), std::vector<std::string>{"/a/file.so"});
  testing::TempDir dir;
  EXPECT_EQ(plugin_candidates("p", dir / ""), std::vector<std::string>{dir / "libp.so"});
}

TEST(Paths, Version) { EXPECT_EQ(std::count(version().begin(), version().end(), '.'), 2); }

}  // namespace
}  // namespace tg
