/// \file LLVM IR: parameters, scratch memory, loads and stores in all their forms (vector, shuffled, masked, gather and
/// scatter).
#include <cmath>

#include "tinygrad/base/contains.h"
#include "tinygrad/render/llvmir/llvmir_writer.h"
#include "tinygrad/uop/variables.h"

namespace tg {
namespace {
constexpr int64_t kScratchLimit = 4 << 20;  ///< bytes of scratch memory on a thread's stack

bool is_zero_literal(UOp u) { return u.is_const() && u.const_float() == 0 && !std::signbit(u.const_float()); }
std::string int_vector(const char* type, const std::vector<int64_t>& v) {
  std::string s = "<";
  for (size_t i = 0; i < v.size(); i++) s += str(i ? ", " : "", type, " ", v[i]);
  return s + ">";
}
std::string reverse_mask(int lanes) {
  std::vector<int64_t> m;
  for (int i = 0; i < lanes; i++) m.push_back(lanes - 1 - i);
  return int_vector("i32", m);
}
}  // namespace

/// Writes a line of metadata and returns its number.
int LlvmWriter::metadata(const std::string& text) {
  metadata_ += str("!", next_metadata_, " = ", text, "\n");
  return next_metadata_++;
}

/// Declares the alias scopes that tell written buffers from all others.
void LlvmWriter::declare_alias_scopes() {
  std::vector<int> scope(static_cast<size_t>(p_.nbuffers), 0);
  for (const Inst& in : view_.insts()) {
    const UOp base = in.u.is(Ops::STORE) ? view_.access(in.u.src(0)).base : UOp();
    if (!base || !base.is(Ops::PARAM)) continue;
    int& s = scope.at(static_cast<size_t>(base.arg<ParamArg>().slot));
    if (!s) s = metadata(str("distinct !{!", next_metadata_, ", !0}"));
  }
  scope_lists_.assign(scope.size(), 0);
  others_lists_.assign(scope.size(), 0);
  for (size_t i = 0; i < scope.size(); i++) {
    std::string others;
    for (size_t k = 0; k < scope.size(); k++)
      if (k != i && scope[k]) others += str(others.empty() ? "" : ", ", "!", scope[k]);
    if (scope[i]) scope_lists_[i] = metadata(str("!{!", scope[i], "}"));
    if (!others.empty()) others_lists_[i] = metadata("!{" + others + "}");
  }
}

/// Declares an array on the stack, or the part of a thread's scratch memory that begins at `offset`.
std::string LlvmWriter::declare_buffer(UOp u, std::optional<int64_t> offset) {
  if (grid_ && u.arg<ParamArg>().addrspace == AddrSpace::kLocal) return group_buffer(u);
  const std::string name = "%m" + std::to_string(view_.position(u));
  if (offset) entry_ += str("  ", name, " = getelementptr i8, ptr %scratch, i64 ", *offset, "\n");
  else entry_ += str("  ", name, " = alloca [", storage_size(u), " x ", memory_type(u.dtype()), "], align 64\n");
  return name;
}
std::string LlvmWriter::read_variable(UOp u) {
  const int at = view_.position(u);
  const std::string a = str("%va", at), v = str("%v", at);
  if (grid_) {
    const std::string given = str("%var", view_.var_slot(u));
    if (u.dtype().itemsize() == 8) return given;
    entry_ += str("  ", v, " = trunc i64 ", given, " to ", type(u.dtype()), "\n");
    return v;
  }
  entry_ += str("  ", a, " = getelementptr i64, ptr %vars, i64 ", view_.var_slot(u), "\n");
  if (u.dtype().itemsize() == 8) entry_ += str("  ", v, " = load i64, ptr ", a, "\n");
  else entry_ += str("  ", v, "w = load i64, ptr ", a, "\n  ", v, " = trunc i64 ", v, "w to ", type(u.dtype()), "\n");
  return v;
}
std::string LlvmWriter::read_parameter(UOp u) {
  const int64_t slot = u.arg<ParamArg>().slot;
  TG_ASSERT(slot >= 0 && slot < p_.nbuffers, "parameter ", slot, " of ", p_.nbuffers);
  const std::string p = str("%p", slot);
  if (grid_) {
    entry_ += str("  ", p, " = addrspacecast ptr addrspace(1) %global", slot, " to ptr\n");
    return p;
  }
  entry_ += str("  %pa", slot, " = getelementptr ptr, ptr %buffers, i64 ", slot, "\n  ", p, " = load ptr, ptr %pa",
                slot, "\n");
  if (accesses_.hints.has_nontemporal_stores(slot)) {
    entry_ += str("  %pi", slot, " = ptrtoint ptr ", p, " to i64\n  %po", slot, " = and i64 %pi", slot, ", ",
                  CacheHints::kLine - 1, "\n");
    entry_ += str("  %pb", slot, " = icmp eq i64 %po", slot, ", 0\n");
  }
  return p;
}

/// Declares what the function reads: pointers, variables and scratch memory.
void LlvmWriter::entry() {
  declare_alias_scopes();
  int64_t on_stack = 0, offset = 0;
  const int64_t of_thread = grid_ ? 0 : thread_scratch_bytes(view_);
  if (of_thread) {
    declare("declare noalias align 64 ptr @tg_scratch(i64)");
    entry_ += str("  %scratch = call ptr @tg_scratch(i64 ", of_thread, ")\n");
  }
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    const size_t at = static_cast<size_t>(view_.position(u));
    if (u.is(Ops::BUFFER) && of_thread && u.arg<ParamArg>().addrspace == AddrSpace::kLocal) {
      pointers_[at] = declare_buffer(u, offset);
      offset += scratch_stride(u);
    } else if (u.is(Ops::BUFFER)) {
      on_stack += storage_size(u) * u.dtype().itemsize();
      TG_ASSERT(on_stack <= kScratchLimit, "scratch memory of ", on_stack, " bytes");
      pointers_[at] = declare_buffer(u, {});
    } else if (is_variable(u)) {
      values_[at] = read_variable(u);
    } else if (u.is(Ops::PARAM)) {
      pointers_[at] = read_parameter(u);
    } else if (u.is(Ops::LOAD) && u.nsrc() > 2 && !needs_dummy_ && !grid_) {
      needs_dummy_ = true;  // read by scalar loads whose gate is off
      entry_ += "  %dummy = alloca i64, align 8\n  store i64 0, ptr %dummy\n";
    }
  }
  if (!of_thread) return;
  // Behind all alloca: those that LLVM promotes to registers stand in the first block.
  entry_ += "  %missing = icmp eq ptr %scratch, null\n  br i1 %missing, label %scratch.none, label %scratch.ready\n";
  entry_ += "scratch.none:\n  ret void\nscratch.ready:\n";
  label_ = "scratch.ready";
}

