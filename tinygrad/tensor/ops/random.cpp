/// \file Random numbers: threefry2x32 over a counter per device. The host advances the counter when a tensor is made,
/// so values depend only on seed, order of creation and sizes; a kernel receives its key as a variable and generates
/// all values itself.
#include "tinygrad/tensor/ops/random.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>

#include "tinygrad/base/env.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/index_range.h"
#include "tinygrad/uop/eval.h"

namespace tg {
using namespace tensor_detail;

namespace {
struct Streams {
  struct One {
    uint64_t key, counter = 0;
  };
  std::mutex mutex;
  uint64_t seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  bool chosen = false;  // by the program, or by all processes of a world together
  std::map<std::string, One> devices;
  /// Makes all processes of a world have one stream.
  void agree() {
    if (chosen || distributed::size() == 1) return;
    seed = distributed::shared_seed();
    devices.clear();
    chosen = true;
  }
};
Streams& streams() {
  static auto* s = new Streams;
  return *s;
}
thread_local std::vector<rng::Draw>* t_record = nullptr;
thread_local rng::TrainingRead* t_training = nullptr;
}  // namespace

namespace rng {
uint64_t next_key(const std::string& device, int64_t words) {
  Streams& st = streams();
  std::lock_guard lock(st.mutex);
  st.agree();
  auto it = st.devices.find(device);
  if (it == st.devices.end()) {
    // The first word of a device's key is the last word of the hash of its index in order of first use.
    uint32_t n = static_cast<uint32_t>(st.devices.size());
    const uint8_t number[] = {static_cast<uint8_t>(n >> 24), static_cast<uint8_t>(n >> 16),
                              static_cast<uint8_t>(n >> 8), static_cast<uint8_t>(n)};
    Sha256Digest digest = Sha256().update(number).finish();
    uint32_t low = 0;
    for (size_t i = digest.size() - 4; i < digest.size(); i++) low = low << 8 | digest[i];
    it = st.devices.emplace(device, Streams::One{(st.seed & 0xffffffff) << 32 | low}).first;
  }
  Streams::One& d = it->second;
  uint64_t key = threefry2x32(d.counter, d.key);
  d.counter += static_cast<uint64_t>(words);
  if (t_record) t_record->push_back({device, words, key});
  return key;
}
std::vector<std::pair<std::string, uint64_t>> counters() {
  std::lock_guard lock(streams().mutex);
  std::vector<std::pair<std::string, uint64_t>> out;
  for (auto& [device, one] : streams().devices) out.emplace_back(device, one.counter);
  return out;
}
uint64_t counter(const std::string& device) {
  std::lock_guard lock(streams().mutex);
  auto it = streams().devices.find(device);
  return it == streams().devices.end() ? 0 : it->second.counter;
}
void take_back(const std::string& device, uint64_t before, uint64_t after) {
  std::lock_guard lock(streams().mutex);
  auto it = streams().devices.find(device);
  if (it != streams().devices.end() && it->second.counter == after) it->second.counter = before;
}
void set_counter(const std::string& device, uint64_t words) {
  std::lock_guard lock(streams().mutex);
  auto it = streams().devices.find(device);
  TG_CHECK(ValueError, it != streams().devices.end(), "[set_counter] got device ", device,
           ", expected one that random numbers were drawn on");
  it->second.counter = words;
}
State state() {
  std::lock_guard lock(streams().mutex);
  State out{streams().seed, {}};
  for (const auto& [device, one] : streams().devices) out.streams.push_back({device, one.key, one.counter});
  return out;
}
void set_state(const State& state) {
  std::lock_guard lock(streams().mutex);
  streams().seed = state.seed;
  streams().chosen = true;
  streams().devices.clear();
  for (const State::Stream& s : state.streams) streams().devices[s.device] = {s.key, s.counter};
}
TrainingRead* watch_training(TrainingRead* t) { return std::exchange(t_training, t); }
std::vector<Draw>* record(std::vector<Draw>* draws) { return std::exchange(t_record, draws); }
}  // namespace rng

void Tensor::manual_seed(uint64_t seed) {
  Streams& st = streams();
  std::lock_guard lock(st.mutex);
  st.seed = seed;
  st.chosen = true;
  st.devices.clear();
}
bool Tensor::training() {
  const bool on = bool(env::TRAINING);
  if (t_training) t_training->seen |= on == t_training->outer;
  return on;
}

namespace {
constexpr DType u32 = dtypes::uint32, u64 = dtypes::uint64;

/// Returns the bits of the blocks that `count` names, for a key of the device's stream from which `words` are drawn.
UOp blocks_of(UOp count, const std::string& device, int64_t words) {
  const auto key = static_cast<int64_t>(rng::next_key(device, words));
  UOp var = UOp::variable(rng::kKeyVariable, INT64_MIN, INT64_MAX);
  UOp k = var.after({var.store(UOp::constant(key))}).cast(u64), next = count + count.const_like((words + 1) / 2);
  UOp x = UOp::alu(Ops::OR, {UOp::alu(Ops::SHL, {next.cast(u64), UOp::constant(32, u64)}), count.cast(u64)});
  return UOp::alu(Ops::THREEFRY, {x, k});
}

/// Returns `n` words, the next n of the device's stream: the low halves of ceil(n / 2) blocks, then the high halves.
Tensor random_words(const std::string& device, int64_t n) {
  if (constexpr int64_t most = 0xffffffff;
      n > most) {  // a counter has 32 bits: each part has its own key, and so its own kernel
    Tensors parts;
    for (int64_t at = 0; at < n; at += most)
      parts.push_back(Tensor::from_uop(materialize(random_words(device, std::min(most, n - at)).uop(), device)));
    return Tensor::cat(parts);
  }
  // Each word recomputes its block: cheaper than storing the blocks, and one kernel.
  UOp i = ops::arange(n, u32), half = i.const_like((n + 1) / 2), first = i < half;
  UOp x = blocks_of(first.where(i, i - half), device, n);
  return Tensor::from_uop(first.where(x, UOp::alu(Ops::SHR, {x, x.const_like(32)})).cast(u32));
}
/// Returns n numbers of 64 bits, the next 2 n words of the device's stream.
Tensor random_longs(const std::string& device, int64_t n) {
  if (constexpr int64_t most = 0x7fffffff; n > most) {
    Tensors parts;
    for (int64_t at = 0; at < n; at += most)
      parts.push_back(Tensor::from_uop(materialize(random_longs(device, std::min(most, n - at)).uop(), device)));
    return Tensor::cat(parts);
  }
  return Tensor::from_uop(blocks_of(ops::arange(n, u32), device, 2 * n));
}

void check_shape(const Shape& shape, const char* op) {
  for (const SInt& n : shape)
    TG_CHECK(ShapeError, n.symbolic() || n.value() >= 0, "[", op, "] got shape ", shape,
             ", expected sizes that are not negative");
}

/// Returns uniform values in [0, 1): the bits fill the mantissa of a value in [1, 2).
Tensor unit(const Shape& shape, DType d, const std::string& device, const char* op) {
  TG_CHECK(DTypeError, d.is_float() && !d.is_weak(), "[", op, "] got dtype ", d, ", expected a float type");
  check_shape(shape, op);
  if (shape.symbolic())
    // The same number of draws for every value of the variable.
    return unit(ops::max_shape(shape), d, device, op).shrink_to(shape);
  int64_t n = shape.numel();
  if (n == 0) return Tensor::from_uop(ops::full(shape, 0, d));
  int size = d.itemsize();
  static constexpr DType uints[] = {{}, dtypes::uint8, dtypes::uint16, {}, u32, {}, {}, {}, u64};
  DType bits_type = uints[size];
  Tensor bits = random_words(device, (n * size + 3) / 4).bitcast(bits_type);
  UOp one = UOp::constant(1.0, d);
  uint64_t one_bits = static_cast<uint64_t>(eval_bitcast(one.const_value(), d, bits_type).i);
  UOp u = bits.uop();
  u = UOp::alu(Ops::SHR, {u, u.const_like(d.bitsize() - finfo(d).mantissa)});
  u = (u | u.const_like(one_bits)).bitcast(d);
  u = ops::shrink(u, {{0, n}}) - u.const_like(1.0);
  return Tensor::from_uop(ops::reshape(u, shape));
}

/// Stores a random tensor's expression once, on its device.
Tensor stored(const OpScope& s, const Tensor& t, const std::string& device, std::optional<bool> requires_grad) {
  Tensor r = s(materialize(t.uop(), device));  // the values depend on no buffer: the storage names their device
  if (requires_grad) r.requires_grad_(*requires_grad);
  return r;
}
Tensor unit_normal(const Shape& shape, const std::string& device) {
  Shape two = shape;
  two.insert(two.begin(), SInt(2));
  Tensor u = unit(two, dtypes::float32, device, "randn");
  // The Box-Muller transform.
  return (u[0] * (2 * std::numbers::pi)).cos() * ((1 - u[1]).log() * -2.0).sqrt();
}
Tensor scaled(const Shape& shape, double low, double high, DType d, const std::string& device) {
  return ((high - low) * unit(shape, dtypes::default_float(), device, "uniform")).cast(d) +
         (d.is_int() ? Tensor(static_cast<int64_t>(low)) : Tensor(low));
}
/// Returns the largest value of a float type below `limit`.
double below(double limit, DType d) {
  const double rounded = truncate_float(limit, d);
  if (rounded < limit) return rounded;
  if (!std::isfinite(rounded)) return rounded;
  const FloatInfo f = finfo(d);
  const int least_exponent = 2 - (1 << (f.exponent - 1)), exponent = std::max(std::ilogb(rounded), least_exponent);
  // The next value is one unit of the last digit away, or half of one below a power of two.
  return truncate_float(rounded - std::ldexp(0.6, exponent - f.mantissa), d);
}
/// Keeps uniform floats below the limit, which they may reach when they are rounded to their type.
Tensor kept_below(const Tensor& t, double limit) {
  const double most = below(limit, t.dtype());
  return (t > most).where(most, t);
}

/// Returns the upper half of the 128 bits of x * n.
Tensor high_product(const Tensor& x, uint64_t n) {
  const auto number = [](uint64_t v) { return Tensor::scalar(v, u64); };
  const Tensor low_bits = number(0xffffffff), x1 = x >> 32, x0 = x & low_bits, n0 = number(n & 0xffffffff);
  const Tensor middle = x1 * n0 + ((x0 * n0) >> 32);
  if (!(n >> 32)) return middle >> 32;
  const Tensor n1 = number(n >> 32);
  return x1 * n1 + (middle >> 32) + ((x0 * n1 + (middle & low_bits)) >> 32);
}
/// Returns integers from 0 to n - 1: the whole part of n times a fraction that has at least 32 bits more than n.
Tensor wide_integers(const Shape& shape, uint64_t n, const std::string& device) {
  check_shape(shape, "randint");
  if (shape.symbolic()) return wide_integers(ops::max_shape(shape), n, device).shrink_to(shape);
  if (shape.numel() == 0) return Tensor::from_uop(ops::full(shape, 0, u64));
  const bool two = n >> 32;
  Shape all = shape;
  all.insert(all.begin(), SInt(two ? 2 : 1));
  const Tensor bits = random_longs(device, all.numel()).reshape(all), first = bits[0], high = high_product(first, n);
  if (!two) return high;
  const Tensor low = first * Tensor::scalar(n, u64), sum = low + high_product(bits[1], n);
  return high + (sum < low).cast(u64);
}
/// Checks that there is one device: each has its own stream.
std::string one_device(const std::string& name, const char* op) {
  std::string device = Device::canonical(name);
  TG_CHECK(ValueError, !is_device_list(device), "[", op, "] got devices ", device,
           ", expected one: shard the tensor afterwards");
  return device;
}
/// Returns a tensor sharded like `u`, each shard made by `make` on its device; where all devices hold the same, made on
/// the default device. In a world it is what one process would make, each process takes its slices.
template <class F> Tensor make_sharded_like(UOp u, F make) {
  const std::string devices = device_of(u);
  const ShardAxes axes = shard_axes(u);
  if (axes.none() || is_world(devices))
    return Tensor::from_uop(distribute(make(shape_of(u), Device::default_name()).uop(), devices, axes));
  UOps parts;
  std::vector<Tensor> hold;
  for (const std::string& d : split_devices(devices)) {
    hold.push_back(make(shard_shape(u), d));
    parts.push_back(hold.back().uop());
  }
  return Tensor::from_uop(join_shards(parts, axes, devices));
}
int64_t fan_in(const Shape& shape) { return shape.empty() ? 1 : Shape(shape.begin() + 1, shape.end()).numel(); }
}  // namespace

Tensor Tensor::rand(const Shape& shape, const TensorOptions& o, bool contiguous) {
  OpScope s;
  std::string device = one_device(o.device, "rand");
  if (!contiguous) return s(unit(shape, o.dtype.value_or(dtypes::default_float()), device, "rand"));
  return stored(s, unit(shape, o.dtype.value_or(dtypes::default_float()), device, "rand"), device, o.requires_grad);
}
Tensor Tensor::rand_like(std::optional<DType> dtype) const { return rand_like(TensorOptions{.dtype = dtype}); }

Tensor Tensor::randn(const Shape& shape, const TensorOptions& o) {
  OpScope s;
  std::string device = one_device(o.device, "randn");
  DType d = o.dtype.value_or(dtypes::default_float());
  TG_CHECK(DTypeError, !d.is_weak(), "[randn] got dtype ", d, ", expected one with a size");
  return stored(s, unit_normal(shape, device).cast(d), device, o.requires_grad);
}
Tensor Tensor::randn_like(std::optional<DType> dtype) const { return randn_like(TensorOptions{.dtype = dtype}); }
/// Calls f(shape, options) with this tensor's type and device where the options name none; for several devices once per
/// shard.
template <class F> static Tensor like(const Tensor& t, TensorOptions o, const char* op, F f) {
  OpScope s(op);
  UOp u = uop_of(t, op);
  if (!o.dtype) o.dtype = t.dtype();
  if (!is_multi(u)) {
    if (o.device.empty()) o.device = t.device();
    return s(f(t.shape(), o));
  }
  TG_CHECK(DeviceError, o.device.empty(), "[", op,
           "] cannot specify `device` on `*_like` of a multi device tensor: got ", o.device, " for one on ",
           device_of(u));
  return s(make_sharded_like(u, [&](const Shape& shape, const std::string& device) {
    o.device = device;
    return f(shape, o);
  }));
}
Tensor Tensor::rand_like(const TensorOptions& o) const {
  return like(*this, o, "rand_like", [](const Shape& shape, const TensorOptions& all) { return rand(shape, all); });
}
Tensor Tensor::randn_like(const TensorOptions& o) const {
  return like(*this, o, "randn_like", [](const Shape& shape, const TensorOptions& all) { return randn(shape, all); });
}

Tensor Tensor::random_bits(const Tensor& key, const Tensor& counter, int64_t num) {
  OpScope s;
  for (const Tensor* t : {&key, &counter})
    TG_CHECK(ShapeError, t->shape() == Shape{2} && t->dtype() == u32, "[random_bits] got ", t->dtype(), " of shape ",
             t->shape(), ", expected two uint32 words each for key and counter");
  TG_CHECK(ShapeError, num >= 0 && num <= 0xffffffffll, "[random_bits] got ", num, ", expected 0 to ", 0xffffffffll);
  if (num == 0) return counter.shrink({{0, 0}});
  auto joined = [](const Tensor& high, const Tensor& low) { return (high.cast(u64) << 32) | low.cast(u64); };
  // The key of this call is the block the counter names; its own blocks count from 0.
  Tensor here = joined(counter[1], counter[0]).threefry(joined(key[1], key[0]));
  int64_t half = (num + 1) / 2;
  Tensor low = arange(0, half, 1, {.dtype = u32}), x = joined(low + half, low).threefry(here);
  return s(cat({x.cast(u32), (x >> 32).cast(u32)}).shrink({{0, num}}));
}

Tensor Tensor::normal(const Shape& shape, const NormalOptions& o) {
  OpScope s;
  TG_CHECK(ValueError, o.std >= 0, "[normal] got std ", o.std, ", expected 0 or more");
  std::string device = one_device(o.device, "normal");
  return stored(s, o.std * unit_normal(shape, device).cast(o.dtype.value_or(dtypes::default_float())) + o.mean, device,
                o.requires_grad);
}

Tensor Tensor::uniform(const Shape& shape, const UniformOptions& o) {
  OpScope s;
  TG_CHECK(ValueError, o.low < o.high, "[uniform] got low ", o.low, " and high ", o.high, ", expected low < high");
  std::string device = one_device(o.device, "uniform");
  const DType d = o.dtype.value_or(dtypes::default_float());
  const Tensor t = scaled(shape, o.low, o.high, d, device);
  return stored(s, d.is_float() ? kept_below(t, o.high) : t, device, o.requires_grad);
}

Tensor Tensor::randint(const Shape& shape, const RandintOptions& o) {
  OpScope s;
  TG_CHECK(ValueError, o.low < o.high, "[randint] got low ", o.low, " and high ", o.high, ", expected low < high");
  TG_CHECK(DTypeError, o.dtype.is_int() && !o.dtype.is_weak(), "[randint] got dtype ", o.dtype,
           ", expected an integer type");
  std::string device = one_device(o.device, "randint");
  const uint64_t n = static_cast<uint64_t>(o.high) - static_cast<uint64_t>(o.low);
  // The digits of a random float are enough for few numbers: all are drawn equally often but for one part in a hundred.
  constexpr int kSpareBits = 7;
  const int digits = finfo(dtypes::default_float()).mantissa;
  if (n <= uint64_t{1} << std::max(0, digits - kSpareBits))
    return stored(s, scaled(shape, static_cast<double>(o.low), static_cast<double>(o.high), o.dtype, device), device,
                  {});
  return stored(s, wide_integers(shape, n, device).cast(o.dtype) + Tensor(o.low), device, {});
}

Tensor Tensor::scaled_uniform(const Shape& shape, const TensorOptions& o) {
  OpScope s;
  std::string device = one_device(o.device, "scaled_uniform");
  Tensor t = scaled(shape, -1, 1, o.dtype.value_or(dtypes::default_float()), device) *
             std::pow(static_cast<double>(shape.numel()), -0.5);
  return stored(s, t, device, o.requires_grad);
}
Tensor Tensor::glorot_uniform(const Shape& shape, const TensorOptions& o) {
  TG_CHECK(ShapeError, !shape.empty(), "[glorot_uniform] got shape ", shape, ", expected at least one axis");
  double bound = std::sqrt(6.0 / static_cast<double>(shape[0].value() + fan_in(shape)));
  return uniform(
      shape, {.low = -bound, .high = bound, .dtype = o.dtype, .device = o.device, .requires_grad = o.requires_grad});
}
Tensor Tensor::kaiming_uniform(const Shape& shape, double a, const TensorOptions& o) {
  double bound = std::sqrt(6.0 / (1 + a * a) / static_cast<double>(fan_in(shape)));
  return uniform(
      shape, {.low = -bound, .high = bound, .dtype = o.dtype, .device = o.device, .requires_grad = o.requires_grad});
}
Tensor Tensor::kaiming_normal(const Shape& shape, double a, const TensorOptions& o) {
  double std = std::sqrt(2.0 / (1 + a * a) / static_cast<double>(fan_in(shape)));
  return normal(shape, {.std = std, .dtype = o.dtype, .device = o.device, .requires_grad = o.requires_grad});
}
Tensor Tensor::randperm(int64_t n, const TensorOptions& o) {
  OpScope s;
  TG_CHECK(ValueError, n >= 0, "[randperm] got ", n, ", expected 0 or more");
  return s(rand({n}, {.device = o.device}).argsort().cast(o.dtype.value_or(dtypes::int32)));
}

namespace {
/// ValueError for weights that cannot be drawn by, where the host knows them or CHECK_INDEX=1 reads them.
void check_weights(const Tensor& weights) {
  const std::optional<ValueRange> r = host_range(weights);
  const bool known = r && !JitCore::capturing();
  if ((r && r->least > 0 && std::isfinite(r->largest)) || (!known && !is_checked(weights))) return;
  const std::vector<double> values = weights.to_vector<double>();
  const auto row = static_cast<size_t>(weights.shape(-1));
  double sum = 0;
  for (size_t i = 0; i < values.size(); i++) {
    TG_CHECK(ValueError, values[i] >= 0 && std::isfinite(values[i]), "[multinomial] got the weight ", values[i], " at ",
             i % row, ", expected finite ones that are not negative");
    sum = i % row == 0 ? values[i] : sum + values[i];
    TG_CHECK(ValueError, i % row + 1 != row || sum > 0, "[multinomial] got weights that are all 0 in row ", i / row,
             ", expected a sum above 0");
  }
}
}  // namespace

Tensor Tensor::multinomial(int64_t samples, bool replacement) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, (sh.size() == 1 || sh.size() == 2) && samples > 0, "[multinomial] got shape ", sh, " and ",
           samples, " samples, expected 1 or 2 axes and 1 or more samples");
  Tensor w = sh.size() == 1 ? unsqueeze(0) : *this;
  TG_CHECK(ValueError, replacement || samples <= w.shape(1), "[multinomial] got ", samples, " samples of ", w.shape(1),
           " without replacement, expected at most as many");
  check_weights(w);
  Tensor index;
  if (replacement || samples == 1) {
    Tensor sums = w.to_float().cumsum(1), cdf = sums / sums(Slice(), -1).unsqueeze(1);
    Tensor u = rand({samples, cdf.shape(0), 1}, {.device = device()});
    index = (u >= cdf).sum(2).permute(1, 0);
  } else index = (w.rand_like(dtypes::float32).log2() / w).topk(samples, 1).second;  // Efraimidis and Spirakis
  return s((sh.size() == 1 ? index.squeeze(0) : index).to_int());
}

Tensor Tensor::dropout(double p) const {
  OpScope s;
  TG_CHECK(ValueError, p >= 0 && p <= 1, "[dropout] got p = ", p, ", expected 0 to 1");
  if (!training() || p == 0) return *this;
  if (p == 1) return s(full_like(false, dtypes::bool_).where(*this, 0));
  TG_CHECK(ValueError, !shape().symbolic(), "[dropout] got shape ", shape(),
           ", which is not supported: another size drops other elements. Expected sizes that are numbers, or a mask "
           "made with rand");
  auto mask = [p](const Shape& shape, const std::string& device) {
    Tensor keep = unit(shape, dtypes::default_float(), device, "dropout") >= p;
    return Tensor::from_uop(materialize(keep.uop(), device));  // the backward pass reads it again
  };
  Tensor keep = is_multi(uop()) ? make_sharded_like(uop(), mask) : s(mask(shape(), device()));
  return s(keep.where(*this, 0) * (1 / (1 - p)));
}

}  // namespace tg
