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

/// Counts down what compiling may cost: one step is about a look at one state.
class WorkBudget {
 public:
  explicit WorkBudget(size_t steps) : all_(steps), left_(steps) {}
  /// Takes steps; ValueError when they are used up.
  void spend(size_t steps);

 private:
  size_t all_, left_;
};

using Key = std::vector<int32_t>;  ///< a state while an automaton is made

/// How an automaton is made, state by state.
struct Exploration {
  Key first;
  std::function<std::optional<Key>(const Key&, uint8_t)> step;
  std::function<int32_t(const Key&)> tag;  ///< -1: no match ends there
  std::vector<bool> cuts;                  ///< of 256: bytes that may differ from the one before; others do as it does
  std::string_view what;                   ///< for messages
};

/// Makes the automaton of all states that can be reached and that can reach a match. ValueError above `limit` states.
ByteAutomaton explore(const Exploration& e, size_t limit, WorkBudget& budget);

/// Returns cuts around each of these bytes.
std::vector<bool> cuts_around(std::string_view bytes);

/// A tree of texts: each state is the beginning of some.
class TextTree {
 public:
  /// ValueError above `limit` states.
  TextTree(const std::vector<std::string>& texts, size_t limit, WorkBudget& budget);
  /// Returns where a byte leads; -1: no text goes on so.
  int32_t child(int32_t node, uint8_t byte) const;
  /// Returns the number of the text that ends here; -1: none.
  int32_t text(int32_t node) const { return texts_[static_cast<size_t>(node)]; }
  /// Returns the automaton of exactly these texts; each one's tag is its number.
  ByteAutomaton automaton() const;

 private:
  std::vector<std::vector<std::pair<uint8_t, int32_t>>> children_;  // sorted by byte
  std::vector<int32_t> texts_;
};

/// Returns the automaton of exactly these texts; each one's tag is its number.
ByteAutomaton literals(const std::vector<std::string>& texts, size_t limit, WorkBudget& budget);

/// What a number may be, bounds as decimal texts ("-1.5") or empty.
struct NumberRange {
  bool integer = false;
  std::string low, high;
  bool low_open = false, high_open = false;  ///< the bound itself is outside
  int32_t multiple_of = 0;                   ///< of integers; 0: any
};
ByteAutomaton numbers(const NumberRange& range, size_t limit, WorkBudget& budget);

/// Returns the automaton of JSON strings that match a regular expression somewhere, with this many characters; `most`
/// < 0: no limit. Understood: characters, ., classes, \d \w \s and their opposites, groups, |, * + ? {m,n}, ^ and $ at
/// the ends. ValueError for other syntax.
ByteAutomaton matching_strings(std::string_view pattern, int64_t least, int64_t most, size_t limit, WorkBudget& budget);

/// The keys an object may have: names, and others, told apart by the patterns they match.
struct KeyRules {
  std::vector<std::string> names;
  bool others = false;                         ///< any other key, or any other that fits `patterns`
  std::vector<const ByteAutomaton*> patterns;  ///< of quoted keys; none: all others are alike
  std::vector<std::vector<bool>> groups;       ///< filled: which patterns the keys of each further tag match
  bool unmatched = false;                      ///< keys that match no pattern may come
};
/// Returns the automaton of keys: name i has tag i; other keys have tags from names.size() on, one for each set of
/// patterns that they match (`groups`), or one for all. It begins behind the opening quote. Where there are patterns,
/// other keys consist of printable ASCII.
ByteAutomaton object_keys(KeyRules& rules, size_t limit, WorkBudget& budget);

/// Returns a string as JSON writes it, quotes included.
std::string quoted(std::string_view text);

}  // namespace tg::llm::constraint