std::string LlvmWriter::from_memory(const std::string& v, DType d, int lanes) {
  return d.is_bool() ? emit("icmp ne " + type(dtypes::uint8, lanes) + " " + v + ", " + literal(0, dtypes::uint8, lanes))
                     : v;
}
std::string LlvmWriter::to_memory(const std::string& v, DType d, int lanes) {
  return d.is_bool() ? emit("zext " + type(d, lanes) + " " + v + " to " + type(dtypes::uint8, lanes)) : v;
}

std::string LlvmWriter::aliasing(const MemAccess& a) const {
  if (!a.base.is(Ops::PARAM)) return "";
  const size_t slot = static_cast<size_t>(a.base.arg<ParamArg>().slot);
  std::string s;
  if (scope_lists_[slot]) s += ", !alias.scope !" + std::to_string(scope_lists_[slot]);
  if (others_lists_[slot]) s += ", !noalias !" + std::to_string(others_lists_[slot]);
  return s;
}

/// Our own memory is aligned to 64 bytes, so a register is aligned as a whole; parameters may be views.
int LlvmWriter::alignment(const MemAccess& a, DType d) const {
  if (aligned_ && a.lanes == 1 && contains(aligned_parameters_, a.base)) return d.itemsize();
  if (!a.base.is(Ops::BUFFER) || a.lanes == 1 || !a.index.in(Ops::RANGE | Ops::CONST))
    return std::min(d.itemsize(), a.base.dtype().itemsize());
  int bytes = a.lanes * d.itemsize(), align = 1;
  while (align < 64 && bytes % (align * 2) == 0) align *= 2;
  return align;
}

