/// \file The server of language models with a model that is known: every route over real sockets, and what is wrong
/// with requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "helpers/serve_fixture.h"
#include "tinygrad/base/cancellation.h"

namespace tg::llm {
namespace {

using test::at;
using test::Client;
using test::ClientReply;
using test::events_of;
using test::FakeLanguageModel;
using test::get;
using test::json_of;
using test::post;
using test::Serve;
using test::serve_options;
using test::text_at;

TEST_F(Serve, Models) {
  const Value list = json_of(Client(server->port()).request(get("/v1/models")));
  EXPECT_EQ(text_at(list, "data", 0, "id"), "fake");
  EXPECT_EQ(text_at(json_of(Client(server->port()).request(get("/v1/models/fake"))), "object"), "model");
  EXPECT_EQ(Client(server->port()).request(get("/v1/models/f%61k%65")).status, 200);
  EXPECT_EQ(Client(server->port()).request(get("/v1/models/none")).status, 404);
  EXPECT_EQ(Client(server->port()).request(get("/v1/models/fake%")).status, 404);
  json_of(Client(server->port()).request(get("/v1/models/%ff")));
  EXPECT_EQ(Client(server->port()).request(get("/v1/modelsx")).status, 404);
}

/// Addresses that are joined with a slash too many name the same route.
TEST_F(Serve, SlashesAtTheEndOfPaths) {
  Client c(server->port());
  EXPECT_EQ(text_at(json_of(c.request(get("/v1/models/"))), "object"), "list");
  EXPECT_EQ(text_at(json_of(c.request(get("/v1/models/fake/"))), "object"), "model");
  EXPECT_EQ(c.request(get("/health//")).status, 200);
  EXPECT_EQ(c.request(post("/v1/completions/", R"({"prompt":"x","max_tokens":1})")).status, 200);
  EXPECT_EQ(c.request(get("/v1/completions/")).status, 405);
  EXPECT_EQ(c.request(get("/")).header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(c.request(get("/none/")).status, 404);
}

/// A field that is not known could have changed the answer.
TEST_F(Serve, UnknownFieldsAreRefused) {
  for (const char* field : {"grammar", "guided_json", "min_tokens", "ignore_eos", "functions", "typical_p"}) {
    const Value e = json_of(
        ask("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":"hi"}],")", field, "\":true}")));
    EXPECT_EQ(text_at(e, "error", "param"), field);
    EXPECT_EQ(text_at(e, "error", "code"), "unknown_field");
    EXPECT_EQ(text_at(e, "error", "message"), str(field, ": this server does not know the field"));
    EXPECT_EQ(chat_status(str("\"", field, "\":null")), 200) << "as if absent";
  }
  EXPECT_EQ(param_of(R"("stream_options":{"x":1})"), "stream_options.x");
  EXPECT_EQ(param_of(R"("response_format":{"type":"text","schema":{}})"), "response_format.schema");
  for (const char* route : {"/v1/completions", "/v1/embeddings", "/tokenize"})
    EXPECT_EQ(
        text_at(json_of(ask(route, R"({"prompt":"x","input":"x","content":"x","grammar":"x"})")), "error", "code"),
        "unknown_field")
        << route;
  EXPECT_EQ(chat_status(R"("user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto","prompt_cache_key":"k",)"
                        R"("safety_identifier":"s","cache_prompt":true,"parallel_tool_calls":true)"),
            200);
  EXPECT_EQ(param_of(R"("modalities":["text","audio"])"), "modalities");
  EXPECT_EQ(chat_status(R"("modalities":["text"])"), 200);
}

TEST_F(Serve, Chat) {
  const Value r = chat("");
  EXPECT_EQ(text_at(r, "object"), "chat.completion");
  EXPECT_EQ(text_at(r, "model"), "fake");
  EXPECT_EQ(text_at(r, "choices", 0, "message", "role"), "assistant");
  EXPECT_EQ(text_at(r, "choices", 0, "message", "content"), "You said: hi. Goodbye \xe2\x82\xac!");
  EXPECT_EQ(text_at(r, "choices", 0, "finish_reason"), "stop");
  EXPECT_EQ(at(r, "usage", "prompt_tokens").as_integer(), 1 + 4 + 1 + 2 + 1 + 1 + 1 + 10);
  EXPECT_EQ(at(r, "usage", "completion_tokens").as_integer(), 26);
  const Value again = chat("");
  EXPECT_EQ(at(again, "usage", "prompt_tokens_details", "cached_tokens").as_integer(), 20);
}

TEST_F(Serve, ChatStreamSaysTheSame) {
  const ClientReply r =
      ask("/v1/chat/completions",
          R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(r.status, 200);
  EXPECT_TRUE(r.header("Content-Type").starts_with("text/event-stream"));
  const std::vector<Value> events = events_of(r);
  EXPECT_EQ(text_at(events[0], "choices", 0, "delta", "role"), "assistant");
  std::string text;
  for (size_t i = 0; i + 2 < events.size(); i++) {
    text += text_at(events[i], "choices", 0, "delta", "content");
    EXPECT_TRUE(at(events[i], "choices", 0, "finish_reason").is_none());
    EXPECT_EQ(text_at(events[i], "object"), "chat.completion.chunk");
    EXPECT_EQ(text_at(events[i], "id"), text_at(events[0], "id"));
  }
  EXPECT_EQ(text, "You said: hi. Goodbye \xe2\x82\xac!");
  EXPECT_EQ(text_at(events[events.size() - 2], "choices", 0, "finish_reason"), "stop");
  EXPECT_EQ(at(events.back(), "usage", "completion_tokens").as_integer(), 26);
  EXPECT_EQ(at(events.back(), "choices").size(), 0u);
}

TEST_F(Serve, StopStrings) {
  EXPECT_EQ(text_at(chat(R"("stop":". Good")"), "choices", 0, "message", "content"), "You said: hi");
  const Value r = chat(R"("stop":["zzz","aid: "])");
  EXPECT_EQ(text_at(r, "choices", 0, "message", "content"), "You s");
  EXPECT_EQ(text_at(r, "choices", 0, "finish_reason"), "stop");
  const ClientReply stream =
      ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"stop":"aid: "})");
  std::string text;
  for (const Value& e : events_of(stream))
    if (const Value* c = at(e, "choices", 0, "delta").find(std::string_view("content"))) text += c->as_string();
  EXPECT_EQ(text, "You s");
}

