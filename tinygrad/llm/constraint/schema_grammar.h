/// \file A compiled JSON schema: nodes are schemas, each a choice of shapes; and the machine that follows a
/// text through them with a stack of frames in a pool, where equal stacks are one.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tinygrad/llm/constraint/byte_automaton.h"
#include "tinygrad/llm/json_constraint.h"

namespace tg::llm::constraint {

/// A depth nothing has.
inline constexpr int32_t kNever = 1 << 20;

/// One kind of text.
struct Shape {
  enum class Type : uint8_t { scalar, text, array, object };
  Type type = Type::scalar;
  ByteAutomaton automaton;       ///< of a scalar; of an object's keys
  int64_t least = 0, most = -1;  ///< characters of a text, items of an array; most < 0: no limit
  std::vector<int32_t> items;    ///< nodes of the first items, or of the properties in order
  int32_t rest = -1;             ///< node of further items; -1: none
  std::vector<int32_t> others;   ///< nodes of the keys that are no properties, by tag from items.size() on
  std::vector<bool> required;
  std::vector<std::vector<uint64_t>> reach;  ///< of each state of keys: the tags it can end in
  int32_t depth = kNever;                    ///< nesting that it needs at least, itself included
};

struct Grammar {
  std::vector<Shape> shapes;
  std::vector<std::vector<int32_t>> nodes;  ///< shapes of each node, without repeats
  std::vector<int32_t> depths;              ///< of each node
  int32_t root = 0;
  SchemaOptions options;
};

/// Compiles a schema; see JsonSchema.
std::shared_ptr<const Grammar> compile_schema(const Value& schema, const SchemaOptions& options);

/// Follows texts. States are sorted lists of stacks (numbers of frames); no stack is left: the text does not fit.
class Machine {
 public:
  using Stacks = std::vector<int32_t>;

  explicit Machine(const Grammar& grammar);
  Stacks start();
  Stacks step(const Stacks& from, uint8_t byte);
  bool finished(const Stacks& at) const;
  bool exhausted(const Stacks& at) const { return at.size() == 1 && at[0] == kDone; }
  /// Number of the stack of a complete text.
  static constexpr int32_t kDone = 0;
  /// Number of the stack that stands for whatever lies around a string that is looked at alone.
  static constexpr int32_t kOutside = 1;

  /// Returns whether the stack ends in the middle of a string, and that string alone on kOutside; strings whose next
  /// `ahead` bytes are free in the same way are one.
  bool lone_text(int32_t stack, int64_t ahead, int32_t& alone);
  size_t frames() const { return frames_.size(); }
  /// Bounds the steps from now on; without a call they are not bounded.
  void allow(size_t steps) { steps_left_ = steps; }
  /// Counts a step. ConstraintLimitError where none is left.
  void spend();
  /// Returns these stacks of another machine of the same grammar.
  Stacks import(const Machine& from, const Stacks& at);

 private:
  struct Frame {
    int32_t parent, shape, state, depth, set;
    int64_t count;
    bool operator==(const Frame&) const = default;
  };
  struct FrameHash {
    size_t operator()(const Frame& f) const;
  };
  /// Where an array or object stands; of an object, kInKey + the state of its key.
  enum State : int32_t {
    kOpened,
    kAfterValue,
    kAfterComma,
    kAfterSpace,
    kAfterKey,
    kAfterColon,
    kAfterColonSpace,
    kInKey
  };

  int32_t intern(const Frame& f);
  int32_t intern_set(std::vector<uint64_t> s);
  int32_t set_with(int32_t set, size_t bit, size_t bits);
  void step_one(int32_t stack, uint8_t byte, Stacks& out);
  void enter(int32_t node, int32_t parent, int32_t depth, uint8_t byte, Stacks& out);
  void step_text(Frame f, uint8_t byte, Stacks& out);
  bool step_in_text(Frame& f, const Shape& s, int32_t state, int32_t rest, uint8_t byte);
  bool begin_character(Frame& f, const Shape& s, uint8_t byte);
  bool step_hex(Frame& f, const Shape& s, int32_t rest, int32_t digit);
  bool step_utf8(Frame& f, const Shape& s, int32_t rest, uint8_t byte);
  void end_character(Frame& f, const Shape& s);
  void step_array(Frame f, uint8_t byte, Stacks& out);
  void step_object(Frame f, uint8_t byte, Stacks& out);
  void step_key(Frame f, uint8_t byte, Stacks& out);
  void close(const Frame& f, Stacks& out) { out.push_back(f.parent); }
  bool item_fits(const Shape& s, const Frame& f) const;
  int32_t item_node(const Shape& s, int64_t i) const;
  bool complete(const Shape& s, const Frame& f) const;
  const std::vector<uint64_t>& open_tags(const Frame& f);
  bool any_open(const Frame& f);

  const Grammar& g_;
  size_t steps_left_ = SIZE_MAX;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, int32_t, FrameHash> known_;
  std::vector<std::vector<uint64_t>> sets_;
  std::map<std::vector<uint64_t>, int32_t> set_ids_;
  std::map<std::array<int32_t, 3>, std::vector<uint64_t>> open_;
};

}  // namespace tg::llm::constraint
