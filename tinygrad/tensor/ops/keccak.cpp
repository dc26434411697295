/// \file Keccak over tensors of bytes.
#include <array>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr DType u64 = dtypes::uint64;

constexpr std::array<uint64_t, 24> kRoundConstants = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};

UOp at(int64_t i) { return UOp::constant(i); }
UOp rotated(UOp v, int n) { return n == 0 ? v : (v << ConstValue(n)) | (v >> ConstValue(64 - n)); }

/// Applies one round of the permutation. Lane (x, y) is at index x + 5 y.
std::array<UOp, 25> round_of(std::array<UOp, 25> a, UOp constant) {
  UOp c[5], d[5];
  for (size_t x = 0; x < 5; x++) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
  for (size_t x = 0; x < 5; x++) d[x] = c[(x + 4) % 5] ^ rotated(c[(x + 1) % 5], 1);
  for (size_t i = 0; i < 25; i++) a[i] = a[i] ^ d[i % 5];
  // Each lane rotates by a triangular number of bits and moves along the cycle (x, y) -> (y, 2x + 3y).
  std::array<UOp, 25> b = a;
  size_t x = 1, y = 0;
  for (int t = 0; t < 24; t++) {
    size_t nx = y, ny = (2 * x + 3 * y) % 5;
    b[nx + 5 * ny] = rotated(a[x + 5 * y], (t + 1) * (t + 2) / 2 % 64);
    x = nx;
    y = ny;
  }
  for (size_t i = 0; i < 25; i++) {
    size_t row = i / 5 * 5, col = i % 5;
    UOp inverted = b[row + (col + 1) % 5] ^ b[i].const_like(~uint64_t{0});
    a[i] = b[i] ^ (inverted & b[row + (col + 2) % 5]);
  }
  a[0] = a[0] ^ constant;
  return a;
}

/// Builds the sponge as one kernel: p[0] (batch, 25) becomes the state after absorbing p[1] (batch, blocks, words);
/// p[2] holds the round constants. The state is in registers and the rounds are a loop, so the code is one round long,
/// however many blocks there are.
UOp sponge(const UOps& p) {
  const int64_t words = shape_of(p[1])[2].value();
  auto registers = [](int64_t slot) {
    return UOp::make(Ops::BUFFER, u64, {Shape{25}.stack()}, ParamArg{slot, AddrSpace::kReg, "", "", 0, 0});
  };
  /// Returns stores of f(i) to the first n registers of `to`.
  auto each = [](UOp to, int64_t n, auto f) {
    UOps stores;
    for (int64_t i = 0; i < n; i++) stores.push_back(to.index({at(i)}).store(f(i)));
    return UOp::make(Ops::GROUP, dtypes::void_, stores);
  };
  UOp row = UOp::range(shape_of(p[1])[0].value(), 0),
      block = UOp::range(shape_of(p[1])[1].value(), 1, AxisType::kReduce);
  UOp round = UOp::range(int64_t{24}, 2, AxisType::kReduce);
  UOp state = registers(0), next = registers(1);
  state = state.after({each(state.after({row}), 25, [](int64_t) { return UOp::constant(ConstValue(0), u64); })});
  UOp inner = state.after({block});
  inner = inner.after({each(
      inner, words, [&](int64_t i) { return inner.index({at(i)}).load() ^ p[1].index({row, block, at(i)}).load(); })});
  UOp before = inner.after({round});
  std::array<UOp, 25> lanes;
  for (size_t i = 0; i < 25; i++) lanes[i] = before.index({at(static_cast<int64_t>(i))}).load();
  lanes = round_of(lanes, p[2].index({round}).load());
  // All lanes are computed before the first is overwritten.
  next = next.after({each(next.after({round}), 25, [&](int64_t i) { return lanes[static_cast<size_t>(i)]; })});
  UOp done = each(before, 25, [&](int64_t i) { return next.index({at(i)}).load(); }).end(UOps{round}).end(UOps{block});
  state = state.after({done});
  UOps stores;
  for (int64_t i = 0; i < 25; i++) stores.push_back(p[0].index({row, at(i)}).store(state.index({at(i)}).load()));
  UOp effects[] = {UOp::make(Ops::GROUP, dtypes::void_, stores).end(UOps{row})};
  KernelInfo info;
  info.name = "keccak";
  return UOp::sink(effects, info);
}
}  // namespace

