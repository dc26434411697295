/// \file Deterministic automata over bytes.
#include "tinygrad/llm/constraint/byte_automaton.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/value.h"

namespace tg::llm::constraint {

namespace {

/// What looking for the state behind one byte costs beside the length of its key.
constexpr size_t kStepsOfByte = 8;

}  // namespace

int32_t ByteAutomaton::step(int32_t state, uint8_t byte) const {
  const State& s = states[static_cast<size_t>(state)];
  for (uint32_t i = s.begin; i < s.end; i++)
    if (byte >= edges[i].low && byte <= edges[i].high) return edges[i].to;
  return -1;
}

void WorkBudget::spend(size_t steps) {
  TG_CHECK(ValueError, steps <= left_, "[json_schema] compiling takes more than ", all_, " steps");
  left_ -= steps;
}

std::vector<bool> cuts_around(std::string_view bytes) {
  std::vector<bool> cuts(256, false);
  for (const char c : bytes) {
    const auto b = static_cast<uint8_t>(c);
    cuts[b] = true;
    if (b < 255) cuts[b + 1] = true;
  }
  return cuts;
}

namespace {

/// Bytes that every state treats alike.
struct ByteClass {
  uint8_t low, high;
};

std::vector<ByteClass> classes_of(const std::vector<bool>& cuts) {
  std::vector<ByteClass> out;
  for (int b = 0; b < 256; b++) {
    if (b == 0 || cuts[static_cast<size_t>(b)]) out.push_back({static_cast<uint8_t>(b), static_cast<uint8_t>(b)});
    else out.back().high = static_cast<uint8_t>(b);
  }
  return out;
}

/// An automaton of which not every state needs to reach a match.
struct Draft {
  std::vector<ByteClass> classes;
  std::vector<int32_t> to;  ///< of each state and class; -1: none
  std::vector<int32_t> tags;

