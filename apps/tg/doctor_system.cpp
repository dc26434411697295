/// \file What tg doctor asks the system: the build, compilers, caches, devices, processors, environment variables.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "apps/tg/doctor.h"
#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/system_memory.h"
#include "tinygrad/base/text.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::app {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
std::string file_text(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void look_at_build(Findings& out) {
#ifdef __clang__
  constexpr const char* kCompiler = "clang " __clang_version__;
#else
  constexpr const char* kCompiler = "g++ " __VERSION__;
#endif
  const std::string type = TG_BUILD_TYPE, sanitizer = TG_BUILD_SANITIZER;
  Finding f{"build", "library", Grade::kGood, str(version(), ", ", type, ", built by ", kCompiler), "", "", {}};
  f.numbers = {{"version", version()}, {"type", type}, {"sanitizer", sanitizer}, {"compiler", kCompiler}};
  if (!sanitizer.empty()) {
    f.grade = Grade::kSlow;
    f.value += ", with the " + sanitizer + " sanitizer";
    f.why = "the library runs several times slower; kernels are not affected";
  } else if (type != "Release" && type != "RelWithDebInfo") {
    f.grade = Grade::kSlow;
    f.why = "schedules and kernels take longer to make; compiled kernels are as fast";
  }
  if (f.grade == Grade::kSlow) f.advice = "cmake --preset release && cmake --build --preset release";
  out.push_back(std::move(f));
}

/// Compiles a kernel that no cache has, runs it, and looks at its result.
void look_at_a_kernel(Findings& out) {
  const Context fresh{{"CCACHE", 0}, {"CACHELEVEL", 0}};
  constexpr int64_t kSize = 1237;  // of no other program, so that the schedule is new too
  const int64_t before = GlobalCounters::compile_ns;
  const auto sum = (Tensor::arange(kSize) * 3 + 1).sum().item<int64_t>();
  const double seconds = static_cast<double>(GlobalCounters::compile_ns - before) * 1e-9;
  const Device& device = Device::get();
  Finding f{"compilers",
            "a kernel",
            Grade::kGood,
            str("compiled for ", device.name(), " in ", human_seconds(seconds), ", result right"),
            "",
            "",
            {}};
  f.numbers = {{"device", device.name()}, {"compile_seconds", seconds}};
  if (sum != 3 * kSize * (kSize - 1) / 2 + kSize) {
    f.grade = Grade::kBroken;
    f.value = str("got ", sum, " as a sum, expected ", 3 * kSize * (kSize - 1) / 2 + kSize);
    f.why = "kernels compute wrong values here";
    f.advice = "DEV=INTERP computes without compiled kernels: compare, and report it";
  }
  out.push_back(std::move(f));
}

void look_at_compilers(Findings& out) {
  const std::string missing = llvm_plugin_missing(), clang = clang_path();
  const LlvmPluginInfo llvm = llvm_plugin_info();
  Finding plugin{"compilers",
                 "LLVM",
                 Grade::kGood,
                 "found; opened with the first kernel that is in no cache",
                 "",
                 "",
                 {{"opened", llvm.opened}, {"version", llvm.version}, {"path", llvm.path}}};
  if (llvm.opened) plugin.value = str(llvm.version, ", opened in ", human_seconds(llvm.load_ms / 1e3), ", ", llvm.path);
  if (!missing.empty()) {
    plugin.grade = clang.empty() ? Grade::kBroken : Grade::kSlow;
    plugin.value = missing;
    plugin.why = clang.empty() ? "no kernel can be compiled" : "clang is started for every kernel, about 50 ms each";
    plugin.advice = "apt install llvm-dev, build again; TG_LLVM_PLUGIN names a plugin that lies elsewhere";
  }
  out.push_back(std::move(plugin));
  Finding c{"compilers",
            "clang",
            Grade::kNote,
            "not found",
            "DEV=CPU:CLANG, AMD and NULL:HIP need it",
            "apt install clang; CC names one that lies elsewhere",
            {{"path", clang}}};
  if (!clang.empty()) {
    const ProcessResult asked = run_process({clang, "--version"}, {.timeout_s = 20});
    const std::string says = first_line(asked.out);
    c = {"compilers", "clang", Grade::kGood, str(says, ", ", clang), "", "", {{"path", clang}, {"version", says}}};
    if (!asked.ok() || says.empty()) {
      c.grade = missing.empty() ? Grade::kNote : Grade::kBroken;
      c.value = str(clang, " does not start: ", first_line(asked.err));
      c.why = "DEV=CPU:CLANG, AMD and NULL:HIP need it";
      c.advice = "install it again; CC names another one";
    }
  }
  out.push_back(std::move(c));
}

int64_t folder_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, ec), end;
       !ec && at != end; at.increment(ec))
    if (std::error_code no; at->is_regular_file(no))
      if (const auto n = at->file_size(no); !no) bytes += static_cast<int64_t>(n);
  return bytes;
}

