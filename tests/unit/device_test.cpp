/// \file Device names, DEV, processors by name, targets.
#include "tinygrad/runtime/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include "helpers/error_text.h"
#include "temp_dir.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device_registry.h"
#include "tinygrad/runtime/held_device.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {

using test::error_text;

TEST(Device, CanonicalNames) {
  EXPECT_EQ(Device::canonical("cpu"), "CPU");
  EXPECT_EQ(Device::canonical("Cpu:0"), "CPU");
  EXPECT_EQ(Device::canonical("cpu:01"), "CPU:1");
  EXPECT_EQ(Device::canonical("cuda:3"), "CUDA:3");
  EXPECT_EQ(Device::canonical("disk:/Tmp/x:y"), "DISK:/Tmp/x:y");
  for (const char* bad : {"CPU:", "CPU:x", "CPU:-1", "CPU:123456", "TPU", ":", "TPU:0"})
    EXPECT_THROW(Device::canonical(bad), DeviceError) << bad;
  const std::string what = error_text([] { Device::get("TPU"); });
  for (const char* name : {"TPU", "CPU", "NULL", "DISK"}) EXPECT_NE(what.find(name), std::string::npos) << what;
}

TEST(Device, OpensOnce) {
  EXPECT_EQ(&Device::get("cpu:0"), &Device::get("CPU"));
  EXPECT_NE(&Device::get("cpu:1"), &Device::get("CPU"));
  EXPECT_EQ(Device::get("cpu:1").kind(), "CPU");
  EXPECT_TRUE(Device::get("CPU").host_visible());
  const auto opened = Device::opened();
  EXPECT_EQ(std::count(opened.begin(), opened.end(), &Device::get("CPU")), 1);
  Device::synchronize();
  Device::synchronize("CPU");
}

TEST(Device, FilesAreHeldByWhoUsesThem) {
  const testing::TempDir dir;
  const auto name = [&](int i) { return "DISK:" + dir / std::to_string(i); };
  BufferRef kept = Buffer::create(name(0), 4, dtypes::uint8);
  kept->ensure_allocated();
  Device* device = &kept->device();
  for (int i = 1; i < 3000; i++) Buffer::create(name(i), 4, dtypes::uint8);
  EXPECT_EQ(&Device::get(name(0)), device) << "one object while somebody uses it";
  const std::weak_ptr<Device> first = hold_device(name(0)), other = hold_device(name(1));
  EXPECT_TRUE(other.expired());
  Device& latest = Device::get(name(2));
  EXPECT_EQ(latest.name(), name(2));
  EXPECT_EQ(&Device::get(name(2)), &latest);
  EXPECT_FALSE(first.expired());
  const BufferRef part = kept->view(2, dtypes::uint8, 1);
  kept.reset();
  EXPECT_FALSE(first.expired()) << "a view of the buffer is there";
  EXPECT_EQ(part->device_name(), name(0));
}

TEST(Device, OpeningOneKeepsNoOtherWaiting) {
  static std::promise<void> opening, go;
  register_device({.name = "SLOWLY",
                   .open = [](const std::string&) -> std::unique_ptr<Device> {
                     opening.set_value();
                     go.get_future().wait();
                     throw DeviceError("nothing there");
                   },
                   .describe = [] { return std::string("a device that takes long to open, for a test"); },
                   .order = 999});
  std::thread slow([] { EXPECT_THROW(Device::get("SLOWLY"), DeviceError); });
  opening.get_future().wait();
  std::thread others([] {
    Device::get("CPU");
    Device::get("CPU:17");  // is opened meanwhile
    go.set_value();
  });
  others.join();
  slow.join();
}

TEST(Device, NamesOfOlderVersions) {
  EXPECT_EQ(Device::canonical("llvm"), "CPU");
  EXPECT_EQ(Device::canonical("CLANG:1"), "CPU:1");
  EXPECT_EQ(Device::canonical("PYTHON"), "INTERP");
  EXPECT_EQ(Device::canonical("NV:2"), "CUDA:2");
}

