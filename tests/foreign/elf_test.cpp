/// \file The object loader on good, truncated and damaged objects, and every relocation on hand-made fields.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tinygrad/base/context.h"
#include "tinygrad/base/dtype.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/elf_loader.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {

/// An object with code, constants, data, zeroed data, calls out and accesses through the offset table.
std::vector<uint8_t> rich_object() {
  static const std::vector<uint8_t> object = [] {
    Context c{{"DEV", "CPU:CLANG"}};
    return Device::get("CPU").compiler().compile(R"(
float sinf(float); float powf(float, float);
static const double table[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
int counter = 40; int zeroed[100];
int* address_of_counter = &counter;
__attribute__((noinline)) float helper(float x, long long i) { return sinf(x) + powf(x, 2.0f) + (float)table[i % 9]; }
void k(void* const* buffers, const long long* vars, long long begin, long long end) {
  float* out = (float*)buffers[0];
  for (long long i = begin; i < end; i++) out[i] = helper(out[i], i);
  ++*address_of_counter; zeroed[7] += 2;
  out[0] = (float)(counter + zeroed[7]);
}
)");
  }();
  return object;
}

struct Elf : testing::Test {
  void SetUp() override {
    if (clang_path().empty()) GTEST_SKIP() << "no clang to make objects with";
  }
};

TEST_F(Elf, LoadsAndRuns) {
  auto image = ElfImage::load(rich_object());
  auto k = reinterpret_cast<HostKernel>(image->function("k"));
  ASSERT_NE(k, nullptr);
  float data[3] = {0, 1, 2};
  void* buffers[] = {data};
  k(buffers, nullptr, 1, 3);
  EXPECT_EQ(data[0], 43.0f);
  EXPECT_EQ(data[1], std::sin(1.0f) + 1.0f + 2.0f);
  EXPECT_EQ(data[2], std::sin(2.0f) + 4.0f + 3.0f);
  k(buffers, nullptr, 1, 1);
  EXPECT_EQ(data[0], 46.0f) << "the image has its own data";
  EXPECT_NE(image->function("helper"), nullptr);
  EXPECT_EQ(image->function("sinf"), nullptr);
  EXPECT_EQ(image->function("counter"), nullptr) << "data is no function";
  EXPECT_EQ(image->function(""), nullptr);
}

TEST_F(Elf, EveryTruncationIsAFormatError) {
  const auto object = rich_object();
  for (size_t n = 0; n < object.size(); n += n < 256 ? 1 : 7)
    EXPECT_THROW(ElfImage::load(std::vector<uint8_t>(object.begin(), object.begin() + static_cast<long>(n))),
                 FormatError)
        << n;
}

/// Damaged objects load or are refused; they are not run. Anything else is for the sanitizers to see.
void load_or_refuse(const std::vector<uint8_t>& bytes, int& loaded, int& refused) {
  try {
    ElfImage::load(bytes);
    ++loaded;
  } catch (const FormatError&) { ++refused; }
}

TEST_F(Elf, FlippedBitsNeverCrash) {
  const auto object = rich_object();
  int loaded = 0, refused = 0;
  for (size_t at = 0; at < object.size(); ++at) {
    auto bytes = object;
    bytes[at] ^= static_cast<uint8_t>(1u << at % 8);
    load_or_refuse(bytes, loaded, refused);
  }
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(Elf, RandomDamageNeverCrashes) {
  const auto object = rich_object();
  std::mt19937_64 random(1);
  int loaded = 0, refused = 0;
  const uint64_t interesting[] = {0,
                                  1,
                                  0x7f,
                                  0x80,
                                  0xff,
                                  0xffff,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  ~uint64_t{0}};
  for (int round = 0; round < 4000; ++round) {
    auto bytes = object;
    for (int k = 0; k < 1 + round % 4; ++k) {
      const size_t width = size_t{1} << random() % 4, at = random() % (bytes.size() - width);
      const uint64_t value = random() % 2 ? interesting[random() % std::size(interesting)] : random();
      std::memcpy(bytes.data() + at, &value, width);
    }
    load_or_refuse(bytes, loaded, refused);
  }
  EXPECT_EQ(loaded + refused, 4000);
  EXPECT_GT(refused, 100);
}

TEST(ElfFormat, ForeignFiles) {
  EXPECT_THROW(ElfImage::load({}), FormatError);
  EXPECT_THROW(ElfImage::load(std::vector<uint8_t>(1000, 0)), FormatError);
  std::vector<uint8_t> script(200, '#');
  EXPECT_THROW(ElfImage::load(script), FormatError);
}

TEST(HostSymbol, ClosedList) {
  EXPECT_NE(host_symbol("memcpy"), nullptr);
  EXPECT_EQ(reinterpret_cast<float (*)(float)>(host_symbol("exp2f"))(3.0f), 8.0f);
  EXPECT_EQ(reinterpret_cast<double (*)(double, double)>(host_symbol("pow"))(2.0, 10.0), 1024.0);
  for (const char* name : {"system", "malloc", "", "exit", "memcpy ", "_ZSt4sqrtf"})
    EXPECT_EQ(host_symbol(name), nullptr) << name;
  auto divide = reinterpret_cast<int128 (*)(int128, int128)>(host_symbol("__divti3"));
  EXPECT_TRUE(divide(-(static_cast<int128>(7) << 100), static_cast<int128>(1) << 99) == -14);
  // A double between two halves, nearer to the lower one by less than a float resolves: one rounding, not two.
  auto narrow = reinterpret_cast<float (*)(double)>(host_symbol("__truncdfhf2"));
  const float result = narrow(1.0 + 0x1p-11 - 0x1p-40), above = narrow(1.0 + 0x1p-11 + 0x1p-40);
  uint32_t bits, bits_above;
  std::memcpy(&bits, &result, 4);
  std::memcpy(&bits_above, &above, 4);
  EXPECT_EQ(bits & 0xffff, 0x3c00u);
  EXPECT_EQ(bits_above & 0xffff, 0x3c01u);
}

uint64_t relocated(uint16_t machine, uint32_t type, uint64_t place, uint64_t symbol, int64_t addend, uint64_t field = 0,
                   uint64_t slot = 0, size_t width = 8) {
  uint8_t bytes[8];
  std::memcpy(bytes, &field, 8);
  apply_relocation({machine, type, bytes, width, place, symbol, addend, slot});
  std::memcpy(&field, bytes, 8);
  return field;
}

TEST(Relocation, X86) {
  const uint16_t m = kElfX86_64;
  EXPECT_EQ(relocated(m, 1, 0x1000, 0x123456789abc, 4), 0x123456789ac0u);
  EXPECT_EQ(relocated(m, 2, 0x1000, 0x1800, -4, ~uint64_t{0}), 0xffffffff000007fcu) << "four bytes only";
  EXPECT_EQ(static_cast<uint32_t>(relocated(m, 4, 0x2000, 0x1000, -4)), 0xffffeffcu);
  EXPECT_EQ(static_cast<uint32_t>(relocated(m, 42, 0x1000, 0, -4, 0, 0x3000)), 0x1ffcu) << "to the slot";
  EXPECT_EQ(relocated(m, 24, 0x1000, 0x500, 0), static_cast<uint64_t>(-0xb00));
  EXPECT_THROW(relocated(m, 2, 0, uint64_t{1} << 31, 0), FormatError);
  EXPECT_NO_THROW(relocated(m, 2, 0, (uint64_t{1} << 31) - 1, 0));
  EXPECT_THROW(relocated(m, 10, 0, uint64_t{1} << 32, 0), FormatError);
  EXPECT_THROW(relocated(m, 11, 0, uint64_t{1} << 31, 0), FormatError);
  EXPECT_THROW(relocated(m, 1, 0, 0, 0, 0, 0, 7), FormatError) << "past the section";
  EXPECT_THROW(relocated(m, 2, 0, 0, 0, 0, 0, 3), FormatError);
  EXPECT_THROW(relocated(m, 99, 0, 0, 0), FormatError);
}

TEST(Relocation, Arm) {  // encodings as an assembler gives them
  const uint16_t m = kElfAArch64;
  auto code = [&](uint32_t type, uint64_t place, uint64_t symbol, uint32_t instruction, uint64_t slot = 0) {
    return static_cast<uint32_t>(relocated(m, type, place, symbol, 0, instruction, slot));
  };
  EXPECT_EQ(code(283, 0x1000, 0x1010, 0x94000000), 0x94000004u);  // bl +16
  EXPECT_EQ(code(282, 0x1000, 0x0ffc, 0x14000000), 0x17ffffffu);  // b -4
  EXPECT_EQ(code(275, 0x1000, 0x5123, 0x90000010), 0x90000030u);  // adrp x16, 4 pages on: immhi 1
  EXPECT_EQ(code(275, 0x1000, 0x2123, 0x90000000), 0xb0000000u);  // adrp x0, 1 page on: immlo 1
  EXPECT_EQ(code(277, 0, 0x5123, 0x91000000), 0x91048c00u);       // add x0, x0, #0x123
  EXPECT_EQ(code(286, 0, 0x5128, 0xf9400210), 0xf9409610u);       // ldr x16, [x16, #0x128]
  EXPECT_EQ(code(299, 0, 0x5130, 0x3dc00000), 0x3dc04c00u);       // ldr q0, [x0, #0x130]
  EXPECT_EQ(code(312, 0, 0, 0xf9400000, 0x7008), 0xf9400400u);    // ldr x0, [x0, #8] from the slot
  EXPECT_THROW(code(286, 0, 0x5124, 0xf9400210), FormatError) << "misaligned";
  EXPECT_THROW(code(283, 0, uint64_t{1} << 27, 0x94000000), FormatError);
  EXPECT_THROW(code(275, 0, uint64_t{1} << 33, 0x90000000), FormatError);
  EXPECT_THROW(code(1, 0, 0, 0), FormatError);
  EXPECT_EQ(relocation_need(m, 311), RelocationNeed::kSlot);
  EXPECT_EQ(relocation_need(m, 283), RelocationNeed::kNone);
  EXPECT_EQ(relocation_need(40, 2), RelocationNeed::kUnknown);
}

TEST(Relocation, RiscV) {  // encodings as an assembler gives them
  const uint16_t m = kElfRiscV;
  constexpr uint64_t kPlace = 0x10000000;
  auto code = [&](uint32_t type, int64_t distance, uint32_t instruction) {
    const uint64_t symbol = kPlace + static_cast<uint64_t>(distance);
    return static_cast<uint32_t>(relocated(m, type, kPlace, symbol, 0, instruction));
  };
  EXPECT_EQ(code(16, 0x7fe, 0x00b50063), 0x7eb50f63u);  // beq a0, a1
  EXPECT_EQ(code(16, -0x1000, 0x00b50063), 0x80b50063u);
  EXPECT_EQ(code(16, 0xaaa, 0x00b50063), 0x2ab505e3u);
  EXPECT_EQ(code(17, 0xaaaaa, 0x000000ef), 0x2abaa0efu);  // jal ra
  EXPECT_EQ(code(17, -0x100000, 0x000000ef), 0x800000efu);
  EXPECT_EQ(code(44, 0xaa, 0xc101), 0xc54du);  // c.beqz a0
  EXPECT_EQ(code(44, -0x100, 0xc101), 0xd101u);
  EXPECT_EQ(code(45, 0x2aa, 0xa001), 0xa46du);  // c.j
  EXPECT_EQ(code(45, -0x800, 0xa001), 0xb001u);
  EXPECT_EQ(code(23, 0x12345abc, 0x00000e17), 0x12346e17u) << "auipc t3: rounded, the lower part has a sign";
  EXPECT_EQ(code(24, 0x12345abc, 0x000e3e03), 0xabce3e03u);  // ld t3, -1348(t3)
  EXPECT_EQ(code(25, 0x123457ab, 0x005e3023), 0x7a5e35a3u);  // sd t0, 1963(t3)
  const uint64_t call = relocated(m, 19, kPlace, kPlace + 0x12345abc, 0, 0x000e0067'00000e17);
  EXPECT_EQ(call, 0xabce0067'12346e17u) << "auipc t3, jr t3";
  EXPECT_EQ(static_cast<uint32_t>(relocated(m, 20, kPlace, 0, 0, 0x00000e17, kPlace + 0x3000)), 0x00003e17u);
  EXPECT_EQ(relocated(m, 35, 0, 5, 2, 100), 107u);
  EXPECT_EQ(relocated(m, 40, 0, 5, 2, 100), 93u);
  EXPECT_EQ(relocated(m, 57, kPlace, kPlace - 4, 0), 0xfffffffcu);
  EXPECT_THROW(code(16, 0x1000, 0x00b50063), FormatError);
  EXPECT_THROW(code(16, 1, 0x00b50063), FormatError) << "odd";
  EXPECT_THROW(code(17, 0x100000, 0x000000ef), FormatError);
  EXPECT_THROW(code(45, 0x800, 0xa001), FormatError);
  EXPECT_THROW(code(23, int64_t{1} << 31, 0x00000e17), FormatError);
  EXPECT_THROW(relocated(m, 19, 0, 0, 0, 0, 0, 7), FormatError) << "a call is two instructions";
  EXPECT_THROW(code(43, 0, 0), FormatError) << "alignment is for linkers that relax";
  EXPECT_EQ(relocation_need(m, 20), RelocationNeed::kSlot);
  EXPECT_EQ(relocation_need(m, 24), RelocationNeed::kHighPart);
  EXPECT_EQ(relocation_need(m, 51), RelocationNeed::kUnknown);
}

/// Objects for other processors are checked as far as it goes without mapping them.
TEST_F(Elf, OfOtherProcessors) {
  const std::string source = R"(
float sinf(float);
static const double table[9] = {1, 2, 3};
int counter = 40; int* address = &counter;
void k(void* const* buffers, const long long* vars, long long begin, long long end) {
  for (long long i = begin; i < end; i++) ((float*)buffers[0])[i] = sinf(table[i % 9]) + ++*address + counter;
})";
  for (const char* arch : {"x86_64", "arm64", "riscv64,v"}) {
    Context c{{"DEV", str("NULL:CLANG:", arch)}};
    Device& d = Device::get("NULL");
    const std::vector<uint8_t> object = d.compiler().compile(source);
    const std::string& mine = d.target().arch;
    EXPECT_NO_THROW(ElfImage::check(object, mine)) << arch;
    for (const char* other : {"x86_64", "arm64", "riscv64", "sparc"})
      if (mine != other) EXPECT_THROW(ElfImage::check(object, other), FormatError) << arch << " as " << other;
    for (size_t cut = 0; cut < object.size(); cut += 7)
      EXPECT_THROW(ElfImage::check(std::span(object).first(cut), mine), FormatError) << arch << " " << cut;
  }
}

}  // namespace
}  // namespace tg
