/// \file C-like languages as tables: what each calls types, functions, qualifiers and the indices of a grid.
#include "tinygrad/render/cstyle/cstyle.h"

namespace tg {
namespace {
constexpr void name_type(CStyle& s, DTypeId d, std::string_view name, std::string_view needs = "") {
  s.types[static_cast<size_t>(d)] = name;
  s.needs[static_cast<size_t>(d)] = needs;
}
constexpr void name_integers(CStyle& s, std::string_view i8, std::string_view u8, std::string_view u16,
                             std::string_view u32, std::string_view i64, std::string_view u64) {
  name_type(s, DTypeId::kInt8, i8);
  name_type(s, DTypeId::kUInt8, u8);
  name_type(s, DTypeId::kInt16, "short");
  name_type(s, DTypeId::kUInt16, u16);
  name_type(s, DTypeId::kInt32, "int");
  name_type(s, DTypeId::kUInt32, u32);
  name_type(s, DTypeId::kInt64, i64);
  name_type(s, DTypeId::kUInt64, u64);
  s.byte = u8;
}
constexpr std::string_view kCopiedBits = "  $t r;\n  __builtin_memcpy(&r, &x, sizeof r);\n  return r;\n";

/// Infinities and NaN as clang's builtins.
constexpr void name_infinities(CStyle& s) {
  s.inf[0] = "__builtin_inff()";
  s.inf[1] = "__builtin_inf()";
  s.nan[0] = "__builtin_nanf(\"\")";
  s.nan[1] = "__builtin_nan(\"\")";
}

constexpr CStyle make_clang() {
  CStyle s;
  // int8 is char: comparing vectors of bytes gives vectors of that.
  name_integers(s, "char", "unsigned char", "unsigned short", "unsigned", "long", "unsigned long");
  name_type(s, DTypeId::kBool, "_Bool");
  name_type(s, DTypeId::kFloat16, "_Float16");
  name_type(s, DTypeId::kFloat32, "float");
  name_type(s, DTypeId::kFloat64, "double");
  s.prologue = "#define INLINE static inline __attribute__((always_inline))\n\n";
  s.helper = "INLINE ";
  s.restrict_word = "restrict ";
  s.aligned = " __attribute__((aligned(64)))";
  s.loop = "#pragma clang loop vectorize(disable) interleave(disable) unroll(disable)";
  name_infinities(s);
  s.math_prefix = "__builtin_";
  s.math_suffix[0] = "f16";
  s.math_suffix[1] = "f";
  s.bits = kCopiedBits;
  s.vectors = VectorSyntax::kExtended;
  s.half_functions = true;
  s.host_entry = true;
  return s;
}

constexpr CStyle make_opencl() {
  CStyle s;
  name_integers(s, "char", "uchar", "ushort", "uint", "long", "ulong");
  name_type(s, DTypeId::kBool, "bool");
  name_type(s, DTypeId::kFloat16, "half", "fp16");
  name_type(s, DTypeId::kFloat32, "float");
  name_type(s, DTypeId::kFloat64, "double", "fp64");
  s.prologue =
      "#pragma OPENCL FP_CONTRACT OFF\n"
      "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\n"
      "#ifdef cl_khr_fp16\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#endif\n"
      "#ifndef __has_builtin\n#define __has_builtin(x) 0\n#endif\n\n";
  s.function = "__kernel __attribute__((reqd_work_group_size($x, $y, $z))) void ";
  s.helper = "static inline ";
  s.pointer = "__global ";
  s.variable = "const long $v";
  s.restrict_word = "restrict ";
  s.scratch = "__local ";
  s.aligned = " __attribute__((aligned(64)))";
  s.barrier = "barrier(CLK_LOCAL_MEM_FENCE);";
  s.inf[0] = "INFINITY";
  s.inf[1] = "(double)INFINITY";
  s.nan[0] = "NAN";
  s.nan[1] = "(double)NAN";
  s.bits = "  return as_$t(x);\n";
  s.sampler = "__constant sampler_t pixels = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n\n";
  s.image_types[0] = "__read_only image2d_t ";
  s.image_types[1] = "__write_only image2d_t ";
  s.read_pixel = "read_imagef($p, pixels, (int2)($x, $y))";
  s.write_pixel = "write_imagef($p, (int2)($x, $y), $v);";
  s.thread_index = "get_global_id(0)";
  s.group_index = {"get_group_id(0)", "get_group_id(1)", "get_group_id(2)"};
  s.local_index = {"get_local_id(0)", "get_local_id(1)", "get_local_id(2)"};
  s.vectors = VectorSyntax::kOpenCl;
  s.run_bytes = 16;
  s.exact_fmod64 = false;  // as it should be, but PoCL's is not
  s.buffer_offsets = true;
  return s;
}

/// What CUDA C++ and HIP have in common.
constexpr CStyle make_cuda_like() {
  CStyle s;
  name_integers(s, "signed char", "unsigned char", "unsigned short", "unsigned", "long long", "unsigned long long");
  name_type(s, DTypeId::kBool, "bool");
  name_type(s, DTypeId::kFloat32, "float");
  name_type(s, DTypeId::kFloat64, "double");
  s.function = "extern \"C\" __global__ void __launch_bounds__($n) ";
  s.helper = "static __device__ __forceinline__ ";
  s.variable = "const long long $v";
  s.restrict_word = "__restrict__ ";
  s.scratch = "__shared__ ";
  s.aligned = " __attribute__((aligned(16)))";
  s.barrier = "__syncthreads();";
  s.inf[0] = "__int_as_float(0x7f800000)";
  s.inf[1] = "__longlong_as_double(0x7ff0000000000000LL)";
  s.nan[0] = "__int_as_float(0x7fc00000)";
  s.nan[1] = "__longlong_as_double(0x7ff8000000000000LL)";
  s.long_suffix = "LL";
  s.math_suffix[1] = "f";
  s.bits = "  $t r;\n  memcpy(&r, &x, sizeof r);\n  return r;\n";
  s.run_bytes = 16;
  s.load_run = "const $w w = *(const $w*)p; memcpy(&r, &w, sizeof r);";
  s.store_run = "$w w; memcpy(&w, &v, sizeof w); *($w*)p = w;";
  s.words[0] = "unsigned";
  s.words[1] = "uint2";
  s.words[2] = "uint4";
  s.group_index = {"blockIdx.x", "blockIdx.y", "blockIdx.z"};
  s.local_index = {"threadIdx.x", "threadIdx.y", "threadIdx.z"};
  return s;
}

constexpr CStyle make_cuda() {
  CStyle s = make_cuda_like();
  name_type(s, DTypeId::kFloat16, "__half", "fp16");
  s.half_header = "#include <cuda_fp16.h>\n\n";
  s.matrices = MatrixSyntax::kAssembly;
  s.shuffle = "  return __shfl_xor_sync(0xffffffffu, x, bits);\n";
  s.static_scratch = 48 << 10;
  s.copy[0] = "*(uint4*)to = *(const uint4*)((const char*)from + offset);";
  s.copy[1] = R"(asm volatile("cp.async.cg.shared.global [%0], [%1+%2], 16;" : : )"
              R"("r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "n"(offset) : "memory");)";
  s.kept_pointer = R"(asm("" : "+l"($p));)";
  s.unrolled = 4;
  s.copy_wait = R"(asm volatile("cp.async.wait_all;" : : : "memory");)";
  s.copy_end = R"(asm volatile("cp.async.commit_group;" : : : "memory");)";
  s.copy_wait_but = R"(asm volatile("cp.async.wait_group $n;" : : : "memory");)";
  s.matrix_fence = R"(asm volatile("fence.proxy.async.shared::cta;" : : : "memory");)";
  return s;
}

