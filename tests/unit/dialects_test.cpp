/// \file Languages of kernels that many threads run: how they read, and what each can do.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels.h"
#include "tinygrad/render/renderers.h"

namespace tg {
namespace {
using namespace testing;

Target grid_target(const std::string& renderer, std::vector<std::string> features = {}) {
  Target t;
  t.device = "TEST";
  t.renderer = renderer;
  t.features = std::move(features);
  t.vector_bytes = 4;
  t.shared_bytes = 48 << 10;
  return t;
}
Target opencl_groups() { return grid_target("OPENCL", {"fma", "fp64", "workgroups"}); }
Target opencl_lanes(int bytes = 32) {
  Target t = grid_target("OPENCL", {"fma", "fp64"});
  t.vector_bytes = bytes;
  return t;
}
std::string source(const KernelPtr& k, const Target& t, std::vector<Opt> opts) {
  CodegenOptions o;
  o.opts = std::move(opts);
  return check_kernel(k, *make_renderer(t), o)->source;
}
/// Sums of rows, each by four threads.
std::string shared_sums(const Target& t) { return source(reduce_rows(6, 8), t, {{OptOp::kGroup, 1, 4}}); }

/// The body of it in a language of grids: a declaration, the indices of the group and the thread, a barrier.
std::string shared_sums_body(const std::string& shared, const std::string& group, const std::string& thread,
                             const std::string& barrier) {
  return "  float acc0;\n  " + shared + "\n  float acc1;\n  int gidx0 = " + group +
         ";\n  acc0 = 0.0f;\n  int lidx0 = " + thread + R"(;
  acc1 = 0.0f;
  int alu0 = gidx0 * 8 + lidx0;
  for (int ridx1 = 0; ridx1 < 2; ridx1++) {
    float val0 = data1[alu0 + ridx1 * 4];
    acc1 = acc1 + val0;
  }
  buf0[lidx0] = acc1;
  )" + barrier +
         R"(
  for (int ridx6 = 0; ridx6 < 4; ridx6++) {
    float val1 = buf0[ridx6];
    acc0 = acc0 + val1;
  }
  if (lidx0 < 1) data0[gidx0] = acc0;
}
)";
}

constexpr const char* kOpenClHead = R"(#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif

)";

TEST(Dialects, OpenClGrid) {
  EXPECT_EQ(
      shared_sums(opencl_groups()),
      std::string(kOpenClHead) +
          R"(__kernel __attribute__((reqd_work_group_size(4, 1, 1))) void r_2_4(__global char* memory0, __global )"
          R"(char* memory1, const long offset0, const long offset1) {
  __global float* restrict data0 = (__global float*)(memory0 + offset0);
  __global const float* restrict data1 = (__global const float*)(memory1 + offset1);
  float acc0;
  __local float buf0[4] __attribute__((aligned(64)));
  float acc1;
  int gidx0 = get_group_id(0);
  acc0 = 0.0f;
  int lidx0 = get_local_id(0);
  acc1 = 0.0f;
  int alu0 = gidx0 * 8 + lidx0;
  for (int ridx1 = 0; ridx1 < 2; ridx1++) {
    float val0 = data1[alu0 + ridx1 * 4];
    acc1 = acc1 + val0;
  }
  buf0[lidx0] = acc1;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int ridx6 = 0; ridx6 < 4; ridx6++) {
    float val1 = buf0[ridx6];
    acc0 = acc0 + val1;
  }
  if (lidx0 < 1) data0[gidx0] = acc0;
}
)");
}

TEST(Dialects, CudaAndHipGrids) {
  const std::string text =
      R"(extern "C" __global__ void __launch_bounds__(4) r_2_4(float* __restrict__ data0, const float* )"
      R"(__restrict__ data1) {
)" + shared_sums_body("__shared__ float buf0[4] __attribute__((aligned(16)));", "blockIdx.x", "threadIdx.x",
                      "__syncthreads();");
  EXPECT_EQ(shared_sums(grid_target("CUDA", {"fma"})), text);
  // HIP says the same with clang's own names for indices, behind what its headers define.
  std::string hip = text;
  for (const auto& [from, to] : {std::pair("blockIdx.x", "__builtin_amdgcn_workgroup_id_x()"),
                                 std::pair("threadIdx.x", "__builtin_amdgcn_workitem_id_x()")})
    hip.replace(hip.find(from), std::strlen(from), to);
  const std::string source = shared_sums(grid_target("HIP", {"fma"}));
  EXPECT_EQ(source.substr(source.find("extern")), hip);
  EXPECT_EQ(source.find("#ifndef __launch_bounds__"), 0u);
}

