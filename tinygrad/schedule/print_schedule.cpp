/// \file Schedules as text.
#include <ostream>

#include "tinygrad/schedule/schedule.h"

namespace tg {
namespace {
void print_loops(std::ostream& os, const Kernel& k, Arena& arena) {
  ArenaScope scope(arena);
  int loads = 0, alu = 0;
  bool any = false;
  for (UOp u : k.sink.toposort()) {
    if (u.is(Ops::LOAD)) loads++;
    if (u.in(groups::kElementwise) && !u.dtype().is_weak()) alu++;
    if (!u.is(Ops::RANGE)) continue;
    os << (any ? " x " : "") << (u.arg<RangeArg>().type == AxisType::kReduce ? "r" : "");
    if (u.src(0).is_const()) os << static_cast<int64_t>(u.src(0).const_int());
    else os << '[' << static_cast<int64_t>(vmax(u.src(0))) << ']';
    any = true;
  }
  os << (any ? "" : "1") << "; " << loads << " loads, " << alu << " operations";
}
}  // namespace

void print_schedule(std::ostream& os, const Schedule& s) {
  static const char* kinds[] = {"in", "out", "tmp"};
  for (size_t i = 0; i < s.buffers.size(); i++) {
    const ScheduleBuffer& b = s.buffers[i];
    os << "buffer " << i << ": " << kinds[b.kind] << ' ' << b.dtype << " x " << b.size << ' ' << b.device;
    if (b.offset >= 0) os << " at " << b.offset;
    os << '\n';
  }
  for (const auto& [device, bytes] : s.arenas) os << "arena " << device << ": " << bytes << " bytes\n";
  for (size_t i = 0; i < s.calls.size(); i++) {
    const ScheduleCall& c = s.calls[i];
    os << "call " << i << ": ";
    for (size_t k = 0; k < c.buffers.size(); k++) os << (k == 1 ? " <- " : k ? ", " : "") << 'b' << c.buffers[k];
    if (c.kind == ScheduleCall::kCopy) os << " copy";
    else if (c.kind == ScheduleCall::kCollective) os << ' ' << Arg(*c.collective);
    else {
      os << "; loops ";
      print_loops(os, *c.kernel, *c.kernel->arena);
      os << "; " << c.kernel->key.to_hex().substr(0, 8);
    }
    os << '\n';
  }
}

}  // namespace tg
