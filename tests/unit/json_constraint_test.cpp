/// \file JSON schemas as constraints: what they accept, what they refuse and by which name, masks, limits.
#include "tinygrad/llm/json_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/serve/schema_store.h"

namespace tg::llm {
namespace {

using ::testing::HasSubstr;

JsonSchema schema_of(const std::string& json, const SchemaOptions& options = {}) {
  return JsonSchema(Value::parse_json(json), options);
}

/// Returns what a schema is refused with.
std::string refusal(const std::string& json, const SchemaOptions& options = {}) {
  try {
    schema_of(json, options);
  } catch (const ValueError& e) { return e.what(); }
  return "accepted";
}

struct Accepts {
  std::string schema;
  std::vector<std::string> good, bad;
};

TEST(JsonSchema, KeywordsHold) {
  const std::vector<Accepts> cases = {
      {"true", {"null", "[1, {}]", "\"x\""}, {"", "nul", "[1,]"}},
      {R"({"type": ["string", "null"]})", {"\"\"", "null"}, {"1", "true"}},
      {R"({"type": "integer", "minimum": -5, "exclusiveMaximum": 20})", {"-5", "0", "19"}, {"-6", "20", "1.0", "007"}},
      {R"({"type": "integer", "multipleOf": 7})", {"0", "14", "-7"}, {"13"}},
      {R"({"type": "number", "exclusiveMinimum": 0.25, "maximum": 1})", {"0.26", "1", "1.0"}, {"0.25", "1.01", "1e0"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"\\u00e4\\n\"", "\"\xf0\x9f\x99\x82xy\"", "\"\\ud83d\\ude42x\""},
       {"\"a\"", "\"abcd\"", "\"\\ud83dab\""}},
      {R"({"type": "string", "pattern": "^[a-c]+(x|yz)?$"})", {"\"abcx\"", "\"ayz\""}, {"\"x\"", "\"ay\""}},
      {R"({"type": "string", "pattern": "b{2,3}"})", {"\"abbc\"", "\"bbbb\""}, {"\"ab\""}},
      {R"({"type": "string", "format": "date-time"})",
       {"\"2024-02-28T23:59:59Z\"", "\"1999-12-31T00:00:00.5+02:00\""},
       {"\"2024-02-30T00:00:00Z\"", "\"2024-02-28\""}},
      {R"({"type": "string", "format": "date"})", {"\"2024-04-30\""}, {"\"2024-04-31\""}},
      {R"({"type": "string", "format": "time"})", {"\"12:00:00Z\""}, {"\"24:00:00Z\""}},
      {R"({"type": "string", "format": "uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123\""}},
      {R"({"type": "string", "format": "ipv4"})", {"\"255.0.10.1\""}, {"\"256.0.0.1\""}},
      {R"({"type": "string", "format": "ipv6"})", {"\"fe80:0:0:0:1:2:3:4\""}, {"\"fe80\""}},
      {R"({"type": "string", "format": "hostname"})", {"\"a-b.example.org\""}, {"\"-a\""}},
      {R"({"type": "string", "format": "uri"})", {"\"https://example.org/a/b?c=d#e\""}, {"\"example\""}},
      {R"({"type": "string", "format": "duration"})",
       {"\"P3DT12H\"", "\"PT0S\"", "\"P2W\"", "\"P1Y2M3DT4H5M6S\""},
       {"\"P\"", "\"3D\"", "\"PT\"", "\"P1Y3D\"", "\"P1W2D\""}},
      {R"({"type": "string", "format": "email"})", {"\"a.b@example.org\""}, {"\"a@b\""}},
      {R"({"enum": ["a", 1, null, {"k": [1.5]}]})", {"\"a\"", "1", "null", "{\"k\":[1.5]}"}, {"\"b\"", "1.0"}},
      {R"({"const": "x"})", {"\"x\""}, {"\"y\""}},
      {R"({"enum": ["ab", "abc", "a"], "type": "string"})", {"\"ab\"", "\"abc\"", "\"a\""}, {"\"abcd\""}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})",
       {"[1]", "[1, 2]"},
       {"[]", "[1, 2, 3]", "[\"a\"]"}},
      {R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}})",
       {"[]", "[1]", "[1,2,2]"},
       {"[2]", "[1,1]"}},
      {R"({"type": "array", "prefixItems": [{"const": 1}], "items": false})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]})",
       {R"({"b":1})", R"({"a":null, "b":1})"},
       {"{}", R"({"a":1,"b":1})", R"({"b":1,"c":2})"}},
      {R"({"type": "object", "properties": {}})", {"{}"}, {R"({"a":1})"}},
      {R"({"type": "object", "properties": {"a": true}, "additionalProperties": true})", {R"({"b":1})"}, {"1"}},
      {R"({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}], "type": "object"})",
       {R"({"a":1,"b":2})"},
       {R"({"a":1,"c":2})"}},
      {R"({"type": "object", "additionalProperties": {"type": "boolean"}})", {"{}", R"({"x":true})"}, {R"({"x":1})"}},
      {R"({"type": "object", "properties": {"a": true}, "additionalProperties": false})",
       {"{}", R"({"a":[]})"},
       {R"({"b":1})", R"({"a":1,"a":1})"}},
      {R"({"type": "object", "patternProperties": {"^s_": {"type": "string"}, "_n$": {"type": "integer"}},
           "additionalProperties": false})",
       {"{}", R"({"s_a":"x"})", R"({"b_n":1})"},
       {R"({"s_a":1})", R"({"c":1})", R"({"s_n":1})", R"({"s_n":"x"})"}},
      {R"({"type": "object", "properties": {"n": {"minimum": 3}}, "patternProperties": {"^n": {"type": "integer"}}})",
       {R"({"n":3,"nn":4})"},
       {R"({"n":2})", R"({"n":"x"})", R"({"nn":"x"})", R"({"m":"x"})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})", {"5", "\"a\""}, {"\"ab\"", "null"}},
      {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"5", "\"a\""}, {"null"}},
      {R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5, "minimum": 1}]})", {"3", "5"}, {"2", "6"}},
      {R"({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"next": {"$ref": "#/$defs/t"}},
           "additionalProperties": false}}})",
       {"{}", R"({"next":{"next":{}}})"},
       {R"({"next":1})"}},
  };
  for (const Accepts& c : cases) {
    const JsonSchema schema = schema_of(c.schema);
    for (const std::string& text : c.good) EXPECT_TRUE(schema.accepts(text)) << c.schema << " " << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(schema.accepts(text)) << c.schema << " " << text;
  }
}

