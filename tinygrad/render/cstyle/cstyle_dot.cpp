/// \file C-like languages: dot products of packed words, by the processor's instruction for them.
#include "tinygrad/render/cstyle/cstyle_writer.h"

namespace tg {
namespace {
std::string numbers(int from, int count) {
  std::string s;
  for (int i = 0; i < count; i++) s += str(", ", from + i);
  return s;
}
}  // namespace

/// Computes c + a . b on vectors of 32-bit words; narrower or wider operands are widened or halved.
std::string CStyleWriter::dot_helper(const std::string& instruction, DType d, int lanes) {
  const std::string name = instruction + "_" + tag(d, lanes), t = type(d, lanes), w = type(dtypes::uint32, lanes);
  if (helper_names_.count(name)) return name;
  const bool arm = target_.arch == "arm64", evex = target_.vector_bytes == 64, avx = target_.has("avx");
  const int most = arm || (instruction == "vpmaddwd" && !target_.has("avx2")) ? 4 : target_.vector_bytes / 4;
  const std::string head = t + " " + name + "(" + w + " a, " + w + " b, " + t + " c)";
  std::string body;
  if (lanes < 4) {
    const std::string f = dot_helper(instruction, d, 4), t4 = vector(d, 4), w4 = vector(dtypes::uint32, 4);
    auto widened = [&](const char* v, const std::string& as) {
      return str("(", as, "){", lanes == 1 ? str(v) : str(v, "[0], ", v, lanes == 2 ? "[1]" : "[1], " + str(v, "[2]")),
                 "}");
    };
    body = "  " + t4 + " r = " + f + "(" + widened("a", w4) + ", " + widened("b", w4) + ", " + widened("c", t4) +
           ");\n  return " + (lanes == 1 ? "r[0]" : "__builtin_shufflevector(r, r" + numbers(0, lanes) + ")") + ";\n";
  } else if (lanes > most) {
    const std::string f = dot_helper(instruction, d, lanes / 2);
    auto half = [&](int from) {
      std::string s = f + "(";
      for (const char* v : {"a", "b", "c"})
        s += str(*v == 'a' ? "" : ", ", "__builtin_shufflevector(", v, ", ", v, numbers(from, lanes / 2), ")");
      return s + ")";
    };
    body = "  return __builtin_shufflevector(" + half(0) + ", " + half(lanes / 2) + numbers(0, lanes) + ");\n";
  } else if (arm) {
    const std::string in = instruction == "bfdot" ? ".8h" : ".16b";
    body = "  __asm__(\"" + instruction + " %0.4s, %1" + in + ", %2" + in +
           "\" : \"+w\"(c) : \"w\"(a), \"w\"(b));\n  return c;\n";
  } else if (instruction == "vpmaddwd") {
    const std::string in = evex ? "v" : "x";
    if (avx) body = "  __asm__(\"vpmaddwd %2, %1, %0\" : \"=" + in + "\"(a) : \"" + in + "\"(a), \"" + in + "\"(b));\n";
    else body = "  __asm__(\"pmaddwd %1, %0\" : \"+x\"(a) : \"x\"(b));\n";
    body += "  return (" + t + ")((" + w + ")c + a);\n";
  } else {
    const std::string in = evex ? "v" : "x";
    body = "  __asm__(\"" + std::string(evex ? "" : "%{vex%} ") + instruction + " %2, %1, %0\" : \"+" + in +
           "\"(c) : \"" + in + "\"(a), \"" + in + "\"(b));\n  return c;\n";
  }
  helper(name);
  helper_text(head, body);
  return name;
}

}  // namespace tg
