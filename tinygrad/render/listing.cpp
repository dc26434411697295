/// \file Linear programs as text.
#include "tinygrad/render/listing.h"

#include <algorithm>

#include "tinygrad/render/program_view.h"
#include "tinygrad/uop/variables.h"

namespace tg {

std::string ListingRenderer::render(const Program& p) const {
  ArenaScope scope(*p.arena);
  ProgramView view(p);
  std::string out = p.name + "\n";
  int depth = 1, n = 0;
  for (const Inst& in : view.insts()) {
    UOp u = in.u;
    if (u.is(Ops::END)) depth -= static_cast<int>(u.nsrc()) - 1;
    std::ostringstream line;
    line << "%" << n++ << std::string(static_cast<size_t>(std::max(depth, 0)) * 2, ' ') << u.op() << ' ' << u.dtype();
    if (in.lanes > 1) line << 'x' << in.lanes;
    if (u.arg_kind() != ArgKind::kNone) line << ' ' << u.arg();
    if (u.in(groups::kDefines)) line << (is_variable(u) ? "" : str(" [", storage_size(u), "]"));
    else
      for (UOp s : u.srcs())
        if (!s.in(Ops::GROUP | Ops::NOOP)) line << " %" << view.position(s);
    out += line.str() + "\n";
    if (u.is(Ops::RANGE) && !is_lane(u)) depth++;
  }
  return out;
}

}  // namespace tg
