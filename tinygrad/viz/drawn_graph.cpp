/// \file Labels, constants within labels, and the columns of the answer.
#include "tinygrad/viz/drawn_graph.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tinygrad/base/error.h"
#include "tinygrad/viz/compared_graph.h"
#include "tinygrad/viz/graph_layout.h"

namespace tg::viz {
namespace {
using Json = nlohmann::ordered_json;
// Of the page's fonts: bold capitals for the operation, smaller letters for the rest.
constexpr float kOpLetter = 7.3f, kLetter = 6.4f, kPadding = 20, kBetween = 8, kLine = 28, kTwoLines = 44;
constexpr size_t kLongestLine = 34, kLongestLiteral = 40, kLongestArgument = 4096;

/// Numbers texts; each is sent once.
class Texts {
 public:
  size_t operator()(std::string_view text) {
    const auto [it, fresh] = numbers_.try_emplace(std::string(text), list_.size());
    if (fresh) list_.push_back(it->first);
    return it->second;
  }
  Json take() { return std::move(list_); }

 private:
  std::unordered_map<std::string, size_t> numbers_;
  Json list_ = Json::array();
};

std::string cut(std::string_view text, size_t longest) {
  if (text.size() <= longest) return std::string(text);
  while (longest && (static_cast<unsigned char>(text[longest]) & 0xc0) == 0x80) longest--;  // not amid a letter
  return std::string(text.substr(0, longest)) + "…";
}

class Drawing {
 public:
  Drawing(const Recording& r, const NodeTable& table, ComparedGraph graph)
      : r_(r),
        table_(table),
        nodes_(std::move(graph.graph.nodes)),
        roots_(std::move(graph.graph.roots)),
        states_(std::move(graph.states)),
        changed_(graph.graph.changed) {}

  Json run(bool keep_constants) {
    literals_.resize(nodes_.size());
    if (!keep_constants) find_literals();
    choose_shown();
    label();
    return columns();
  }

 private:
  /// Constants, and tuples of them, are written in the labels of their users.
  void find_literals() {
    for (size_t i = 0; i < nodes_.size(); i++) {
      const SteppedNode& n = nodes_[i];
      const std::string_view op = r_.name(n.node->op);
      std::string text;
      if (op == "CONST" && n.sources.empty()) text = table_.argument(*n.node);
      if (op == "STACK") text = tuple_of(n);
      if (text.size() <= kLongestLiteral) literals_[i] = std::move(text);
    }
    for (uint32_t root : roots_) literals_[root].clear();
  }
  std::string tuple_of(const SteppedNode& n) const {
    std::string out;
    for (uint32_t s : n.sources) {
      if (literals_[s].empty() || out.size() > kLongestLiteral) return {};
      out += str(out.empty() ? "(" : ", ", literals_[s]);
    }
    return out.empty() ? out : out + ")";
  }

  void choose_shown() {
    std::vector<uint32_t> index(nodes_.size(), UINT32_MAX);
    for (uint32_t i = 0; i < nodes_.size(); i++) {
      if (!literals_[i].empty()) continue;
      index[i] = static_cast<uint32_t>(shown_.size());
      shown_.push_back(i);
      auto& sources = sources_.emplace_back();
      for (uint32_t s : nodes_[i].sources)
        if (index[s] != UINT32_MAX) sources.push_back(index[s]);
    }
    if (changed_ != UINT32_MAX) changed_ = index[changed_];
    for (uint32_t& root : roots_) root = index[root];
  }

  /// The second line: the argument, and which sources are constants.
  std::string second_line(const SteppedNode& n) const {
    std::string out(table_.argument(*n.node));
    std::string constants;
    bool any = false;
    for (uint32_t s : n.sources) {
      any |= !literals_[s].empty();
      constants += str(constants.empty() ? "" : ", ", literals_[s].empty() ? "_" : literals_[s]);
      if (constants.size() > kLongestLine) break;
    }
    if (any && n.sources.size() == 1 && constants.starts_with('(')) out += str(out.empty() ? "" : " ", constants);
    else if (any) out += str(out.empty() ? "(" : " (", constants, ")");
    std::replace(out.begin(), out.end(), '\n', ' ');
    return cut(out, kLongestLine);
  }

