/// \file Replays rewrites on a recorded graph.
#include "tinygrad/viz/rewritten_graph.h"

#include <algorithm>
#include <unordered_set>

#include "tinygrad/base/hash.h"

namespace tg::viz {
namespace {

struct KeyHash {
  size_t operator()(const Hash128& h) const { return h.lo; }
};

/// Builds the graph from its sources up. A node over new sources is another node, for which there may be a rewrite, and
/// what that made is rewritten as well. Replacements that lead back to themselves are left out.
class Stepper {
 public:
  Stepper(const NodeTable& table, const std::vector<Rewrite>& rewrites, size_t count) : table_(table) {
    count = std::min(count, rewrites.size());
    for (size_t i = 0; i < count; i++)
      if (table.find(rewrites[i].after)) after_[rewrites[i].before] = rewrites[i].after;
    if (count) last_ = rewrites[count - 1].after;
    if (!after_.empty())
      for (const Node& n : table.nodes) numbers_.try_emplace(content(n, sources_of(n)), n.number);
  }

  SteppedGraph run(const std::vector<uint64_t>& roots) {
    for (uint64_t root : roots) {
      resolve(root);
      if (const auto it = result_.find(root); it != result_.end()) out_.roots.push_back(it->second);
    }
    if (const auto it = result_.find(last_); last_ && it != result_.end()) out_.changed = it->second;
    drop_unused();
    return std::move(out_);
  }

 private:
  /// A node whose result is wanted; `image`: what it has been replaced by, whose result it takes.
  struct Frame {
    uint64_t node = 0, replaced = 0, image = 0;
    bool entered = false;
  };

  std::vector<uint64_t> sources_of(const Node& n) const {
    const auto begin = table_.sources.begin() + n.source;
    return {begin, begin + n.sources};
  }
  Hash128 content(const Node& n, const std::vector<uint64_t>& sources) const {
    Hash128 h;
    for (uint64_t v : {uint64_t{n.op}, uint64_t{n.type}, n.tag}) h.add(v);
    h.add(table_.argument(n));
    for (uint64_t s : sources) h.add(s);
    return h;
  }

  void resolve(uint64_t wanted) {
    stack_.push_back({wanted});
    while (!stack_.empty()) {
      Frame& f = stack_.back();
      const Node* n = result_.contains(f.node) ? nullptr : table_.find(f.node);
      if (!n) stack_.pop_back();
      else if (!f.entered) enter(f, *n);
      else if (!f.image) build(f, *n);
      else take(f, *n);
    }
  }

  bool is_open(uint64_t number) const { return open_.contains(number) && !result_.contains(number); }

  void enter(Frame& f, const Node& n) {
    f.entered = true;
    open_.insert(f.node);
    for (uint64_t s : sources_of(n))
      if (!result_.contains(s) && !is_open(s)) stack_.push_back({s});
  }

  /// Makes the node over the results of its sources, or goes on to what a rewrite replaced it by.
  void build(Frame& f, const Node& n) {
    std::vector<uint64_t> sources;
    std::vector<uint32_t> indices;
    for (uint64_t s : sources_of(n)) {
      const auto it = result_.find(s);
      if (it == result_.end()) continue;  // the recording lacks it
      indices.push_back(it->second);
      sources.push_back(out_.nodes[it->second].number);
    }
    const bool same = sources == sources_of(n);
    const auto known = same ? numbers_.end() : numbers_.find(content(n, sources));
    const uint64_t number = same ? n.number : known == numbers_.end() ? 0 : known->second;
    const auto replaced = after_.find(number);
    if (number && replaced != after_.end() && !is_open(replaced->second)) {
      f.replaced = number;
      f.image = replaced->second;
      open_.insert(number);
      stack_.push_back({f.image});
      return;
    }
    const auto placed = number ? placed_.find(number) : placed_.end();
    uint32_t index = static_cast<uint32_t>(out_.nodes.size());
    if (placed != placed_.end()) index = placed->second;
    else {
      if (number) placed_[number] = index;
      out_.nodes.push_back({&n, number, std::move(indices)});
    }
    finish(f, index);
  }

  void take(Frame& f, const Node& n) {
    const auto it = result_.find(f.image);
    if (it != result_.end()) return finish(f, it->second);
    after_.erase(f.replaced);  // its replacement is missing
    f.image = 0;
    build(f, n);
  }

  void finish(const Frame& f, uint32_t index) {
    result_[f.node] = index;
    if (f.replaced) result_[f.replaced] = index;
    stack_.pop_back();
  }

  /// Sources of what was replaced may have no user any more.
  void drop_unused() {
    constexpr uint32_t kUnused = UINT32_MAX;
    std::vector<uint32_t> index(out_.nodes.size(), kUnused);
    for (uint32_t root : out_.roots) index[root] = 0;
    for (size_t i = out_.nodes.size(); i-- > 0;)
      if (index[i] != kUnused)
        for (uint32_t s : out_.nodes[i].sources) index[s] = 0;
    std::vector<SteppedNode> used;
    for (size_t i = 0; i < index.size(); i++) {
      if (index[i] == kUnused) continue;
      index[i] = static_cast<uint32_t>(used.size());
      used.push_back(std::move(out_.nodes[i]));
      for (uint32_t& s : used.back().sources) s = index[s];
    }
    for (uint32_t& root : out_.roots) root = index[root];
    if (out_.changed != kUnused) out_.changed = index[out_.changed];
    out_.nodes = std::move(used);
  }

  const NodeTable& table_;
  std::unordered_map<uint64_t, uint64_t> after_;
  std::unordered_map<Hash128, uint64_t, KeyHash> numbers_;  // by content
  std::unordered_map<uint64_t, uint32_t> result_, placed_;
  std::unordered_set<uint64_t> open_;
  std::vector<Frame> stack_;
  uint64_t last_ = 0;
  SteppedGraph out_;
};
}  // namespace

SteppedGraph step_graph(const Recording& r, const Snapshot& g, const std::vector<Rewrite>& rewrites, size_t count) {
  const NodeTable* t = r.graph(g.graph);
  return t ? Stepper(*t, rewrites, count).run(g.roots) : SteppedGraph();
}

}  // namespace tg::viz
