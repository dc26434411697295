/// \file Test memory for kernels, timing of launches, comparison of results.
#include "tinygrad/engine/kernel_timer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/math.h"
#include "tinygrad/engine/device_timer.h"
#include "tinygrad/engine/launch_list.h"
#include "tinygrad/runtime/transfers.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
double epsilon(DType d) { return std::ldexp(1.0, -finfo(d).mantissa); }

UOp param_of(UOp address) {
  while (!address.is(Ops::PARAM) && address.nsrc()) address = address.src(0);
  return address;
}

/// Finds the nodes whose values depend on loaded ones.
class Loaded {
 public:
  explicit Loaded(UOp sink) {
    for (UOp u : sink.toposort()) {
      bool from = u.is(Ops::LOAD);
      for (UOp s : u.srcs()) from |= at(s);
      if (u.id() >= loaded_.size()) loaded_.resize(u.id() + u.id() / 2 + 64);
      loaded_[u.id()] = from;
    }
  }
  bool at(UOp u) const { return u.id() < loaded_.size() && loaded_[u.id()]; }
  /// Returns true for a LOAD or STORE whose address depends on loaded values.
  bool address(UOp u) const { return at(u.src(0)); }

 private:
  std::vector<bool> loaded_;
};

uint64_t noise(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
template <class T, class F> void each(void* memory, size_t bytes, uint64_t seed, F&& value) {
  auto* p = static_cast<char*>(memory);
  for (size_t i = 0; i < bytes / sizeof(T); i++) {
    const T v = static_cast<T>(value(noise(seed + i)));
    std::memcpy(p + i * sizeof(T), &v, sizeof v);
  }
}
/// Fills memory with positive floats around 1, so that sums do not cancel and roots and logarithms exist, and with
/// small non-zero integers.
void fill_memory(void* memory, size_t bytes, DType d, uint64_t seed, bool zeros) {
  const auto unit = [](uint64_t r) { return 0.5 + static_cast<double>(r >> 40) * 0x1p-24; };
  const auto small = [](uint64_t r) { return 1 + (r >> 32) % 7; };
  if (!d.is_float() && zeros) std::memset(memory, 0, bytes);
  else if (d == dtypes::float32) each<float>(memory, bytes, seed, unit);
  else if (d == dtypes::float64) each<double>(memory, bytes, seed, unit);
  else if (d == dtypes::float16) each<uint16_t>(memory, bytes, seed, [](uint64_t r) { return 0x3800 | (r & 0x7ff); });
  else if (d == dtypes::bfloat16) each<uint16_t>(memory, bytes, seed, [](uint64_t r) { return 0x3f00 | (r & 0xff); });
  else if (d.is_fp8()) {
    uint8_t ones[16];
    for (int i = 0; i < 16; i++) ones[i] = float_to_fp8(0.5f + static_cast<float>(i) / 16, d);
    each<uint8_t>(memory, bytes, seed, [&](uint64_t r) { return ones[r & 15]; });
  } else if (d.is_bool()) each<uint8_t>(memory, bytes, seed, [](uint64_t r) { return r & 1; });
  else if (d.itemsize() == 1) each<uint8_t>(memory, bytes, seed, small);
  else if (d.itemsize() == 2) each<uint16_t>(memory, bytes, seed, small);
  else if (d.itemsize() == 4) each<uint32_t>(memory, bytes, seed, small);
  else each<uint64_t>(memory, bytes, seed, small);
}

double element(DType d, const void* memory, int64_t i) {
  const auto* p = static_cast<const char*>(memory) + i * d.itemsize();
  const auto read = [&]<class T>(T v) {
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  if (d == dtypes::float32) return read(float{});
  if (d == dtypes::float64) return read(double{});
  if (d == dtypes::bfloat16) return bfloat16_to_float(read(uint16_t{}));
  if (d == dtypes::float16) return half_to_float(read(uint16_t{}));
  return fp8_to_float(read(uint8_t{}), d);
}
}  // namespace

double result_tolerance(UOp sink) {
  double element = 0, sums = 0;
  for (UOp u : sink.toposort()) {
    if (!u.dtype().is_float()) continue;
    const DType d = u.dtype().is_weak() ? strong_dtype(u.dtype()) : u.dtype();
    if (!u.is(Ops::REDUCE)) {
      if (u.in(groups::kAlu | Ops::CAST)) element = std::max(element, epsilon(d));
      continue;
    }
    if (u.arg<ReduceArg>().op == Ops::MAX) continue;
    double n = 1;
    for (uint32_t i = range_start(u); i < u.nsrc(); i++)
      n *= static_cast<double>(std::max<int128>(1, vmax(u.src(i)) + 1));
    sums = std::max(sums, epsilon(d) * std::sqrt(n));
  }
  return 16 * element + 8 * sums;
}

double mean_magnitude(DType d, const void* memory, int64_t n) {
  if (!d.is_float()) return 0;
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < n; i++)
    if (const double v = std::abs(element(d, memory, i)); std::isfinite(v)) {
      sum += v;
      finite++;
    }
  return sum / static_cast<double>(std::max<int64_t>(finite, 1));
}