TEST(Device, MissingDevicesSayWhy) {
  EXPECT_NE(error_text([] { Device::get("METAL"); }).find("METAL is not available: "), std::string::npos)
      << error_text([] { Device::get("METAL"); });
  const std::string gpu = error_text([] { Device::get("GPU"); });
  if (gpu != "no error") EXPECT_NE(gpu.find("CUDA: "), std::string::npos) << gpu;
  bool cpu = false;
  for (const DeviceInfo& d : Device::list()) {
    EXPECT_FALSE(d.note.empty()) << d.name;
    if (d.name == "CPU") cpu = d.available;
  }
  EXPECT_TRUE(cpu);
}

TEST(Device, DefaultFollowsDev) {
  auto with = [](const char* dev) {
    Context c{{"DEV", dev}};
    return Device::default_name();
  };
  EXPECT_EQ(with(""), "CPU");
  EXPECT_EQ(with("null"), "NULL");
  EXPECT_EQ(with("CPU:CLANG"), "CPU");
  EXPECT_EQ(with("cpu:1"), "CPU:1");
  EXPECT_EQ(with("NULL:LLVM:x86_64;CPU:CLANG"), "NULL");
  EXPECT_EQ(with(":CLANG"), "CPU");
  EXPECT_EQ(with("LLVM"), "CPU") << "once a device of its own";
  EXPECT_THROW(with("TPU"), DeviceError);
  EXPECT_THROW(with("CPU:LLVM:x86_64:more"), ValueError);
}

TEST(Device, TargetFollowsDev) {
  Device& cpu = Device::get("CPU");
  auto renderer = [&](const char* dev) {
    Context c{{"DEV", dev}};
    return cpu.target().renderer;
  };
  EXPECT_EQ(renderer("CPU:CLANG"), "CLANG");
  EXPECT_EQ(renderer("cpu:llvm"), "LLVM");
  EXPECT_EQ(renderer("NULL:LLVM;CPU:CLANG"), "CLANG");
  EXPECT_EQ(renderer(":CLANG"), "CLANG");
  EXPECT_EQ(renderer("clang"), "CLANG");
  EXPECT_THROW(renderer("CPU:FORTRAN"), DeviceError);
  EXPECT_THROW(renderer("CPU:LLVM:x86_64,cray1"), ValueError);
  Context c{{"DEV", "CPU:LLVM"}};
  const Target* first = &cpu.target();
  EXPECT_EQ(first, &cpu.target());
  EXPECT_EQ(&cpu.compiler(), &cpu.compiler(*first));
  Context threads{{"NUM_CPU_THREADS", first->cores + 1}};
  EXPECT_EQ(cpu.target().cores, first->cores + 1);
  EXPECT_NE(cpu.target().key(), first->key());
}

TEST(Device, ForeignCodeIsForNull) {
  const Target& host = host_processor();
  const bool x86 = host.arch == "x86_64";
  Context c{{"DEV", x86 ? "CPU:LLVM:arm64;NULL:LLVM:arm64" : "CPU:LLVM:x86_64;NULL:LLVM:x86_64"}};
  EXPECT_THROW(Device::get("CPU").target(), DeviceError);
  EXPECT_EQ(Device::get("NULL").target().arch, x86 ? "arm64" : "x86_64");
}

TEST(Processor, ByName) {
  const Target baseline = parse_processor("x86_64");
  EXPECT_EQ(baseline.cpu, "x86-64");
  EXPECT_TRUE(baseline.features.empty()) << baseline.feature_string();
  EXPECT_EQ(baseline.vector_bytes, 16);
  EXPECT_EQ(baseline.vector_registers, 16);

  const Target haswell = parse_processor("x86_64,haswell");
  EXPECT_TRUE(haswell.has("fma") && haswell.has("avx2") && haswell.has("f16c") && haswell.has("sse4.2"))
      << haswell.feature_string();
  EXPECT_FALSE(haswell.has("avx512f"));
  EXPECT_EQ(haswell.vector_bytes, 32);

  const Target zen4 = parse_processor("x86_64,znver4");
  EXPECT_TRUE(zen4.has("avx512bf16") && zen4.has("avx512vnni"));
  EXPECT_EQ(zen4.vector_bytes, 64);
  EXPECT_EQ(zen4.vector_registers, 32);
  EXPECT_TRUE(std::is_sorted(zen4.features.begin(), zen4.features.end()));

  const Target narrowed = parse_processor("x86_64,znver4,-avx512f");
  EXPECT_EQ(narrowed.vector_bytes, 32);
  EXPECT_FALSE(narrowed.has("avx512bf16")) << "goes with what it builds upon";
  EXPECT_TRUE(narrowed.has("avx2"));

  const Target listed = parse_processor("x86_64,+avx2");
  EXPECT_TRUE(listed.has("avx") && listed.has("sse3")) << "brings what it builds upon";
  EXPECT_FALSE(listed.has("fma"));

  EXPECT_EQ(parse_processor("arm64").vector_registers, 32);
  for (const char* bad : {"mips", "x86_64,cray1", "x86_64,+sse9", "arm64,avx2", "native,avx2"})
    EXPECT_THROW(parse_processor(bad), ValueError) << bad;
}

