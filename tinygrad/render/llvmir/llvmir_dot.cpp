/// \file LLVM IR: dot products of packed words, by the processor's instruction for them.
#include "tinygrad/render/llvmir/llvmir_writer.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {
namespace {
/// Intrinsics of one instruction by the width of the vector: 128, 256, 512 bits.
struct DotForm {
  const char* name;
  const char* intrinsic[3];
  const char* element;  ///< of the operands' vectors; null: words of 32 bits
  bool adds;            ///< the instruction adds to its first operand
};
constexpr DotForm kForms[] = {
    {"vpdpbusd",
     {"llvm.x86.avx512.vpdpbusd.128", "llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx512.vpdpbusd.512"},
     nullptr,
     true},
    {"vpdpwssd",
     {"llvm.x86.avx512.vpdpwssd.128", "llvm.x86.avx512.vpdpwssd.256", "llvm.x86.avx512.vpdpwssd.512"},
     nullptr,
     true},
    {"vpmaddwd", {"llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd", "llvm.x86.avx512.pmaddw.d.512"}, "i16", false},
    {"vdpbf16ps",
     {"llvm.x86.avx512bf16.dpbf16ps.128", "llvm.x86.avx512bf16.dpbf16ps.256", "llvm.x86.avx512bf16.dpbf16ps.512"},
     "bfloat",
     true},
    {"sdot", {"llvm.aarch64.neon.sdot.v4i32.v16i8", nullptr, nullptr}, "i8", true},
    {"udot", {"llvm.aarch64.neon.udot.v4i32.v16i8", nullptr, nullptr}, "i8", true},
    {"usdot", {"llvm.aarch64.neon.usdot.v4i32.v16i8", nullptr, nullptr}, "i8", true},
    {"bfdot", {"llvm.aarch64.neon.bfdot.v4f32.v8bf16", nullptr, nullptr}, "bfloat", true},
};
std::string numbers(int from, int count) {
  std::string s = "<";
  for (int i = 0; i < count; i++) s += str(i ? ", " : "", "i32 ", from + i);
  return s + ">";
}
}  // namespace

/// Computes sum + a . b on vectors of 32-bit words; narrower or wider operands are widened or halved.
std::string LlvmWriter::dot(UOp u, const std::string& a, const std::string& b, const std::string& sum, int lanes) {
  const DType d = u.dtype(), word = dtypes::uint32;
  const std::string& name = u.arg<std::string>();
  const DotForm* form =
      std::find_if(std::begin(kForms), std::end(kForms), [&](const DotForm& f) { return name == f.name; });
  TG_ASSERT(form != std::end(kForms), "no intrinsic for ", name);
  const bool narrow = !form->intrinsic[1] || (name == "vpmaddwd" && !target_.has("avx2"));
  const int most = narrow ? 4 : std::max(4, target_.vector_bytes / 4);
  if (lanes < 4) {
    auto widened = [&](const std::string& v, DType t) {
      if (lanes == 1) return emit("insertelement " + type(t, 4) + " poison, " + type(t) + " " + v + ", i64 0");
      std::string mask = "<";
      for (int i = 0; i < 4; i++) mask += str(i ? ", " : "", "i32 ", std::min(i, lanes - 1));
      return emit("shufflevector " + type(t, lanes) + " " + v + ", " + type(t, lanes) + " poison, <4 x i32> " + mask +
                  ">");
    };
    const std::string r = dot(u, widened(a, word), widened(b, word), widened(sum, d), 4);
    if (lanes == 1) return emit("extractelement " + type(d, 4) + " " + r + ", i64 0");
    return emit("shufflevector " + type(d, 4) + " " + r + ", " + type(d, 4) + " poison, <" + str(lanes) + " x i32> " +
                numbers(0, lanes));
  }
  if (lanes > most) {
    const int half = lanes / 2;
    auto part = [&](const std::string& v, DType t, int from) {
      return emit("shufflevector " + type(t, lanes) + " " + v + ", " + type(t, lanes) + " poison, <" + str(half) +
                  " x i32> " + numbers(from, half));
    };
    std::string r[2];
    for (int i = 0; i < 2; i++)
      r[i] = dot(u, part(a, word, i * half), part(b, word, i * half), part(sum, d, i * half), half);
    const std::string t = type(d, half);
    return emit("shufflevector " + t + " " + r[0] + ", " + t + " " + r[1] + ", <" + str(lanes) + " x i32> " +
                numbers(0, lanes));
  }
  const std::string full = "@" + std::string(form->intrinsic[lanes == 4   ? 0
                                                             : lanes == 8 ? 1
                                                                          : 2]),
                    out = type(d, lanes);
  const int per_word = form->element && std::string_view(form->element) == "i8" ? 4 : 2;
  const std::string in = form->element ? str("<", lanes * per_word, " x ", form->element, ">") : type(word, lanes);
  auto operand = [&](const std::string& v) {
    return form->element ? emit("bitcast " + type(word, lanes) + " " + v + " to " + in) : v;
  };
  const std::string x = operand(a), y = operand(b);
  declare("declare " + out + " " + full + "(" + (form->adds ? out + ", " : "") + in + ", " + in + ")");
  const std::string r = emit("call " + out + " " + full + "(" + (form->adds ? out + " " + sum + ", " : "") + in + " " +
                             x + ", " + in + " " + y + ")");
  return form->adds ? r : emit("add " + out + " " + sum + ", " + r);
}

}  // namespace tg
