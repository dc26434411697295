/// \file Combining parts, and sending them on.
#include "tinygrad/runtime/world/segment.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/world/combine.h"

namespace tg {

size_t position_of(const std::vector<int>& group, int me) {
  const auto it = std::find(group.begin(), group.end(), me);
  TG_ASSERT(it != group.end(), "rank ", me, " is not in the group");
  return static_cast<size_t>(it - group.begin());
}

void Combined::receive(Messages& messages, size_t bytes, int tag) {
  received_.emplace(bytes * (c_.group.size() - 1));
  for (size_t k = 1, at = 0; k < c_.group.size(); k++, at += bytes)
    messages.receive(received_->data() + at, bytes, c_.group[(me_ + k) % c_.group.size()], tag);
}

void Combined::combine_into(std::byte* out, const std::byte* own, size_t bytes) {
  std::vector<const std::byte*> parts(c_.group.size(), own);
  for (size_t k = 1, at = 0; k < c_.group.size(); k++, at += bytes)
    parts[(me_ + k) % c_.group.size()] = received_->data() + at;
  combine(c_.op, c_.dtype, parts, out, bytes / static_cast<size_t>(c_.dtype.itemsize()));
  received_.reset();
}

Segment::Segment(Mpi& mpi, const Collective& c, size_t me, int tag, std::vector<std::span<const std::byte>> chunks,
                 std::vector<std::byte*> results)
    : c_(c),
      messages_(mpi),
      combined_(c, me),
      me_(me),
      tag_(tag),
      chunks_(std::move(chunks)),
      results_(std::move(results)) {
  combined_.receive(messages_, chunks_[me_].size(), tag_);
  for (size_t k = 1; k < chunks_.size(); k++) {
    const size_t p = (me_ + chunks_.size() - k) % chunks_.size();
    messages_.send(chunks_[p].data(), chunks_[p].size(), c_.group[p], tag_);
  }
}

bool Segment::advance(bool* moved) {
  if (!messages_.all_done(moved)) return false;
  if (spread_) return true;
  spread_ = true;
  *moved = true;
  spread();
  return messages_.all_done(moved);
}

void Segment::spread() {
  std::byte* const mine = results_[me_];
  combined_.combine_into(mine, chunks_[me_].data(), chunks_[me_].size());
  if (!std::ranges::all_of(results_, [](const std::byte* p) { return p != nullptr; })) return;
  for (size_t k = 1; k < chunks_.size(); k++) {
    const size_t from = (me_ + k) % chunks_.size(), to = (me_ + chunks_.size() - k) % chunks_.size();
    messages_.receive(results_[from], chunks_[from].size(), c_.group[from], tag_ + 1);
    messages_.send(mine, chunks_[me_].size(), c_.group[to], tag_ + 1);
  }
}

std::vector<size_t> parts_of(size_t bytes, size_t n, size_t element) {
  const size_t all = bytes / element;
  std::vector<size_t> out;
  for (size_t p = 0; p <= n; p++) out.push_back(all * p / n * element);
  return out;
}

}  // namespace tg
