/// \file The APIs that are translated to chats, /v1/responses and /v1/messages, and /v1/rerank: requests, answers whole
/// and as streams, calls of tools, counts, ends, and errors in the shape of each API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "helpers/serve_fixture.h"

namespace tg::llm {
namespace {

using test::at;
using test::Client;
using test::ClientReply;
using test::FakeLanguageModel;
using test::get;
using test::json_of;
using test::post;
using test::Serve;
using test::serve_options;
using test::text_at;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSaid = "You said: hi. Goodbye \xe2\x82\xac!";
constexpr const char* kSchema = R"({"type":"object","properties":{"n":{"const":7}},"required":["n"]})";

/// The events of a stream whose events have names, which their data repeat as `type`.
struct Events {
  explicit Events(const ClientReply& r) {
    EXPECT_THAT(r.header("Content-Type"), HasSubstr("text/event-stream"));
    std::string_view rest = r.body;
    while (!rest.empty()) {
      const size_t line = rest.find('\n'), end = rest.find("\n\n");
      TG_CHECK(ValueError, end != std::string_view::npos && rest.starts_with("event: "), "no event: ", rest);
      types.emplace_back(rest.substr(7, line - 7));
      data.push_back(Value::parse_json(rest.substr(line + 7, end - line - 7)));
      EXPECT_EQ(text_at(data.back(), "type"), types.back());
      rest.remove_prefix(end + 2);
    }
  }
  /// Returns the text that events of a type add up to, at a path of each.
  template <class... Path> std::string joined(const std::string& type, Path... path) const {
    std::string all;
    for (size_t i = 0; i < types.size(); i++)
      if (types[i] == type) all += text_at(data[i], path...);
    return all;
  }
  /// Returns the types without those that follow an equal one.
  std::vector<std::string> order() const {
    std::vector<std::string> out;
    for (const std::string& t : types)
      if (out.empty() || out.back() != t) out.push_back(t);
    return out;
  }
  std::vector<std::string> types;
  std::vector<Value> data;
};

// ---- /v1/messages ----

class Messages : public Serve {
 protected:
  ClientReply send(std::string_view fields, std::string_view path = "/v1/messages") {
    return ask(path, str(R"({"model":"fake","max_tokens":200,"messages":[{"role":"user","content":"hi"}])",
                         fields.empty() ? "" : ",", fields, "}"));
  }
  /// Returns the message of an error, which has the shape of Anthropic's API.
  std::string refusal(std::string_view body, int status = 400, const char* type = "invalid_request_error") {
    const ClientReply r = ask("/v1/messages", body);
    EXPECT_EQ(r.status, status);
    const Value e = json_of(r);
    EXPECT_EQ(text_at(e, "type"), "error");
    EXPECT_EQ(text_at(e, "error", "type"), type);
    return text_at(e, "error", "message");
  }
  static constexpr const char* kTool =
      R"("tools":[{"name":"weather","description":"d","input_schema":{"type":"object",)"
      R"("properties":{"city":{"const":"Paris"}},"required":["city"]}}])";
};

TEST_F(Messages, Whole) {
  const Value r = json_of(send(""));
  EXPECT_EQ(text_at(r, "type"), "message");
  EXPECT_EQ(text_at(r, "role"), "assistant");
  EXPECT_EQ(text_at(r, "model"), "fake");
  EXPECT_TRUE(text_at(r, "id").starts_with("msg_"));
  EXPECT_EQ(at(r, "content").size(), 1u);
  EXPECT_EQ(text_at(r, "content", 0, "type"), "text");
  EXPECT_EQ(text_at(r, "content", 0, "text"), kSaid);
  EXPECT_EQ(text_at(r, "stop_reason"), "end_turn");
  EXPECT_TRUE(at(r, "stop_sequence").is_none());
  EXPECT_EQ(at(r, "usage", "input_tokens").as_integer(), 21);
  EXPECT_EQ(at(r, "usage", "output_tokens").as_integer(), 26);
  const Value again = json_of(send(""));
  EXPECT_EQ(at(again, "usage", "input_tokens").as_integer(), 1) << "the others came from the cache";
  EXPECT_EQ(at(again, "usage", "cache_read_input_tokens").as_integer(), 20);
}

TEST_F(Messages, ReasonsOfEnds) {
  EXPECT_EQ(text_at(json_of(ask("/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}]})")),
                    "stop_reason"),
            "max_tokens");
  const Value stopped = json_of(send(R"("stop_sequences":["zzz",". Good"])"));
  EXPECT_EQ(text_at(stopped, "stop_reason"), "stop_sequence");
  EXPECT_EQ(text_at(stopped, "stop_sequence"), ". Good");
  EXPECT_EQ(text_at(stopped, "content", 0, "text"), "You said: hi");
}

TEST_F(Messages, StreamSaysTheSame) {
  const Events events(send(R"("stream":true)"));
  EXPECT_THAT(events.order(), ElementsAre("message_start", "content_block_start", "content_block_delta",
                                          "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events.joined("content_block_delta", "delta", "text"), kSaid);
  const Value& start = events.data.front();
  EXPECT_EQ(text_at(start, "message", "role"), "assistant");
  EXPECT_EQ(at(start, "message", "content").size(), 0u);
  EXPECT_EQ(at(start, "message", "usage", "input_tokens").as_integer(), 21);
  EXPECT_EQ(text_at(events.data[1], "content_block", "type"), "text");
  const Value& end = events.data[events.data.size() - 2];
  EXPECT_EQ(text_at(end, "delta", "stop_reason"), "end_turn");
  EXPECT_EQ(at(end, "usage", "output_tokens").as_integer(), 26);
}

TEST_F(Messages, ConversationsBecomeChats) {
  std::string seen;
  model->script = [&](const std::string& text) {
    seen = text;
    return std::string("ok");
  };
  const ClientReply r = ask("/v1/messages", R"({"max_tokens":9,"system":[{"type":"text","text":"Be brief"}],)"
                                            R"("messages":[{"role":"user","content":[{"type":"text","text":"a"}]},)"
                                            R"({"role":"assistant","content":[{"type":"thinking","thinking":"t"},)"
                                            R"({"type":"text","text":"calling"},)"
                                            R"({"type":"tool_use","id":"1","name":"f","input":{"x":1}}]},)"
                                            R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1",)"
                                            R"("content":[{"type":"text","text":"rain"}]},)"
                                            R"({"type":"text","text":"and?"}]}]})");
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(seen,
            "|system\nBe brief|\n|user\na|\n|assistant\ncalling<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": "
            "1}}</tool_call>|\n|tool\nrain|\n|user\nand?|\n|assistant\n");
}

TEST_F(Messages, ToolsAreCalled) {
  const Value r = json_of(send(str(kTool, R"(,"tool_choice":{"type":"any"})")));
  EXPECT_EQ(text_at(r, "stop_reason"), "tool_use");
  EXPECT_EQ(text_at(r, "content", 0, "type"), "tool_use");
  EXPECT_EQ(text_at(r, "content", 0, "name"), "weather");
  EXPECT_EQ(text_at(r, "content", 0, "input", "city"), "Paris");
  model->script = [](const std::string&) {
    return R"(Let me see. <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>)";
  };
  const Events events(send(str(kTool, R"(,"stream":true)")));
  EXPECT_THAT(events.order(), ElementsAre("message_start", "content_block_start", "content_block_delta",
                                          "content_block_stop", "content_block_start", "content_block_delta",
                                          "content_block_stop", "message_delta", "message_stop"));
  std::string json;
  for (const Value& e : events.data)
    if (const Value* d = e.find("delta"); d && d->find("partial_json")) json += d->find("partial_json")->as_string();
  EXPECT_EQ(text_at(Value::parse_json(json), "city"), "Rome");
  std::vector<int64_t> blocks;
  for (size_t i = 0; i < events.data.size(); i++)
    if (events.types[i] == "content_block_start") blocks.push_back(at(events.data[i], "index").as_integer());
  EXPECT_THAT(blocks, ElementsAre(0, 1));
  EXPECT_EQ(text_at(events.data[events.data.size() - 2], "delta", "stop_reason"), "tool_use");
  const Value none = json_of(send(str(kTool, R"(,"tool_choice":{"type":"none"})")));
  EXPECT_THAT(text_at(none, "content", 0, "text"), HasSubstr("<tool_call>"));
}

TEST_F(Messages, SchemasHold) {
  const Value r = json_of(send(str(R"("output_config":{"format":{"type":"json_schema","schema":)", kSchema, "}}")));
  EXPECT_EQ(text_at(r, "content", 0, "text"), R"({"n": 7})");
  EXPECT_THAT(refusal(R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}],)"
                      R"("output_config":{"format":{"type":"json_schema","schema":{"not":{}}}}})"),
              HasSubstr("#/not"));
  EXPECT_THAT(refusal(R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}],"output_config":{"x":1}})"),
              HasSubstr("output_config.x"));
}

