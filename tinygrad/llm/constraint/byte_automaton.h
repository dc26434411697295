/// \file Deterministic automata over bytes: what scalars and keys of JSON may look like. Every state of one can still
/// end
/// in a match, so nothing that is begun gets stuck.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tg::llm::constraint {

struct ByteAutomaton {
  struct Edge {
    uint8_t low, high;
    int32_t to;
  };
  struct State {
    uint32_t begin = 0, end = 0;  ///< its edges
    int32_t tag = -1;             ///< 0 and above: a match ends here
  };
  std::vector<State> states;  ///< the first is where it begins; empty: nothing matches
  std::vector<Edge> edges;

  /// Returns the state after a byte; -1: no match.
  int32_t step(int32_t state, uint8_t byte) const;
  bool ends(int32_t state) const { return states[static_cast<size_t>(state)].tag >= 0; }
  bool is_last(int32_t state) const {
    const State& s = states[static_cast<size_t>(state)];
    return s.begin == s.end;
  }
};

using Key = std::vector<int32_t>;  ///< a state while an automaton is made

/// Makes the automaton of all states that can be reached and that can reach a match. ValueError above `limit` states.
ByteAutomaton explore(const Key& first, const std::function<std::optional<Key>(const Key&, uint8_t)>& step,
                      const std::function<int32_t(const Key&)>& tag, size_t limit, std::string_view what);

/// Returns the automaton of exactly these texts; each one's tag is its number.
ByteAutomaton literals(const std::vector<std::string>& texts, size_t limit);

/// What a number may be, bounds as decimal texts ("-1.5") or empty.
struct NumberRange {
  bool integer = false;
  std::string low, high;
  bool low_open = false, high_open = false;  ///< the bound itself is outside
  int32_t multiple_of = 0;                   ///< of integers; 0: any
};
ByteAutomaton numbers(const NumberRange& range, size_t limit);

/// Returns the automaton of JSON strings that match a regular expression somewhere, with this many characters; `most`
/// < 0:
/// no limit. Understood: characters, ., classes, \d \w \s and their opposites, groups, |, * + ? {m,n}, ^ and $ at the
/// ends. ValueError for other syntax.
ByteAutomaton matching_strings(std::string_view pattern, int64_t least, int64_t most, size_t limit);

/// Returns the automaton of keys: name i has tag i, any other key the tag names.size() where `others` are allowed. It
/// begins behind the opening quote.
ByteAutomaton object_keys(const std::vector<std::string>& names, bool others, size_t limit);

/// Returns a string as JSON writes it, quotes included.
std::string quoted(std::string_view text);

}  // namespace tg::llm::constraint