/// An index in lane 0 as a value and a constant. Instances side by side differ in the constant: they share the value's
/// address, and LLVM has no sum to split for each of them.
std::pair<UOp, int64_t> LlvmWriter::split_index(UOp index) const {
  int64_t offset = 0;
  auto lane = [&](UOp u) {
    return is_lane(u) || (u.is(Ops::MUL) && is_lane(strip_after(u.src(0))) && u.src(1).is_const());
  };
  for (index = strip_after(index); index.is(Ops::ADD) && !index.dtype().is_unsigned() && never_wraps(index);) {
    const UOp x = strip_after(index.src(0)), y = strip_after(index.src(1));
    if (y.is_const()) offset += static_cast<int64_t>(y.const_int());
    else if (!lane(x) && !lane(y)) break;
    index = lane(x) ? y : x;
  }
  return {index, offset};
}

/// True for sums and products that addresses are made of. They are computed in 64 bits: what LLVM knows of 32 bits that
/// are widened afterwards it has to prove for each access and each loop.
bool LlvmWriter::is_wide_sum(UOp u) {
  return u.in(Ops::ADD | Ops::MUL) && u.dtype().is_int() && !u.dtype().is_unsigned() && never_wraps(u);
}

/// Sets used_ and wide_used_.
void LlvmWriter::find_used() {
  const std::vector<Inst>& insts = view_.insts();
  used_.assign(insts.size(), false);
  wide_used_ = used_;
  auto use = [&](UOp u) { used_[static_cast<size_t>(view_.position(u))] = true; };
  auto use_wide = [&](UOp u) {
    (u.dtype().is_unsigned() ? used_ : wide_used_)[static_cast<size_t>(view_.position(u))] = true;
  };
  for (size_t n = insts.size(); n-- > 0;) {
    UOp u = insts[n].u;
    if (wide_used_[n] && is_wide_sum(u)) {
      use_wide(u.src(0));
      use_wide(u.src(1));
    } else if (wide_used_[n] && !u.is(Ops::RANGE)) used_[n] = true;
    if (u.in(Ops::LOAD | Ops::STORE | Ops::CUSTOM) || is_matrix_access(u)) {
      UOp index = strip_after(u.src(0)).src(1);
      const Inst& i = view_.of(index);
      if (i.lanes == 1 || i.affine || !i.offsets.empty()) use_wide(split_index(index).first);
      if (i.lanes > 1 && !i.affine) use(index);  // lanes at addresses of their own
      for (size_t k = 1; k < u.nsrc(); k++) use(u.src(k));
    } else if (u.in(Ops::REDUCE | Ops::CUSTOMI | Ops::GETTUPLE) || (u.is(Ops::RANGE) && !is_lane(u))) {
      use(u.src(0));
    } else if ((used_[n] && u.in(groups::kElementwise | Ops::WMMA)) || (u.is(Ops::WMMA) && u.nsrc() > 3)) {
      for (UOp s : u.srcs()) use(s);
    }
  }
}

/// A part of an address, in lane 0 where it has lanes.
std::string LlvmWriter::wide(UOp u) {
  u = strip_after(u);
  const int at = view_.position(u);
  if (const std::string& name = wide_[static_cast<size_t>(at)]; !name.empty()) return name;
  if (u.is(Ops::RANGE) && !is_lane(u)) return "%i" + str(at) + part_;
  if (u.is_const() || is_lane(u) || u.dtype().itemsize() == 8) return lane0(u);
  Splat& once = widened_[at];
  if (once.block != block_)
    once = {block_, 1,
            emit((u.dtype().is_unsigned() ? "zext " : "sext ") + type(u.dtype()) + " " + lane0(u) + " to i64")};
  return once.name;
}

/// Returns where elements at a constant distance are counted from, and the constant.
std::pair<std::string, int64_t> LlvmWriter::start(const MemAccess& a, DType d) {
  const auto [index, constant] = split_index(a.index);
  std::string p = pointers_[static_cast<size_t>(view_.position(a.base))];
  if (const std::string i = wide(index); i != "0") {
    Splat& start = starts_[{view_.position(a.base), view_.position(index), d.itemsize()}];
    if (start.block != block_)
      start = {block_, 1, emit("getelementptr " + memory_type(d) + ", ptr " + p + ", i64 " + i)};
    p = start.name;
  }
  return {p, constant};
}