TEST_F(Serve, Lengths) {
  const Value r = chat(R"("max_tokens":5)");
  EXPECT_EQ(text_at(r, "choices", 0, "message", "content"), "You s");
  EXPECT_EQ(text_at(r, "choices", 0, "finish_reason"), "length");
  EXPECT_EQ(text_at(chat(R"("max_completion_tokens":3)"), "choices", 0, "message", "content"), "You");
  // A character cut in the middle is not half of a character.
  EXPECT_EQ(text_at(chat(R"("max_tokens":24)"), "choices", 0, "message", "content"),
            "You said: hi. Goodbye \xef\xbf\xbd");
}

TEST_F(Serve, Choices) {
  const Value r = chat(R"("n":3,"max_tokens":4)");
  ASSERT_EQ(at(r, "choices").size(), 3u);
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(at(r, "choices", i, "index").as_integer(), static_cast<int64_t>(i));
  EXPECT_EQ(at(r, "usage", "completion_tokens").as_integer(), 12);
  EXPECT_EQ(at(r, "usage", "prompt_tokens").as_integer(), 21);
}

TEST_F(Serve, SeedsDecide) {
  model->script = nullptr;
  const auto sample = [&](int seed) {
    return text_at(chat(str(R"("temperature":2,"top_k":0,"top_p":1,"min_p":0,"max_tokens":30,"seed":)", seed)),
                   "choices", 0, "message", "content");
  };
  EXPECT_EQ(sample(1), sample(1));
}

TEST_F(Serve, Logprobs) {
  const Value r = chat(R"("max_tokens":2,"logprobs":true,"top_logprobs":3)");
  const Value& content = at(r, "choices", 0, "logprobs", "content");
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(text_at(content, 0, "token"), "Y");
  EXPECT_EQ(at(content, 0, "bytes", 0).as_integer(), 'Y');
  ASSERT_EQ(at(content, 0, "top_logprobs").size(), 3u);
  EXPECT_EQ(at(content, 0, "top_logprobs", 0, "logprob").as_double(), at(content, 0, "logprob").as_double());
  const Value c = json_of(ask("/v1/completions", R"({"prompt":"ab","max_tokens":2,"logprobs":2})"));
  EXPECT_EQ(at(c, "choices", 0, "logprobs", "tokens").size(), 2u);
  EXPECT_EQ(at(c, "choices", 0, "logprobs", "text_offset", 1).as_integer(), 1);
}

/// Offsets count characters, and tokens that are parts of characters are told apart by their bytes.
TEST_F(Serve, LogprobsOfPartsOfCharacters) {
  model->script = [](const std::string&) { return std::string("\xC3\xA9\xF0\x9F\x98\x80z"); };
  std::string prompt = str("195,169,", test::kFakeStart);
  for (const char c : std::string("assistant\n")) prompt += str(",", static_cast<int>(c));
  const Value c =
      json_of(ask("/v1/completions",
                  str(R"({"prompt":[)", prompt, R"(],"max_tokens":7,"logprobs":20,"echo":true,"temperature":0})")));
  const Value& p = at(c, "choices", 0, "logprobs");
  const std::string text = text_at(c, "choices", 0, "text");
  ASSERT_TRUE(text.starts_with("\xC3\xA9") && text.ends_with("\n\xC3\xA9\xF0\x9F\x98\x80z")) << text;
  const auto before = static_cast<int64_t>(text.size()) - 7 - 1;  // characters of the prompt
  const std::vector<const char*> names = {
      R"(bytes:\xc3)", R"(bytes:\xa9)", R"(bytes:\xf0)", R"(bytes:\x9f)", R"(bytes:\x98)", R"(bytes:\x80)", "z"};
  const std::vector<int64_t> offsets = {0, 1, 1, 2, 2, 2, 2};
  for (size_t i = 0; i < names.size(); i++) {
    EXPECT_EQ(text_at(p, "tokens", i), names[i]);
    EXPECT_EQ(at(p, "text_offset", i).as_integer(), before + offsets[i]) << i;
    EXPECT_EQ(at(p, "top_logprobs", i).size(), 20u);  // none takes the name of another
    EXPECT_EQ(at(p, "top_logprobs", i, names[i]).as_double(), at(p, "token_logprobs", i).as_double());
  }
}

/// A reply that refused comes back in the next turn, as OpenAI's clients keep it: its text in `refusal` or a part.
TEST_F(Serve, RefusalsAreMessages) {
  std::string seen;
  model->script = [&](const std::string& text) {
    seen = text;
    return std::string("ok");
  };
  const auto turn = [&](const char* message) {
    return ask("/v1/chat/completions",
               str(R"({"messages":[{"role":"user","content":"a"},)", message, R"(,{"role":"user","content":"b"}]})"))
        .status;
  };
  EXPECT_EQ(turn(R"({"role":"assistant","content":null,"refusal":"I cannot"})"), 200);
  EXPECT_NE(seen.find("assistant\nI cannot|"), std::string::npos) << seen;
  EXPECT_EQ(turn(R"({"role":"assistant","content":[{"type":"refusal","refusal":"no way"}]})"), 200);
  EXPECT_NE(seen.find("assistant\nno way|"), std::string::npos) << seen;
  EXPECT_EQ(turn(R"({"role":"assistant","content":null,"refusal":3})"), 400);
}

