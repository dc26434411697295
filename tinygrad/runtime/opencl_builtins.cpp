/// \file Declarations of OpenCL's functions, for clang without its header of all of them.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/opencl_library.h"

namespace tg {
namespace {
constexpr std::string_view kIntegers[] = {"char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"};
constexpr int kWidths[] = {2, 4, 8, 16};
constexpr std::string_view kPure = "__attribute__((overloadable, pure)) ",
                           kConst = "__attribute__((overloadable, const)) ", kEffect = "__attribute__((overloadable)) ";

bool in_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/// Returns all names in a text.
std::set<std::string_view> names_in(std::string_view text) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && in_name(text[end])) end++;
    if (end > i) names.insert(text.substr(i, end - i));
    i = end + 1;
  }
  return names;
}

/// The declarations that one text needs.
class Declarations {
 public:
  explicit Declarations(std::string_view source) : names_(names_in(source)) {
    types_.assign(std::begin(kIntegers), std::end(kIntegers));
    floats_.push_back("float");
    for (const std::string_view t : {std::string_view("double"), std::string_view("half")})
      if (names_type(t)) floats_.push_back(t);
    types_.insert(types_.end(), floats_.begin(), floats_.end());
  }

  std::string text() {
    if (floats_.size() > 1)
      out_ +=
          "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\n"
          "#ifdef cl_khr_fp16\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#endif\n";
    for (const char* index : {"get_global_id", "get_group_id", "get_local_id"})
      if (names_.contains(index)) out_ += str(kConst, "size_t ", index, "(uint);\n");
    if (names_.contains("barrier")) out_ += "__attribute__((overloadable, convergent)) void barrier(uint);\n";
    if (names_.contains("read_imagef"))
      out_ += str(kPure, "float4 read_imagef(read_only image2d_t, sampler_t, int2);\n");
    if (names_.contains("write_imagef"))
      out_ += str(kEffect, "void write_imagef(write_only image2d_t, int2, float4);\n");
    for (const int n : kWidths) declare_vectors(n);
    declare_math("sqrt", 1);
    declare_math("trunc", 1);
    declare_math("fmod", 2);
    declare_math("fma", 3);
    return out_;
  }

 private:
  bool names_type(std::string_view type) const {
    auto it = names_.lower_bound(type);  // "double", "double4"
    for (; it != names_.end() && it->starts_with(type); ++it)
      if (it->find_first_not_of("0123456789", type.size()) == std::string_view::npos) return true;
    return false;
  }

  /// Declares loads, stores and conversions of vectors of `n` lanes.
  void declare_vectors(int n) {
    const std::string load = str("vload", n), store = str("vstore", n);
    const bool loads = names_.contains(load), stores = names_.contains(store);
    for (const std::string_view t : types_) {
      const std::string v = str(t, n), convert = "convert_" + v;
      for (const char* space : {"__global", "__local", "__private"}) {
        if (loads) out_ += str(kPure, v, " ", load, "(size_t, const ", space, " ", t, "*);\n");
        if (stores) out_ += str(kEffect, "void ", store, "(", v, ", size_t, ", space, " ", t, "*);\n");
      }
      if (!names_.contains(convert)) continue;
      for (const std::string_view from : types_) out_ += str(kConst, v, " ", convert, "(", from, n, ");\n");
    }
  }

  /// Declares a function of `arguments` numbers of one type, scalars or vectors.
  void declare_math(std::string_view name, int arguments) {
    if (!names_.contains(name)) return;
    for (const std::string_view t : floats_) {
      for (const int n : {1, 2, 4, 8, 16}) {
        const std::string type = n == 1 ? std::string(t) : str(t, n);
        out_ += str(kConst, type, " ", name, "(", type);
        for (int i = 1; i < arguments; i++) out_ += ", " + type;
        out_ += ");\n";
      }
    }
  }

  const std::set<std::string_view> names_;
  std::vector<std::string_view> types_, floats_;
  std::string out_;
};
}  // namespace

std::string opencl_declarations(const std::string& source) { return Declarations(source).text(); }

}  // namespace tg
