/// \file Chat templates: expected texts are what jinja2 renders with the settings of Hugging Face.
#include "tinygrad/llm/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tinygrad/base/error.h"

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

TEST(ChatTemplate, NumbersAsPythonReadsThem) {
  EXPECT_EQ(
      render("{{ '0x1F' | int(0, 16) }} {{ '0b11' | int(7, 0) }} {{ '010' | int(7, 0) }} {{ 0x1F + 0b11 + 0o17 }}"),
      "31 3 10 49");
  EXPECT_EQ(render("{{ ' -1_000 ' | int }} {{ '3.9' | int }} {{ 'x' | int(5) }} {{ 'inf' | int }} {{ none | int }}"),
            "-1000 3 5 0 0");
  EXPECT_EQ(render("{{ '1_0.5e1' | float }} {{ ' nan' | float }} {{ '1e999' | float }} {{ '-1e-999' | float }}"),
            "105.0 nan inf -0.0");
  EXPECT_EQ(error_of("{{ '99999999999999999999' | int }}").reason, TemplateError::Reason::runtime);
  EXPECT_EQ(error_of("{{ x | int }}").reason, TemplateError::Reason::runtime);
}

TEST(ChatTemplate, FormatsAsPython) {
  EXPECT_EQ(render("{{ '{} {k} {}'.format(1, 'a', k=none) }}|{{ '{0[x]} {0.x!r}'.format({'x': 'y'}) }}"),
            "1 None a|y 'y'");
  EXPECT_EQ(
      render("{{ '{:>6}|{:^7.2f}|{:<4}|{:+05d}|{:,}|{:#x}|{:.1%}'.format('ab', 1.005, 3, 7, 1234567, 255, 0.5) }}"),
      "    ab| 1.00  |3   |+0007|1,234,567|0xff|50.0%");
  EXPECT_EQ(render("{{ '{:{}}|{{}}'.format('a', 3) }}"), "a  |{}");
  for (const char* wrong : {"{}{0}", "{0}{}", "{", "}", "{1}", "{x}", "{:d}", "{:99999}"})
    EXPECT_GT(error_of(str("{{ '", wrong, "'.format('a') }}")).line, 0) << wrong;
}

TEST(ChatTemplate, LettersOfAllScriptsChangeCaseAsInPython) {
  EXPECT_EQ(render("{{ 'ßﬁև' | upper }} {{ 'ßﬁ a'.title() }} {{ 'ẞßΣς'.casefold() }} {{ 'ΑΣ Σ'.lower() }} "
                   "{{ 'aǅB'.swapcase() }}"),
            "SSFIԵՒ Ssﬁ A ssssσσ ας σ Aǅb");
  EXPECT_EQ(render("{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ '½'.isnumeric() }}{{ '三'.isnumeric() }}"
                   "{{ 'Ⅷ'.isupper() }}{{ 'ª'.islower() }}{{ 'ǅa'.istitle() }}{{ '½ a² b' | wordcount }}"),
            "TrueFalseTrueTrueTrueTrueTrue3");
}

TEST(ChatTemplate, SortsKeysThatAreMissing) {
  EXPECT_EQ(render("{{ [{'a': 1}, {'b': 2}] | sort(attribute='c') | length }}"), "2");
  EXPECT_EQ(render("{{ [{'a': 2, 'b': 1}, {'a': 1, 'b': 9}, {'a': 1, 'b': 3}] | sort(attribute='a,b') | "
                   "map(attribute='b') | join }}"),
            "391");
  EXPECT_EQ(error_of("{{ [{'a': 1}, {'b': 2}] | sort(attribute='a') }}").reason, TemplateError::Reason::runtime);
  EXPECT_EQ(render("{% for g in [{'a': 'x'}, {'b': 1}] | groupby('a', default='-') %}{{ g.grouper }}{{ g.list | length "
                   "}}{% endfor %}"),
            "-1x1");
}