  size_t size() const { return tags.size(); }
  std::span<const int32_t> row(size_t state) const {
    return std::span(to).subspan(state * classes.size(), classes.size());
  }
};

/// Returns which states can reach a match.
std::vector<bool> alive_states(const Draft& d) {
  std::vector<std::vector<int32_t>> from(d.size());
  std::vector<int32_t> work;
  std::vector<bool> alive(d.size(), false);
  for (size_t s = 0; s < d.size(); s++) {
    int32_t before = -1;
    for (const int32_t t : d.row(s))
      if (t >= 0 && t != before) from[static_cast<size_t>(before = t)].push_back(static_cast<int32_t>(s));
    if (d.tags[s] < 0) continue;
    alive[s] = true;
    work.push_back(static_cast<int32_t>(s));
  }
  while (!work.empty()) {
    const auto s = static_cast<size_t>(work.back());
    work.pop_back();
    for (const int32_t f : from[s]) {
      if (alive[static_cast<size_t>(f)]) continue;
      alive[static_cast<size_t>(f)] = true;
      work.push_back(f);
    }
  }
  return alive;
}

ByteAutomaton trimmed(const Draft& d) {
  const std::vector<bool> alive = alive_states(d);
  ByteAutomaton a;
  if (d.size() == 0 || !alive[0]) return a;
  std::vector<int32_t> number(d.size(), -1);
  int32_t count = 0;
  for (size_t s = 0; s < d.size(); s++)
    if (alive[s]) number[s] = count++;
  for (size_t s = 0; s < d.size(); s++) {
    if (!alive[s]) continue;
    ByteAutomaton::State state{static_cast<uint32_t>(a.edges.size()), 0, d.tags[s]};
    const std::span<const int32_t> row = d.row(s);
    for (size_t c = 0; c < row.size(); c++) {
      if (row[c] < 0 || !alive[static_cast<size_t>(row[c])]) continue;
      const int32_t to = number[static_cast<size_t>(row[c])];
      const ByteClass& bytes = d.classes[c];
      const bool joins =
          a.edges.size() > state.begin && a.edges.back().to == to && a.edges.back().high + 1 == bytes.low;
      if (joins) a.edges.back().high = bytes.high;
      else a.edges.push_back({bytes.low, bytes.high, to});
    }
    state.end = static_cast<uint32_t>(a.edges.size());
    a.states.push_back(state);
  }
  return a;
}

struct KeyHash {
  size_t operator()(const Key& k) const {
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (const int32_t v : k) {
      h = (h ^ static_cast<uint32_t>(v)) * 0xD6E8FEB86659FD93u;
      h ^= h >> 29;
    }
    return h;
  }
};

}  // namespace

ByteAutomaton explore(const Exploration& e, size_t limit, WorkBudget& budget) {
  std::unordered_map<Key, int32_t, KeyHash> known{{e.first, 0}};
  std::vector<Key> keys{e.first};
  Draft d;
  d.classes = classes_of(e.cuts);
  for (size_t s = 0; s < keys.size(); s++) {
    const Key key = keys[s];
    d.tags.push_back(e.tag(key));
    budget.spend((kStepsOfByte + key.size()) * d.classes.size());
    for (const ByteClass& c : d.classes) {
      std::optional<Key> next = e.step(key, c.low);
      d.to.push_back(-1);
      if (!next) continue;
      const auto [found, added] = known.emplace(*next, static_cast<int32_t>(keys.size()));
      if (added) {
        TG_CHECK(ValueError, keys.size() < limit, "[json_schema] ", e.what, " needs more than ", limit, " states");
        keys.push_back(std::move(*next));
      }
      d.to.back() = found->second;
    }
  }
  return trimmed(d);
}

TextTree::TextTree(const std::vector<std::string>& texts, size_t limit, WorkBudget& budget)
    : children_(1), texts_(1, -1) {
  for (size_t i = 0; i < texts.size(); i++) {
    budget.spend(texts[i].size() * kStepsOfByte);
    size_t node = 0;
    for (const char c : texts[i]) {
      auto& all = children_[node];
      const auto byte = static_cast<uint8_t>(c);
      auto at = std::lower_bound(all.begin(), all.end(), byte, [](const auto& p, uint8_t b) { return p.first < b; });
      if (at == all.end() || at->first != byte) {
        TG_CHECK(ValueError, children_.size() < limit, "[json_schema] texts need more than ", limit, " states");
        at = all.insert(at, {byte, static_cast<int32_t>(children_.size())});
        node = static_cast<size_t>(at->second);
        children_.emplace_back();
        texts_.push_back(-1);
      } else node = static_cast<size_t>(at->second);
    }
    if (texts_[node] < 0) texts_[node] = static_cast<int32_t>(i);
  }
}

int32_t TextTree::child(int32_t node, uint8_t byte) const {
  const auto& all = children_[static_cast<size_t>(node)];
  const auto at = std::lower_bound(all.begin(), all.end(), byte, [](const auto& p, uint8_t b) { return p.first < b; });
  return at == all.end() || at->first != byte ? -1 : at->second;
}

ByteAutomaton TextTree::automaton() const {
  ByteAutomaton a;
  for (size_t n = 0; n < children_.size(); n++) {
    ByteAutomaton::State state{static_cast<uint32_t>(a.edges.size()), 0, texts_[n]};
    for (const auto& [byte, to] : children_[n]) a.edges.push_back({byte, byte, to});
    state.end = static_cast<uint32_t>(a.edges.size());
    a.states.push_back(state);
  }
  if (children_.size() == 1 && texts_[0] < 0) a.states.clear();  // no text at all
  return a;
}

ByteAutomaton literals(const std::vector<std::string>& texts, size_t limit, WorkBudget& budget) {
  return TextTree(texts, limit, budget).automaton();
}

std::string quoted(std::string_view text) { return Value(text).json(); }

namespace {

/// Most digits before the point, behind it, and both of a number with bounds (so that no rounding passes a bound).
constexpr int32_t kMaxDigits = 30, kMaxBoundedDigits = 15, kMaxBoundedInteger = 18;

struct Bound {
  bool given = false, negative = false;
  std::string whole, fraction;

