/// \file Layers by longest paths, barycentres against crossings, and least squares for the places within a layer.
#include "tinygrad/viz/graph_layout.h"

#include <algorithm>
#include <numeric>

namespace tg::viz {
namespace {
constexpr float kNodeGap = 22, kBendGap = 10, kLayerGap = 34, kMostExtraGap = 46;
constexpr size_t kBendsPerNode = 2, kFreeBends = 4096;
constexpr size_t kSmall = 4000;  // points: what is larger is improved less often

/// Adjacent points, in one array: those of point p from first[p] to first[p + 1].
struct Adjacency {
  std::vector<uint32_t> first, points;
  std::span<const uint32_t> of(uint32_t p) const { return {points.data() + first[p], first[p + 1] - first[p]}; }
};

class Layouter {
 public:
  Layouter(std::span<const LayoutBox> boxes, const std::vector<std::vector<uint32_t>>& sources)
      : boxes_(boxes), sources_(sources), nodes_(boxes.size()) {}

  GraphLayout run() {
    if (!nodes_) return {};
    assign_layers();
    bend_edges();
    above_ = adjacency(&LayoutLink::to, &LayoutLink::from);
    below_ = adjacency(&LayoutLink::from, &LayoutLink::to);
    order_layers();
    place_in_layers();
    place_layers();
    return std::move(out_);
  }

 private:
  /// A node is one layer below its lowest source. What has more users than sources then moves down to its users, which
  /// shortens edges.
  void assign_layers() {
    std::vector<uint32_t>& layer = out_.layer;
    layer.assign(nodes_, 0);
    std::vector<uint32_t> users(nodes_, 0), nearest(nodes_, UINT32_MAX);
    for (uint32_t i = 0; i < nodes_; i++)
      for (uint32_t s : sources_[i]) {
        layer[i] = std::max(layer[i], layer[s] + 1);
        users[s]++;
      }
    for (uint32_t i = static_cast<uint32_t>(nodes_); i-- > 0;) {
      if (nearest[i] != UINT32_MAX && users[i] >= sources_[i].size()) layer[i] = nearest[i] - 1;
      for (uint32_t s : sources_[i]) nearest[s] = std::min(nearest[s], layer[i]);
    }
    std::vector<uint32_t> used(1 + *std::max_element(layer.begin(), layer.end()), 0);  // moving may empty a layer
    for (uint32_t l : layer) used[l] = 1;
    std::partial_sum(used.begin(), used.end(), used.begin());
    for (uint32_t& l : layer) l = used[l] - 1;
  }

  /// Gives every node a chain of bends down to the layer above its lowest user, short chains first, as far as they may.
  void bend_edges() {
    std::vector<uint32_t> lowest(nodes_, 0), first_bend(nodes_, 0);
    for (uint32_t i = 0; i < nodes_; i++)
      for (uint32_t s : sources_[i]) lowest[s] = std::max(lowest[s], out_.layer[i]);
    std::vector<uint32_t> by_length(nodes_);
    std::iota(by_length.begin(), by_length.end(), 0u);
    const auto length = [&](uint32_t i) { return lowest[i] > out_.layer[i] + 1 ? lowest[i] - out_.layer[i] - 1 : 0; };
    std::stable_sort(by_length.begin(), by_length.end(), [&](uint32_t a, uint32_t b) { return length(a) < length(b); });
    size_t left = kBendsPerNode * nodes_ + kFreeBends;
    for (uint32_t i : by_length) {
      if (length(i) == 0) continue;
      if (length(i) > left) break;
      left -= length(i);
      first_bend[i] = static_cast<uint32_t>(out_.layer.size());
      for (uint32_t l = out_.layer[i] + 1; l < lowest[i]; l++) {
        const auto bend = static_cast<uint32_t>(out_.layer.size());
        out_.links.push_back({bend == first_bend[i] ? i : bend - 1, bend, i});
        out_.layer.push_back(l);
      }
    }
    for (uint32_t i = 0; i < nodes_; i++) {
      std::vector<uint32_t> once = sources_[i];
      std::sort(once.begin(), once.end());
      once.erase(std::unique(once.begin(), once.end()), once.end());
      for (uint32_t s : once) {
        const uint32_t bends = out_.layer[i] - out_.layer[s] - 1;
        out_.links.push_back({bends && first_bend[s] ? first_bend[s] + bends - 1 : s, i, s});
      }
    }
  }

