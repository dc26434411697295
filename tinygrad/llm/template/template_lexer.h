/// \file Templates as tokens. Space around tags is already trimmed.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/value.h"

namespace tg::llm::jinja {

struct TemplateToken {
  enum class Type : uint8_t {
    data,
    block_begin,
    block_end,
    output_begin,
    output_end,
    name,
    string,
    integer,
    real,
    op,
    end
  };
  Type type;
  int line;
  std::string text;  ///< of strings: what they stand for
  Value value;       ///< of numbers
};

/// Splits a template; TemplateError for tags and strings that do not end, brackets that do not fit and unknown
/// characters.
std::vector<TemplateToken> lex_template(std::string_view source, const std::string& name);

}  // namespace tg::llm::jinja
