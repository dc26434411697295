#include "tinygrad/llm/serve/api_fields.h"

#include <cmath>

#include "tinygrad/base/contains.h"
#include "tinygrad/llm/serve/api_error.h"

namespace tg::llm {

ApiFields::ApiFields(const Value& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_dict())
    throw ApiError(400, str(path_.empty() ? "the body" : path_, " must be an object, got ", kind_name(object.kind())),
                   path_);
}

const Value* ApiFields::find(std::string_view name) const {
  asked_.emplace(name);
  const Value* v = object_.find(name);
  return v && !v->is_none() ? v : nullptr;
}

void ApiFields::refuse_others(std::span<const std::string_view> ignored) const {
  for (const auto& [key, value] : object_.entries()) {
    const std::string& name = key.as_string();
    if (value.is_none() || asked_.contains(name) || contains(ignored, name)) continue;
    throw ApiError(400, str(path_of(name), ": this server does not know the field"), path_of(name), "unknown_field");
  }
}

std::string ApiFields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : str(path_, ".", name);
}

void ApiFields::refuse(std::string_view name, std::string_view expected) const {
  const Value* v = find(name);
  const std::string path = path_of(name);
  throw ApiError(400, str(path, ": expected ", expected, ", got ", v ? kind_name(v->kind()) : "nothing"), path);
}

std::string ApiFields::text(std::string_view name, std::string_view missing) const {
  const Value* v = find(name);
  if (!v) return std::string(missing);
  if (!v->is_string()) refuse(name, "a string");
  return v->as_string();
}

std::string ApiFields::required_text(std::string_view name) const {
  if (!find(name)) refuse(name, "a string");
  return text(name);
}

bool ApiFields::flag(std::string_view name, bool missing) const {
  const Value* v = find(name);
  if (!v) return missing;
  if (!v->is_bool()) refuse(name, "true or false");
  return v->as_bool();
}

int64_t ApiFields::integer(std::string_view name, int64_t least, int64_t greatest, int64_t missing) const {
  const Value* v = find(name);
  if (!v) return missing;
  const std::string expected = str("an integer from ", least, " to ", greatest);
  if (v->is_real() && v->as_double() != std::floor(v->as_double())) refuse(name, expected);
  if (!v->is_number()) refuse(name, expected);
  const double d = v->as_double();
  const bool exact = v->is_integer() || std::abs(d) < 9e15;
  const int64_t n = v->is_integer() ? v->as_integer() : exact ? static_cast<int64_t>(d) : 0;
  if (!exact || n < least || n > greatest)
    throw ApiError(400, str(path_of(name), ": expected ", expected, ", got ", v->json()), path_of(name));
  return n;
}

double ApiFields::number(std::string_view name, double least, double greatest, double missing) const {
  const Value* v = find(name);
  if (!v) return missing;
  const std::string expected = str("a number from ", least, " to ", greatest);
  if (!v->is_number()) refuse(name, expected);
  const double d = v->as_double();
  if (!(d >= least && d <= greatest))
    throw ApiError(400, str(path_of(name), ": expected ", expected, ", got ", v->json()), path_of(name));
  return d;
}

std::vector<std::string> ApiFields::texts(std::string_view name, size_t max_items, size_t max_bytes) const {
  const Value* v = find(name);
  if (!v) return {};
  const std::string expected =
      str("a string of 1 to ", max_bytes, " bytes, or a list of up to ", max_items, " such strings");
  std::vector<std::string> all;
  const auto add = [&](const Value& item) {
    if (!item.is_string() || item.as_string().empty() || item.as_string().size() > max_bytes) refuse(name, expected);
    all.push_back(item.as_string());
  };
  if (v->is_string()) {
    add(*v);
  } else {
    if (!v->is_list() || v->size() > max_items) refuse(name, expected);
    for (const Value& item : v->items()) add(item);
  }
  return all;
}

std::optional<Value> ApiFields::object(std::string_view name) const {
  const Value* v = find(name);
  if (!v) return {};
  if (!v->is_dict()) refuse(name, "an object");
  return *v;
}

std::optional<Value> ApiFields::list(std::string_view name, size_t max_items) const {
  const Value* v = find(name);
  if (!v) return {};
  if (!v->is_list() || v->size() > max_items) refuse(name, str("a list of up to ", max_items, " items"));
  return *v;
}

void refuse_field(const std::string& path, std::string_view what) { throw ApiError(400, str(path, ": ", what), path); }

std::vector<int32_t> api_tokens(const Value& list, int64_t vocabulary, const std::string& path) {
  if (!list.is_list()) throw ApiError(400, str(path, ": expected a list of tokens"), path);
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const Value& v : list.items()) {
    if (!v.is_integer() || v.as_integer() < 0 || v.as_integer() >= vocabulary)
      throw ApiError(400, str(path, ": expected tokens from 0 to ", vocabulary - 1), path);
    tokens.push_back(static_cast<int32_t>(v.as_integer()));
  }
  return tokens;
}

}  // namespace tg::llm
