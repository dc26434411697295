/// \file Lanes, strides and needs of linear instructions.
#include "tinygrad/render/program_view.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/variables.h"

namespace tg {

int64_t storage_size(UOp base) {
  int64_t n = 1;
  if (base.nsrc())
    for (UOp d : base.src(0).is(Ops::STACK) ? base.src(0).srcs() : base.srcs()) n *= static_cast<int64_t>(vmax(d));
  return n;
}

int64_t scratch_stride(UOp buffer) {
  return (storage_size(buffer) * std::max(buffer.dtype().itemsize(), 1) + 63) / 64 * 64 + 64;
}

int64_t thread_scratch_bytes(const ProgramView& view) {
  constexpr int64_t kOnStack = 16 << 10;
  int64_t bytes = 0;
  for (const Inst& in : view.insts())
    if (is_buffer_in(in.u, AddrSpace::kLocal)) bytes += scratch_stride(in.u);
  return bytes > kOnStack ? bytes : 0;
}

bool never_wraps(UOp u) {
  if (!u.dtype().is_int() || u.nsrc() != 2) return false;
  Bounds a = bounds_of(u.src(0)), b = bounds_of(u.src(1));
  int128 lo, hi;
  switch (u.op()) {
    case Ops::ADD:
      lo = a.lo + b.lo;
      hi = a.hi + b.hi;
      break;
    case Ops::SUB:
      lo = a.lo - b.hi;
      hi = a.hi - b.lo;
      break;
    case Ops::MUL:
    case Ops::SHL: {
      if (u.is(Ops::SHL)) {
        if (b.lo < 0 || b.hi > 62) return false;
        b = {int128(1) << static_cast<int>(b.lo), int128(1) << static_cast<int>(b.hi)};
      }
      constexpr int128 kMost = int128(1) << 62;
      if (a.lo < -kMost || a.hi > kMost || b.lo < -kMost || b.hi > kMost) return false;
      int128 v[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
      lo = *std::min_element(v, v + 4);
      hi = *std::max_element(v, v + 4);
      break;
    }
    default: return false;
  }
  return lo >= int_min(u.dtype()) && hi <= int_max(u.dtype());
}

bool shift_in_range(UOp u) {
  Bounds b = bounds_of(u.src(1));
  return b.lo >= 0 && b.hi < u.dtype().bitsize();
}

ProgramView::ProgramView(const Program& p) : p_(p) {
  TG_ASSERT(p.arena && p.arena.get(), "a program without an arena");
  insts_.reserve(p.insts.size() + 16);
  position_.assign(p.arena->graph().id_limit(), -1);
  for (UOp u : p.insts) {
    for (UOp s : u.srcs()) {
      if (!s.in(groups::kDefines | Ops::CONST) || position_[s.id()] >= 0) continue;
      for (UOp d : s.srcs())
        if (position_[d.id()] < 0) add(d);
      add(s);
    }
    if (position_[u.id()] < 0) add(u);
  }
  mark_needs();
}

void ProgramView::add(UOp u) {
  if (u.is(Ops::AFTER)) {
    position_[u.id()] = position(u.src(0));
    return;
  }
  position_[u.id()] = static_cast<int>(insts_.size());
  Inst in;
  in.u = u;
  analyse(in);
  insts_.push_back(in);
}

int ProgramView::position(UOp u) const {
  u = strip_after(u);
  TG_ASSERT(u.id() < position_.size() && position_[u.id()] >= 0, "used before it is defined: ", u);
  return position_[u.id()];
}

void ProgramView::analyse(Inst& in) const {
  UOp u = in.u;
  switch (u.op()) {
    case Ops::RANGE:
      if (is_lane(u)) {
        in.lanes = static_cast<int>(u.src(0).const_int());
        in.affine = true;
        in.stride = 1;
        in.first = 0;
      } else in.affine = true;
      return;
    case Ops::CONST:
      if (u.dtype().is_int() && u.is_const() && !u.is_invalid()) in.first = static_cast<int64_t>(u.const_int());
      [[fallthrough]];
    case Ops::PARAM:
    case Ops::BUFFER:
    case Ops::STACK:
    case Ops::REDUCE:
    case Ops::SPECIAL: in.affine = u.dtype().is_int(); return;
    case Ops::END:
    case Ops::SINK:
    case Ops::GROUP:
    case Ops::NOOP:
    case Ops::BARRIER: return;
    default: break;
  }
  for (UOp s : u.srcs()) {
    int n = of(s).lanes;
    TG_ASSERT(n == 1 || in.lanes == 1 || in.lanes == n, "operands of ", in.lanes, " and ", n, " lanes: ", u);
    in.lanes = std::max(in.lanes, n);
  }
  if (!u.dtype().is_int()) return;
  if (in.lanes == 1) {
    in.affine = true;
    return;
  }
  find_stride(in);
  find_offsets(in);
}

/// Finds the stride of an integer of several lanes.
void ProgramView::find_stride(Inst& in) const {
  const UOp u = in.u;
  auto src = [&](size_t i) -> const Inst& { return of(u.src(i)); };
  auto set = [&](bool affine, int64_t stride) {
    in.affine = affine;
    in.stride = affine ? stride : 0;
  };
  switch (u.op()) {
    case Ops::ADD: return set(src(0).affine && src(1).affine && never_wraps(u), src(0).stride + src(1).stride);
    case Ops::SUB: return set(src(0).affine && src(1).affine && never_wraps(u), src(0).stride - src(1).stride);
    case Ops::MUL:
      for (size_t i = 0; i < 2; i++)
        if (u.src(1 - i).is_const() && src(i).affine && never_wraps(u))
          set(true, src(i).stride * static_cast<int64_t>(u.src(1 - i).const_int()));
      return;
    case Ops::SHL:
      if (u.src(1).is_const() && src(0).affine && never_wraps(u))
        set(true, src(0).stride << static_cast<int>(u.src(1).const_int()));
      return;
    case Ops::CAST: {
      const Bounds b = u.src(0).dtype().is_int() ? bounds_of(u.src(0)) : Bounds{0, 1};
      return set(src(0).affine && b.lo >= int_min(u.dtype()) && b.hi <= int_max(u.dtype()), src(0).stride);
    }
    default: return;
  }
}

namespace {
int64_t lane_offset(const Inst& s, int lane) {
  return s.lanes == 1 ? 0 : s.affine ? lane * s.stride : s.offsets[static_cast<size_t>(lane)];
}
/// Returns whether a value of u keeps the differences of its lanes: no sum of them wraps.
bool keeps_offsets(UOp u) {
  if (!u.is(Ops::CAST)) return u.in(Ops::ADD | Ops::SUB) && never_wraps(u);
  const Bounds b = bounds_of(u.src(0));
  return b.lo >= int_min(u.dtype()) && b.hi <= int_max(u.dtype());
}
}  // namespace

/// Integer arithmetic on lane numbers and literals is known; a sum with it is known up to lane 0.
void ProgramView::find_offsets(Inst& in) const {
  UOp u = in.u;
  constexpr OpSet kKnown =
      Ops::ADD | Ops::SUB | Ops::MUL | Ops::SHL | Ops::SHR | Ops::AND | Ops::CDIV | Ops::CMOD | Ops::CAST;
  if (!u.in(kKnown) || u.dtype().is_bool()) return;
  bool whole = true;
  for (UOp s : u.srcs()) {
    const Inst& i = of(s);
    if (!s.dtype().is_int() || (i.lanes > 1 && !i.affine && i.offsets.empty())) return;
    whole &= i.first.has_value();
  }
  if (whole) {
    for (int lane = 0; lane < in.lanes; lane++) {
      ConstValue v[2];
      for (uint32_t k = 0; k < u.nsrc(); k++) v[k] = *of(u.src(k)).first + lane_offset(of(u.src(k)), lane);
      const ConstValue r = u.is(Ops::CAST) ? eval_cast(v[0], u.src(0).dtype(), u.dtype())
                                           : eval_alu(u.op(), u.dtype(), {v, u.nsrc()}, u.dtype());
      if (lane == 0) in.first = static_cast<int64_t>(r.i);
      in.offsets.push_back(static_cast<int64_t>(r.i) - *in.first);
    }
  } else if (!in.affine && keeps_offsets(u)) {
    const int64_t sign = u.is(Ops::CAST) ? 0 : u.is(Ops::ADD) ? 1 : -1;
    for (int lane = 0; lane < in.lanes; lane++)
      in.offsets.push_back(lane_offset(of(u.src(0)), lane) + (sign ? sign * lane_offset(of(u.src(1)), lane) : 0));
  }
  if (in.affine) in.offsets.clear();
}

/// Marks what an access needs of its index: of lanes that are affine the first one alone.
void ProgramView::mark_address(UOp access) {
  UOp idx = strip_after(access.src(0));
  TG_ASSERT(idx.is(Ops::INDEX), "memory access without INDEX: ", access);
  Inst& i = insts_[static_cast<size_t>(position(idx.src(1)))];
  if ((i.affine || !i.offsets.empty()) && i.lanes > 1) i.need_lane0 = true;
  if (i.lanes == 1 || !i.affine) i.need_value = true;
  for (size_t k = 2; k < idx.nsrc(); k++) insts_[static_cast<size_t>(position(idx.src(k)))].need_value = true;
}

void ProgramView::mark_needs() {
  auto need = [&](UOp s) { insts_[static_cast<size_t>(position(s))].need_value = true; };
  for (size_t n = insts_.size(); n-- > 0;) {
    const Inst in = insts_[n];
    UOp u = in.u;
    const bool accesses = is_matrix_access(u) || (u.is(Ops::BARRIER) && u.nsrc() && u.src(0).is(Ops::INDEX));
    switch (accesses ? Ops::LOAD : u.op()) {
      case Ops::STORE:
      case Ops::CUSTOM:
      case Ops::LOAD:
        mark_address(u);
        for (size_t k = 1; k < u.nsrc(); k++)
          if (!u.src(k).dtype().is_void()) need(u.src(k));
        break;
      case Ops::INDEX: break;  // marked by its users
      case Ops::RANGE:
        if (!is_lane(u)) need(u.src(0));
        break;
      case Ops::END:
      case Ops::SINK:
      case Ops::GROUP:
      case Ops::NOOP:
      case Ops::STACK:
      case Ops::BUFFER:
      case Ops::PARAM: break;
      case Ops::REDUCE: need(u.src(0)); break;
      default:
        if (in.need_value)
          for (UOp s : u.srcs()) need(s);
        if (in.need_lane0 && in.lanes > 1)
          for (UOp s : u.srcs()) {
            Inst& i = insts_[static_cast<size_t>(position(s))];
            (i.lanes > 1 ? i.need_lane0 : i.need_value) = true;
          }
    }
  }
}

MemAccess ProgramView::access(UOp index) const {
  index = strip_after(index);
  MemAccess a;
  a.base = strip_after(index.src(0));
  const bool pixel = is_image(a.base);
  TG_ASSERT(index.is(Ops::INDEX) && index.nsrc() == (pixel ? 3 : 2), "not an access of memory: ", index);
  a.index = index.src(1);
  if (pixel) a.column = index.src(2);
  TG_ASSERT(a.base.in(groups::kDefines) && !is_variable(a.base), "index into no storage: ", a.base);
  const Inst& i = of(a.index);
  TG_ASSERT(i.u.dtype().is_int() && !i.u.dtype().is_weak(), "index of type ", i.u.dtype());
  a.lanes = i.lanes;
  a.affine = i.affine;
  a.stride = i.stride;
  a.offsets = i.offsets;
  a.size = storage_size(a.base);
  a.space = a.base.arg<ParamArg>().addrspace;
  return a;
}

std::vector<TensorMap> tensor_maps(std::span<const UOp> program) {
  std::vector<TensorMap> out;
  for (UOp u : program)
    if (is_box(u)) add_once(out, TensorMap::from_text(BoxCopy{u}.map()));
  return out;
}

std::vector<std::pair<UOp, int64_t>> group_memory(const ProgramView& view) {
  constexpr int64_t kAlign = 16;
  std::vector<std::pair<UOp, int64_t>> out;
  UOps all;
  for (const Inst& in : view.insts())
    if (in.u.is(Ops::BUFFER) && in.u.arg<ParamArg>().addrspace == AddrSpace::kLocal) all.push_back(in.u);
  const auto bytes_of = [](UOp u) { return storage_size(u) * u.dtype().itemsize(); };
  std::stable_partition(all.begin(), all.end(), [&](UOp u) { return bytes_of(u) % kMatrixAlignment == 0; });
  int64_t at = 0;
  for (UOp u : all) {
    out.emplace_back(u, at);
    at += (bytes_of(u) + kAlign - 1) / kAlign * kAlign;
  }
  return out;
}

int ProgramView::var_slot(UOp param) const {
  const std::string& name = param.arg<ParamArg>().name;
  auto it = std::find(p_.vars.begin(), p_.vars.end(), name);
  TG_ASSERT(it != p_.vars.end(), "variable ", name, " is not among the program's");
  return static_cast<int>(it - p_.vars.begin());
}

}  // namespace tg
