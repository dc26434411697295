/// \file LLVM IR of kernels that run as grids on NVIDIA's GPUs, for LLVM's NVPTX target.
#include "tinygrad/render/llvmir/llvmir_writer.h"
#include "tinygrad/render/llvmir/ptx.h"

namespace tg {
namespace {
constexpr const char* kAxes[] = {"x", "y", "z"};
}  // namespace

OpSet PtxRenderer::ops() const {
  using enum Ops;
  return ADD | MUL | SUB | NEG | FDIV | SHL | SHR | CDIV | CMOD | MAX | CMPLT | CMPNE | CMPEQ | XOR | OR | AND | WHERE |
         SQRT | TRUNC | MULACC;
}
bool PtxRenderer::supports(DType d) const {
  return d != dtypes::bfloat16 && !d.is_fp8() && !d.is_weak() && !d.is_void();
}
std::string PtxRenderer::render(const Program& p) const {
  ArenaScope scope(*p.arena);
  return LlvmWriter(p, target(), /*grid=*/true).write();
}

/// All buffers, then all variables in 64 bits, used or not. Nothing writes what is only read.
std::string LlvmWriter::grid_head() const {
  std::string parameters;
  for (int i = 0; i < p_.nbuffers; i++)
    parameters += str(i ? ", " : "", "ptr addrspace(1)", p_.writes[static_cast<size_t>(i)] ? "" : " noalias readonly",
                      " %global", i);
  for (size_t i = 0; i < p_.vars.size(); i++) parameters += str(parameters.empty() ? "" : ", ", "i64 %var", i);
  return "define ptx_kernel void @" + p_.name + "(" + parameters + ")";
}

/// Tells the code generator what a kernel is, and how many threads its group has at most.
std::string LlvmWriter::grid_metadata() {
  std::string lines, all;
  const auto note = [&](const char* what, int64_t n) {
    lines += str("!", next_metadata_, " = !{ptr @", p_.name, ", !\"", what, "\", i32 ", n, "}\n");
    all += str(all.empty() ? "!" : ", !", next_metadata_++);
  };
  note("kernel", 1);
  for (size_t i = 0; i < 3; i++) {
    const UOp size = p_.local_size[i];
    if (!size || size.is_const())
      note(str("maxntid", kAxes[i]).c_str(), size ? static_cast<int64_t>(size.const_int()) : 1);
  }
  return lines + "!nvvm.annotations = !{" + all + "}\n";
}

/// Declares memory that a group shares; the code generator finds its address space again.
std::string LlvmWriter::group_buffer(UOp u) {
  const int at = view_.position(u);
  globals_ += str("@group", at, " = internal addrspace(3) global [", storage_size(u), " x ", memory_type(u.dtype()),
                  "] undef, align 16\n");
  entry_ += str("  %m", at, " = addrspacecast ptr addrspace(3) @group", at, " to ptr\n");
  return str("%m", at);
}

void LlvmWriter::grid_index(UOp u) {
  const std::string& arg = u.arg<std::string>();
  const size_t axis = arg.empty() ? 3 : static_cast<size_t>(arg.back() - '0');
  TG_ASSERT(grid_ && axis < 3, "an index of a grid in a kernel without one: ", u);
  const std::string name = str("@llvm.nvvm.read.ptx.sreg.", arg[0] == 'g' ? "ctaid." : "tid.", kAxes[axis]);
  declare("declare i32 " + name + "()");
  std::string index = emit("call i32 " + name + "()");
  if (u.dtype().itemsize() == 8) index = emit("zext i32 " + index + " to i64");
  values_[static_cast<size_t>(view_.position(u))] = index;
}

void LlvmWriter::barrier() {
  TG_ASSERT(grid_, "a BARRIER in a kernel without groups");
  declare("declare void @llvm.nvvm.barrier0()");
  line("call void @llvm.nvvm.barrier0()");
}

}  // namespace tg
