#include "tinygrad/llm/constraint/schema_references.h"

#include <charconv>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/template/marked_text.h"

namespace tg::llm::constraint {
namespace {

/// Returns a token of a JSON pointer with ~1 and ~0 read (RFC 6901, section 3).
std::string unescaped(std::string_view token) {
  std::string name;
  for (size_t i = 0; i < token.size(); i++) {
    const bool escape = token[i] == '~' && i + 1 < token.size();
    name += escape ? (token[++i] == '0' ? '~' : '/') : token[i];
  }
  return name;
}

/// Returns the member of an object or the item of a list that a token names; nullptr when it has none.
const Value* member(const Value& parent, const std::string& name) {
  size_t number = 0;
  const auto r = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool index = parent.is_list() && r.ec == std::errc{} && r.ptr == name.data() + name.size();
  if (index) return number < parent.size() ? &parent.items()[number] : nullptr;
  return parent.find(name);
}

}  // namespace

SchemaReferences::SchemaReferences(const Value& document) : document_(document) {
  if (const Value* id = document.find("$id"); id && id->is_string()) id_ = id->as_string();
  if (id_.ends_with('#')) id_.pop_back();
  std::vector<const Value*> work{&document};
  while (!work.empty()) {
    const Value& v = *work.back();
    work.pop_back();
    if (v.is_list())
      for (const Value& item : v.items()) work.push_back(&item);
    if (!v.is_dict()) continue;
    if (const Value* name = v.find("$anchor"); name && name->is_string()) anchors_.emplace(name->as_string(), &v);
    for (const auto& [key, value] : v.entries()) {
      const bool data = key.as_string() == "enum" || key.as_string() == "const";
      if (!data) work.push_back(&value);
    }
  }
}

const Value& SchemaReferences::resolve(std::string_view reference) const {
  const size_t mark = std::min(reference.find('#'), reference.size());
  const std::string_view base = reference.substr(0, mark);
  TG_CHECK(ValueError, base.empty() || base == id_, "only references inside of the document are supported");
  TG_CHECK(ValueError, !reference.empty(), "the reference is empty");
  const std::string fragment = percent_decoded(reference.substr(std::min(mark + 1, reference.size())));
  if (fragment.empty()) return document_;
  if (fragment[0] != '/') {
    const auto found = anchors_.find(fragment);
    TG_CHECK(ValueError, found != anchors_.end(), "no schema has the $anchor ", python_repr(fragment));
    return *found->second;
  }
  const Value* at = &document_;
  for (size_t i = 0; i < fragment.size();) {
    const size_t end = std::min(fragment.find('/', i + 1), fragment.size());
    at = member(*at, unescaped(std::string_view(fragment).substr(i + 1, end - i - 1)));
    TG_CHECK(ValueError, at, "nothing is at ", python_repr(std::string(reference)));
    i = end;
  }
  return *at;
}

}  // namespace tg::llm::constraint
