/// \file Checks the texts that barriers, copies of boxes and matrices in memory carry: they also come from files.
#include "tinygrad/uop/barriers.h"

#include <charconv>
#include <vector>

namespace tg {
namespace {

constexpr int64_t kMostGroups = 64;         ///< of a cluster
constexpr int64_t kMostBarriers = 1 << 12;  ///< in the memory of a group
constexpr int64_t kMostCount = int64_t{1} << 40;

/// Reads decimal numbers with one blank between them; empty where the text is anything else.
std::vector<int64_t> numbers_of(std::string_view text) {
  std::vector<int64_t> out;
  for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
    if (*at < '0' || *at > '9') return {};
    const auto [next, error] = std::from_chars(at, end, out.emplace_back());
    if (error != std::errc() || (next != end && (*next != ' ' || next + 1 == end))) return {};
    at = next == end ? end : next + 1;
  }
  return out;
}
/// Returns the numbers behind a word and a blank.
std::vector<int64_t> numbers_behind(std::string_view text, std::string_view word) {
  if (!text.starts_with(word) || text.size() == word.size() || text[word.size()] != ' ') return {};
  return numbers_of(text.substr(word.size() + 1));
}

bool in_range(int64_t n, int64_t least, int64_t most) { return n >= least && n <= most; }
/// Whether there is one number, in a range.
bool is_one(const std::vector<int64_t>& n, int64_t least, int64_t most) {
  return n.size() == 1 && in_range(n[0], least, most);
}

}  // namespace

bool is_well_formed_barrier(UOp u) {
  if (u.arg_kind() == ArgKind::kNone) return true;
  if (u.arg_kind() == ArgKind::kInt) return u.int_arg() >= 0;
  if (u.arg_kind() != ArgKind::kString) return false;
  const std::string& text = u.arg<std::string>();
  if (u.nsrc() == 0 || !u.src(0).is(Ops::INDEX))
    return text == "copies" || is_one(numbers_of(text), 0, kMostCount) ||
           is_one(numbers_behind(text, "cluster"), 1, kMostGroups);
  if (text == "await" || text == "room") return u.nsrc() >= 2 && u.src(1).dtype().is_int();
  if (const std::vector<int64_t> n = numbers_behind(text, "begin"); n.size() == 3)
    return in_range(n[0], 1, kMostBarriers) && in_range(n[1], 1, kMostGroups) && in_range(n[2], 1, kMostCount);
  return is_one(numbers_behind(text, "expect"), 0, kMostCount) ||
         is_one(numbers_behind(text, "release"), 1, kMostGroups);
}

bool is_well_formed_box(UOp u) {
  const std::vector<int64_t> n = numbers_behind(u.arg<std::string>(), "box");
  bool good = n.size() == 7 && in_range(n[0], 1, kMostGroups) && (u.nsrc() == 6 || u.nsrc() == 7);
  for (const int64_t i : n) good &= i <= kMostCount;
  for (uint32_t i = 2; good && i < 6; i++) good = i == 3 || u.src(i).dtype().is_int();
  return good && u.src(0).is(Ops::INDEX) && (u.nsrc() == 6 || u.src(6).dtype().is_bool());
}

bool is_well_formed_special(UOp u) {
  if (u.arg_kind() != ArgKind::kString) return false;
  const std::string& name = u.arg<std::string>();
  return name.size() == 5 && (name.starts_with("gidx") || name.starts_with("lidx")) && in_range(name[4], '0', '2');
}

bool is_well_formed_matrix_load(std::string_view text) {
  constexpr std::string_view kTransposed = ".trans";
  if (text.ends_with(kTransposed)) text.remove_suffix(kTransposed.size());
  return text.size() == 2 && text[0] == 'x' && in_range(text[1], '1', '4');
}

bool is_well_formed_matrix(std::string_view text) {
  const std::vector<int64_t> n = numbers_behind(text, text.starts_with('k') ? "k" : "mn");
  return n.size() == 2 && n[0] <= kMostCount && n[1] <= kMostCount;
}

}  // namespace tg
