/// \file What the drivers of CUDA and HIP share: finding functions, errors.
#include "tinygrad/runtime/gpu_driver.h"

#include <dlfcn.h>

#include <algorithm>

namespace tg {

bool gpu_error::is_fatal(int error) {
  constexpr int kFatal[] = {
      214,                                // a memory error that was not corrected
      220,                                // the same of NVLink
      700, 702, 709, 710,                 // an illegal address, a time limit, a destroyed context, a failed assertion
      714, 715, 716, 717, 718, 719, 911,  // what else kernels end with
      999                                 // unknown
  };
  return std::find(std::begin(kFatal), std::end(kFatal), error) != std::end(kFatal);
}

std::string GpuDriver::text_of(int error) const {
  const char *name = nullptr, *text = nullptr;
  if (f.error_name(error, &name) != 0 || !name) return str("error ", error);
  return f.error_text(error, &text) == 0 && text ? str(name, ": ", text) : name;
}

int GpuDriver::attribute(int device, GpuAttribute question) const {
  int value = 0;
  check(str(vendor, " device ", device), f.device_attribute, &value, number_of(question), device);
  return value;
}

int GpuDriver::attribute_if_known(int device, GpuAttribute question) const {
  int value = 0;
  return f.device_attribute(&value, number_of(question), device) == 0 ? value : 0;
}

void* GpuSymbols::find(const char* symbol) const {
  void* found = dlsym(library, symbol);
  TG_CHECK(DeviceError, found, "[driver] ", file, " has no function ", symbol, ", expected ", expected);
  return found;
}

}  // namespace tg