/// Errors name the field that the route has.
TEST_F(Serve, ErrorsNameTheFieldOfTheRoute) {
  const auto param = [&](const char* path, const std::string& body) {
    return text_at(json_of(ask(path, body)), "error", "param");
  };
  EXPECT_EQ(param("/v1/completions", R"({"prompt":""})"), "prompt");
  EXPECT_EQ(param("/v1/completions", str(R"({"prompt":")", std::string(1500, 'x'), "\"}")), "prompt");
  EXPECT_EQ(param("/tokenize", "{}"), "content");
}

TEST_F(Serve, MessagesAreNoSpecialTokens) {
  const Value plain = chat("", "a");
  const Value attack = chat("", "<|im_end|>");
  EXPECT_EQ(at(attack, "usage", "prompt_tokens").as_integer() - at(plain, "usage", "prompt_tokens").as_integer(), 9);
}

TEST_F(Serve, Completions) {
  const std::vector<int32_t> prompt{'o', 'n', 'c', 'e'};
  std::string expected;
  for (const int32_t t : FakeLanguageModel::continuation(prompt, 6)) expected += static_cast<char>(t);
  const Value r = json_of(ask("/v1/completions", R"({"prompt":"once","max_tokens":6})"));
  EXPECT_EQ(text_at(r, "choices", 0, "text"), expected);
  EXPECT_EQ(text_at(r, "object"), "text_completion");
  EXPECT_EQ(text_at(json_of(ask("/v1/completions", R"({"prompt":[111,110,99,101],"max_tokens":6,"echo":true})")),
                    "choices", 0, "text"),
            "once" + expected);
  const Value several = json_of(ask("/v1/completions", R"({"prompt":["once","x"],"max_tokens":6,"n":2})"));
  ASSERT_EQ(at(several, "choices").size(), 4u);
  EXPECT_EQ(text_at(several, "choices", 1, "text"), expected);
  EXPECT_NE(text_at(several, "choices", 2, "text"), expected);
  const ClientReply stream = ask("/v1/completions", R"({"prompt":"once","max_tokens":6,"stream":true})");
  std::string text;
  for (const Value& e : events_of(stream)) text += text_at(e, "choices", 0, "text");
  EXPECT_EQ(text, expected);
}

TEST_F(Serve, JsonSchemasHold) {
  const Value r = chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"c",)"
                       R"("schema":{"type":"object","properties":{"city":{"type":"string"},)"
                       R"("open":{"type":"boolean"}},"required":["city","open"],)"
                       R"("additionalProperties":false}}})");
  const Value o = Value::parse_json(text_at(r, "choices", 0, "message", "content"));
  EXPECT_TRUE(at(o, "city").is_string());
  EXPECT_TRUE(at(o, "open").is_bool());
  EXPECT_EQ(text_at(r, "choices", 0, "finish_reason"), "stop");
  const Value any = chat(R"("response_format":{"type":"json_object"},"max_tokens":100)");
  EXPECT_TRUE(Value::parse_json(text_at(any, "choices", 0, "message", "content")).is_dict());
  // What cannot be enforced is refused, not ignored.
  EXPECT_EQ(chat_status(R"("response_format":{"type":"json_schema","json_schema":{"name":"c",)"
                        R"("schema":{"type":"object","unevaluatedProperties":false}}})"),
            400);
  EXPECT_EQ(chat_status(R"("response_format":{"type":"json_schema","json_schema":{"name":"c"}})"), 400);
  // So is what would take too long to compile, and what has too many readings once a text is drawn.
  std::string many;
  for (int i = 0; i < 70; i++) many += str(i ? "," : "", R"({"type":"string","pattern":"a)", i, R"("})");
  for (const std::string& schema :
       {std::string(R"x({"type":"string","pattern":"(a|b)*a(a|b){60}$"})x"), str(R"({"anyOf":[)", many, "]}")}) {
    const ClientReply refused =
        ask("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":"hi"}],"response_format":{)"
                                        R"("type":"json_schema","json_schema":{"name":"c","schema":)",
                                        schema, "}}}"));
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(text_at(json_of(refused), "error", "code"), "unsupported_schema");
    EXPECT_EQ(text_at(json_of(refused), "error", "param"), "response_format");
  }
  EXPECT_EQ(chat_status(R"("response_format":{"type":"yaml"})"), 400);
}

/// A schema may stand beside the type, as llama.cpp takes it; whatever a format holds is enforced or refused.
TEST_F(Serve, SchemasBesideTheTypeHold) {
  const std::string schema = R"({"type":"object","properties":{"n":{"const":7}},"required":["n"]})";
  const auto reply = [&](const std::string& format) {
    return text_at(chat(str(R"("response_format":)", format)), "choices", 0, "message", "content");
  };
  for (const char* type : {"json_object", "json_schema"})
    EXPECT_EQ(reply(str(R"({"type":")", type, R"(","schema":)", schema, "}")), R"({"n": 7})") << type;
  EXPECT_EQ(param_of(str(R"("response_format":{"type":"json_object","json_schema":)", schema, "}")),
            "response_format.json_schema");
  EXPECT_EQ(
      param_of(str(R"("response_format":{"type":"json_schema","schema":)", schema, R"(,"json_schema":{"schema":{}}})")),
      "response_format.json_schema");
  EXPECT_EQ(param_of(R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"x":1}})"),
            "response_format.json_schema.x");
  EXPECT_EQ(param_of(R"("response_format":{"type":"json_schema"})"), "response_format.schema");
}