/// What HIP's headers define, for a clang without them.
constexpr std::string_view kHipNames = R"(#ifndef __launch_bounds__
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
static __device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#endif

)";

constexpr CStyle make_hip() {
  CStyle s = make_cuda_like();
  name_type(s, DTypeId::kFloat16, "_Float16");
  s.prologue = kHipNames;
  s.math_prefix = "__builtin_";
  s.math_suffix[0] = "f16";
  s.half_functions = true;
  s.matrices = MatrixSyntax::kFunction;
  s.shuffle = R"(  const unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
  int words[sizeof x / 4];
  __builtin_memcpy(words, &x, sizeof x);
  for (unsigned i = 0; i < sizeof x / 4; i++) words[i] = __builtin_amdgcn_ds_bpermute((lane ^ bits) << 2, words[i]);
  __builtin_memcpy(&x, words, sizeof x);
  return x;
)";
  s.copy[0] =
      "typedef unsigned words __attribute__((ext_vector_type(4), may_alias)); "
      "typedef words any_words __attribute__((aligned(1), may_alias, address_space(1))); "
      "*(words*)to = *(const any_words*)((const __attribute__((address_space(1))) char*)from + offset);";
  s.aligned_copies = false;
  s.load_run = "__builtin_memcpy(&r, p, sizeof r);";
  s.store_run = "__builtin_memcpy(p, &v, sizeof v);";
  s.global = "__attribute__((address_space(1))) ";
  s.unrolled = 4;
  s.buffer_copy =
      "*(__attribute__((ext_vector_type(4))) unsigned*)to = __builtin_amdgcn_raw_buffer_load_b128("
      "__builtin_amdgcn_make_buffer_rsrc((void*)$p, 0, -1, 0x27000), $t, $s, 0);";
  name_infinities(s);
  s.bits = kCopiedBits;
  s.group_index = {"__builtin_amdgcn_workgroup_id_x()", "__builtin_amdgcn_workgroup_id_y()",
                   "__builtin_amdgcn_workgroup_id_z()"};
  s.local_index = {"__builtin_amdgcn_workitem_id_x()", "__builtin_amdgcn_workitem_id_y()",
                   "__builtin_amdgcn_workitem_id_z()"};
  return s;
}