namespace {
/// Returns the index of the first element that does not agree; -1 when all do.
int64_t first_disagreement(DType d, const void* want, const void* got, int64_t n, double tolerance, double magnitude) {
  const auto bytes = static_cast<size_t>(n * d.itemsize());
  if (!std::memcmp(want, got, bytes)) return -1;
  if (!d.is_float()) {
    const auto *a = static_cast<const char*>(want), *b = static_cast<const char*>(got);
    return (std::mismatch(a, a + bytes, b).first - a) / d.itemsize();
  }
  const double scale = std::max(magnitude, mean_magnitude(d, want, n));
  for (int64_t i = 0; i < n; i++) {
    const double a = element(d, want, i), b = element(d, got, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::isinf(a) || std::isinf(b)) return i;
    if (!(std::abs(a - b) <= tolerance * std::max({std::abs(a), std::abs(b), scale})))
      return i;  // also where one is NaN
  }
  return -1;
}
std::string number_text(DType d, const void* memory, int64_t i) {
  if (d.is_float()) return str(element(d, memory, i));
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(memory) + i * d.itemsize(), static_cast<size_t>(d.itemsize()));
  return to_string(truncate_int(static_cast<int128>(bits), d));
}
}  // namespace

bool results_agree(DType d, const void* want, const void* got, int64_t n, double tolerance) {
  return first_disagreement(d, want, got, n, tolerance, 0) < 0;
}
std::string first_difference(DType d, const void* want, const void* got, int64_t n, double tolerance,
                             double magnitude) {
  const int64_t i = first_disagreement(d, want, got, n, tolerance, magnitude);
  return i < 0 ? std::string()
               : str("element ", i, " is ", number_text(d, got, i), ", expected ", number_text(d, want, i));
}

bool runs_on_any_numbers(UOp sink) {
  const Loaded loaded(sink);
  bool addresses = false, divides = false;
  for (UOp u : sink.toposort()) {
    if (u.is(Ops::STORE) && loaded.address(u)) return false;
    if (u.is(Ops::LOAD) && loaded.address(u)) addresses = true;
    if (u.in(Ops::CDIV | Ops::CMOD | Ops::FLOORDIV | Ops::FLOORMOD) && loaded.at(u.src(1))) divides = true;
  }
  return !(addresses && divides);  // all addresses are 0 then
}

Trial::Trial(UOp sink, Device& device)
    : device_(device), allocator_(device.allocator().uncounted()), tolerance_(result_tolerance(sink)) {
  const Loaded loaded(sink);
  std::vector<bool> read;
  for (UOp u : sink.toposort()) {
    if (u.is(Ops::LOAD) && loaded.address(u)) zeros_ = true;
    if (!u.is(Ops::PARAM)) continue;
    const ParamArg& p = u.arg<ParamArg>();
    if (p.addrspace == AddrSpace::kAlu) {
      vars_.emplace_back(p.name, p.vmax);
      continue;
    }
    const auto slot = static_cast<size_t>(p.slot);
    if (params_.size() <= slot) {
      params_.resize(slot + 1);
      read.resize(slot + 1);
    }
    params_[slot].dtype = u.dtype();
    params_[slot].bytes = static_cast<size_t>(vmax(u.src(0).src(0))) * static_cast<size_t>(u.dtype().itemsize());
  }
  for (UOp u : sink.toposort()) {
    if (!u.in(Ops::LOAD | Ops::STORE)) continue;
    if (UOp p = param_of(u.src(0)); p.is(Ops::PARAM) && p.arg<ParamArg>().addrspace != AddrSpace::kAlu) {
      const auto slot = static_cast<size_t>(p.arg<ParamArg>().slot);
      if (u.is(Ops::STORE)) params_[slot].written = true;
      else read[slot] = true;
    }
  }
  for (size_t s = 0; s < params_.size(); s++) in_place_ |= params_[s].written && read[s];
  handles_.resize(params_.size());
  offsets_.resize(params_.size());
  size_t total = 0;
  try {
    for (size_t s = 0; s < params_.size(); s++) {
      Cancellation::check("beam");
      if (!params_[s].bytes) continue;
      total += params_[s].bytes;
      if (const auto limit = static_cast<size_t>(env::MEMORY_LIMIT.get()) << 20; !limit || total <= limit)
        params_[s].memory = handles_[s] = allocator_.allocate(params_[s].bytes);
      TG_CHECK(OutOfMemoryError, params_[s].memory, "[beam] got no memory for ", total, " bytes of scratch buffers");
      fill(s);
    }
  } catch (...) {
    for (Param& p : params_)
      if (p.memory) allocator_.free(p.memory, p.bytes);
    throw;
  }
}
Trial::~Trial() {
  for (Param& p : params_)
    if (p.memory) allocator_.free(p.memory, p.bytes);
}

