/// \file Devices that run the kernels of other processors under qemu: AARCH64 and RISCV64. Code generation and engine
/// are this process's. Kernels are loaded and run in another one, built for the processor (kernel_server.cpp), in
/// memory that both map.
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "emulated/kernel_protocol.h"
#include "tinygrad/base/binary.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/process.h"
#include "tinygrad/runtime/device_registry.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/target/device_traits.h"

extern char** environ;

namespace emulated {
namespace {
using namespace tg;

/// A processor and the emulator of it.
struct Processor {
  const char* kind;
  const char* emulator;
  const char* cpu;     ///< the emulator's name of it
  const char* arch;    ///< as DEV names it
  int oldest;          ///< version of the emulator that it takes
  const char* server;  ///< the program that serves kernels, built for it; empty where there is no compiler for it
};
constexpr Processor kProcessors[] = {
    {"AARCH64", "qemu-aarch64", "max", "arm64,dotprod,fullfp16,i8mm,bf16", 7, TG_KERNEL_SERVER_AARCH64},
    {"RISCV64", "qemu-riscv64", "rv64,v=true,vext_spec=v1.0,vlen=256,elen=64,zba=true,zbb=true,Zfh=true",
     "riscv64,v,zvl256b,zba,zbb,zfh", 9 /* 7.2 stops at vfcvt.rtz; knows no hwprobe */, TG_KERNEL_SERVER_RISCV64}};

// ---- memory: parts of one file, mapped here and there ----

class SharedMemory final : public Allocator {
 public:
  SharedMemory() : file_(memfd_create("emulated", MFD_CLOEXEC)) {
    TG_CHECK(DeviceError, file_ >= 0 && ftruncate(file_, kMemoryBytes) == 0, "[emulated] got no file in memory");
    void* base = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    TG_CHECK(DeviceError, base != MAP_FAILED, "[emulated] cannot map ", kMemoryBytes, " bytes");
    base_ = static_cast<std::byte*>(base);
    free_[0] = kMemoryBytes;
  }
  ~SharedMemory() override {
    munmap(base_, kMemoryBytes);
    close(file_);
  }
  int file() const { return file_; }
  void* allocate(size_t bytes) override {
    const uint64_t size = rounded(bytes);
    std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [begin, length] = *it;
      if (length < size) continue;
      free_.erase(it);
      if (length > size) free_[begin + size] = length - size;
      return base_ + begin;
    }
    return nullptr;
  }
  void free(void* block, size_t bytes) noexcept override {
    std::lock_guard lock(mutex_);
    auto it = free_.emplace(offset(block), rounded(bytes)).first;
    if (const auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it == free_.begin()) return;
    if (const auto before = std::prev(it); before->first + before->second == it->first) {
      before->second += it->second;
      free_.erase(it);
    }
  }
  uint64_t offset(const void* address) const {
    const auto at = static_cast<uint64_t>(static_cast<const std::byte*>(address) - base_);
    TG_CHECK(DeviceError, at <= kMemoryBytes, "[emulated] got an address outside of its memory");
    return at;
  }