/// A reference is a URI whose fragment is percent-encoded, then a JSON pointer (RFC 6901, section 6) or an anchor.
TEST(JsonSchema, ReferencesAreUris) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"List<Int>", "#/$defs/List%3CInt%3E"},
      {"a b", "#/$defs/a%20b"},
      {"\u00e4", "#/$defs/%C3%A4"},
      {"a%b", "#/$defs/a%25b"},
      {"a%b", "#/$defs/a%b"},
      {"a/b", "#/$defs/a~1b"},
      {"a/b", "#/$defs/a%7E1b"},
      {"~", "#/$defs/~0"},
      {"~1", "#/$defs/~01"},
      {"x", "https://e.org/s#/$defs/x"},
      {"x", "#named"},
      {"x", "https://e.org/s#named"},
  };
  for (const auto& [name, reference] : cases) {
    const JsonSchema schema =
        schema_of(str(R"({"$id": "https://e.org/s", "$defs": {"other": {"$anchor": "o"}, ")", name,
                      R"(": {"$anchor": "named", "type": "boolean"}}, "$ref": ")", reference, "\"}"));
    EXPECT_TRUE(schema.accepts("true")) << reference;
    EXPECT_FALSE(schema.accepts("1")) << reference;
  }
  const JsonSchema list = schema_of(R"({"$id": "list#", "type": "object", "required": ["next"],
    "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "list"}]}}})");
  EXPECT_TRUE(list.accepts(R"({"next":{"next":null}})"));
  EXPECT_FALSE(list.accepts(R"({"next":{"next":1}})"));
  EXPECT_TRUE(schema_of(R"({"prefixItems": [{"const": 7}], "items": {"$ref": "#/prefixItems/0"}})").accepts("[7,7]"));
}

/// Formats that have no grammar here, and what strings encode, say nothing about which strings are valid.
TEST(JsonSchema, UnknownFormatsAreAnnotations) {
  for (const char* more : {R"("format": "password")", R"("format": "regex")", R"("contentEncoding": "base64")",
                           R"("contentMediaType": "text/html")", R"("format": "idn-email", "minLength": 1)"})
    EXPECT_TRUE(schema_of(str(R"({"type": "string", )", more, "}")).accepts("\"x\"")) << more;
  const JsonSchema both = schema_of(R"({"type": "string", "format": "password", "pattern": "^a+$"})");
  EXPECT_TRUE(both.accepts("\"aa\""));
  EXPECT_FALSE(both.accepts("\"b\""));
  EXPECT_TRUE(schema_of(R"({"type": "integer", "format": "int32"})").accepts("5"));
}

/// Whatever is not enforced is refused by its name and place.
TEST(JsonSchema, RefusalsNameTheKeywordAndItsPath) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"properties": {"a": {"not": {}}}})", "#/properties/a/not"},
      {R"({"items": {"uniqueItems": true}})", "#/items/uniqueItems"},
      {R"({"if": {}})", "#/if"},
      {R"({"contains": {}})", "#/contains"},
      {R"({"minProperties": 1})", "#/minProperties"},
      {R"({"dependentRequired": {}})", "#/dependentRequired"},
      {R"({"propertyNames": {}})", "#/propertyNames"},
      {R"({"unevaluatedProperties": false})", "#/unevaluatedProperties"},
      {R"({"additionalItems": false})", "#/additionalItems"},
      {R"({"type": "string", "format": 1})", "#/format"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "#/pattern"},
      {R"x({"type": "string", "pattern": "(a)\\1"})x", "#/pattern"},
      {R"({"type": "string", "pattern": "a", "format": "date"})", "#/format"},
      {R"({"type": "number", "multipleOf": 0.1})", "#/multipleOf"},
      {R"({"type": "integer", "minimum": 1e300})", "#/minimum"},
      {R"({"type": "integer", "exclusiveMinimum": true})", "#/exclusiveMinimum"},
      {R"({"type": "thing"})", "#/type"},
      {R"({"minItems": -1})", "#/minItems"},
      {R"({"$ref": "http://x"})", "#/$ref: only references inside of the document are supported"},
      {R"({"$ref": "#/nowhere"})", "#/$ref: nothing is at '#/nowhere'"},
      {R"({"$ref": "#nowhere"})", "#/$ref: no schema has the $anchor 'nowhere'"},
      {R"({"$ref": ""})", "#/$ref: the reference is empty"},
      {R"({"$ref": 1})", "#/$ref: expected a string"},
      {R"({"$ref": "other#/$defs/a", "$id": "this", "$defs": {"a": true}})", "#/$ref: only references inside"},
      {R"({"$ref": "#a", "const": {"$anchor": "a"}})", "no schema has the $anchor 'a'"},
      {R"({"$ref": "#"})", "nothing satisfies"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "pattern"},
      {R"({"allOf": [{"prefixItems": [{}]}, {"items": {}}]})", "prefixItems"},
      {R"({"allOf": [{"patternProperties": {"a": {}}}, {"additionalProperties": false}]})", "patternProperties"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "#/oneOf"},
      {R"({"enum": ["a"], "minLength": 1})", "#/minLength"},
      {R"({"enum": [123456789012345678901234]})", "#/enum"},
      {R"({"enum": 1})", "#/enum"},
      {R"({"properties": 1})", "#/properties"},
      {R"({"required": [1]})", "#/required"},
      {R"x({"patternProperties": {"(": {}}})x", "#/patternProperties"},
      {R"({"properties": {"\u00e4": {}}, "patternProperties": {"a": {}}})", "#/patternProperties"},
      {R"({"properties": {"a": {"$id": "x"}}})", "#/properties/a/$id"},
      {"[]", "a schema is an object or a boolean"},
      {"false", "nothing satisfies"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})", "nothing satisfies"},
  };
  for (const auto& [schema, what] : cases) EXPECT_THAT(refusal(schema), HasSubstr(what)) << schema;
}

TEST(JsonSchema, LimitsHold) {
  SchemaOptions o;
  o.limits.nodes = 3;
  EXPECT_THAT(refusal(R"({"properties": {"a": {}, "b": {}, "c": {}}})", o), HasSubstr("more than 3 schemas"));
  o = {};
  o.limits.properties = 2;
  EXPECT_THAT(refusal(R"({"properties": {"a": {}, "b": {}, "c": {}}})", o), HasSubstr("more than 2"));
  o = {};
  o.limits.automaton_states = 50;
  EXPECT_THAT(refusal(R"({"type": "string", "pattern": "^a{100}$"})", o), HasSubstr("states"));
  EXPECT_THAT(refusal(R"({"const": ")" + std::string(100, 'a') + "\"}", o), HasSubstr("states"));
  o = {};
  o.limits.steps = 1000;
  EXPECT_THAT(refusal(R"({"type": "string", "pattern": "^[a-z]{50}$"})", o), HasSubstr("more than 1000 steps"));
  o = {};
  o.limits.depth = 2;
  EXPECT_FALSE(JsonSchema(Value(true), o).accepts("[[[]]]"));
  EXPECT_TRUE(JsonSchema(Value(true), o).accepts("[[]]"));
  o = {};
  o.limits.alternatives = 4;
  const JsonSchema many =
      schema_of(R"({"anyOf": [{"pattern": "a"}, {"pattern": "b"}, {"pattern": "c"}, {"pattern": "d"},
      {"pattern": "e"}]})",
                o);
  EXPECT_THROW(many.accepts("\"x"), ValueError);
}