void look_at_disk_cache(Findings& out) {
  const DiskCache::Info info = disk_cache::info();
  const int64_t limit = env::CACHE_LIMIT.get() << 20;
  int64_t entries = 0, bytes = 0, hits = 0, asked = 0;
  for (const DiskCache::TableInfo& t : info.tables) {
    entries += t.entries;
    bytes += t.bytes;
    hits += t.hits;
    asked += t.hits + t.misses;
  }
  const std::string rate = asked ? str(", ", 100 * hits / asked, " % of ", asked, " look-ups found it") : "";
  Finding f{"caches",
            "kernels",
            Grade::kGood,
            str(info.path, ": ", entries, " entries, ", human_bytes(static_cast<double>(bytes)), " of ",
                human_bytes(static_cast<double>(limit)), rate),
            "",
            "",
            {}};
  f.numbers = {{"path", info.path},  {"usable", info.usable}, {"bytes", bytes},        {"limit_bytes", limit},
               {"entries", entries}, {"hits", hits},          {"misses", asked - hits}};
  constexpr int64_t kSmall = int64_t{64} << 20;
  if (!info.usable) {
    f.grade = Grade::kSlow;
    f.value = info.problem;
    f.why = "every process compiles all of its kernels";
    f.advice = "make its folder writable or remove the file, or name another by CACHEDB";
  } else if (limit < kSmall || bytes > limit / 10 * 9) {
    f.grade = Grade::kSlow;
    f.why =
        str("CACHE_LIMIT is ", human_bytes(static_cast<double>(limit)), ": kernels are thrown away and compiled again");
    f.advice = "a larger CACHE_LIMIT (MiB), or tg cache clear";
  }
  out.push_back(std::move(f));
}

void look_at_cache_folder(Findings& out) {
  fs::path folder;
  try {
    folder = cache_dir();
  } catch (const FileError& e) {
    out.push_back({"caches",
                   "downloads",
                   Grade::kSlow,
                   e.what(),
                   "models and data sets cannot be kept",
                   "set HOME or XDG_CACHE_HOME",
                   {}});
    return;
  }
  std::error_code ec;
  fs::create_directories(folder, ec);
  const bool writable = ::access(folder.c_str(), W_OK) == 0;
  const int64_t downloads = folder_bytes(folder / "downloads") + folder_bytes(folder / "datasets");
  const fs::space_info space = fs::space(folder, ec);
  const auto free = ec ? int64_t{0} : static_cast<int64_t>(space.available);
  Finding f{"caches",
            "downloads",
            Grade::kGood,
            str(folder.string(), ": ", human_bytes(static_cast<double>(downloads)), ", ",
                human_bytes(static_cast<double>(free)), " free"),
            "",
            "",
            {{"path", folder.string()}, {"writable", writable}, {"bytes", downloads}, {"free_bytes", free}}};
  if (!writable) {
    f.grade = Grade::kSlow;
    f.why = "the folder cannot be written: models and data sets are downloaded again each time";
    f.advice = "make it writable, or set XDG_CACHE_HOME";
  } else if (free < int64_t{1} << 30) {
    f.grade = Grade::kNote;
    f.why = "little space is left on this disk";
  }
  out.push_back(std::move(f));
}

