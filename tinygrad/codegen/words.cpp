/// \file Sums over numbers of four bits with words as lanes.
#include "tinygrad/codegen/words.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/codegen/heuristic.h"
#include "tinygrad/codegen/stage.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr int64_t kLanes = 16, kBytes = 4, kRegister = kLanes * kBytes;
constexpr int64_t kReach = 2 * kRegister;  // bytes that a register of words may come from
constexpr int64_t kLeastRows = 256;        // that share the factor
constexpr int64_t kRows = 4;               // side by side: the factor is loaded once for them
constexpr double kLongRow = 8192;          // numbers of it
constexpr int64_t kShortAxis = 4;          // the two numbers of a byte
constexpr double kCyclesPerVector = 1.2;   // of sixteen numbers, as measured

int64_t size_of(UOp r) { return r.src(0).is_const() ? static_cast<int64_t>(r.src(0).const_int()) : 0; }
bool is_group_of_bits(UOp u) {
  if (u.nsrc() != 2 || !u.src(1).is_const() || u.src(1).is_invalid()) return false;
  const int128 c = u.src(1).const_int();
  return (u.is(Ops::AND) && c > 0 && c < 16) || (u.is(Ops::SHR) && c >= 4);
}
UOp digit(Ops op, UOp u, int64_t n) {
  UOp s[2] = {u, UOp::constant(n)};
  return fold(op, u.dtype(), s);
}
UOp part(UOp of, int32_t number, int64_t size) {
  RangeArg arg = of.arg<RangeArg>();
  arg.id.push_back(number);
  return UOp::range(UOp::constant(size), arg);
}
}  // namespace

WordKernel word_kernel(UOp sink, UOp range, const Renderer& renderer) {
  const Target& t = renderer.target();
  if (t.renderer != "LLVM" || t.vector_bytes < 64 || !t.has("avx512bw")) return {};
  const UOps order = sink.toposort();
  UOp reduce;
  for (UOp u : order) {
    if (!u.is(Ops::REDUCE)) continue;
    if (reduce) return {};
    reduce = u;
  }
  if (!reduce || reduce.arg<ReduceArg>().op != Ops::ADD || reduce.dtype() != dtypes::float32 ||
      !reduce.src(0).is(Ops::MUL))
    return {};
  const UOps reduced(reduce.srcs().begin() + 1, reduce.srcs().end());
  const int64_t n = size_of(range);
  if (std::find(reduced.begin(), reduced.end(), range) == reduced.end() || n <= 0 || n % kBytes) return {};
  // The bytes, of which only groups of bits are used.
  UOp load;
  LinearForm f;
  for (UOp u : order) {
    if (!u.is(Ops::LOAD) || u.dtype() != dtypes::uint8 || u.nsrc() != 1 || !u.src(0).src(0).is(Ops::PARAM)) continue;
    LinearForm form = linear_form(u.src(0).src(1));
    if (form.coefficient(range) != 1 || !form.rest.empty() || u.src(0).src(1).is(Ops::WHERE)) continue;
    if (load) return {};
    load = u;
    f = std::move(form);
  }
  if (!load) return {};
  for (UOp u : order)
    for (UOp s : u.srcs())
      if (s == load && !is_group_of_bits(u)) return {};
  // The other factor: the same for all rows, and nothing of the first.
  auto loads_in = [](UOp v) {
    const UOps nodes = v.toposort();
    return std::any_of(nodes.begin(), nodes.end(), [](UOp u) { return u.is(Ops::LOAD); });
  };
  UOp factor, numbers_of;
  for (uint32_t i = 0; i < 2; i++) {
    UOp a = reduce.src(0).src(i), b = reduce.src(0).src(1 - i);
    const UOps of_a = a.toposort(), of_b = b.toposort();
    const bool numbers = std::find(of_a.begin(), of_a.end(), load) != of_a.end(),
               other = std::find(of_b.begin(), of_b.end(), load) == of_b.end();
    if (numbers && other && loads_in(b) && depends_on(b, range)) {
      factor = b;
      numbers_of = a;
    }
  }
  if (!factor) return {};
  for (UOp u : numbers_of.toposort())
    if (u.is(Ops::LOAD) && u != load && depends_on(u, range)) return {};  // not in the order of the lanes
  for (UOp r : ranges_of(factor))
    if (std::find(reduced.begin(), reduced.end(), r) == reduced.end()) return {};
  // A register holds the words of one block or of several.
  const int64_t words = n / kBytes, blocks = kLanes / std::min(words, kLanes);
  if (words < kLanes ? kLanes % words : words % kLanes) return {};
  UOp distance;
  int64_t step = 0;
  if (blocks > 1) {
    for (UOp r : reduced)
      if (int64_t c = f.coefficient(r); r != range && c >= n && (!distance || c < step)) {
        distance = r;
        step = c;
      }
    if (!distance || size_of(distance) % blocks || step % 2 || (blocks - 1) * step + n > kReach ||
        size_of(distance) <= 0)
      return {};
  }
  WordKernel k;
  k.lanes = part(range, 1, kLanes);
  k.bytes = part(range, 2, kBytes);
  std::vector<std::pair<UOp, UOp>> map;
  UOp word = k.lanes;
  if (blocks > 1) {
    k.registers = UOp::range(UOp::constant(size_of(distance) / blocks), distance.arg<RangeArg>());
    map.push_back({distance, fold_add(fold_mul(k.registers, blocks), digit(Ops::FLOORDIV, k.lanes, words))});
    word = digit(Ops::FLOORMOD, k.lanes, words);
  } else if (words > kLanes) {
    k.registers = part(range, 0, words / kLanes);
    word = fold_add(fold_mul(k.registers, kLanes), word);
  }
  map.push_back({range, fold_add(fold_mul(word, kBytes), k.bytes)});
  UOps src{reduce.src(0).substitute(map)};
  for (UOp r : reduced) {
    if (r == distance) src.push_back(k.registers);
    if (r == range && !distance && k.registers) src.push_back(k.registers);
    if (r == range) {
      src.push_back(k.lanes);
      src.push_back(k.bytes);
    }
    if (r != distance && r != range) src.push_back(r);
  }
  k.sink = sink.substitute({{reduce, UOp::make(Ops::REDUCE, reduce.dtype(), src, reduce.arg(), reduce.tag())}});
  k.factor = src[0].is(Ops::MUL) ? factor.substitute(map) : UOp();
  return k.factor ? k : WordKernel{};
}