constexpr const char* kTools = R"("tools":[{"type":"function","function":{"name":"weather","description":"d",)"
                               R"("parameters":{"type":"object","properties":{"city":{"type":"string"}},)"
                               R"("required":["city"],"additionalProperties":false}}}])";

TEST_F(Serve, RequiredToolsAreCalled) {
  const Value r = chat(str(kTools, R"(,"tool_choice":"required")"));
  const Value& call = at(r, "choices", 0, "message", "tool_calls", 0);
  EXPECT_EQ(text_at(call, "function", "name"), "weather");
  EXPECT_EQ(text_at(call, "type"), "function");
  EXPECT_FALSE(text_at(call, "id").empty());
  EXPECT_TRUE(at(Value::parse_json(text_at(call, "function", "arguments")), "city").is_string());
  EXPECT_EQ(text_at(r, "choices", 0, "finish_reason"), "tool_calls");
  EXPECT_TRUE(at(r, "choices", 0, "message", "content").is_none());
  const ClientReply stream =
      ask("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":"x"}],"stream":true,)", kTools,
                                      R"(,"tool_choice":{"type":"function","function":{"name":"weather"}}})"));
  const std::vector<Value> events = events_of(stream);
  const Value& call_event = events[events.size() - 2];
  EXPECT_EQ(text_at(call_event, "choices", 0, "delta", "tool_calls", 0, "function", "name"), "weather");
  EXPECT_TRUE(at(call_event, "choices", 0, "finish_reason").is_none());
  EXPECT_EQ(text_at(events.back(), "choices", 0, "finish_reason"), "tool_calls");
  EXPECT_EQ(chat_status(str(kTools, R"(,"tool_choice":{"type":"function","function":{"name":"other"}})")), 400);
  EXPECT_EQ(chat_status(R"("tool_choice":"required")"), 400);
}

/// Tools without parameters take an empty object, whichever way they say that they have none.
TEST_F(Serve, ToolsWithoutParameters) {
  for (const char* parameters : {"", R"(,"parameters":null,"description":null,"strict":null)", R"(,"parameters":{})",
                                 R"(,"parameters":{"type":"object","properties":{}})"}) {
    const Value r =
        chat(str(R"("tool_choice":"required","tools":[{"type":"function","function":{"name":"f")", parameters, "}}]"));
    EXPECT_EQ(text_at(r, "choices", 0, "message", "tool_calls", 0, "function", "arguments"), "{}") << parameters;
  }
}

TEST_F(Serve, OneCallEndsTheReplyWhereParallelOnesAreNotWanted) {
  model->script = [](const std::string&) {
    const std::string call = R"(<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>)";
    return call + call + "and more";
  };
  EXPECT_EQ(at(chat(kTools), "choices", 0, "message", "tool_calls").size(), 2u);
  const Value one = chat(str(kTools, R"(,"parallel_tool_calls":false)"));
  EXPECT_EQ(at(one, "choices", 0, "message", "tool_calls").size(), 1u);
  EXPECT_EQ(text_at(one, "choices", 0, "finish_reason"), "tool_calls");
  EXPECT_TRUE(at(one, "choices", 0, "message", "content").is_none());
}

TEST_F(Serve, CallsOfToolsAreFound) {
  model->script = [](const std::string&) {
    return R"(Let me see. <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>)";
  };
  const Value r = chat(kTools);
  EXPECT_EQ(text_at(r, "choices", 0, "message", "tool_calls", 0, "function", "name"), "weather");
  EXPECT_EQ(text_at(r, "choices", 0, "finish_reason"), "tool_calls");
  const Value none = chat(str(kTools, R"(,"tool_choice":"none")"));
  EXPECT_FALSE(at(none, "choices", 0, "message").find(std::string_view("tool_calls")));
  EXPECT_NE(text_at(none, "choices", 0, "message", "content").find("<tool_call>"), std::string::npos);
  const Value answer = json_of(ask("/v1/chat/completions",
                                   R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,)"
                                   R"("tool_calls":[{"id":"1","type":"function","function":{"name":"weather",)"
                                   R"("arguments":"{\"city\":\"Paris\"}"}}]},{"role":"tool","tool_call_id":"1",)"
                                   R"("content":"rain"}]})"));
  EXPECT_EQ(at(answer, "choices").size(), 1u);
}

TEST_F(Serve, Embeddings) {
  const Value r = json_of(ask("/v1/embeddings", R"({"input":["abc","de"],"model":"fake"})"));
  EXPECT_EQ(at(r, "data", 0, "embedding", 0).as_double(), 3);
  EXPECT_EQ(at(r, "data", 1, "embedding", 0).as_double(), 2);
  EXPECT_EQ(at(r, "data", 1, "index").as_integer(), 1);
  EXPECT_EQ(at(r, "usage", "total_tokens").as_integer(), 5);
  const Value packed = json_of(ask("/v1/embeddings", R"({"input":"abc","encoding_format":"base64"})"));
  EXPECT_EQ(text_at(packed, "data", 0, "embedding"), "AABAQAAAAD8AAIC/");
  EXPECT_EQ(status(R"({"input":""})", "/v1/embeddings"), 400);
  EXPECT_EQ(status(R"({"input":[]})", "/v1/embeddings"), 400);
  EXPECT_EQ(status(R"({})", "/v1/embeddings"), 400);
  EXPECT_EQ(status(str(R"({"input":")", std::string(51, 'x'), "\"}"), "/v1/embeddings"), 400);
  EXPECT_EQ(status(R"({"input":"x","encoding_format":"f16"})", "/v1/embeddings"), 400);
  EXPECT_EQ(status(R"({"input":"x","dimensions":2})", "/v1/embeddings"), 400);
}