void look_at_devices(Findings& out) {
  const std::string chosen = Device::default_name();
  for (const DeviceInfo& d : Device::list()) {
    Finding f{"devices",
              d.name,
              d.available ? Grade::kGood : Grade::kNote,
              str(d.name == chosen ? "the default; " : "", d.note),
              "",
              d.install.empty() ? "" : "to install: " + d.install,
              {{"available", d.available}, {"default", d.name == chosen}}};
    out.push_back(std::move(f));
  }
}

void look_at_vectors(Findings& out) {
  const Target& host = host_processor();
  Finding f{"processor",
            "vectors",
            Grade::kGood,
            str(host.arch, ", ", host.cpu, ": ", host.vector_bytes, " bytes", host.has_fma() ? ", multiply-add" : ""),
            "",
            "",
            {{"arch", host.arch}, {"cpu", host.cpu}, {"vector_bytes", host.vector_bytes}, {"fma", host.has_fma()}}};
  if (host.arch == "x86_64" && (host.vector_bytes < 32 || !host.has_fma())) {
    f.grade = Grade::kSlow;
    f.why = "no AVX2 with FMA: a quarter of the arithmetic of processors that have it";
    f.advice = "on a virtual machine, let the guest have the host's processor (qemu: -cpu host)";
  }
  out.push_back(std::move(f));
}

void look_at_threads(Findings& out) {
  const int used = env::num_cpu_threads(), online = static_cast<int>(std::thread::hardware_concurrency());
  const long present = ::sysconf(_SC_NPROCESSORS_ONLN);
  Finding f{"processor",
            "threads",
            Grade::kGood,
            str(used, " of ", present, " processors"),
            "",
            "",
            {{"used", used}, {"allowed", online}, {"online", present}}};
  if (used < present) {
    f.grade = Grade::kSlow;
    f.why = env::NUM_CPU_THREADS.get() ? "NUM_CPU_THREADS allows no more"
                                       : "affinity or the control group's quota (cpu.max) allow no more";
    f.advice = env::NUM_CPU_THREADS.get() ? "unset NUM_CPU_THREADS" : "taskset -p, docker --cpus";
  } else if (used > present) {
    f.grade = Grade::kSlow;
    f.why = "more threads than processors wait for each other";
    f.advice = "unset NUM_CPU_THREADS";
  }
  out.push_back(std::move(f));
}

void look_at_clock(Findings& out) {
  const std::string governor = file_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor.empty()) return;
  Finding f{"processor", "governor", Grade::kGood, governor, "", "", {{"governor", governor}}};
  const std::string driver = file_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
  if (governor == "powersave" && driver.find("pstate") == std::string::npos) {
    f.grade = Grade::kSlow;
    f.why = "the clock stays at its lowest";
    f.advice = "cpupower frequency-set -g performance";
  }
  out.push_back(std::move(f));
}

void look_at_memory(Findings& out) {
  const auto [total, available] = system_memory();
  if (!total) return;
  Finding f{
      "processor",
      "memory",
      Grade::kGood,
      str(human_bytes(static_cast<double>(available)), " of ", human_bytes(static_cast<double>(total)), " available"),
      "",
      "",
      {{"bytes", total}, {"available_bytes", available}}};
  if (available < int64_t{1} << 30) {
    f.grade = Grade::kSlow;
    f.why = "programs that need more will swap or end with OutOfMemoryError";
  }
  out.push_back(std::move(f));
}