  explicit Bound(const std::string& text) : given(!text.empty()) {
    std::string s = text;
    negative = s.starts_with("-");
    if (negative) s.erase(0, 1);
    const size_t dot = std::min(s.find('.'), s.size());
    whole = s.substr(0, dot);
    fraction = dot < s.size() ? s.substr(dot + 1) : "";
    while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
    if (whole == "0" && fraction.empty()) negative = false;
  }
};

enum Phase : int32_t { kStart, kMinus, kZero, kWhole, kPoint, kFraction, kE, kSign, kExponent };
/// Places of a number's state.
enum Place : size_t { kPhase, kNegative, kDigits, kBehind, kLow, kHigh, kNonZero, kRest, kPower, kPlaces };

class NumberRules {
 public:
  explicit NumberRules(const NumberRange& r) : range_(r), low_(r.low), high_(r.high) {}

  std::optional<Key> step(Key k, uint8_t b) const {
    const int32_t digit = b >= '0' && b <= '9' ? b - '0' : -1;
    const bool bounded = low_.given || high_.given;
    switch (k[kPhase]) {
      case kStart:
        if (b == '-') {
          k[kPhase] = kMinus;
          k[kNegative] = 1;
          return k;
        }
        [[fallthrough]];
      case kMinus:
        if (digit < 0) return {};
        k[kPhase] = digit == 0 ? kZero : kWhole;
        return whole(k, digit);
      case kWhole:
        if (digit >= 0) {
          const int32_t most = !bounded ? kMaxDigits : range_.integer ? kMaxBoundedInteger : kMaxBoundedDigits;
          if (k[kDigits] >= most) return {};
          return whole(k, digit);
        }
        [[fallthrough]];
      case kZero:
        if (range_.integer) return {};
        if (b == '.') {
          end_whole(k);
          if (!bounded) k[kDigits] = 0;  // what is not looked at again would only make more states
          k[kPhase] = kPoint;
          return k;
        }
        return exponent(k, b, bounded);
      case kPoint:
      case kFraction: {
        if (digit < 0) return k[kPhase] == kPoint ? std::nullopt : exponent(k, b, bounded);
        const int32_t most = bounded ? kMaxBoundedDigits - k[kDigits] : kMaxDigits;
        if (k[kBehind] >= most) return {};
        k[kPhase] = kFraction;
        compare_fraction(k, digit);
        k[kBehind]++;
        if (bounded) k[kNonZero] |= digit > 0;
        return k;
      }
      default: return power(k, b, digit);
    }
  }

  bool accepts(const Key& k) const {
    const int32_t p = k[kPhase];
    if (p != kZero && p != kWhole && p != kFraction && p != kExponent) return false;
    const bool bounded = low_.given || high_.given;
    if (bounded && k[kNegative] && !k[kNonZero]) return false;  // -0
    if (range_.multiple_of && k[kRest] != 0) return false;
    Key end = k;
    if (p != kFraction) end_whole(end);
    return (!low_.given || above(end, low_, kLow, range_.low_open)) &&
           (!high_.given || below(end, high_, kHigh, range_.high_open));
  }

