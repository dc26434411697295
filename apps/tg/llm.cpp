/// \file tg llm: talk to a language model, complete a text, or measure the speed of both.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "apps/tg/bench_probe.h"
#include "apps/tg/command.h"
#include "apps/tg/led_processes.h"
#include "apps/tg/llm_batch.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/chat_session.h"
#include "tinygrad/llm/model_registry.h"
#include "tinygrad/runtime/thread_pool.h"

namespace tg::app {
namespace {

struct Options {
  std::string model = "smollm2:135m", device, system, chat_template, cache = "float32";
  std::vector<std::string> stop;
  std::optional<std::string> prompt;
  int64_t context = 0, max_tokens = -1, seed = -1, prompt_tokens = 512, reply_tokens = 128, threads = 0, batch = 0;
  llm::SamplingOptions sampling;
  bool list = false, raw = false, benchmark = false, json = false;
  std::shared_ptr<llm::WorldLeader> leader = {};  ///< of the other processes, where there are some
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::atomic<bool> interrupted{false};

/// While one lives, Ctrl-C ends the reply that is being made; at other times it ends the program.
class ReplyInterrupt {
 public:
  ReplyInterrupt() {
    interrupted.store(false);
    struct sigaction action{};
    action.sa_handler = [](int) { interrupted.store(true); };
    action.sa_flags = SA_RESTART;  // a terminal that is slow to read would fail the write under way
    sigaction(SIGINT, &action, &before_);
  }
  ~ReplyInterrupt() { sigaction(SIGINT, &before_, nullptr); }
  ReplyInterrupt(const ReplyInterrupt&) = delete;