TEST(Dialects, MetalGrid) {
  EXPECT_EQ(shared_sums(grid_target("METAL", {"fma"})),
            R"(#include <metal_stdlib>
using namespace metal;

#pragma METAL fp contract(off)

[[max_total_threads_per_threadgroup(4)]] kernel void r_2_4(device float* data0, device const float* )"
            R"(data1, uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]) {
)" + shared_sums_body("threadgroup float buf0[4];", "gid.x", "lid.x",
                      "threadgroup_barrier(mem_flags::mem_threadgroup);"));
}

/// Where a thread runs one iteration of the outermost loop, kernels have vectors and no groups.
TEST(Dialects, OpenClLanes) {
  EXPECT_EQ(source(elementwise(4, 16), opencl_lanes(), {{OptOp::kVector, 1, 8}, {OptOp::kThread, 0, 0}}),
            std::string(kOpenClHead) +
                R"(__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void E_4_2_8(__global char* memory0, )"
                R"(__global char* memory1, __global char* memory2, const long offset0, const long offset1, const long )"
                R"(offset2) {
  __global float* restrict data0 = (__global float*)(memory0 + offset0);
  __global const float* restrict data1 = (__global const float*)(memory1 + offset1);
  __global const float* restrict data2 = (__global const float*)(memory2 + offset2);
  const int tidx0 = get_global_id(0);
  int alu0 = tidx0 * 16;
  for (int idx1 = 0; idx1 < 2; idx1++) {
    int alu1 = idx1 * 8;
    int alu2 = alu1 + alu0;
    float8 val0 = vload8(0, data1 + alu2);
    float8 val1 = vload8(0, data2 + alu1);
    vstore8(val0 * val1 + val0, 0, data0 + alu2);
  }
}
)");
}

