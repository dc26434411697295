/// \file Errors of the HTTP API, in the shapes that clients read.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "tinygrad/base/error.h"

namespace tg::llm {

/// A request that is refused, or that failed: a status, and what the body says.
struct ApiError : Error {
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : Error(message), status(status), param(std::move(param)), code(std::move(code)) {}
  int status;
  std::string param;  ///< the field that is wrong; empty: none
  std::string code;   ///< for programs, such as "context_length_exceeded"; empty: none
};

/// Whose clients read an error.
enum class ErrorShape : uint8_t {
  kOpenAi,    ///< {"error": {"message", "type", "param", "code"}}
  kAnthropic  ///< {"type": "error", "error": {"type", "message"}}
};

/// Returns the body of an answer that says an error; the type follows from the status.
std::string api_error_json(const ApiError& e, ErrorShape shape = ErrorShape::kOpenAi);
std::string api_error_json(int status, std::string_view message, ErrorShape shape = ErrorShape::kOpenAi);

}  // namespace tg::llm