/// A variable that makes programs slower, with the values that do.
struct Slowing {
  const char* name;
  bool (*slows)(int64_t value);
  const char* why;
};
constexpr bool set(int64_t v) { return v != 0; }
constexpr bool unset(int64_t v) { return v == 0; }
constexpr Slowing kSlowing[] = {
    {"DEBUG", [](int64_t v) { return v >= 2; }, "the host waits for every kernel, and prints"},
    {"SPEC", set, "graphs are verified after every stage"},
    {"EAGER", set, "no two operations share a kernel"},
    {"VIZ", set, "every rewrite is recorded, kernels are compiled again"},
    {"PROFILE", set, "the host waits for every kernel"},
    {"TRACEMETA", [](int64_t v) { return v >= 2; }, "every node asks the interpreter for its line"},
    {"TRACK_MATCH_STATS", set, "every rewrite rule is timed"},
    {"VALIDATE_WITH_CPU", set, "every kernel runs again in the interpreter"},
    {"CAPTURE_PROCESS_REPLAY", set, "every kernel's source is written to the disk cache"},
    {"NOOPT", set, "kernels are not optimised: many times slower"},
    {"TC", unset, "no matrix and dot product instructions"},
    {"NOLOCALS", set, "no workgroups on devices that have them"},
    {"TRANSCENDENTAL", [](int64_t v) { return v >= 2; }, "functions of the device are not used"},
    {"BEAM", set, "kernels are searched for the first time they are met; afterwards they are faster"},
    {"IGNORE_BEAM_CACHE", set, "kernels are searched for in every process"},
    {"PARALLEL", [](int64_t v) { return v == 1; }, "kernels are compiled one after another"},
    {"REDUCEOP_SPLIT_THRESHOLD", unset, "every reduction is split"},
    {"SPLIT_REDUCEOP", unset, "large reductions to few values use few threads"},
    {"NO_MEMORY_PLANNER", set, "every intermediate has memory of its own"},
    {"LRU", unset, "freed memory goes back to the system"},
    {"JIT", unset, "captured functions run uncaptured"},
    {"CACHELEVEL", unset, "the disk cache is off: every process compiles all of its kernels"},
    {"CCACHE", unset, "kernels are not taken from the disk cache"},
    {"SCACHE", unset, "every schedule is made again"},
    {"DISABLE_HTTP_CACHE", set, "files are downloaded again"},
    {"PENDING_NODES", [](int64_t v) { return v > 0 && v < 1000; }, "short pieces of a graph are computed one by one"},
};

void look_at_variables(Findings& out) {
  const size_t before = out.size();
  for (const Slowing& s : kSlowing) {
    const auto value = env::find(s.name);
    const int64_t* number = value ? std::get_if<int64_t>(&*value) : nullptr;
    if (number && s.slows(*number))
      out.push_back({"variables",
                     s.name,
                     Grade::kSlow,
                     std::to_string(*number),
                     s.why,
                     str("unset ", s.name),
                     {{"value", *number}}});
  }
  if (!env::EMULATED_DTYPES.get().empty())
    out.push_back({"variables",
                   "EMULATED_DTYPES",
                   Grade::kSlow,
                   env::EMULATED_DTYPES.get(),
                   "these types are computed by others",
                   "unset EMULATED_DTYPES",
                   {}});
  if (Device::default_name() == "INTERP")
    out.push_back({"variables",
                   "DEV",
                   Grade::kSlow,
                   env::DEV.get(),
                   "the interpreter executes instructions one by one; it is for comparing results",
                   "unset DEV",
                   {}});
  if (out.size() == before) out.push_back({"variables", "all", Grade::kGood, "none that slows programs", "", "", {}});
}

}  // namespace

std::vector<Check> system_checks() {
  return {
      {"build", "library", look_at_build},
      {"compilers", "a kernel", look_at_a_kernel},
      {"compilers", "LLVM, clang", look_at_compilers},
      {"caches", "kernels", look_at_disk_cache},
      {"caches", "downloads", look_at_cache_folder},
      {"devices", "list", look_at_devices},
      {"processor", "vectors", look_at_vectors},
      {"processor", "threads", look_at_threads},
      {"processor", "governor", look_at_clock},
      {"processor", "memory", look_at_memory},
      {"variables", "variables", look_at_variables},
  };
}

}  // namespace tg::app
