/// \file Reads debug information with libdw of elfutils, which is opened when the first line is asked for.
#include "tinygrad/base/source_lines.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tg {
namespace {

// The part of elfutils' interface that is used here; its development files are not needed.
struct Dwfl;
struct Module;
struct Line;
struct Files;
struct Die {
  void *address, *unit, *abbreviation;
  long padding;
};
struct Attribute {
  unsigned code, form;
  unsigned char* value;
  void* unit;
};
struct Callbacks {
  void* find_elf;
  int (*find_debuginfo)(Module*, void**, const char*, uint64_t, const char*, const char*, uint32_t, char**);
  void* section_address;
  char** debuginfo_path;
};
constexpr int kInlined = 0x1d;                          // DW_TAG_inlined_subroutine
constexpr unsigned kCallFile = 0x58, kCallLine = 0x59;  // DW_AT_call_file, DW_AT_call_line

/// Looks for no debug information in other files: that could mean a question to a server.
int no_other_file(Module*, void**, const char*, uint64_t, const char*, const char*, uint32_t, char**) { return -1; }

/// The functions of libdw, and this process as it sees it. Not thread-safe.
class DebugInfo {
 public:
  DebugInfo() {
    library_ = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed: what it read is kept
    if (!library_) return;
    const bool found = find(begin_, "dwfl_begin") && find(report_, "dwfl_linux_proc_report") &&
                       find(report_begin_, "dwfl_report_begin") && find(report_end_, "dwfl_report_end") &&
                       find(module_, "dwfl_addrmodule") && find(unit_, "dwfl_module_addrdie") &&
                       find(source_, "dwfl_module_getsrc") && find(line_info_, "dwfl_lineinfo") &&
                       find(compiled_in_, "dwfl_line_comp_dir") && find(scopes_at_, "dwarf_getscopes") &&
                       find(scopes_of_, "dwarf_getscopes_die") && find(tag_, "dwarf_tag") &&
                       find(attribute_, "dwarf_attr") && find(number_, "dwarf_formudata") &&
                       find(files_, "dwarf_getsrcfiles") && find(file_name_, "dwarf_filesrc");
    if (!found) return;
    static Callbacks callbacks{::dlsym(library_, "dwfl_linux_proc_find_elf"), no_other_file, nullptr, nullptr};
    dwfl_ = begin_(&callbacks);
    read_modules();
  }

  /// Returns the lines that the instruction at an address stands for: of the innermost inlined function first, then of
  /// the calls that were inlined around it.
  std::vector<SourceLine> lines(uintptr_t address) {
    if (!dwfl_) return {};
    Module* m = module_(dwfl_, address);
    if (!m) {  // of a library that was opened since
      report_begin_(dwfl_);
      read_modules();
      if (!(m = module_(dwfl_, address))) return {};
    }
    std::vector<SourceLine> out;
    Line* l = source_(m, address);
    if (!l) return {};
    int number = 0;
    if (const char* path = line_info_(l, nullptr, &number, nullptr, nullptr, nullptr)) out.push_back({path, number});
    uint64_t bias = 0;
    if (Die* unit = unit_(m, address, &bias)) add_calls(out, unit, address - bias);
    const char* folder = compiled_in_(l);  // what relative paths start from
    for (SourceLine& s : out)
      s.path = (std::filesystem::path(folder ? folder : "") / s.path).lexically_normal().string();
    return out;
  }

 private:
  template <class F> bool find(F& f, const char* name) {
    return (f = reinterpret_cast<F>(::dlsym(library_, name))) != nullptr;
  }
  void read_modules() {
    if (!dwfl_) return;
    report_(dwfl_, ::getpid());
    report_end_(dwfl_, nullptr, nullptr);
  }
  std::optional<uint64_t> number(Die* die, unsigned name) {
    Attribute a{};
    uint64_t value = 0;
    if (!attribute_(die, name, &a) || number_(&a, &value) != 0) return {};
    return value;
  }

