/// \file Python: the counters of what has run and the memory in use.
#include "tinygrad/engine/counters.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/runtime/allocator.h"
#include "tinygrad/runtime/device.h"

namespace tg::python {

void bind_counters(nb::module_& m) {
  m.def(
      "counter_get",
      [](std::string_view name) -> nb::object {
        if (name == "kernel_count") return nb::int_(GlobalCounters::kernels.load() + GlobalCounters::copies.load());
        if (name == "global_ops") return nb::int_(GlobalCounters::ops.load());
        if (name == "global_mem") return nb::int_(GlobalCounters::mem.load());
        if (name == "time_sum_s") return nb::float_(static_cast<double>(GlobalCounters::nanoseconds.load()) * 1e-9);
        if (name == "compile_sum_s") return nb::float_(static_cast<double>(GlobalCounters::compile_ns.load()) * 1e-9);
        if (name == "run_sum_s") return nb::float_(static_cast<double>(GlobalCounters::run_ns.load()) * 1e-9);
        if (name == "collectives") return nb::int_(GlobalCounters::collectives.load());
        if (name == "sent_bytes") return nb::int_(GlobalCounters::sent.load());
        if (name == "compiled") return nb::int_(GlobalCounters::compiled.load());
        if (name == "disk_hits") return nb::int_(GlobalCounters::disk_hits.load());
        if (name == "searched") return nb::int_(GlobalCounters::searched.load());
        throw nb::key_error(std::string(name).c_str());
      },
      "name"_a, "A counter of the process.");
  m.def(
      "counter_set",
      [](std::string_view name, double v) {
        const auto whole = static_cast<int64_t>(v);
        if (name == "kernel_count") {
          GlobalCounters::copies = 0;
          GlobalCounters::kernels = whole;
        } else if (name == "global_ops") GlobalCounters::ops = whole;
        else if (name == "global_mem") GlobalCounters::mem = whole;
        else if (name == "time_sum_s") GlobalCounters::nanoseconds = static_cast<int64_t>(v * 1e9);
        else throw nb::key_error(std::string(name).c_str());
      },
      "name"_a, "value"_a, "Sets a counter of the process.");
  m.def("counters_reset", &GlobalCounters::reset,
        "Counts of kernels, copies, operations, bytes and time start again at zero.");
  m.def(
      "memory_used",
      [](std::string_view device) -> int64_t {
        if (device.empty()) {
          int64_t used = 0;
          for (Device* d : Device::opened()) used += d->kind() == "DISK" ? 0 : d->allocator().stats().used;
          return used;
        }
        for (Device* d : Device::opened())
          if (d->name() == device) return d->allocator().stats().used;
        return 0;
      },
      "device"_a = "", "Bytes that live buffers hold, on one device or (files aside) on all.");
  m.def(
      "memory_stats",
      [](std::string_view device) {
        const MemoryStats s = memory_stats(device);
        nb::dict d;
        d["used"] = s.used;
        d["peak"] = s.peak;
        d["cached"] = s.cached;
        d["allocations"] = s.allocations;
        d["reused"] = s.reused;
        return d;
      },
      "device"_a = "",
      "Bytes in use, their peak, bytes kept for reuse, and numbers of blocks handed out and reused; of one opened "
      "device or of all.");
  m.def("reset_memory_stats", &reset_memory_stats, "device"_a = "", "Resets peak and counts.");
  m.def("free_memory_caches", &free_memory_caches, "Gives memory kept for reuse back to the system.");
  m.def("profile_json", &profile::json, "What PROFILE=1 has recorded so far, in the trace event format.");
  m.def("profile_clear", &profile::clear, "Forgets what PROFILE=1 has recorded.");
  m.def(
      "opened_devices",
      [] {
        std::vector<std::string> names;
        for (Device* d : Device::opened()) names.push_back(d->name());
        return names;
      },
      "Names of the devices opened so far.");
}

}  // namespace tg::python