std::string LlvmWriter::address(const MemAccess& a, DType d, int64_t offset) {
  const auto [p, constant] = start(a, d);
  offset += constant;
  return offset ? emit("getelementptr " + memory_type(d) + ", ptr " + p + ", i64 " + str(offset)) : p;
}

/// A vector of pointers, one for each lane.
std::string LlvmWriter::addresses(const MemAccess& a, DType d, int64_t offset) {
  const std::string gep = "getelementptr " + memory_type(d) + ", ptr ";
  if (a.affine) {
    std::vector<int64_t> offsets;
    for (int i = 0; i < a.lanes; i++) offsets.push_back(i * a.stride + offset);
    return emit(gep + address(a, d) + ", <" + str(a.lanes) + " x i64> " + int_vector("i64", offsets));
  }
  std::string i = value(a.index, a.lanes);
  DType t = a.index.dtype();
  if (t.is_unsigned() && t.itemsize() < 8) {
    i = convert(i, t, dtypes::int64, a.lanes);
    t = dtypes::int64;
  }
  return emit(gep + pointers_[static_cast<size_t>(view_.position(a.base))] + ", " + type(t, a.lanes) + " " + i);
}

std::string LlvmWriter::load_plain(const MemAccess& a, DType d, const std::string& address, int lanes) {
  const int align = lanes == a.lanes ? alignment(a, d) : std::min(d.itemsize(), a.base.dtype().itemsize());
  return emit("load " + memory_type(d, lanes) + ", ptr " + address + ", align " + std::to_string(align) + aliasing(a));
}

/// Vectors that cover first to last lane exactly, shuffled together. With a mask, elements that are no lane of it are
/// not touched and masked lanes are 0.
std::string LlvmWriter::load_strided(const MemAccess& a, DType d, const std::string& first,
                                     const std::string& lane_mask) {
  const int64_t n = a.lanes, s = std::abs(a.stride), span = (n - 1) * s + 1, low = a.stride < 0 ? -(n - 1) * s : 0;
  const std::string t = memory_type(d, a.lanes);
  std::string result;
  std::vector<int64_t> starts;
  std::vector<int64_t> start_of, offset_of;
  for (int64_t lane = 0; lane < n; lane++) {
    const int64_t element = (a.stride < 0 ? n - 1 - lane : lane) * s, start = std::min(element / n * n, span - n);
    start_of.push_back(start);
    offset_of.push_back(element - start);
    add_once(starts, start);
  }
  for (int64_t start : starts) {
    std::string at =
        low + start ? emit("getelementptr " + memory_type(d) + ", ptr " + first + ", i64 " + str(low + start)) : first;
    std::string v;
    if (lane_mask.empty()) {
      v = emit("load " + t + ", ptr " + at + ", align " + str(d.itemsize()) + aliasing(a));
    } else {
      std::vector<int64_t> lane_at(static_cast<size_t>(n), n);  // n: an element between lanes
      for (int64_t lane = 0; lane < n; lane++)
        if (start_of[static_cast<size_t>(lane)] == start)
          lane_at[static_cast<size_t>(offset_of[static_cast<size_t>(lane)])] = lane;
      const std::string mt = type(dtypes::bool_, a.lanes),
                        name = "@llvm.masked.load." + suffix(d.is_bool() ? dtypes::uint8 : d, a.lanes) + ".p0";
      declare("declare " + t + " " + name + "(ptr, i32 immarg, " + mt + ", " + t + ")");
      const std::string here = emit("shufflevector " + mt + " " + lane_mask + ", " + mt + " zeroinitializer, <" +
                                    str(n) + " x i32> " + int_vector("i32", lane_at));
      v = emit("call " + t + " " + name + "(ptr " + at + ", i32 " + str(d.itemsize()) + ", " + mt + " " + here + ", " +
               t + " zeroinitializer)" + aliasing(a));
    }
    std::vector<int64_t> mask;
    for (int64_t lane = 0; lane < n; lane++) {
      const size_t l = static_cast<size_t>(lane);
      mask.push_back(start_of[l] == start ? (result.empty() ? 0 : n) + offset_of[l] : result.empty() ? 0 : lane);
    }
    const std::string m = "<" + str(n) + " x i32> " + int_vector("i32", mask);
    result = emit("shufflevector " + t + " " +
                  (result.empty() ? v + ", " + t + " poison, " : result + ", " + t + " " + v + ", ") + m);
  }
  return result;
}

