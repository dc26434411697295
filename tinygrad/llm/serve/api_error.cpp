#include "tinygrad/llm/serve/api_error.h"

#include "tinygrad/llm/value.h"

namespace tg::llm {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  if (status == 413) return "request_too_large";
  if (status == 503) return "overloaded_error";
  return status >= 500 ? "api_error" : error_type(status);
}

}  // namespace

std::string api_error_json(const ApiError& e, ErrorShape shape) {
  if (shape == ErrorShape::kAnthropic) {
    const Value error = Value::dict({{"type", Value(anthropic_type(e.status))}, {"message", Value(e.what())}});
    return Value::dict({{"type", "error"}, {"error", error}}).json(compact_json());
  }
  const auto or_none = [](std::string_view s) { return s.empty() ? Value() : Value(s); };
  const Value error = Value::dict({{"message", Value(e.what())},
                                   {"type", Value(error_type(e.status))},
                                   {"param", or_none(e.param)},
                                   {"code", or_none(e.code)}});
  return Value::dict({{"error", error}}).json(compact_json());
}

std::string api_error_json(int status, std::string_view message, ErrorShape shape) {
  return api_error_json(ApiError(status, std::string(message)), shape);
}

}  // namespace tg::llm
