/// \file JSON schemas as grammars. Schemas inside of schemas stand in a queue, so nothing recurses on a client's
/// schema but
/// the merging of two of them, whose depth Value bounds.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <set>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/constraint/schema_grammar.h"
#include "tinygrad/llm/constraint/schema_references.h"
#include "tinygrad/llm/template/marked_text.h"

namespace tg::llm::constraint {
namespace {

/// Returns the expression of the strings of a format; empty for a format that is an annotation only (JSON Schema
/// 2020-12, Validation, section 7.2.1).
std::string format_pattern(std::string_view format) {
  const std::string date =
      "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|"
      "2[0-8]))";
  const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+\\-]([01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  const std::string label = "[a-z0-9]([a-z0-9\\-]{0,20}[a-z0-9])?";
  const std::string host = label + "(\\." + label + "){0,6}";
  // RFC 3339, appendix A: units follow one another, without gaps.
  const std::string n = "(0|[1-9][0-9]{0,3})";
  const std::string hours = str("T(", n, "H(", n, "M(", n, "S)?)?|", n, "M(", n, "S)?|", n, "S)");
  const std::string days = str("(", n, "Y(", n, "M(", n, "D)?)?|", n, "M(", n, "D)?|", n, "D)");
  const std::string url = str("^https?://", host, "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~\\-]*)*",
                              "(\\?[A-Za-z0-9._~=&\\-]*)?(#[A-Za-z0-9._~\\-]*)?$");
  const std::pair<std::string_view, std::string> formats[] = {
      {"date", str("^", date, "$")},
      {"time", str("^", time, "$")},
      {"date-time", str("^", date, "T", time, "$")},
      {"duration", str("^P(", n, "W|", days, "(", hours, ")?|", hours, ")$")},
      {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
      {"ipv4", str("^", octet, "\\.", octet, "\\.", octet, "\\.", octet, "$")},
      {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
      {"email", "^[A-Za-z0-9_+\\-]+(\\.[A-Za-z0-9_+\\-]+)*@[A-Za-z0-9]+(\\-[A-Za-z0-9]+)*(\\.[A-Za-z0-9]+)+$"},
      {"hostname", str("^", host, "$")},
      {"uri", url},
      {"uri-reference", url},
  };
  for (const auto& [name, pattern] : formats)
    if (format == name) return pattern;
  return {};
}

constexpr size_t kMaxKeyPatterns = 16;  ///< of one object's patternProperties
constexpr int kMaxResolutions = 200;    ///< of $ref and allOf in one schema
constexpr size_t kStepsOfSchema = 100;  ///< of a WorkBudget, for a look at one keyword

using Names = std::set<std::string_view>;
const Names kAnnotations = {
    "title",      "description",     "default",          "examples",     "$schema",     "$id",           "$comment",
    "deprecated", "readOnly",        "writeOnly",        "$defs",        "definitions", "discriminator", "strict",
    "$anchor",    "contentEncoding", "contentMediaType", "contentSchema"};
const Names kKeywords = {"type",
                         "enum",
                         "const",
                         "properties",
                         "required",
                         "additionalProperties",
                         "patternProperties",
                         "items",
                         "prefixItems",
                         "minItems",
                         "maxItems",
                         "minLength",
                         "maxLength",
                         "pattern",
                         "format",
                         "minimum",
                         "maximum",
                         "exclusiveMinimum",
                         "exclusiveMaximum",
                         "multipleOf",
                         "anyOf",
                         "oneOf",
                         "allOf",
                         "$ref"};
const std::vector<std::string_view> kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  constexpr std::string_view kPrefix = "[json_schema] ";
  if (what.starts_with(kPrefix)) what.remove_prefix(kPrefix.size());
  throw ValueError(str(kPrefix, path, ": ", what));
}

/// Returns whether a value has a type of this name; numbers without a fraction are integers.
bool has_type(const Value& v, std::string_view type) {
  if (type == "object") return v.is_dict();
  if (type == "array") return v.is_list();
  if (type == "string") return v.is_string();
  if (type == "boolean") return v.is_bool();
  if (type == "null") return v.is_none();
  if (type == "integer") return v.is_integer() || (v.is_real() && v.as_double() == std::floor(v.as_double()));
  return v.is_number();
}

std::vector<std::string> types_of(const Value& schema, const std::string& path) {
  const Value* type = schema.find("type");
  std::vector<std::string> out;
  if (!type) return {"object", "array", "string", "number", "boolean", "null"};
  const Value all = type->is_list() ? *type : Value::list({*type});
  for (const Value& t : all.items()) {
    const bool known = t.is_string() && std::find(kTypes.begin(), kTypes.end(), t.as_string()) != kTypes.end();
    if (!known) fail(path + "/type", "got an unknown type");
    out.push_back(t.as_string());
  }
  return out;
}

/// Joins two schemas into one that holds where both hold.
class Merger {
 public:
  Merger(const std::string& path, WorkBudget& budget) : path_(path), budget_(budget) {}

  Value merge(const Value& a, const Value& b) {
    budget_.spend(kStepsOfSchema);
    if (a.is_bool()) return a.as_bool() ? b : a;
    if (b.is_bool()) return b.as_bool() ? a : b;
    std::vector<Value::Entry> out;
    budget_.spend(kStepsOfSchema * (a.size() + b.size()));
    check_apart(a, b);
    check_apart(b, a);
    for (const auto& [key, value] : a.entries()) {
      const Value* there = b.find_key(key);
      out.emplace_back(key, there ? both(key.as_string(), value, *there, a, b) : value);
    }
    for (const auto& [key, value] : b.entries())
      if (!a.find_key(key)) out.emplace_back(key, value);
    Value merged = Value::dict(std::move(out));
    return closed_properties(a, b, merged);
  }

 private:
  /// Refuses pairs whose keywords mean less once they stand in one schema.
  void check_apart(const Value& a, const Value& b) {
    if (a.find("prefixItems") && b.find("items") && !b.find("prefixItems"))
      fail(path_ + "/prefixItems", "cannot be merged with items of another schema");
    const bool same = a.find("patternProperties") && b.find("patternProperties");
    if (a.find("patternProperties") && b.find("additionalProperties") && !same)
      fail(path_ + "/patternProperties", "cannot be merged with additionalProperties of another schema");
  }
  Value both(const std::string& key, const Value& x, const Value& y, const Value& a, const Value& b) {
    budget_.spend(kStepsOfSchema * (1 + x.size() * (key == "enum" || key == "required" ? y.size() : 1)));
    if (x == y || kAnnotations.contains(key)) return x;
    const bool numbers = x.is_number() && y.is_number();
    if (numbers && (key.starts_with("min") || key == "exclusiveMinimum")) return x.as_double() > y.as_double() ? x : y;
    if (numbers && (key.starts_with("max") || key == "exclusiveMaximum")) return x.as_double() < y.as_double() ? x : y;
    const bool lists = key == "required" || key == "enum";
    if (lists && (!x.is_list() || !y.is_list())) fail(path_ + "/" + key, "expected a list");
    if (key == "properties" && (!x.is_dict() || !y.is_dict())) fail(path_ + "/" + key, "expected an object");
    if (key == "required") return joined(x, y);
    if (key == "enum") return common(x, y);
    if (key == "type") return common_types(a, b);
    if (key == "properties") {
      std::vector<Value::Entry> out;
      for (const auto& [name, value] : x.entries()) {
        const Value* there = y.find_key(name);
        out.emplace_back(name, there ? merge(value, *there) : value);
      }
      for (const auto& [name, value] : y.entries())
        if (!x.find_key(name)) out.emplace_back(name, value);
      return Value::dict(std::move(out));
    }
    if (key == "items" || key == "additionalProperties") return merge(x, y);
    fail(path_, str("two different values of ", key, " cannot be merged"));
  }
  static Value joined(const Value& x, const Value& y) {
    std::vector<Value> out(x.items().begin(), x.items().end());
    for (const Value& v : y.items())
      if (std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
    return Value::list(std::move(out));
  }
  static Value common(const Value& x, const Value& y) {
    std::vector<Value> out;
    for (const Value& v : x.items())
      for (const Value& w : y.items())
        if (v == w) {
          out.push_back(v);
          break;
        }
    return Value::list(std::move(out));
  }
  Value common_types(const Value& a, const Value& b) {
    const auto x = types_of(a, path_), y = types_of(b, path_);
    const auto in = [](const auto& all, std::string_view t) {
      return std::find(all.begin(), all.end(), t) != all.end();
    };
    std::vector<Value> out;
    for (const std::string& t : x)
      if (in(y, t) || (t == "integer" && in(y, "number"))) out.emplace_back(t);
    if (in(x, "number") && in(y, "integer") && !in(x, "integer")) out.emplace_back("integer");
    return Value::list(std::move(out));
  }
  /// Holds properties that one schema names against what the other allows for names it does not know.
  Value closed_properties(const Value& a, const Value& b, const Value& merged) {
    const Value* properties = merged.find("properties");
    if (!properties || (!a.find("additionalProperties") && !b.find("additionalProperties"))) return merged;
    std::vector<Value::Entry> out;
    for (const auto& [name, value] : properties->entries()) {
      Value v = value;
      for (const Value* side : {&a, &b}) {
        const Value* own = side->find("properties");
        const Value* rest = side->find("additionalProperties");
        if (rest && !(own && own->find_key(name))) v = merge(v, *rest);
      }
      out.emplace_back(name, std::move(v));
    }
    std::vector<Value::Entry> all(merged.entries().begin(), merged.entries().end());
    all.emplace_back(Value("properties"), Value::dict(std::move(out)));
    return Value::dict(std::move(all));
  }

  const std::string& path_;
  WorkBudget& budget_;
};

Value without(const Value& schema, std::initializer_list<std::string_view> keys) {
  std::vector<Value::Entry> out;
  for (const auto& [key, value] : schema.entries())
    if (std::find(keys.begin(), keys.end(), key.as_string()) == keys.end()) out.emplace_back(key, value);
  return Value::dict(std::move(out));
}

class Compiler {
 public:
  Compiler(const Value& schema, const SchemaOptions& options)
      : root_(schema), references_(root_), budget_(options.limits.steps) {
    g_.options = options;
  }

  std::shared_ptr<const Grammar> run() {
    TG_CHECK(ValueError, g_.options.limits.depth > 0 && g_.options.limits.depth <= 1000,
             "[json_schema] got a depth of ", g_.options.limits.depth, ", expected 1 to 1000");
    g_.root = node(root_, "#");
    while (!queue_.empty()) {
      const Work w = std::move(queue_.front());
      queue_.pop_front();
      compile(w);
    }
    follow_links();
    measure();
    TG_CHECK(ValueError, g_.depths[static_cast<size_t>(g_.root)] <= g_.options.limits.depth,
             "[json_schema] nothing satisfies the schema (or only text nested more than ", g_.options.limits.depth,
             " deep)");
    return std::make_shared<const Grammar>(std::move(g_));
  }

 private:
  struct Work {
    Value schema;
    std::string path;
    int32_t node;
  };

  int32_t node(const Value& schema, const std::string& path) {
    TG_CHECK(ValueError, g_.nodes.size() < g_.options.limits.nodes, "[json_schema] more than ", g_.options.limits.nodes,
             " schemas");
    const auto id = static_cast<int32_t>(g_.nodes.size());
    g_.nodes.emplace_back();
    links_.emplace_back();
    budget_.spend(kStepsOfSchema + path.size());
    queue_.push_back({schema, path, id});
    return id;
  }
  int32_t any() {
    if (any_ < 0) any_ = node(Value(true), "#");
    return any_;
  }
  void add(int32_t node, Shape s) {
    states_ += s.automaton.states.size();
    TG_CHECK(ValueError, states_ <= g_.options.limits.automaton_states, "[json_schema] more than ",
             g_.options.limits.automaton_states, " states");
    g_.nodes[static_cast<size_t>(node)].push_back(static_cast<int32_t>(g_.shapes.size()));
    g_.shapes.push_back(std::move(s));
  }
  size_t room() const {
    return g_.options.limits.automaton_states - std::min(states_, g_.options.limits.automaton_states) + 1;
  }

  /// Returns the schema that a reference inside of the document names.
  const Value& resolve(const Value& ref, const std::string& path) {
    if (!ref.is_string()) fail(path + "/$ref", "expected a string");
    try {
      return references_.resolve(ref.as_string());
    } catch (const ValueError& e) { fail(path + "/$ref", e.what()); }
  }

  /// Replaces $ref beside other keywords, and allOf, by one schema; a lone $ref becomes a link.
  bool normalize(Work& w) {
    for (int i = 0;; i++) {
      if (i > kMaxResolutions) fail(w.path, "references lead back to themselves");
      if (w.schema.is_bool()) return true;
      if (!w.schema.is_dict()) fail(w.path, "a schema is an object or a boolean");
      for (const auto& [key, value] : w.schema.entries()) {
        const std::string& k = key.as_string();
        const Value* most = w.schema.find("maxItems");
        const bool one = most && most->is_integer() && most->as_integer() <= 1;
        const bool harmless = k == "uniqueItems" && value.is_bool() && (!value.as_bool() || one);
        if (k == "$id" && w.path != "#") fail(w.path + "/$id", "is supported at the root only");
        if (!kKeywords.contains(k) && !kAnnotations.contains(k) && !harmless)
          fail(w.path + "/" + k, "the keyword is not supported");
      }
      const Value* ref = w.schema.find("$ref");
      const Value* all = w.schema.find("allOf");
      if (!ref && !all) return true;
      Value rest = without(w.schema, {"$ref", "allOf"});
      const bool lone = std::all_of(rest.entries().begin(), rest.entries().end(),
                                    [](const auto& e) { return kAnnotations.contains(e.first.as_string()); });
      if (ref && !all && lone) {
        const int32_t to = referred(*ref, w.path);  // which may move links_
        links_[static_cast<size_t>(w.node)].push_back(to);
        return false;
      }
      Merger merger(w.path, budget_);
      if (ref) rest = merger.merge(rest, checked(resolve(*ref, w.path), w.path));
      if (all) {
        if (!all->is_list()) fail(w.path + "/allOf", "expected a list");
        for (const Value& part : all->items()) rest = merger.merge(rest, expanded(part, w.path));
      }
      w.schema = rest;
    }
  }
  static const Value& checked(const Value& v, const std::string& path) {
    if (!v.is_dict() && !v.is_bool()) fail(path, "a schema is an object or a boolean");
    return v;
  }
  /// Returns a part of allOf with its own reference followed, so that two references can be merged.
  Value expanded(const Value& part, const std::string& path) {
    Value v = checked(part, path);
    for (int i = 0; v.is_dict() && (v.find("$ref") || v.find("allOf")); i++) {
      if (i > kMaxResolutions) fail(path, "references lead back to themselves");
      Merger merger(path, budget_);
      Value rest = without(v, {"$ref", "allOf"});
      if (const Value* ref = v.find("$ref")) rest = merger.merge(rest, checked(resolve(*ref, path), path));
      else if (v.find("allOf")->is_list()) {
        for (const Value& inner : v.find("allOf")->items()) rest = merger.merge(rest, checked(inner, path));
        v = rest;
        continue;
      }
      if (const Value* all = v.find("allOf")) {
        if (rest.find("allOf")) fail(path + "/allOf", "two of them cannot be merged");
        rest = merger.merge(rest, Value::dict({{Value("allOf"), *all}}));
      }
      v = rest;
    }
    return v;
  }
  int32_t referred(const Value& ref, const std::string& path) {
    const Value& target = resolve(ref, path);
    const auto [found, added] = by_ref_.try_emplace(ref.as_string(), -1);
    if (added) found->second = &target == &root_ ? g_.root : node(target, ref.as_string());
    return found->second;
  }

  void compile(Work w) {
    if (!normalize(w)) return;
    if (w.schema.is_bool()) {
      if (w.schema.as_bool()) compile_types(w.node, Value::dict({}), w.path);
      return;
    }
    for (std::string_view key : {"anyOf", "oneOf"}) {
      const Value* choice = w.schema.find(key);
      if (!choice) continue;
      if (!choice->is_list() || choice->size() == 0)
        fail(w.path + "/" + std::string(key), "expected a list of schemas");
      const Value base = without(w.schema, {key});
      if (key == "oneOf") check_exclusive(*choice, w.path);
      Merger merger(w.path, budget_);
      size_t i = 0;
      for (const Value& option : choice->items()) {
        const std::string path = str(w.path, "/", key, "/", i++);
        const bool plain = std::all_of(base.entries().begin(), base.entries().end(),
                                       [](const auto& e) { return kAnnotations.contains(e.first.as_string()); });
        const int32_t to = node(plain ? option : merger.merge(base, expanded(option, path)), path);  // may move links_
        links_[static_cast<size_t>(w.node)].push_back(to);
      }
      return;
    }
    if (w.schema.find("enum") || w.schema.find("const")) return compile_values(w);
    compile_types(w.node, w.schema, w.path);
  }

  /// Refuses oneOf whose alternatives a text could satisfy at once.
  void check_exclusive(const Value& choice, const std::string& path) {
    std::vector<Value> options;
    for (const Value& o : choice.items()) options.push_back(expanded(o, path));
    for (size_t i = 0; i < options.size(); i++)
      for (size_t j = 0; j < i; j++)
        if (!exclusive(options[i], options[j], path, 3))
          fail(path + "/oneOf",
               str("alternatives ", j, " and ", i, " may hold at once, which is not supported: use anyOf"));
  }
  static std::vector<Value> values_of(const Value& schema) {
    if (const Value* one = schema.find("const")) return {*one};
    const Value* all = schema.find("enum");
    return all && all->is_list() ? std::vector<Value>(all->items().begin(), all->items().end()) : std::vector<Value>{};
  }
  bool exclusive(const Value& raw_a, const Value& raw_b, const std::string& path, int levels) {
    budget_.spend(kStepsOfSchema * (1 + raw_a.size() + raw_b.size()));
    const Value a = expanded(raw_a, path), b = expanded(raw_b, path);
    if ((a.is_bool() && !a.as_bool()) || (b.is_bool() && !b.as_bool())) return true;
    if (a.is_bool() || b.is_bool()) return false;
    const auto x = values_of(a), y = values_of(b);
    budget_.spend(kStepsOfSchema * (1 + x.size() + y.size()) + x.size() * y.size());
    if (!x.empty() && !y.empty())
      return std::none_of(x.begin(), x.end(),
                          [&](const Value& v) { return std::find(y.begin(), y.end(), v) != y.end(); });
    const auto kinds = [&](const Value& schema, const std::vector<Value>& values) {
      std::set<std::string> out;
      if (values.empty())
        for (const std::string& t : types_of(schema, path)) out.insert(t == "integer" ? "number" : t);
      for (const Value& v : values)
        for (std::string_view t : kTypes)
          if (t != "integer" && has_type(v, t)) out.emplace(t);
      return out;
    };
    const auto p = kinds(a, x), q = kinds(b, y);
    std::vector<std::string> shared;
    std::set_intersection(p.begin(), p.end(), q.begin(), q.end(), std::back_inserter(shared));
    if (shared.empty()) return true;
    if (shared.size() > 1 || shared[0] != "object" || levels == 0) return false;
    const Value *pa = a.find("properties"), *pb = b.find("properties");
    if (!pa || !pb || !pa->is_dict() || !pb->is_dict()) return false;
    for (const auto& [name, value] : pa->entries()) {
      const Value* there = pb->find_key(name);
      if (there && requires_name(a, name) && requires_name(b, name) && exclusive(value, *there, path, levels - 1))
        return true;
    }
    return false;
  }
  static bool requires_name(const Value& schema, const Value& name) {
    const Value* r = schema.find("required");
    return r && r->is_list() && std::find(r->items().begin(), r->items().end(), name) != r->items().end();
  }

  void compile_values(const Work& w) {
    for (const auto& [key, value] : w.schema.entries()) {
      const std::string& k = key.as_string();
      if (k != "enum" && k != "const" && k != "type" && !kAnnotations.contains(k))
        fail(w.path + "/" + k, "is not supported beside enum or const");
    }
    std::vector<Value> values;
    const Value* one = w.schema.find("const");
    const Value* all = w.schema.find("enum");
    if (all && !all->is_list()) fail(w.path + "/enum", "expected a list");
    if (all) values.assign(all->items().begin(), all->items().end());
    if (one && all && std::find(values.begin(), values.end(), *one) == values.end()) return;
    if (one) values = {*one};
    const auto types = types_of(w.schema, w.path);
    std::vector<std::string> texts;
    std::set<std::string> known;
    for (const Value& v : values) {
      if (has_large_integer(v)) fail(w.path + "/enum", "an integer has more than 64 bits");
      const bool fits = std::any_of(types.begin(), types.end(), [&](const std::string& t) { return has_type(v, t); });
      std::string text = v.json(compact_json(), 1 << 20);
      budget_.spend(kStepsOfSchema + text.size());
      if (fits && known.insert(text).second) texts.push_back(std::move(text));
    }
    if (texts.empty()) return;
    add_scalar(w.node, literals(texts, room(), budget_));
  }
  /// Returns whether a number may have been an integer that 64 bits do not hold. Value bounds how deep this goes.
  static bool has_large_integer(const Value& v) {
    if (v.is_real()) return std::fabs(v.as_double()) >= 9.2233720368547758e18;
    if (v.is_list()) return std::any_of(v.items().begin(), v.items().end(), has_large_integer);
    if (!v.is_dict()) return false;
    return std::any_of(v.entries().begin(), v.entries().end(),
                       [](const Value::Entry& e) { return has_large_integer(e.second); });
  }
  void add_scalar(int32_t node, ByteAutomaton a) {
    if (a.states.empty()) return;
    Shape s;
    s.automaton = std::move(a);
    add(node, std::move(s));
  }

  void compile_types(int32_t node, const Value& schema, const std::string& path) {
    const auto types = types_of(schema, path);
    const auto has = [&](std::string_view t) { return std::find(types.begin(), types.end(), t) != types.end(); };
    if (has("null")) add_scalar(node, literals({"null"}, room(), budget_));
    if (has("boolean")) add_scalar(node, literals({"true", "false"}, room(), budget_));
    if (has("number") || has("integer")) compile_number(node, schema, path, !has("number"));
    if (has("string")) compile_string(node, schema, path);
    if (has("array")) compile_array(node, schema, path);
    if (has("object")) compile_object(node, schema, path);
  }

  int64_t count(const Value& schema, std::string_view key, const std::string& path, int64_t absent) {
    const Value* v = schema.find(key);
    if (!v) return absent;
    const bool fits = v->is_integer() && v->as_integer() >= 0 && v->as_integer() <= INT32_MAX;
    if (!fits) fail(path + "/" + std::string(key), "expected a number of 0 or more");
    return v->as_integer();
  }
  /// Returns a bound as a decimal without an exponent.
  static std::string decimal(const Value& v, const std::string& path) {
    if (v.is_integer()) return std::to_string(v.as_integer());
    if (!v.is_real() || !std::isfinite(v.as_double()) || std::fabs(v.as_double()) > 1e18)
      fail(path, "expected a number below 1e18");
    char b[400];
    const auto end = std::to_chars(b, b + sizeof b, v.as_double(), std::chars_format::fixed).ptr;
    return {b, end};
  }
  void compile_number(int32_t node, const Value& schema, const std::string& path, bool integer) {
    NumberRange r;
    r.integer = integer;
    const auto bound = [&](std::string_view key, std::string_view open, std::string& out, bool& is_open, bool low) {
      const Value *v = schema.find(key), *o = schema.find(open);
      if (v) out = decimal(*v, path + "/" + std::string(key));
      if (!o) return;
      const std::string text = decimal(*o, path + "/" + std::string(open));
      if (v && (low ? v->as_double() > o->as_double() : v->as_double() < o->as_double())) return;
      out = text;
      is_open = true;
    };
    bound("minimum", "exclusiveMinimum", r.low, r.low_open, true);
    bound("maximum", "exclusiveMaximum", r.high, r.high_open, false);
    if (const Value* m = schema.find("multipleOf")) {
      const bool fits = integer && m->is_integer() && m->as_integer() > 0 && m->as_integer() <= 1000;
      if (!fits) fail(path + "/multipleOf", "is supported for integers, from 1 to 1000");
      r.multiple_of = static_cast<int32_t>(m->as_integer());
    }
    add_scalar(node, numbers(r, room(), budget_));
  }

  void compile_string(int32_t node, const Value& schema, const std::string& path) {
    const int64_t least = count(schema, "minLength", path, 0), most = count(schema, "maxLength", path, -1);
    const Value *pattern = schema.find("pattern"), *format = schema.find("format");
    if (pattern && !pattern->is_string()) fail(path + "/pattern", "expected a string");
    if (format && !format->is_string()) fail(path + "/format", "expected a string");
    const std::string form = format ? format_pattern(format->as_string()) : std::string();
    if (pattern && !form.empty()) fail(path + "/format", "is not supported beside pattern");
    if (most >= 0 && least > most) return;
    const std::string text = pattern ? pattern->as_string() : form;
    if (!pattern && form.empty()) {
      Shape s;
      s.type = Shape::Type::text;
      s.least = least;
      s.most = most;
      return add(node, std::move(s));
    }
    try {
      add_scalar(node, matching_strings(text, least, most, room(), budget_));
    } catch (const ValueError& e) { fail(path + (pattern ? "/pattern" : "/format"), e.what()); }
  }
  void compile_array(int32_t node_id, const Value& schema, const std::string& path) {
    Shape s;
    s.type = Shape::Type::array;
    s.least = count(schema, "minItems", path, 0);
    s.most = count(schema, "maxItems", path, -1);
    if (s.most >= 0 && s.least > s.most) return;
    if (const Value* first = schema.find("prefixItems")) {
      if (!first->is_list()) fail(path + "/prefixItems", "expected a list");
      for (const Value& v : first->items()) s.items.push_back(node(v, str(path, "/prefixItems/", s.items.size())));
    }
    const Value* items = schema.find("items");
    if (items && items->is_list()) fail(path + "/items", "expected a schema: lists stand in prefixItems");
    const bool none = items && items->is_bool() && !items->as_bool();
    if (!none) s.rest = items ? node(*items, path + "/items") : any();
    add(node_id, std::move(s));
  }

  void compile_object(int32_t node_id, const Value& schema, const std::string& path) {
    Shape s;
    s.type = Shape::Type::object;
    const bool closed = is_closed(schema);
    KeyRules rules;
    if (const Value* properties = schema.find("properties")) {
      if (!properties->is_dict()) fail(path + "/properties", "expected an object");
      for (const auto& [name, value] : properties->entries()) {
        rules.names.push_back(name.as_string());
        const Value own = with_patterns(schema, name.as_string(), value, path);
        s.items.push_back(node(own, path + "/properties/" + name.as_string()));
      }
    }
    s.required.assign(rules.names.size(), false);
    if (!read_required(schema, rules, s, path)) return;
    if (rules.names.size() > g_.options.limits.properties)
      fail(path + "/properties", str("more than ", g_.options.limits.properties));
    const std::vector<ByteAutomaton> patterns = pattern_automata(schema, path);
    for (const ByteAutomaton& p : patterns) rules.patterns.push_back(&p);
    rules.unmatched = !closed;
    rules.others = !closed || !patterns.empty();
    s.automaton = object_keys(rules, room(), budget_);
    add_others(schema, rules, s, path);
    find_reach(s, rules.names.size() + s.others.size());
    add(node_id, std::move(s));
  }
  /// Returns whether an object has the properties that its schema names and no others. Where the schema does not say
  /// so, naming some closes it: else a model could invent further ones without an end.
  static bool is_closed(const Value& schema) {
    const Value* additional = schema.find("additionalProperties");
    if (additional) return additional->is_bool() && !additional->as_bool();
    return schema.find("properties") || schema.find("patternProperties");
  }
  /// Reads `required`; false where something is required that is forbidden.
  bool read_required(const Value& schema, KeyRules& rules, Shape& s, const std::string& path) {
    const Value* required = schema.find("required");
    if (!required) return true;
    if (!required->is_list()) fail(path + "/required", "expected a list");
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < rules.names.size(); i++) places.emplace(rules.names[i], i);
    for (const Value& v : required->items()) {
      if (!v.is_string()) fail(path + "/required", "expected names");
      const auto [found, added] = places.emplace(v.as_string(), rules.names.size());
      if (!added) {
        s.required[found->second] = true;
        continue;
      }
      const Value* patterns = schema.find("patternProperties");
      const bool patterned = patterns && patterns->size() > 0;
      const Value* additional = schema.find("additionalProperties");
      const bool forbidden = additional && additional->is_bool() && !additional->as_bool();
      if (forbidden && !patterned) return false;
      const Value own = with_patterns(schema, v.as_string(), {}, path);
      rules.names.push_back(v.as_string());
      s.items.push_back(own.is_none() ? (additional ? node(*additional, path + "/additionalProperties") : any())
                                      : node(own, path + "/patternProperties"));
      s.required.push_back(true);
    }
    return true;
  }
  /// Returns the automata of the keys that each pattern of patternProperties matches.
  std::vector<ByteAutomaton> pattern_automata(const Value& schema, const std::string& path) {
    std::vector<ByteAutomaton> out;
    const Value* patterns = schema.find("patternProperties");
    if (!patterns) return out;
    if (!patterns->is_dict()) fail(path + "/patternProperties", "expected an object");
    if (patterns->size() > kMaxKeyPatterns)
      fail(path + "/patternProperties", str("more than ", kMaxKeyPatterns, " patterns"));
    for (const auto& [pattern, value] : patterns->entries()) {
      try {
        out.push_back(matching_strings(pattern.as_string(), 0, -1, room(), budget_));
      } catch (const ValueError& e) { fail(path + "/patternProperties", e.what()); }
    }
    return out;
  }
  /// Joins a property's schema with those of the patterns that its name matches. `own` none: the property has none.
  Value with_patterns(const Value& schema, const std::string& name, const Value& own, const std::string& path) {
    const Value* patterns = schema.find("patternProperties");
    if (!patterns || patterns->size() == 0) return own;
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
    if (!plain) fail(path + "/patternProperties", "is supported beside names of printable ASCII only");
    Value all = own;
    Merger merger(path, budget_);
    const std::vector<ByteAutomaton> automata = pattern_automata(schema, path);
    for (size_t i = 0; i < automata.size(); i++) {
      const Value& value = patterns->entries()[i].second;
      if (matches(automata[i], quoted(name)))
        all = all.is_none() ? value : merger.merge(expanded(all, path), expanded(value, path));
    }
    return all;
  }
  static bool matches(const ByteAutomaton& a, std::string_view text) {
    int32_t state = a.states.empty() ? -1 : 0;
    for (const char c : text) {
      if (state < 0) return false;
      state = a.step(state, static_cast<uint8_t>(c));
    }
    return state >= 0 && a.ends(state);
  }
  /// Adds the schemas of keys that are no properties.
  void add_others(const Value& schema, const KeyRules& rules, Shape& s, const std::string& path) {
    if (!rules.others) return;
    const Value* additional = schema.find("additionalProperties");
    const auto rest = [&] { return additional ? node(*additional, path + "/additionalProperties") : any(); };
    if (rules.patterns.empty()) {
      s.others.push_back(rest());
      return;
    }
    const auto patterns = schema.find("patternProperties")->entries();
    for (const std::vector<bool>& group : rules.groups) {
      Value all;
      Merger merger(path, budget_);
      for (size_t i = 0; i < group.size(); i++)
        if (group[i])
          all = all.is_none() ? patterns[i].second
                              : merger.merge(expanded(all, path), expanded(patterns[i].second, path));
      s.others.push_back(all.is_none() ? rest() : node(all, path + "/patternProperties"));
    }
  }
  /// Finds the tags that each state of keys can end in.
  void find_reach(Shape& s, size_t tags) {
    const ByteAutomaton& a = s.automaton;
    s.reach.assign(a.states.size(), std::vector<uint64_t>((tags + 63) / 64, 0));
    for (bool changed = true; changed;) {
      changed = false;
      budget_.spend((a.edges.size() + a.states.size()) * ((tags + 63) / 64));
      for (size_t i = a.states.size(); i-- > 0;) {
        std::vector<uint64_t> all = s.reach[i];
        const int32_t tag = a.states[i].tag;
        if (tag >= 0) all[static_cast<size_t>(tag) / 64] |= uint64_t{1} << (tag % 64);
        for (uint32_t e = a.states[i].begin; e < a.states[i].end; e++)
          for (size_t w = 0; w < all.size(); w++) all[w] |= s.reach[static_cast<size_t>(a.edges[e].to)][w];
        if (all == s.reach[i]) continue;
        s.reach[i] = std::move(all);
        changed = true;
      }
    }
  }

  /// Gives every node the shapes of the nodes it links to, however far.
  void follow_links() {
    for (size_t n = 0; n < links_.size(); n++) {
      if (links_[n].empty()) continue;
      std::set<int32_t> seen{static_cast<int32_t>(n)}, shapes(g_.nodes[n].begin(), g_.nodes[n].end());
      std::vector<int32_t> work(links_[n]);
      while (!work.empty()) {
        const int32_t at = work.back();
        work.pop_back();
        if (!seen.insert(at).second) continue;
        budget_.spend(kStepsOfSchema * (1 + g_.nodes[static_cast<size_t>(at)].size()));
        shapes.insert(g_.nodes[static_cast<size_t>(at)].begin(), g_.nodes[static_cast<size_t>(at)].end());
        work.insert(work.end(), links_[static_cast<size_t>(at)].begin(), links_[static_cast<size_t>(at)].end());
      }
      linked_[n].assign(shapes.begin(), shapes.end());
    }
    for (auto& [n, shapes] : linked_) g_.nodes[n] = std::move(shapes);
  }

  int32_t depth_of(const Shape& s) const {
    if (s.type == Shape::Type::scalar || s.type == Shape::Type::text) return 0;
    int32_t depth = 0;
    const auto need = [&](int32_t node) {
      depth = std::max(depth, node < 0 ? kNever : g_.depths[static_cast<size_t>(node)]);
    };
    if (s.type == Shape::Type::object) {
      for (size_t i = 0; i < s.items.size(); i++)
        if (s.required[i]) need(s.items[i]);
    } else {
      for (size_t i = 0; i < s.items.size() && static_cast<int64_t>(i) < s.least; i++) need(s.items[i]);
      if (s.least > static_cast<int64_t>(s.items.size())) need(s.rest);
    }
    return std::min(depth + 1, kNever);
  }
  /// Finds how deep each shape must nest at least; kNever for one that nothing satisfies.
  void measure() {
    g_.depths.assign(g_.nodes.size(), kNever);
    for (int round = 0; round <= g_.options.limits.depth + 1; round++) {
      bool changed = false;
      for (Shape& s : g_.shapes) {
        const int32_t depth = depth_of(s);
        changed |= depth != s.depth;
        s.depth = depth;
      }
      for (size_t n = 0; n < g_.nodes.size(); n++)
        for (const int32_t s : g_.nodes[n])
          g_.depths[n] = std::min(g_.depths[n], g_.shapes[static_cast<size_t>(s)].depth);
      if (!changed) break;
    }
  }

  Value root_;
  SchemaReferences references_;
  Grammar g_;
  std::deque<Work> queue_;
  std::vector<std::vector<int32_t>> links_;
  std::map<size_t, std::vector<int32_t>> linked_;
  std::map<std::string, int32_t> by_ref_;
  int32_t any_ = -1;
  size_t states_ = 0;
  WorkBudget budget_;
};

}  // namespace

std::shared_ptr<const Grammar> compile_schema(const Value& schema, const SchemaOptions& options) {
  return Compiler(schema, options).run();
}

}  // namespace tg::llm::constraint