 private:
  std::optional<Key> whole(Key k, int32_t digit) const {
    const auto at = static_cast<size_t>(k[kDigits]);
    if (low_.given) compare(k, kLow, low_.whole, at, digit);
    if (high_.given) compare(k, kHigh, high_.whole, at, digit);
    k[kDigits]++;
    if (low_.given || high_.given) k[kNonZero] |= digit > 0;
    if (range_.multiple_of) k[kRest] = (k[kRest] * 10 + digit) % range_.multiple_of;
    return k;
  }
  /// Compares one more digit with a bound's; beyond the bound's digits it has zeros.
  static void compare(Key& k, size_t place, const std::string& digits, size_t at, int32_t digit) {
    const int32_t there = at < digits.size() ? digits[at] - '0' : 0;
    if (k[place] == 0) k[place] = digit < there ? -1 : digit > there ? 1 : 0;
  }
  void end_whole(Key& k) const {
    for (const auto& [place, bound] : {std::pair{kLow, &low_}, std::pair{kHigh, &high_}}) {
      if (!bound->given) continue;
      const auto n = static_cast<int32_t>(bound->whole.size());
      if (k[kDigits] != n) k[place] = k[kDigits] < n ? -1 : 1;
    }
  }
  void compare_fraction(Key& k, int32_t digit) const {
    const auto at = static_cast<size_t>(k[kBehind]);
    if (low_.given) compare(k, kLow, low_.fraction, at, digit);
    if (high_.given) compare(k, kHigh, high_.fraction, at, digit);
  }
  std::optional<Key> exponent(Key k, uint8_t b, bool bounded) const {
    if (bounded || (b != 'e' && b != 'E')) return {};
    k[kPhase] = kE;
    k[kDigits] = k[kBehind] = 0;
    return k;
  }
  /// Reads an exponent below 270, so that every number is finite.
  static std::optional<Key> power(Key k, uint8_t b, int32_t digit) {
    if (k[kPhase] == kE && (b == '+' || b == '-')) {
      k[kPhase] = kSign;
      return k;
    }
    if (digit < 0) return {};
    if (k[kPhase] != kExponent) k[kPower] = 0;
    k[kPower] = k[kPower] * 10 + digit;
    k[kPhase] = kExponent;
    return k[kPower] < 270 ? std::optional(k) : std::nullopt;
  }
  /// Compares the size of the whole number with the size of a bound.
  static int32_t size_against(const Key& k, const Bound& bound, size_t place) {
    if (k[place] != 0) return k[place];
    return static_cast<int32_t>(bound.fraction.size()) > k[kBehind] ? -1 : 0;
  }
  static bool above(const Key& k, const Bound& bound, size_t place, bool open) {
    if (k[kNegative] != static_cast<int32_t>(bound.negative)) return !k[kNegative];
    const int32_t c = size_against(k, bound, place);
    return c == 0 ? !open : (c > 0) != bound.negative;
  }
  static bool below(const Key& k, const Bound& bound, size_t place, bool open) {
    if (k[kNegative] != static_cast<int32_t>(bound.negative)) return k[kNegative];
    const int32_t c = size_against(k, bound, place);
    return c == 0 ? !open : (c < 0) != bound.negative;
  }

  NumberRange range_;
  Bound low_, high_;
};

// ---- keys of objects ----
// A state is: the node of the names' tree (-1: no name begins so); where in a character it is, with the bounds of the
// next byte (0 between, 1..3 that many bytes to come, -1 behind \, -2.. in \u00XX, -9 at the end); and the state of
// each pattern (-1: it does not match).

constexpr size_t kNode = 0, kPlace = 1, kLowByte = 2, kHighByte = 3, kPatterns = 4;
constexpr int32_t kKeyEnd = -9;

bool continue_utf8(Key& k, uint8_t b) {
  if (b < k[kLowByte] || b > k[kHighByte]) return false;
  k[kPlace]--;
  k[kLowByte] = k[kPlace] > 0 ? 0x80 : 0;
  k[kHighByte] = k[kPlace] > 0 ? 0xBF : 0;
  return true;
}

bool step_escape(Key& k, uint8_t b) {
  k[kPlace] = b == 'u' ? -2 : 0;
  return b == 'u' || std::string_view("\"\\bfnrt").find(static_cast<char>(b)) != std::string_view::npos;
}

/// Steps through the digits of an escape. Control characters that have a short one are not written so.
bool step_hex(Key& k, uint8_t b) {
  const int32_t at = k[kPlace];
  if (at == -2 || at == -3) {
    k[kPlace] = at - 1;
    return b == '0';
  }
  if (at == -4) {
    k[kPlace] = b == '0' ? -5 : -6;
    return b == '0' || b == '1';
  }
  k[kPlace] = 0;
  const bool hex = (b >= '0' && b <= '9') || (b >= 'a' && b <= 'f');
  return hex && (at == -6 || std::string_view("89acd").find(static_cast<char>(b)) == std::string_view::npos);
}

bool begin_character(Key& k, uint8_t b) {
  if (b < 0x20 || (b > 0x7F && b < 0xC2) || b > 0xF4) return false;
  if (b == '"') k[kPlace] = kKeyEnd;
  else if (b == '\\') k[kPlace] = -1;
  else if (b >= 0x80) {
    k[kPlace] = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
    k[kLowByte] = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    k[kHighByte] = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
  }
  return true;
}

bool step_character(Key& k, uint8_t b) {
  if (k[kPlace] > 0) return continue_utf8(k, b);
  if (k[kPlace] == 0) return begin_character(k, b);
  if (k[kPlace] == -1) return step_escape(k, b);
  return k[kPlace] != kKeyEnd && step_hex(k, b);
}

/// The keys of one object, told apart.
class KeyExplorer {
 public:
  KeyExplorer(KeyRules& rules, size_t limit, WorkBudget& budget) : rules_(rules), tree_(texts(rules), limit, budget) {}

