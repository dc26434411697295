/// \file Regular expressions over the characters of JSON strings, as automata over the bytes that write them.
#include <algorithm>
#include <array>
#include <set>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/constraint/byte_automaton.h"
#include "tinygrad/llm/template/marked_text.h"

namespace tg::llm::constraint {
namespace {

constexpr int kMaxPatternNesting = 50;
constexpr int64_t kMaxRepeats = 1000;
constexpr size_t kMaxNfaStates = 50'000;
constexpr size_t kStepsOfState = 4;  ///< of a WorkBudget

using CharRange = std::pair<uint32_t, uint32_t>;
using CharSet = std::vector<CharRange>;

CharSet normal(CharSet s) {
  std::sort(s.begin(), s.end());
  CharSet out;
  for (const CharRange& r : s) {
    if (!out.empty() && r.first <= out.back().second + 1) out.back().second = std::max(out.back().second, r.second);
    else out.push_back(r);
  }
  return out;
}

CharSet opposite(const CharSet& s, uint32_t last) {
  CharSet out;
  uint32_t next = 0;
  for (const auto& [lo, hi] : normal(s)) {
    if (lo > last) break;
    if (lo > next) out.emplace_back(next, lo - 1);
    next = hi + 1;
  }
  if (next <= last) out.emplace_back(next, last);
  return out;
}

struct Nfa {
  struct Edge {
    uint8_t low, high;
    bool begins;  ///< a character
    int32_t to;
  };
  std::vector<std::vector<Edge>> edges;
  std::vector<std::vector<int32_t>> free;  ///< states reached without a byte

  int32_t add() {
    TG_CHECK(ValueError, edges.size() < kMaxNfaStates, "[json_schema] a pattern needs more than ", kMaxNfaStates,
             " states");
    edges.emplace_back();
    free.emplace_back();
    return static_cast<int32_t>(edges.size()) - 1;
  }
  void join(int32_t from, int32_t to) { free[static_cast<size_t>(from)].push_back(to); }
  void bytes(int32_t from, int32_t to, const std::vector<std::pair<uint8_t, uint8_t>>& path) {
    for (size_t i = 0; i < path.size(); i++) {
      const int32_t next = i + 1 == path.size() ? to : add();
      edges[static_cast<size_t>(from)].push_back({path[i].first, path[i].second, i == 0, next});
      from = next;
    }
  }
  void text(int32_t from, int32_t to, std::string_view s) {
    std::vector<std::pair<uint8_t, uint8_t>> path;
    for (const char c : s) path.emplace_back(static_cast<uint8_t>(c), static_cast<uint8_t>(c));
    bytes(from, to, path);
  }

  /// Adds the UTF-8 of a range whose ends have the same length, by ranges of equal leading bytes.
  void utf8(int32_t from, int32_t to, uint32_t lo, uint32_t hi) {
    std::string a, b;
    append_char(a, lo);
    append_char(b, hi);
    const size_t n = a.size();
    for (size_t i = 1; i < n; i++) {
      const uint32_t tail = (1u << (6 * i)) - 1;
      if ((lo & ~tail) == (hi & ~tail)) continue;
      if ((lo & tail) != 0) {
        utf8(from, to, lo, lo | tail);
        return utf8(from, to, (lo | tail) + 1, hi);
      }
      if ((hi & tail) != tail) {
        utf8(from, to, lo, (hi & ~tail) - 1);
        return utf8(from, to, hi & ~tail, hi);
      }
    }
    std::vector<std::pair<uint8_t, uint8_t>> path;
    for (size_t i = 0; i < n; i++) path.emplace_back(static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i]));
    bytes(from, to, path);
  }
  void chars(int32_t from, int32_t to, const CharSet& set) {
    constexpr uint32_t kCuts[] = {0, 0x20, 0x22, 0x23, 0x5C, 0x5D, 0x80, 0x800, 0xD800, 0xE000, 0x10000, 0x110000};
    for (const auto& [first, last] : normal(set))
      for (size_t i = 0; i + 1 < std::size(kCuts); i++) {
        const uint32_t lo = std::max(first, kCuts[i]), hi = std::min(last, kCuts[i + 1] - 1);
        if (lo > hi || kCuts[i] == 0xD800) continue;
        const bool escaped = kCuts[i] == 0 || kCuts[i] == 0x22 || kCuts[i] == 0x5C;
        if (!escaped) utf8(from, to, lo, hi);
        for (uint32_t c = lo; escaped && c <= hi; c++) {
          const std::string one(1, static_cast<char>(c));
          const std::string json = quoted(one);
          text(from, to, std::string_view(json).substr(1, json.size() - 2));
        }
      }
  }
};

