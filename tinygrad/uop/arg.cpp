/// \file Hashing, equality and printing of node arguments.
#include "tinygrad/uop/arg.h"

#include <bit>
#include <cmath>
#include <limits>
#include <ostream>

#include "tinygrad/base/error.h"

namespace tg {
namespace {
const char* const kOpNames[] = {
#define X(name) #name,
    TG_FOR_EACH_OP(X)
#undef X
};
const char* const kAxisNames[] = {"DEVICE",       "LOOP",   "THREAD", "GLOBAL", "WARP",  "LOCAL",
                                  "GROUP_REDUCE", "REDUCE", "UPCAST", "UNROLL", "VECTOR"};

template <class T> Hash128 hash_ints(const std::vector<T>& v) {
  Hash128 h;
  h.add(v.size());
  for (T x : v) h.add(static_cast<uint64_t>(x));
  return h;
}

void print_int128(std::ostream& os, int128 v) {
  char buf[48];
  int n = 0;
  bool neg = v < 0;
  unsigned __int128 u = neg ? -static_cast<unsigned __int128>(v) : static_cast<unsigned __int128>(v);
  do {
    buf[n++] = static_cast<char>('0' + static_cast<int>(u % 10));
    u /= 10;
  } while (u);
  if (neg) os << '-';
  while (n) os << buf[--n];
}
}  // namespace

const char* name_of(Ops op) { return kOpNames[static_cast<int>(op)]; }
const char* name_of(StageKind k) {
  static const char* const names[] = {"buffer", "panel", "window", "tile", "partial"};
  return names[static_cast<int>(k)];
}
const char* name_of(AxisType t) { return kAxisNames[static_cast<int>(t)]; }
std::ostream& operator<<(std::ostream& os, Ops op) { return os << name_of(op); }
std::ostream& operator<<(std::ostream& os, AxisType t) { return os << name_of(t); }
std::ostream& operator<<(std::ostream& os, AddrSpace a) {
  static const char* names[] = {"GLOBAL", "LOCAL", "REG", "ALU"};
  return os << names[static_cast<int>(a)];
}

Hash128 RangeArg::hash() const {
  Hash128 h = hash_ints(id);
  h.add(static_cast<uint64_t>(type));
  return h;
}
Hash128 ParamArg::hash() const {
  Hash128 h;
  h.add(static_cast<uint64_t>(slot));
  h.add(static_cast<uint64_t>(addrspace));
  h.add(device);
  h.add(name);
  h.add(static_cast<uint64_t>(vmin));
  h.add(static_cast<uint64_t>(vmax));
  return h;
}
Hash128 ReduceArg::hash() const {
  Hash128 h = hash_ints(axes);
  h.add(static_cast<uint64_t>(op));
  return h;
}
Hash128 StageArg::hash() const {
  Hash128 h;
  h.add(static_cast<uint64_t>(addrspace));
  h.add(device);
  h.add(removable);
  h.add(static_cast<uint64_t>(use));
  return h;
}
Hash128 KernelInfo::hash() const {
  Hash128 h;
  h.add(name);
  add_to_hash(h, applied_opts);
  h.add(opts_to_apply.has_value());
  if (opts_to_apply) add_to_hash(h, *opts_to_apply);
  if (attention) h.add(std::string_view("attention"));
  return h;
}

static uint64_t next_gradient() {
  static std::atomic<uint64_t> n{1};
  return n++;
}
CallGradient::CallGradient() : id(next_gradient()) {}

Hash128 CallInfo::hash() const {
  Hash128 h = hash_ints(writes);
  h.add(name);
  h.add(static_cast<uint64_t>(precompile) | static_cast<uint64_t>(precompile_backward) << 1);
  h.add(gradient ? gradient->id : 0);
  return h;
}

const char* name_of(CollectiveKind k) {
  static const char* const names[] = {"allreduce", "reduce_scatter", "all_gather", "all_to_all",
                                      "broadcast", "send",           "receive"};
  return names[static_cast<int>(k)];
}
Hash128 CollectiveArg::hash() const {
  Hash128 h;
  h.add(static_cast<uint64_t>(what));
  h.add(static_cast<uint64_t>(op));
  h.add(world);
  h.add(static_cast<uint64_t>(mesh_axes));
  h.add(static_cast<uint64_t>(root));
  return h;
}

Arg::Arg(int128 v) {
  if (v >= std::numeric_limits<int64_t>::min() && v <= std::numeric_limits<int64_t>::max()) {
    kind_ = ArgKind::kInt;
    bits_ = static_cast<uint64_t>(static_cast<int64_t>(v));
  } else {
    Hash128 h;
    h.add(static_cast<uint64_t>(v));
    h.add(static_cast<uint64_t>(v >> 64));
    kind_ = ArgKind::kBigInt;
    bits_ = reinterpret_cast<uint64_t>(static_cast<ArgBox*>(new ArgBoxOf<int128>(v, h)));
  }
}
Arg::Arg(double v)
    : kind_(ArgKind::kFloat),
      bits_(std::bit_cast<uint64_t>(std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v)) {}
Arg::Arg(std::string s) {
  Hash128 h;
  h.add(s);
  kind_ = ArgKind::kString;
  bits_ = reinterpret_cast<uint64_t>(static_cast<ArgBox*>(new ArgBoxOf<std::string>(std::move(s), h)));
}
Arg::Arg(std::vector<int64_t> v) {
  Hash128 h = hash_ints(v);
  kind_ = ArgKind::kInts;
  bits_ = reinterpret_cast<uint64_t>(static_cast<ArgBox*>(new ArgBoxOf<std::vector<int64_t>>(std::move(v), h)));
}

bool Arg::same_box(uint64_t a, uint64_t b) {
  auto *x = reinterpret_cast<const ArgBox*>(a), *y = reinterpret_cast<const ArgBox*>(b);
  return x->hash == y->hash && x->equals(*y);
}
void Arg::bad_kind(ArgKind got, ArgKind want) {
  internal_error(__FILE__, __LINE__, "kind",
                 str("argument of kind ", static_cast<int>(got), " read as kind ", static_cast<int>(want)));
}
Hash128 Arg::hash(ArgKind k, uint64_t bits) {
  Hash128 h;
  h.add(static_cast<uint64_t>(k));
  if (boxed(k)) h.add(reinterpret_cast<const ArgBox*>(bits)->hash);
  else h.add(bits);
  return h;
}

void Arg::print(std::ostream& os, ArgKind k, uint64_t bits) {
  auto ints = [&](const auto& v) {
    os << '(';
    for (size_t i = 0; i < v.size(); i++) os << (i ? ", " : "") << v[i];
    os << ')';
  };
  switch (k) {
    case ArgKind::kNone: os << "None"; break;
    case ArgKind::kInt: os << static_cast<int64_t>(bits); break;
    case ArgKind::kFloat: os << std::bit_cast<double>(bits); break;
    case ArgKind::kInvalid: os << "Invalid"; break;
    case ArgKind::kBigInt: print_int128(os, view<int128>(k, bits)); break;
    case ArgKind::kString: os << '"' << view<std::string>(k, bits) << '"'; break;
    case ArgKind::kInts: ints(view<std::vector<int64_t>>(k, bits)); break;
    case ArgKind::kRange:
      ints(view<RangeArg>(k, bits).id);
      os << ' ' << view<RangeArg>(k, bits).type;
      break;
    case ArgKind::kParam: {
      const auto& p = view<ParamArg>(k, bits);
      os << "slot=" << p.slot;
      if (p.addrspace != AddrSpace::kGlobal) os << ' ' << p.addrspace;
      if (!p.device.empty()) os << ' ' << p.device;
      if (!p.name.empty()) os << ' ' << p.name << " in [" << p.vmin << ", " << p.vmax << ']';
      break;
    }
    case ArgKind::kReduce:
      os << view<ReduceArg>(k, bits).op << ' ';
      ints(view<ReduceArg>(k, bits).axes);
      break;
    case ArgKind::kStage: {
      const auto& s = view<StageArg>(k, bits);
      os << s.addrspace << (s.removable ? "" : " kept");
      if (s.use != StageKind::kBuffer) os << ' ' << name_of(s.use);
      break;
    }
    case ArgKind::kCall: {
      const auto& c = view<CallInfo>(k, bits);
      os << '"' << c.name << '"' << (c.precompile ? " precompile" : "") << (c.gradient ? " with gradient" : "");
      break;
    }
    case ArgKind::kCollective: {
      const auto& c = view<CollectiveArg>(k, bits);
      os << name_of(c.what) << ' ' << c.op << ' ' << c.world << " axes " << c.mesh_axes << " root " << c.root;
      break;
    }
    case ArgKind::kKernel: {
      const auto& i = view<KernelInfo>(k, bits);
      os << '"' << i.name << '"';
      for (const Opt& o : i.applied_opts) os << ' ' << o;
      break;
    }
  }
}
std::ostream& operator<<(std::ostream& os, const Arg& a) {
  Arg::print(os, a.kind(), a.bits());
  return os;
}

}  // namespace tg
