/// \file The table of matrix and dot product instructions.
#include "tinygrad/target/tensor_core.h"

#include <algorithm>

namespace tg {
namespace {
// Layouts of registers, for threads and registers. NVIDIA: PTX ISA, "Matrix Fragments for mma.m16n8k16".
constexpr FragmentLayout kMmaA{"k0 k1 m0 m1 m2", "m3 k2"}, kMmaB{"k0 k1 n0 n1 n2", "k2"},
    kMmaHalfA{"k0 k1 m0 m1 m2", "m3"}, kMmaHalfB{"k0 k1 n0 n1 n2", ""}, kMmaC{"n1 n2 m0 m1 m2", "n0 m3"};
// PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma: a warp has 16 of the 64 rows.
constexpr FragmentLayout kWgmmaC64{"n1 n2 m0 m1 m2 m4 m5", "n0 m3 n3 n4 n5"},
    kWgmmaC128{"n1 n2 m0 m1 m2 m4 m5", "n0 m3 n3 n4 n5 n6"}, kWgmmaC256{"n1 n2 m0 m1 m2 m4 m5", "n0 m3 n3 n4 n5 n6 n7"};
// Multiply-adds: 4 x 8 threads with 4 x 4 results each. Of rows along the sum a thread reads 16 bytes, and neighbours
// the rows next to each other, which lie in banks of their own; of b across the sum it reads columns that are adjacent.
constexpr FragmentLayout kFmaA{"-- -- -- m0 m1", "k0 k1 m2 m3"}, kFmaB{"n2 n3 n4 -- --", "n0 n1 k0 k1"},
    kFmaC{"n2 n3 n4 m0 m1", "n0 n1 m2 m3"}, kFmaAlongB{"n0 n1 n2 -- --", "k0 k1 n3 n4"},
    kFmaAlongC{"n0 n1 n2 m0 m1", "n3 n4 m2 m3"};
// AMD: CDNA 3 ISA, section 7 "Matrix Arithmetic Instructions"; half of the threads hold each half of k.
constexpr FragmentLayout kMfmaA{"m0 m1 m2 m3 m4 k1", "k0"}, kMfmaB{"n0 n1 n2 n3 n4 k1", "k0"},
    kMfmaShortA{"m0 m1 m2 m3 m4 k0", ""}, kMfmaShortB{"n0 n1 n2 n3 n4 k0", ""},
    kMfmaC{"n0 n1 n2 n3 n4 m2", "m0 m1 m3 m4"};
constexpr FragmentLayout kMfmaSmallA{"m0 m1 m2 m3 k1 k2", "k0"}, kMfmaSmallB{"n0 n1 n2 n3 k1 k2", "k0"},
    kMfmaSmallC{"n0 n1 n2 n3 m2 m3", "m0 m1"};
// RDNA 3 ISA, section 7.9: both halves of a wave hold all of a and b. RDNA 4: each half of a wave has half of k.
constexpr FragmentLayout kWmma11A{"m0 m1 m2 m3 --", "k0 k1 k2"}, kWmma11B{"n0 n1 n2 n3 --", "k0 k1 k2"},
    kWmma11C{"n0 n1 n2 n3 m0", "m1 m2 m3"}, kWmma11ByteA{"m0 m1 m2 m3 --", "k0 k1"},
    kWmma11ByteB{"n0 n1 n2 n3 --", "k0 k1"};
constexpr FragmentLayout kWmma12A{"m0 m1 m2 m3 k2", "k0 k1"}, kWmma12B{"n0 n1 n2 n3 k2", "k0 k1"},
    kWmma12ByteA{"m0 m1 m2 m3 k1", "k0"}, kWmma12ByteB{"n0 n1 n2 n3 k1", "k0"}, kWmma12C{"n0 n1 n2 n3 m3", "m0 m1 m2"};
// Apple: what thread_elements() of a simdgroup matrix of 8 x 8 holds.
constexpr FragmentLayout kSimdA{"k1 m0 m1 k2 m2", "k0"}, kSimdB{"n1 k0 k1 n2 k2", "n0"}, kSimdC{"n1 m0 m1 n2 m2", "n0"};
}  // namespace

const std::vector<TensorCore>& tensor_core_table() {
  using namespace dtypes;
  // clang-format off
  static const std::vector<TensorCore> table{
    // instruction  arch      features              n  m  k  threads pack a       b         out      exact
    {"vpdpbusd",    "x86_64",  "avx512vnni avxvnni", 0, 1, 4, 1, 4, uint8,    int8,     int32,   true},
    {"vpdpwssd",    "x86_64",  "avx512vnni avxvnni", 0, 1, 2, 1, 2, int16,    int16,    int32,   true},
    {"vpmaddwd",    "x86_64",  "",                   0, 1, 2, 1, 2, int16,    int16,    int32,   true},
    {"vdpbf16ps",   "x86_64",  "avx512bf16",         0, 1, 2, 1, 2, bfloat16, bfloat16, float32, false},
    {"sdot",        "arm64",   "dotprod",            0, 1, 4, 1, 4, int8,     int8,     int32,   true},
    {"udot",        "arm64",   "dotprod",            0, 1, 4, 1, 4, uint8,    uint8,    uint32,  true},
    {"usdot",       "arm64",   "i8mm",               0, 1, 4, 1, 4, uint8,    int8,     int32,   true},
    {"bfdot",       "arm64",   "bf16",               0, 1, 2, 1, 2, bfloat16, bfloat16, float32, false},
    // NVIDIA
    {"mma_m16n8k16_f16",  "sm_", "mma16",   8, 16, 16, 32, 2, float16,  float16,  float32, false,
     {kMmaA, kMmaB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"},
    {"mma_m16n8k16_bf16", "sm_", "mma16",   8, 16, 16, 32, 2, bfloat16, bfloat16, float32, false,
     {kMmaA, kMmaB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"},
    {"mma_m16n8k8_f16",   "sm_", "mma8",    8, 16, 8,  32, 2, float16,  float16,  float32, false,
     {kMmaHalfA, kMmaHalfB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"},
    {"mma_m16n8k32_s8",   "sm_", "mma16",   8, 16, 32, 32, 4, int8,     int8,     int32,   true,
     {kMmaA, kMmaB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"},
    {"mma_m16n8k32_u8",   "sm_", "mma16",   8, 16, 32, 32, 4, uint8,    uint8,    int32,   true,
     {kMmaA, kMmaB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"},
    {"mma_m16n8k32_e4m3", "sm_", "mma_fp8", 8, 16, 32, 32, 4, fp8e4m3,  fp8e4m3,  float32, false,
     {kMmaA, kMmaB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"},
    {"mma_m16n8k32_e5m2", "sm_", "mma_fp8", 8, 16, 32, 32, 4, fp8e5m2,  fp8e5m2,  float32, false,
     {kMmaA, kMmaB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"},
    {"mma_m16n8k8_tf32",  "sm_", "mma16",   8, 16, 8,  32, 1, float32,  float32,  float32, false,
     {kMmaA, kMmaB, kMmaC}, "unsigned", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", true},
    {"fma_m16n32k4",      "sm_", "fma_tiles", 32, 16, 4,  32, 1, float32,  float32,  float32, true,
     {kFmaA, kFmaB, kFmaC}},
    {"fma_m16n32k4_along", "sm_", "fma_tiles", 32, 16, 4, 32, 1, float32,  float32,  float32, true,
     {kFmaA, kFmaAlongB, kFmaAlongC}},
    // NVIDIA's warpgroups
    {"wgmma_m64n256k16_f16", "sm_", "wgmma", 256, 64, 16, 128, 2, float16, float16, float32, false,
     {{}, {}, kWgmmaC256}, "", "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"},
    {"wgmma_m64n128k16_f16", "sm_", "wgmma", 128, 64, 16, 128, 2, float16, float16, float32, false,
     {{}, {}, kWgmmaC128}, "", "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"},
    {"wgmma_m64n64k16_f16", "sm_", "wgmma", 64, 64, 16, 128, 2, float16, float16, float32, false,
     {{}, {}, kWgmmaC64}, "", "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"},
    {"wgmma_m64n256k16_bf16", "sm_", "wgmma", 256, 64, 16, 128, 2, bfloat16, bfloat16, float32, false,
     {{}, {}, kWgmmaC256}, "", "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"},
    {"wgmma_m64n128k16_bf16", "sm_", "wgmma", 128, 64, 16, 128, 2, bfloat16, bfloat16, float32, false,
     {{}, {}, kWgmmaC128}, "", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"},
    {"wgmma_m64n64k16_bf16", "sm_", "wgmma", 64, 64, 16, 128, 2, bfloat16, bfloat16, float32, false,
     {{}, {}, kWgmmaC64}, "", "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"},
    {"wgmma_m64n256k32_s8", "sm_", "wgmma", 256, 64, 32, 128, 4, int8, int8, int32, true,
     {{}, {}, kWgmmaC256}, "", "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8"},
    {"wgmma_m64n128k32_s8", "sm_", "wgmma", 128, 64, 32, 128, 4, int8, int8, int32, true,
     {{}, {}, kWgmmaC128}, "", "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8"},
    {"wgmma_m64n64k32_s8", "sm_", "wgmma", 64, 64, 32, 128, 4, int8, int8, int32, true,
     {{}, {}, kWgmmaC64}, "", "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"},
    {"wgmma_m64n256k32_u8", "sm_", "wgmma", 256, 64, 32, 128, 4, uint8, uint8, int32, true,
     {{}, {}, kWgmmaC256}, "", "wgmma.mma_async.sync.aligned.m64n256k32.s32.u8.u8"},
    {"wgmma_m64n128k32_u8", "sm_", "wgmma", 128, 64, 32, 128, 4, uint8, uint8, int32, true,
     {{}, {}, kWgmmaC128}, "", "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.u8"},
    {"wgmma_m64n64k32_u8", "sm_", "wgmma", 64, 64, 32, 128, 4, uint8, uint8, int32, true,
     {{}, {}, kWgmmaC64}, "", "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.u8"},
    {"wgmma_m64n256k32_e4m3", "sm_", "wgmma", 256, 64, 32, 128, 4, fp8e4m3, fp8e4m3, float32, false,
     {{}, {}, kWgmmaC256}, "", "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3"},
    {"wgmma_m64n128k32_e4m3", "sm_", "wgmma", 128, 64, 32, 128, 4, fp8e4m3, fp8e4m3, float32, false,
     {{}, {}, kWgmmaC128}, "", "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"},
    {"wgmma_m64n64k32_e4m3", "sm_", "wgmma", 64, 64, 32, 128, 4, fp8e4m3, fp8e4m3, float32, false,
     {{}, {}, kWgmmaC64}, "", "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"},
    {"wgmma_m64n256k32_e5m2", "sm_", "wgmma", 256, 64, 32, 128, 4, fp8e5m2, fp8e5m2, float32, false,
     {{}, {}, kWgmmaC256}, "", "wgmma.mma_async.sync.aligned.m64n256k32.f32.e5m2.e5m2"},
    {"wgmma_m64n128k32_e5m2", "sm_", "wgmma", 128, 64, 32, 128, 4, fp8e5m2, fp8e5m2, float32, false,
     {{}, {}, kWgmmaC128}, "", "wgmma.mma_async.sync.aligned.m64n128k32.f32.e5m2.e5m2"},
    {"wgmma_m64n64k32_e5m2", "sm_", "wgmma", 64, 64, 32, 128, 4, fp8e5m2, fp8e5m2, float32, false,
     {{}, {}, kWgmmaC64}, "", "wgmma.mma_async.sync.aligned.m64n64k32.f32.e5m2.e5m2"},
    {"wgmma_m64n256k8_tf32", "sm_", "wgmma", 256, 64, 8, 128, 1, float32, float32, float32, false,
     {{}, {}, kWgmmaC256}, "", "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", true},
    {"wgmma_m64n128k8_tf32", "sm_", "wgmma", 128, 64, 8, 128, 1, float32, float32, float32, false,
     {{}, {}, kWgmmaC128}, "", "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32", true},
    {"wgmma_m64n64k8_tf32", "sm_", "wgmma", 64, 64, 8, 128, 1, float32, float32, float32, false,
     {{}, {}, kWgmmaC64}, "", "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", true},
    // AMD
    {"mfma_32x32x8_f16",  "gfx", "mfma",     32, 32, 8,  64, 2, float16,  float16,  float32, false,
     {kMfmaA, kMfmaB, kMfmaC}, "_Float16 4", "__builtin_amdgcn_mfma_f32_32x32x8f16($a, $b, $c, 0, 0, 0)"},
    {"mfma_32x32x8_bf16", "gfx", "mfma",     32, 32, 8,  64, 2, bfloat16, bfloat16, float32, false,
     {kMfmaA, kMfmaB, kMfmaC}, "short 4", "__builtin_amdgcn_mfma_f32_32x32x8bf16_1k($a, $b, $c, 0, 0, 0)"},
    {"mfma_32x32x2_f32",  "gfx", "mfma",     32, 32, 2,  64, 1, float32,  float32,  float32, false,
     {kMfmaShortA, kMfmaShortB, kMfmaC}, "float", "__builtin_amdgcn_mfma_f32_32x32x2f32($a, $b, $c, 0, 0, 0)"},
    {"mfma_32x32x8_i8",   "gfx", "mfma2",    32, 32, 8,  64, 4, int8,     int8,     int32,   true,
     {kMfmaShortA, kMfmaShortB, kMfmaC}, "int", "__builtin_amdgcn_mfma_i32_32x32x8i8($a, $b, $c, 0, 0, 0)"},
    {"mfma_32x32x16_i8",  "gfx", "mfma3",    32, 32, 16, 64, 4, int8,     int8,     int32,   true,
     {kMfmaA, kMfmaB, kMfmaC}, "long", "__builtin_amdgcn_mfma_i32_32x32x16_i8($a, $b, $c, 0, 0, 0)"},
    {"mfma_32x32x16_e4m3", "gfx", "mfma3",   32, 32, 16, 64, 4, fp8e4m3fnuz, fp8e4m3fnuz, float32, false,
     {kMfmaA, kMfmaB, kMfmaC}, "long", "__builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8($a, $b, $c, 0, 0, 0)"},
    {"wmma_gfx11_f16",    "gfx", "wmma11",   16, 16, 16, 32, 2, float16,  float16,  float32, false,
     {kWmma11A, kWmma11B, kWmma11C}, "_Float16 16", "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32($a, $b, $c)"},
    {"wmma_gfx11_bf16",   "gfx", "wmma11",   16, 16, 16, 32, 2, bfloat16, bfloat16, float32, false,
     {kWmma11A, kWmma11B, kWmma11C}, "short 16", "__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32($a, $b, $c)"},
    {"wmma_gfx11_i8",     "gfx", "wmma11",   16, 16, 16, 32, 4, int8,     int8,     int32,   true,
     {kWmma11ByteA, kWmma11ByteB, kWmma11C}, "int 4",
     "__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, $a, true, $b, $c, false)"},
    {"wmma_gfx12_f16",    "gfx", "wmma12",   16, 16, 16, 32, 2, float16,  float16,  float32, false,
     {kWmma12A, kWmma12B, kWmma12C}, "_Float16 8", "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12($a, $b, $c)"},
    {"wmma_gfx12_bf16",   "gfx", "wmma12",   16, 16, 16, 32, 2, bfloat16, bfloat16, float32, false,
     {kWmma12A, kWmma12B, kWmma12C}, "short 8", "__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12($a, $b, $c)"},
    {"wmma_gfx12_i8",     "gfx", "wmma12",   16, 16, 16, 32, 4, int8,     int8,     int32,   true,
     {kWmma12ByteA, kWmma12ByteB, kWmma12C}, "int 2",
     "__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, $a, true, $b, $c, false)"},
    {"wmma_gfx12_e4m3",   "gfx", "wmma12",   16, 16, 16, 32, 4, fp8e4m3,  fp8e4m3,  float32, false,
     {kWmma12ByteA, kWmma12ByteB, kWmma12C}, "int 2",
     "__builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12($a, $b, $c)"},
    // Apple
    {"simdgroup_f32",     "apple", "simdgroup", 8, 8, 8, 32, 1, float32, float32, float32, false,
     {kSimdA, kSimdB, kSimdC}, "float", "simdgroup_float8x8"},
    {"simdgroup_f16",     "apple", "simdgroup", 8, 8, 8, 32, 1, float16, float16, float32, false,
     {kSimdA, kSimdB, kSimdC}, "half", "simdgroup_half8x8"},
    // AMD, for sides that are short of 32
    {"mfma_16x16x16_f16",  "gfx", "mfma",    16, 16, 16, 64, 2, float16,  float16,  float32, false,
     {kMfmaSmallA, kMfmaSmallB, kMfmaSmallC}, "_Float16 4",
     "__builtin_amdgcn_mfma_f32_16x16x16f16($a, $b, $c, 0, 0, 0)"},
    {"mfma_16x16x16_bf16", "gfx", "mfma",    16, 16, 16, 64, 2, bfloat16, bfloat16, float32, false,
     {kMfmaSmallA, kMfmaSmallB, kMfmaSmallC}, "short 4",
     "__builtin_amdgcn_mfma_f32_16x16x16bf16_1k($a, $b, $c, 0, 0, 0)"},
  };
  // clang-format on
  return table;
}

int fragment_registers(const FragmentLayout& layout) { return 1 << (layout.registers.size() + 1) / 3; }

FragmentElement fragment_element(const FragmentLayout& layout, int thread, int number) {
  FragmentElement e;
  auto add = [&](std::string_view names, int bits) {
    for (size_t at = 0; at < names.size(); at += 3, bits >>= 1) {
      int* to = names[at] == 'm' ? &e.m : names[at] == 'n' ? &e.n : names[at] == 'k' ? &e.k : nullptr;
      if (to) *to |= (bits & 1) << (names[at + 1] - '0');
    }
  };
  add(layout.threads, thread);
  add(layout.registers, number);
  return e;
}

std::vector<const TensorCore*> tensor_cores_of(const Target& target) {
  std::vector<const TensorCore*> out;
  for (const TensorCore& t : tensor_core_table()) {
    if (!target.arch.starts_with(t.arch)) continue;
    std::string_view features = t.feature;
    bool has = features.empty();
    while (!features.empty()) {
      const size_t end = std::min(features.find(' '), features.size());
      has |= target.has(features.substr(0, end));
      features.remove_prefix(std::min(end + 1, features.size()));
    }
    if (has) out.push_back(&t);
  }
  return out;
}

const TensorCore* find_tensor_core(std::string_view name) {
  for (const TensorCore& t : tensor_core_table())
    if (name == t.name) return &t;
  return nullptr;
}

}  // namespace tg