std::string repeated(const std::string& what, int times, const std::string& between = ",") {
  std::string out;
  for (int i = 0; i < times; i++) out += (i ? between : "") + what;
  return out;
}

/// Schemas made to be slow are compiled or refused in bounded time.
TEST(JsonSchema, CompilingIsBounded) {
  std::vector<std::string> slow = {
      R"x({"type": "string", "pattern": "(a|b)*a(a|b){14}$"})x",
      R"({"type": "string", "pattern": "(a|b)*a(a|b){60}$"})",
      R"({"type": "string", "pattern": "^(([a-z]{0,30}){0,30}){0,30}$"})",
      R"({"type": "string", "pattern": "[^a]{500}.*b.{500}", "maxLength": 5000})",
      R"({"type": "string", "pattern": "a", "minLength": 90000})",
      R"({"type": "integer", "multipleOf": 997, "minimum": -123456789012345678, "maximum": 123456789012345678})",
      R"({"anyOf": [)" + repeated(R"({"pattern": "(a|b)*a(a|b){10}"})", 100) + "]}",
      R"({"oneOf": [)" + repeated(R"({"const": 1, "properties": {"a": {"const": 1}}})", 3000) + "]}",
      R"({"allOf": [)" + repeated(R"({"properties": {"a": {"type": "string"}}})", 20000) + "]}",
      R"({"patternProperties": {"(a|b)*a(a|b){9}": {}, "(b|c)*b(b|c){9}": {}, "(c|d)*c(c|d){9}": {}}})",
  };
  std::string chain = "{\"$defs\": {";
  for (int i = 0; i < 5000; i++)
    chain += str(i ? "," : "", "\"d", i, "\": {\"anyOf\": [{\"$ref\": \"#/$defs/d", (i + 1) % 5000,
                 "\"}, {\"const\": ", i, "}]}");
  slow.push_back(chain + "}, \"$ref\": \"#/$defs/d0\"}");
  std::string names = "{\"properties\": {";
  for (int i = 0; i < 500; i++) names += str(i ? "," : "", "\"", std::string(150, 'x'), i, "\": {}");
  slow.push_back(names + "}}");
  std::string values = "{\"enum\": [";
  for (int i = 0; i < 9000; i++) values += str(i ? "," : "", "\"value ", i, "\"");
  slow.push_back(values + "]}");
  for (const std::string& schema : slow) {
    const auto start = std::chrono::steady_clock::now();
    const std::string got = refusal(schema);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 20) << schema.substr(0, 100);  // far more than it takes: sanitizers run this too
    RecordProperty(schema.substr(0, 60), str(seconds));
    EXPECT_TRUE(got == "accepted" || got.starts_with("[json_schema]")) << got;
    if (std::getenv("TG_SHOW")) std::printf("%6.3f s  %-60.60s  %.70s\n", seconds, schema.c_str(), got.c_str());
  }
}