TEST_F(Messages, TokensAreCounted) {
  const Value r = json_of(ask("/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(at(r, "input_tokens").as_integer(), 21);
  EXPECT_GT(at(json_of(send(kTool, "/v1/messages/count_tokens")), "input_tokens").as_integer(), 100);
  EXPECT_TRUE(model->calls().empty() || model->prefilled() < 1000) << "nothing is generated";
}

TEST_F(Messages, ErrorsHaveTheirShape) {
  const std::string user = R"("messages":[{"role":"user","content":"hi"}])";
  EXPECT_THAT(refusal(str("{", user, "}")), HasSubstr("max_tokens: expected an integer"));
  EXPECT_THAT(refusal(str(R"({"max_tokens":0,)", user, "}")), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal(R"({"max_tokens":5})"), HasSubstr("messages"));
  EXPECT_THAT(refusal(str(R"({"max_tokens":5,"grammar":"x",)", user, "}")), HasSubstr("grammar"));
  EXPECT_THAT(refusal(str(R"({"max_tokens":5,"thinking":{"type":"x"},)", user, "}")), HasSubstr("thinking.type"));
  EXPECT_THAT(refusal(R"({"max_tokens":5,"messages":[{"role":"system","content":"x"}]})"),
              HasSubstr("messages[0].role"));
  EXPECT_THAT(
      refusal(R"({"max_tokens":5,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]})"),
      HasSubstr("the last one must be the user's"));
  EXPECT_THAT(refusal(R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})"),
              HasSubstr("cannot hold 'image'"));
  EXPECT_THAT(refusal(str(R"({"max_tokens":5,"tools":[{"type":"bash_20250124","name":"bash"}],)", user, "}")),
              HasSubstr("tools[0].type"));
  EXPECT_THAT(refusal(str(R"({"max_tokens":5,"tool_choice":{"type":"any"},)", user, "}")), HasSubstr("no tools"));
  EXPECT_THAT(refusal("{"), HasSubstr("body"));
  refusal(str(R"({"model":"gpt-4","max_tokens":5,)", user, "}"), 404, "not_found_error");
  const ClientReply wrong = Client(server->port()).request(get("/v1/messages/"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(text_at(json_of(wrong), "type"), "error");
}

/// What the server of HTTP refuses itself has the shape of the API too; the key may stand in the header of its clients.
TEST(ServeSetup, KeysOfAnthropicsClients) {
  ServeOptions o = serve_options();
  o.http.api_key = "secret";
  const LlmServer server(test::served(std::make_shared<FakeLanguageModel>(4, 1000)), o);
  const std::string body = R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}]})";
  const auto status = [&](const char* header) {
    return Client(server.port()).request(post("/v1/messages", body, header)).status;
  };
  EXPECT_EQ(status("X-Api-Key: secret\r\n"), 200);
  EXPECT_EQ(status("Authorization: Bearer secret\r\n"), 200);
  EXPECT_EQ(status("x-api-key: Secret\r\n"), 401);
  const Value e = json_of(Client(server.port()).request(post("/v1/messages", body)));
  EXPECT_EQ(text_at(e, "type"), "error");
  EXPECT_EQ(text_at(e, "error", "type"), "authentication_error");
  EXPECT_EQ(text_at(json_of(Client(server.port()).request(post("/v1/responses", "{}"))), "error", "type"),
            "authentication_error");
  EXPECT_EQ(Client(server.port()).request(get("/health/")).status, 200) << "no key is asked for";
}

