/// \file rearrange: axes by name, in the notation of einops.
#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "tinygrad/tensor/impl.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr const char* kDots = "*";  // an ellipsis outside of parentheses: one group per axis

/// Parses one side of a formula: groups of names; "1" is an empty group.
std::vector<std::vector<std::string>> parse(const std::string& side, const std::string& formula) {
  std::string spaced;
  for (size_t i = 0; i < side.size(); i++) {
    if (side[i] == '(' || side[i] == ')') spaced += std::string(" ") + side[i] + ' ';
    else if (side.compare(i, 3, "...") == 0) {
      spaced += "...";
      i += 2;
    } else if (side.compare(i, 3, "\u2026") == 0) {
      spaced += "...";
      i += 2;
    }  // one character that looks like an ellipsis
    else
      spaced += side[i];
  }
  std::vector<std::vector<std::string>> groups;
  std::istringstream in(spaced);
  bool open = false;
  for (std::string word; in >> word;) {
    TG_CHECK(ValueError, !(word == "(" && open) && !(word == ")" && !open), "[rearrange] got '", formula,
             "', expected parentheses that match and are not nested");
    if (word == "(") {
      groups.emplace_back();
      open = true;
      continue;
    }
    if (word == ")") {
      open = false;
      continue;
    }
    const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || (c & 0x80); };
    TG_CHECK(ValueError,
             word == "1" || word == "..." ||
                 (std::all_of(word.begin(), word.end(), letter) && !std::isdigit(static_cast<unsigned char>(word[0])) &&
                  word[0] != '_' && word.back() != '_'),
             "[rearrange] got the name '", word, "' in '", formula,
             "', expected letters, digits and inner underscores, a letter first");
    if (!open) groups.emplace_back();
    if (word != "1") groups.back().push_back(word == "..." && !open ? kDots : word);
  }
  TG_CHECK(ValueError, !open, "[rearrange] got '", formula, "', expected every parenthesis closed");
  return groups;
}
}  // namespace

Tensor Tensor::rearrange(const std::string& formula, const std::vector<std::pair<std::string, int64_t>>& sizes) const {
  OpScope s;
  size_t arrow = formula.find("->");
  TG_CHECK(ValueError, arrow != std::string::npos && formula.find("->", arrow + 2) == std::string::npos,
           "[rearrange] got '", formula, "', expected one ->");
  auto left = parse(formula.substr(0, arrow), formula), right = parse(formula.substr(arrow + 2), formula);
  const Shape sh = shape();
  for (auto& [name, n] : sizes) {
    bool known = false;
    for (auto& g : left) known |= std::find(g.begin(), g.end(), name) != g.end();
    TG_CHECK(ValueError, known, "[rearrange] got a size for '", name, "', expected names of '", formula, "'");
  }
  for (auto& g : left)
    TG_CHECK(ValueError, std::find(g.begin(), g.end(), "...") == g.end(),
             "[rearrange] got an ellipsis in parentheses on the left of '", formula,
             "', expected it there on the right only");
  // The ellipsis stands for the remaining axes.
  auto is_dots = [](const std::vector<std::string>& g) { return g.size() == 1 && g[0] == kDots; };
  size_t dots = static_cast<size_t>(std::count_if(left.begin(), left.end(), is_dots));
  TG_CHECK(ValueError, dots <= 1 && left.size() - dots <= sh.size() && (dots || left.size() == sh.size()),
           "[rearrange] got shape ", sh, " for '", formula, "', expected ", left.size() - dots,
           dots ? " or more axes" : " axes");
  size_t extra = sh.size() - (left.size() - dots);
  std::vector<std::string> dot_names;
  for (size_t i = 0; i < extra && dots; i++) dot_names.push_back(str("...", i));
  auto expand_dots = [&](std::vector<std::vector<std::string>>& side) {
    std::vector<std::vector<std::string>> out;
    for (auto& g : side) {
      if (is_dots(g)) {
        for (auto& n : dot_names) out.push_back({n});
        continue;
      }
      std::vector<std::string> names;
      for (auto& n : g) {
        if (n == "...") names.insert(names.end(), dot_names.begin(), dot_names.end());
        else names.push_back(n);
      }
      out.push_back(names);
    }
    side = out;
  };
  expand_dots(left);
  expand_dots(right);
  std::map<std::string, int64_t> size(sizes.begin(), sizes.end());
  std::vector<std::string> names, wanted;
  Shape split;
  for (size_t i = 0; i < left.size(); i++) {
    int64_t n = sh[i].value(), known = 1;
    std::string unknown;
    for (const std::string& name : left[i]) {
      TG_CHECK(ValueError, std::find(names.begin(), names.end(), name) == names.end(), "[rearrange] got '", name,
               "' twice on one side of '", formula, "'");
      names.push_back(name);
      if (auto it = size.find(name); it != size.end()) known *= it->second;
      else {
        TG_CHECK(ValueError, unknown.empty(), "[rearrange] got '", formula,
                 "', expected at most one unknown size in a group: give ", unknown, " or ", name);
        unknown = name;
      }
    }
    TG_CHECK(ShapeError, known > 0 && (unknown.empty() ? known == n : n % known == 0), "[rearrange] got axis ", i,
             " of shape ", sh, " for '", formula, "', expected ", unknown.empty() ? "" : "a multiple of ", known);
    if (!unknown.empty()) size[unknown] = n / known;
    for (const std::string& name : left[i]) split.push_back(size[name]);
  }
  std::vector<int> order;
  Shape merged;
  for (auto& g : right) {
    int64_t n = 1;
    for (const std::string& name : g) {
      auto it = std::find(names.begin(), names.end(), name);
      TG_CHECK(ValueError, it != names.end(), "[rearrange] got '", name, "' only on the right of '", formula, "'");
      order.push_back(static_cast<int>(it - names.begin()));
      n *= size[name];
    }
    merged.push_back(n);
  }
  TG_CHECK(ValueError, order.size() == names.size(), "[rearrange] got '", formula,
           "', expected the same names on both sides");
  return s(reshape(split).permute(order).reshape(merged));
}

}  // namespace tg
