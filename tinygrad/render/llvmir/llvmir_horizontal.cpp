/// \file Horizontal reductions of several registers at once: every step adds halves of two registers in one, where one
/// register after the other would leave most lanes idle. What is added to what is the same.
#include <utility>

#include "tinygrad/render/llvmir/llvmir_writer.h"

namespace tg {
namespace {
constexpr int kBlock = 4;  // lanes that shuffles keep apart: 16 bytes

/// Several registers' partial results in one: segments of adjacent lanes, each of one reduction.
struct Partial {
  std::string value;
  std::vector<size_t> of;  // by segment: the number of the reduction
};

/// Lanes of two registers, numbered one after the other, and whose segments they are.
struct Halves {
  std::vector<int64_t> low, high;
  std::vector<size_t> of;
};

/// Takes segments of `size` lanes apart. Those of more than one block are listed register by register; smaller ones
/// block by block, so that each list is one instruction.
Halves halves(const Partial& a, const Partial& b, int lanes, int size) {
  Halves h;
  const int half = size / 2, step = size > kBlock ? lanes : kBlock;
  for (int begin = 0; begin < lanes; begin += step)
    for (const auto& [p, first] : {std::pair(&a, 0), std::pair(&b, lanes)})
      for (int s = begin; s < begin + step; s += size) {
        for (int i = 0; i < half; i++) {
          h.low.push_back(first + s + i);
          h.high.push_back(first + s + half + i);
        }
        h.of.push_back(p->of[static_cast<size_t>(s / size)]);
      }
  return h;
}
}  // namespace

/// Returns how many reductions from an instruction on can be computed at once: a power of two; 1: none.
size_t LlvmWriter::reduces_side_by_side(size_t first) const {
  const auto& insts = view_.insts();
  const UOp u = insts[first].u;
  if (!u.is(Ops::REDUCE) || u.arg<ReduceArg>().op != Ops::ADD || u.dtype() != dtypes::float32) return 1;
  const auto lanes = static_cast<size_t>(view_.lanes(u.src(0)));
  if (lanes < kBlock || (lanes & (lanes - 1)) != 0) return 1;
  size_t n = 1;
  const auto fits = [&](size_t i) {
    const UOp v = insts[i].u;
    return v.is(Ops::REDUCE) && v.dtype() == u.dtype() && v.arg<ReduceArg>().op == Ops::ADD && rarely_[i] < 0 &&
           view_.lanes(v.src(0)) == static_cast<int>(lanes);
  };
  while (n < lanes && first + n < insts.size() && fits(first + n)) n++;
  return std::bit_floor(n);
}

void LlvmWriter::reduce_side_by_side(size_t first, size_t count) {
  const auto& insts = view_.insts();
  const DType d = insts[first].u.dtype();
  const int lanes = view_.lanes(insts[first].u.src(0));
  std::vector<Partial> level;
  for (size_t i = 0; i < count; i++) level.push_back({value(insts[first + i].u.src(0), lanes), {i}});
  const std::string t = type(d, lanes);
  for (int size = lanes; size > 1; size /= 2) {
    std::vector<Partial> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      const Partial &a = level[i], &b = i + 1 < level.size() ? level[i + 1] : a;
      const Halves h = halves(a, b, lanes, size);
      const std::string low = shuffle(t, a.value, b.value, h.low), high = shuffle(t, a.value, b.value, h.high);
      next.push_back({emit("fadd " + t + " " + low + ", " + high), h.of});
    }
    level = std::move(next);
  }
  for (size_t i = 0; i < count; i++) {
    const auto at = std::find(level[0].of.begin(), level[0].of.end(), i) - level[0].of.begin();
    values_[static_cast<size_t>(view_.position(insts[first + i].u))] =
        emit("extractelement " + t + " " + level[0].value + ", i64 " + str(at));
  }
}

}  // namespace tg