constexpr CStyle make_metal() {
  CStyle s;
  name_integers(s, "char", "uchar", "ushort", "uint", "long", "ulong");
  name_type(s, DTypeId::kBool, "bool");
  name_type(s, DTypeId::kFloat16, "half");
  name_type(s, DTypeId::kFloat32, "float");
  s.prologue = "#include <metal_stdlib>\nusing namespace metal;\n\n#pragma METAL fp contract(off)\n\n";
  s.function = "[[max_total_threads_per_threadgroup($n)]] kernel void ";
  s.helper = "static inline ";
  s.pointer = "device ";
  s.variable = "constant long& $v";
  s.grid_parameter = "uint3 gid [[threadgroup_position_in_grid]], uint3 lid [[thread_position_in_threadgroup]]";
  s.scratch = "threadgroup ";
  s.barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
  s.inf[0] = "INFINITY";
  s.nan[0] = "NAN";
  s.bits = "  return as_type<$t>(x);\n";
  s.group_index = {"gid.x", "gid.y", "gid.z"};
  s.local_index = {"lid.x", "lid.y", "lid.z"};
  s.matrices = MatrixSyntax::kSimdgroup;
  s.shuffle = "  return simd_shuffle_xor(x, ushort(bits));\n";
  return s;
}

constexpr CStyle kClang = make_clang(), kOpenCl = make_opencl(), kCuda = make_cuda(), kHip = make_hip(),
                 kMetal = make_metal();
}  // namespace

const CStyle& clang_style() { return kClang; }
const CStyle& opencl_style() { return kOpenCl; }
const CStyle& cuda_style() { return kCuda; }
const CStyle& hip_style() { return kHip; }
const CStyle& metal_style() { return kMetal; }

}  // namespace tg
