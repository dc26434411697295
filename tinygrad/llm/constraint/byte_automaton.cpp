/// \file Deterministic automata over bytes.
#include "tinygrad/llm/constraint/byte_automaton.h"

#include <algorithm>
#include <array>
#include <map>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/value.h"

namespace tg::llm::constraint {

int32_t ByteAutomaton::step(int32_t state, uint8_t byte) const {
  const State& s = states[static_cast<size_t>(state)];
  for (uint32_t i = s.begin; i < s.end; i++)
    if (byte >= edges[i].low && byte <= edges[i].high) return edges[i].to;
  return -1;
}

namespace {

struct Draft {
  std::vector<std::array<int32_t, 256>> to;
  std::vector<int32_t> tags;
};

/// Returns which states can reach a match.
std::vector<bool> alive_states(const Draft& d) {
  std::vector<std::vector<int32_t>> from(d.to.size());
  std::vector<int32_t> work;
  std::vector<bool> alive(d.to.size(), false);
  for (size_t s = 0; s < d.to.size(); s++) {
    int32_t before = -1;
    for (int32_t t : d.to[s])
      if (t >= 0 && t != before) from[static_cast<size_t>(before = t)].push_back(static_cast<int32_t>(s));
    if (d.tags[s] < 0) continue;
    alive[s] = true;
    work.push_back(static_cast<int32_t>(s));
  }
  while (!work.empty()) {
    const auto s = static_cast<size_t>(work.back());
    work.pop_back();
    for (int32_t f : from[s]) {
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
  if (d.to.empty() || !alive[0]) return a;
  std::vector<int32_t> number(d.to.size(), -1);
  int32_t count = 0;
  for (size_t s = 0; s < d.to.size(); s++)
    if (alive[s]) number[s] = count++;
  for (size_t s = 0; s < d.to.size(); s++) {
    if (!alive[s]) continue;
    ByteAutomaton::State state{static_cast<uint32_t>(a.edges.size()), 0, d.tags[s]};
    for (int b = 0; b < 256; b++) {
      const int32_t t = d.to[s][static_cast<size_t>(b)];
      if (t < 0 || !alive[static_cast<size_t>(t)]) continue;
      const int32_t to = number[static_cast<size_t>(t)];
      const bool joins = a.edges.size() > state.begin && a.edges.back().to == to && a.edges.back().high + 1 == b;
      if (joins) a.edges.back().high = static_cast<uint8_t>(b);
      else a.edges.push_back({static_cast<uint8_t>(b), static_cast<uint8_t>(b), to});
    }
    state.end = static_cast<uint32_t>(a.edges.size());
    a.states.push_back(state);
  }
  return a;
}

}  // namespace

ByteAutomaton explore(const Key& first, const std::function<std::optional<Key>(const Key&, uint8_t)>& step,
                      const std::function<int32_t(const Key&)>& tag, size_t limit, std::string_view what) {
  std::map<Key, int32_t> known{{first, 0}};
  std::vector<Key> keys{first};
  Draft d;
  for (size_t s = 0; s < keys.size(); s++) {
    const Key key = keys[s];
    d.tags.push_back(tag(key));
    d.to.emplace_back().fill(-1);
    for (int b = 0; b < 256; b++) {
      std::optional<Key> next = step(key, static_cast<uint8_t>(b));
      if (!next) continue;
      const auto [found, added] = known.emplace(*next, static_cast<int32_t>(keys.size()));
      if (added) {
        TG_CHECK(ValueError, keys.size() < limit, "[json_schema] ", what, " needs more than ", limit, " states");
        keys.push_back(std::move(*next));
      }
      d.to[s][static_cast<size_t>(b)] = found->second;
    }
  }
  return trimmed(d);
}

std::string quoted(std::string_view text) { return Value(text).json(); }

ByteAutomaton literals(const std::vector<std::string>& texts, size_t limit) {
  // A state is the first text with the prefix read so far, and the length of that prefix.
  const auto step = [&](const Key& k, uint8_t b) -> std::optional<Key> {
    const std::string& one = texts[static_cast<size_t>(k[0])];
    const auto n = static_cast<size_t>(k[1]);
    const std::string prefix = one.substr(0, n) + static_cast<char>(b);
    for (size_t i = 0; i < texts.size(); i++)
      if (texts[i].starts_with(prefix)) return Key{static_cast<int32_t>(i), k[1] + 1};
    return {};
  };
  const auto tag = [&](const Key& k) {
    const std::string prefix = texts[static_cast<size_t>(k[0])].substr(0, static_cast<size_t>(k[1]));
    const auto found = std::find(texts.begin(), texts.end(), prefix);
    return found == texts.end() ? -1 : static_cast<int32_t>(found - texts.begin());
  };
  return explore({0, 0}, step, tag, limit, "enum");
}

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
// A state is: a text with the prefix read so far (-1: none has it), its length; and where in a character it is:
// 0 between, 1..3 that many bytes to come with the bounds of the next, -1 behind \, -2.. in \u00XX, -9 at the end.

bool continue_utf8(Key& k, uint8_t b) {
  if (b < k[3] || b > k[4]) return false;
  k[2]--;
  k[3] = k[2] > 0 ? 0x80 : 0;
  k[4] = k[2] > 0 ? 0xBF : 0;
  return true;
}

bool step_escape(Key& k, uint8_t b) {
  k[2] = b == 'u' ? -2 : 0;
  return b == 'u' || std::string_view("\"\\bfnrt").find(static_cast<char>(b)) != std::string_view::npos;
}

/// Steps through the digits of an escape. Control characters that have a short one are not written so.
bool step_hex(Key& k, uint8_t b) {
  const int32_t at = k[2];
  if (at == -2 || at == -3) {
    k[2] = at - 1;
    return b == '0';
  }
  if (at == -4) {
    k[2] = b == '0' ? -5 : -6;
    return b == '0' || b == '1';
  }
  k[2] = 0;
  const bool hex = (b >= '0' && b <= '9') || (b >= 'a' && b <= 'f');
  return hex && (at == -6 || std::string_view("89acd").find(static_cast<char>(b)) == std::string_view::npos);
}

bool begin_character(Key& k, uint8_t b) {
  if (b < 0x20 || (b > 0x7F && b < 0xC2) || b > 0xF4) return false;
  if (b == '"') k[2] = -9;
  else if (b == '\\') k[2] = -1;
  else if (b >= 0x80) {
    k[2] = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
    k[3] = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    k[4] = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
  }
  return true;
}

bool step_character(Key& k, uint8_t b) {
  if (k[2] > 0) return continue_utf8(k, b);
  if (k[2] == 0) return begin_character(k, b);
  if (k[2] == -1) return step_escape(k, b);
  return k[2] != -9 && step_hex(k, b);
}

}  // namespace

ByteAutomaton numbers(const NumberRange& range, size_t limit) {
  const NumberRules rules(range);
  Key first(kPlaces, 0);
  return explore(
      first, [&](const Key& k, uint8_t b) { return rules.step(k, b); },
      [&](const Key& k) { return rules.accepts(k) ? 0 : -1; }, limit, "a range of numbers");
}

ByteAutomaton object_keys(const std::vector<std::string>& names, bool others, size_t limit) {
  std::vector<std::string> texts;
  for (const std::string& n : names) texts.push_back(quoted(n).substr(1));
  const auto other = static_cast<int32_t>(names.size());
  const auto step = [&](const Key& k, uint8_t b) -> std::optional<Key> {
    Key next = k;
    const bool fits = step_character(next, b);
    next[0] = -1;
    next[1] = 0;
    if (k[0] >= 0) {
      const std::string prefix =
          texts[static_cast<size_t>(k[0])].substr(0, static_cast<size_t>(k[1])) + static_cast<char>(b);
      for (size_t i = 0; i < texts.size() && next[0] < 0; i++)
        if (texts[i].starts_with(prefix)) {
          next[0] = static_cast<int32_t>(i);
          next[1] = k[1] + 1;
        }
    }
    if (!fits || (next[0] < 0 && !others)) return {};
    return next;
  };
  const auto tag = [&](const Key& k) {
    if (k[2] != -9) return -1;
    if (k[0] < 0) return other;
    const std::string text = texts[static_cast<size_t>(k[0])].substr(0, static_cast<size_t>(k[1]));
    const auto found = std::find(texts.begin(), texts.end(), text);
    return found == texts.end() ? other : static_cast<int32_t>(found - texts.begin());
  };
  const bool any = others || !texts.empty();
  return any ? explore({texts.empty() ? -1 : 0, 0, 0, 0, 0}, step, tag, limit, "an object's keys") : ByteAutomaton{};
}

}  // namespace tg::llm::constraint
