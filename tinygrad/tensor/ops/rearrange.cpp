/// \file rearrange: axes by name, in the notation of einops.
#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "tinygrad/base/contains.h"
#include "tinygrad/tensor/impl.h"

namespace tg {
using namespace tensor_detail;

namespace {
using Names = std::vector<std::string>;
using Groups = std::vector<Names>;  // of one side
using Sizes = std::vector<std::pair<std::string, int64_t>>;

bool has_name(const Names& names, std::string_view name) { return contains(names, name); }

constexpr const char* kDots = "*";  // an ellipsis outside of parentheses: one group per axis

/// Parses one side of a formula: groups of names; "1" is an empty group.
Groups parse(const std::string& side, const std::string& formula) {
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
  Groups groups;
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

bool is_dots(const Names& g) { return g.size() == 1 && g[0] == kDots; }

/// Checks the given sizes and the left side against the shape; returns how many axes its ellipsis stands for.
size_t check_left(const Groups& left, const Shape& sh, const Sizes& sizes, const std::string& formula) {
  for (auto& [name, n] : sizes) {
    bool known = false;
    for (auto& g : left) known |= has_name(g, name);
    TG_CHECK(ValueError, known, "[rearrange] got a size for '", name, "', expected names of '", formula, "'");
  }
  for (auto& g : left)
    TG_CHECK(ValueError, !has_name(g, "..."), "[rearrange] got an ellipsis in parentheses on the left of '", formula,
             "', expected it there on the right only");
  const size_t dots = static_cast<size_t>(std::count_if(left.begin(), left.end(), is_dots));
  TG_CHECK(ValueError, dots <= 1 && left.size() - dots <= sh.size() && (dots || left.size() == sh.size()),
           "[rearrange] got shape ", sh, " for '", formula, "', expected ", left.size() - dots,
           dots ? " or more axes" : " axes");
  return dots ? sh.size() - (left.size() - dots) : 0;
}

/// Replaces the ellipses of a side by a name for each axis they stand for.
Groups expand_dots(const Groups& side, const Names& dot_names) {
  Groups out;
  for (auto& g : side) {
    if (is_dots(g)) {
      for (auto& n : dot_names) out.push_back({n});
      continue;
    }
    Names names;
    for (auto& n : g) {
      if (n == "...") names.insert(names.end(), dot_names.begin(), dot_names.end());
      else names.push_back(n);
    }
    out.push_back(names);
  }
  return out;
}

/// Adds the names of group `i`, an axis of size n, and the size that is not given.
void split_axis(const Groups& left, size_t i, const Shape& sh, const std::string& formula, Names& names,
                std::map<std::string, int64_t>& size) {
  const int64_t n = sh[i].value();
  int64_t known = 1;
  std::string unknown;
  for (const std::string& name : left[i]) {
    TG_CHECK(ValueError, !has_name(names, name), "[rearrange] got '", name, "' twice on one side of '", formula, "'");
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
}
}  // namespace

Tensor Tensor::rearrange(const std::string& formula, const std::vector<std::pair<std::string, int64_t>>& sizes) const {
  OpScope s;
  const size_t arrow = formula.find("->");
  TG_CHECK(ValueError, arrow != std::string::npos && formula.find("->", arrow + 2) == std::string::npos,
           "[rearrange] got '", formula, "', expected one ->");
  Groups left = parse(formula.substr(0, arrow), formula), right = parse(formula.substr(arrow + 2), formula);
  const Shape sh = shape();
  Names dot_names;
  for (size_t i = 0, n = check_left(left, sh, sizes, formula); i < n; i++) dot_names.push_back(str("...", i));
  left = expand_dots(left, dot_names);
  right = expand_dots(right, dot_names);
  std::map<std::string, int64_t> size(sizes.begin(), sizes.end());
  Names names;
  for (size_t i = 0; i < left.size(); i++) split_axis(left, i, sh, formula, names, size);
  Shape split, merged;
  for (const std::string& name : names) split.push_back(size[name]);
  std::vector<int> order;
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
