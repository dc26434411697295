/// \file Masks of vocabularies from schemas.
#include "tinygrad/llm/json_constraint.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/constraint/schema_grammar.h"

namespace tg::llm {
namespace constraint {

/// Tokens in the order of their bytes, so that equal beginnings are followed once.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<uint32_t> sorted;  ///< numbers of tokens that have bytes
  std::vector<uint32_t> shared;  ///< bytes that each shares with the one before
  size_t words = 0;
  size_t longest = 0;
};

/// Masks by state, and what strings allow whatever lies around them.
class MaskCache {
 public:
  static constexpr size_t kMaxMasks = 512, kMaxFrames = 1 << 20;

  MaskCache(Machine& machine, const Vocabulary& vocabulary) : machine_(machine), v_(vocabulary) {}

  const std::vector<uint64_t>& mask(const Machine::Stacks& at) {
    const auto found = masks_.find(at);
    if (found != masks_.end()) return found->second;
    if (masks_.size() >= kMaxMasks) masks_.clear();
    std::vector<uint64_t> bits(v_.words, 0);
    Machine::Stacks others;
    for (const int32_t stack : at) {
      int32_t alone = -1;
      if (machine_.lone_text(stack, alone)) text_mask(stack, alone, bits);
      else others.push_back(stack);
    }
    if (!others.empty()) walk(others, 0, v_.sorted.size(), bits, nullptr);
    return masks_.emplace(at, std::move(bits)).first->second;
  }
  void clear() {
    masks_.clear();
    texts_.clear();
  }

 private:
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  struct TextMask {
    std::vector<uint64_t> bits;
    Ranges leaving;  ///< sorted tokens that end the string and go on
  };

  void text_mask(int32_t stack, int32_t alone, std::vector<uint64_t>& bits) {
    const auto [found, added] = texts_.try_emplace(alone);
    TextMask& t = found->second;
    if (added) {
      t.bits.assign(v_.words, 0);
      walk({alone}, 0, v_.sorted.size(), t.bits, &t.leaving);
    }
    for (size_t i = 0; i < bits.size(); i++) bits[i] |= t.bits[i];
    for (const auto& [begin, end] : t.leaving) walk({stack}, begin, end, bits, nullptr);
  }

  /// Sets the bits of the sorted tokens [begin, end) that fit. Where a string is looked at alone, tokens that leave it
  /// are listed instead.
  void walk(const Machine::Stacks& from, size_t begin, size_t end, std::vector<uint64_t>& bits, Ranges* leaving) {
    std::vector<Machine::Stacks> path(v_.longest + 1);
    path[0] = from;
    size_t valid = 0;  // bytes of the token before that fit
    for (size_t i = begin; i < end;) {
      const std::string& token = v_.tokens[v_.sorted[i]];
      size_t n = i == begin ? 0 : std::min<size_t>(v_.shared[i], valid);
      bool left = false;
      for (; n < token.size(); n++) {
        path[n + 1] = machine_.step(path[n], static_cast<uint8_t>(token[n]));
        left = leaving && std::binary_search(path[n + 1].begin(), path[n + 1].end(), Machine::kOutside);
        if (path[n + 1].empty() || left) break;
      }
      valid = n;
      if (n == token.size()) {
        bits[v_.sorted[i] / 64] |= uint64_t{1} << (v_.sorted[i] % 64);
        i++;
        continue;
      }
      const size_t first = i++;
      while (i < end && v_.shared[i] > n) i++;  // they begin with what does not fit
      if (left) leaving->emplace_back(first, i);
    }
  }

  Machine& machine_;
  const Vocabulary& v_;
  std::map<Machine::Stacks, std::vector<uint64_t>> masks_;
  std::map<int32_t, TextMask> texts_;
};

/// A machine and where it stands.
struct Position {
  Machine machine;
  Machine::Stacks at;
};

}  // namespace constraint

using constraint::Machine;

JsonSchema::JsonSchema(const Value& schema, const SchemaOptions& options)
    : grammar_(constraint::compile_schema(schema, options)) {}

JsonSchema JsonSchema::any_object(const SchemaOptions& options) {
  return JsonSchema(Value::dict({{Value("type"), Value("object")}}), options);
}

bool JsonSchema::accepts(std::string_view text) const {
  Machine machine(*grammar_);
  Machine::Stacks at = machine.start();
  for (const char c : text) {
    at = machine.step(at, static_cast<uint8_t>(c));
    if (at.empty()) return false;
    if (machine.frames() > constraint::MaskCache::kMaxFrames) machine.compact(at);
  }
  return machine.finished(at);
}

TokenBytes::TokenBytes(std::vector<std::string> tokens) {
  auto v = std::make_shared<constraint::Vocabulary>();
  v->tokens = std::move(tokens);
  v->words = (v->tokens.size() + 63) / 64;
  for (size_t i = 0; i < v->tokens.size(); i++) {
    if (!v->tokens[i].empty()) v->sorted.push_back(static_cast<uint32_t>(i));
    v->longest = std::max(v->longest, v->tokens[i].size());
  }
  std::sort(v->sorted.begin(), v->sorted.end(), [&](uint32_t a, uint32_t b) { return v->tokens[a] < v->tokens[b]; });
  v->shared.assign(v->sorted.size(), 0);
  for (size_t i = 1; i < v->sorted.size(); i++) {
    const std::string &a = v->tokens[v->sorted[i - 1]], &b = v->tokens[v->sorted[i]];
    size_t n = 0;
    while (n < a.size() && n < b.size() && a[n] == b[n]) n++;
    v->shared[i] = static_cast<uint32_t>(n);
  }
  vocabulary_ = std::move(v);
}

size_t TokenBytes::size() const { return vocabulary_->tokens.size(); }

JsonConstraint::JsonConstraint(const JsonSchema& schema, const TokenBytes& tokens)
    : grammar_(schema.grammar()),
      vocabulary_(tokens.vocabulary()),
      position_(std::make_unique<constraint::Position>(constraint::Position{Machine(*grammar_), {}})),
      masks_(std::make_unique<constraint::MaskCache>(position_->machine, *vocabulary_)) {
  reset();
}
JsonConstraint::~JsonConstraint() = default;
JsonConstraint::JsonConstraint(JsonConstraint&&) noexcept = default;
JsonConstraint& JsonConstraint::operator=(JsonConstraint&&) noexcept = default;

void JsonConstraint::reset() { position_->at = position_->machine.start(); }

std::span<const uint64_t> JsonConstraint::mask() {
  if (position_->machine.frames() > constraint::MaskCache::kMaxFrames) {
    masks_->clear();
    position_->machine.compact(position_->at);
  }
  return masks_->mask(position_->at);
}

bool JsonConstraint::finished() const { return position_->machine.finished(position_->at); }
bool JsonConstraint::exhausted() const { return position_->machine.exhausted(position_->at); }

bool JsonConstraint::accept(size_t token) {
  TG_CHECK(IndexError, token < vocabulary_->tokens.size(), "[json_constraint] got the token ", token, " of ",
           vocabulary_->tokens.size());
  const std::string& bytes = vocabulary_->tokens[token];
  return !bytes.empty() && accept_bytes(bytes);
}

bool JsonConstraint::accept_bytes(std::string_view bytes) {
  Machine::Stacks at = position_->at;
  for (const char c : bytes) {
    at = position_->machine.step(at, static_cast<uint8_t>(c));
    if (at.empty()) return false;
  }
  position_->at = std::move(at);
  return true;
}

}  // namespace tg::llm