/// Loads lanes at known offsets no further apart than a vector: all elements between them, shuffled. Returns "" for
/// other lanes.
std::string LlvmWriter::load_near(const MemAccess& a, DType d) {
  if (a.affine || a.offsets.empty()) return "";
  const auto [low, high] = std::minmax_element(a.offsets.begin(), a.offsets.end());
  const int64_t span = *high - *low + 1;
  if (span > a.lanes) return "";
  std::vector<int64_t> mask;
  for (int64_t o : a.offsets) mask.push_back(o - *low);
  const std::string t = "<" + str(span) + " x " + memory_type(d) + ">", at = address(a, d, *low);
  const std::string v = emit("load " + t + ", ptr " + at + ", align " + str(d.itemsize()) + aliasing(a));
  return emit("shufflevector " + t + " " + v + ", " + t + " poison, <" + str(a.lanes) + " x i32> " +
              int_vector("i32", mask));
}

std::string LlvmWriter::load_masked(const MemAccess& a, DType d, const std::string& mask, const std::string& alt,
                                    int64_t offset) {
  const int n = a.lanes;
  const DType m = d.is_bool() ? dtypes::uint8 : d;
  const std::string t = memory_type(d, n), mt = type(dtypes::bool_, n), align = std::to_string(d.itemsize());
  std::string masked = mask, passed = alt;
  if (a.affine && std::abs(a.stride) == 1) {
    std::string at = address(a, d, a.stride < 0 ? 1 - n : 0);
    auto reverse = [&](const std::string& v, const std::string& type) {
      return emit("shufflevector " + type + " " + v + ", " + type + " poison, <" + str(n) + " x i32> " +
                  reverse_mask(n));
    };
    if (a.stride < 0) {
      masked = reverse(masked, mt);
      passed = reverse(passed, t);
    }
    const std::string name = "@llvm.masked.load." + suffix(m, n) + ".p0";
    declare("declare " + t + " " + name + "(ptr, i32 immarg, " + mt + ", " + t + ")");
    std::string v = emit("call " + t + " " + name + "(ptr " + at + ", i32 " + align + ", " + mt + " " + masked + ", " +
                         t + " " + passed + ")" + aliasing(a));
    return a.stride < 0 ? reverse(v, t) : v;
  }
  if (a.affine && a.stride && std::abs(a.stride) <= kShuffledStride && mask != literal(true, dtypes::bool_, n)) {
    const std::string v = load_strided(a, d, address(a, d), mask);
    return alt == "zeroinitializer" ? v : emit("select " + mt + " " + mask + ", " + t + " " + v + ", " + t + " " + alt);
  }
  const std::string p = "<" + str(n) + " x ptr>", name = "@llvm.masked.gather." + suffix(m, n) + ".v" + str(n) + "p0";
  declare("declare " + t + " " + name + "(" + p + ", i32 immarg, " + mt + ", " + t + ")");
  return emit("call " + t + " " + name + "(" + p + " " + addresses(a, d, offset) + ", i32 " + align + ", " + mt + " " +
              masked + ", " + t + " " + passed + ")" + aliasing(a));
}