bool choose_words(KernelAxes& kernel, const Renderer& renderer) {
  if (!kernel.applied().empty()) return false;
  for (int axis = 0; axis < static_cast<int>(kernel.axes().size()); axis++) {
    if (!kernel.axes()[static_cast<size_t>(axis)].reduce) continue;
    const WordKernel w = word_kernel(kernel.sink(), kernel.range(axis), renderer);
    if (!w.sink) continue;
    KernelAxes k(kernel);
    k.apply({OptOp::kTc, axis, kWords});
    const UOps operands = stageable(k.sink());
    const auto operand = std::find(operands.begin(), operands.end(), w.factor);
    if (operand == operands.end()) continue;
    Candidate c;
    c.lanes = static_cast<int>(kLanes);
    c.staged = 1u << (operand - operands.begin());
    c.stages = {{-1, static_cast<int>(operand - operands.begin())}};
    double rows = 1, vectors = 1;
    // Rows side by side load the factor once, which counts when it fills the first level cache. Shorter rows one by one
    // are a single stream that the processor follows even while others use its caches. Scales of eight registers are in
    // two: of two registers of each row, or of four of one.
    const int64_t registers = w.registers ? size_of(w.registers) : 1;
    double numbers = 1;
    int tiled = -1;
    for (int a = 0; a < static_cast<int>(k.axes().size()); a++) {
      const KernelAxes::Axis& x = k.axes()[static_cast<size_t>(a)];
      if (x.reduce) numbers *= static_cast<double>(x.size);
      else if (x.size > 0 && x.size % kRows == 0 && registers % 2 == 0) tiled = a;
    }
    if (numbers < kLongRow) tiled = -1;
    for (int a = 0; a < static_cast<int>(k.axes().size()); a++) {
      const KernelAxes::Axis& x = k.axes()[static_cast<size_t>(a)];
      UOp r = k.range(a);
      int64_t tile = 1;
      if (x.size == 0) return false;
      if (r == w.lanes) c.lane_axes = {a};
      else if (r == w.bytes || (x.reduce && x.size <= kShortAxis)) tile = x.size;
      else if (r == w.registers) tile = x.size % 4 == 0 && tiled < 0 ? 4 : x.size % 2 == 0 ? 2 : 1;
      else if (a == tiled) tile = kRows;
      if (!x.reduce) {
        c.order.push_back(a);
        rows *= static_cast<double>(x.size);
      } else if (r != w.lanes) vectors *= static_cast<double>(x.size);
      c.tile.push_back(tile);
    }
    if (rows < kLeastRows) continue;
    c.filling = vectors * kLanes * 2;
    c.cycles = rows * vectors * kCyclesPerVector + c.filling;
    apply_candidate(k, c, renderer);
    kernel = std::move(k);
    return true;
  }
  return false;
}

}  // namespace tg