TEST_F(Serve, Tokens) {
  const Value r = json_of(ask("/tokenize", R"({"content":"a<|im_end|>"})"));
  EXPECT_EQ(at(r, "count").as_integer(), 11);
  EXPECT_EQ(at(r, "tokens", 0).as_integer(), 'a');
  EXPECT_EQ(
      at(json_of(ask("/tokenize", R"({"content":"a<|im_end|>","parse_special":true})")), "tokens", 1).as_integer(),
      test::kFakeEnd);
  EXPECT_EQ(text_at(json_of(ask("/tokenize", R"({"prompt":"a","with_pieces":true})")), "tokens", 0, "piece"), "a");
  EXPECT_EQ(text_at(json_of(ask("/detokenize", R"({"tokens":[226,130,172,33]})")), "content"), "\xe2\x82\xac!");
  EXPECT_EQ(status(R"({"tokens":[1,-1]})", "/detokenize"), 400);
  EXPECT_EQ(status(R"({"tokens":[258]})", "/detokenize"), 400);
  EXPECT_EQ(status(R"({"tokens":"x"})", "/detokenize"), 400);
  EXPECT_EQ(status(R"({})", "/tokenize"), 400);
}

TEST_F(Serve, HealthMetricsPage) {
  Client c(server->port());
  EXPECT_EQ(c.request(get("/health")).body, R"({"status":"ok"})");
  chat("");
  const ClientReply metrics = c.request(get("/metrics"));
  EXPECT_NE(metrics.body.find("tg_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1\n"),
            std::string::npos)
      << metrics.body;
  EXPECT_NE(metrics.body.find("tg_requests_active 0\n"), std::string::npos);
  const ClientReply page = c.request(get("/"));
  EXPECT_TRUE(page.body.starts_with("<!doctype html>"));
  EXPECT_EQ(page.body.find("http"), std::string::npos) << "the page must load nothing from elsewhere";
  EXPECT_NE(page.header("Content-Security-Policy").find("default-src 'none'"), std::string::npos);
}

TEST_F(Serve, PathsAndMethods) {
  Client c(server->port());
  EXPECT_EQ(c.request(get("/none")).status, 404);
  EXPECT_EQ(c.request(get("/../etc/passwd")).status, 404);
  const ClientReply wrong = c.request(get("/v1/chat/completions"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("Allow"), "POST");
  EXPECT_EQ(c.request(post("/health", "{}")).status, 405);
  EXPECT_EQ(c.request("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
                      "Content-Length: 13\r\n\r\n{\"prompt\":\"\"}")
                .status,
            415);
}

TEST_F(Serve, BadFieldsAreNamed) {
  for (const auto& [fields, param] : std::vector<std::pair<const char*, const char*>>{
           {R"("temperature":-0.1)", "temperature"},
           {R"("temperature":"hot")", "temperature"},
           {R"("temperature":1e308)", "temperature"},
           {R"("top_p":1.5)", "top_p"},
           {R"("min_p":-1)", "min_p"},
           {R"("top_k":1.5)", "top_k"},
           {R"("max_tokens":-1)", "max_tokens"},
           {R"("max_tokens":4611686018427387904)", "max_tokens"},
           {R"("max_tokens":1e300)", "max_tokens"},
           {R"("max_tokens":"x")", "max_tokens"},
           {R"("n":0)", "n"},
           {R"("n":17)", "n"},
           {R"("seed":1.5)", "seed"},
           {R"("seed":1e30)", "seed"},
           {R"("stop":"")", "stop"},
           {R"("stop":[1])", "stop"},
           {R"("stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])", "stop"},
           {R"("stream":"yes")", "stream"},
           {R"("stream_options":[])", "stream_options"},
           {R"("stream_options":{"include_usage":1})", "stream_options.include_usage"},
           {R"("top_logprobs":3)", "top_logprobs"},
           {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
           {R"("frequency_penalty":2.1)", "frequency_penalty"},
           {R"("presence_penalty":-3)", "presence_penalty"},
           {R"("logit_bias":{"x":1})", "logit_bias"},
           {R"("logit_bias":{"-1":1})", "logit_bias"},
           {R"("logit_bias":{"258":1})", "logit_bias"},
           {R"("logit_bias":{"1":101})", "logit_bias"},
           {R"("tools":{})", "tools"},
           {R"("tools":[{"type":"x"}])", "tools[0].type"},
           {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name"},
           {R"("tool_choice":"maybe")", "tool_choice"},
           {R"("response_format":"json")", "response_format"},
           {R"("model":5)", "model"},
           {R"("model":"gpt-4")", "model"}})
    EXPECT_EQ(param_of(fields), param) << fields;
  for (const char* null : {"temperature", "max_tokens", "stop", "tools", "n", "seed", "response_format", "logit_bias"})
    EXPECT_EQ(chat_status(str("\"", null, "\":null,\"max_tokens\":2").replace(0, 0, "")),
              std::string_view(null) == "max_tokens" ? 400 : 200)
        << null;  // max_tokens stands there twice
}

TEST_F(Serve, BadMessages) {
  for (const char* messages :
       {"null", "[]", "{}", "\"hi\"", "[1]", "[{}]", R"([{"role":"user"}])", R"([{"role":"king","content":"x"}])",
        R"([{"role":1,"content":"x"}])", R"([{"role":"user","content":5}])", R"([{"role":"user","content":[5]}])",
        R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])",
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])"})
    EXPECT_EQ(status(str("{\"messages\":", messages, "}")), 400) << messages;
  EXPECT_EQ(status(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
                   R"({"type":"text","text":"b"}]}],"max_tokens":1})"),
            200);
  EXPECT_EQ(status(str(R"({"messages":[{"role":"user","content":")", std::string(1500, 'x'), "\"}]}")), 400);
  const Value e = json_of(
      ask("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":")", std::string(1500, 'x'), "\"}]}")));
  EXPECT_EQ(text_at(e, "error", "code"), "context_length_exceeded");
}