  ByteAutomaton run(size_t limit, WorkBudget& budget) {
    if (!rules_.others) return tree_.automaton();
    Exploration e;
    e.first = {0, 0, 0, 0};
    for (const ByteAutomaton* p : rules_.patterns) e.first.push_back(p->states.empty() ? -1 : p->step(0, '"'));
    e.step = [&](const Key& k, uint8_t b) { return step(k, b); };
    e.tag = [&](const Key& k) { return tag(k); };
    e.cuts = cuts();
    e.what = "an object's keys";
    return explore(e, limit, budget);
  }

 private:
  static std::vector<std::string> texts(const KeyRules& rules) {
    std::vector<std::string> out;
    for (const std::string& n : rules.names) out.push_back(quoted(n).substr(1));
    return out;
  }
  std::vector<bool> cuts() const {
    std::vector<bool> all = cuts_around("\"\\/bfnrtu0123456789acde");
    for (const int b :
         {0x20, 0x61, 0x67, 0x7F, 0x80, 0x90, 0xA0, 0xC0, 0xC2, 0xE0, 0xE1, 0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5})
      all[static_cast<size_t>(b)] = true;
    const auto join = [&](const std::vector<bool>& more) {
      for (size_t i = 0; i < 256; i++) all[i] = all[i] || more[i];
    };
    for (const std::string& t : texts(rules_)) join(cuts_around(t));
    for (const ByteAutomaton* p : rules_.patterns)
      for (const ByteAutomaton::Edge& edge : p->edges) {
        all[edge.low] = true;
        if (edge.high < 255) all[edge.high + 1] = true;
      }
    return all;
  }
  std::optional<Key> step(const Key& k, uint8_t b) const {
    Key next = k;
    const bool fits = step_character(next, b);
    next[kNode] = k[kNode] < 0 ? -1 : tree_.child(k[kNode], b);
    const bool plain = rules_.patterns.empty() || (b >= 0x20 && b < 0x7F);
    if (!fits || (next[kNode] < 0 && !plain)) return {};
    for (size_t i = 0; i < rules_.patterns.size(); i++)
      if (next[kPatterns + i] >= 0) next[kPatterns + i] = rules_.patterns[i]->step(next[kPatterns + i], b);
    return next;
  }
  int32_t tag(const Key& k) {
    if (k[kPlace] != kKeyEnd) return -1;
    if (k[kNode] >= 0 && tree_.text(k[kNode]) >= 0) return tree_.text(k[kNode]);
    const auto first = static_cast<int32_t>(rules_.names.size());
    if (rules_.patterns.empty()) return first;
    std::vector<bool> group;
    for (size_t i = 0; i < rules_.patterns.size(); i++)
      group.push_back(k[kPatterns + i] >= 0 && rules_.patterns[i]->ends(k[kPatterns + i]));
    const bool none = std::find(group.begin(), group.end(), true) == group.end();
    if (none && !rules_.unmatched) return -1;
    const auto at = std::find(rules_.groups.begin(), rules_.groups.end(), group);
    const auto number = static_cast<int32_t>(at - rules_.groups.begin());
    if (at == rules_.groups.end()) rules_.groups.push_back(std::move(group));
    return first + number;
  }

  KeyRules& rules_;
  TextTree tree_;
};

}  // namespace

ByteAutomaton numbers(const NumberRange& range, size_t limit, WorkBudget& budget) {
  const NumberRules rules(range);
  Exploration e;
  e.first = Key(kPlaces, 0);
  e.step = [&](const Key& k, uint8_t b) { return rules.step(k, b); };
  e.tag = [&](const Key& k) { return rules.accepts(k) ? 0 : -1; };
  e.cuts = cuts_around("0123456789+-.eE");
  e.what = "a range of numbers";
  return explore(e, limit, budget);
}

ByteAutomaton object_keys(KeyRules& rules, size_t limit, WorkBudget& budget) {
  return KeyExplorer(rules, limit, budget).run(limit, budget);
}

}  // namespace tg::llm::constraint
