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

}  // namespace

std::string api_error_json(int status, std::string_view message, std::string_view param, std::string_view code) {
  const auto or_none = [](std::string_view s) { return s.empty() ? Value() : Value(s); };
  const Value error = Value::dict({{"message", Value(message)},
                                   {"type", Value(error_type(status))},
                                   {"param", or_none(param)},
                                   {"code", or_none(code)}});
  return Value::dict({{"error", error}}).json(compact_json());
}

std::string api_error_json(const ApiError& e) { return api_error_json(e.status, e.what(), e.param, e.code); }

}  // namespace tg::llm
