/// \file Posting in pieces, testing in turn.
#include "tinygrad/runtime/world/messages.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {
constexpr size_t kPiece = size_t{1} << 30;  // MPI counts in int; pieces of one message arrive in order
}

void Messages::send(const void* data, size_t n, int to, int tag) {
  for (size_t at = 0; at < n; at += kPiece) {
    Pending& p = pending_.emplace_back(Pending{{}, to, false, std::min(kPiece, n - at)});
    mpi_->send(static_cast<const std::byte*>(data) + at, p.bytes, to, tag, &p.request);
  }
}

void Messages::receive(void* data, size_t n, int from, int tag) {
  for (size_t at = 0; at < n; at += kPiece) {
    Pending& p = pending_.emplace_back(Pending{{}, from, true, std::min(kPiece, n - at)});
    mpi_->receive(static_cast<std::byte*>(data) + at, p.bytes, from, tag, &p.request);
  }
}

bool Messages::all_done(bool* moved) {
  std::erase_if(pending_, [&](Pending& p) {
    const std::optional<Mpi::Arrived> done = mpi_->test(&p.request);
    if (!done) return false;
    TG_CHECK(PeerError, !p.receives || done->bytes == p.bytes, "rank ", p.peer, " sent ", done->bytes,
             " bytes, expected ", p.bytes);
    *moved = true;
    return true;
  });
  return pending_.empty();
}

std::vector<int> Messages::missing() const {
  std::vector<int> out;
  for (const Pending& p : pending_)
    if (p.receives && !contains(out, p.peer)) out.push_back(p.peer);
  for (const Pending& p : pending_)
    if (out.empty() || (!p.receives && !contains(out, p.peer))) out.push_back(p.peer);
  return out;
}

}  // namespace tg