  void label() {
    for (uint32_t i : shown_) {
      const Node& n = *nodes_[i].node;
      lines_.push_back(second_line(nodes_[i]));
      const float first = static_cast<float>(r_.name(n.op).size()) * kOpLetter + kBetween +
                          static_cast<float>(r_.name(n.type).size()) * kLetter;
      const float second = static_cast<float>(lines_.back().size()) * kLetter;
      boxes_.push_back({std::ceil(std::max(first, second) + kPadding), lines_.back().empty() ? kLine : kTwoLines});
    }
  }

  Json columns() {
    const GraphLayout layout = layout_graph(boxes_, sources_);
    Texts text;
    Json op = Json::array(), type = Json::array(), line = Json::array(), argument = Json::array(),
         origin = Json::array(), number = Json::array(), width = Json::array(), height = Json::array(),
         state = Json::array(), sources = Json::array(), x = Json::array(), y = Json::array(), links = Json::array();
    for (size_t k = 0; k < shown_.size(); k++) {
      const SteppedNode& n = nodes_[shown_[k]];
      op.push_back(text(r_.name(n.node->op)));
      type.push_back(text(r_.name(n.node->type)));
      line.push_back(text(lines_[k]));
      argument.push_back(text(cut(table_.argument(*n.node), kLongestArgument)));
      origin.push_back(text(r_.name(n.node->origin)));
      number.push_back(n.number);
      width.push_back(std::lround(boxes_[k].width));
      height.push_back(std::lround(boxes_[k].height));
      if (!states_.empty()) state.push_back(static_cast<int>(states_[shown_[k]]));
      sources.push_back(sources_[k]);
    }
    for (size_t p = 0; p < layout.x.size(); p++) {
      x.push_back(std::lround(layout.x[p]));
      y.push_back(std::lround(layout.y[p]));
    }
    for (const LayoutLink& l : layout.links)
      for (uint32_t p : {l.from, l.to, l.owner}) links.push_back(p);
    return {{"nodes", shown_.size()},
            {"all_nodes", nodes_.size()},
            {"width", std::lround(layout.width)},
            {"height", std::lround(layout.height)},
            {"changed", changed_ == UINT32_MAX ? Json() : Json(changed_)},
            {"op", std::move(op)},
            {"type", std::move(type)},
            {"line", std::move(line)},
            {"argument", std::move(argument)},
            {"origin", std::move(origin)},
            {"number", std::move(number)},
            {"w", std::move(width)},
            {"h", std::move(height)},
            {"state", std::move(state)},
            {"sources", std::move(sources)},
            {"x", std::move(x)},
            {"y", std::move(y)},
            {"layer", layout.layer},
            {"links", std::move(links)},
            {"texts", text.take()}};
  }

  const Recording& r_;
  const NodeTable& table_;
  std::vector<SteppedNode> nodes_;
  std::vector<uint32_t> roots_;
  std::vector<NodeState> states_;
  uint32_t changed_;
  std::vector<std::string> literals_;  // by node; empty: it is drawn
  std::vector<uint32_t> shown_;
  std::vector<std::vector<uint32_t>> sources_;  // by shown node
  std::vector<std::string> lines_;
  std::vector<LayoutBox> boxes_;
};
}  // namespace

std::string drawn_graph(const Recording& r, const Span& s, const DrawnGraphOptions& o) {
  static const NodeTable kEmpty;
  ComparedGraph g;
  const NodeTable* table = o.snapshot < s.graphs.size() ? r.graph(s.graphs[o.snapshot].graph) : nullptr;
  if (table) {
    const Snapshot& snapshot = s.graphs[o.snapshot];
    g.graph = step_graph(r, snapshot, s.rewrites, o.rewrites);
    if (o.since != SIZE_MAX) g = compare_graphs(*table, step_graph(r, snapshot, s.rewrites, o.since), g.graph);
  }
  const Json out = Drawing(r, table ? *table : kEmpty, std::move(g)).run(o.keep_constants);
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tg::viz