/// Reads a regular expression into an Nfa. Repeats read the repeated part again.
class PatternReader {
 public:
  PatternReader(std::string_view pattern, Nfa& nfa) : s_(pattern), nfa_(nfa) {}

  void run(int32_t from, int32_t to) {
    top(from, to);
    if (at_ < s_.size()) fail("an unexpected )");
  }

 private:
  static constexpr uint32_t kLast = 0x10FFFF;

  [[noreturn]] void fail(std::string_view what) const {
    throw ValueError(str("[json_schema] pattern: ", what, " at byte ", at_, " of ", python_repr(s_)));
  }
  bool more() const { return at_ < s_.size(); }
  bool skip(char c) { return more() && s_[at_] == c && (at_++, true); }

  /// Reads alternatives, each with anchors of its own; without an anchor anything may stand there.
  void top(int32_t from, int32_t to) {
    do {
      const int32_t begin = nfa_.add(), end = nfa_.add();
      nfa_.join(from, begin);
      nfa_.join(end, to);
      if (!skip('^')) anything(begin);
      const int32_t last = sequence(begin, 0, true);
      if (!skip('$')) anything(last);
      nfa_.join(last, end);
    } while (skip('|'));
  }
  void anything(int32_t at) { nfa_.chars(at, at, {{0, kLast}}); }