/// Loads one element, for all `lanes` of the result; behind a closed gate, from memory of our own, in a grid nothing.
std::string LlvmWriter::load_scalar(UOp u, const MemAccess& a, int lanes) {
  const DType d = u.dtype();
  std::string at = address(a, d);
  if (u.nsrc() <= 2) return from_memory(load_plain(a, d, at, 1), d, 1);
  const std::string gate = value(u.src(2), 1);
  if (grid_) {
    const std::string id = std::to_string(next_++), alt = value(u.src(1), 1);
    std::string loaded;
    branch(gate, id, [&] { loaded = from_memory(load_plain(a, d, at, 1), d, 1); }, [] {});
    return join(type(d), id, loaded, alt);
  }
  at = emit("select i1 " + gate + ", ptr " + at + ", ptr %dummy");
  const std::string v = from_memory(load_plain(a, d, at, 1), d, 1);
  if (is_zero_literal(u.src(1)) && lanes == 1) return v;
  return select(gate, 1, lanes == 1 ? v : splat(v, d, lanes), value(u.src(1), lanes), d, lanes);
}

/// Loads the lanes whose gates are open.
std::string LlvmWriter::load_gated(UOp u, const MemAccess& a, bool near) {
  const DType d = u.dtype();
  const bool strided = a.affine && std::abs(a.stride) > 1 && std::abs(a.stride) <= kShuffledStride;
  if (view_.lanes(u.src(2)) == 1 || (!near && !strided)) {
    if (accesses_.hints.prefetch_distance(u)) prefetch_ahead(u, d, address(a, d));
    const std::string alt =
        is_zero_literal(u.src(1)) ? "zeroinitializer" : to_memory(value(u.src(1), a.lanes), d, a.lanes);
    return load_masked(a, d, value(u.src(2), a.lanes), alt);
  }
  // Gates of padding are open nearly everywhere: then vector loads and shuffles do, and no gather.
  const std::string mask = value(u.src(2), a.lanes), alt = to_memory(value(u.src(1), a.lanes), d, a.lanes),
                    id = std::to_string(next_++);
  const std::string first = near ? "" : address(a, d);
  std::string all, some;
  branch(
      all_lanes(mask, a.lanes), id, [&] { all = near ? load_near(a, d) : load_strided(a, d, first); },
      [&] { some = load_masked(a, d, mask, alt); });
  return join(memory_type(d, a.lanes), id, all, some);
}

std::string LlvmWriter::load(UOp u) {
  MemAccess a = view_.access(u.src(0));
  const DType d = u.dtype();
  const bool gated = u.nsrc() > 2;
  if (const int gates = gated ? view_.lanes(u.src(2)) : 1; a.lanes == 1 && gates > 1) {
    a.lanes = gates;
    a.affine = true;
    a.stride = 0;
  }  // one address, each lane with its own gate
  if (a.lanes == 1) return load_scalar(u, a, view_.lanes(u));
  if (gated) {
    const auto [low, high] = std::minmax_element(a.offsets.begin(), a.offsets.end());
    return from_memory(load_gated(u, a, !a.affine && !a.offsets.empty() && *high - *low < a.lanes), d, a.lanes);
  }
  std::string v;
  if (a.affine && std::abs(a.stride) <= kShuffledStride) {
    std::string first = address(a, d);
    if (a.stride == 1) {
      v = load_plain(a, d, first, a.lanes);
      prefetch_ahead(u, d, first);
    } else if (a.stride == 0) v = splat(load_plain(a, d, first, 1), d.is_bool() ? dtypes::uint8 : d, a.lanes);
    else v = load_strided(a, d, first);
  } else if (std::string near = load_near(a, d); !near.empty()) {
    v = near;
  } else {
    v = load_masked(a, d, literal(true, dtypes::bool_, a.lanes), "poison");
  }
  return from_memory(v, d, a.lanes);
}

void LlvmWriter::prefetch(UOp u) {
  const MemAccess a = view_.access(u.src(0));
  declare("declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)");
  line("call void @llvm.prefetch.p0(ptr " + address(a, u.src(0).dtype()) + ", i32 0, i32 3, i32 1)");
}

/// Prefetches memory that a later pass reads.
void LlvmWriter::prefetch_ahead(UOp u, DType d, const std::string& address) {
  const int64_t n = accesses_.hints.prefetch_distance(u);
  if (!n) return;
  declare("declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)");
  const std::string at = emit("getelementptr " + memory_type(d) + ", ptr " + address + ", i64 " + str(n));
  line("call void @llvm.prefetch.p0(ptr " + at + ", i32 0, i32 3, i32 1)");
  if (UOp memory = accesses_.hints.later_store(u)) {
    MemAccess place = view_.access(u.src(0));
    place.base = memory;
    line("call void @llvm.prefetch.p0(ptr " + this->address(place, d) + ", i32 1, i32 3, i32 1)");
  }
}