TEST_F(Serve, BadJson) {
  const std::vector<std::string> all = {std::string(),
                                        std::string("null"),
                                        std::string("[]"),
                                        std::string("{"),
                                        std::string("{\"messages\":NaN}"),
                                        std::string("{\"a\":1e999}"),
                                        std::string("{\"a\":\"\xff\"}"),
                                        std::string("{\"a\":\"\\ud800\"}"),
                                        std::string("{\"a\":1,\"a\":2}"),
                                        std::string("{\"a\":1}x"),
                                        std::string("{'a':1}"),
                                        std::string("{\"a\":01}"),
                                        std::string("{\"a\":\"\n\"}"),
                                        std::string(20000, '['),
                                        "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}",
                                        std::string("\0", 1)};
  for (const std::string& bad : all) EXPECT_EQ(status(bad), 400) << bad.substr(0, 40);
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 300000; i++) many += ",0";
  EXPECT_EQ(status(many + "]}"), 400);
}

TEST_F(Serve, RequestsThatLeaveNoTokenAreRefused) {
  std::string bans;
  for (int t = 0; t < test::kFakeVocabulary; t++) bans += str(t ? "," : "", '"', t, "\":-100");
  const std::string fields = str(R"("logit_bias":{)", bans, "}");
  EXPECT_EQ(chat_status(fields), 400);
  const ClientReply stream =
      ask("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":"x"}],"stream":true,)", fields, "}"));
  EXPECT_NE(stream.body.find("invalid_request_error"), std::string::npos) << stream.body;
  EXPECT_EQ(chat_status("\"max_tokens\":1"), 200);
}

TEST_F(Serve, AnswersAreBounded) {
  EXPECT_EQ(param_of(R"("n":16,"logprobs":true,"top_logprobs":20)"), "logprobs");
  EXPECT_EQ(chat_status(R"("n":16,"logprobs":true,"top_logprobs":20,"max_tokens":2)"), 200);
  EXPECT_EQ(chat_status(R"("n":16,"logprobs":true,"top_logprobs":20,"stream":true)"), 200);
  EXPECT_EQ(status(str(R"({"content":")", std::string(200'000, 'x'), "\"}"), "/tokenize"), 400);
}

TEST(ServeSetup, MoreRepliesThanTheQueueTakesAreNoMatterOfTime) {
  ServeOptions o = serve_options();
  o.engine.max_queue = 4;
  const LlmServer server(test::served(std::make_shared<FakeLanguageModel>()), o);
  EXPECT_EQ(Client(server.port()).request(post("/v1/completions", R"({"prompt":"x","max_tokens":1,"n":9})")).status,
            400);
  EXPECT_EQ(Client(server.port()).request(post("/v1/completions", R"({"prompt":"x","max_tokens":1,"n":8})")).status,
            200);
}

