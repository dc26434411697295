/// \file Replays the fuzz corpus and seeded mutations of it: every parser takes any bytes, and says FormatError to bad
/// ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "fuzz/targets.h"
#include "tinygrad/io/file.h"

namespace tg::fuzz {
namespace {

namespace fs = std::filesystem;

struct Seed {
  std::string name;
  std::vector<uint8_t> bytes;
};

std::vector<Seed> seeds(std::string_view target) {
  std::vector<Seed> found;
  for (const auto& file : fs::directory_iterator(fs::path(TG_TESTS_DIR) / "fuzz" / "corpus" / target))
    found.push_back({file.path().filename().string(), io::read_file(file.path(), 1 << 20)});
  std::sort(found.begin(), found.end(), [](const Seed& a, const Seed& b) { return a.name < b.name; });
  return found;
}

/// Runs a target; false when it said FormatError. Anything else it throws fails the test that calls this.
bool accepts(const Target& target, Bytes in) {
  try {
    target.run(in);
    return true;
  } catch (const FormatError& e) {
    EXPECT_NE(std::string_view(e.what()).find("fuzz"), std::string_view::npos)
        << "the message does not name the file: " << e.what();
    return false;
  }
}

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, CorpusParsesOrIsRefusedAsNamed) {
  int good = 0, bad = 0;
  for (const Seed& seed : seeds(GetParam().name)) {
    if (seed.name.starts_with("any")) {  // whether it parses is up to the libraries of the build
      accepts(GetParam(), seed.bytes);
      continue;
    }
    const bool expected = seed.name.starts_with("good");
    EXPECT_EQ(accepts(GetParam(), seed.bytes), expected) << seed.name;
    (expected ? good : bad)++;
  }
  EXPECT_GE(good, 1);
  EXPECT_GE(bad, 5);
}

TEST_P(Fuzz, EveryPrefixIsHandled) {
  for (const Seed& seed : seeds(GetParam().name)) {
    const size_t step = std::max<size_t>(1, seed.bytes.size() / 256);
    for (size_t n = 0; n < seed.bytes.size(); n += step) {
      const std::vector<uint8_t> cut(seed.bytes.begin(),
                                     seed.bytes.begin() + n);  // a copy of that size: the sanitizer sees reads past it
      accepts(GetParam(), cut);
    }
  }
}

TEST_P(Fuzz, MutationsAreHandled) {
  std::mt19937 random(20240229);
  for (const Seed& seed : seeds(GetParam().name)) {
    if (seed.bytes.empty()) continue;
    for (int round = 0; round < 200; round++) {
      std::vector<uint8_t> in = seed.bytes;
      const auto below = [&](size_t n) { return random() % n; };
      for (size_t edits = 1 + below(4); edits > 0 && !in.empty(); edits--) {
        const size_t at =
            below(std::min<size_t>(in.size(), below(2) ? 600 : in.size()));  // half of the edits hit headers
        switch (below(5)) {
          case 0: in[at] = static_cast<uint8_t>(random()); break;
          case 1: in[at] ^= static_cast<uint8_t>(1 << below(8)); break;
          case 2: in[at] = below(2) ? 0xff : 0; break;
          case 3: in.erase(in.begin() + at, in.begin() + std::min(in.size(), at + 1 + below(16))); break;
          case 4: in.insert(in.begin() + at, 1 + below(16), static_cast<uint8_t>(random())); break;
        }
      }
      accepts(GetParam(), in);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parsers, Fuzz, testing::ValuesIn(kTargets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tg::fuzz