void Trial::fill(size_t slot) {
  const Param& p = params_[slot];
  const uint64_t seed = noise(slot + 1);
  if (device_.host_visible()) return fill_memory(allocator_.host_pointer(p.memory), p.bytes, p.dtype, seed, zeros_);
  std::vector<char> values(p.bytes);
  fill_memory(values.data(), p.bytes, p.dtype, seed, zeros_);
  device_.transfers().copy_in({p.memory, 0}, values.data(), p.bytes);
}
void Trial::fill_written() {
  for (size_t s = 0; s < params_.size(); s++)
    if (params_[s].written && params_[s].memory) fill(s);
}

/// Returns what a parameter holds.
void Trial::read(size_t slot, std::vector<char>* to) {
  to->resize(params_[slot].bytes);
  device_.transfers().copy_out(to->data(), {params_[slot].memory, 0}, to->size());
}

double Trial::launch(const CompiledKernel& kernel) {
  const Program& p = *kernel.program;
  std::vector<int64_t> vars;
  for (const std::string& name : p.vars)
    for (auto& [known, value] : vars_)
      if (known == name) {
        vars.push_back(value);
        break;
      }
  LaunchArgs args;
  args.buffers = handles_.data();
  args.offsets = offsets_.data();
  args.nbuffers = static_cast<int>(handles_.size());
  args.images = p.image_sizes();
  args.vars = vars.data();
  args.nvars = static_cast<int>(vars.size());
  static_cast<LaunchSize&>(args) = launch_size_of(p, vars);
  device_.wait();  // nothing else is timed
  DeviceTimer timer(device_);
  kernel.executable->launch(args);
  const auto [begin, end] = timer.stop();
  return static_cast<double>(end - begin) * 1e-9;
}

void Trial::remember(const CompiledKernel& kernel) {
  fill_written();
  launch(kernel);
  for (size_t s = 0; s < params_.size(); s++)
    if (params_[s].written && params_[s].memory) read(s, &params_[s].want);
}

bool Trial::agrees(const CompiledKernel& kernel, double* seconds) {
  fill_written();
  const double once = launch(kernel);
  if (seconds) *seconds = once;
  std::vector<char> got;
  for (size_t s = 0; s < params_.size(); s++) {
    const Param& p = params_[s];
    if (!p.written || !p.memory) continue;
    const void* result = device_.host_visible() ? allocator_.host_pointer(p.memory) : nullptr;
    if (!result) {
      read(s, &got);
      result = got.data();
    }
    if (!results_agree(p.dtype, p.want.data(), result, static_cast<int64_t>(p.bytes) / p.dtype.itemsize(), tolerance_))
      return false;
  }
  return true;
}

double Trial::time(const CompiledKernel& kernel, double best) {
  constexpr double kEnough = 0.012;
  if (in_place_) fill_written();
  double least = launch(kernel), total = least;
  for (int i = 0; i < 24 && (total < kEnough || i < 2); i++) {
    if (least > best * 1.4 || (i >= 1 && least > 0.2)) break;
    Cancellation::check("beam");
    const double s = launch(kernel);
    least = std::min(least, s);
    total += s;
  }
  return least;
}

std::vector<double> Trial::compare(std::span<const CompiledKernel* const> kernels) {
  if (in_place_) fill_written();
  std::vector<std::vector<double>> seconds(kernels.size());
  for (const CompiledKernel* k : kernels) launch(*k);
  double total = 0;
  for (int i = 0; i < 5 || (i < 41 && total < 0.2); i++) {
    for (size_t k = 0; k < kernels.size(); k++) {
      Cancellation::check("beam");
      seconds[k].push_back(launch(*kernels[k]));
      total += seconds[k].back();
    }
    if (total > 1 && i >= 1) break;
  }
  std::vector<double> medians;
  for (auto& v : seconds) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    medians.push_back(v[v.size() / 2]);
  }
  return medians;
}

}  // namespace tg