TEST_F(Serve, FullQueuesSayTryAgain) {
  std::atomic<bool> go{false};
  model->before = [&](const std::string&) {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::vector<std::unique_ptr<Client>> clients;
  const std::string body = post("/v1/completions", R"({"prompt":"x","max_tokens":2,"n":16})");
  for (int i = 0; i < 4; i++) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->send(body);
  }
  const auto taken = [&] { return server->engine_counters().waiting + server->engine_counters().active; };
  for (int i = 0; i < 5000 && taken() < 64; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(taken(), 64);
  const ClientReply r = Client(server->port()).request(body);
  EXPECT_EQ(r.status, 429);
  EXPECT_EQ(r.header("Retry-After"), "1");
  EXPECT_EQ(text_at(json_of(r), "error", "code"), "queue_full");
  // With the last places taken, nothing is put into a request: what is wrong with it is not found.
  const auto places = server->engine_counters().sequences + serve_options().engine.max_queue - taken();
  clients.push_back(std::make_unique<Client>(server->port()));
  clients.back()->send(post("/v1/completions", str(R"({"prompt":"x","max_tokens":2,"n":)", places, "}")));
  for (int i = 0; i < 5000 && taken() < 64 + places; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string broken = R"({"prompt":)";
  for (const char* path : {"/v1/completions", "/v1/chat/completions"})
    EXPECT_EQ(Client(server->port()).request(post(path, broken)).status, 429) << path;
  go = true;
  for (auto& c : clients) EXPECT_EQ(c->read().status, 200);
}

TEST_F(Serve, ClientsThatLeaveCancel) {
  model->before = [](const std::string&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  model->script = [](const std::string&) { return std::string(5000, 'z'); };
  for (const char* stream : {"false", "true"}) {
    const uint64_t before = server->engine_counters().cancelled;
    Client c(server->port());
    c.send(post("/v1/chat/completions",
                str(R"({"messages":[{"role":"user","content":"x"}],"n":2,"stream":)", stream, "}")));
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    c.close();
    for (int i = 0; i < 500 && server->engine_counters().cancelled < before + 2; i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(server->engine_counters().cancelled, before + 2) << stream;
    EXPECT_EQ(server->engine_counters().active, 0);
  }
}

TEST_F(Serve, FailuresOfTheModel) {
  model->before = [](const std::string& call) {
    if (call == "decode") throw OutOfMemoryError("no room");
  };
  const ClientReply r = ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(text_at(json_of(r), "error", "type"), "server_error");
  const ClientReply stream =
      ask("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true})");
  EXPECT_TRUE(stream.complete);
  EXPECT_NE(stream.body.find("\"error\""), std::string::npos);
  model->before = nullptr;
  EXPECT_EQ(chat_status("\"max_tokens\":1"), 200);
}

TEST_F(Serve, StoppingEndsReplies) {
  model->before = [](const std::string&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  model->script = [](const std::string&) { return std::string(5000, 'z'); };
  Client c(server->port());
  c.send(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true})"));
  ASSERT_TRUE(c.receive());
  const auto start = std::chrono::steady_clock::now();
  server.reset();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10);
  while (c.receive()) {}
  size_t pieces = 0;
  for (size_t i = 0; (i = c.received().find("\"content\":\"z\"", i)) != std::string::npos; i++) pieces++;
  EXPECT_GT(pieces, 10u);
}

TEST_F(Serve, ManyClientsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0}, left{0};
  for (int i = 0; i < 32; i++)
    threads.emplace_back([&, i] {
      const std::string text(static_cast<size_t>(1 + i * 3), static_cast<char>('a' + i % 26));
      Client c(server->port(), 60);
      c.send(post("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":")", text,
                                              "\"}],\"stream\":", i % 2 ? "true" : "false", "}")));
      if (i % 3 == 0) {
        left++;
        return;
      }
      const ClientReply r = c.read();
      if (r.status == 200 && (i % 2 || r.body.find("You said: " + text) != std::string::npos)) right++;
      else ADD_FAILURE() << i << " " << r.status << " " << r.body.substr(0, 300);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right + left, 32);
}

/// 10,000 damaged requests; TG_SERVE_FUZZ gives another number. None may give a 5xx, and the server goes on.
TEST_F(Serve, DamagedRequests) {
  const char* given = std::getenv("TG_SERVE_FUZZ");
  const int rounds = given ? std::atoi(given) : 600;
  const std::vector<std::pair<const char*, std::string>> seeds = {
      {"/v1/chat/completions", str(R"({"model":"fake","messages":[{"role":"system","content":"s"},{"role":"user",)"
                                   R"("content":[{"type":"text","text":"hi"}]}],"max_tokens":2,"temperature":0.5,)"
                                   R"("stop":["a"],"seed":1,"n":2,"logprobs":true,"top_logprobs":2,)",
                                   kTools, R"(,"stream":true})")},
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1,)"
                               R"("response_format":{"type":"json_schema","json_schema":{"name":"c",)"
                               R"("schema":{"type":"object","properties":{"a":{"type":"array",)"
                               R"("items":{"$ref":"#"}},"b":{"anyOf":[{"type":"integer","minimum":3},{"enum":["x",)"
                               R"(null]}]},"c":{"type":"string","pattern":"^[a-z]+$"}}}}}})"},
      {"/v1/completions", R"({"prompt":["a","b"],"max_tokens":2,"logit_bias":{"65":-100},"echo":true,"logprobs":1})"},
      {"/v1/embeddings", R"({"input":["a",[1,2]],"encoding_format":"base64"})"},
      {"/tokenize", R"({"content":"abc","add_special":true})"},
      {"/detokenize", R"({"tokens":[1,2,3]})"}};
  const std::vector<std::string> pieces = {"null",
                                           "-1",
                                           "1e400",
                                           "[[[[[[[[",
                                           "{\"a\":",
                                           "\"\\u0000\"",
                                           "true",
                                           "18446744073709551616",
                                           "\"\\ud83d\\ude00\"",
                                           "{}",
                                           "[]",
                                           "0.1e-5",
                                           "\xff",
                                           "{\"$ref\":\"#/x\"}"};
  std::mt19937 random(static_cast<unsigned>(rounds));
  auto c = std::make_unique<Client>(server->port());
  int accepted = 0;
  for (int i = 0; i < rounds; i++) {
    const auto& [path, seed] = seeds[random() % seeds.size()];
    std::string body = seed;
    for (size_t edits = 1 + random() % 5; edits > 0; edits--) {
      const size_t where = random() % body.size();
      switch (random() % 5) {
        case 0: body[where] = static_cast<char>(random()); break;
        case 1: body.insert(where, pieces[random() % pieces.size()]); break;
        case 2: body.erase(where, 1 + random() % 8); break;
        case 3: {  // a value becomes another one
          const size_t colon = body.find(':', where);
          const size_t end = colon == std::string::npos ? colon : body.find_first_of(",}]", colon);
          if (end != std::string::npos) body.replace(colon + 1, end - colon - 1, pieces[random() % pieces.size()]);
          break;
        }
        default: body[where] = "{}[]\",:0123456789"[random() % 17]; break;
      }
      if (body.empty()) body = "{";
    }
    if (!c->connected()) c = std::make_unique<Client>(server->port());
    const ClientReply r = c->request(post(path, body));
    EXPECT_GE(r.status, 200) << path << ' ' << body;
    EXPECT_LT(r.status, 500) << path << ' ' << body << '\n' << r.body;
    accepted += r.status == 200;
    if (r.header("Connection") == "close" || r.status == 0) c = std::make_unique<Client>(server->port());
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, rounds);
  EXPECT_EQ(chat_status("\"max_tokens\":1"), 200);
}

