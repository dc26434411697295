/// \file Program: a kernel through compilation, from linear UOps to source to machine code.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/target/target.h"
#include "tinygrad/uop/graph.h"

namespace tg {

/// A kernel AST with the arena that holds it; immutable and shared (schedule cache, program cache).
struct Kernel {
  ArenaRef arena;
  UOp sink;     ///< SINK with KernelInfo
  Hash128 key;  ///< sink's key
};
using KernelRef = std::shared_ptr<const Kernel>;

/// Work of one launch; counts are exact for concrete shapes, taken at the variables' maxima otherwise.
struct Estimates {
  double ops = 0;  ///< floating and integer operations outside index arithmetic; MULACC counts two
  double mem = 0;  ///< bytes of the buffers touched, each once
  double lds = 0;  ///< bytes loaded and stored, every access
};

/// Where the cycles that the cost model predicts for a kernel go.
struct CostAccount {
  struct Part {
    const char* what;  ///< a literal
    double cycles;
  };
  std::vector<Part> together;  ///< overlap: the longest of them counts
  std::vector<Part> besides;   ///< come in addition
  double factor = 1;           ///< times all of it: long bodies, waits for panels
};

/// How a kernel was planned.
struct PlanSummary {
  const char* variant = "";  ///< the row of the table (codegen/plan/variants.h) that chose the opts
  const char* form = "";     ///< the form of the kernel that the model takes to be the fastest
  double cycles = 0;         ///< predicted, one core; 0: the cost model was not asked
  CostAccount account{};     ///< of these, where CodegenOptions::account asks for it
};

struct Program {
  std::string name;  ///< function name: E_... elementwise, r_... with a reduce
  ArenaRef arena;    ///< holds `insts`
  UOp ast;           ///< the optimised kernel AST
  UOps insts;        ///< instructions in execution order, see docs/ir.md
  Opts applied_opts;
  PlanSummary plan;
  int nbuffers = 0;                   ///< kernel parameters, slots 0..nbuffers-1
  std::vector<bool> reads, writes;    ///< per slot
  std::vector<ImageSize> images;      ///< per slot; empty: there are no images
  std::vector<std::string> vars;      ///< names of scalar parameters, in the order they are passed
  UOp thread_extent;                  ///< end of the THREAD range (CONST or an expression of variables); empty: none
  UOp global_size[3], local_size[3];  ///< grid of GPU targets: groups, threads of a group; empty on a CPU
  int64_t shared_bytes = 0;           ///< memory of a workgroup, bytes
  Estimates estimates;
  std::string source;           ///< set by the renderer
  std::vector<uint8_t> binary;  ///< set by the compiler

  /// Returns `images` as launches take them: nullptr where there are none.
  const ImageSize* image_sizes() const { return images.empty() ? nullptr : images.data(); }
};

}  // namespace tg
