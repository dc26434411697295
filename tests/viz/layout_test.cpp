// Places of nodes: the properties every layout has, and the size that it must manage.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tinygrad/viz/graph_layout.h"

namespace tg {
namespace {
using viz::GraphLayout;
using viz::LayoutBox;
using viz::LayoutLink;
using Sources = std::vector<std::vector<uint32_t>>;

std::vector<LayoutBox> boxes(size_t n) { return std::vector<LayoutBox>(n, {.width = 80, .height = 28}); }

/// Checks what holds for any graph: sources are above their users, boxes do not overlap, links lead from each source to
/// its user.
void check(const GraphLayout& l, const std::vector<LayoutBox>& box, const Sources& sources) {
  ASSERT_GE(l.x.size(), box.size());
  ASSERT_EQ(l.x.size(), l.y.size());
  ASSERT_EQ(l.x.size(), l.layer.size());
  std::map<uint32_t, std::vector<uint32_t>> layers;
  for (uint32_t i = 0; i < box.size(); i++) {
    layers[l.layer[i]].push_back(i);
    EXPECT_GE(l.x[i] - box[i].width / 2, -0.5f);
    EXPECT_LE(l.x[i] + box[i].width / 2, l.width + 0.5f);
    EXPECT_LE(l.y[i] + box[i].height / 2, l.height + 0.5f);
    for (uint32_t s : sources[i]) {
      EXPECT_LT(l.layer[s], l.layer[i]);
      EXPECT_LT(l.y[s] + box[s].height / 2, l.y[i] - box[i].height / 2);
    }
  }
  for (auto& [layer, nodes] : layers) {
    std::sort(nodes.begin(), nodes.end(), [&](uint32_t a, uint32_t b) { return l.x[a] < l.x[b]; });
    for (size_t i = 1; i < nodes.size(); i++) {
      const uint32_t a = nodes[i - 1], b = nodes[i];
      EXPECT_GE(l.x[b] - l.x[a] + 0.5f, (box[a].width + box[b].width) / 2) << "boxes overlap";
    }
  }
  std::set<std::pair<uint32_t, uint32_t>> wanted, found;
  std::map<uint32_t, uint32_t> from;  // of a bend
  for (const LayoutLink& k : l.links)
    if (k.to >= box.size()) from[k.to] = k.from;
  for (const LayoutLink& k : l.links) {
    EXPECT_LT(l.layer[k.from], l.layer[k.to]);
    if (k.to >= box.size()) continue;
    uint32_t p = k.from;
    while (p >= box.size()) p = from.at(p);
    EXPECT_EQ(p, k.owner);
    found.emplace(p, k.to);
  }
  for (uint32_t i = 0; i < box.size(); i++)
    for (uint32_t s : sources[i]) wanted.emplace(s, i);
  EXPECT_EQ(found, wanted);
}

Sources random_graph(uint32_t n, uint32_t reach, uint32_t seed) {
  std::mt19937 random(seed);
  Sources out(n);
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t k = random() % 4; k-- > 0;) out[i].push_back(i - 1 - random() % std::min(i, reach));
  return out;
}

TEST(GraphLayout, EmptyAndSingle) {
  EXPECT_TRUE(viz::layout_graph({}, {}).x.empty());
  const GraphLayout one = viz::layout_graph(boxes(1), {{}});
  EXPECT_FLOAT_EQ(one.x[0], 40);
  EXPECT_FLOAT_EQ(one.y[0], 14);
  EXPECT_FLOAT_EQ(one.width, 80);
  EXPECT_FLOAT_EQ(one.height, 28);
}

TEST(GraphLayout, ChainIsStraight) {
  Sources sources(20);
  for (uint32_t i = 1; i < 20; i++) sources[i] = {i - 1};
  const GraphLayout l = viz::layout_graph(boxes(20), sources);
  check(l, boxes(20), sources);
  for (uint32_t i = 1; i < 20; i++) EXPECT_FLOAT_EQ(l.x[i], l.x[0]);
}

// A tree that is given with its leaves in an order that crosses has an order without crossings.
TEST(GraphLayout, TreesDoNotCross) {
  const Sources sources{{}, {}, {}, {}, {0, 2}, {1, 3}, {4, 5}};
  const GraphLayout l = viz::layout_graph(boxes(7), sources);
  check(l, boxes(7), sources);
  const bool left = l.x[4] < l.x[5];
  for (uint32_t a : {0u, 2u})
    for (uint32_t b : {1u, 3u}) EXPECT_EQ(l.x[a] < l.x[b], left);
}

TEST(GraphLayout, UsersOfAValueShareItsBends) {
  Sources sources(10);
  for (uint32_t i = 1; i < 10; i++) sources[i] = i > 1 ? std::vector<uint32_t>{i - 1, 0} : std::vector<uint32_t>{0};
  const GraphLayout l = viz::layout_graph(boxes(10), sources);
  check(l, boxes(10), sources);
  EXPECT_EQ(l.x.size(), 10u + 8u) << "a bend for each layer between the first and the last node";
}

TEST(GraphLayout, RandomGraphsKeepTheRules) {
  for (uint32_t seed = 0; seed < 40; seed++) {
    const uint32_t n = 2 + seed * 17;
    const Sources sources = random_graph(n, 1 + seed % 30, seed);
    std::vector<LayoutBox> box(n);
    std::mt19937 random(seed);
    for (LayoutBox& b : box) b = {.width = static_cast<float>(20 + random() % 200), .height = 28};
    check(viz::layout_graph(box, sources), box, sources);
  }
}

TEST(GraphLayout, EqualGraphsHaveEqualPlaces) {
  const Sources sources = random_graph(500, 20, 3);
  const GraphLayout a = viz::layout_graph(boxes(500), sources), b = viz::layout_graph(boxes(500), sources);
  EXPECT_EQ(a.x, b.x);
  EXPECT_EQ(a.y, b.y);
}

// Long edges everywhere: bends stay a multiple of the nodes, what has none is straight.
TEST(GraphLayout, LargeGraphsHaveBoundedSize) {
  const uint32_t n = 100000;
  const Sources sources = random_graph(n, 5000, 1);
  const GraphLayout l = viz::layout_graph(boxes(n), sources);
  check(l, boxes(n), sources);
  EXPECT_LE(l.x.size(), 3 * n + 5000);
}

TEST(GraphLayout, DeepChainsWithASharedSource) {
  const uint32_t n = 100000;
  Sources sources(n);
  for (uint32_t i = 1; i < n; i++) sources[i] = {i - 1, 0};
  const GraphLayout l = viz::layout_graph(boxes(n), sources);
  EXPECT_EQ(l.layer[n - 1], n - 1);
  EXPECT_LE(l.x.size(), 3 * size_t{n});
}

}  // namespace
}  // namespace tg
