/// \file How long texts may become that the steps of a tokenizer rewrite: a short file can ask for replacements that
/// grow without end, and steps that multiply each other.
#pragma once
#include <cstddef>

#include "tinygrad/base/error.h"

namespace tg::llm {

class GrowthLimit {
 public:
  /// `bytes`: of the text as it was given.
  explicit GrowthLimit(size_t bytes) : most_(kBase + kTimes * bytes) {}
  /// Throws ValueError for a text, or texts together, of more bytes than the limit.
  void check(size_t bytes) const {
    TG_CHECK(ValueError, bytes <= most_, "[tokenizer] got a text that grows too long: more than ", most_, " bytes");
  }

 private:
  static constexpr size_t kBase = size_t{1} << 22, kTimes = 16;
  size_t most_;
};

}  // namespace tg::llm
