/// \file Masks of vocabularies from schemas.
#include "tinygrad/llm/json_constraint.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/constraint/mask_cache.h"

namespace tg::llm {
using constraint::Machine;

JsonSchema::JsonSchema(const Value& schema, const SchemaOptions& options)
    : grammar_(constraint::compile_schema(schema, options)), masks_(std::make_shared<constraint::MaskCaches>()) {}

JsonSchema JsonSchema::any_object(const SchemaOptions& options) {
  return JsonSchema(Value::dict({{Value("type"), Value("object")}}), options);
}

bool JsonSchema::accepts(std::string_view text) const {
  auto machine = std::make_unique<Machine>(*grammar_);
  Machine::Stacks at = machine->start();
  for (const char c : text) {
    at = machine->step(at, static_cast<uint8_t>(c));
    if (at.empty()) return false;
    if (machine->frames() <= constraint::StateTable::kMaxFrames) continue;
    auto fresh = std::make_unique<Machine>(*grammar_);
    at = fresh->import(*machine, at);
    machine = std::move(fresh);
  }
  return machine->finished(at);
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
    : vocabulary_(tokens.vocabulary()),
      masks_(schema.masks()->of(schema.grammar(), vocabulary_)),
      position_(std::make_unique<constraint::Position>(masks_->start())) {}
JsonConstraint::~JsonConstraint() = default;
JsonConstraint::JsonConstraint(JsonConstraint&&) noexcept = default;
JsonConstraint& JsonConstraint::operator=(JsonConstraint&&) noexcept = default;

void JsonConstraint::reset() { *position_ = masks_->start(); }

std::span<const uint64_t> JsonConstraint::mask() {
  mask_ = masks_->mask(*position_);
  return *mask_;
}

bool JsonConstraint::finished() const { return masks_->finished(*position_); }
bool JsonConstraint::exhausted() const { return masks_->exhausted(*position_); }

bool JsonConstraint::accept(size_t token) {
  TG_CHECK(IndexError, token < vocabulary_->tokens.size(), "[json_constraint] got the token ", token, " of ",
           vocabulary_->tokens.size());
  const std::string& bytes = vocabulary_->tokens[token];
  return !bytes.empty() && accept_bytes(bytes);
}

bool JsonConstraint::accept_bytes(std::string_view bytes) { return masks_->accept(*position_, bytes); }

}  // namespace tg::llm
