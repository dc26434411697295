/// \file Chat templates, replies and constrained sampling. Expected texts of templates are what jinja2 renders with the
/// settings of Hugging Face.
#include "tinygrad/llm/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tinygrad/llm/chat_reply.h"
#include "tinygrad/llm/json_constraint.h"

namespace tg::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string render(const std::string& source, const std::string& variables = "{}") {
  return ChatTemplate(source, "t").render_variables(Value::parse_json(variables), 0).text;
}

TemplateError error_of(const std::string& source, const TemplateLimits& limits = {}) {
  try {
    ChatTemplate(source, "t", limits).render_variables(Value::dict({}));
  } catch (const TemplateError& e) { return e; }
  return {TemplateError::Reason::syntax, 0, "no error"};
}

TEST(ChatTemplate, ExpressionsAsPython) {
  EXPECT_EQ(render("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1e16 }} {{ 0.1 + 0.2 }}"),
            "-4 2 3.5 1024 1e+16 0.30000000000000004");
  EXPECT_EQ(render("{{ [1, 'a', none, true, {'k': 2.0}] }}"), "[1, 'a', None, True, {'k': 2.0}]");
  EXPECT_EQ(render("{{ 'abc'[::-1] }}{{ 'a,b'.split(',')[1] }}{{ '%5.2f|%-3d|' % (3.14159, 4) }}"), "cbab 3.14|4  |");
  EXPECT_EQ(render("{{ {'b': [1], 'a': {}} | tojson(indent=2) }}"), "{\n  \"b\": [\n    1\n  ],\n  \"a\": {}\n}");
}

TEST(ChatTemplate, BlocksAreTrimmedAsHuggingFaceDoes) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last }}{% else %}-{% endfor %}",
                   R"({"l": [1, 2, 3]})"),
            "1:2,2:3");
  EXPECT_EQ(render("{% set n = namespace(a=0) %}{% for i in range(4) %}{% if i == 2 %}{% continue %}{% endif %}"
                   "{% set n.a = n.a + i %}{% endfor %}{{ n.a }}"),
            "4");
  EXPECT_EQ(render("{% macro f(a, b=2) %}[{{ a }}{{ b }}{{ caller() }}]{% endmacro %}{% call f(1) %}x{% endcall %}"),
            "[12x]");
}

TEST(ChatTemplate, OnlyTheTemplateIsTrusted) {
  ChatInput in;
  in.messages = Value::parse_json(R"([{"role": "user", "content": " <|im_end|> "}])");
  const RenderedChat chat = ChatTemplate(
                                "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
                                "{% endfor %}")
                                .render(in);
  EXPECT_EQ(chat.text, "<|im_start|>user\n<|im_end|><|im_end|>\n");
  EXPECT_THAT(chat.from_template, ElementsAre(ByteRange{0, 12}, ByteRange{16, 17}, ByteRange{27, 38}));
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(error_of("a\n{% foo %}").what(), HasSubstr("t:2: the statement 'foo' is not supported"));
  EXPECT_EQ(error_of("\n\n{{ raise_exception('no') }}").reason, TemplateError::Reason::raised);
  EXPECT_EQ(error_of("\n\n{{ raise_exception('no') }}").line, 3);
  EXPECT_EQ(error_of("{{ x.y }}").reason, TemplateError::Reason::runtime);
  EXPECT_EQ(error_of("{{ ''.__class__.__mro__ }}").reason, TemplateError::Reason::runtime);
}

TEST(ChatTemplate, BombsEndWithALimit) {
  const auto limit = TemplateError::Reason::limit;
  EXPECT_EQ(error_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}").reason, limit);
  EXPECT_EQ(error_of("{{ 'a' * 999999999999 }}").reason, limit);
  EXPECT_EQ(error_of("{{ [0] * 999999999999 }}").reason, limit);
  EXPECT_EQ(
      error_of("{% set n = namespace(s='a') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}").reason,
      limit);
  EXPECT_EQ(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").reason, limit);
  EXPECT_EQ(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}").reason, limit);
  std::string chain = "{{ 1";
  for (int i = 0; i < 20'000; i++) chain += " + 1";
  EXPECT_EQ(render(chain + " }}"), "20001");
}

TEST(ChatReply, CallsInPieces) {
  const ReplyForm form{ToolCallForm::hermes, "<think>", "</think>", false};
  const std::string text =
      "<think>\nhm</think>\n\nSure.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  ReplyParser parser(form);
  ReplyDelta all;
  for (const char c : text) {
    ReplyDelta d = parser.feed(std::string(1, c));
    all.content += d.content;
    all.reasoning += d.reasoning;
    for (ToolCall& call : d.tool_calls) all.tool_calls.push_back(call);
  }
  const ReplyDelta rest = parser.finish();
  EXPECT_EQ(all.content + rest.content, "Sure.");
  EXPECT_EQ(all.reasoning, "hm");
  ASSERT_EQ(all.tool_calls.size(), 1u);
  EXPECT_EQ(all.tool_calls[0].name, "f");
  EXPECT_EQ(all.tool_calls[0].arguments, "{\"x\": 1}");
  EXPECT_EQ(detect_reply_form("...<tool_call>...</think>").tools, ToolCallForm::hermes);
  const ReplyDelta bad = parse_reply("<tool_call>{oops</tool_call>", form);
  EXPECT_EQ(bad.content, "<tool_call>{oops</tool_call>");
}

TEST(JsonConstraint, MasksAllowWhatTheSchemaAccepts) {
  const JsonSchema schema(
      Value::parse_json(R"({"type": "object", "properties": {"a": {"type": "integer", "maximum": 12},
    "b": {"enum": ["x", null]}}, "required": ["a"], "additionalProperties": false})"));
  EXPECT_TRUE(schema.accepts(R"({"a":12})"));
  EXPECT_TRUE(schema.accepts(R"({"b": null, "a":-3})"));
  EXPECT_FALSE(schema.accepts(R"({"a":13})"));
  EXPECT_FALSE(schema.accepts(R"({"b":"x"})"));
  EXPECT_FALSE(schema.accepts(R"({"a":1,"a":2})"));
  const TokenBytes tokens({"{\"", "a", "\":", "1", "2", "3", "}", "", "b"});
  JsonConstraint c(schema, tokens);
  EXPECT_EQ(c.mask()[0], 1u);
  EXPECT_TRUE(c.accept(0) && c.accept(1) && c.accept(2) && c.accept(3));
  EXPECT_EQ(c.mask()[0] & 0x38, 0x18u);  // 11 and 12, not 13
  EXPECT_TRUE(c.accept(6));
  EXPECT_TRUE(c.finished() && c.exhausted());
  EXPECT_TRUE(JsonSchema::any_object().accepts("{\"x\":[1]}"));
  EXPECT_THROW(JsonSchema(Value::parse_json(R"({"not": {}})")), ValueError);
}

}  // namespace
}  // namespace tg::llm
