/// \file Targets and compilers of code for the host, for the devices that run it.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Host code targets under DEV and their compilers, created once each: shared by the devices that compile for the host.
class HostToolchain {
 public:
  /// `kind`: the device it is for. `runs`: code must run on this processor.
  HostToolchain(std::string kind, bool runs);
  ~HostToolchain();
  /// Returns the target under the current DEV. Throws DeviceError for a renderer it has not, or a processor whose code
  /// does not run here, ValueError for one it does not know.
  const Target& target();
  Compiler& compiler(const Target& target);
  /// Returns the compiler of kernels that users wrote in C.
  Compiler& source_compiler(Target target);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tg
