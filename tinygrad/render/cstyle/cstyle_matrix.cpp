/// \file C-like languages: matrix instructions that threads share, and what they give each other.
#include <algorithm>

#include "tinygrad/render/cstyle/cstyle_writer.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
std::string listed(const std::vector<std::string>& items, size_t begin, size_t end) {
  std::string s;
  for (size_t i = begin; i < end; i++) s += (i > begin ? ", " : "") + items[i];
  return s;
}
/// Returns "{%4, %5}": operands of inline assembly.
std::string numbered(int from, int count) {
  std::string s;
  for (int i = 0; i < count; i++) s += str(i ? ", %" : "%", from + i);
  return "{" + s + "}";
}
}  // namespace

/// Writes a value of another thread of the warp. It gets a name where it stands: all threads compute it.
void CStyleWriter::shuffle(UOp u) {
  TG_ASSERT(!style_.shuffle.empty(), "a shuffle in a language without: ", u);
  const DType d = u.dtype();
  const std::string name = "shuffle_" + tag(d, 1), t = scalar(d);
  if (helper(name)) helper_text(t + " " + name + "(" + t + " x, unsigned bits)", filled_in(style_.shuffle, {{'t', t}}));
  const Expr x = value(u.src(0), 1), bits{std::to_string(u.int_arg()), kPostfix, true, {}};
  Slot& s = values_[static_cast<size_t>(view_.position(u))];
  s.expr = call(name, {&x, &bits});
  s.type = t;
  give_name(s);
}

/// Writes a load of matrices by a warp; its registers get names of their own.
void CStyleWriter::matrix_load(UOp u) {
  TG_ASSERT(style_.matrices == MatrixSyntax::kAssembly, "a load of matrices in a language without: ", u);
  const MemAccess a = view_.access(u.src(0));
  const std::string name = storage_[static_cast<size_t>(view_.position(u))] = fresh("rows");
  const int n = matrix_registers(u);
  std::string declared, outputs;
  for (int i = 0; i < n; i++) {
    const std::string own = str(name, "_", i);
    declared += (i ? ", " : "unsigned ") + own;
    outputs += str(i ? ", " : "", "\"=r\"(", own, ")");
  }
  const std::string at = address(a, a.base.dtype(), value(a.index, 1)).text;
  line(declared + ";");
  line(str("asm volatile(\"ldmatrix.sync.aligned.m8n8.", u.arg<std::string>(), ".shared.b16 ", numbered(0, n), ", [%",
           n, "];\" : ", outputs, " : \"r\"((unsigned)__cvta_generic_to_shared(", at, ")) : \"memory\");"));
}

/// Declares the descriptors of what begins with the group's memory: all others are some units of 16 bytes further.
void CStyleWriter::declare_matrices() {
  for (const Inst& in : view_.insts()) {
    if (!is_matrix_descriptor(in.u)) continue;
    TG_ASSERT(style_.matrices == MatrixSyntax::kAssembly, "a matrix in memory in a language without: ", in.u);
    const std::string text = first_matrix(in.u);
    if (std::any_of(matrices_.begin(), matrices_.end(), [&](const auto& m) { return m.first == text; })) continue;
    matrices_.emplace_back(text, fresh("matrices"));
    line(str("const ", scalar(dtypes::uint64), " ", matrices_.back().second, " = ", text, ";"));
  }
}
/// Writes the descriptor of the first matrix. Above the address of the memory of a group are the bits of its number in
/// its cluster, which are those of other fields of a descriptor.
std::string CStyleWriter::first_matrix(UOp u) const {
  const MemAccess a = view_.access(u.src(0));
  return str("(unsigned)__cvta_generic_to_shared(", storage_[static_cast<size_t>(view_.position(a.base))], ") / ",
             kMatrixPart, " & ", kMatrixField, " | ", SharedMatrix::from_text(u.arg<std::string>()).descriptor(0), "u",
             style_.long_suffix);
}
/// Writes the descriptor of a matrix in memory.
void CStyleWriter::matrix_descriptor(UOp u) {
  const MemAccess a = view_.access(u.src(0));
  const std::string text = first_matrix(u);
  const auto first = std::find_if(matrices_.begin(), matrices_.end(), [&](const auto& m) { return m.first == text; });
  const Expr index = value(a.index, 1);
  const int64_t each = kMatrixPart / a.base.dtype().itemsize();
  define(u, false, join(str(first->second, " + (unsigned)", wrap(index, kPostfix), " / ", each, "u"), kAdd, {&index}),
         scalar(dtypes::uint64));
}