  void alternatives(int32_t from, int32_t to, int level) {
    if (level > kMaxPatternNesting) fail("too deep nesting");
    do nfa_.join(sequence(from, level, false), to);
    while (skip('|'));
  }
  int32_t sequence(int32_t from, int level, bool is_top) {
    int32_t at = nfa_.add();
    nfa_.join(from, at);
    while (more() && s_[at_] != '|' && s_[at_] != ')') {
      if (s_[at_] == '$' && is_top) break;
      at = repeated(at, level);
    }
    return at;
  }
  int64_t number() {
    int64_t n = 0;
    const size_t begin = at_;
    while (more() && s_[at_] >= '0' && s_[at_] <= '9' && n <= kMaxRepeats) n = n * 10 + (s_[at_++] - '0');
    if (n > kMaxRepeats) fail("too many repeats");
    return begin == at_ ? -1 : n;
  }
  /// Reads * + ? {m} {m,} {m,n} behind an atom; most < 0: no limit.
  void quantifier(int64_t& least, int64_t& most) {
    least = most = 1;
    if (skip('*')) least = 0;
    if (s_[at_ - 1] == '*' && least == 0) most = -1;
    else if (skip('+')) most = -1;
    else if (skip('?')) least = 0;
    else if (skip('{')) {
      least = most = number();
      if (skip(',')) most = number();
      if (least < 0 || !skip('}') || (most >= 0 && most < least)) fail("a malformed repeat");
    } else return;
    if (more() && (s_[at_] == '?' || s_[at_] == '+' || s_[at_] == '*')) fail("a repeat of a repeat");
  }
  int32_t repeated(int32_t from, int level) {
    const size_t begin = at_;
    const int32_t first = nfa_.add();
    atom(first, nfa_.add(), level);  // to see where it ends; not joined to anything
    const size_t atom_end = at_;
    int64_t least = 1, most = 1;
    quantifier(least, most);
    const size_t end = at_;
    int32_t at = from;
    const auto once = [&](int32_t a, int32_t b) {
      at_ = begin;
      atom(a, b, level);
      if (at_ != atom_end) fail("an unclear repeat");
    };
    for (int64_t i = 0; i < least; i++) {
      const int32_t next = nfa_.add();
      once(at, next);
      at = next;
    }
    if (most < 0) {
      const int32_t loop = nfa_.add(), back = nfa_.add();
      nfa_.join(at, loop);
      once(loop, back);
      nfa_.join(back, loop);
      at = loop;
    } else {
      const int32_t done = nfa_.add();
      nfa_.join(at, done);
      for (int64_t i = least; i < most; i++) {
        const int32_t next = nfa_.add();
        once(at, next);
        nfa_.join(next, done);
        at = next;
      }
      at = done;
    }
    at_ = end;
    return at;
  }
  void atom(int32_t from, int32_t to, int level) {
    if (skip('(')) {
      if (skip('?') && !skip(':')) fail("a group that is no (?: )");
      alternatives(from, to, level + 1);
      if (!skip(')')) fail("a group without an end");
      return;
    }
    if (skip('[')) return nfa_.chars(from, to, char_class());
    if (skip('.')) return nfa_.chars(from, to, opposite({{'\n', '\n'}}, kLast));
    if (skip('\\')) {
      CharSet set;
      bool ascii = false;
      escape(set, ascii);
      return nfa_.chars(from, to, set);
    }
    if (std::string_view("*+?{}^$)]").find(s_[at_]) != std::string_view::npos) fail("an unexpected sign");
    const uint32_t c = character();
    nfa_.chars(from, to, {{c, c}});
  }
  uint32_t character() {
    size_t length = 1;
    const uint32_t c = char_at(s_, at_, length);
    at_ += length;
    return c;
  }
  uint32_t hex(int digits) {
    uint32_t v = 0;
    for (int i = 0; i < digits; i++) {
      const char c = more() ? s_[at_++] : ' ';
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) fail("a malformed escape");
      v = v * 16 + static_cast<uint32_t>(d);
    }
    return v;
  }
  /// Adds what stands behind a backslash. Opposites keep to ASCII: what else is a digit or letter differs by validator.
  void escape(CharSet& set, bool& shorthand) {
    if (!more()) fail("a backslash at the end");
    const char c = s_[at_++];
    static const CharSet kDigit{{'0', '9'}}, kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
        kSpace{{9, 13}, {' ', ' '}};
    // Python counts 0x1C to 0x1F as space, so the opposite leaves them out.
    static const CharSet kSpaces{{9, 13}, {0x1C, ' '}};
    const CharSet* known = c == 'd' || c == 'D'   ? &kDigit
                           : c == 'w' || c == 'W' ? &kWord
                           : c == 's'             ? &kSpace
                           : c == 'S'             ? &kSpaces
                                                  : nullptr;
    if (known) {
      shorthand = true;
      const CharSet all = c >= 'a' ? *known : opposite(*known, 0x7F);
      set.insert(set.end(), all.begin(), all.end());
      return;
    }
    constexpr std::string_view kNames = "nrtfv0", kMeanings("\n\r\t\f\v\0", 6);
    const size_t control = kNames.find(c);
    uint32_t v = static_cast<uint8_t>(c);
    if (control != std::string_view::npos) v = static_cast<uint8_t>(kMeanings[control]);
    else if (c == 'x') v = hex(2);
    else if (c == 'u') v = hex(4);
    else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9') || v >= 0x80) {
      at_--;
      fail("an escape that is not supported");
    }
    set.emplace_back(v, v);
  }
  CharSet char_class() {
    const bool negated = skip('^');
    CharSet set;
    bool shorthand = false, first = true;
    while (first || !more() || s_[at_] != ']') {
      first = false;
      if (!more()) fail("a class without an end");
      if (s_[at_] == ']' || s_[at_] == '[') fail("a bracket in a class");
      CharSet one;
      if (skip('\\')) escape(one, shorthand);
      else {
        const uint32_t c = character();
        one.emplace_back(c, c);
      }
      const bool is_range = at_ + 1 < s_.size() && s_[at_] == '-' && s_[at_ + 1] != ']';
      if (is_range) {
        at_++;
        CharSet end;
        bool bad = false;
        if (skip('\\')) escape(end, bad);
        else {
          const uint32_t c = character();
          end.emplace_back(c, c);
        }
        const bool fits = one.size() == 1 && one[0].first == one[0].second && end.size() == 1 && !bad &&
                          one[0].first <= end[0].second;
        if (!fits) fail("a malformed range");
        one[0].second = end[0].second;
      }
      set.insert(set.end(), one.begin(), one.end());
    }
    at_++;
    return negated ? opposite(set, shorthand ? 0x7F : kLast) : set;
  }

  std::string_view s_;
  Nfa& nfa_;
  size_t at_ = 0;
};

