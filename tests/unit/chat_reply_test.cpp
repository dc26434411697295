/// \file Replies: reasoning and calls of tools in every form, whatever the pieces they arrive in.
#include "tinygrad/llm/chat_reply.h"

#include <gtest/gtest.h>

#include <random>

#include "tinygrad/base/error.h"

namespace tg::llm {
namespace {

struct Expected {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
};
struct Case {
  std::string name;
  ToolCallForm form;
  std::string text;
  Expected expected;
  std::string open = "<think>", close = "</think>";
  bool starts_in_reasoning = false;
};

void add(ReplyDelta& all, const ReplyDelta& more) {
  all.content += more.content;
  all.reasoning += more.reasoning;
  all.tool_calls.insert(all.tool_calls.end(), more.tool_calls.begin(), more.tool_calls.end());
}

/// Reads a text in pieces that end at these places.
ReplyDelta in_pieces(const ReplyForm& form, std::string_view text, const std::vector<size_t>& ends) {
  ReplyParser parser(form);
  ReplyDelta all;
  size_t begin = 0;
  for (const size_t end : ends) {
    add(all, parser.feed(text.substr(begin, end - begin)));
    begin = end;
  }
  add(all, parser.feed(text.substr(begin)));
  add(all, parser.finish());
  return all;
}

void expect_same(const ReplyDelta& got, const ReplyDelta& want, const std::string& what) {
  EXPECT_EQ(got.content, want.content) << what;
  EXPECT_EQ(got.reasoning, want.reasoning) << what;
  ASSERT_EQ(got.tool_calls.size(), want.tool_calls.size()) << what;
  for (size_t i = 0; i < got.tool_calls.size(); i++) {
    EXPECT_EQ(got.tool_calls[i].id, want.tool_calls[i].id) << what;
    EXPECT_EQ(got.tool_calls[i].name, want.tool_calls[i].name) << what;
    EXPECT_EQ(got.tool_calls[i].arguments, want.tool_calls[i].arguments) << what;
  }
}

/// Reads in every two pieces, byte by byte, and in random pieces.
void expect_the_same_in_pieces(const ReplyForm& form, std::string_view text, const std::string& what) {
  const ReplyDelta whole = parse_reply(text, form);
  for (size_t cut = 0; cut <= text.size(); cut++)
    expect_same(in_pieces(form, text, {cut}), whole, str(what, ", cut at ", cut));
  std::vector<size_t> all;
  for (size_t i = 1; i < text.size(); i++) all.push_back(i);
  expect_same(in_pieces(form, text, all), whole, what + ", byte by byte");
  std::mt19937 random(7);
  for (int round = 0; round < 100; round++) {
    std::vector<size_t> some;
    for (const size_t i : all)
      if (random() % 4 == 0) some.push_back(i);
    expect_same(in_pieces(form, text, some), whole, what + ", in random pieces");
  }
}

const std::string kSep = "<｜tool▁sep｜>", kBegin = "<｜tool▁call▁begin｜>", kEnd = "<｜tool▁call▁end｜>";

std::vector<Case> cases() {
  using F = ToolCallForm;
  const std::pair<std::string, std::string> f{"f", R"({"x": 1})"}, g{"g", R"({"y": "a b"})"};
  const std::string fj = R"({"name": "f", "arguments": {"x": 1}})", gj = R"({"name": "g", "arguments": {"y": "a b"}})";
  return {
      {"text", F::none, " Hello <tool_call>{} [TOOL_CALLS] ", {"Hello <tool_call>{} [TOOL_CALLS] ", "", {}}},
      {"thought", F::none, "<think>\nhm < hm\n</think>\n\nYes.", {"Yes.", "hm < hm\n", {}}},
      {"thought_begun", F::none, "hm</think>Yes.", {"Yes.", "hm", {}}, "<think>", "</think>", true},
      {"thought_open", F::none, "<think>hm, and", {"", "hm, and", {}}},
      {"hermes",
       F::hermes,
       "Sure.\n<tool_call>\n" + fj + "\n</tool_call>\n<tool_call>" + gj + "</tool_call>",
       {"Sure.\n", "", {f, g}}},
      {"hermes_thought", F::hermes, "<think>a</think>\n<tool_call>" + fj + "</tool_call>\nDone", {"Done", "a", {f}}},
      {"hermes_no_end", F::hermes, "<tool_call>\n" + fj, {"", "", {f}}},
      {"hermes_malformed",
       F::hermes,
       "a<tool_call>{\"name\": </tool_call>b",
       {"a<tool_call>{\"name\": </tool_call>b", "", {}}},
      {"hermes_almost", F::hermes, "a<tool_cal b <tool_call", {"a<tool_cal b <tool_call", "", {}}},
      {"hermes_text_arguments",
       F::hermes,
       R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>)",
       {"", "", {f}}},
      {"hermes_function",
       F::hermes,
       R"(<tool_call>{"type": "function", "function": )" + fj + "}</tool_call>",
       {"", "", {f}}},
      {"xml",
       F::xml,
       "I look.\n<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>\n"
       "<tool_call><function=g><parameter=y>\na b\n</parameter></function></tool_call>",
       {"I look.\n", "", {f, g}}},
      {"xml_bare", F::xml, "<function=g>\n<parameter=y>\na b\n</parameter>\n</function>", {"", "", {g}}},
      {"xml_none", F::xml, "<tool_call><function=h></function></tool_call>", {"", "", {{"h", "{}"}}}},
      {"xml_malformed",
       F::xml,
       "<function=g><parameter=y>1</function>",
       {"<function=g><parameter=y>1</function>", "", {}}},
      {"glm",
       F::glm,
       "<think>a</think>\n<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
       "<tool_call>g\n<arg_key>y</arg_key><arg_value>a b</arg_value></tool_call>",
       {"", "a", {f, g}}},
      {"glm_none", F::glm, "<tool_call>h</tool_call>", {"", "", {{"h", "{}"}}}},
      {"llama3", F::llama3, R"({"name": "f", "parameters": {"x": 1}})", {"", "", {f}}},
      {"llama3_space", F::llama3, " \n{\"name\": \"f\", \"parameters\": {\"x\": 1}}\n", {"", "", {f}}},
      {"llama3_two",
       F::llama3,
       R"({"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {"y": "a b"}})",
       {"", "", {f, g}}},
      {"llama3_tag", F::llama3, R"(<|python_tag|>{"name": "g", "parameters": {"y": "a b"}}<|eom_id|>)", {"", "", {g}}},
      {"llama3_json_text", F::llama3, " {\"answer\": 4} ", {"{\"answer\": 4} ", "", {}}},
      {"llama3_text", F::llama3, "It is {\"name\": \"f\"}.", {"It is {\"name\": \"f\"}.", "", {}}},
      {"mistral", F::mistral, "[TOOL_CALLS] [" + fj + ", " + gj + "]", {"", "", {f, g}}},
      {"mistral_args",
       F::mistral,
       "Wait.[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{\"y\": \"a b\"}",
       {"Wait.", "", {f, g}}},
      {"mistral_malformed", F::mistral, "[TOOL_CALLS]f{}", {"[TOOL_CALLS]f{}", "", {}}},
      {"functionary",
       F::functionary,
       "<function=f>{\"x\": 1}</function><function=g>{\"y\": \"a b\"}</function>",
       {"", "", {f, g}}},
      {"functionary_arrows",
       F::functionary,
       ">>>all\nHello.>>>f\n{\"x\": 1}>>>g\n{\"y\": \"a b\"}",
       {"Hello.", "", {f, g}}},
      {"deepseek",
       F::deepseek,
       "<think>a</think>Let me.<｜tool▁calls▁begin｜>" + kBegin + "function" + kSep + "f\n```json\n{\"x\": 1}\n```" +
           kEnd + "\n" + kBegin + "function" + kSep + "g\n```json\n{\"y\": \"a b\"}\n```" + kEnd +
           "<｜tool▁calls▁end｜>",
       {"Let me.", "a", {f, g}}},
      {"deepseek_v31",
       F::deepseek,
       "<｜tool▁calls▁begin｜>" + kBegin + "f" + kSep + "{\"x\": 1}" + kEnd + "<｜tool▁calls▁end｜>",
       {"", "", {f}}},
      {"command_r",
       F::command_r,
       "Plan.\nAction: ```json\n[{\"tool_name\": \"f\", \"parameters\": {\"x\": 1}}, {\"tool_name\": \"g\", "
       "\"parameters\": {\"y\": \"a b\"}}]\n```",
       {"Plan.\n", "", {f, g}}},
      {"command_r7b",
       F::command_r,
       "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
       "\"parameters\": {\"x\": 1}}]<|END_ACTION|>",
       {"", "a", {f}},
       "<|START_THINKING|>",
       "<|END_THINKING|>"},
      {"command_r7b_text", F::command_r, "<|START_RESPONSE|>Hi.<|END_RESPONSE|>", {"Hi.", "", {}}},
      {"granite", F::granite, "<|tool_call|>[" + fj + "," + gj + "]", {"", "", {f, g}}},
      {"granite_closed", F::granite, "Now <|tool_call|>" + fj + "<|/tool_call|>", {"Now ", "", {f}}},
      {"kimi",
       F::kimi,
       "OK.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"x\": "
       "1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{\"y\": \"a b\"}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       {"OK.", "", {f, g}}},
      {"harmony",
       F::harmony,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
       "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>",
       {"I look.", "Hm.", {f}},
       "<|channel|>analysis<|message|>",
       "<|end|>"},
      {"harmony_role",
       F::harmony,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.g<|channel|>commentary "
       "json<|message|>{\"y\": \"a b\"}<|call|>",
       {"", "Hm.", {g}},
       "<|channel|>analysis<|message|>",
       "<|end|>"},
      {"harmony_final",
       F::harmony,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four.<|return|>",
       {"Four.", "Hm.", {}},
       "<|channel|>analysis<|message|>",
       "<|end|>"},
  };
}

