/// \file Captured functions in files: captured by one process, called by another without the function, without building
/// graphs and without compiling.
///
///     auto f = jit([&](const Tensor& x) { return model(x); });
///     f(x), f(x);                                  // captured by the second call
///     save_jit(f, "model.jit");
///     LoadedJit g = load_jit("model.jit");         // in another process
///     Tensor y = g(x)[0];
///
/// A file holds machine code, as a program does: load only files whose origin you trust. It runs on every processor
/// that has the instructions it uses, whatever its number of cores and caches (it is tuned for those of the machine
/// that saved it). Corruption is detected by checksums, and no file contents can make reading it misbehave.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/tensor/jit/jit.h"

namespace tg {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct SaveJitOptions {
  /// Tensors the function uses that are stored by name only, such as a model's state dict: load_jit takes them from the
  /// state it is given, for example the result of nn::safe_load. All other memory is part of the file.
  NamedTensors state = {};
  std::string note = {};  ///< any text; given back by LoadedJit::note
};

/// A captured function from a file. Copies share it.
class LoadedJit {
 public:
  LoadedJit(std::shared_ptr<JitCore> core, std::string note) : core_(std::move(core)), note_(std::move(note)) {}
  /// Returns the result's tensors, in order. Arguments are those of the captured call, in order, of the same shapes,
  /// types and devices, and its bound variables. JitError where they do not fit.
  Tensors operator()(const Tensors& tensors, const std::vector<BoundVariable>& variables = {}) const;
  template <class... T> Tensors operator()(const Tensor& first, const T&... more) const {
    return (*this)(Tensors{first, more...});
  }
  const std::string& name() const { return core_->name(); }
  const std::vector<std::string>& input_names() const { return core_->input_names(); }
  const std::string& note() const { return note_; }
  const std::shared_ptr<JitCore>& core() const { return core_; }

 private:
  std::shared_ptr<JitCore> core_;
  std::string note_;
};

/// Writes a captured function. JitError for one that has not been captured, DeviceError for memory on no computing
/// device, FileError.
void save_jit(const JitCore& core, const std::filesystem::path& path, const SaveJitOptions& o = {});
template <class F> void save_jit(const Jit<F>& f, const std::filesystem::path& path, const SaveJitOptions& o = {}) {
  save_jit(f.core(), path, o);
}
/// Returns the same as bytes.
std::vector<uint8_t> dump_jit(const JitCore& core, const SaveJitOptions& o = {});

/// Reads one. FileError; FormatError for a file of another kind, of another version of the library, or corrupt;
/// DeviceError for code of a device that is not available or with instructions that this processor lacks; ValueError
/// for a tensor missing from `state`.
LoadedJit load_jit(const std::filesystem::path& path, const NamedTensors& state = {});
LoadedJit parse_jit(std::span<const uint8_t> bytes, const NamedTensors& state = {},
                    const std::string& name = "[load_jit] bytes");

}  // namespace tg