  /// Returns what is linked to each point; straight edges over several layers pull at nobody.
  Adjacency adjacency(uint32_t LayoutLink::* mine, uint32_t LayoutLink::* other) const {
    Adjacency a;
    a.first.assign(out_.layer.size() + 1, 0);
    const auto counts = [&](const LayoutLink& l) { return out_.layer[l.to] == out_.layer[l.from] + 1; };
    for (const LayoutLink& l : out_.links)
      if (counts(l)) a.first[l.*mine + 1]++;
    std::partial_sum(a.first.begin(), a.first.end(), a.first.begin());
    a.points.resize(a.first.back());
    std::vector<uint32_t> at(a.first.begin(), a.first.end() - 1);
    for (const LayoutLink& l : out_.links)
      if (counts(l)) a.points[at[l.*mine]++] = l.*other;
    return a;
  }

  /// Orders each layer by the mean position of neighbours, down and up in turns, and keeps the order with the fewest
  /// crossings.
  void order_layers() {
    const size_t points = out_.layer.size();
    layers_.resize(1 + *std::max_element(out_.layer.begin(), out_.layer.end()));
    for (uint32_t p = 0; p < points; p++) layers_[out_.layer[p]].push_back(p);
    position_.assign(points, 0);
    for (const auto& layer : layers_) number(layer);
    const int rounds = points <= kSmall ? 12 : 3;
    std::vector<std::vector<uint32_t>> best = layers_;
    uint64_t fewest = crossings();
    for (int round = 0; round < rounds && fewest; round++) {
      for (size_t l = 1; l < layers_.size(); l++) order(layers_[l], above_);
      for (size_t l = layers_.size() - 1; l-- > 0;) order(layers_[l], below_);
      const uint64_t now = crossings();
      if (now >= fewest) continue;
      fewest = now;
      best = layers_;
    }
    layers_ = std::move(best);
    for (const auto& layer : layers_) number(layer);
  }
  void number(const std::vector<uint32_t>& layer) {
    for (size_t i = 0; i < layer.size(); i++) position_[layer[i]] = static_cast<uint32_t>(i);
  }
  void order(std::vector<uint32_t>& layer, const Adjacency& neighbours) {
    keys_.clear();
    for (uint32_t p : layer) {
      const auto near = neighbours.of(p);
      double sum = 0;
      for (uint32_t n : near) sum += position_[n];
      keys_.emplace_back(near.empty() ? position_[p] : sum / static_cast<double>(near.size()), p);
    }
    std::stable_sort(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < layer.size(); i++) layer[i] = keys_[i].second;
    number(layer);
  }

  /// Counts crossings between adjacent layers as inversions, with a Fenwick tree over the lower one.
  uint64_t crossings() const {
    uint64_t count = 0;
    std::vector<uint32_t> tree, ends;
    for (size_t l = 0; l + 1 < layers_.size(); l++) {
      tree.assign(layers_[l + 1].size() + 1, 0);
      uint32_t seen = 0;
      for (uint32_t p : layers_[l]) {
        ends.clear();
        for (uint32_t n : below_.of(p)) ends.push_back(position_[n]);
        for (uint32_t e : ends) {
          count += seen;
          for (uint32_t i = e + 1; i > 0; i -= i & (~i + 1)) count -= tree[i];
        }
        for (uint32_t e : ends) {
          seen++;
          for (uint32_t i = e + 1; i < tree.size(); i += i & (~i + 1)) tree[i]++;
        }
      }
    }
    return count;
  }

  float width(uint32_t p) const { return p < nodes_ ? boxes_[p].width : 0; }
  float gap(uint32_t left, uint32_t right) const {
    const float between = left < nodes_ && right < nodes_ ? kNodeGap : kBendGap;
    return (width(left) + width(right)) / 2 + between;
  }