ReplyForm form_of(const Case& c) { return {c.form, c.open, c.close, c.starts_in_reasoning}; }

class Reply : public testing::TestWithParam<Case> {};

TEST_P(Reply, IsRead) {
  const Case& c = GetParam();
  const ReplyDelta got = parse_reply(c.text, form_of(c));
  EXPECT_EQ(got.content, c.expected.content);
  EXPECT_EQ(got.reasoning, c.expected.reasoning);
  ASSERT_EQ(got.tool_calls.size(), c.expected.calls.size()) << got.content;
  for (size_t i = 0; i < got.tool_calls.size(); i++) {
    EXPECT_EQ(got.tool_calls[i].name, c.expected.calls[i].first);
    EXPECT_EQ(got.tool_calls[i].arguments, c.expected.calls[i].second);
    EXPECT_FALSE(got.tool_calls[i].id.empty());
  }
}

TEST_P(Reply, DoesNotDependOnPieces) {
  expect_the_same_in_pieces(form_of(GetParam()), GetParam().text, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Forms, Reply, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST(ReplyParser, EveryFormHasCases) {
  for (int form = 0; form <= static_cast<int>(ToolCallForm::harmony); form++) {
    const auto all = cases();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Case& c) { return static_cast<int>(c.form) == form; }));
  }
}

