/// \file Codegen's face: a kernel AST becomes a Program of linear UOps with source. See docs/ir.md, sections 3 and 4.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/target/program.h"
#include "tinygrad/target/renderer.h"

namespace tg {

/// What decides the code of a kernel besides the kernel and the target. A value; its hash is part of every cache key.
struct CodegenOptions {
  bool noopt = false;  ///< scalar loops: no OptOps
  int beam = 0;        ///< width of the search; 0: the heuristic decides
  int tensor_cores =
      2;  ///< 0: none, 1: exact ones where they are faster, 2: also those that round differently, 3: those
          ///< that round factors as well
  int tensor_core = -1;              ///< only this one of the table; -1: any
  bool no_locals = false;            ///< no workgroups on targets that have them
  int transcendental = 1;            ///< 2: exp2, log2, sin and pow always in software
  bool reciprocal_division = false;  ///< x / c is x times the rounded reciprocal of the literal c
  std::optional<Opts> opts;          ///< these and no heuristic; KernelInfo::opts_to_apply goes before
  DTypeSet emulated;                 ///< types computed without, although the renderer has them
  bool account = false;              ///< Program::plan says where predicted cycles go; changes no code, and no hash
  std::string stop_after;  ///< name of the last pass to run: Program::ast is the graph it left, nothing is rendered

  /// NOOPT, BEAM, TC, TC_SELECT, ROUND_PRODUCTS, NOLOCALS, TRANSCENDENTAL, RECIPROCAL_DIV, EMULATED_DTYPES of the
  /// environment.
  static CodegenOptions from_env();
  Hash128 hash() const;
};

/// Compiles a kernel down to source (no target compiler runs). The Program owns an arena of its own; `kernel` is not
/// touched, so kernels may be compiled in parallel. Throws KernelOptError when `opts` do not fit the kernel,
/// InternalError when a stage's result breaks its spec (SPEC=1).
std::shared_ptr<Program> to_program(const Kernel& kernel, const Renderer& renderer,
                                    const CodegenOptions& options = CodegenOptions::from_env());

}  // namespace tg
