/// \file Processor detection: cpuid (or the auxiliary vector), cache sizes, and the table of processors that DEV
/// accepts.
#include "tinygrad/runtime/cpu_detect.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif (defined(__aarch64__) || defined(__riscv)) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace tg {
namespace {

constexpr const char *kX86 = "x86_64", *kArm = "arm64", *kRiscV = "riscv64";

using Features = std::set<std::string, std::less<>>;

/// A feature, with its cpuid bit and the features it requires. Only those that change the code of kernels.
struct Feature {
  const char* name;
  uint32_t leaf, subleaf;
  int reg, bit;  // 0..3: eax, ebx, ecx, edx
  const char* needs;
};
constexpr Feature kFeatures[] = {
    {"cx16", 1, 0, 2, 13, nullptr},
    {"sse3", 1, 0, 2, 0, nullptr},
    {"ssse3", 1, 0, 2, 9, "sse3"},
    {"sse4.1", 1, 0, 2, 19, "ssse3"},
    {"sse4.2", 1, 0, 2, 20, "sse4.1"},
    {"popcnt", 1, 0, 2, 23, nullptr},
    {"pclmul", 1, 0, 2, 1, nullptr},
    {"aes", 1, 0, 2, 25, nullptr},
    {"movbe", 1, 0, 2, 22, nullptr},
    {"lzcnt", 0x80000001, 0, 2, 5, nullptr},
    {"sahf", 0x80000001, 0, 2, 0, nullptr},
    {"bmi", 7, 0, 1, 3, nullptr},
    {"bmi2", 7, 0, 1, 8, nullptr},
    {"gfni", 7, 0, 2, 8, nullptr},
    {"avx", 1, 0, 2, 28, "sse4.2"},
    {"f16c", 1, 0, 2, 29, "avx"},
    {"fma", 1, 0, 2, 12, "avx"},
    {"avx2", 7, 0, 1, 5, "avx"},
    {"vaes", 7, 0, 2, 9, "avx2"},
    {"vpclmulqdq", 7, 0, 2, 10, "avx2"},
    {"avxvnni", 7, 1, 0, 4, "avx2"},
    {"avxifma", 7, 1, 0, 23, "avx2"},
    {"avxvnniint8", 7, 1, 3, 4, "avx2"},
    {"avxneconvert", 7, 1, 3, 5, "avx2"},
    {"avx512f", 7, 0, 1, 16, "avx2"},
    {"avx512dq", 7, 0, 1, 17, "avx512f"},
    {"avx512ifma", 7, 0, 1, 21, "avx512f"},
    {"avx512cd", 7, 0, 1, 28, "avx512f"},
    {"avx512bw", 7, 0, 1, 30, "avx512f"},
    {"avx512vl", 7, 0, 1, 31, "avx512f"},
    {"avx512vbmi", 7, 0, 2, 1, "avx512bw"},
    {"avx512vbmi2", 7, 0, 2, 6, "avx512bw"},
    {"avx512vnni", 7, 0, 2, 11, "avx512f"},
    {"avx512bitalg", 7, 0, 2, 12, "avx512bw"},
    {"avx512vpopcntdq", 7, 0, 2, 14, "avx512f"},
    {"avx512bf16", 7, 1, 0, 5, "avx512bw"},
    {"avx512fp16", 7, 0, 3, 23, "avx512bw"},
};

const Feature* find_feature(std::string_view name) {
  for (const Feature& f : kFeatures)
    if (name == f.name) return &f;
  return nullptr;
}

void add_feature(Features& set, std::string_view name) {
  for (const Feature* f = find_feature(name); f; f = f->needs ? find_feature(f->needs) : nullptr) set.emplace(f->name);
  if (name == "avx512f") {
    add_feature(set, "f16c");
    add_feature(set, "fma");
  }  // every such processor and LLVM have it
}

/// Features of the other architectures, which no instruction reports, and the features they require.
struct ForeignFeature {
  const char *arch, *name, *needs;
};
constexpr ForeignFeature kForeignFeatures[] = {
    {kArm, "neon", nullptr},
    {kArm, "fullfp16", "neon"},
    {kArm, "dotprod", "neon"},
    {kArm, "i8mm", "neon"},
    {kArm, "bf16", "neon"},
    {kRiscV, "m", nullptr},
    {kRiscV, "a", nullptr},
    {kRiscV, "f", nullptr},
    {kRiscV, "d", "f"},
    {kRiscV, "c", nullptr},
    {kRiscV, "zba", nullptr},
    {kRiscV, "zbb", nullptr},
    {kRiscV, "zfh", "f"},
    {kRiscV, "v", "d"},
    {kRiscV, "zvfh", "v"},
    {kRiscV, "zvl256b", "v"},
    {kRiscV, "zvl512b", "zvl256b"},
};
constexpr const char* kBaseArm = "neon";
constexpr const char* kBaseRiscV = "m a f d c";

const ForeignFeature* find_foreign(std::string_view arch, std::string_view name) {
  for (const ForeignFeature& f : kForeignFeatures)
    if (arch == f.arch && name == f.name) return &f;
  return nullptr;
}

void add_foreign(Features& set, std::string_view arch, std::string_view name) {
  for (const ForeignFeature* f = find_foreign(arch, name); f; f = f->needs ? find_foreign(arch, f->needs) : nullptr)
    set.emplace(f->name);
}

void remove_foreign(Features& set, std::string_view arch, std::string_view name) {
  Features gone{std::string(name)};
  for (const ForeignFeature& f : kForeignFeatures)
    if (arch == f.arch && f.needs && gone.contains(f.needs)) gone.emplace(f.name);
  for (const std::string& g : gone) set.erase(g);
}

/// Removes a feature together with those that require it; the table lists a feature after its requirements.
void remove_feature(Features& set, std::string_view name) {
  Features gone{std::string(name)};
  for (const Feature& f : kFeatures)
    if (f.needs && gone.contains(f.needs)) gone.emplace(f.name);
  if (gone.contains("fma") || gone.contains("f16c"))
    for (const Feature& f : kFeatures)
      if (std::string_view(f.name).starts_with("avx512")) gone.emplace(f.name);
  for (const std::string& g : gone) set.erase(g);
}

/// Processors by their compiler names; each extends one above it.
struct Processor {
  const char *name, *base, *adds;
};
constexpr Processor kProcessors[] = {
    {"x86-64", "", ""},
    {"x86-64-v2", "x86-64", "cx16 sahf popcnt sse4.2"},
    {"x86-64-v3", "x86-64-v2", "avx2 bmi bmi2 f16c fma lzcnt movbe"},
    {"x86-64-v4", "x86-64-v3", "avx512bw avx512cd avx512dq avx512vl"},
    {"nehalem", "x86-64-v2", ""},
    {"westmere", "nehalem", "pclmul aes"},
    {"sandybridge", "westmere", "avx"},
    {"ivybridge", "sandybridge", "f16c"},
    {"haswell", "x86-64-v3", "pclmul aes"},
    {"broadwell", "haswell", ""},
    {"skylake", "haswell", ""},
    {"alderlake", "haswell", "gfni vaes vpclmulqdq avxvnni"},
    {"raptorlake", "alderlake", ""},
    {"meteorlake", "alderlake", ""},
    {"skylake-avx512", "x86-64-v4", "pclmul aes"},
    {"cascadelake", "skylake-avx512", "avx512vnni"},
    {"cooperlake", "cascadelake", "avx512bf16"},
    {"icelake-client", "cascadelake",
     "avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq gfni vaes vpclmulqdq"},
    {"icelake-server", "icelake-client", ""},
    {"tigerlake", "icelake-client", ""},
    {"sapphirerapids", "icelake-server", "avx512bf16 avx512fp16 avxvnni"},
    {"emeraldrapids", "sapphirerapids", ""},
    {"graniterapids", "sapphirerapids", ""},
    {"znver1", "haswell", ""},
    {"znver2", "znver1", ""},
    {"znver3", "znver2", "vaes vpclmulqdq"},
    {"znver4", "icelake-client", "avx512bf16"},
    {"znver5", "znver4", "avxvnni"},
};

/// Processors of the other architectures, with their caches.
struct ForeignProcessor {
  const char *arch, *name, *adds;
  int64_t l1, l2, l3;
};
constexpr ForeignProcessor kForeignProcessors[] = {
    {kArm, "cortex-a53", "", 32 << 10, 512 << 10, 512 << 10},
    {kArm, "cortex-a72", "", 32 << 10, 1 << 20, 1 << 20},
    {kArm, "cortex-a76", "dotprod fullfp16", 64 << 10, 512 << 10, 2 << 20},
    {kArm, "neoverse-n1", "dotprod fullfp16", 64 << 10, 1 << 20, 32 << 20},
    {kArm, "neoverse-n2", "dotprod fullfp16 bf16 i8mm", 64 << 10, 1 << 20, 32 << 20},
    {kArm, "neoverse-v1", "dotprod fullfp16 bf16 i8mm", 64 << 10, 1 << 20, 32 << 20},
    {kArm, "neoverse-v2", "dotprod fullfp16 bf16 i8mm", 64 << 10, 2 << 20, 32 << 20},
    {kArm, "apple-m1", "dotprod fullfp16", 128 << 10, 3 << 20, 8 << 20},  // four cores share the second level
    {kArm, "apple-m2", "dotprod fullfp16 bf16 i8mm", 128 << 10, 4 << 20, 8 << 20},
    {kArm, "apple-m3", "dotprod fullfp16 bf16 i8mm", 128 << 10, 4 << 20, 8 << 20},
    {kRiscV, "sifive-u74", "zba zbb", 32 << 10, 2 << 20, 2 << 20},
    {kRiscV, "sifive-x280", "zba zbb zfh zvfh zvl512b", 32 << 10, 512 << 10, 2 << 20},
    {kRiscV, "spacemit-x60", "zba zbb zfh zvfh zvl256b", 32 << 10, 512 << 10, 1 << 20},
};

const Processor* find_processor(std::string_view name) {
  for (const Processor& p : kProcessors)
    if (name == p.name) return &p;
  return nullptr;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void add_processor(Features& set, const Processor* p) {
  for (; p; p = find_processor(p->base))
    for (std::string_view f : split(p->adds, ' ')) add_feature(set, f);
}

std::string lower(std::string_view s) {
  std::string r(s);
  for (char& c : r) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return r;
}

std::string upper(std::string_view s) {
  std::string r(s);
  for (char& c : r) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return r;
}

void set_features(Target& t, const Features& set) {
  t.features.assign(set.begin(), set.end());
  if (t.arch == kX86) {
    const bool wide = t.has("avx512f") && t.has("avx512vl") && t.has("avx512bw") && t.has("avx512dq");
    t.vector_bytes = wide ? 64 : t.has("avx") ? 32 : 16;
    t.vector_registers = wide ? 32 : 16;
  } else if (t.arch == kRiscV) {  // without the vector extension: one element per register
    t.vector_bytes = !t.has("v") ? 1 : t.has("zvl512b") ? 64 : t.has("zvl256b") ? 32 : 16;
    t.vector_registers = 32;
  } else {
    t.vector_bytes = 16;
    t.vector_registers = 32;
  }
}

/// The baseline of an architecture.
void set_baseline(Target& t, Features& set) {
  t.cpu = t.arch == kX86 ? "x86-64" : "generic";
  if (t.arch == kX86) return;
  for (std::string_view f : split(t.arch == kArm ? kBaseArm : kBaseRiscV, ' ')) set.emplace(f);
}

#if defined(__x86_64__)

/// The cpuid leaves we use. Each query costs tens of microseconds in a virtual machine, so each is made once.
class Cpuid {
 public:
  struct Leaf {
    uint32_t leaf, subleaf, r[4];
  };
  Cpuid() {
    const uint32_t most = ask(0, 0)[0];
    if (most >= 1) ask(1, 0);
    if (most >= 7 && ask(7, 0)[0] >= 1) ask(7, 1);
    if (ask(0x80000000, 0)[0] >= 0x80000001) ask(0x80000001, 0);
  }
  /// Returns register 0..3 (eax, ebx, ecx, edx) of a leaf, 0 where the processor does not have it.
  uint32_t reg(uint32_t leaf, uint32_t subleaf, int reg) const {
    for (const Leaf& l : leaves_)
      if (l.leaf == leaf && l.subleaf == subleaf) return l.r[reg];
    return 0;
  }

 private:
  const uint32_t* ask(uint32_t leaf, uint32_t subleaf) {
    Leaf& l = leaves_.emplace_back(Leaf{leaf, subleaf, {}});
    __cpuid_count(leaf, subleaf, l.r[0], l.r[1], l.r[2], l.r[3]);
    return l.r;
  }
  std::vector<Leaf> leaves_;
};

/// Returns the name by family and model; the features decide for those not listed.
std::string processor_name(const Cpuid& cpuid, const Features& set) {
  const uint32_t b = cpuid.reg(0, 0, 1), info = cpuid.reg(1, 0, 0);
  const uint32_t base_family = info >> 8 & 15,
                 family = base_family == 15 ? base_family + (info >> 20 & 255) : base_family;
  const uint32_t model = (info >> 4 & 15) | (info >> 16 & 15) << 4;
  const bool amd = b == 0x68747541, intel = b == 0x756e6547;  // "Auth", "Genu"
  if (amd && family == 0x17) return model < 0x30 ? "znver1" : "znver2";
  if (amd && family == 0x19) return set.contains("avx512f") ? "znver4" : "znver3";
  if (amd && family == 0x1a) return "znver5";
  if (intel && family == 6) switch (model) {
      case 0x2a:
      case 0x2d: return "sandybridge";
      case 0x3a:
      case 0x3e: return "ivybridge";
      case 0x3c:
      case 0x3f:
      case 0x45:
      case 0x46: return "haswell";
      case 0x3d:
      case 0x47:
      case 0x4f:
      case 0x56: return "broadwell";
      case 0x4e:
      case 0x5e:
      case 0x8e:
      case 0x9e:
      case 0xa5:
      case 0xa6: return "skylake";
      case 0x55:
        return set.contains("avx512bf16")   ? "cooperlake"
               : set.contains("avx512vnni") ? "cascadelake"
                                            : "skylake-avx512";
      case 0x7d:
      case 0x7e: return "icelake-client";
      case 0x6a:
      case 0x6c: return "icelake-server";
      case 0x8c:
      case 0x8d: return "tigerlake";
      case 0x97:
      case 0x9a: return "alderlake";
      case 0xb7:
      case 0xba:
      case 0xbf: return "raptorlake";
      case 0xaa:
      case 0xac: return "meteorlake";
      case 0x8f: return "sapphirerapids";
      case 0xcf: return "emeraldrapids";
      case 0xad:
      case 0xae: return "graniterapids";
      default: break;
    }
  for (const char* level : {"x86-64-v4", "x86-64-v3", "x86-64-v2"}) {
    Features needed;
    add_processor(needed, find_processor(level));
    if (std::includes(set.begin(), set.end(), needed.begin(), needed.end())) return level;
  }
  return "x86-64";
}

uint64_t enabled_states(const Cpuid& cpuid) {  // saved by the operating system: bits 1,2 AVX, 5..7 AVX-512
  if (!(cpuid.reg(1, 0, 2) >> 27 & 1)) return 0;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low | static_cast<uint64_t>(high) << 32;
}

void detect(Target& t) {
  t.arch = kX86;
  Features set;
  const Cpuid cpuid;
  const uint64_t states = enabled_states(cpuid);
  for (const Feature& f : kFeatures)
    if ((cpuid.reg(f.leaf, f.subleaf, f.reg) >> f.bit & 1) && (!f.needs || set.contains(f.needs))) set.emplace(f.name);
  if ((states & 6) != 6) remove_feature(set, "avx");
  if ((states & 0xe6) != 0xe6 || !set.contains("fma") || !set.contains("f16c")) remove_feature(set, "avx512f");
  t.cpu = processor_name(cpuid, set);
  set_features(t, set);
}

#else

#if defined(__riscv) && defined(__linux__)

/// Returns the extensions that the kernel reports for all processors (Linux, Documentation/arch/riscv/hwprobe.rst), 0
/// for kernels before 6.4, which do not know the call.
uint64_t probed_extensions() {
  struct {
    int64_t key;
    uint64_t value;
  } pair = {4, 0};  // RISCV_HWPROBE_KEY_IMA_EXT_0
  constexpr long kHwProbe = 258;
  return syscall(kHwProbe, &pair, 1, 0, nullptr, 0) == 0 && pair.key == 4 ? pair.value : 0;
}

/// Returns the bytes of a vector register. Only where there is the vector extension.
int vector_register_bytes() {
  uint64_t bytes;
  asm volatile("csrr %0, 0xc22" : "=r"(bytes));  // vlenb
  return static_cast<int>(bytes);
}

void detect_extensions(Features& set) {
  const uint64_t probed = probed_extensions();
  if ((getauxval(AT_HWCAP) >> ('V' - 'A') & 1) || (probed >> 2 & 1)) set.emplace("v");
  constexpr std::pair<int, const char*> kBits[] = {{3, "zba"}, {4, "zbb"}, {27, "zfh"}, {30, "zvfh"}};
  for (const auto& [bit, name] : kBits)
    if (probed >> bit & 1) set.emplace(name);
  if (!set.contains("v")) return;
  const int bytes = vector_register_bytes();
  if (bytes >= 32) set.emplace("zvl256b");
  if (bytes >= 64) set.emplace("zvl512b");
}

#endif

void detect(Target& t) {
#if defined(__riscv)
  t.arch = kRiscV;
#else
  t.arch = kArm;
#endif
  Features set;
  set_baseline(t, set);
#if defined(__riscv) && defined(__linux__)
  detect_extensions(set);
#elif defined(__aarch64__) && defined(__linux__)
  const unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
  if (caps >> 10 & 1) set.emplace("fullfp16");
  if (caps >> 20 & 1) set.emplace("dotprod");
  if (caps2 >> 13 & 1) set.emplace("i8mm");
  if (caps2 >> 14 & 1) set.emplace("bf16");
#elif defined(__APPLE__)
  t.cpu = "apple-m1";
  set.insert({"dotprod", "fullfp16"});
#endif
  set_features(t, set);
}

#endif

/// Reads the sizes of the data caches from Linux; the defaults of Target where it does not report them.
void detect_caches(Target& t) {
  for (int i = 0; i < 8; ++i) {
    const std::string dir = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    std::ifstream level_file(dir + "level"), type_file(dir + "type"), size_file(dir + "size");
    int level = 0;
    std::string type;
    int64_t size = 0;
    char unit = 0;
    if (!(level_file >> level) || !(type_file >> type) || !(size_file >> size >> unit)) break;
    if (type == "Instruction" || size <= 0 || size > (int64_t{1} << 30)) continue;
    size <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
    if (level == 1) t.l1_bytes = size;
    if (level == 2) t.l2_bytes = size;
    if (level == 3) t.l3_bytes = size;
  }
}

}  // namespace

std::vector<DeviceSpec> parse_dev(std::string_view dev) {
  std::vector<DeviceSpec> result;
  for (std::string_view entry : split(dev, ';')) {
    if (entry.empty()) continue;
    auto parts = split(entry, ':');
    DeviceSpec spec{upper(parts[0]), "", ""};
    size_t next = 1;
    if (parts.size() > 1 && !parts[1].empty() && parts[1].find_first_not_of("0123456789") == std::string_view::npos) {
      spec.device += ":" + std::string(parts[1]);
      next = 2;
    }
    TG_CHECK(ValueError, parts.size() <= next + 2, "[DEV] got ", entry, ", expected DEVICE[:RENDERER[:ARCH]]");
    if (parts.size() > next) spec.renderer = upper(parts[next]);
    if (parts.size() > next + 1) spec.arch = lower(parts[next + 1]);
    // Renderers that used to be devices of their own.
    if (spec.renderer.empty() && (spec.device == "CLANG" || spec.device == "LLVM"))
      spec.renderer = std::exchange(spec.device, "CPU");
    result.push_back(std::move(spec));
  }
  return result;
}

const Target& host_processor() {
  static const Target host = [] {
    Target t;
    detect(t);
    detect_caches(t);
    return t;
  }();
  return host;
}

namespace {
/// Returns our name of an architecture.
std::string architecture(const std::string& given) {
  constexpr std::pair<std::string_view, const char*> kOtherNames[] = {
      {"x86-64", kX86}, {"amd64", kX86}, {"aarch64", kArm}, {"riscv", kRiscV}};
  std::string name = given;
  for (const auto& [other, ours] : kOtherNames)
    if (given == other) name = ours;
  TG_CHECK(ValueError, name == kX86 || name == kArm || name == kRiscV, "[DEV] got the architecture ", given,
           ", expected x86_64, arm64 or riscv64");
  return name;
}

/// Makes t a processor of its architecture, with the features it adds; returns false when there is none of that name.
bool set_processor(Target& t, Features& set, const std::string& name) {
  if (t.arch == kX86) {
    const Processor* p = find_processor(name);
    if (!p) return false;
    add_processor(set, p);
  } else {
    const auto* p = std::find_if(std::begin(kForeignProcessors), std::end(kForeignProcessors),
                                 [&](const ForeignProcessor& f) { return t.arch == f.arch && name == f.name; });
    if (p == std::end(kForeignProcessors)) return false;
    t.l1_bytes = p->l1;
    t.l2_bytes = p->l2;
    t.l3_bytes = p->l3;
    for (std::string_view f : split(p->adds, ' ')) add_foreign(set, t.arch, f);
  }
  t.cpu = name;
  return true;
}
}  // namespace

Target parse_processor(std::string_view arch) {
  Target t = host_processor();
  auto parts = split(arch, ',');
  const std::string first = lower(parts[0]);
  if (first.empty() || first == "native") {
    TG_CHECK(ValueError, parts.size() == 1, "[DEV] got ", arch, ", expected an architecture before the features");
    return t;
  }
  const std::string name = architecture(first);
  const bool foreign = name != t.arch, x86 = name == kX86;
  t.arch = name;
  Features set;
  set_baseline(t, set);
  std::vector<std::string> removed;
  for (size_t i = 1; i < parts.size(); ++i) {
    std::string part = lower(parts[i]);
    if (part.empty()) continue;
    if (part == "native" && !foreign) {
      t.cpu = host_processor().cpu;
      set.insert(host_processor().features.begin(), host_processor().features.end());
      continue;
    }
    if (set_processor(t, set, part)) continue;
    const bool minus = part[0] == '-';
    if (minus || part[0] == '+') part.erase(0, 1);
    const bool known = x86 ? find_feature(part) != nullptr : find_foreign(name, part) != nullptr;
    TG_CHECK(ValueError, known, "[DEV] got ", parts[i], ", which is no processor or feature of ", name,
             " that is known here");
    if (minus) removed.push_back(part);
    else if (x86) add_feature(set, part);
    else add_foreign(set, name, part);
  }
  for (const std::string& r : removed) x86 ? remove_feature(set, r) : remove_foreign(set, name, r);
  set_features(t, set);
  return t;
}

std::string missing_feature(const Target& code, const Target& processor) {
  if (code.arch != processor.arch) return code.arch;
  for (const std::string& f : code.features)
    if (!processor.has(f)) return f;
  return {};
}

}  // namespace tg