/// Adds what is reached without a byte, and sorts.
Key closed(const Nfa& nfa, int32_t count, std::set<int32_t> states, WorkBudget& budget) {
  std::vector<int32_t> work(states.begin(), states.end());
  while (!work.empty()) {
    const auto s = static_cast<size_t>(work.back());
    work.pop_back();
    budget.spend(kStepsOfState * (1 + nfa.free[s].size()));
    for (int32_t f : nfa.free[s])
      if (states.insert(f).second) work.push_back(f);
  }
  Key k{count};
  for (int32_t s : states)
    if (!nfa.edges[static_cast<size_t>(s)].empty() || s < 3) k.push_back(s);
  return k;
}

}  // namespace

ByteAutomaton matching_strings(std::string_view pattern, int64_t least, int64_t most, size_t limit,
                               WorkBudget& budget) {
  Nfa nfa;
  const int32_t first = nfa.add(), last = nfa.add(), quote = nfa.add(), begin = nfa.add();
  nfa.edges[static_cast<size_t>(first)].push_back({'"', '"', false, begin});
  nfa.edges[static_cast<size_t>(last)].push_back({'"', '"', false, quote});
  PatternReader(pattern, nfa).run(begin, last);
  const auto cap = static_cast<int32_t>(std::min<int64_t>(most >= 0 ? most : least, INT32_MAX - 1));
  Exploration e;
  e.step = [&](const Key& k, uint8_t b) -> std::optional<Key> {
    std::set<int32_t> next;
    bool begins = false;
    size_t looked = 0;
    for (size_t i = 1; i < k.size(); i++)
      for (const Nfa::Edge& edge : nfa.edges[static_cast<size_t>(k[i])]) {
        looked++;
        if (b < edge.low || b > edge.high) continue;
        if (edge.to == quote && k[0] < least) continue;
        next.insert(edge.to);
        begins |= edge.begins;
      }
    budget.spend(looked);
    if (next.empty() || (begins && most >= 0 && k[0] >= cap)) return {};
    return closed(nfa, begins ? std::min(k[0] + 1, cap) : k[0], std::move(next), budget);
  };
  e.tag = [&](const Key& k) { return std::find(k.begin() + 1, k.end(), quote) == k.end() ? -1 : 0; };
  e.first = closed(nfa, 0, {first}, budget);
  e.cuts.assign(256, false);
  for (const auto& edges : nfa.edges)
    for (const Nfa::Edge& edge : edges) {
      e.cuts[edge.low] = true;
      if (edge.high < 255) e.cuts[edge.high + 1] = true;
    }
  e.what = "a pattern";
  return explore(e, limit, budget);
}

}  // namespace tg::llm::constraint
