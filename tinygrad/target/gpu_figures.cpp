/// \file The table of GPUs.
#include "tinygrad/target/gpu_figures.h"

namespace tg {

const GpuFigures& gpu_figures(const Target& target) {
  constexpr int64_t kK = 1 << 10;  // a kilo
  // clang-format off
  static constexpr GpuFigures table[] = {
    // arch    units clock memory l2  shared warp sched warps registers each memory    16    8     32    fma  wgmma fp8
    {"sm_75",  68,   1.55, 616,   32, 128,   32,  4,    32,   64 * kK,  255, 64 * kK,  512,  1024, 0,    128},
    {"sm_86",  82,   1.70, 936,   32, 128,   32,  4,    48,   64 * kK,  255, 100 * kK, 512,  1024, 256},
    {"sm_89",  128,  2.52, 1008,  32, 128,   32,  4,    48,   64 * kK,  255, 100 * kK, 512,  1024, 256},
    {"sm_8",   108,  1.41, 2039,  47, 128,   32,  4,    64,   64 * kK,  255, 164 * kK, 2048, 4096, 1024, 128},
    // mma.sync reaches five eighths of what wgmma does, and has no fp8 of its own.
    {"sm_9",   132,  1.83, 3350,  39, 128,   32,  4,    64,  64 * kK, 255, 228 * kK, 2560, 5120, 1280, 256, 1.6, true},
    {"sm_10",  148,  1.85, 8000,  39, 128,   32,  4,    64,   64 * kK,  255, 228 * kK, 2048, 4096, 1024},
    {"sm_12",  170,  2.41, 1792,  32, 128,   32,  4,    48,   64 * kK,  255, 100 * kK, 512,  1024, 256},
    {"gfx90a", 104,  1.70, 1638,  64, 128,   64,  4,    32,   128 * kK, 512, 64 * kK,  1024, 1024, 256},
    {"gfx94",  304,  2.10, 5300,  64, 128,   64,  4,    32,   128 * kK, 512, 64 * kK,  2048, 4096, 256},
    {"gfx11",  96,   2.50, 960,   32, 128,   32,  2,    32,   96 * kK,  256, 64 * kK,  512,  512,  0},
    {"gfx12",  64,   2.97, 640,   32, 128,   32,  2,    32,   96 * kK,  256, 64 * kK,  1024, 2048, 0},
    {"apple",  40,   1.38, 400,   32, 64,    32,  4,    24,   64 * kK,  128, 32 * kK,  256,  0,    256},
    {"adreno", 6,    0.90, 77,    32, 128,   64,  2,    32,   64 * kK,  96,  32 * kK,  0,    0,    0},
    {"intel",  32,   2.10, 560,   64, 128,   16,  16,   128,  128 * kK, 64,  64 * kK,  0,    0,    0},
    {"",       16,   1.50, 200,   32, 64,    32,  2,    32,   64 * kK,  128, 32 * kK,  256,  256,  256},
  };
  // clang-format on
  const GpuFigures* g = table;
  while (!target.arch.starts_with(g->arch)) g++;
  return *g;
}

}  // namespace tg