/// Writes one instruction; its result gets names of its own.
void CStyleWriter::product(UOp u) {
  const TensorCore* core = find_tensor_core(u.arg<std::string>());
  TG_ASSERT(core, "no matrix instruction of this name: ", u);
  std::vector<std::string> operands;
  for (UOp s : u.srcs()) operands.push_back(value(s, 1).text);
  const std::string name = storage_[static_cast<size_t>(view_.position(u))] = fresh("product");
  if (core->reads_memory()) return product_of_memory(u, *core, name, operands);
  if (core->multiply_adds()) return product_by_multiply_adds(*core, name, operands);
  switch (style_.matrices) {
    case MatrixSyntax::kAssembly: return product_in_assembly(*core, name, operands, u.dtype());
    case MatrixSyntax::kFunction: return product_by_function(*core, name, operands, u.dtype());
    case MatrixSyntax::kSimdgroup: return product_of_simdgroup(*core, name, operands);
    case MatrixSyntax::kNone: break;
  }
  TG_ASSERT(false, "a matrix instruction in a language without: ", u);
}

/// Writes the multiply-adds of a thread: each of its results by all steps of the sum.
void CStyleWriter::product_by_multiply_adds(const TensorCore& core, const std::string& name,
                                            const std::vector<std::string>& operands) {
  const int a = fragment_registers(core.layout[0]), b = fragment_registers(core.layout[1]),
            c = fragment_registers(core.layout[2]);
  std::string factors, declared;
  for (int i = 0; i < a + b; i++)
    factors += str(i ? ", " : "", name, "_of_", i, " = ", operands[static_cast<size_t>(i)]);
  for (int i = 0; i < c; i++)
    declared += str(i ? ", " : "", name, "_", i, " = ", operands[static_cast<size_t>(a + b + i)]);
  line("const " + scalar(core.a) + " " + factors + ";");
  line(scalar(core.out) + " " + declared + ";");
  for (int x = 0; x < a; x++)
    for (int y = 0; y < b; y++) {
      const FragmentElement row = fragment_element(core.layout[0], 0, x),
                            column = fragment_element(core.layout[1], 0, y);
      if (row.k != column.k) continue;
      for (int i = 0; i < c; i++) {
        const FragmentElement result = fragment_element(core.layout[2], 0, i);
        if (result.m != row.m || result.n != column.n) continue;
        line(str(name, "_", i, " = ", style_.math_prefix, "fmaf(", name, "_of_", x, ", ", name, "_of_", a + y, ", ",
                 name, "_", i, ");"));
      }
    }
}

void CStyleWriter::product_in_assembly(const TensorCore& core, const std::string& name,
                                       const std::vector<std::string>& operands, DType d) {
  const int a = fragment_registers(core.layout[0]), b = fragment_registers(core.layout[1]),
            c = fragment_registers(core.layout[2]);
  const char* constraint = d.is_float() ? "f" : "r";
  std::string declared = scalar(d) + " ", outputs, inputs;
  for (int i = 0; i < c; i++) {
    const std::string own = str(name, "_", i);
    declared += str(i ? ", " : "", own, " = ", operands[static_cast<size_t>(a + b + i)]);
    outputs += str(i ? ", " : "", "\"+", constraint, "\"(", own, ")");
  }
  for (int i = 0; i < a + b; i++) {
    const std::string& text = operands[static_cast<size_t>(i)];
    inputs += str(i ? ", " : "", "\"r\"(", core.a == dtypes::float32 ? "__float_as_uint(" + text + ")" : text, ")");
  }
  line(declared + ";");
  line(str("asm(\"", core.text, " ", numbered(0, c), ", ", numbered(c, a), ", ", numbered(c + a, b), ", ",
           numbered(0, c), ";\" : ", outputs, " : ", inputs, ");"));
}