/// Lanes of vectors that are not all wanted: an instruction where the driver compiles for AVX-512, else a look at all.
TEST(Dialects, OpenClMaskedLanes) {
  const std::vector<Opt> opts = {{OptOp::kPadTo, 1, 16}, {OptOp::kVector, 1, 8}};
  const std::string text =
      source(reduce_rows(3, 10, Ops::MAX), opencl_lanes(), opts) + source(elementwise(3, 10), opencl_lanes(), opts);
  for (const char* part :
       {"static inline float8 load_masked_global_f32x8(__global const float* p, int8 m, float8 r) {\n"
        "#if defined(__AVX512DQ__) && defined(__AVX512VL__)\n"
        "  return as_float8(__builtin_ia32_loaddqusi256_mask((const int8*)(ulong)p, as_int8(r), "
        "__builtin_ia32_cvtd2mask256(m)));\n"
        "#else\n  if (all_i32x8(m)) return vload8(0, p);\n  if (m.s0) r.s0 = p[0];\n",
        "  __builtin_ia32_storedqusi256_mask((int8*)(ulong)p, as_int8(v), __builtin_ia32_cvtd2mask256(m));\n"
        "#else\n  if (all_i32x8(m)) {\n    vstore8(v, 0, p);\n    return;\n  }\n  if (m.s0) p[0] = v.s0;\n"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// A result larger than the caches goes past them and the next row is fetched, as on the CPU; in a grid neither.
TEST(Dialects, OpenClCacheHints) {
  Target lanes = opencl_lanes(64);
  lanes.features.emplace_back("x86_64");
  const std::string text = to_program(*softmax(4096, 4096), *make_renderer(lanes), CodegenOptions())->source;
  for (const char* part :
       {"  if (whole) __builtin_nontemporal_store(v, (__global float16*)p);\n  else\n#endif\n"
        "  vstore16(v, 0, p);\n",
        ", !((unsigned long)data0 % 64), ", "  __builtin_prefetch((const void*)p);\n", "fetch_line((ulong)(data1 + "})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string grid = to_program(*softmax(4096, 4096), *make_renderer(opencl_groups()), CodegenOptions())->source;
  EXPECT_EQ(grid.find("__builtin"), std::string::npos) << grid;
}

TEST(Dialects, TypesAreThoseOfTheDevice) {
  const auto plain = make_renderer(grid_target("OPENCL", {"workgroups"})),
             full = make_renderer(grid_target("OPENCL", {"fp16", "fp64"}));
  for (DType d : {dtypes::float16, dtypes::float64}) {
    EXPECT_FALSE(plain->supports(d)) << d;
    EXPECT_TRUE(full->supports(d)) << d;
  }
  EXPECT_FALSE(plain->supports(dtypes::bfloat16));
  EXPECT_FALSE(make_renderer(grid_target("METAL"))->supports(dtypes::float64));
  EXPECT_TRUE(make_renderer(grid_target("METAL"))->supports(dtypes::int64));
}

TEST(Dialects, LanesAreThoseOfTheLanguage) {
  EXPECT_EQ(make_renderer(opencl_lanes(64))->max_lanes(dtypes::float32), 16);
  EXPECT_EQ(make_renderer(opencl_lanes(64))->max_lanes(dtypes::int8), 16);
  EXPECT_EQ(make_renderer(grid_target("CUDA"))->max_lanes(dtypes::float32), 1);
}

/// Halves are rounded after each operation, whichever functions a language has for them.
TEST(Dialects, HalvesThroughFloats) {
  KernelMaker k;
  UOp a = k.param(1, 8, dtypes::float16), o = k.param(0, 8, dtypes::float16), i = k.loop(8);
  UOp x = UOp::alu(Ops::SQRT, {a.index({i}).load()});
  CodegenOptions options;
  options.noopt = true;
  const KernelPtr kernel = k.finish(o.index({i}).store(x).end(UOps{i}));
  const std::string cl =
      to_program(*kernel, *make_renderer(grid_target("OPENCL", {"fp16", "workgroups"})), options)->source;
  EXPECT_NE(cl.find("(half)sqrt((float)val0)"), std::string::npos) << cl;
  const std::string cuda = to_program(*kernel, *make_renderer(grid_target("CUDA", {"fp16"})), options)->source;
  EXPECT_EQ(cuda.find("#include <cuda_fp16.h>"), 0u) << cuda;
  EXPECT_NE(cuda.find("(__half)sqrtf((float)val0)"), std::string::npos) << cuda;
}

/// PoCL's fmod of float64 is not exact, as OpenCL demands.
TEST(Dialects, OpenClRemainders) {
  for (DType d : {dtypes::float32, dtypes::float64}) {
    KernelMaker k;
    UOp a = k.param(1, 8, d), b = k.param(2, 8, d), o = k.param(0, 8, d), i = k.loop(8);
    UOp x = UOp::alu(Ops::CMOD, {a.index({i}).load(), b.index({i}).load()});
    const std::string text =
        source(k.finish(o.index({i}).store(x).end(UOps{i})), opencl_lanes(), {{OptOp::kVector, 0, 4}});
    const bool own = text.find("remainder_f64x4(val0, val1)") != std::string::npos;
    EXPECT_EQ(own, d == dtypes::float64) << text;
    EXPECT_EQ(text.find("fmod(val0, val1)") != std::string::npos, !own) << text;
  }
}

/// Variables are 64 bits wide in a launch, whatever they are in a kernel.
TEST(Dialects, VariablesAreWide) {
  KernelMaker k;
  UOp n = UOp::variable("half", 1, 8), a = k.param(1, 8), o = k.param(0, 8),
      i = UOp::range(n, RangeArg{{0}, AxisType::kLoop});
  CodegenOptions options;
  options.noopt = true;
  const KernelPtr kernel = k.finish(o.index({i}).store(a.index({i}).load()).end(UOps{i}));
  const std::string cl = to_program(*kernel, *make_renderer(opencl_groups()), options)->source;
  EXPECT_NE(cl.find("const long offset1, const long var_half_given) {"), std::string::npos) << cl;
  EXPECT_NE(cl.find("const int var_half = var_half_given;"), std::string::npos) << cl;
  const std::string metal = to_program(*kernel, *make_renderer(grid_target("METAL")), options)->source;
  EXPECT_NE(metal.find("constant long& var_half_given"), std::string::npos) << metal;
}
}  // namespace
}  // namespace tg