/// Marks of all forms in random order, under every form.
TEST(ReplyParser, RandomTextsDoNotDependOnPieces) {
  std::vector<std::string> parts = {"<",  ">",       " ",       "\n", "text", "{", "}", "\"name\": \"f\"",
                                    "[]", "<think>", "</think>"};
  for (const Case& c : cases()) {
    for (const std::string& mark : {c.open, c.close}) parts.push_back(mark);
    for (size_t at = 0; at < c.text.size(); at += 9) parts.push_back(c.text.substr(at, 9));
    parts.push_back(c.text);
  }
  std::mt19937 random(11);
  for (int round = 0; round < 400; round++) {
    std::string text;
    for (int i = 0; i < 5; i++) text += parts[random() % parts.size()];
    const auto form = static_cast<ToolCallForm>(random() % 12);
    const bool harmony = form == ToolCallForm::harmony;
    const ReplyForm f{form, harmony ? "<|channel|>analysis<|message|>" : "<think>", harmony ? "<|end|>" : "</think>",
                      random() % 2 == 0};
    const ReplyDelta whole = parse_reply(text, f);
    for (int split = 0; split < 20; split++) {
      std::vector<size_t> ends;
      for (size_t i = 1; i < text.size(); i++)
        if (random() % (split + 1) == 0) ends.push_back(i);
      expect_same(in_pieces(f, text, ends), whole, str("form ", static_cast<int>(form), ": ", text));
    }
  }
}

