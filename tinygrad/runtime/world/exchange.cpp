/// \file The exchange of an operation, and what operations say of themselves.
#include "tinygrad/runtime/world/exchange.h"

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/world/exchange_kinds.h"

namespace tg {

std::unique_ptr<Exchange> start_exchange(Mpi& mpi, const Collective& c, int me, std::span<const int> machines,
                                         const std::byte* in, std::byte* out, int tag) {
  const ExchangeArgs a{mpi, c, me, in, out, tag};
  const Algorithm way = algorithm_of(c, me, machines);
  if (way == Algorithm::kHierarchy) return start_hierarchy(a, *hierarchy_of(c.group, me, machines));
  if (c.what == CollectiveKind::kBroadcast) return start_broadcast(a, way);
  const bool combines = c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter;
  return combines ? start_sum(a, way) : start_moves(a);
}

std::string text_of(const Collective& c) {
  const bool combines = c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter;
  std::string out = str(name_of(c.what), combines ? str(" ", c.op) : "", " of ", c.elements, " ", c.dtype);
  if (c.what == CollectiveKind::kSend) return out + str(" to rank ", c.root);
  if (c.what == CollectiveKind::kReceive) return out + str(" from rank ", c.root);
  return out + str(" by ", c.group.size(), " ranks");
}

uint64_t fingerprint_of(const Collective& c) {
  const bool pair = c.what == CollectiveKind::kSend || c.what == CollectiveKind::kReceive;
  const bool combines = c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter;
  Hash128 h;
  h.add(static_cast<uint64_t>(pair ? CollectiveKind::kSend : c.what));
  if (combines) h.add(static_cast<uint64_t>(c.op));
  h.add(c.dtype.name());
  h.add(static_cast<uint64_t>(c.elements));
  if (c.what == CollectiveKind::kBroadcast) h.add(static_cast<uint64_t>(c.root));
  return h.lo;
}

}  // namespace tg
