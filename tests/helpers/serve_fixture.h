/// \file A server of a model that is known, for tests that ask it over sockets, and ways to look into its answers.
#pragma once
#include <gtest/gtest.h>

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "helpers/fake_served_model.h"
#include "helpers/http_client.h"
#include "tinygrad/base/error.h"
#include "tinygrad/llm/value.h"

namespace tg::test {

using llm::LlmServer;
using llm::ServeOptions;
using llm::Value;

/// A key of an object or an index of a list.
struct Step {
  Step(const char* key) : key(key) {}
  template <std::integral I> Step(I index) : index(static_cast<size_t>(index)) {}
  const char* key = nullptr;
  size_t index = 0;
};
/// Returns what a path leads to.
inline const Value& follow(const Value& v, const std::vector<Step>& path) {
  const Value* here = &v;
  for (const Step& step : path) {
    const Value* next = step.key                    ? here->find(std::string_view(step.key))
                        : step.index < here->size() ? &here->items()[step.index]
                                                    : nullptr;
    TG_CHECK(ValueError, next, "no ", step.key ? step.key : "item", " in ", here->json());
    here = next;
  }
  return *here;
}
template <class... Path> const Value& at(const Value& v, Path... path) { return follow(v, {Step(path)...}); }
template <class... Path> std::string text_at(const Value& v, Path... path) { return at(v, path...).as_string(); }

inline Value json_of(const ClientReply& r) {
  TG_CHECK(ValueError, r.complete, "no whole answer: ", r.head, r.body);
  return Value::parse_json(r.body);
}

/// Returns the events of a stream; the last must be [DONE].
inline std::vector<Value> events_of(const ClientReply& r) {
  std::vector<Value> events;
  std::string_view rest = r.body;
  bool done = false;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    TG_CHECK(ValueError, end != std::string_view::npos && rest.starts_with("data: "), "no event: ", rest);
    const std::string_view data = rest.substr(6, end - 6);
    done = data == "[DONE]";
    if (!done) events.push_back(Value::parse_json(data));
    rest.remove_prefix(end + 2);
  }
  EXPECT_TRUE(done) << r.body;
  return events;
}

inline ServeOptions serve_options() {
  ServeOptions o;
  o.http.port = 0;
  o.http.limits.drain_s = 1;
  o.engine.max_queue = 64;
  o.sampling.temperature = 0;
  return o;
}

class Serve : public testing::Test {
 protected:
  Serve() {
    model->script = [](const std::string& conversation) {
      const size_t user = conversation.rfind("user\n");
      if (user == std::string::npos) return std::string();  // the prompt is not complete yet
      std::string said = conversation.substr(user + 5);
      said = said.substr(0, said.find('|'));  // all of it while a prompt is computed in pieces
      return "You said: " + said + ". Goodbye \xe2\x82\xac!";
    };
    server = std::make_unique<LlmServer>(served(model), serve_options());
  }
  ClientReply ask(std::string_view path, std::string_view body) {
    return Client(server->port()).request(post(path, body));
  }
  Value chat(std::string_view fields, std::string_view text = "hi") {
    return json_of(ask("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":")", text, "\"}]",
                                                   fields.empty() ? "" : ",", fields, "}")));
  }
  /// Returns the status of a chat whose other fields these are, and checks that errors have OpenAI's shape.
  int chat_status(std::string_view fields) {
    return status(str(R"({"messages":[{"role":"user","content":"hi"}],)", fields, "}"));
  }
  int status(std::string_view body, std::string_view path = "/v1/chat/completions") {
    const ClientReply r = ask(path, body);
    if (r.status >= 400) {
      const Value e = json_of(r);
      EXPECT_FALSE(text_at(e, "error", "message").empty());
      EXPECT_FALSE(text_at(e, "error", "type").empty());
      EXPECT_TRUE(e.find(std::string_view("error"))->find(std::string_view("param")));
      EXPECT_TRUE(e.find(std::string_view("error"))->find(std::string_view("code")));
    }
    return r.status;
  }
  std::string param_of(std::string_view fields) {
    const Value error =
        json_of(ask("/v1/chat/completions", str(R"({"messages":[{"role":"user","content":"hi"}],)", fields, "}")));
    const Value& p = at(error, "error", "param");
    return p.is_string() ? p.as_string() : "none";
  }

  std::shared_ptr<FakeLanguageModel> model = std::make_shared<FakeLanguageModel>(4, 1000);
  std::unique_ptr<LlmServer> server;
};

}  // namespace tg::test
