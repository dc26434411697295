/// \file The server of language models: tinygrad_cpp.llm.serve.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "interrupt.h"
#include "tinygrad/llm/chat_reply.h"
#include "tinygrad/llm/load_served.h"
#include "tinygrad/llm/model_registry.h"
#include "tinygrad/llm/server.h"

namespace tg::python {
namespace {

std::shared_ptr<llm::LlmServer> serve(const std::string& model, const std::string& host, int port,
                                      const std::string& api_key, int64_t max_sequences, int64_t context,
                                      int64_t max_queue, std::vector<std::string> names, bool warm_up,
                                      const std::string& chat_template) {
  if (port < 0 || port > UINT16_MAX) throw ValueError(str("[serve] got port ", port, ", expected 0 to 65535"));
  llm::ServeOptions options;
  options.http.address = host;
  options.http.port = static_cast<uint16_t>(port);
  options.http.api_key = api_key;
  options.engine.max_queue = max_queue;
  options.warm_up = warm_up;
  const Unlocked work;
  const auto load = [=, names = std::move(names)] {
    const bool folder = std::filesystem::is_directory(model);
    llm::ServedModel served =
        llm::load_served_model(folder ? std::filesystem::path(model) : llm::find_model(model),
                               {.max_context = context, .max_sequences = max_sequences}, chat_template);
    served.aliases = names;
    return served;
  };
  auto server = std::make_shared<llm::LlmServer>(load, std::move(options));
  server->wait_ready();
  return server;
}

/// A parser of replies in the form of Hermes; a type of its own, for llm_chat.cpp binds ReplyParser.
struct StreamRouter : llm::ReplyParser {
  explicit StreamRouter(bool reasoning) : ReplyParser({llm::ToolCallForm::hermes, "<think>", "</think>", reasoning}) {}
};

using Deltas = std::vector<std::pair<std::string, std::string>>;

/// Returns what a piece of a reply added, as OpenAI names the fields.
Deltas named(const llm::ReplyDelta& delta) {
  Deltas out;
  if (!delta.reasoning.empty()) out.emplace_back("reasoning_content", delta.reasoning);
  if (!delta.content.empty()) out.emplace_back("content", delta.content);
  for (const llm::ToolCall& call : delta.tool_calls) out.emplace_back(call.name, call.arguments);
  return out;
}

}  // namespace

void bind_llm_server(nb::module_& m) {
  nb::class_<llm::LlmServer>(m, "LlmServer", "A language model behind the HTTP API of OpenAI; llm.serve starts one.")
      .def_prop_ro("port", &llm::LlmServer::port)
      .def("stop", &llm::LlmServer::stop, "Lets replies under way finish and takes no new requests; returns at once.")
      .def("wait", &llm::LlmServer::wait_for, "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Returns whether the server stopped within that time.");
  nb::class_<StreamRouter>(m, "StreamRouter",
                           "Routes the text of a reply, piece by piece, to (field, text): reasoning_content, content, "
                           "and the arguments of tools by their names.")
      .def(nb::init<bool>(), "reasoning"_a = false)
      .def(
          "route",
          [](StreamRouter& self, const std::string& piece, bool final) {
            Deltas out = named(self.feed(piece));
            if (final)
              for (auto& delta : named(self.finish())) out.push_back(std::move(delta));
            return out;
          },
          "piece"_a, "final"_a = false);
  m.def("llm_serve", &serve, "model"_a, "host"_a = "127.0.0.1", "port"_a = 0, "api_key"_a = "", "max_sequences"_a = 4,
        "context"_a = 0, "max_queue"_a = 128, "names"_a = std::vector<std::string>(), "warm_up"_a = true,
        "chat_template"_a = "");
}

}  // namespace tg::python
