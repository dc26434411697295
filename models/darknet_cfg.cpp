/// \file Reader of Darknet's configuration files.
#include <algorithm>
#include <charconv>
#include <string>

#include "models/darknet.h"
#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const size_t first = text.find_first_not_of(blank);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

/// Returns the parts of a text between separators, trimmed.
std::vector<std::string_view> parts(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    out.push_back(trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  return out;
}

/// A line of a file, to begin messages with.
struct Line {
  std::string_view file;
  int64_t number = 0;
  std::string text() const { return str("[parse_darknet] ", file, ":", number, ": "); }
};

int64_t number(std::string_view text, int64_t least, int64_t greatest, const Line& line) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  TG_CHECK(FormatError, error == std::errc() && end == text.data() + text.size() && out >= least && out <= greatest,
           line.text(), "got \"", text, "\", expected a number from ", least, " to ", greatest);
  return out;
}

/// A part of the file: its name in brackets, and the settings below it.
struct Section {
  struct Setting {
    std::string_view key, value;
    Line line;
  };
  std::string_view name;
  Line line;
  std::vector<Setting> settings;

  const Setting* find(std::string_view key) const {
    for (const Setting& s : settings)
      if (s.key == key) return &s;
    return nullptr;
  }
  int64_t get(std::string_view key, int64_t otherwise, int64_t least, int64_t greatest) const {
    const Setting* s = find(key);
    return s == nullptr ? otherwise : number(s->value, least, greatest, s->line);
  }
  std::vector<int64_t> list(std::string_view key, int64_t least, int64_t greatest) const {
    const Setting* s = find(key);
    TG_CHECK(FormatError, s != nullptr, line.text(), "[", name, "] has no ", key);
    std::vector<int64_t> out;
    for (const std::string_view part : parts(s->value, ',')) out.push_back(number(part, least, greatest, s->line));
    return out;
  }
};

std::vector<Section> sections(std::string_view text, std::string_view file) {
  std::vector<Section> out;
  Line at{file};
  for (const std::string_view line : parts(text, '\n')) {
    at.number++;
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      out.push_back({trimmed(line.substr(1, line.size() - 2)), at, {}});
      continue;
    }
    const size_t equal = line.find('=');
    TG_CHECK(FormatError, equal != std::string_view::npos && !out.empty(), at.text(), "got \"", line,
             "\", expected [name] or key=value");
    out.back().settings.push_back({trimmed(line.substr(0, equal)), trimmed(line.substr(equal + 1)), at});
  }
  return out;
}

constexpr int64_t kMost = 1 << 16;  // channels, sizes and places of layers

DarknetLayer convolutional(const Section& s) {
  DarknetLayer out{.filters = s.get("filters", 1, 1, kMost),
                   .size = s.get("size", 1, 1, kMost),
                   .stride = s.get("stride", 1, 1, kMost),
                   .pad = s.get("pad", 0, 0, 1) == 1,
                   .batch_normalize = s.get("batch_normalize", 0, 0, 1) == 1};
  const Section::Setting* activation = s.find("activation");
  out.leaky = activation != nullptr && activation->value == "leaky";
  TG_CHECK(FormatError, out.leaky || (activation != nullptr && activation->value == "linear"),
           (activation == nullptr ? s.line : activation->line).text(),
           "expected activation=leaky or activation=linear");
  return out;
}

/// Returns the numbers of the layers that layer `at` names, by their number or by how far they are before it.
std::vector<int64_t> sources(const Section& s, std::string_view key, int64_t at) {
  std::vector<int64_t> out = s.list(key, -kMost, kMost);
  for (int64_t& layer : out) {
    if (layer < 0) layer += at;
    TG_CHECK(FormatError, layer >= 0 && layer < at, s.line.text(), "[", s.name,
             "] names a layer that is not before it");
  }
  return out;
}

DarknetLayer yolo(const Section& s) {
  DarknetLayer out{.kind = DarknetLayer::kYolo, .classes = s.get("classes", 20, 1, kMost)};
  const std::vector<int64_t> sides = s.list("anchors", 1, kMost);
  const int64_t pairs = std::ssize(sides) / 2;
  for (const int64_t i : s.list("mask", 0, std::max<int64_t>(pairs, 1) - 1)) {
    TG_CHECK(FormatError, i < pairs, s.line.text(), "[yolo] has no anchors");
    const size_t first = static_cast<size_t>(2 * i);
    out.anchors.emplace_back(static_cast<double>(sides[first]), static_cast<double>(sides[first + 1]));
  }
  return out;
}

DarknetLayer layer(const Section& s, int64_t at) {
  if (s.name == "convolutional") return convolutional(s);
  if (s.name == "yolo") return yolo(s);
  if (s.name == "route") return {.kind = DarknetLayer::kRoute, .from = sources(s, "layers", at)};
  if (s.name == "shortcut") return {.kind = DarknetLayer::kShortcut, .from = sources(s, "from", at)};
  if (s.name == "upsample") return {.kind = DarknetLayer::kUpsample, .stride = s.get("stride", 2, 2, 2)};
  TG_CHECK(FormatError, s.name == "maxpool", s.line.text(), "got [", s.name,
           "], expected convolutional, maxpool, upsample, route, shortcut or yolo");
  const int64_t stride = s.get("stride", 1, 1, kMost);
  return {.kind = DarknetLayer::kMaxpool, .size = s.get("size", stride, 1, kMost), .stride = stride};
}

}  // namespace

std::vector<DarknetLayer> parse_darknet(std::string_view text, std::string_view name) {
  const std::vector<Section> all = sections(text, name);
  TG_CHECK(FormatError, !all.empty() && (all[0].name == "net" || all[0].name == "network"), "[parse_darknet] ", name,
           ": expected [net] first");
  std::vector<DarknetLayer> out;
  for (size_t i = 1; i < all.size(); i++) out.push_back(layer(all[i], std::ssize(out)));
  return out;
}

}  // namespace tg::models