TEST_F(Messages, FailuresAmidAStream) {
  model->before = [](const std::string& call) {
    if (call == "decode") throw ValueError("broken");
  };
  const Events events(send(R"("stream":true)"));
  EXPECT_EQ(events.types.back(), "error");
  EXPECT_EQ(text_at(events.data.back(), "error", "type"), "api_error");
  EXPECT_THAT(text_at(events.data.back(), "error", "message"), HasSubstr("broken"));
  const Value whole = json_of(send(""));
  EXPECT_EQ(text_at(whole, "type"), "error");
}

// ---- /v1/responses ----

class Responses : public Serve {
 protected:
  ClientReply send(std::string_view fields) {
    return ask("/v1/responses", str(R"({"model":"fake","input":"hi")", fields.empty() ? "" : ",", fields, "}"));
  }
  std::string refused_field(std::string_view body) {
    const ClientReply r = ask("/v1/responses", body);
    EXPECT_EQ(r.status, 400) << r.body;
    return text_at(json_of(r), "error", "param");
  }
  static constexpr const char* kTool =
      R"("tools":[{"type":"function","name":"weather","description":"d","parameters":{"type":"object",)"
      R"("properties":{"city":{"const":"Paris"}},"required":["city"]},"strict":true}])";
};

TEST_F(Responses, Whole) {
  const Value r = json_of(send(R"("instructions":"Be brief","metadata":{"a":"b"},"temperature":0.5,"seed":1)"));
  EXPECT_EQ(text_at(r, "object"), "response");
  EXPECT_EQ(text_at(r, "status"), "completed");
  EXPECT_EQ(text_at(r, "output", 0, "type"), "message");
  EXPECT_EQ(text_at(r, "output", 0, "role"), "assistant");
  EXPECT_EQ(text_at(r, "output", 0, "content", 0, "type"), "output_text");
  EXPECT_EQ(text_at(r, "output", 0, "content", 0, "text"), kSaid);
  EXPECT_EQ(at(r, "output", 0, "content", 0, "annotations").size(), 0u);
  EXPECT_EQ(text_at(r, "instructions"), "Be brief");
  EXPECT_EQ(text_at(r, "metadata", "a"), "b");
  EXPECT_EQ(at(r, "temperature").as_double(), 0.5);
  EXPECT_TRUE(at(r, "error").is_none());
  EXPECT_TRUE(at(r, "incomplete_details").is_none());
  EXPECT_EQ(at(r, "usage", "input_tokens").as_integer(), 21 + 18);
  EXPECT_EQ(at(r, "usage", "output_tokens").as_integer(), 26);
  EXPECT_EQ(at(r, "usage", "total_tokens").as_integer(), 26 + 21 + 18);
  EXPECT_EQ(at(r, "usage", "output_tokens_details", "reasoning_tokens").as_integer(), 0);
}