  /// Adds the places where the functions around an address were inlined. The first list of scopes goes on with those of
  /// the inlined function's definition; the second one is that of the code itself.
  void add_calls(std::vector<SourceLine>& out, Die* unit, uint64_t address) {
    Die* scopes = nullptr;
    if (scopes_at_(unit, address, &scopes) <= 0) return;
    Die innermost = scopes[0];
    std::free(scopes);
    scopes = nullptr;
    const int n = scopes_of_(&innermost, &scopes);
    Files* files = nullptr;
    size_t count = 0;
    if (n > 0 && files_(unit, &files, &count) == 0)
      for (int i = 0; i < n; i++) {
        if (tag_(&scopes[i]) != kInlined) continue;
        const auto file = number(&scopes[i], kCallFile), line = number(&scopes[i], kCallLine);
        if (!file || !line || *file >= count) continue;
        if (const char* path = file_name_(files, *file, nullptr, nullptr))
          out.push_back({path, static_cast<int>(*line)});
      }
    std::free(scopes);
  }

  void* library_ = nullptr;
  Dwfl* dwfl_ = nullptr;
  Dwfl* (*begin_)(const Callbacks*) = nullptr;
  int (*report_)(Dwfl*, pid_t) = nullptr;
  void (*report_begin_)(Dwfl*) = nullptr;
  int (*report_end_)(Dwfl*, void*, void*) = nullptr;
  Module* (*module_)(Dwfl*, uint64_t) = nullptr;
  Die* (*unit_)(Module*, uint64_t, uint64_t*) = nullptr;
  Line* (*source_)(Module*, uint64_t) = nullptr;
  const char* (*line_info_)(Line*, uint64_t*, int*, int*, uint64_t*, uint64_t*) = nullptr;
  const char* (*compiled_in_)(Line*) = nullptr;
  int (*scopes_at_)(Die*, uint64_t, Die**) = nullptr;
  int (*scopes_of_)(Die*, Die**) = nullptr;
  int (*tag_)(Die*) = nullptr;
  Attribute* (*attribute_)(Die*, unsigned, Attribute*) = nullptr;
  int (*number_)(Attribute*, uint64_t*) = nullptr;
  int (*files_)(Die*, Files**, size_t*) = nullptr;
  const char* (*file_name_)(Files*, size_t, uint64_t*, uint64_t*) = nullptr;
};

/// Whether a file is part of the library, its Python module, or what comes with the compiler.
bool is_foreign(std::string_view path) {
  static constexpr std::string_view kFolders[] = {"base",   "uop",     "target", "schedule", "codegen",
                                                  "render", "runtime", "engine", "tensor",   "io",
                                                  "nn",     "llm",     "viz"};
  if (path.starts_with("/usr/") || path.find("/include/c++/") != std::string_view::npos || path.starts_with("./csu/"))
    return true;
  const size_t at = path.rfind("tinygrad/");
  if (at == std::string_view::npos || (at > 0 && path[at - 1] != '/')) return false;
  const std::string_view rest = path.substr(at + 9), folder = rest.substr(0, rest.find('/'));
  for (std::string_view f : kFolders)
    if (f == folder && rest.size() > f.size()) return true;
  return rest == "tinygrad.h";
}

struct Known {
  std::mutex mutex;
  DebugInfo info;
  std::unordered_map<uintptr_t, SourceLine> lines;  // by return address: the line of the program, 0: the library's
};
Known& known() {
  static auto* k = new Known;  // never destroyed: threads may still ask
  return *k;
}

}  // namespace

SourceLine calling_line() {
  std::array<void*, 64> stack;
  const int n = ::backtrace(stack.data(), static_cast<int>(stack.size()));
  Known& k = known();
  std::lock_guard lock(k.mutex);
  for (int i = 1; i < n; i++) {
    const auto address = reinterpret_cast<uintptr_t>(stack[static_cast<size_t>(i)]) - 1;  // within the call
    const auto [at, fresh] = k.lines.try_emplace(address);
    if (fresh)
      for (SourceLine& l : k.info.lines(address))
        if (l.line > 0 && !is_foreign(l.path)) {
          at->second = std::move(l);
          break;
        }
    if (at->second.line) return at->second;
  }
  return {};
}

}  // namespace tg
