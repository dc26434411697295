/// \file Success of all or of none.
#include "tinygrad/runtime/world/agree.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tinygrad/runtime/world/world.h"

namespace tg::distributed {
namespace {
constexpr size_t kReason = 512;  ///< bytes of what each process says

std::vector<int> everybody() {
  std::vector<int> out(static_cast<size_t>(size()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// Gathers as many bytes of each process in the order of the ranks.
void gather_bytes(const void* mine, void* all, size_t bytes) {
  run({.what = CollectiveKind::kAllGather,
       .dtype = dtypes::uint8,
       .elements = static_cast<int64_t>(bytes),
       .group = everybody()},
      mine, all);
}
}  // namespace

void agree(const std::string& operation, const std::string& why) {
  if (size() == 1) return;
  std::string mine = why.substr(0, kReason - 1), all(kReason * static_cast<size_t>(size()), '\0');
  mine.resize(kReason);
  gather_bytes(mine.data(), all.data(), kReason);
  if (!why.empty()) return;
  for (int r = 0; r < size(); r++) {
    const char* const theirs = all.data() + kReason * static_cast<size_t>(r);
    if (*theirs) throw PeerError(str("[", operation, "] rank ", r, " failed: ", theirs), r);
  }
}

std::vector<std::string> of_all(const std::string& mine) {
  if (size() == 1) return {mine};
  const auto n = static_cast<size_t>(size());
  std::vector<uint64_t> lengths(n);
  const uint64_t length = mine.size();
  gather_bytes(&length, lengths.data(), sizeof length);
  const size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = mine, all(longest * n, '\0');
  padded.resize(longest);
  if (longest) gather_bytes(padded.data(), all.data(), longest);
  std::vector<std::string> out;
  for (size_t r = 0; r < n; r++) out.push_back(all.substr(r * longest, lengths[r]));
  return out;
}

std::string of_rank_0(std::string text) {
  if (size() == 1) return text;
  std::string out(text.size(), '\0');
  run({.what = CollectiveKind::kBroadcast,
       .dtype = dtypes::uint8,
       .elements = static_cast<int64_t>(text.size()),
       .group = everybody()},
      text.data(), out.data());
  return out;
}

}  // namespace tg::distributed