TEST_F(Responses, Incomplete) {
  const Value r = json_of(send(R"("max_output_tokens":5)"));
  EXPECT_EQ(text_at(r, "status"), "incomplete");
  EXPECT_EQ(text_at(r, "incomplete_details", "reason"), "max_output_tokens");
  EXPECT_EQ(text_at(r, "output", 0, "status"), "incomplete");
  EXPECT_EQ(text_at(r, "output", 0, "content", 0, "text"), "You s");
  const Events events(send(R"("max_output_tokens":5,"stream":true)"));
  EXPECT_EQ(events.types.back(), "response.incomplete");
}

TEST_F(Responses, StreamSaysTheSame) {
  const Events events(send(R"("stream":true)"));
  EXPECT_THAT(events.order(),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                          "response.content_part.done", "response.output_item.done", "response.completed"));
  for (size_t i = 0; i < events.data.size(); i++)
    EXPECT_EQ(at(events.data[i], "sequence_number").as_integer(), static_cast<int64_t>(i));
  EXPECT_EQ(events.joined("response.output_text.delta", "delta"), kSaid);
  EXPECT_EQ(events.joined("response.output_text.done", "text"), kSaid);
  const Value& done = events.data.back();
  EXPECT_EQ(text_at(done, "response", "status"), "completed");
  EXPECT_EQ(text_at(done, "response", "output", 0, "content", 0, "text"), kSaid);
  EXPECT_EQ(text_at(done, "response", "id"), text_at(events.data[0], "response", "id"));
  EXPECT_EQ(text_at(done, "response", "output", 0, "id"), text_at(events.data[4], "item_id"));
  EXPECT_EQ(at(done, "response", "usage", "output_tokens").as_integer(), 26);
}

TEST_F(Responses, ItemsBecomeChats) {
  std::string seen;
  model->script = [&](const std::string& text) {
    seen = text;
    return std::string("ok");
  };
  const ClientReply r = ask(
      "/v1/responses", R"({"input":[{"role":"developer","content":"Be brief"},)"
                       R"({"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},)"
                       R"({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},)"
                       R"({"role":"assistant","content":[{"type":"output_text","text":"calling","annotations":[]}]},)"
                       R"({"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\":1}"},)"
                       R"({"type":"function_call_output","call_id":"1","output":"rain"},)"
                       R"({"role":"user","content":"and?"}]})");
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(seen,
            "|system\nBe brief|\n|user\na|\n|assistant\ncalling<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": "
            "1}}</tool_call>|\n|tool\nrain|\n|user\nand?|\n|assistant\n");
}