/// A vocabulary of words, with all bytes.
std::vector<std::string> vocabulary(size_t size) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; b++) tokens.push_back(std::string(1, static_cast<char>(b)));
  std::mt19937 random(3);
  const std::string letters = "etaoinshrdlucmfwypvbgkjqxz", signs = "{}[]\":,. 0123456789\\\n";
  while (tokens.size() < size) {
    std::string t = random() % 2 ? " " : "";
    const bool word = random() % 10 != 0;
    for (size_t n = 1 + random() % 9; n > 0; n--)
      t += word ? letters[std::min<size_t>(random() % 26, random() % 26)] : signs[random() % signs.size()];
    tokens.push_back(t);
  }
  return tokens;
}

bool allowed(std::span<const uint64_t> mask, size_t token) { return mask[token / 64] >> (token % 64) & 1; }

/// A mask allows a token exactly where its bytes can follow.
TEST(JsonConstraint, MasksEqualTrials) {
  const std::vector<std::string> tokens = vocabulary(3000);
  const TokenBytes bytes(tokens);
  std::mt19937 random(5);
  for (const char* text :
       {"true", R"({"type": "string", "minLength": 3, "maxLength": 12})",
        R"({"type": "string", "pattern": "^[a-z ]+[0-9]*$"})",
        R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "names": {"type": "array",
            "items": {"type": "integer", "maximum": 150}, "maxItems": 3}}, "required": ["name"]})",
        R"({"anyOf": [{"type": "string", "maxLength": 5}, {"type": "string", "minLength": 8},
            {"enum": ["aaaaaa", 12]}]})"}) {
    const JsonSchema schema = schema_of(text);
    JsonConstraint c(schema, bytes), trial(schema_of(text), bytes);
    std::string said;
    for (int step = 0; step < 60 && !c.exhausted(); step++) {
      const std::vector<uint64_t> mask(c.mask().begin(), c.mask().end());
      std::vector<size_t> can;
      for (size_t t = 0; t < tokens.size(); t++)
        if (allowed(mask, t)) can.push_back(t);
      for (int i = 0; i < 60; i++) {
        const size_t t = i % 2 && !can.empty() ? can[random() % can.size()] : random() % tokens.size();
        trial.reset();
        ASSERT_TRUE(trial.accept_bytes(said));
        ASSERT_EQ(trial.accept(t), allowed(mask, t)) << text << " behind " << said << ": " << tokens[t];
      }
      ASSERT_FALSE(can.empty() && !c.finished()) << text;
      if (can.empty()) break;
      const size_t next = can[random() % can.size()];
      ASSERT_TRUE(c.accept(next));
      said += tokens[next];
    }
  }
}

