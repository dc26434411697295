/// \file tg serve: a language model behind the HTTP API of OpenAI.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "apps/tg/led_processes.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/load_served.h"
#include "tinygrad/llm/server.h"

namespace tg::app {
namespace {

struct Options {
  std::string model, host = "127.0.0.1", api_key, api_key_file, chat_template;
  std::vector<std::string> names, hosts, origins;
  int64_t port = 8000, max_sequences = 4, context = 0, max_queue = 128;
  llm::SamplingOptions sampling;
  bool quiet = false, no_warm_up = false, json = false;
  std::shared_ptr<llm::WorldLeader> leader = {};  ///< of the other processes, where there are some
};

/// Reads the first line of a file: keys on a command line are seen by every user of the machine.
std::string read_key(const std::string& file) {
  std::ifstream in(file);
  std::string key;
  TG_CHECK(FileError, std::getline(in, key), "[serve] cannot read a key from ", file);
  if (key.ends_with('\r')) key.pop_back();
  TG_CHECK(ValueError, !key.empty(), "[serve] the first line of ", file, " is empty");
  return key;
}

/// Writes lines to standard error, unless that would mean to wait: a log that nobody reads must not stop the server.
class RequestLog {
 public:
  void operator()(std::string_view line) {
    pollfd out{STDERR_FILENO, POLLOUT, 0};
    if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT)) {
      dropped_++;
      return;
    }
    std::string text = dropped_ ? str("(", dropped_, " lines left out)\n") : std::string();
    text += line.substr(0, std::min(line.size(), kLineBytes));
    text += '\n';
    if (write(STDERR_FILENO, text.data(), text.size()) >= 0) dropped_ = 0;
  }

 private:
  static constexpr size_t kLineBytes = 1024;  // a pipe that has room takes this much at once
  uint64_t dropped_ = 0;
};

std::string address_of(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return str("http://", v6 ? "[" : "", host, v6 ? "]:" : ":", port);
}

llm::ServedModel load(const Options& o) {
  llm::ServedModel model = llm::load_served_model(
      file_of_model(o.model), {.max_context = o.context, .max_sequences = o.max_sequences, .leader = o.leader},
      o.chat_template);
  model.aliases = o.names;
  if (!model.model) return model;
  if (!model.chat_template.chat)
    std::fprintf(stderr, "%s: chats are refused; --chat-template FILE|NAME gives another\n",
                 model.chat_template.problem.c_str());
  if (const std::string warning = model.model->context_warning(); !warning.empty())
    std::fprintf(stderr, "%s\n", warning.c_str());
  return model;
}

int serve(Options o, std::shared_ptr<llm::WorldLeader> leader) {
  o.leader = std::move(leader);
  if (!o.api_key_file.empty()) o.api_key = read_key(o.api_key_file);
  llm::ServeOptions options;
  options.http.address = o.host;
  options.http.port = static_cast<uint16_t>(o.port);
  options.http.api_key = o.api_key;
  options.http.allowed_hosts = o.hosts;
  options.http.allowed_origins = o.origins;
  options.http.stop_on_signals = true;
  if (!o.quiet) options.http.log = RequestLog();
  options.engine.max_queue = o.max_queue;
  options.sampling = o.sampling;
  options.warm_up = !o.no_warm_up;
  const auto start = std::chrono::steady_clock::now();
  llm::LlmServer server([&o] { return load(o); }, std::move(options));
  const std::string address = address_of(o.host, server.port());
  if (!o.quiet) std::fprintf(stderr, "%s answers 503 until the model is loaded\n", address.c_str());
  if (!server.wait_ready()) return kInterrupted;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (o.json)
    std::cout << nlohmann::ordered_json{{"model", server.model_id()},
                                        {"address", address},
                                        {"ready_seconds", took.count()}}
              << std::endl;
  else
    std::printf("%s is ready after %s: %s (chat page), %s/v1 (API); Ctrl-C stops\n", server.model_id().c_str(),
                human_seconds(took.count()).c_str(), address.c_str(), address.c_str());
  std::fflush(stdout);
  server.wait();
  return kOk;
}

}  // namespace

std::function<int()> define_serve(CLI::App& app) {
  app.footer("Examples:\n  tg serve --model model.gguf\n  tg serve --model model.gguf --port 8080 --api-key-file key");
  auto o = std::make_shared<Options>();
  app.add_option("-m,--model", o->model, "A GGUF file, a folder of an encoder, or a name that tg llm knows")
      ->required();
  app.add_option("--host", o->host, "Address to listen on; others than loopback need --api-key-file")
      ->capture_default_str();
  app.add_option("-p,--port", o->port, "Port; 0: any free one")->check(whole_number(0, 65535))->capture_default_str();
  const auto* key = app.add_option("--api-key", o->api_key, "Key that clients must send");
  app.add_option("--api-key-file", o->api_key_file, "The same, from the first line of a file")
      ->excludes(const_cast<CLI::Option*>(key));
  app.add_option("--max-sequences", o->max_sequences, "Requests generated at once; each has a context in memory")
      ->check(whole_number(1, 256))
      ->capture_default_str();
  app.add_option("--context", o->context, "Tokens of a prompt with its reply; 0: the model's own, at most 4096")
      ->check(whole_number(0, int64_t{1} << 27));
  app.add_option("--chat-template", o->chat_template, chat_template_help())->type_name("FILE|NAME");
  app.add_option("--max-queue", o->max_queue, "Requests that may wait; more are answered with 429")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--name", o->names, "A further name of the model in requests");
  app.add_option("--allow-host", o->hosts, "A further name that Host headers may have");
  app.add_option("--allow-origin", o->origins, "A site whose pages may call, such as https://example.org");
  app.add_option("--temperature", o->sampling.temperature, "For requests that set none")
      ->check(real_number(0.0, 2.0))
      ->capture_default_str();
  app.add_option("--top-k", o->sampling.top_k, "For requests that set none")->check(whole_number(0, 1 << 24));
  app.add_option("--top-p", o->sampling.top_p, "For requests that set none")->check(real_number(0.0, 1.0));
  app.add_option("--min-p", o->sampling.min_p, "For requests that set none")->check(real_number(0.0, 1.0));
  app.add_flag("--no-warm-up", o->no_warm_up, "Compile kernels with the first request");
  app.add_flag("--json", o->json, "Say that the server is ready by a JSON object");
  app.add_flag("-q,--quiet", o->quiet, "Do not report requests on standard error");
  return [o] {
    return with_led_processes(o->model, "",
                              [&](std::shared_ptr<llm::WorldLeader> leader) { return serve(*o, std::move(leader)); });
  };
}

}  // namespace tg::app