  /// Moves the points of each layer towards their neighbours without changing their order.
  void place_in_layers() {
    out_.x.assign(out_.layer.size(), 0);
    for (const auto& layer : layers_)
      for (size_t i = 1; i < layer.size(); i++) out_.x[layer[i]] = out_.x[layer[i - 1]] + gap(layer[i - 1], layer[i]);
    const int rounds = out_.layer.size() <= kSmall ? 16 : 3;
    for (int round = 0; round < rounds; round++) {
      for (size_t l = 1; l < layers_.size(); l++) place(layers_[l], true, false);
      for (size_t l = layers_.size() - 1; l-- > 0;) place(layers_[l], false, true);
    }
    for (size_t l = 0; l < layers_.size(); l++) place(layers_[l], true, true);
    float left = out_.x[0], right = out_.x[0];
    for (uint32_t p = 0; p < out_.x.size(); p++) {
      left = std::min(left, out_.x[p] - width(p) / 2);
      right = std::max(right, out_.x[p] + width(p) / 2);
    }
    for (float& x : out_.x) x -= left;
    out_.width = right - left;
  }

  /// Minimises the weighted squares of the distances to the mean of neighbours under the least gaps: isotonic
  /// regression, by pooling adjacent violators.
  void place(const std::vector<uint32_t>& layer, bool up, bool down) {
    struct Pool {
      double sum, weight;
      size_t end;
      double mean() const { return sum / weight; }
    };
    std::vector<Pool> pools;
    std::vector<double> offset(layer.size(), 0);
    for (size_t i = 0; i < layer.size(); i++) {
      const uint32_t p = layer[i];
      if (i) offset[i] = offset[i - 1] + static_cast<double>(gap(layer[i - 1], p));
      const auto above = up ? above_.of(p) : std::span<const uint32_t>();
      const auto below = down ? below_.of(p) : std::span<const uint32_t>();
      double sum = 0;
      for (uint32_t n : above) sum += static_cast<double>(out_.x[n]);
      for (uint32_t n : below) sum += static_cast<double>(out_.x[n]);
      const size_t near = above.size() + below.size();
      const double wish = near ? sum / static_cast<double>(near) : static_cast<double>(out_.x[p]);
      const double weight = p >= nodes_ ? 4 : near ? 1 : 0.01;  // chains of bends are to be straight
      pools.push_back({(wish - offset[i]) * weight, weight, i + 1});
      while (pools.size() > 1 && pools[pools.size() - 2].mean() >= pools.back().mean()) {
        const Pool last = pools.back();
        pools.pop_back();
        pools.back() = {pools.back().sum + last.sum, pools.back().weight + last.weight, last.end};
      }
    }
    size_t i = 0;
    for (const Pool& pool : pools)
      for (; i < pool.end; i++) out_.x[layer[i]] = static_cast<float>(pool.mean() + offset[i]);
  }

  /// Stacks the layers; where many links run between two, there is more room for them.
  void place_layers() {
    out_.y.assign(out_.layer.size(), 0);
    float y = 0;
    for (size_t l = 0; l < layers_.size(); l++) {
      float height = 0, reach = 0;
      for (uint32_t p : layers_[l]) {
        if (p < nodes_) height = std::max(height, boxes_[p].height);
        for (uint32_t n : below_.of(p)) reach = std::max(reach, std::abs(out_.x[n] - out_.x[p]));
      }
      for (uint32_t p : layers_[l]) out_.y[p] = y + height / 2;
      y += height;
      out_.height = y;
      y += kLayerGap + std::min(kMostExtraGap, reach / 12);
    }
  }

  std::span<const LayoutBox> boxes_;
  const std::vector<std::vector<uint32_t>>& sources_;
  const size_t nodes_;
  Adjacency above_, below_;
  std::vector<std::vector<uint32_t>> layers_;
  std::vector<uint32_t> position_;  // within its layer
  std::vector<std::pair<double, uint32_t>> keys_;
  GraphLayout out_;
};
}  // namespace

GraphLayout layout_graph(std::span<const LayoutBox> boxes, const std::vector<std::vector<uint32_t>>& sources) {
  return Layouter(boxes, sources).run();
}

}  // namespace tg::viz