TEST_F(Responses, ToolsAreCalled) {
  const Value r = json_of(send(str(kTool, R"(,"tool_choice":{"type":"function","name":"weather"})")));
  EXPECT_EQ(text_at(r, "output", 0, "type"), "function_call");
  EXPECT_EQ(text_at(r, "output", 0, "name"), "weather");
  EXPECT_FALSE(text_at(r, "output", 0, "call_id").empty());
  EXPECT_EQ(text_at(Value::parse_json(text_at(r, "output", 0, "arguments")), "city"), "Paris");
  EXPECT_EQ(text_at(r, "tools", 0, "name"), "weather");
  model->script = [](const std::string&) {
    return R"(Let me see. <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>)";
  };
  const Events events(send(str(kTool, R"(,"stream":true)")));
  EXPECT_EQ(events.joined("response.function_call_arguments.delta", "delta"),
            events.joined("response.function_call_arguments.done", "arguments"));
  const Value& output = at(events.data.back(), "response", "output");
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(text_at(output, 0, "type"), "message");
  EXPECT_EQ(text_at(output, 1, "type"), "function_call");
}

TEST_F(Responses, SchemasHold) {
  const std::string format = str(R"({"type":"json_schema","name":"n","strict":true,"schema":)", kSchema, "}");
  const Value r = json_of(send(str(R"("text":{"format":)", format, "}")));
  EXPECT_EQ(text_at(r, "output", 0, "content", 0, "text"), R"({"n": 7})");
  EXPECT_EQ(text_at(r, "text", "format", "name"), "n");
  EXPECT_EQ(refused_field(R"({"input":"x","text":{"format":{"type":"json_schema","schema":{"not":{}}}}})"),
            "text.format");
  EXPECT_EQ(refused_field(R"({"input":"x","text":{"format":{"type":"yaml"}}})"), "text.format.type");
}

TEST_F(Responses, ReasoningIsAnItem) {
  ServedModel thinking = test::served(model);
  thinking.chat_template.chat =
      std::make_shared<ChatTemplate>(str(test::kChatMl, "{% if false %}<think></think>{% endif %}"));
  model->script = [](const std::string&) { return std::string("<think>hm</think>yes"); };
  const LlmServer server(thinking, serve_options());
  const auto ask = [&](const char* path, const char* body) { return Client(server.port()).request(post(path, body)); };
  const Value r = json_of(ask("/v1/responses", R"({"input":"hi"})"));
  EXPECT_EQ(text_at(r, "output", 0, "type"), "reasoning") << r.json();
  EXPECT_EQ(text_at(r, "output", 0, "content", 0, "text"), "hm");
  EXPECT_EQ(text_at(r, "output", 1, "content", 0, "text"), "yes");
  EXPECT_EQ(at(r, "usage", "output_tokens_details", "reasoning_tokens").as_integer(), 2);
  const Value m = json_of(ask("/v1/messages", R"({"max_tokens":99,"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(text_at(m, "content", 0, "thinking"), "hm");
  EXPECT_EQ(text_at(m, "content", 1, "text"), "yes");
}

TEST_F(Responses, ErrorsNameTheField) {
  EXPECT_EQ(refused_field("{}"), "input");
  EXPECT_EQ(refused_field(R"({"input":[]})"), "input");
  EXPECT_EQ(refused_field(R"({"input":"x","grammar":"y"})"), "grammar");
  EXPECT_EQ(refused_field(R"({"input":"x","previous_response_id":"resp_1"})"), "previous_response_id");
  EXPECT_EQ(refused_field(R"({"input":"x","background":true})"), "background");
  EXPECT_EQ(refused_field(R"({"input":"x","truncation":"auto"})"), "truncation");
  EXPECT_EQ(refused_field(R"({"input":[{"type":"item_reference","id":"x"}]})"), "input[0].type");
  EXPECT_EQ(refused_field(R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})"),
            "input[0].content[0].type");
  EXPECT_EQ(refused_field(R"({"input":"x","tools":[{"type":"web_search"}]})"), "tools[0].type");
  EXPECT_EQ(refused_field(str(R"({"input":")", std::string(1500, 'x'), "\"}")), "input") << "longer than the context";
}

TEST_F(Responses, FailuresAmidAStream) {
  model->before = [](const std::string& call) {
    if (call == "decode") throw ValueError("broken");
  };
  const Events events(send(R"("stream":true)"));
  EXPECT_EQ(events.types.back(), "response.failed");
  EXPECT_EQ(text_at(events.data.back(), "response", "status"), "failed");
  EXPECT_THAT(text_at(events.data.back(), "response", "error", "message"), HasSubstr("broken"));
}

