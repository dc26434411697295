/// \file Estimates, names and parameters of programs.
#include "tinygrad/codegen/linear/program_info.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/target/tensor_core.h"
#include "tinygrad/target/tensor_map.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/memory_ops.h"

namespace tg {
namespace {
/// Marks the values that reach memory by another way than an index or a gate.
std::vector<bool> computes_data(const UOps& linear) {
  uint32_t limit = 0;
  for (UOp u : linear) limit = std::max(limit, u.id() + 1);
  std::vector<bool> data(limit, false);
  for (size_t i = linear.size(); i-- > 0;) {
    UOp u = linear[i];
    if (u.is(Ops::STORE)) {
      for (UOp v : stored_values(u)) data[v.id()] = true;
    } else if (u.is(Ops::LOAD)) {
      if (u.nsrc() == 3) data[u.src(1).id()] = true;
    } else if (u.in(groups::kElementwise | Ops::REDUCE | Ops::WMMA | Ops::GETTUPLE | Ops::CUSTOMI) && data[u.id()])
      for (UOp s : u.srcs()) data[s.id()] = true;
  }
  return data;
}
/// Returns the additions and multiplications of a matrix instruction in one thread.
double operations_of(const TensorCore& t, double lanes) {
  return 2.0 * t.k * (t.threads == 1 ? lanes : static_cast<double>(t.n) * t.m / t.threads);
}
ParamArg const* global_param(UOp index) {
  UOp u = index;
  while (u.in(Ops::INDEX | Ops::AFTER) || u.in(Ops::CAST | Ops::BITCAST)) u = u.src(0);
  if (!u.is(Ops::PARAM)) return nullptr;
  const ParamArg& p = u.arg<ParamArg>();
  return p.addrspace == AddrSpace::kGlobal ? &p : nullptr;
}
/// Notes the image that a pixel is of.
void describe_image(Program& p, UOp access) {
  const UOp image = storage_of(access.src(0));
  const auto extent = [&](size_t i) { return static_cast<int64_t>(image.src(0).src(i).const_int()); };
  p.images.resize(static_cast<size_t>(p.nbuffers));
  p.images[static_cast<size_t>(image.arg<ParamArg>().slot)] = {extent(1), extent(0), image.dtype().itemsize(),
                                                               access.is(Ops::STORE)};
}

/// How many threads run: of the grid, and of a group.
struct ThreadCounts {
  double grid = 1, group = 1;
};
ThreadCounts count_threads(const UOps& linear) {
  ThreadCounts c;
  for (UOp u : linear) {
    if (!u.is(Ops::SPECIAL)) continue;
    const auto n = static_cast<double>(std::max<int128>(0, vmax(u.src(0))));
    c.grid *= n;
    if (u.arg<std::string>().starts_with("l")) c.group *= n;
  }
  return c;
}

/// The parameter whose memory a load, a store or a box touches.
UOp touched_param(UOp u) {
  UOp p = is_box(u) ? BoxCopy{u}.param() : u.src(0);
  while (!p.is(Ops::PARAM)) p = p.src(0);
  return p;
}

/// Bytes that a load, a store or a box moves in all, when `n` threads execute it.
double moved_bytes(UOp u, double n, const ThreadCounts& threads) {
  if (is_box(u))  // one thread of a group
    return n / threads.group * static_cast<double>(TensorMap::from_text(BoxCopy{u}.map()).box_bytes());
  const UOp value = u.is(Ops::LOAD) ? u : u.src(1);
  const double elements = is_pixel_access(u) ? 4 : std::max(lanes_of(u.src(0)), lanes_of(value));
  return n * elements * u.src(0).dtype().itemsize();
}
}  // namespace

Estimates estimate(const UOps& linear) {
  Estimates e;
  std::vector<bool> data = computes_data(linear);
  const ThreadCounts threads = count_threads(linear);
  std::vector<double> trips{threads.grid};
  std::vector<int64_t> seen;
  for (UOp u : linear) {
    double n = trips.back(), lanes = lanes_of(u);
    if (is_loop(u)) trips.push_back(n * static_cast<double>(std::max<int128>(0, vmax(u.src(0)))));
    else if (u.is(Ops::END)) trips.pop_back();
    else if (u.is(Ops::REDUCE) && data[u.id()]) e.ops += n * (lanes_of(u.src(0)) - 1);
    else if (u.in(groups::kAlu) && data[u.id()]) e.ops += n * lanes * (u.is(Ops::MULACC) ? 2 : 1);
    else if (u.is(Ops::WMMA) && data[u.id()])
      e.ops += n * operations_of(*find_tensor_core(u.arg<std::string>()), lanes);
    else if (is_box(u) || (u.in(Ops::LOAD | Ops::STORE) && global_param(u.src(0)))) {
      e.lds += moved_bytes(u, n, threads);
      const UOp p = touched_param(u);
      const int64_t slot = p.arg<ParamArg>().slot;
      if (contains(seen, slot)) continue;
      seen.push_back(slot);
      double size = p.dtype().itemsize();
      for (UOp extent : p.src(0).srcs()) size *= static_cast<double>(vmax(extent));
      e.mem += size;
    }
  }
  return e;
}

std::string kernel_name(UOp ast) {
  bool reduce = false;
  UOps ranges;
  for (UOp u : ast.toposort()) {
    reduce |= u.is(Ops::REDUCE);
    if (u.is(Ops::RANGE)) ranges.push_back(u);
  }
  std::sort(ranges.begin(), ranges.end(), nests_before);
  std::string name = reduce ? "r" : "E";
  for (UOp r : ranges) {
    UOp n = r.src(0);
    name += '_' + (n.is_const() ? std::to_string(static_cast<int64_t>(n.const_int()))
                                : "n" + std::to_string(static_cast<int64_t>(vmax(n))));
  }
  if (ranges.empty()) name += "_1";
  return name;
}

void describe_parameters(Program& p, UOp ast) {
  UOps params, vars;
  for (UOp u : ast.toposort()) {
    if (!u.is(Ops::PARAM)) continue;
    if (u.arg<ParamArg>().addrspace == AddrSpace::kAlu) vars.push_back(u);
    else params.push_back(u);
  }
  std::sort(vars.begin(), vars.end(), [](UOp a, UOp b) { return a.arg<ParamArg>().name < b.arg<ParamArg>().name; });
  p.vars.clear();
  p.nbuffers = 0;
  p.thread_extent = {};
  p.shared_bytes = 0;
  p.images.clear();
  bool grid = false;
  int64_t scratch = 0;
  for (UOp v : vars)
    if (p.vars.empty() || p.vars.back() != v.arg<ParamArg>().name) p.vars.push_back(v.arg<ParamArg>().name);
  for (UOp u : params) p.nbuffers = std::max(p.nbuffers, static_cast<int>(u.arg<ParamArg>().slot) + 1);
  p.reads.assign(static_cast<size_t>(p.nbuffers), false);
  p.writes = p.reads;
  for (UOp u : p.insts) {
    if (u.in(Ops::LOAD | Ops::STORE)) {
      if (const ParamArg* g = global_param(u.src(0))) {
        (u.is(Ops::LOAD) ? p.reads : p.writes)[static_cast<size_t>(g->slot)] = true;
        if (is_pixel_access(u)) describe_image(p, u);
      }
    } else if (is_box(u)) {
      p.reads[static_cast<size_t>(BoxCopy{u}.param().arg<ParamArg>().slot)] = true;
    } else if (is_thread(u)) {
      p.thread_extent = u.src(0);
    } else if (u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal) {
      scratch += shape_of(u).numel() * u.dtype().itemsize();
    } else if (u.is(Ops::SPECIAL)) {
      grid = true;
      const std::string& name = u.arg<std::string>();  // gidx0, lidx1, ...
      (name[0] == 'g' ? p.global_size : p.local_size)[static_cast<size_t>(name.back() - '0')] = u.src(0);
    }
  }
  if (grid) p.shared_bytes = scratch;  // otherwise it belongs to a thread
}

}  // namespace tg
