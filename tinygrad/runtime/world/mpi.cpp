/// \file Calls of MPI through the table of an implementation.
#include "tinygrad/runtime/world/mpi.h"

#include <dlfcn.h>

#include <cstring>
#include <type_traits>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/world/mpi_abi.h"

namespace tg {
namespace {

template <class Abi> class MpiOf final : public Mpi {
  using H = typename Abi::H;
  using S = typename Abi::S;
  static_assert(sizeof(H) <= sizeof(Request::handle));

 public:
  MpiOf(void* library, const char* file) {
#define FUNCTION(name, parameters) load(library, file, "MPI_" #name, &f_.name);
#include "tinygrad/runtime/world/mpi_functions.inc"
#undef FUNCTION
    if constexpr (std::is_pointer_v<H>) {
      load(library, file, Abi::world, &world_);
      load(library, file, Abi::byte, &byte_);
      load(library, file, Abi::errors_return, &errors_return_);
    } else {
      world_ = Abi::world;
      byte_ = Abi::byte;
      errors_return_ = Abi::errors_return;
    }
  }

  const char* name() const override { return Abi::name; }
  std::string version() override {
    char text[8192] = {};
    int n = 0;
    check(f_.Get_library_version(text, &n), "Get_library_version");
    return std::string(text, strcspn(text, "\r\n,"));
  }
  void init() override {
    int there = 0, level = 0;
    check(f_.Initialized(&there), "Initialized");
    if (there) {
      check(f_.Query_thread(&level), "Query_thread");
      TG_CHECK(PeerError, level >= Abi::multiple,
               "[init] got MPI initialized by the program without "
               "MPI_THREAD_MULTIPLE, expected that level: progress is made by a thread");
    } else {
      check(f_.Init_thread(nullptr, nullptr, Abi::serialized, &level), "Init_thread");
      ours_ = true;
      TG_CHECK(PeerError, level >= Abi::serialized, "[init] ", Abi::name,
               " has no MPI_THREAD_SERIALIZED, which progress by a thread needs");
    }
    check(f_.Comm_set_errhandler(world_, errors_return_), "Comm_set_errhandler");
    check(f_.Comm_dup(world_, &comm_), "Comm_dup");
    check(f_.Comm_set_errhandler(comm_, errors_return_), "Comm_set_errhandler");
  }
  void finalize() override {
    if (ours_) check(f_.Finalize(), "Finalize");
  }
  int rank() override {
    int n = 0;
    check(f_.Comm_rank(comm_, &n), "Comm_rank");
    return n;
  }
  int size() override {
    int n = 0;
    check(f_.Comm_size(comm_, &n), "Comm_size");
    return n;
  }
  int tag_limit() override {
    int* limit = nullptr;
    int found = 0;
    check(f_.Comm_get_attr(world_, Abi::tag_limit, static_cast<void*>(&limit), &found), "Comm_get_attr");
    return found && limit ? *limit : 32767;  // the least that MPI promises
  }
  void send(const void* data, size_t n, int to, int tag, Request* request) override {
    H made{};
    check(f_.Isend(data, static_cast<int>(n), byte_, to, tag, comm_, &made), "Isend");
    store(made, request);
  }
  void receive(void* data, size_t n, int from, int tag, Request* request) override {
    H made{};
    check(f_.Irecv(data, static_cast<int>(n), byte_, from == kAnySource ? Abi::any_source : from, tag, comm_, &made),
          "Irecv");
    store(made, request);
  }
  std::optional<Arrived> test(Request* request) override {
    H h{};
    std::memcpy(&h, &request->handle, sizeof h);
    S status{};
    int done = 0;
    check(f_.Test(&h, &done, &status), "Test");
    store(h, request);
    if (!done) return std::nullopt;
    int n = 0;
    check(f_.Get_count(&status, byte_, &n), "Get_count");
    return Arrived{status.source, static_cast<size_t>(n)};
  }

 private:
  template <class T> static void load(void* library, const char* file, const char* symbol, T* to) {
    void* found = dlsym(library, symbol);
    TG_CHECK(DeviceError, found, "[init] ", file, " has no ", symbol, ", expected ", Abi::name);
    std::memcpy(to, &found, sizeof found);
  }
  static void store(H h, Request* to) { std::memcpy(&to->handle, &h, sizeof h); }
  void check(int code, const char* function) {
    if (code == 0) [[likely]]
      return;
    char text[8192] = {};
    int n = 0;
    f_.Error_string(code, text, &n);
    throw PeerError(str("MPI_", function, ": ", text));
  }

  mpi::Functions<Abi> f_;
  H world_{}, byte_{}, errors_return_{}, comm_{};
  bool ours_ = false;
};

/// Opens a file as an implementation; null where there is no such file.
template <class Abi> std::unique_ptr<Mpi> open_file(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);  // its plugins look for its symbols
  return library ? std::make_unique<MpiOf<Abi>>(library, file) : nullptr;
}
template <class Abi> std::unique_ptr<Mpi> open_usual(std::string* tried) {
  for (const char* file : Abi::files) {
    if (auto mpi = open_file<Abi>(file)) return mpi;
    *tried += (tried->empty() ? "" : ", ") + std::string(file);
  }
  return nullptr;
}
}  // namespace

std::unique_ptr<Mpi> Mpi::open(const std::string& library) {
  std::string tried;
  if (library != "mpich" && library.find('/') == std::string::npos)
    if (auto mpi = open_usual<mpi::OpenMpi>(&tried)) return mpi;
  if (library != "openmpi" && library.find('/') == std::string::npos)
    if (auto mpi = open_usual<mpi::Mpich>(&tried)) return mpi;
  if (library.find('/') != std::string::npos) {
    void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    TG_CHECK(DeviceError, opened, "[init] MPI_LIBRARY: ", dlerror());
    if (dlsym(opened, mpi::OpenMpi::world)) return std::make_unique<MpiOf<mpi::OpenMpi>>(opened, library.c_str());
    return std::make_unique<MpiOf<mpi::Mpich>>(opened, library.c_str());
  }
  throw DeviceError("[init] found no MPI library (tried " + tried +
                    "); to install: apt install openmpi-bin libopenmpi3, or name one with MPI_LIBRARY");
}

}  // namespace tg