Tensor Tensor::keccak(const std::string& variant) const {
  OpScope s;
  TG_CHECK(ValueError, variant == "sha3_224" || variant == "sha3_256" || variant == "shake_128", "[keccak] got '",
           variant, "', expected sha3_224, sha3_256 or shake_128");
  return s(variant == "sha3_224" ? keccak(144, 6) : variant == "sha3_256" ? keccak(136, 6) : keccak(168, 31));
}

Tensor Tensor::keccak(int64_t rate, int64_t suffix) const {
  OpScope s;
  TG_CHECK(ValueError, rate > 0 && rate < 200 && rate % 8 == 0 && suffix > 0 && suffix < 256, "[keccak] got rate ",
           rate, " and suffix ", suffix, ", expected a multiple of 8 below 200 and a byte");
  const Shape sh = shape();
  TG_CHECK(ShapeError, !sh.empty(), "[keccak] got a tensor without axes, expected bytes along the last one");
  if (devices().size() > 1) {  // hashed on one device
    Tensor digests = to(split_devices(device())[0]).keccak(rate, suffix);
    if (shard_axis() && *shard_axis() + 1 >= ndim()) return s(digests);
    return s(placed_like(digests.uop(), uop()));
  }
  Tensor bytes = bitcast(dtypes::uint8);
  Shape lead(sh.begin(), sh.end() - 1), out = lead;
  const SInt batch = lead.size() == 1 ? lead[0] : SInt(lead.numel());  // one symbolic axis is supported
  int64_t n = bytes.shape(-1), blocks = n / rate + 1, padding = blocks * rate - n;
  std::vector<uint8_t> tail(static_cast<size_t>(padding), 0);
  tail.front() ^= static_cast<uint8_t>(suffix);
  tail.back() ^= 0x80;
  auto rows = [&](std::initializer_list<int64_t> rest) {
    Shape r(rest);
    r.insert(r.begin(), batch);
    return r;
  };
  Tensor end = from(tail, {.device = device()}).reshape(1, padding).expand(rows({padding}));
  Tensor words = cat({bytes.reshape(rows({n})), end}, 1)
                     .contiguous()
                     .reshape(rows({blocks, rate / 8, 8}))
                     .bitcast(u64)
                     .reshape(rows({blocks, rate / 8}))
                     .contiguous();
  Tensor constants = from(std::vector<uint64_t>(kRoundConstants.begin(), kRoundConstants.end()), {.device = device()});
  const int64_t most = batch.max();  // the kernel runs over all rows a symbolic batch may have
  if (batch.symbolic()) words = from_uop(ops::pad(words.uop(), {{0, ops::minus(most, batch)}, {0, 0}, {0, 0}}));
  Tensor state = custom_kernel({empty({most, 25}, {.dtype = u64, .device = device()}), words, constants}, sponge)[0];
  Tensor digest = state.bitcast(dtypes::uint8).shrink_to(rows({(200 - rate) / 2}));
  out.push_back((200 - rate) / 2);
  return s(digest.reshape(out));
}

Tensor Tensor::hash() const {
  OpScope s;
  constexpr int64_t chunk = 1 << 20;
  auto one = [](const Tensor& t) {
    return t.reshape(-1, 4096).keccak("shake_128").reshape(t.shape(0), -1).keccak("shake_128");
  };
  Tensor data = flatten().bitcast(dtypes::uint8);
  int64_t chunks = (data.numel() + chunk - 1) / chunk;
  while (chunks > 1) {
    data = one(data.pad_to({chunks * chunk}).reshape(chunks, chunk)).flatten();
    chunks = (chunks + 65535) / 65536;
  }
  return s(one(data.pad_to({chunk}).unsqueeze(0)).flatten());
}

}  // namespace tg
