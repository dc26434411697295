/// \file References of a JSON schema to schemas inside of its document: JSON pointers and anchors, in URIs.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "tinygrad/llm/value.h"

namespace tg::llm::constraint {

class SchemaReferences {
 public:
  /// Finds the anchors of the document, which outlives this.
  explicit SchemaReferences(const Value& document);
  /// Returns the schema that a `$ref` names: "#/$defs/a", "#anchor" or "#", with the document's `$id` before it or
  /// without. ValueError where it leaves the document or names nothing.
  const Value& resolve(std::string_view reference) const;

 private:
  const Value& document_;
  std::string id_;
  std::map<std::string, const Value*, std::less<>> anchors_;
};

}  // namespace tg::llm::constraint