TEST(Processor, Host) {
  const Target& host = host_processor();
  EXPECT_FALSE(host.cpu.empty());
  EXPECT_GE(host.l1_bytes, 8 << 10);
  EXPECT_GE(host.l2_bytes, host.l1_bytes);
  EXPECT_EQ(missing_feature(host, host), "");
  EXPECT_EQ(parse_processor("native").key(), parse_processor("").key());
#if defined(__x86_64__)
  EXPECT_EQ(host.has("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(host.has("fma"), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(host.has("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(host.has("avx512vnni"), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(missing_feature(parse_processor("x86_64"), host), "");
  EXPECT_EQ(missing_feature(parse_processor("x86_64,sse3"), parse_processor("x86_64")), "sse3");
#endif
}

/// Machines of different kinds may share a folder for caches: code for more than a processor has is under another key.
TEST(Target, CompiledCodeIsKeptByFeatures) {
  std::set<std::string> keys;
  const std::vector<std::string> all{"x86_64",
                                     "x86_64,x86-64-v3",
                                     "x86_64,znver4",
                                     "x86_64,znver4,-avx512vnni",
                                     "x86_64,znver4,-avx512f",
                                     "x86_64,znver5",
                                     "arm64",
                                     "arm64,dotprod",
                                     "riscv64",
                                     "riscv64,v"};
  for (const std::string& arch : all)
    for (auto make : {make_llvm_compiler, make_clang_compiler}) keys.insert(make(parse_processor(arch))->cache_key());
  EXPECT_EQ(keys.size(), 2 * all.size());
}

TEST(Processor, OfOtherArchitectures) {
  const Target m1 = parse_processor("arm64,apple-m1"), n1 = parse_processor("aarch64,neoverse-n1,-dotprod");
  EXPECT_TRUE(m1.has("neon") && m1.has("dotprod") && m1.has_fma());
  EXPECT_FALSE(n1.has("dotprod"));
  EXPECT_EQ(m1.l1_bytes, 128 << 10);
  EXPECT_EQ(m1.vector_bytes, 16);
  const Target scalar = parse_processor("riscv64"), v = parse_processor("riscv64,v"),
               wide = parse_processor("riscv64,zvl512b");
  EXPECT_TRUE(scalar.has("d") && scalar.has_fma());
  EXPECT_EQ(scalar.vector_bytes, 1);
  EXPECT_EQ(v.vector_bytes, 16);
  EXPECT_EQ(wide.vector_bytes, 64);
  EXPECT_TRUE(wide.has("v")) << "brings what it builds upon";
  EXPECT_EQ(parse_processor("riscv64,sifive-x280,-v").vector_bytes, 1) << "goes with what it builds upon";
  EXPECT_EQ(v.vector_registers, 32);
  EXPECT_THROW(parse_processor("riscv64,neon"), ValueError);
}

TEST(Target, KeyHoldsWhatChangesCode) {
  const Target base = host_processor();
  std::vector<Target> variants(9, base);
  variants[0].device += "x";
  variants[1].renderer += "x";
  variants[2].arch += "x";
  variants[3].cpu += "x";
  variants[4].features.push_back("zzz");
  variants[5].vector_bytes *= 2;
  variants[6].vector_registers *= 2;
  variants[7].l2_bytes *= 2;
  variants[8].cores += 1;
  for (size_t i = 0; i < variants.size(); ++i) EXPECT_NE(variants[i].key(), base.key()) << i;
}

}  // namespace
}  // namespace tg