TEST(ChatTemplate, LoopsCallThemselves) {
  EXPECT_EQ(render("{% for x in [1, [2, [3]], []] recursive %}{{ loop.depth }}{% if x is iterable %}({{ loop(x) }})"
                   "{% else %}:{{ x }}{% endif %}{% else %}-{% endfor %}"),
            "1:11(2:22(3:3))1(-)");
  EXPECT_EQ(error_of("{% for x in [1] %}{{ loop([2]) }}{% endfor %}").reason, TemplateError::Reason::runtime);
  EXPECT_EQ(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").reason, TemplateError::Reason::limit);
  EXPECT_EQ(render("{% for x in [1, 2] %}{% with %}{% break %}{% endwith %}{{ x }}{% else %}e{% endfor %}"), "e");
}

/// Each limit ends a template with its line.
TEST(ChatTemplate, EveryLimitHasAnError) {
  const auto expect = [](TemplateLimits limits, const std::string& source, const char* what, int line) {
    const TemplateError e = error_of(source, limits);
    EXPECT_EQ(e.reason, TemplateError::Reason::limit) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(what));
    EXPECT_EQ(e.line, line) << e.what();
  };
  expect({.source_bytes = 10}, "01234567890", "at most 10", 1);
  expect({.nesting = 5}, "\n{{ ((((((((1)))))))) }}", "nested more than 5 deep", 2);
  expect({.nesting = 5}, "\n{% if 1 %}{% if 1 %}{% if 1 %}{% if 1 %}{% if 1 %}{% if 1 %}", "nested more than 5 deep",
         2);
  expect({.call_depth = 9}, "{% macro f() %}\n{{ f() }}{% endmacro %}{{ f() }}", "more than 9 deep", 2);
  expect({.steps = 1000}, "\n\n{% for i in range(9999) %}{% endfor %}", "more than 1000 steps", 3);
  expect({.output_bytes = 50}, "\n{% for i in range(99) %}x{% endfor %}", "longer than 50 bytes", 2);
  expect({.value_bytes = 5000}, "\n{{ range(9999) | list | length }}", "more than 5000 bytes", 2);
  expect({}, "\n{{ ('a' * 9000000).split('a') | length }}", "bytes", 2);
  expect({}, "\n{{ ('a ' * 4000000).split() | length }}", "bytes", 2);
  expect({}, "\n{{ ('a\\n' * 4000000).splitlines() | length }}", "bytes", 2);
  expect({}, "{% set d = dict(range(9998) | batch(2)) %}\n{% for i in range(99999) %}{{ i in d }}{% endfor %}", "steps",
         2);
  expect({}, "\n{{ range(100001) }}", "longer than 100000", 2);
  expect({}, "\n{{ '%9999d' % 1 }}", "too wide", 2);
  expect({}, "{% set ns = namespace() %}{% set ns.own = ns %}\n{{ ns }}", "levels", 2);
}

/// A line is named wherever a template breaks.
TEST(ChatTemplate, ErrorsOfEveryKindNameTheLine) {
  for (const char* source : {"{{ 1 +",
                             "{{ 'a",
                             "{# a",
                             "{% raw %}",
                             "{% if 1 %}",
                             "{% endif %}",
                             "{{ 1 | nope }}",
                             "{{ 1 is nope }}",
                             "{{ a.b.c }}",
                             "{{ [1][{}].x }}",
                             "{{ 1 // 0 }}",
                             "{{ 'a' + 1 }}",
                             "{{ {}['x'].y }}",
                             "{% set x.y = 1 %}",
                             "{{ f() }}",
                             "{{ 'a'.foo() }}",
                             "{% for a, b in [[1]] %}{% endfor %}",
                             "{{ [1] | join(1, 2, 3) }}",
                             "{% include 'x' %}",
                             "{{ 'x'.encode() }}",
                             "{{ 1 if }}",
                             "{{ a b }}",
                             "{% for %}",
                             "{% macro f(a=1, b) %}{% endmacro %}",
                             "{{ {1: } }}",
                             "{{ f(a=1, 2) }}"}) {
    const TemplateError e = error_of(str("line one\n\n", source));
    EXPECT_EQ(e.line, 3) << source << ": " << e.what();
    EXPECT_THAT(e.what(), HasSubstr("t:3: ")) << source;
  }
}

}  // namespace
}  // namespace tg::llm
