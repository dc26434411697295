/// \file The JSON schemas that requests brought lately.
#include "tinygrad/llm/serve/schema_store.h"

#include <algorithm>

#include "tinygrad/base/error.h"

namespace tg::llm {

JsonSchema SchemaStore::compiled(const Value& schema, const SchemaOptions& options) {
  const std::string key = str(options.ordered, static_cast<int>(options.spacing), schema.json(compact_json()));
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& e) { return e.first == key; });
    if (found != all_.end()) {
      all_.splice(all_.begin(), all_, found);
      return found->second;
    }
  }
  JsonSchema made(schema, options);
  if (key.size() > kMaxSchemaBytes) return made;
  const std::lock_guard lock(mutex_);
  all_.emplace_front(key, made);
  if (all_.size() > kMaxSchemas) all_.pop_back();
  return made;
}

size_t SchemaStore::size() const {
  const std::lock_guard lock(mutex_);
  return all_.size();
}

}  // namespace tg::llm
