/// \file Tables of sixteen values.
#include "tinygrad/render/table.h"

#include <tuple>

#include "tinygrad/uop/eval.h"

namespace tg {
namespace {
constexpr OpSet kTabled = Ops::ADD | Ops::SUB | Ops::MUL | Ops::NEG | Ops::MAX | Ops::AND | Ops::OR | Ops::XOR | Ops::SHL | Ops::SHR | Ops::CMPLT |
                          Ops::CMPNE | Ops::CMPEQ | Ops::WHERE | Ops::CAST | Ops::BITCAST;

/// x >> s with a literal s as (x, s); anything else as (u, 0).
std::pair<UOp, int> shifted(UOp u) {
  if (!u.is(Ops::SHR) || !u.src(1).is_const()) return {u, 0};
  const int128 s = u.src(1).const_int();
  if (s < 0 || s >= u.dtype().bitsize() || (!u.dtype().is_unsigned() && s + 4 > u.dtype().bitsize())) return {u, 0};
  return {u.src(0), static_cast<int>(s)};
}
}  // namespace

const Table16* Tables::of(UOp u) {
  if (auto it = known_.find(u.id()); it != known_.end()) return &it->second;
  std::optional<Table16> t = find(u);
  return t ? &known_.emplace(u.id(), *t).first->second : nullptr;
}

std::optional<Table16> Tables::find(UOp u) const {
  if (!u.in(kTabled)) return {};
  const DType d = u.dtype();
  // Where four bits are taken.
  if (d.is_int() && d.itemsize() <= 4) {
    Table16 t;
    int64_t mask = 0;
    if (u.is(Ops::AND) && u.src(1).is_const() && u.src(1).const_int() >= 0 && u.src(1).const_int() < 16)
      mask = static_cast<int64_t>(u.src(1).const_int()), std::tie(t.source, t.shift) = shifted(u.src(0));
    else if (u.is(Ops::SHR) && d.is_unsigned() && shifted(u).first != u && d.bitsize() - shifted(u).second <= 4)
      mask = 15, std::tie(t.source, t.shift) = shifted(u);
    if (mask && !t.source.is_const()) {
      for (size_t i = 0; i < 16; i++) t.values[i] = ConstValue(static_cast<int64_t>(i) & mask);
      t.ops = 1;
      return t;
    }
  }
  // What is made of them.
  Table16 t;
  for (UOp s : u.srcs()) {
    if (s.is_const() && !s.is_invalid()) continue;
    auto it = known_.find(s.id());
    if (it == known_.end() || (t.source && (it->second.source != t.source || it->second.shift != t.shift))) return {};
    t.source = it->second.source, t.shift = it->second.shift, t.ops += it->second.ops;
  }
  if (!t.source) return {};
  t.ops++;
  for (size_t i = 0; i < 16; i++) {
    std::array<ConstValue, 3> in;
    for (uint32_t k = 0; k < u.nsrc(); k++) in[k] = u.src(k).is_const() ? u.src(k).const_value() : known_.at(u.src(k).id()).values[i];
    const DType from = u.src(u.nsrc() - 1).dtype();
    if (u.is(Ops::CAST)) t.values[i] = eval_cast(in[0], from, d);
    else if (u.is(Ops::BITCAST)) t.values[i] = eval_bitcast(in[0], from, d);
    else t.values[i] = eval_alu(u.op(), d, {in.data(), u.nsrc()}, u.is(Ops::WHERE) ? d : u.src(0).dtype());
  }
  return t;
}

}  // namespace tg
