/// \file Renderers of C and its relatives: one writer, and a table of the names in a language.
#pragma once
#include <array>
#include <string_view>

#include "tinygrad/target/renderer.h"

namespace tg {

/// How a language writes vectors: not at all, as clang's ext_vector_type with its builtins, or as OpenCL C does.
enum class VectorSyntax { kNone, kExtended, kOpenCl };

/// How a language writes matrix instructions that threads share: not at all, as inline assembly on registers, as a
/// function of vectors, or as objects of Metal.
enum class MatrixSyntax { kNone, kAssembly, kFunction, kSimdgroup };

/// The names in one C-like language. Views must outlive the renderer.
struct CStyle {
  std::array<std::string_view, static_cast<size_t>(DTypeId::kCount)>
      types{};  ///< scalar types by DTypeId; empty: the language lacks it
  std::array<std::string_view, static_cast<size_t>(DTypeId::kCount)>
      needs{};                      ///< the feature of a target without which it lacks a type; empty: none
  std::string_view prologue;        ///< text in front of everything
  std::string_view half_header;     ///< text in front of everything of a kernel with float16
  std::string_view byte;            ///< how bool is stored
  std::string_view function;        ///< text before a kernel's name: $x, $y, $z threads of its group, $n in all
  std::string_view helper;          ///< text before the result type of functions the kernel calls
  std::string_view pointer;         ///< text before a parameter's type ("__global ")
  std::string_view variable;        ///< a variable as a parameter, $v its name: always 64 bits wide
  std::string_view grid_parameter;  ///< what follows the parameters, where the indices of the grid are one; else empty
  std::string_view restrict_word;   ///< text before a parameter's name
  std::string_view scratch;         ///< text before a declaration of scratch memory ("__shared__ ")
  std::string_view aligned;         ///< text behind a declaration of scratch memory
  std::string_view loop;            ///< a line before each loop; empty: none
  int64_t static_scratch = 0;       ///< bytes of it that declarations may have; more is one block, of the size that the
                                    ///< launch gives. 0: any number
  std::string_view barrier;         ///< statement that waits for the group; empty: the language has no groups
  std::string_view inf[2], nan[2];  ///< of float32, of float64
  std::string_view long_suffix = "L";  ///< of 64-bit literals
  std::string_view math_prefix;        ///< before sqrt, trunc, fma, fmod
  std::string_view math_suffix[3];     ///< ... and after, by type: float16, float32, float64
  /// Functions of float32 that the device has, within 4 ulp for every argument: sin reduces large ones exactly. Empty
  /// ones are computed from sums and products. Only for languages without float64.
  std::string_view exp2{}, log2{}, sin{};
  std::string_view bits;  ///< body of a function that returns the bits of x as the type $t
  std::array<std::string_view, 3> group_index{}, local_index{};  ///< of SPECIAL gidx0.., lidx0..; empty: no grid
  /// Statement that moves 16 bytes from `from` + `offset` to `to`, in the group's memory; empty: such copies are not in
  /// its programs. The second one, on targets with "async_copy", goes on behind it, until `copy_wait`.
  std::string_view copy[2]{};
  /// The same on targets with "buffers": $p is the parameter, $t the bytes that the thread adds, $s those that threads
  /// of a group share.
  std::string_view buffer_copy{};
  std::string_view copy_wait{};
  /// Statements that make a group of all such copies since the last one, and that wait until all but the last $n groups
  /// are done.
  std::string_view copy_end{}, copy_wait_but{};
  /// Statement behind which instructions that read matrices from memory find what the thread has stored there.
  std::string_view matrix_fence{};
  /// Statement behind which a compiler knows nothing of the pointer $p, so that it stays in registers; empty: it may.
  std::string_view kept_pointer{};
  std::string_view global{};   ///< qualifier of pointers to parameters, for copies and words of narrow elements
  int64_t unrolled = 1;        ///< iterations of a loop over matrix instructions that are written out, at most
  bool aligned_copies = true;  ///< both need an address that is a multiple of 16
  /// Statements that move what is side by side at `p` to `r`, a struct, and what is in `v` to `p`. $w is a word as long
  /// as that, from `words` by their bytes: 4, 8, 16. Both empty: by the functions of OpenCL's vectors, or not at all.
  std::string_view load_run{}, store_run{};
  std::string_view words[3]{};
  int64_t run_bytes = 0;  ///< Renderer::run_bytes
  /// Body of a function that returns the `x`, of type $t, of the thread whose number differs in `bits`.
  std::string_view shuffle{};
  std::string_view sampler{};         ///< text in front of kernels that read images
  std::string_view image_types[2]{};  ///< of parameters: images that are read, images that are written; empty: none
  std::string_view read_pixel{}, write_pixel{};  ///< of the image $p, at $x, $y; a statement that writes the vector $v
  std::string_view thread_index;  ///< expression of the THREAD range where each thread runs one iteration of it
  VectorSyntax vectors = VectorSyntax::kNone;
  bool exact_fmod64 = true;  ///< fmod of float64 is exact; else a function of the kernel computes it
  MatrixSyntax matrices = MatrixSyntax::kNone;
  bool half_functions = false;  ///< has sqrt, trunc, ... of float16; else they are computed in float32
  bool buffer_offsets = false;  ///< handles are no addresses: an offset in bytes follows for each, behind all of them
  bool host_entry = false;      ///< the kernel is called with (buffers, vars, begin, end), see docs/ir.md
};

const CStyle& clang_style();   ///< C for clang
const CStyle& opencl_style();  ///< OpenCL C 1.2 with the extensions that the target names as features: "fp16", "fp64"
const CStyle& cuda_style();    ///< CUDA C++ as NVRTC compiles it; float16 needs CUDA's header cuda_fp16.h
const CStyle& hip_style();     ///< HIP C++ as HIPRTC compiles it, which is clang
const CStyle& metal_style();   ///< Metal Shading Language 2.3, which has no float64

/// Writes readable C. Deterministic: equal programs give equal text. A value that is used once becomes part of its
/// user, others are named: val (loaded), alu (computed), acc (registers), buf (scratch), data (parameters), idx, ridx,
/// tidx (loops). A vector of bools is a mask: integers of 0 and -1, as wide as what was compared.
///
/// A kernel of a grid takes its buffers, their offsets where handles are no addresses, and its variables as 64-bit
/// integers, each in the order of the program.
///
/// Assumes that the memory of a written parameter overlaps no other parameter, and no alignment beyond that of an
/// element.
class CStyleRenderer : public Renderer {
 public:
  CStyleRenderer(Target t, const CStyle& style) : Renderer(std::move(t)), style_(style) {}
  OpSet ops() const override;
  bool supports(DType d) const override;
  std::string render(const Program& p) const override;

