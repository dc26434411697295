/// \file The process of kernels of an emulated device: built for its processor, run by qemu. It loads objects with the
/// library's loader and calls them with the library's ABI of kernels.
#include <sys/mman.h>

#include <map>
#include <memory>

#include "emulated/kernel_protocol.h"
#include "tinygrad/base/binary.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/compiler.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/elf_loader.h"

namespace emulated {
namespace {
using tg::ByteReader;
using tg::ByteWriter;

struct Loaded {
  std::shared_ptr<tg::ElfImage> image;
  tg::HostKernel kernel;
};

class Server {
 public:
  explicit Server(std::byte* memory) : memory_(memory) {}
  ByteWriter answer(Request request, ByteReader r) {
    ByteWriter w;
    switch (request) {
      case Request::kDescribe: w.text(describe()); break;
      case Request::kLoad: w.value<uint64_t>(load(r)); break;
      case Request::kLaunch: launch(r); break;
      case Request::kUnload: kernels_.erase(r.value<uint64_t>()); break;
    }
    return w;
  }

 private:
  static std::string describe() {
    const tg::Target& t = tg::host_processor();
    std::string text = t.arch;
    for (const std::string& f : t.features) text += "," + f;
    return text;
  }
  uint64_t load(ByteReader& r) {
    const std::string symbol = r.text();
    auto image = tg::ElfImage::load(r.take(r.left()));
    void* entry = image->function(symbol);
    r.check(entry != nullptr, "an object without that function");
    kernels_[++last_] = {std::move(image), reinterpret_cast<tg::HostKernel>(entry)};
    return last_;
  }
  void launch(ByteReader& r) {
    const Loaded& loaded = kernels_.at(r.value<uint64_t>());
    const auto begin = r.value<int64_t>(), end = r.value<int64_t>();
    std::vector<void*> buffers(r.size());
    std::vector<int64_t> vars(r.size());
    for (void*& b : buffers) b = memory_ + r.value<uint64_t>();
    for (int64_t& v : vars) v = r.value<int64_t>();
    loaded.kernel(buffers.data(), vars.data(), begin, end);
  }

  std::byte* memory_;
  std::map<uint64_t, Loaded> kernels_;
  uint64_t last_ = 0;
};

/// Answers requests until the other side is gone.
int serve() {
  void* memory = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, kMemory, 0);
  if (memory == MAP_FAILED) return 1;
  Server server(static_cast<std::byte*>(memory));
  uint32_t what;
  std::vector<uint8_t> payload;
  while (receive_message(kSocket, what, payload)) {
    Answer kind = Answer::kDone;
    ByteWriter w;
    try {
      w = server.answer(static_cast<Request>(what), ByteReader(payload, "a request"));
    } catch (const tg::FormatError& e) {
      kind = Answer::kFormatError;
      w.text(e.what());
    }
    if (!send_message(kSocket, static_cast<uint32_t>(kind), w.bytes)) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace emulated

int main() { return emulated::serve(); }
