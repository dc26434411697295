/// \file Combining parts, and sending them on.
#include "tinygrad/runtime/world/segment.h"

#include <algorithm>
#include <utility>

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

Segment::Segment(Mpi& mpi, const Collective& c, size_t me, int tag, Chunks chunks)
    : TwoRounds(mpi), c_(c), combined_(c, me), me_(me), tag_(tag), chunks_(std::move(chunks)) {
  const size_t n = chunks_.from.size();
  combined_.receive(messages_, chunks_.from[me_].size(), tag_);
  for (size_t k = 1; k < n; k++) {
    const size_t p = (me_ + n - k) % n;
    messages_.send(chunks_.from[p].data(), chunks_.from[p].size(), c_.group[p], tag_);
  }
}

void Segment::second_round() {
  const auto& [from, to] = chunks_;
  combined_.combine_into(to[me_], from[me_].data(), from[me_].size());
  if (!std::ranges::all_of(to, [](const std::byte* p) { return p != nullptr; })) return;
  for (size_t k = 1; k < to.size(); k++) {
    const size_t source = (me_ + k) % to.size(), target = (me_ + to.size() - k) % to.size();
    messages_.receive(to[source], from[source].size(), c_.group[source], tag_ + 1);
    messages_.send(to[me_], from[me_].size(), c_.group[target], tag_ + 1);
  }
}

std::vector<size_t> parts_of(size_t bytes, size_t n, size_t element) {
  const size_t all = bytes / element;
  std::vector<size_t> out;
  for (size_t p = 0; p <= n; p++) out.push_back(all * p / n * element);
  return out;
}

Chunks chunks_of(const std::byte* from, std::byte* to, size_t bytes, size_t n, size_t element) {
  const std::vector<size_t> at = parts_of(bytes, n, element);
  Chunks out;
  for (size_t p = 0; p < n; p++) {
    out.from.emplace_back(from + at[p], at[p + 1] - at[p]);
    out.to.push_back(to + at[p]);
  }
  return out;
}

bool InSegments::advance(bool* moved) {
  std::erase_if(active_, [&](const std::unique_ptr<Exchange>& s) { return s->advance(moved); });
  while (active_.size() < window_ && next_ < elements()) {
    const size_t from = std::exchange(next_, std::min(elements(), next_ + each_));
    active_.push_back(begin(from, next_, tag_ + 2 * (number_++ % (kTags / 2))));
  }
  return active_.empty();
}

std::vector<int> InSegments::missing() const {
  return active_.empty() ? std::vector<int>() : active_.front()->missing();
}

}  // namespace tg