 private:
  struct sigaction before_{};
};

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Returns a seed of the system's random numbers unless the user gave one.
uint64_t seed_of(const Options& o) {
  if (o.seed >= 0) return static_cast<uint64_t>(o.seed);
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

llm::ReplyOptions reply_options(const Options& o) {
  llm::ReplyOptions r;
  r.max_tokens = o.max_tokens;
  r.sampling = o.sampling;
  r.sampling.seed = seed_of(o);
  r.stop = o.stop;
  r.cancel = &interrupted;
  if (!o.json)
    r.on_text = [](const std::string& text) {
      show(text);
      return true;
    };
  return r;
}

llm::ModelOptions model_options(const Options& o) {
  return {.max_context = o.context, .cache_dtype = dtypes::from_name(o.cache), .device = o.device, .leader = o.leader};
}

std::filesystem::path file_of(const Options& o) { return file_of_model(o.model); }

llm::ChatSession open(const Options& o) {
  llm::ChatSession chat = llm::ChatSession::open(file_of(o), model_options(o), o.chat_template);
  if (const std::string warning = chat.model().context_warning(); !warning.empty())
    std::fprintf(stderr, "[%s]\n", warning.c_str());
  return chat;
}

/// Says on standard error why a reply ended, unless it came to its end.
void report(const llm::Generated& g, const llm::ChatSession& chat) {
  if (g.reason == llm::FinishReason::kContext)
    std::fprintf(stderr, "[the context of %lld tokens is full: the reply ends here]\n",
                 static_cast<long long>(chat.model().max_context()));
  if (g.reason == llm::FinishReason::kLength) std::fprintf(stderr, "[--max-tokens reached]\n");
  if (g.reason == llm::FinishReason::kCancelled) std::fprintf(stderr, "[interrupted]\n");
  if (chat.forgotten() > 0)
    std::fprintf(stderr, "[the context is full: the first %lld messages were left out]\n",
                 static_cast<long long>(chat.forgotten()));
}

/// Prints a reply as a JSON object in one line.
void print_json(const llm::Generated& g) {
  std::cout << nlohmann::ordered_json{{"reply", g.text},
                                      {"reason", llm::finish_reason_name(g.reason)},
                                      {"tokens", g.tokens.size()},
                                      {"prompt_tokens_computed", g.prefill_tokens},
                                      {"prefill_seconds", g.prefill_seconds},
                                      {"decode_seconds", g.decode_seconds}}
                   .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
            << std::endl;
}

/// Answers one prompt, or continues it as a plain text.
int answer(const Options& o, llm::ChatSession& chat, const std::string& text, bool raw) {
  llm::Generated g;
  {
    const ReplyInterrupt scope;
    g = raw ? chat.complete(text, reply_options(o)) : chat.reply(text, reply_options(o));
  }
  if (o.json) print_json(g);
  else show("\n");
  report(g, chat);
  return g.reason == llm::FinishReason::kCancelled ? kInterrupted : kOk;
}

constexpr const char* kHelp =
    "/clear forgets the conversation, /system TEXT sets the system message, /exit or Ctrl-D ends";

/// Handles a line that begins with '/'; false: the program ends.
bool command(const std::string& line, llm::ChatSession& chat) {
  if (line == "/exit" || line == "/quit") return false;
  if (line == "/clear") chat.clear();
  else if (line.starts_with("/system ")) {
    chat.set_system(line.substr(8));
    chat.clear();
  } else std::printf("%s\n", kHelp);
  return true;
}

int talk(const Options& o, llm::ChatSession& chat) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal)
    std::printf("%s, context %lld tokens; %s, Ctrl-C stops a reply\n", chat.model().config().name.c_str(),
                static_cast<long long>(chat.model().max_context()), kHelp);
  std::string line;
  while (true) {
    if (terminal) show("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (line[0] == '/') {
      if (!command(line, chat)) break;
      continue;
    }
    try {
      answer(o, chat, line, false);
    } catch (const ValueError& e) { std::fprintf(stderr, "tg: %s\n", e.what()); }
  }
  if (terminal) show("\n");
  return kOk;
}

// ---- benchmark ----

struct Speed {
  double one_rate, batch_rate;  // 0: not measured
  double load_s, first_token_s, prefill_rate, decode_rate, decode_gb_s, memory_gb_s, peak_mb, weight_mb, cache_mb;
  int threads;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// Returns how fast memory can be read, in GB/s.
double memory_rate(int threads) {
  const bench::ProbeRuns r = bench::probe_read(threads, 5);
  return r.bytes_read / *std::min_element(r.seconds.begin(), r.seconds.end()) / 1e9;
}

/// Tokens without meaning, the same in every run.
std::vector<int32_t> some_tokens(int64_t n, int64_t vocabulary) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; i++) out.push_back(static_cast<int32_t>((i * 7919 + 13) % vocabulary));
  return out;
}

Speed measure(const Options& o) {
  Speed s{};
  const auto start = Clock::now();
  llm::ChatSession chat = open(o);
  llm::LanguageModel& m = chat.model();
  s.load_s = seconds_since(start);
  const std::vector<int32_t> hello = chat.tokenizer().encode("Hello, who are you?");
  m.prefill(0, hello);
  s.first_token_s = seconds_since(start);

  TG_CHECK(ValueError, o.prompt_tokens + o.reply_tokens <= m.max_context(),
           "[llm] got --prompt-tokens and --reply-tokens of ", o.prompt_tokens + o.reply_tokens,
           " together, expected at most the context of ", m.max_context());
  const std::vector<int32_t> prompt = some_tokens(o.prompt_tokens, m.vocab_size());
  std::vector<double> prefills, steps;
  constexpr int kWarm = 3, kRuns = 5;  // the first calls run, then capture
  for (int i = 0; i < kWarm + kRuns; i++) {
    m.rewind(0, 0);
    const auto begin = Clock::now();
    m.prefill(0, prompt);
    if (i >= kWarm) prefills.push_back(seconds_since(begin));
  }
  for (int64_t i = 0; i < o.reply_tokens; i++) {
    const llm::NextToken next{0, static_cast<int32_t>(i % m.vocab_size())};
    const auto begin = Clock::now();
    m.decode({&next, 1});
    if (i >= kWarm) steps.push_back(seconds_since(begin));
  }
  const double step = median(steps);
  s.prefill_rate = static_cast<double>(o.prompt_tokens) / median(prefills);
  s.decode_rate = 1 / step;
  s.decode_gb_s = static_cast<double>(m.weight_bytes()) / step / 1e9;
  s.threads = ThreadPool::global().size();
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  s.peak_mb = static_cast<double>(usage.ru_maxrss) / 1e3;  // before the memory's rate is measured, with much of it
  s.memory_gb_s = memory_rate(s.threads);
  s.weight_mb = static_cast<double>(m.weight_bytes()) / 1e6;
  s.cache_mb = static_cast<double>(m.cache_bytes()) / 1e6;
  return s;
}

/// Measures replies that the engine generates: one alone, and several at once.
void measure_batch(const Options& o, Speed& s) {
  if (o.batch == 0) return;
  const auto rate = [&](int64_t sequences) {
    return batch_decode_rate(file_of(o), model_options(o), sequences, o.reply_tokens, o.sampling);
  };
  s.one_rate = rate(1);
  s.batch_rate = rate(o.batch);
}

int benchmark(const Options& o) {
  Speed s = measure(o);
  measure_batch(o, s);
  if (o.json) {
    nlohmann::json j{{"model", o.model},
                     {"threads", s.threads},
                     {"load_s", s.load_s},
                     {"first_token_s", s.first_token_s},
                     {"prefill_tokens", o.prompt_tokens},
                     {"prefill_tok_s", s.prefill_rate},
                     {"decode_tok_s", s.decode_rate},
                     {"decode_gb_s", s.decode_gb_s},
                     {"memory_gb_s", s.memory_gb_s},
                     {"memory_fraction", s.decode_gb_s / s.memory_gb_s},
                     {"peak_mb", s.peak_mb},
                     {"weight_mb", s.weight_mb},
                     {"cache_mb", s.cache_mb}};
    if (o.batch > 0) {
      j["batch"] = o.batch;
      j["one_tok_s"] = s.one_rate;
      j["batch_tok_s"] = s.batch_rate;
      j["batch_ratio"] = s.batch_rate / s.one_rate;
    }
    std::printf("%s\n", j.dump(2).c_str());
    return kOk;
  }
  std::printf("load               %8.1f ms\n", s.load_s * 1e3);
  std::printf("first token        %8.1f ms, load included\n", s.first_token_s * 1e3);
  std::printf("prefill, %4lld tok  %8.1f tok/s\n", static_cast<long long>(o.prompt_tokens), s.prefill_rate);
  std::printf("decode             %8.1f tok/s, %.1f GB/s of weights, %.0f %% of the memory's %.1f GB/s\n",
              s.decode_rate, s.decode_gb_s, 100 * s.decode_gb_s / s.memory_gb_s, s.memory_gb_s);
  if (o.batch > 0)
    std::printf("batch of %-3lld       %8.1f tok/s together, %.2f times one reply of the engine (%.1f tok/s)\n",
                static_cast<long long>(o.batch), s.batch_rate, s.batch_rate / s.one_rate, s.one_rate);
  std::printf("memory             %8.1f MB at most; weights %.1f MB, cache %.1f MB\n", s.peak_mb, s.weight_mb,
              s.cache_mb);
  std::printf("threads            %8d\n", s.threads);
  return kOk;
}

int list_models(bool json) {
  for (const llm::KnownModel& m : llm::known_models())
    if (json) std::cout << nlohmann::ordered_json{{"name", m.name}, {"bytes", m.bytes}, {"url", m.url}} << "\n";
    else
      std::printf("%-14.*s %6.1f GB  %.*s\n", static_cast<int>(m.name.size()), m.name.data(),
                  static_cast<double>(m.bytes) / 1e9, static_cast<int>(m.url.size()), m.url.data());
  return kOk;
}

int lead(const Options& o) {
  if (o.benchmark) return benchmark(o);
  llm::ChatSession chat = open(o);
  TG_CHECK(ValueError, chat.can_chat() || o.system.empty(), "[llm] --system needs a chat template, and ",
           chat.chat_problem(), ": --chat-template FILE|NAME gives another");
  if (!o.system.empty()) chat.set_system(o.system);
  if (o.prompt && !o.raw && !chat.can_chat())
    std::fprintf(stderr, "[%s: the text is continued as it is; --chat-template FILE|NAME gives another]\n",
                 chat.chat_problem().c_str());
  if (o.prompt) return answer(o, chat, *o.prompt, o.raw || !chat.can_chat());
  TG_CHECK(ValueError, chat.can_chat(), "[llm] ", o.model, ": ", chat.chat_problem(),
           ": --prompt continues a text, --chat-template FILE|NAME gives another");
  return talk(o, chat);
}

int run(const Options& o) {
  if (o.threads > 0) ::setenv("NUM_CPU_THREADS", std::to_string(o.threads).c_str(), 1);
  if (o.list) return list_models(o.json);
  return with_led_processes(o.model, o.device, [&](std::shared_ptr<llm::WorldLeader> leader) {
    Options mine = o;
    mine.leader = std::move(leader);
    return lead(mine);
  });
}

std::string number_above(const std::string& text) {
  try {
    size_t end = 0;
    const double v = std::stod(text, &end);
    if (v > 0 && std::isfinite(v) && end == text.size()) return {};
  } catch (const std::exception&) {}
  return str("got '", text, "', expected a number above 0");
}

void define_sampling(CLI::App& app, Options& o) {
  llm::SamplingOptions& s = o.sampling;
  app.add_option("--temperature", s.temperature, "0: always the most likely token")
      ->check(real_number(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", s.top_k, "Draw from the k most likely tokens; 0: all")
      ->check(whole_number(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--top-p", s.top_p, "Draw from the most likely tokens that make up this share")
      ->check(real_number(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--min-p", s.min_p, "Draw from tokens at least this fraction as likely as the best")
      ->check(real_number(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--repetition-penalty", s.repetition_penalty, "Divides logits of recent tokens; 1: none")
      ->check(number_above)
      ->capture_default_str();
  app.add_option("--frequency-penalty", s.frequency_penalty, "Subtracted for each recent occurrence")
      ->check(real_number(-100, 100));
  app.add_option("--presence-penalty", s.presence_penalty, "Subtracted from each recent token")
      ->check(real_number(-100, 100));
  app.add_option("--penalty-window", s.penalty_window, "How many of the last tokens are recent; -1: all")
      ->check(whole_number(-1, 1 << 24))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Of the draws; without one each reply has another")
      ->check(whole_number(0, INT64_MAX));
}

}  // namespace

std::function<int()> define_llm(CLI::App& app) {
  app.footer(
      "Examples:\n  tg llm\n  tg llm --model model.gguf --system \"Answer in one sentence.\"\n  tg llm --prompt \"Why "
      "is the sky blue?\" --max-tokens 100\n  mpirun -n 2 tg llm --threads 4");
  auto o = std::make_shared<Options>();
  app.add_option("-m,--model", o->model, "A GGUF file, its address, or a name (see --list)")->capture_default_str();
  app.add_flag("--list", o->list, "Show the models known by name");
  CLI::Option* prompt = app.add_option("-p,--prompt", o->prompt, "Answer this and end");
  CLI::Option* raw = app.add_flag("--raw", o->raw, "Continue --prompt as it is, without the chat template");
  raw->needs(prompt);
  app.add_option("-s,--system", o->system, "System message: what the model is and how it answers")->excludes(raw);
  app.add_option("--chat-template", o->chat_template, chat_template_help())->excludes(raw)->type_name("FILE|NAME");
  app.add_option("-c,--context", o->context, "Tokens of a conversation; 0: the model's own, at most 4096")
      ->check(whole_number(0, llm::kMaxTrainedContext));
  app.add_option("-n,--max-tokens", o->max_tokens, "Tokens of a reply; -1: until the context is full")
      ->check(whole_number(-1, llm::kMaxTrainedContext))
      ->capture_default_str();
  app.add_option("--stop", o->stop, "A text that ends a reply (several times for several)")->take_all();
  app.add_option("--cache", o->cache, "Type of keys and values in memory")
      ->check(CLI::IsMember({"float16", "float32"}))
      ->capture_default_str();
  app.add_option("--device", o->device, "Device, as DEV names it (default: DEV)")->type_name("DEV");
  app.add_option("--threads", o->threads, "Threads of the CPU; 0: all processors")->check(whole_number(0, 1024));
  define_sampling(app, *o);
  app.add_flag("--benchmark", o->benchmark, "Measure loading, prefill, decode and memory");
  app.add_option("--prompt-tokens", o->prompt_tokens, "Length of the prompt of --benchmark")
      ->check(whole_number(1, llm::kMaxTrainedContext))
      ->capture_default_str();
  app.add_option("--reply-tokens", o->reply_tokens, "Length of the reply of --benchmark")
      ->check(whole_number(8, llm::kMaxTrainedContext))
      ->capture_default_str();
  app.add_option("--batch", o->batch, "With --benchmark: measure this many replies at once, too; 0: do not")
      ->check(whole_number(0, 256))
      ->capture_default_str();
  app.add_flag("--json", o->json, "Replies, the models of --list or the figures of --benchmark as JSON");
  return [o] { return run(*o); };
}

}  // namespace tg::app
