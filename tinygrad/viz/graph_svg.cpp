/// \file Labels and shapes of a picture.
#include "tinygrad/viz/graph_svg.h"

#include <algorithm>
#include <deque>
#include <sstream>
#include <unordered_map>

#include "tinygrad/base/error.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/viz/graph_layout.h"

namespace tg::viz {
namespace {

constexpr float kLine = 15, kLetter = 7.2F, kMargin = 8;  // pixels of a line, of a letter, around a label
constexpr size_t kLongest = 36;                           // letters of a line

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 32) out += c;
  }
  return out;
}

std::string shortened(std::string text) {
  if (text.size() > kLongest) text = text.substr(0, kLongest - 3) + "...";
  return text;
}

std::string box_of(const SvgNode& node, float x, float y, const LayoutBox& box) {
  const float left = x - box.width / 2, top = y - box.height / 2;
  std::string out =
      str("<rect x=\"", left, "\" y=\"", top, "\" width=\"", box.width, "\" height=\"", box.height, "\" rx=\"4\"/>");
  for (size_t i = 0; i < node.lines.size(); i++)
    out += str("<text x=\"", x, "\" y=\"", top + kMargin + kLine * (static_cast<float>(i) + 0.7F), "\"",
               i == 0 ? " font-weight=\"bold\"" : "", ">", escaped(node.lines[i]), "</text>");
  return out;
}

/// The nodes closest to a root.
std::vector<UOp> nearest(UOp root, size_t most) {
  std::vector<UOp> out;
  std::unordered_map<uint32_t, bool> seen{{root.id(), true}};
  std::deque<UOp> next{root};
  while (!next.empty() && out.size() < most) {
    const UOp u = next.front();
    next.pop_front();
    out.push_back(u);
    for (UOp s : u.srcs())
      if (!s.is_const() && seen.try_emplace(s.id(), true).second) next.push_back(s);
  }
  return out;
}

/// What a node shows: operation and argument, then shape and type.
std::vector<std::string> label_of(UOp u) {
  std::string arguments;
  for (UOp s : u.srcs())
    if (s.is_const()) arguments += str(arguments.empty() ? "" : ", ", render_expr(s));
  std::ostringstream argument;
  if (u.arg_kind() != ArgKind::kNone) Arg::print(argument << ' ', u.arg_kind(), u.arg().bits());
  std::vector<std::string> lines{
      shortened(str(u.op(), argument.str(), arguments.empty() ? "" : " (" + arguments + ")"))};
  if (u.dtype().is_void()) return lines;
  std::string type = str(u.dtype());
  try {
    type = str(shape_of(u), " ", type);
  } catch (const Error&) {}  // of parts of a kernel that have none
  lines.push_back(shortened(std::move(type)));
  return lines;
}

}  // namespace

std::string svg_of(const std::vector<SvgNode>& nodes) {
  std::vector<LayoutBox> boxes;
  std::vector<std::vector<uint32_t>> sources;
  for (const SvgNode& n : nodes) {
    size_t letters = 1;
    for (const std::string& l : n.lines) letters = std::max(letters, l.size());
    boxes.push_back({static_cast<float>(letters) * kLetter + 2 * kMargin,
                     static_cast<float>(n.lines.size()) * kLine + 2 * kMargin - 4});
    sources.push_back(n.sources);
  }
  const GraphLayout at = layout_graph(boxes, sources);
  float left = 0, top = 0, right = 1, bottom = 1;
  for (size_t i = 0; i < at.x.size(); i++) {
    const float w = i < boxes.size() ? boxes[i].width / 2 : 0, h = i < boxes.size() ? boxes[i].height / 2 : 0;
    left = std::min(left, at.x[i] - w);
    top = std::min(top, at.y[i] - h);
    right = std::max(right, at.x[i] + w);
    bottom = std::max(bottom, at.y[i] + h);
  }
  std::string out = str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"", left - 4, " ", top - 4, " ",
                        right - left + 8, " ", bottom - top + 8, "\" width=\"", right - left + 8,
                        "\" style=\"max-width:100%;height:auto\" font-family=\"monospace\" font-size=\"12\" "
                        "text-anchor=\"middle\" fill=\"currentColor\"><g stroke=\"currentColor\" "
                        "stroke-opacity=\"0.5\" fill=\"none\">");
  for (const LayoutLink& l : at.links)
    out += str("<path d=\"M", at.x[l.from], " ", at.y[l.from], "L", at.x[l.to], " ", at.y[l.to], "\"/>");
  // Boxes hide the edges behind them, in the colour of the page: that of a notebook, of an editor, of a browser.
  out +=
      "</g><g stroke=\"currentColor\" stroke-width=\"0.5\" style=\"fill:var(--jp-layout-color1,"
      "var(--vscode-editor-background,Canvas))\">";
  std::string texts;
  for (size_t i = 0; i < nodes.size(); i++) {
    const std::string box = box_of(nodes[i], at.x[i], at.y[i], boxes[i]);
    const size_t text = std::min(box.find("<text"), box.size());
    out += box.substr(0, text);
    texts += box.substr(text);
  }
  return out + "</g>" + texts + "</svg>";
}

std::string svg_of(UOp root, size_t most) {
  const std::vector<UOp> shown = nearest(root, std::max<size_t>(most, 1));
  std::unordered_map<uint32_t, uint32_t> place;  // by id: sources first, as layouts want them
  std::unordered_map<uint32_t, bool> wanted;
  for (UOp u : shown) wanted[u.id()] = true;
  std::vector<SvgNode> nodes;
  size_t hidden = 0;
  for (UOp u : root.toposort()) {
    if (u.is_const() && u != root) continue;
    if (!wanted.contains(u.id())) {
      hidden++;
      continue;
    }
    SvgNode n{label_of(u), {}};
    for (UOp s : u.srcs())
      if (const auto at = place.find(s.id()); at != place.end()) n.sources.push_back(at->second);
    place[u.id()] = static_cast<uint32_t>(nodes.size());
    nodes.push_back(std::move(n));
  }
  if (hidden) nodes.back().lines.push_back(str("... ", hidden, " nodes above are not shown"));
  return svg_of(nodes);
}

}  // namespace tg::viz