/// Writes an instruction that reads its factors from memory, and is done later: what has stored to its registers comes
/// first (wgmma.fence), and until the next wait nothing else may use them.
void CStyleWriter::product_of_memory(UOp u, const TensorCore& core, const std::string& name,
                                     const std::vector<std::string>& operands) {
  TG_ASSERT(style_.matrices == MatrixSyntax::kAssembly, "a product of memory in a language without: ", u);
  const auto c = static_cast<int>(operands.size()) - 2;
  std::string declared = scalar(u.dtype()) + " ", outputs;
  for (int i = 0; i < c; i++) {
    const std::string own = str(name, "_", i);
    declared += str(i ? ", " : "", own, " = ", operands[static_cast<size_t>(i) + 2]);
    outputs += str(i ? ", " : "", "\"+", u.dtype().is_float() ? "f" : "r", "\"(", own, ")");
  }
  line(declared + ";");
  // Factors are not negated; those of 16 bits may lie across the sum.
  std::string signs = core.out.is_float() ? ", 1, 1" : "";
  if (core.a.itemsize() == 2)
    for (size_t i = 0; i < 2; i++) signs += SharedMatrix::from_text(u.src(i).arg<std::string>()).across ? ", 1" : ", 0";
  line(str("asm volatile(\"{.reg .pred adds; setp.eq.u32 adds, 0, 0; ",
           products_run_ ? "" : "wgmma.fence.sync.aligned; ", core.text, " ", numbered(0, c), ", %", c, ", %", c + 1,
           ", adds", signs, ";}\" : ", outputs, " : \"l\"(", operands[0], "), \"l\"(", operands[1],
           ") : \"memory\");"));
  products_run_ = true;
}

/// Ends a group of instructions that read memory, and waits until at most n groups are under way. What is done later
/// finds the registers as they are then: the compiler sees no other reason to wait.
void CStyleWriter::wait_for_products(UOp u) {
  line("asm volatile(\"wgmma.commit_group.sync.aligned;\" : : : \"memory\");");
  line(str("asm volatile(\"wgmma.wait_group.sync.aligned ", u.int_arg(), ";\" : : : \"memory\");"));
  for (const std::string& r : running_) line("asm volatile(\"\" : " + r + " : : \"memory\");");
  running_.clear();
  products_run_ = false;
}

/// Returns the name of a vector of n elements.
std::string CStyleWriter::matrix_type(const std::string& element, size_t n) {
  std::string name = "vec_" + element + std::to_string(n);
  if (helper(name)) helpers_ += str("typedef ", element, " ", name, " __attribute__((ext_vector_type(", n, ")));\n");
  return name;
}

void CStyleWriter::product_by_function(const TensorCore& core, const std::string& name,
                                       const std::vector<std::string>& operands, DType d) {
  const auto a = static_cast<size_t>(fragment_registers(core.layout[0])),
             b = static_cast<size_t>(fragment_registers(core.layout[1]));
  const std::string word = core.pack > 1 ? "unsigned" : scalar(core.a);
  std::string type = core.operand;
  if (const size_t blank = type.find(' '); blank != std::string::npos)
    type = matrix_type(type.substr(0, blank), static_cast<size_t>(std::stoul(type.substr(blank + 1))));
  auto factor = [&](size_t from, size_t to) {
    std::string words = listed(operands, from, to);
    if (to - from > 1) words = "(" + matrix_type(word, to - from) + "){" + words + "}";
    return type == word ? words : "__builtin_bit_cast(" + type + ", " + words + ")";
  };
  const std::string out = matrix_type(scalar(d), operands.size() - a - b);
  line(out + " " + name + " = " +
       filled_in(core.text, {{'a', factor(0, a)},
                             {'b', factor(a, a + b)},
                             {'c', "(" + out + "){" + listed(operands, a + b, operands.size()) + "}"}}) +
       ";");
}

void CStyleWriter::product_of_simdgroup(const TensorCore& core, const std::string& name,
                                        const std::vector<std::string>& operands) {
  const std::string matrices[3] = {name + "_a", name + "_b", name + "_c"};
  size_t at = 0;
  for (size_t i = 0; i < 3; i++) {
    line(str(i < 2 ? core.text : "simdgroup_float8x8", " ", matrices[i], ";"));
    for (int r = 0; r < fragment_registers(core.layout[i]); r++, at++)
      line(str(matrices[i], ".thread_elements()[", r, "] = ", operands[at], ";"));
  }
  line(str("simdgroup_multiply_accumulate(", matrices[2], ", ", matrices[0], ", ", matrices[1], ", ", matrices[2],
           ");"));
  line(str("thread auto& ", name, " = ", matrices[2], ".thread_elements();"));
}

}  // namespace tg
