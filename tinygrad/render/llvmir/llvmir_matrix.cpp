/// \file LLVM IR of grids: what threads of a warp give each other, and matrix instructions, as PTX.
#include "tinygrad/render/llvmir/llvmir_writer.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {
namespace {
/// Returns "{$4, $5}": operands of inline assembly.
std::string numbered(int from, int count) {
  std::string s;
  for (int i = 0; i < count; i++) s += str(i ? ", $" : "$", from + i);
  return "{" + s + "}";
}
/// Returns `n` copies of an item, separated by commas: blanks behind these are part of a constraint.
std::string repeated(const std::string& item, int n) {
  std::string s;
  for (int i = 0; i < n; i++) s += (i ? "," : "") + item;
  return s;
}
/// Returns the type of n registers as inline assembly gives them.
std::string registers_type(const std::string& t, int n) { return n == 1 ? t : "{ " + repeated(t, n) + " }"; }
}  // namespace

/// Returns the address of an element of the group's memory in 32 bits, without the constant, and that in bytes.
std::pair<std::string, int64_t> LlvmWriter::group_address(const MemAccess& a, DType d) {
  const auto [pointer, offset] = start(a, d);
  const std::string group = emit("addrspacecast ptr " + pointer + " to ptr addrspace(3)");
  return {emit("ptrtoint ptr addrspace(3) " + group + " to i32"), offset * d.itemsize()};
}

/// Writes a value of another thread of the warp, word by word.
void LlvmWriter::shuffle_across(UOp u) {
  const DType d = u.dtype();
  const int bits = d.is_bool() ? 1 : d.itemsize() * 8, words = bits > 32 ? 2 : 1;
  const std::string own = value(u.src(0), 1), whole = "i" + str(bits), t = type(d);
  declare("declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)");
  std::string raw = d.is_float() ? emit("bitcast " + t + " " + own + " to " + whole) : own, out;
  for (int w = 0; w < words; w++) {
    std::string word = raw;
    if (w) word = emit("lshr " + whole + " " + word + ", 32");
    if (bits != 32) word = emit(str(bits > 32 ? "trunc " : "zext ", whole, " ", word, " to i32"));
    word =
        emit("call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 " + word + ", i32 " + str(u.int_arg()) + ", i32 31)");
    if (bits != 32) word = emit(str(bits > 32 ? "zext i32 " : "trunc i32 ", word, " to ", whole));
    if (w) word = emit("or " + whole + " " + out + ", " + emit("shl " + whole + " " + word + ", 32"));
    out = word;
  }
  values_[static_cast<size_t>(view_.position(u))] =
      d.is_float() ? emit("bitcast " + whole + " " + out + " to " + t) : out;
}

/// Writes a load of matrices by a warp.
void LlvmWriter::matrix_load(UOp u) {
  const MemAccess a = view_.access(u.src(0));
  const int n = matrix_registers(u);
  const auto [at, offset] = group_address(a, a.base.dtype());
  values_[static_cast<size_t>(view_.position(u))] =
      emit(str("call ", registers_type("i32", n), " asm sideeffect \"ldmatrix.sync.aligned.m8n8.", u.arg<std::string>(),
               ".shared.b16 ", numbered(0, n), ", [$", n, "+", offset, "];\", \"", repeated("=r", n),
               ",r,~{memory}\"(i32 ", at, ") convergent nounwind"));
}

/// Writes one matrix instruction; its result is a struct of a thread's registers.
void LlvmWriter::product(UOp u) {
  const TensorCore* core = find_tensor_core(u.arg<std::string>());
  TG_ASSERT(grid_ && core && !core->reads_memory(), "no matrix instruction of this name in PTX: ", u);
  const int a = fragment_registers(core->layout[0]), b = fragment_registers(core->layout[1]),
            c = fragment_registers(core->layout[2]);
  const std::string sum = type(u.dtype()), constraint = u.dtype().is_float() ? "f" : "r";
  std::string operands, constraints = repeated("=" + constraint, c) + "," + repeated("r", a + b);
  for (int i = 0; i < a + b + c; i++) {
    const UOp source = u.src(static_cast<size_t>(i));
    std::string v = value(source, 1);
    if (i < a + b && source.dtype().is_float()) v = emit("bitcast " + type(source.dtype()) + " " + v + " to i32");
    operands += str(i ? ", " : "", i < a + b ? "i32 " : sum + " ", v);
    if (i >= a + b) constraints += str(",", i - a - b);
  }
  values_[static_cast<size_t>(view_.position(u))] =
      emit(str("call ", registers_type(sum, c), " asm \"", core->text, " ", numbered(0, c), ", ", numbered(c, a), ", ",
               numbered(c + a, b), ", ", numbered(0, c), ";\", \"", constraints, "\"(", operands,
               ") convergent nounwind memory(none)"));
  if (core->a.is_fp8() || core->b.is_fp8()) newest_ = true;
}

/// Takes a register of what an instruction gave.
void LlvmWriter::element(UOp u) {
  const UOp source = u.src(0);
  const std::string& all = values_[static_cast<size_t>(view_.position(source))];
  const bool product = source.is(Ops::WMMA);
  const int n =
      product ? fragment_registers(find_tensor_core(source.arg<std::string>())->layout[2]) : matrix_registers(source);
  values_[static_cast<size_t>(view_.position(u))] =
      n == 1 ? all : emit(str("extractvalue ", registers_type(type(u.dtype()), n), " ", all, ", ", u.int_arg()));
}

}  // namespace tg
