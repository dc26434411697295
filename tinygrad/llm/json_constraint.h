/// \file Constrained sampling: a JSON schema becomes an automaton over bytes, and the automaton masks of a tokenizer's
/// vocabulary, so that every reply sampled under the masks is JSON that the schema accepts.
/// Source: JSON Schema 2020-12, https://json-schema.org/draft/2020-12
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/value.h"

namespace tg::llm {

/// What a schema may cost before it is refused.
struct SchemaLimits {
  size_t nodes = 20'000;              ///< schemas inside of the schema, after allOf is merged
  size_t automaton_states = 100'000;  ///< of all its scalars and keys together
  size_t steps = 50'000'000;          ///< of compiling it; they take less than a second
  int depth = 64;                     ///< nesting of arrays and objects in the text; recursive schemas are cut off here
  size_t properties = 512;            ///< of one object
  size_t alternatives = 64;           ///< readings of one text that are followed at once
  size_t mask_steps = 8'000'000;      ///< of finding the tokens that may come next; they take about 0.1 s
};

/// Which spaces the text may contain.
enum class JsonSpacing : uint8_t {
  compact,  ///< none
  python    ///< one space or none after each `,` and `:`
};

struct SchemaOptions {
  JsonSpacing spacing = JsonSpacing::python;
  bool ordered = false;  ///< properties stand in the schema's order; else in any
  SchemaLimits limits;
};

namespace constraint {
struct Grammar;
struct Position;
struct Vocabulary;
class MaskCache;
class MaskCaches;
}  // namespace constraint

/// A compiled schema. Strings, numbers and keys are finite automata, arrays and objects a stack.
///
/// Understood: true, {}, type, enum, const, properties, required, additionalProperties, items, prefixItems, minItems,
/// maxItems, minLength, maxLength, pattern, format (date, time, date-time, duration, uuid, ipv4, ipv6, email, hostname,
/// uri; others are annotations), minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf (integers), anyOf,
/// oneOf (alternatives that exclude each other), allOf (merged), $ref to pointers and anchors of the document, $defs,
/// and annotations. Every other keyword is refused by name. An object whose schema names properties has no others
/// unless `additionalProperties` allows them, so that texts end.
class JsonSchema {
 public:
  /// Compiles a schema: ValueError that names the keyword and where it stands (`#/properties/a/pattern`) for one that
  /// is
  /// malformed or not supported, for a schema nothing satisfies and for one above the limits.
  explicit JsonSchema(const Value& schema, const SchemaOptions& options = {});
  /// Returns the schema of any JSON object.
  static JsonSchema any_object(const SchemaOptions& options = {});
  /// Returns whether this exact text is one that sampling can give.
  bool accepts(std::string_view text) const;

  const std::shared_ptr<const constraint::Grammar>& grammar() const { return grammar_; }
  const std::shared_ptr<constraint::MaskCaches>& masks() const { return masks_; }

 private:
  std::shared_ptr<const constraint::Grammar> grammar_;
  std::shared_ptr<constraint::MaskCaches> masks_;  ///< copies of a schema share them
};

/// A tokenizer's vocabulary, sorted once for all masks; shared between threads.
class TokenBytes {
 public:
  /// Takes the bytes of every token; those of special and unused tokens are empty and never allowed.
  explicit TokenBytes(std::vector<std::string> tokens);
  size_t size() const;
  const std::shared_ptr<const constraint::Vocabulary>& vocabulary() const { return vocabulary_; }

 private:
  std::shared_ptr<const constraint::Vocabulary> vocabulary_;
};

/// A schema that leaves more alternatives open than SchemaLimits::alternatives, or whose masks take more steps than
/// SchemaLimits::mask_steps: it shows while a text follows it.
struct ConstraintLimitError : ValueError {
  using ValueError::ValueError;
};

/// Where one reply stands in a schema. One object for each sequence; not for use by two threads at once. Constraints
/// made of one schema (or copies of it) and one vocabulary share their masks, on any threads. ConstraintLimitError from
/// whatever follows a text further.
class JsonConstraint {
 public:
  JsonConstraint(const JsonSchema& schema, const TokenBytes& tokens);
  ~JsonConstraint();
  JsonConstraint(JsonConstraint&&) noexcept;
  JsonConstraint& operator=(JsonConstraint&&) noexcept;

  /// Returns the tokens that may come next: bit i % 64 of word i / 64 is token i. The words are valid until the next
  /// call. A mask that was computed before costs a look-up.
  std::span<const uint64_t> mask();
  /// Returns whether the text is complete, so that the end-of-sequence token may come.
  bool finished() const;
  /// Returns whether nothing but the end of the sequence may come.
  bool exhausted() const;
  /// Goes on by a token; false, without a change, where the mask does not allow it.
  bool accept(size_t token);
  /// Goes on by bytes; false, without a change, where they do not fit.
  bool accept_bytes(std::string_view bytes);
  /// Returns to the beginning and keeps the masks.
  void reset();

 private:
  std::shared_ptr<const constraint::Vocabulary> vocabulary_;
  std::shared_ptr<constraint::MaskCache> masks_;
  std::unique_ptr<constraint::Position> position_;
  std::shared_ptr<const std::vector<uint64_t>> mask_;
};

}  // namespace tg::llm