/// Stores past the caches, which only whole lines can; views may begin anywhere. `text`: a store up to its alignment.
void LlvmWriter::nontemporal_store(const MemAccess& a, const std::string& text, int bytes) {
  if (!nontemporal_) nontemporal_ = metadata("!{i32 1}");
  const std::string id = std::to_string(next_++);
  line(str("br i1 %pb", a.base.arg<ParamArg>().slot, ", label %S", id, ", label %T", id));
  begin_block("S" + id);
  line(text + str(bytes) + aliasing(a) + ", !nontemporal !" + str(nontemporal_));
  line("br label %J" + id);
  begin_block("T" + id);
  line(text + str(a.base.dtype().itemsize()) + aliasing(a));
  line("br label %J" + id);
  begin_block("J" + id);
}

void LlvmWriter::store(UOp u) {
  const MemAccess a = view_.access(u.src(0));
  const DType d = u.src(1).dtype(), m = d.is_bool() ? dtypes::uint8 : d;
  const bool gated = u.nsrc() > 2;
  const int n = a.lanes;
  TG_ASSERT(view_.lanes(u) == n, "a vector stored to one address: ", u);
  std::string v = to_memory(value(u.src(1), n), d, n);
  const std::string t = memory_type(d, n), align = std::to_string(alignment(a, d));
  if (n == 1) {
    std::string at = address(a, d);
    const std::string text = "store " + t + " " + v + ", ptr " + at + ", align " + align + aliasing(a);
    if (!gated) return line(text);
    const std::string id = std::to_string(next_++);
    line("br i1 " + value(u.src(2), 1) + ", label %S" + id + ", label %J" + id);
    begin_block("S" + id);
    line(text);
    line("br label %J" + id);
    return begin_block("J" + id);
  }
  std::string mask = gated ? value(u.src(2), n) : literal(true, dtypes::bool_, n);
  const std::string mt = type(dtypes::bool_, n);
  if (a.affine && std::abs(a.stride) == 1) {
    std::string at = address(a, d, a.stride < 0 ? 1 - n : 0);
    if (a.stride < 0) {
      v = emit("shufflevector " + t + " " + v + ", " + t + " poison, <" + str(n) + " x i32> " + reverse_mask(n));
      if (gated)
        mask =
            emit("shufflevector " + mt + " " + mask + ", " + mt + " poison, <" + str(n) + " x i32> " + reverse_mask(n));
    }
    if (!gated) {
      const std::string text = "store " + t + " " + v + ", ptr " + at + ", align ";
      if (accesses_.hints.is_nontemporal(u)) return nontemporal_store(a, text, n * d.itemsize());
      return line(text + (a.stride < 0 ? str(d.itemsize()) : align) + aliasing(a));
    }
    const std::string name = "@llvm.masked.store." + suffix(m, n) + ".p0";
    declare("declare void " + name + "(" + t + ", ptr, i32 immarg, " + mt + ")");
    return line("call void " + name + "(" + t + " " + v + ", ptr " + at + ", i32 " + str(d.itemsize()) + ", " + mt +
                " " + mask + ")" + aliasing(a));
  }
  scatter(a, d, v, mask);
}

void LlvmWriter::scatter(const MemAccess& a, DType d, const std::string& v, const std::string& mask, int64_t offset) {
  const int n = a.lanes;
  const DType m = d.is_bool() ? dtypes::uint8 : d;
  const std::string p = "<" + str(n) + " x ptr>", name = "@llvm.masked.scatter." + suffix(m, n) + ".v" + str(n) + "p0",
                    t = memory_type(d, n), mt = type(dtypes::bool_, n);
  declare("declare void " + name + "(" + t + ", " + p + ", i32 immarg, " + mt + ")");
  line("call void " + name + "(" + t + " " + v + ", " + p + " " + addresses(a, d, offset) + ", i32 " +
       str(d.itemsize()) + ", " + mt + " " + mask + ")" + aliasing(a));
}

}  // namespace tg