 protected:
  const CStyle& style() const { return style_; }

 private:
  const CStyle& style_;
};

/// C for clang 16 or newer on host processors (14 or newer without float16). Assumes of memory, and means by each
/// operation, what the LLVM renderer does.
class ClangRenderer final : public CStyleRenderer {
 public:
  explicit ClangRenderer(Target t) : CStyleRenderer(std::move(t), clang_style()) {}
  bool has_threads() const override { return true; }
  bool has_prefetch() const override { return true; }
  bool has_blocks() const override { return false; }
  std::vector<const TensorCore*> tensor_cores() const override { return tensor_cores_of(target()); }
};

/// A language of kernels that many threads run. Where the language allows it and the target has no feature
/// "workgroups", as a processor that runs OpenCL, kernels are those of a host: each thread runs one iteration of the
/// THREAD range, with vectors. Everywhere else they are grids of workgroups.
class GridRenderer : public CStyleRenderer {
 public:
  using CStyleRenderer::CStyleRenderer;
  bool has_locals() const override { return style().thread_index.empty() || target().has("workgroups"); }
  bool has_threads() const override { return !has_locals(); }
  bool has_blocks() const override { return false; }
  int64_t run_bytes() const override { return has_locals() ? style().run_bytes : 0; }
  int64_t scratch_limit() const override { return target().shared_bytes; }
  std::vector<const TensorCore*> tensor_cores() const override {
    return has_locals() ? tensor_cores_of(target()) : std::vector<const TensorCore*>{};
  }
  int max_lanes(DType d) const override;
};

}  // namespace tg
