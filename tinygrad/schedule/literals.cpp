/// \file Literals that change: a program that repeats the same graph with another literal in it gets one kernel that
/// reads the literal from memory.
#include "tinygrad/schedule/literals.h"

#include <algorithm>
#include <bit>
#include <list>
#include <map>
#include <mutex>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
constexpr size_t kKnown = 1024;       // graphs whose literals are remembered
constexpr size_t kLargest = 1 << 16;  // nodes of a graph that is compared: larger ones are seldom repeated
constexpr int kSightings = 5;         // graphs that differ in literals alone, from which on these are read from memory
constexpr OpSet kReadsValues = Ops::ADD | Ops::SUB | Ops::MUL | Ops::FDIV | Ops::MAX | Ops::NEG | Ops::CMPLT |
                               Ops::CMPNE | Ops::CMPEQ | Ops::WHERE;
constexpr OpSet kSpreads = Ops::RESHAPE | Ops::EXPAND | Ops::PERMUTE;

/// Returns the one device whose memory the graph uses; empty when there are several or none.
std::string only_device(const NormalGraph& g) {
  std::string device;
  for (UOp u : g.nodes) {
    if (u.in(Ops::COPY | Ops::COLLECTIVE | Ops::MSTACK | Ops::MSELECT | Ops::CALL)) return {};
    if (!u.is(Ops::BUFFER)) continue;
    const std::string& d = u.arg<ParamArg>().device;
    if (d.empty() || (!device.empty() && d != device)) return {};
    device = d;
  }
  return device;
}

/// Returns true where `user` may read source `k` from memory as well: arithmetic on values, and stored values. Sizes,
/// offsets, exponents, shift counts and divisors of integers decide which code is generated and stay literals.
bool reads_value(UOp user, uint32_t k) { return user.in(kReadsValues) || (user.is(Ops::STORE) && k == 1); }

/// Returns the positions of the literals that only such operations use, ascending.
std::vector<uint32_t> free_literals(const NormalGraph& g) {
  const size_t n = g.nodes.size();
  std::vector<bool> free(n, false), spread(n, false);  // spread: a literal, broadcast to a shape
  std::vector<uint32_t> literal(n, 0);
  for (size_t i = 0; i < n; i++) {
    UOp u = g.nodes[i];
    if (u.is(Ops::CONST)) {
      free[i] = spread[i] = !u.dtype().is_weak() && !u.dtype().is_bool() && !u.is_invalid();
      literal[i] = static_cast<uint32_t>(i);
      continue;
    }
    for (uint32_t s = g.src_begin[i]; s < g.src_begin[i + 1]; s++) {
      const uint32_t from = g.src[s], k = s - g.src_begin[i];
      if (!spread[from]) continue;
      if (u.in(kSpreads) && k == 0) {
        spread[i] = true;
        literal[i] = literal[from];
      } else if (!reads_value(u, k)) free[literal[from]] = false;
    }
  }
  for (const RootPlan& p : g.roots)
    if (spread[p.node]) free[literal[p.node]] = false;
  std::vector<uint32_t> out;
  for (size_t i = 0; i < n; i++)
    if (free[i]) out.push_back(static_cast<uint32_t>(i));
  return out;
}

/// The history of graphs that differ in nothing but their literals.
struct Sightings {
  Hash128 key;
  std::vector<uint64_t> last;  // bits of the literals
  std::vector<bool> varies;
  int seen = 0;
};

/// Returns which of the free literals changed, once that has been seen often enough; empty before.
std::vector<bool> note(const Hash128& key, std::vector<uint64_t> values) {
  static std::mutex mutex;
  static auto& entries = *new std::list<Sightings>;  // most recently seen first
  static auto& by_key = *new std::map<Hash128, std::list<Sightings>::iterator>;
  std::lock_guard lock(mutex);
  auto [it, fresh] = by_key.try_emplace(key);
  if (fresh) {
    entries.push_front({key, values, std::vector<bool>(values.size()), 0});
    it->second = entries.begin();
    if (entries.size() > kKnown) {
      by_key.erase(entries.back().key);
      entries.pop_back();
    }
  } else entries.splice(entries.begin(), entries, it->second);
  Sightings& s = entries.front();
  for (size_t k = 0; k < values.size(); k++)
    if (values[k] != s.last[k]) s.varies[k] = true;
  s.last = std::move(values);
  return ++s.seen < kSightings ? std::vector<bool>() : s.varies;
}
}  // namespace

bool literals_to_inputs(NormalGraph& g) {
  if (g.nodes.size() > kLargest) return false;
  const std::string device = only_device(g);
  if (device.empty()) return false;
  const std::vector<uint32_t> free = free_literals(g);
  if (free.empty()) return false;
  std::vector<uint64_t> values;
  for (uint32_t i : free) {
    const ConstValue v = g.nodes[i].const_value();
    values.push_back(v.is_int() ? static_cast<uint64_t>(v.i) : std::bit_cast<uint64_t>(v.f));
  }
  std::vector<bool> open(g.nodes.size(), false);
  for (uint32_t i : free) open[i] = true;
  const std::vector<bool> varies = note(key_of(g, open), std::move(values));
  if (!contains(varies, true)) return false;
  for (size_t k = 0; k < free.size(); k++) {
    open[free[k]] = varies[k];
    if (!varies[k]) continue;
    g.number[free[k]] = static_cast<int32_t>(g.inputs.size());
    g.inputs.push_back(g.nodes[free[k]]);
  }
  g.literal_device = device;
  g.key = key_of(g, open);
  return true;
}

}  // namespace tg
