/// \file Files of captured functions that something damaged or made up: a typed error, and nothing else.
#include "tinygrad/io/jit_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tinygrad/base/sha256.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Bytes = std::vector<uint8_t>;

Bytes make_file() {
  Tensor w = Tensor({1.f, 2.f, 3.f, 4.f}).realize();
  Variable n("n", 1, 4);
  auto f = jit([=](const Tensor& x, const BoundVariable& v) {
    return std::pair{(x * w).contiguous().sum() + Tensor::rand({4}), x.shrink({{SInt(0), SInt(v.uop())}}).sum()};
  });
  Tensor x = Tensor({4.f, 3.f, 2.f, 1.f}).realize();
  for (int i = 0; i < 3; i++) f(x, n.bind(2));
  return dump_jit(f.core(), {.note = "note"});
}
const Bytes& file() {
  static const Bytes bytes = make_file();
  return bytes;
}

/// Returns a file whose kernels are programs for the interpreter: with a grid of threads, as images have it.
const Bytes& interpreted_file() {
  static const Bytes bytes = [] {
    const Context grids{{"IMAGE", 1}};
    const Tensor x = Tensor(std::vector<float>(4096, 3.f)).to("INTERP").realize();
    auto f = jit([=](const Tensor& a) { return ((a * 2).contiguous().reshape(64, 64).sum(1) + 1).contiguous(); });
    for (int i = 0; i < 3; i++) f(x);
    return dump_jit(f.core());
  }();
  return bytes;
}

/// Header and body again with the right checksum: what somebody writes who wants to be read.
void seal(Bytes& b) {
  uint64_t body;
  std::memcpy(&body, b.data() + 16, 8);
  if (body > b.size() - 64) return;
  const std::span<const uint8_t> all(b);
  const Sha256Digest d = Sha256().update(all.first(32)).update(all.subspan(64, body)).finish();
  std::memcpy(b.data() + 32, d.data(), d.size());
}

/// The function it reads as, or a typed error of the kinds load_jit tells of. InternalError and all else fail the test.
bool loads(const Bytes& b) {
  try {
    parse_jit(b);
    return true;
  } catch (const Error&) { return false; }
}

TEST(ForeignJitFile, TheFileItselfLoads) {
  EXPECT_TRUE(loads(file()));
  Bytes same = file();
  seal(same);
  EXPECT_EQ(same, file());
}

TEST(ForeignJitFile, EveryPrefixIsRefused) {
  const Bytes& whole = file();
  for (size_t n = 0; n < whole.size(); n += 1 + n / 64)
    EXPECT_THROW(parse_jit(Bytes(whole.begin(), whole.begin() + static_cast<long>(n))), FormatError) << n;
  Bytes longer = whole;
  longer.push_back(0);
  EXPECT_THROW(parse_jit(longer), FormatError);
}

TEST(ForeignJitFile, EveryFlippedBitIsFound) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; round++) {
    Bytes b = file();
    b[round < 64 ? static_cast<size_t>(round) : random() % b.size()] ^= static_cast<uint8_t>(1 << random() % 8);
    EXPECT_THROW(parse_jit(b), FormatError) << round;
  }
}

TEST(ForeignJitFile, ProgramsForTheInterpreterAreVerified) {
  const Context grids{{"IMAGE", 1}};
  ASSERT_TRUE(loads(interpreted_file()));
  const std::string text(interpreted_file().begin(), interpreted_file().end());
  ASSERT_NE(text.find("gidx0"), std::string::npos);
  for (const char* name : {"gidx9", "gidx3", "zidx0", "gidx ", "lidx/"}) {
    std::string changed = text;
    for (size_t at = 0; (at = changed.find("gidx0", at)) != std::string::npos; at++) changed.replace(at, 5, name);
    Bytes b(changed.begin(), changed.end());
    seal(b);
    EXPECT_THROW(parse_jit(b), FormatError) << name;
  }
}

TEST(ForeignJitFile, MadeUpProgramsForTheInterpreter) {
  const Context grids{{"IMAGE", 1}};
  std::mt19937 random(5);
  uint64_t body;
  std::memcpy(&body, interpreted_file().data() + 16, 8);
  for (int round = 0; round < 3000; round++) {
    Bytes b = interpreted_file();
    for (unsigned n = 0, count = 1 + random() % 4; n < count; n++)
      b[64 + random() % body] = static_cast<uint8_t>(random());
    seal(b);
    loads(b);
  }
}

TEST(ForeignJitFile, MadeUpContentsWithTheRightChecksum) {
  std::mt19937 random(11);
  int loaded = 0;
  uint64_t body;
  std::memcpy(&body, file().data() + 16, 8);
  for (int round = 0; round < 3000; round++) {
    Bytes b = file();
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; edits--) {
      const size_t at = 64 + random() % body;
      switch (random() % 4) {
        case 0: b[at] = static_cast<uint8_t>(random()); break;
        case 1: b[at] ^= static_cast<uint8_t>(1 << random() % 8); break;
        case 2: b[at] = random() % 2 ? 0xff : 0; break;
        default: std::swap(b[at], b[64 + random() % body]);
      }
    }
    seal(b);
    loaded += loads(b);  // loaded is fine: nothing of it is run
  }
  EXPECT_LT(loaded, 3000);
}

std::string refusal(const Bytes& b) {
  try {
    parse_jit(b);
  } catch (const FormatError& e) { return e.what(); }
  return "loads";
}

TEST(ForeignJitFile, ForeignOlderAndDamagedFilesAreThreeErrors) {
  const std::string foreign = "is no file of a captured function",
                    older = "was saved by another version of the library", damaged = "damaged";
  const auto is = [](const Bytes& b, const std::string& text) { return refusal(b).find(text) != std::string::npos; };
  EXPECT_TRUE(is(Bytes(200, 'x'), foreign));
  EXPECT_TRUE(is({}, foreign));
  EXPECT_TRUE(is({'h', 'e', 'l', 'l', 'o'}, foreign)) << "shorter than the magic";
  Bytes text = file();
  text[4] = '\n';  // what a transfer as text does to line ends
  EXPECT_TRUE(is(text, foreign));
  for (size_t at : {size_t{8}, size_t{12}}) {  // the version, and the hash of the names of operations
    Bytes b = file();
    b[at] ^= 9;
    EXPECT_TRUE(is(b, older)) << at << " " << refusal(b);
    seal(b);
    EXPECT_TRUE(is(b, older)) << at << ", with the right checksum";
  }
  Bytes b = file();
  b[100] ^= 1;
  EXPECT_TRUE(is(b, damaged)) << refusal(b);
  EXPECT_TRUE(is(Bytes(file().begin(), file().begin() + 40), "an early end")) << "the magic is right: it is cut off";
}

}  // namespace
}  // namespace tg
