/// \file Writing and reading of nodes and their arguments.
#include "tinygrad/uop/serialize.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/owner.h"

namespace tg {
namespace {
constexpr uint32_t kEmpty = std::numeric_limits<uint32_t>::max();

void write_ints(ByteWriter& w, const auto& v) {
  w.size(v.size());
  for (auto x : v) w.value<int64_t>(x);
}
template <class T> std::vector<T> read_ints(ByteReader& r) {
  std::vector<T> v(r.size(8));
  for (T& x : v) {
    const auto n = r.value<int64_t>();
    r.check(n >= std::numeric_limits<T>::min() && n <= std::numeric_limits<T>::max(), "a number out of range");
    x = static_cast<T>(n);
  }
  return v;
}
void write_arg(ByteWriter& w, UOp u) {
  const ArgKind kind = u.arg_kind();
  w.value(static_cast<uint8_t>(kind));
  switch (kind) {
    case ArgKind::kNone:
    case ArgKind::kInvalid: break;
    case ArgKind::kInt:
    case ArgKind::kFloat: w.value<uint64_t>(u.arg().bits()); break;
    case ArgKind::kBigInt: w.value<int128>(u.arg<int128>()); break;
    case ArgKind::kString: w.text(u.arg<std::string>()); break;
    case ArgKind::kInts: write_ints(w, u.arg<std::vector<int64_t>>()); break;
    case ArgKind::kRange:
      write_ints(w, u.arg<RangeArg>().id);
      w.value(static_cast<uint8_t>(u.arg<RangeArg>().type));
      break;
    case ArgKind::kParam: {
      const ParamArg& a = u.arg<ParamArg>();
      w.value(a.slot);
      w.value(static_cast<uint8_t>(a.addrspace));
      w.text(a.device);
      w.text(a.name);
      w.value(a.vmin);
      w.value(a.vmax);
      break;
    }
    case ArgKind::kReduce:
      w.value(static_cast<uint8_t>(u.arg<ReduceArg>().op));
      write_ints(w, u.arg<ReduceArg>().axes);
      break;
    case ArgKind::kStage: {
      const StageArg& a = u.arg<StageArg>();
      w.value(static_cast<uint8_t>(a.addrspace));
      w.text(a.device);
      w.value<uint8_t>(a.removable);
      w.value(static_cast<uint8_t>(a.use));
      break;
    }
    case ArgKind::kKernel: {
      const KernelInfo& a = u.arg<KernelInfo>();
      w.text(a.name);
      write_opts(w, a.applied_opts);
      w.value<uint8_t>(a.opts_to_apply.has_value());
      if (a.opts_to_apply) write_opts(w, *a.opts_to_apply);
      w.value<uint8_t>(a.attention);
      break;
    }
    case ArgKind::kCall: {
      const CallInfo& a = u.arg<CallInfo>();
      TG_CHECK(ValueError, !a.gradient, "[save] got a call of ", a.name,
               " with a gradient of its own, expected a graph without functions of this process");
      w.text(a.name);
      w.value<uint8_t>(a.precompile);
      w.value<uint8_t>(a.precompile_backward);
      write_ints(w, a.writes);
      break;
    }
    case ArgKind::kCollective: {
      const CollectiveArg& a = u.arg<CollectiveArg>();
      w.value(static_cast<uint8_t>(a.what));
      w.value(static_cast<uint8_t>(a.op));
      w.text(a.world);
      w.value(a.mesh_axes);
      w.value(a.root);
      break;
    }
  }
}

AddrSpace read_addrspace(ByteReader& r) {
  return static_cast<AddrSpace>(
      r.below<uint8_t>(static_cast<uint8_t>(AddrSpace::kAlu) + 1, "an unknown kind of memory"));
}

Arg read_arg(ByteReader& r) {
  switch (static_cast<ArgKind>(
      r.below<uint8_t>(static_cast<uint8_t>(ArgKind::kCollective) + 1, "an unknown kind of argument"))) {
    case ArgKind::kNone: return {};
    case ArgKind::kInvalid: return Arg::invalid();
    case ArgKind::kInt: return Arg(r.value<int64_t>());
    case ArgKind::kFloat: return Arg(r.value<double>());
    case ArgKind::kBigInt: return Arg(r.value<int128>());
    case ArgKind::kString: return Arg(r.text());
    case ArgKind::kInts: return Arg(read_ints<int64_t>(r));
    case ArgKind::kRange: {
      RangeArg a{read_ints<int32_t>(r)};
      a.type = static_cast<AxisType>(
          r.below<uint8_t>(static_cast<uint8_t>(AxisType::kVector) + 1, "an unknown kind of range"));
      return a;
    }
    case ArgKind::kParam: {
      ParamArg a;
      a.slot = r.value<int64_t>();
      a.addrspace = read_addrspace(r);
      a.device = r.text();
      a.name = r.text();
      a.vmin = r.value<int64_t>();
      a.vmax = r.value<int64_t>();
      return a;
    }
    case ArgKind::kReduce: {
      ReduceArg a{static_cast<Ops>(r.below<uint8_t>(kOpCount, "an unknown operation")), read_ints<int32_t>(r)};
      r.check(groups::kReduce.has(a.op), "an operation that does not reduce");
      return a;
    }
    case ArgKind::kStage: {
      StageArg a{.addrspace = read_addrspace(r), .device = r.text()};
      a.removable = r.flag();
      a.use = static_cast<StageKind>(
          r.below<uint8_t>(static_cast<uint8_t>(StageKind::kPartial) + 1, "an unknown kind of scratch memory"));
      return a;
    }
    case ArgKind::kKernel: {
      KernelInfo a;
      a.name = r.text();
      a.applied_opts = read_opts(r);
      if (r.flag()) a.opts_to_apply = read_opts(r);
      a.attention = r.flag();
      return a;
    }
    case ArgKind::kCall: {
      CallInfo a;
      a.name = r.text();
      a.precompile = r.flag();
      a.precompile_backward = r.flag();
      a.writes = read_ints<int32_t>(r);
      return a;
    }
    case ArgKind::kCollective: {
      CollectiveArg a;
      a.what = static_cast<CollectiveKind>(
          r.below<uint8_t>(static_cast<uint8_t>(CollectiveKind::kReceive) + 1, "an unknown collective"));
      a.op = static_cast<Ops>(r.below<uint8_t>(static_cast<uint8_t>(kOpCount), "an unknown op"));
      a.world = r.text();
      a.mesh_axes = r.value<uint32_t>();
      a.root = r.value<int32_t>();
      return a;
    }
  }
  return {};
}
}  // namespace

uint32_t graph_format() {
  Hash128 h;
  for (int op = 0; op < kOpCount; op++) h.add(std::string_view(name_of(static_cast<Ops>(op))));
  for (int axis = 0; axis <= static_cast<int>(AxisType::kVector); axis++)
    h.add(std::string_view(name_of(static_cast<AxisType>(axis))));
  for (int opt = 0; opt < kOptOpCount; opt++) h.add(std::string_view(name_of(static_cast<OptOp>(opt))));
  h.add(static_cast<uint64_t>(ArgKind::kCollective));
  h.add(static_cast<uint64_t>(AddrSpace::kAlu));
  return static_cast<uint32_t>(h.lo ^ h.lo >> 32);
}

void write_graph(ByteWriter& w, const UOps& roots) {
  std::unordered_map<UOp, uint32_t> place;
  UOps order;
  std::vector<DType> spelled;
  for (UOp root : roots) {
    if (!root) continue;
    for (UOp u : root.toposort()) {
      if (!place.try_emplace(u, static_cast<uint32_t>(order.size())).second) continue;
      TG_CHECK(ValueError, !u.is(Ops::BUFFER) || u.arg<ParamArg>().addrspace != AddrSpace::kGlobal,
               "[save] got a graph with memory, expected parameters in its place");
      order.push_back(u);
      add_once(spelled, u.dtype());
    }
  }
  w.size(spelled.size());
  for (DType d : spelled) w.text(d.name());
  w.size(order.size());
  for (UOp u : order) {
    w.value(static_cast<uint8_t>(u.op()));
    w.value(static_cast<uint32_t>(std::find(spelled.begin(), spelled.end(), u.dtype()) - spelled.begin()));
    w.value(mark_of(u));
    w.value(u.nsrc());
    for (UOp s : u.srcs()) w.value(place.at(s));
    write_arg(w, u);
  }
  w.size(roots.size());
  for (UOp root : roots) w.value(root ? place.at(root) : kEmpty);
}

UOps read_graph(ByteReader& r) {
  std::vector<DType> types(r.size(8));
  for (DType& d : types) {
    try {
      d = dtypes::from_name(r.text());
    } catch (const DTypeError&) { r.check(false, "an unknown type"); }
  }
  UOps order(r.size(18)), src;
  for (size_t i = 0; i < order.size(); i++) {
    const auto op = static_cast<Ops>(r.below<uint8_t>(kOpCount, "an unknown operation"));
    const DType d = types.at(r.below<uint32_t>(types.size(), "an unknown type"));
    const auto tag = r.value<uint64_t>();
    const auto n = r.value<uint32_t>();
    r.check(n <= r.left() / 4, "a count that is larger than the file");
    src.clear();
    for (uint32_t k = 0; k < n; k++)
      src.push_back(order[r.below<uint32_t>(i, "a source that does not come before its user")]);
    const Arg arg = read_arg(r);
    // Such a node would own memory: that of another tensor, or none.
    r.check(op != Ops::BUFFER || (arg.kind() == ArgKind::kParam && arg.as<ParamArg>().addrspace != AddrSpace::kGlobal),
            "memory, expected parameters in its place");
    order[i] = UOp::make(op, d, src, arg, tag);
  }
  UOps roots(r.size(4));
  for (UOp& root : roots)
    if (const auto at = r.value<uint32_t>(); at != kEmpty) {
      r.check(at < order.size(), "a root that is no node");
      root = order[at];
    }
  return roots;
}

}  // namespace tg