TEST(ServeSetup, DecodersMakeEmbeddings) {
  ServedModel decoder = test::served(std::make_shared<FakeLanguageModel>(2, 100));
  decoder.embed = nullptr;
  const LlmServer server(decoder, serve_options());
  const auto ask = [&](std::string_view body) { return Client(server.port()).request(post("/v1/embeddings", body)); };
  const Value r = json_of(ask(R"({"input":["a",[2,4]],"model":"fake"})"));
  // Vectors of tokens are (token, position, 1).
  const double length = std::sqrt(97.0 * 97 + 1);
  EXPECT_FLOAT_EQ(static_cast<float>(at(r, "data", 0, "embedding", 0).as_double()), static_cast<float>(97 / length));
  const double both = std::sqrt(3.0 * 3 + 0.5 * 0.5 + 1);
  EXPECT_FLOAT_EQ(static_cast<float>(at(r, "data", 1, "embedding", 1).as_double()), static_cast<float>(0.5 / both));
  EXPECT_EQ(at(r, "data", 1, "index").as_integer(), 1);
  EXPECT_EQ(at(r, "usage", "total_tokens").as_integer(), 3);
  EXPECT_EQ(ask(R"({"input":["a",""]})").status, 400);
  EXPECT_EQ(ask(R"({"input":[[1,258]]})").status, 400);
  EXPECT_EQ(ask(R"({"input":"a","dimensions":4})").status, 400);
  EXPECT_EQ(text_at(json_of(ask(str(R"({"input":")", std::string(100, 'x'), "\"}"))), "error", "code"),
            "context_length_exceeded");
}

TEST(ServeSetup, EncodersThatAreBusyKeepNobodyWaiting) {
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  ServedModel slow = test::served(std::make_shared<FakeLanguageModel>());
  slow.embed = [gate](std::span<const std::string> texts) {
    gate.wait();
    return std::vector<std::vector<float>>(texts.size(), {1});
  };
  ServeOptions o = serve_options();
  o.engine.max_queue = 4;
  const LlmServer server(slow, o);
  const std::string body = post("/v1/embeddings", R"({"input":["a","b"]})");
  std::vector<std::unique_ptr<Client>> clients;
  int busy = 0;
  for (int i = 0; i < 8; i++) {
    clients.push_back(std::make_unique<Client>(server.port(), 0.2));
    busy += clients.back()->request(body).status == 429;
  }
  EXPECT_GE(busy, 3);  // one is computed, four wait
  EXPECT_EQ(Client(server.port()).request(get("/health")).status, 200);
  go.set_value();
  int answered = 0;
  for (const auto& c : clients) answered += c->read().status == 200;
  EXPECT_EQ(answered + busy, 8);
}

TEST(ServeSetup, LoadingIsSaid) {
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  LlmServer server(
      [gate] {
        gate.wait();
        return test::served(std::make_shared<FakeLanguageModel>());
      },
      serve_options());
  const ClientReply health = Client(server.port()).request(get("/health"));
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(text_at(json_of(health), "status"), "loading");
  const ClientReply early = Client(server.port()).request(post("/v1/chat/completions", "{}"));
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(early.header("Retry-After"), "1");
  EXPECT_EQ(text_at(json_of(early), "error", "code"), "loading");
  go.set_value();
  ASSERT_TRUE(server.wait_ready());
  EXPECT_EQ(server.model_id(), "fake");
  EXPECT_EQ(Client(server.port()).request(get("/health")).status, 200);
}

TEST(ServeSetup, HealthChecksLeaveAHandlerForOthersWhileLoading) {
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  LlmServer server(
      [gate] {
        gate.wait();
        return test::served(std::make_shared<FakeLanguageModel>());
      },
      serve_options());
  std::vector<std::unique_ptr<Client>> checks;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 60; i++) {
    checks.push_back(std::make_unique<Client>(server.port()));
    checks.back()->send(get("/health"));
  }
  for (auto& c : checks) EXPECT_EQ(c->read().status, 503);
  // One at a time waits for half a second: by twos they would all have waited, for 15 seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
  go.set_value();
  ASSERT_TRUE(server.wait_ready());
}

TEST(ServeSetup, LoadingMayFail) {
  LlmServer server([]() -> ServedModel { throw FormatError("no model"); }, serve_options());
  EXPECT_THROW(server.wait_ready(), FormatError);
  EXPECT_EQ(Client(server.port()).request(get("/health")).status, 503);
}

TEST(ServeSetup, LoadingMayBeStopped) {
  LlmServer server(
      []() -> ServedModel {
        for (int i = 0; i < 1000; i++) {
          Cancellation::check("load");
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return test::served(std::make_shared<FakeLanguageModel>());
      },
      serve_options());
  server.stop();
  EXPECT_FALSE(server.wait_ready());
}

TEST(ServeSetup, ModelsWithoutParts) {
  ServedModel none;
  none.id = "x";
  EXPECT_THROW(LlmServer(none, serve_options()), ValueError);
  ServedModel embeddings = test::served(nullptr);
  embeddings.chat_template.chat = nullptr;
  {
    const LlmServer server(embeddings, serve_options());
    EXPECT_EQ(Client(server.port()).request(post("/v1/embeddings", R"({"input":"x"})")).status, 200);
    EXPECT_EQ(Client(server.port()).request(post("/v1/chat/completions", R"({"messages":[]})")).status, 400);
  }
  ServedModel plain = test::served(std::make_shared<FakeLanguageModel>());
  plain.chat_template.chat = nullptr;
  plain.embed = nullptr;
  const LlmServer server(plain, serve_options());
  EXPECT_EQ(Client(server.port())
                .request(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})"))
                .status,
            400);
  EXPECT_EQ(Client(server.port()).request(post("/v1/completions", R"({"prompt":"x","max_tokens":1})")).status, 200);
}

}  // namespace
}  // namespace tg::llm
