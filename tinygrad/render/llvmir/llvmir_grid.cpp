/// \file LLVM IR of kernels that run as grids on NVIDIA's GPUs, for LLVM's NVPTX target.
#include "tinygrad/render/llvmir/llvmir_writer.h"
#include "tinygrad/render/llvmir/ptx.h"
#include "tinygrad/uop/barriers.h"

namespace tg {
namespace {
constexpr const char* kAxes[] = {"x", "y", "z"};
constexpr int64_t kStaticBytes = 48 << 10;  // of the group's memory that declarations may have
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

/// Returns the bytes of all memory of a group, each buffer of which begins at a multiple of 16.
int64_t LlvmWriter::group_bytes() const {
  int64_t bytes = 0;
  for (const Inst& in : view_.insts())
    if (in.u.is(Ops::BUFFER) && in.u.arg<ParamArg>().addrspace == AddrSpace::kLocal)
      bytes += (storage_size(in.u) * in.u.dtype().itemsize() + 15) / 16 * 16;
  return bytes;
}

/// Declares memory that a group shares; the code generator finds its address space again. More than declarations may
/// have is one block, of the size that the launch gives.
std::string LlvmWriter::group_buffer(UOp u) {
  const int at = view_.position(u);
  const int64_t bytes = group_bytes();
  TG_CHECK(CompileError, bytes <= target_.shared_bytes, "[render] kernel ", p_.name, " needs ", bytes,
           " bytes of its group's memory, ", target_.device, " has ", target_.shared_bytes);
  if (bytes > kStaticBytes) {
    if (!group_offset_) {
      globals_ += "@group = external addrspace(3) global [0 x i8], align 16\n";
      entry_ += "  %group = addrspacecast ptr addrspace(3) @group to ptr\n";
    }
    entry_ += str("  %m", at, " = getelementptr i8, ptr %group, i64 ", group_offset_, "\n");
    group_offset_ += (storage_size(u) * u.dtype().itemsize() + 15) / 16 * 16;
  } else {
    globals_ += str("@group", at, " = internal addrspace(3) global [", storage_size(u), " x ", memory_type(u.dtype()),
                    "] undef, align 16\n");
    entry_ += str("  %m", at, " = addrspacecast ptr addrspace(3) @group", at, " to ptr\n");
  }
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

void LlvmWriter::barrier(UOp u) {
  TG_ASSERT(grid_ && !is_wait_for_products(u), "a BARRIER in a kernel without groups, or products of memory: ", u);
  const auto copies = [&](const std::string& instruction) {
    if (copies_later_) line("call void asm sideeffect \"" + instruction + ";\", \"~{memory}\"() nounwind");
  };
  if (ends_copies(u)) return copies("cp.async.commit_group");
  const int64_t n = copies_under_way(u);
  copies(n < 0 ? "cp.async.wait_all" : str("cp.async.wait_group ", n));
  declare("declare void @llvm.nvvm.barrier0()");
  line("call void @llvm.nvvm.barrier0()");
}

/// Writes the body of a kernel of a grid, twice where the alignment of parameters matters.
void LlvmWriter::write_grid() {
  aligned_parameters_ = tg::aligned_parameters(view_, accesses_.runs);
  copies_later_ = target_.has("async_copy") && std::any_of(view_.insts().begin(), view_.insts().end(),
                                                           [&](const Inst& in) { return is_copied(view_, in.u); });
  if (aligned_parameters_.empty()) return write_body();
  line("br i1 " + alignment_test() + ", label %Aligned, label %Elements");
  begin_block("Aligned");
  aligned_ = true;
  write_body();
  line("ret void");
  begin_block("Elements");
  aligned_ = false;
  part_ = "e";
  write_body();
}

}  // namespace tg