TEST(JsonConstraint, ConstraintsOfOneSchemaShareMasks) {
  const TokenBytes tokens(vocabulary(2000));
  const JsonSchema schema = JsonSchema::any_object();
  JsonConstraint a(schema, tokens), b(schema, tokens);
  EXPECT_EQ(a.mask().data(), b.mask().data());
  EXPECT_TRUE(a.accept_bytes("{\"k\": [1"));
  EXPECT_NE(a.mask().data(), b.mask().data());
  EXPECT_TRUE(b.accept_bytes("{\"k\": [1"));
  EXPECT_EQ(a.mask().data(), b.mask().data());
  SchemaStore store;
  const Value v = Value::parse_json(R"({"type": "object"})");
  EXPECT_EQ(store.compiled(v, {}).masks(), store.compiled(v, {}).masks());
  SchemaOptions ordered;
  ordered.ordered = true;
  EXPECT_NE(store.compiled(v, {}).masks(), store.compiled(v, ordered).masks());
  for (int i = 0; i < 20; i++) store.compiled(Value::dict({{Value("const"), Value(i)}}), {});
  EXPECT_EQ(store.size(), SchemaStore::kMaxSchemas);
}

/// What may come next is found in bounded time; a schema that needs more is refused.
TEST(JsonConstraint, MasksAreBounded) {
  const TokenBytes tokens(vocabulary(2000));
  std::string any;
  for (int i = 0; i < 60; i++) any += str(i ? "," : "", R"({"type": "string", "maxLength": )", 5 + i, "}");
  SchemaOptions o;
  o.limits.mask_steps = 40'000;
  const JsonSchema dear = schema_of(R"({"anyOf": [)" + any + "]}", o);
  for (int i = 0; i < 2; i++) {
    JsonConstraint c(dear, tokens);
    ASSERT_TRUE(c.accept_bytes("\"a"));
    EXPECT_THROW(c.mask(), ConstraintLimitError);
  }
  JsonConstraint one(schema_of(R"({"type": "string", "maxLength": 5})", o), tokens);
  ASSERT_TRUE(one.accept_bytes("\"a"));
  EXPECT_NO_THROW(one.mask());
}

/// Many replies on several threads, and far more states than one table holds.
TEST(JsonConstraint, ThreadsAndFullTables) {
  const TokenBytes tokens(vocabulary(500));
  const JsonSchema schema = schema_of(R"({"type": "array", "items": {"type": "array", "maxItems": 70000}})");
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++)
    threads.emplace_back([&, t] {
      JsonConstraint c(schema, tokens);
      EXPECT_TRUE(c.accept_bytes("[["));
      for (int i = 0; i < 20'000; i++) {
        EXPECT_TRUE(c.accept_bytes(i ? "," : "") && c.accept_bytes(t == 0 ? "1" : "\"x\""));
        if (i % 5000 == 0) EXPECT_FALSE(c.mask().empty());
      }
      EXPECT_TRUE(c.accept_bytes("]]") && c.finished());
      EXPECT_TRUE(c.exhausted());
      c.reset();
      EXPECT_FALSE(c.finished());
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tg::llm