 private:
  static uint64_t rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  int file_;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // begin, bytes
};

// ---- the process of kernels ----

class KernelProcess {
 public:
  KernelProcess(const Processor& p, int memory) : kind_(p.kind) {
    int sockets[2];
    TG_CHECK(DeviceError, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "[", kind_,
             "] got no sockets");
    socket_ = sockets[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // By way of higher descriptors: one of these may be 3 or 4 already, and dup2 onto itself keeps close-on-exec.
    const int high_socket = fcntl(sockets[1], F_DUPFD_CLOEXEC, 10), high_memory = fcntl(memory, F_DUPFD_CLOEXEC, 10);
    posix_spawn_file_actions_adddup2(&actions, high_socket, kSocket);
    posix_spawn_file_actions_adddup2(&actions, high_memory, kMemory);
    const char* argv[] = {p.emulator, "-cpu", p.cpu, p.server, nullptr};
    const int failed = posix_spawnp(&pid_, p.emulator, &actions, nullptr, const_cast<char**>(argv), environ);
    posix_spawn_file_actions_destroy(&actions);
    for (const int fd : {high_socket, high_memory, sockets[1]}) close(fd);
    TG_CHECK(DeviceError, failed == 0, "[", kind_, "] cannot run ", p.emulator);
  }
  ~KernelProcess() {
    close(socket_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  /// Sends a request and returns the answer. Throws FormatError of the process, DeviceError when it ended.
  std::vector<uint8_t> ask(Request request, std::span<const uint8_t> payload) {
    std::lock_guard lock(mutex_);
    uint32_t what = 0;
    std::vector<uint8_t> answer;
    const bool answered = pid_ > 0 && send_message(socket_, static_cast<uint32_t>(request), payload) &&
                          receive_message(socket_, what, answer);
    if (!answered) fail();
    if (what == static_cast<uint32_t>(Answer::kFormatError)) throw FormatError(ByteReader(answer, kind_).text());
    return answer;
  }

 private:
  /// Says how the process ended, from then on whenever it is asked.
  [[noreturn]] void fail() {
    int status = 0;
    if (pid_ > 0 && waitpid(std::exchange(pid_, -1), &status, 0) > 0)
      end_ = WIFSIGNALED(status) ? str("signal ", WTERMSIG(status)) : str("status ", WEXITSTATUS(status));
    throw DeviceError(str("[", kind_, "] the process of kernels ended with ", end_));
  }

  std::string kind_, end_;
  pid_t pid_ = -1;
  int socket_;
  std::mutex mutex_;
};

class EmulatedExecutable final : public Executable {
 public:
  EmulatedExecutable(KernelProcess& process, const SharedMemory& memory, uint64_t number)
      : process_(process), memory_(memory), number_(number) {}
  ~EmulatedExecutable() override {
    ByteWriter w;
    w.value(number_);
    try {
      process_.ask(Request::kUnload, w.bytes);
    } catch (const Error&) {}  // the process is gone, and the kernel with it
  }
  void launch(const LaunchArgs& args) override {
    ByteWriter w;
    w.value(number_);
    w.value<int64_t>(0);
    w.value<int64_t>(args.thread_extent);
    w.size(static_cast<size_t>(args.nbuffers));
    w.size(static_cast<size_t>(args.nvars));
    for (int i = 0; i < args.nbuffers; i++) w.value<uint64_t>(memory_.offset(args.buffers[i]));
    for (int i = 0; i < args.nvars; i++) w.value<int64_t>(args.vars[i]);
    process_.ask(Request::kLaunch, w.bytes);
  }

 private:
  KernelProcess& process_;
  const SharedMemory& memory_;
  const uint64_t number_;
};

// ---- the device ----

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(const std::string& name, const Processor& p)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<SharedMemory>(), name, kMemoryBytes / 4,
                                                    static_cast<int64_t>(kMemoryBytes))),
        process_(p, memory_.file()) {
    const DeviceSpec spec = dev_setting(p.kind);
    target_ = parse_processor(spec.arch.empty() ? p.arch : spec.arch);
    target_.device = p.kind;
    target_.renderer = spec.renderer.empty() ? "LLVM" : spec.renderer;
    target_.cores = 2;
    TG_CHECK(DeviceError, target_.renderer == "LLVM" || target_.renderer == "CLANG", "[", p.kind, "] has no renderer ",
             target_.renderer, ", expected LLVM or CLANG");
    compiler_ = target_.renderer == "LLVM" ? make_llvm_compiler(target_) : make_clang_compiler(target_);
    source_compiler_ = make_clang_compiler(target_);
    check_detection(p);
    set_device_traits(p.kind, {.row_kernels = true, .attention_kernels = true});
  }
  const Target& target() override { return target_; }
  Compiler& compiler(const Target&) override { return *compiler_; }
  Compiler& source_compiler(const Target&) override { return *source_compiler_; }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    ByteWriter w;
    w.text(symbol);
    w.bytes.insert(w.bytes.end(), binary.begin(), binary.end());
    const std::vector<uint8_t> answer = process_.ask(Request::kLoad, w.bytes);
    return std::make_shared<EmulatedExecutable>(process_, memory_, ByteReader(answer, name()).value<uint64_t>());
  }

 private:
  /// Checks that the library, on the processor itself, detects the features it compiles for.
  void check_detection(const Processor& p) {
    const std::vector<uint8_t> answer = process_.ask(Request::kDescribe, {});
    const Target found = parse_processor(ByteReader(answer, name()).text());
    const std::string missing = missing_feature(target_, found);
    TG_CHECK(DeviceError, missing.empty(), "[", p.kind, "] detects no ", missing, " on the emulated processor");
  }

  SharedMemory& memory_ = static_cast<SharedMemory&>(allocator().uncounted());
  KernelProcess process_;
  Target target_;
  std::unique_ptr<Compiler> compiler_, source_compiler_;
};

/// Returns the major version of an emulator, 0 when it cannot be run.
int major_version(const char* emulator) {
  const std::string out = run_process({emulator, "--version"}).out;  // qemu-riscv64 version 10.0.13 (Debian ...
  const size_t at = out.find(" version ");
  return at == std::string::npos ? 0 : std::atoi(out.c_str() + at + std::strlen(" version "));
}

std::string describe(const Processor& p) {
  TG_CHECK(DeviceError, *p.server, "no compiler for this processor was found when the tests were built");
  const int version = major_version(p.emulator);
  TG_CHECK(DeviceError, version > 0, "no ", p.emulator);
  TG_CHECK(DeviceError, version >= p.oldest, p.emulator, " ", version, " is too old, it takes ", p.oldest);
  return str(p.arch, ", emulated by ", p.emulator);
}

DeviceKind make_kind(const Processor& p) {
  return {.name = p.kind,
          .open =
              [&p](const std::string& name) {
                describe(p);  // throws where something is missing
                return std::make_unique<EmulatedDevice>(name, p);
              },
          .describe = [&p] { return describe(p); },
          .install = "apt install qemu-user g++-aarch64-linux-gnu g++-riscv64-linux-gnu",
          .order = 910};
}

const RegisterDevice aarch64{make_kind(kProcessors[0])}, riscv64{make_kind(kProcessors[1])};

}  // namespace
}  // namespace emulated
