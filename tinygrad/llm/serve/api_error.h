/// \file Errors of the HTTP API, in the shape OpenAI's clients read.
#pragma once
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

/// Returns {"error": {"message", "type", "param", "code"}}; the type follows from the status.
std::string api_error_json(int status, std::string_view message, std::string_view param = {},
                           std::string_view code = {});
std::string api_error_json(const ApiError& e);

}  // namespace tg::llm