// ---- /v1/rerank ----

TEST_F(Serve, Rerank) {
  // The vector of a text is (its length, 0.5, -1).
  const std::string body = R"({"model":"fake","query":"abc","documents":["a","abcd",{"text":"abcdefghij"}])";
  const auto cosine = [](double a, double b) { return (a * b + 1.25) / std::sqrt((a * a + 1.25) * (b * b + 1.25)); };
  const Value r = json_of(ask("/v1/rerank", body + "}"));
  ASSERT_EQ(at(r, "results").size(), 3u);
  EXPECT_EQ(at(r, "results", 0, "index").as_integer(), 1);
  EXPECT_EQ(at(r, "results", 1, "index").as_integer(), 2);
  EXPECT_EQ(at(r, "results", 2, "index").as_integer(), 0);
  EXPECT_NEAR(at(r, "results", 0, "relevance_score").as_double(), cosine(3, 4), 1e-6);
  EXPECT_NEAR(at(r, "results", 2, "relevance_score").as_double(), cosine(3, 1), 1e-6);
  EXPECT_EQ(at(r, "usage", "total_tokens").as_integer(), 3 + 1 + 4 + 10);
  EXPECT_EQ(text_at(r, "model"), "fake");
  EXPECT_FALSE(at(r, "results", 0).find("document"));
  for (const char* path : {"/rerank", "/v1/reranking", "/reranking"}) {
    const Value best = json_of(ask(path, body + R"(,"top_n":1,"return_documents":true})"));
    ASSERT_EQ(at(best, "results").size(), 1u);
    EXPECT_EQ(text_at(best, "results", 0, "document", "text"), "abcd");
  }
  const auto param = [&](const std::string& bad) {
    const ClientReply refused = ask("/v1/rerank", bad);
    EXPECT_EQ(refused.status, 400) << bad;
    return text_at(json_of(refused), "error", "param");
  };
  EXPECT_EQ(param(R"({"documents":["a"]})"), "query");
  EXPECT_EQ(param(R"({"query":"","documents":["a"]})"), "query");
  EXPECT_EQ(param(R"({"query":"a"})"), "documents");
  EXPECT_EQ(param(R"({"query":"a","documents":[]})"), "documents");
  EXPECT_EQ(param(R"({"query":"a","documents":["a",""]})"), "documents[1]");
  EXPECT_EQ(param(R"({"query":"a","documents":[1]})"), "documents[0]");
  EXPECT_EQ(param(str(R"({"query":"a","documents":[")", std::string(51, 'x'), "\"]}")), "documents[0]");
  EXPECT_EQ(param(R"({"query":"a","documents":["a"],"top_n":0})"), "top_n");
  EXPECT_EQ(param(R"({"query":"a","documents":["a"],"x":0})"), "x");
}

/// Decoders rank by the vectors that they make themselves.
TEST(ServeSetup, DecodersRank) {
  ServedModel decoder = test::served(std::make_shared<FakeLanguageModel>(2, 100));
  decoder.embed = nullptr;
  const LlmServer server(decoder, serve_options());
  const Value r = json_of(Client(server.port()).request(post("/rerank", R"({"query":"b","documents":["z","b","a"]})")));
  EXPECT_EQ(at(r, "results", 0, "index").as_integer(), 1);
  EXPECT_NEAR(at(r, "results", 0, "relevance_score").as_double(), 1, 1e-6);
}

// ---- models without a template ----

TEST(ServeSetup, TemplatesThatAreMissingOrBrokenSaySo) {
  for (const char* problem : {"the model has no chat template", "the model's chat template is broken: line 3"}) {
    ServedModel plain = test::served(std::make_shared<FakeLanguageModel>());
    plain.chat_template = {nullptr, problem};
    const LlmServer server(plain, serve_options());
    const std::string body = R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}]})";
    const ClientReply chat = Client(server.port()).request(post("/v1/chat/completions", body));
    EXPECT_EQ(chat.status, 400);
    EXPECT_EQ(text_at(json_of(chat), "error", "message"), str(problem, ": use /v1/completions"));
    EXPECT_EQ(text_at(json_of(chat), "error", "code"), "template_error");
    EXPECT_EQ(Client(server.port()).request(post("/v1/messages", body)).status, 400);
    EXPECT_EQ(Client(server.port()).request(post("/v1/completions", R"({"prompt":"x","max_tokens":1})")).status, 200);
  }
}

}  // namespace
}  // namespace tg::llm