TEST(ReplyParser, LimitsHold) {
  const ReplyForm form{ToolCallForm::hermes, "", "", false};
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  std::string many;
  for (size_t i = 0; i < ReplyParser::kMaxToolCalls + 3; i++) many += call;
  const ReplyDelta got = parse_reply(many, form);
  EXPECT_EQ(got.tool_calls.size(), ReplyParser::kMaxToolCalls);
  EXPECT_EQ(got.content, call + call + call);
  const std::string longer =
      "<tool_call>" + std::string(ReplyParser::kMaxToolCallBytes, 'x') + "\xc3\xa4</tool_call>" + call;
  const ReplyDelta whole = parse_reply(longer, form);
  EXPECT_EQ(whole.tool_calls.size(), 1u);
  EXPECT_EQ(whole.content, longer.substr(0, longer.size() - call.size()));
  expect_same(in_pieces(form, longer, {100, 1 << 20, (1 << 20) + 1, (1 << 20) + 14}), whole, "a long call");
}

TEST(ReplyForm, IsFoundInTemplates) {
  using F = ToolCallForm;
  EXPECT_EQ(detect_reply_form("<tool_call>...</think>").tools, F::hermes);
  EXPECT_EQ(detect_reply_form("<tool_call><function=x><parameter=y>").tools, F::xml);
  EXPECT_EQ(detect_reply_form("<tool_call><arg_key>").tools, F::glm);
  EXPECT_EQ(detect_reply_form("<|python_tag|>").tools, F::llama3);
  EXPECT_EQ(detect_reply_form("[TOOL_CALLS]").tools, F::mistral);
  EXPECT_EQ(detect_reply_form("<function=").tools, F::functionary);
  EXPECT_EQ(detect_reply_form("'>>>' recipient").tools, F::functionary);
  EXPECT_EQ(detect_reply_form("<｜tool▁call▁begin｜>").tools, F::deepseek);
  EXPECT_EQ(detect_reply_form("Action: ```json").tools, F::command_r);
  EXPECT_EQ(detect_reply_form("<|tool_call|>").tools, F::granite);
  EXPECT_EQ(detect_reply_form("<|tool_call_argument_begin|>").tools, F::kimi);
  EXPECT_EQ(detect_reply_form("<|channel|> to=functions.").tools, F::harmony);
  EXPECT_EQ(detect_reply_form("hello").tools, F::none);
  EXPECT_TRUE(detect_reply_form("</think>", "...<think>\n").starts_in_reasoning);
  EXPECT_FALSE(detect_reply_form("</think>", "...<think>\n</think>").starts_in_reasoning);
}

}  // namespace
}  // namespace tg::llm
