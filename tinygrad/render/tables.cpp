/// \file Tables of sixteen values.
#include "tinygrad/render/tables.h"

#include <tuple>

#include "tinygrad/uop/eval.h"

namespace tg {
namespace {
constexpr OpSet kTabled = groups::kAlu | Ops::CAST | Ops::BITCAST;

/// x >> s with a literal s as (x, s); anything else as (u, 0).
std::pair<UOp, int> shifted(UOp u) {
  if (!u.is(Ops::SHR) || !u.src(1).is_const()) return {u, 0};
  const int128 s = u.src(1).const_int();
  if (s < 0 || s >= u.dtype().bitsize() || (!u.dtype().is_unsigned() && s + 4 > u.dtype().bitsize())) return {u, 0};
  return {u.src(0), static_cast<int>(s)};
}
}  // namespace

const Table16* Tables::add(UOp u) {
  if (const Table16* t = of(u)) return t;
  if (!u.in(kTabled) || u.dtype().is_weak()) return nullptr;
  std::optional<Table16> t = made_of(u);
  if (!t) t = extracted(u);
  return t ? &known_.emplace(u.id(), *t).first->second : nullptr;
}

/// A function of tables of the same bits.
std::optional<Table16> Tables::made_of(UOp u) const {
  Table16 t;
  std::array<const Table16*, 3> in{};
  for (uint32_t k = 0; k < u.nsrc(); k++) {
    if (u.src(k).is_const() && !u.src(k).is_invalid()) continue;
    auto it = known_.find(u.src(k).id());
    if (it == known_.end() || (t.source && (it->second.source != t.source || it->second.shift != t.shift))) return {};
    in[k] = &it->second;
    t.source = in[k]->source;
    t.shift = in[k]->shift;
    t.ops += in[k]->ops;
  }
  const DType operand = u.is(Ops::WHERE) ? u.dtype() : u.src(0).dtype();
  if (!t.source || (groups::kAlu.has(u.op()) && !u.is(Ops::WHERE) && !alu_loop(u.op(), operand))) return {};
  t.ops++;
  for (size_t i = 0; i < 16; i++) {
    std::array<ConstValue, 3> v;
    for (uint32_t k = 0; k < u.nsrc(); k++) v[k] = in[k] ? in[k]->values[i] : u.src(k).const_value();
    if (u.is(Ops::CAST)) t.values[i] = eval_cast(v[0], u.src(0).dtype(), u.dtype());
    else if (u.is(Ops::BITCAST)) t.values[i] = eval_bitcast(v[0], u.src(0).dtype(), u.dtype());
    else t.values[i] = eval_alu(u.op(), u.dtype(), {v.data(), u.nsrc()}, operand);
  }
  return t;
}

/// Four bits that are extracted from an integer.
std::optional<Table16> Tables::extracted(UOp u) {
  const DType d = u.dtype();
  if (!d.is_int() || d.is_weak() || d.itemsize() > 4) return {};
  Table16 t;
  int64_t mask = 0;
  if (u.is(Ops::AND) && u.src(1).is_const() && u.src(1).const_int() > 0 && u.src(1).const_int() < 16) {
    mask = static_cast<int64_t>(u.src(1).const_int());
    std::tie(t.source, t.shift) = shifted(u.src(0));
  } else if (u.is(Ops::SHR) && d.is_unsigned() && shifted(u).first != u && d.bitsize() - shifted(u).second <= 4) {
    mask = 15;
    std::tie(t.source, t.shift) = shifted(u);
  }
  if (!mask || t.source.is_const()) return {};
  for (size_t i = 0; i < 16; i++) t.values[i] = ConstValue(static_cast<int64_t>(i) & mask);
  t.ops = 1;
  return t;
}

}  // namespace tg
