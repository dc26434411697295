/// \file tg llm as users meet it, with a tiny model of random weights: prompts, options, figures, and a terminal.
#ifdef TG_PROGRAM
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "helpers/terminal.h"
#include "helpers/tiny_chat_model.h"
#include "temp_dir.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/system_memory.h"
#include "tinygrad/llm/chat_session.h"

namespace tg {
namespace {

using test::Terminal;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;

/// A folder with the model.
struct Model {
  explicit Model(int64_t context = 512, const std::string& chat_template = test::kChatMl) {
    const std::string bytes = test::tiny_chat_model(context, chat_template);
    std::ofstream(file(), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string file() const { return dir / "tiny.gguf"; }
  TempDir dir;
};

ProcessResult tg_llm(const Model& m, std::vector<std::string> arguments, const std::string& input = "") {
  std::vector<std::string> command{TG_PROGRAM, "llm", "--model", m.file()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command, {.input = input, .timeout_s = 100});
}

/// Returns what the library says to the same.
std::string expected(const Model& m, const std::string& prompt, bool raw, int64_t max_tokens,
                     const std::string& system = "", int64_t context = 0) {
  llm::ChatSession s = llm::ChatSession::open(m.file(), {.max_context = context});
  if (!system.empty()) s.set_system(system);
  llm::ReplyOptions o;
  o.max_tokens = max_tokens;
  o.sampling.temperature = 0;
  return (raw ? s.complete(prompt, o) : s.reply(prompt, o)).text + "\n";
}

TEST(LlmProgram, PromptsSystemMessagesAndRawTexts) {
  const Model m;
  const std::vector<std::string> greedy{"--temperature", "0", "--max-tokens", "12"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), greedy.begin(), greedy.end());
    const ProcessResult r = tg_llm(m, more);
    EXPECT_TRUE(r.ok()) << r.err;
    return r.out;
  };
  const std::string plain = run({"--prompt", "Hi"}), with_system = run({"--prompt", "Hi", "--system", "Be brief."}),
                    raw = run({"-p", "Hi", "--raw"});
  EXPECT_EQ(plain, expected(m, "Hi", false, 12));
  EXPECT_EQ(with_system, expected(m, "Hi", false, 12, "Be brief."));
  EXPECT_EQ(raw, expected(m, "Hi", true, 12));
  EXPECT_EQ(run({"--prompt", ""}), expected(m, "", false, 12)) << "an empty prompt is one";
  EXPECT_NE(plain, with_system);
  EXPECT_NE(plain, raw);
}

TEST(LlmProgram, SeedsRepeatReplies) {
  const Model m;
  const auto run = [&](const char* seed) {
    return tg_llm(m, {"-p", "Hi", "--temperature", "1.5", "--top-k", "0", "-n", "20", "--seed", seed}).out;
  };
  const std::string first = run("3");
  EXPECT_EQ(run("3"), first);
  EXPECT_NE(run("4"), first);
  const auto unseeded = [&] { return tg_llm(m, {"-p", "Hi", "--temperature", "1.5", "--top-k", "0", "-n", "20"}).out; };
  EXPECT_NE(unseeded(), unseeded());
}

TEST(LlmProgram, StopStringsLengthsAndFullContexts) {
  const Model m(64);
  const std::string whole = expected(m, "Hi", true, -1);
  const ProcessResult full = tg_llm(m, {"-p", "Hi", "--raw", "--temperature", "0"});
  EXPECT_EQ(full.out, whole);
  EXPECT_THAT(full.err, HasSubstr("[the context of 64 tokens is full: the reply ends here]"));
  const std::string stop = whole.substr(5, 2);
  const ProcessResult stopped =
      tg_llm(m, {"-p", "Hi", "--raw", "--temperature", "0", "--stop", "never", "--stop", stop});
  EXPECT_EQ(stopped.out, whole.substr(0, whole.find(stop)) + "\n");
  EXPECT_EQ(stopped.err, "");
  const ProcessResult cut = tg_llm(m, {"-p", "Hi", "--raw", "--temperature", "0", "-n", "4"});
  EXPECT_THAT(cut.err, HasSubstr("[--max-tokens reached]"));
  EXPECT_EQ(tg_llm(m, {"-p", "Hi", "--raw", "-n", "0"}).out, "\n");
  const ProcessResult long_prompt = tg_llm(m, {"-p", std::string(100, 'x')});
  EXPECT_EQ(long_prompt.exit_code, 1);
  EXPECT_THAT(long_prompt.err, HasSubstr("tokens, expected at most 48 of a context of 64"));
  EXPECT_THAT(tg_llm(m, {"-p", "Hi", "--context", "32", "--raw", "--temperature", "0"}).err,
              HasSubstr("the context of 32 tokens is full"));
}

TEST(LlmProgram, PenaltiesChangeWhatIsSaid) {
  const Model m;
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"-p", "aaaa", "--raw", "--temperature", "0", "-n", "30"});
    return tg_llm(m, more).out;
  };
  const std::string plain = run({});
  EXPECT_NE(run({"--repetition-penalty", "100", "--penalty-window", "-1"}), plain);
  EXPECT_NE(run({"--frequency-penalty", "100"}), plain);
  EXPECT_NE(run({"--presence-penalty", "100"}), plain);
  EXPECT_EQ(run({"--presence-penalty", "100", "--penalty-window", "0"}), plain);
  EXPECT_EQ(run({"--top-k", "1", "--top-p", "0.1", "--min-p", "1"}), plain);
}

TEST(LlmProgram, ConversationsFromAPipe) {
  const Model m;
  const ProcessResult r = tg_llm(m, {"--temperature", "0", "-n", "5"},
                                 "Hi\n\n/help\n/clear\nHi\n/system Be brief.\nHi\n/exit\nnever read\n");
  EXPECT_TRUE(r.ok()) << r.err;
  const std::string hi = expected(m, "Hi", false, 5), brief = expected(m, "Hi", false, 5, "Be brief.");
  EXPECT_TRUE(r.out.starts_with(hi + "/clear forgets the conversation")) << r.out;
  EXPECT_TRUE(r.out.ends_with("\n" + hi + brief)) << r.out;
}

TEST(LlmProgram, OldTurnsThatDoNotFitAreNamed) {
  const Model m(64);
  const std::string long_line(20, 'x');
  const ProcessResult r = tg_llm(m, {"--temperature", "0", "-n", "2"}, long_line + "\n" + long_line + "\n");
  EXPECT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(r.err, HasSubstr("[the context is full: the first 2 messages were left out]"));
}

TEST(LlmProgram, BenchmarkFigures) {
  const Model m;
  const ProcessResult r =
      tg_llm(m, {"--benchmark", "--json", "--prompt-tokens", "40", "--reply-tokens", "16", "--threads", "2"});
  ASSERT_TRUE(r.ok()) << r.err;
  const nlohmann::json j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j.at("model"), m.file());
  EXPECT_EQ(j.at("threads"), 2);
  EXPECT_EQ(j.at("prefill_tokens"), 40);
  for (const char* field : {"load_s", "first_token_s", "prefill_tok_s", "decode_tok_s", "decode_gb_s", "memory_gb_s",
                            "memory_fraction", "peak_mb", "weight_mb", "cache_mb"})
    EXPECT_GT(j.at(field).get<double>(), 0) << field;
  EXPECT_GT(j.at("first_token_s").get<double>(), j.at("load_s").get<double>());
  EXPECT_GT(j.at("peak_mb").get<double>(), j.at("weight_mb").get<double>() + j.at("cache_mb").get<double>());
  EXPECT_NEAR(j.at("memory_fraction").get<double>(),
              j.at("decode_gb_s").get<double>() / j.at("memory_gb_s").get<double>(), 1e-9);
  const ProcessResult text = tg_llm(m, {"--benchmark", "--prompt-tokens", "40", "--reply-tokens", "16"});
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("load "), HasSubstr("first token "), HasSubstr("prefill,   40 tok"),
                    HasSubstr("% of the memory's"), HasSubstr("MB at most; weights "), HasSubstr("threads ")));
  const ProcessResult too_long = tg_llm(m, {"--benchmark", "--prompt-tokens", "500", "--reply-tokens", "13"});
  EXPECT_EQ(too_long.exit_code, 1);
  EXPECT_THAT(too_long.err, HasSubstr("of 513 together, expected at most the context of 512"));
}

TEST(LlmProgram, RepliesAsJson) {
  const Model m;
  const ProcessResult r = tg_llm(m, {"--json", "--temperature", "0", "-n", "8"}, "one\ntwo\n");
  EXPECT_TRUE(r.ok()) << r.err;
  std::istringstream in(r.out);
  int replies = 0;
  for (std::string line; std::getline(in, line); replies++) {
    const auto j = nlohmann::json::parse(line);
    EXPECT_LE(j.at("tokens").get<int>(), 8);
    EXPECT_THAT(j.at("reason").get<std::string>(), ::testing::AnyOf("stop", "length"));
    if (replies == 0) { EXPECT_EQ(j.at("reply").get<std::string>() + "\n", expected(m, "one", false, 8)); }
  }
  EXPECT_EQ(replies, 2);
  const ProcessResult list = run_process({TG_PROGRAM, "llm", "--list", "--json"}, {.timeout_s = 60});
  EXPECT_EQ(nlohmann::json::parse(list.out.substr(0, list.out.find('\n'))).at("name"), "smollm2:135m");
}

TEST(LlmProgram, UsageErrors) {
  const Model m;
  const auto refused = [&](std::vector<std::string> arguments, int code, const char* why) {
    const ProcessResult r = tg_llm(m, std::move(arguments));
    EXPECT_EQ(r.exit_code, code) << r.err;
    EXPECT_THAT(r.err, HasSubstr(why));
  };
  refused({"-p", "x", "--temperature", "-1"}, 2, "--temperature");
  refused({"-p", "x", "--top-p", "1.5"}, 2, "--top-p");
  refused({"-p", "x", "--top-p", "0"}, 1, "top_p");
  refused({"-p", "x", "--min-p", "2"}, 2, "--min-p");
  refused({"-p", "x", "--top-k", "-1"}, 2, "--top-k");
  refused({"-p", "x", "--repetition-penalty", "0"}, 2, "expected a number above 0");
  refused({"-p", "x", "--frequency-penalty", "inf"}, 2, "--frequency-penalty");
  refused({"-p", "x", "--presence-penalty", "nan"}, 2, "--presence-penalty");
  refused({"-p", "x", "--temperature", "nan"}, 2, "got nan, expected 0 to 100");
  refused({"-p", "x", "--temperature", "hot"}, 2, "got 'hot', expected a number");
  refused({"-p", "x", "--repetition-penalty", "inf"}, 2, "expected a number above 0");
  refused({"-p", "x", "--raw", "--system", "s"}, 2, "--raw");
  refused({"-p", "x", "--chat-template", "llama9"}, 1, "got 'llama9', expected a file or one of chatml");
  refused({"-p", "x", "--seed", "-1"}, 2, "--seed");
  refused({"-p", "x", "--cache", "int8"}, 2, "--cache");
  refused({"-p", "x", "--context", "-1"}, 2, "--context");
  refused({"-p", "x", "--device", "NOPE"}, 1, "NOPE");
  refused({"--raw"}, 2, "--prompt");
  const ProcessResult none = run_process({TG_PROGRAM, "llm", "--model", "/nonexistent/x.gguf"}, {.timeout_s = 60});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("there is no file /nonexistent/x.gguf"));
  const ProcessResult unknown = run_process({TG_PROGRAM, "llm", "--model", "smolm2:135m"}, {.timeout_s = 60});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("unknown model 'smolm2:135m', did you mean smollm2:135m?"));
  const ProcessResult list = run_process({TG_PROGRAM, "llm", "--list"}, {.timeout_s = 60});
  EXPECT_THAT(list.out, AllOf(HasSubstr("smollm2:135m "), HasSubstr("qwen3:8b ")));
}

// ---- templates and contexts ----

TEST(LlmProgram, TemplatesThatAreMissingOrBroken) {
  const Model good;
  const std::vector<std::string> greedy{"-p", "Hi", "--temperature", "0", "-n", "8"};
  const auto run = [&](const Model& m, std::vector<std::string> more) {
    more.insert(more.end(), greedy.begin(), greedy.end());
    return tg_llm(m, more);
  };
  const std::string raw = run(good, {"--raw"}).out, chat = run(good, {}).out;
  ASSERT_NE(raw, chat);
  const std::pair<const char*, const char*> cases[] = {
      {"", "the model has no chat template"},
      {"{% for m in messages %}{% endfxr %}",
       "the model's chat template is broken: [chat_template] chat template:1: "}};
  for (const auto& [source, problem] : cases) {
    const Model m(512, source);
    const ProcessResult silent = run(m, {"--raw"});
    EXPECT_EQ(silent.out, raw);
    EXPECT_EQ(silent.err.find("template"), std::string::npos) << "none was asked for";
    const ProcessResult warned = run(m, {});
    EXPECT_EQ(warned.out, raw) << "the text is continued";
    EXPECT_THAT(warned.err, AllOf(HasSubstr(problem), HasSubstr("--chat-template")));
    const ProcessResult refused = run(m, {"--system", "Be brief."});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("--system needs a chat template"), HasSubstr(problem)));
    const ProcessResult talk = tg_llm(m, {}, "Hi\n");
    EXPECT_EQ(talk.exit_code, 1);
    EXPECT_THAT(talk.err, AllOf(HasSubstr(problem), HasSubstr("--prompt continues a text")));
    const ProcessResult other = run(m, {"--chat-template", "chatml"});
    EXPECT_EQ(other.out, chat) << "the same template by its name";
  }
}

TEST(LlmProgram, ContextsBeyondMemoryAreRefusedBeforeTheyAreMade) {
  const Model m(1 << 20);
  const ProcessResult r = tg_llm(m, {"-p", "x", "--raw", "-n", "1", "--context", "134217728", "--cache", "float32"});
  const SystemMemory memory = system_memory();
  // Of a token: keys and values of one head of 16 in float32, and tables of cosines and sines.
  constexpr int64_t kToken = 2 * 16 * 4 + 8 * 16;
  if (memory.available > kToken << 27) return;  // a machine that has room for it
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, AllOf(HasSubstr("[llm] a context of 134217728 tokens takes 34.4 GB"), HasSubstr("of weights"),
                           HasSubstr("a context of at most "), HasSubstr(" tokens fits")));
  struct rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  EXPECT_LT(used.ru_maxrss, 2 << 20) << "kB: nothing is made of it";
}

TEST(LlmProgram, ContextsLongerThanWasTrainedForAreWarnedOf) {
  const Model m(64);
  const char* warning = "a context of 128 tokens is longer than the 64 that the model was trained for";
  EXPECT_THAT(tg_llm(m, {"-p", "x", "--raw", "-n", "1", "--context", "128"}).err, HasSubstr(warning));
  EXPECT_EQ(tg_llm(m, {"-p", "x", "--raw", "-n", "1"}).err.find("trained"), std::string::npos);
}

TEST(ServeProgram, AddressesOfOtherMachinesNameTheOptionOfTheKey) {
  const Model m;
  const ProcessResult r =
      run_process({TG_PROGRAM, "serve", "--model", m.file(), "--host", "0.0.0.0", "--port", "0"}, {.timeout_s = 60});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, AllOf(HasSubstr("0.0.0.0 can be reached from other machines"), HasSubstr("--api-key-file FILE")));
  const ProcessResult encoder = run_process(
      {TG_PROGRAM, "serve", "--model", m.dir / ".", "--chat-template", "chatml", "--port", "0"}, {.timeout_s = 60});
  EXPECT_EQ(encoder.exit_code, 1);
  EXPECT_THAT(encoder.err, HasSubstr("is an encoder: it takes no chat template"));
}

// ---- at a terminal ----

constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";

TEST(LlmProgram, CtrlCStopsTheReplyNotTheProgram) {
  const Model m(1 << 20);
  Terminal t({TG_PROGRAM, "llm", "--model", m.file(), "--context", "200000", "--temperature", "0.1", "--seed", "1"});
  ASSERT_TRUE(t.shows("Ctrl-C stops a reply")) << t.unread();
  ASSERT_TRUE(t.shows("> "));
  for (int reply = 0; reply < 2; reply++) {
    t.type("tell me a story\n");
    ASSERT_TRUE(t.shows("tell me a story\r\n"));
    ::usleep(500'000);
    t.type(kCtrlC);
    ASSERT_TRUE(t.shows("[interrupted]")) << reply << ": " << t.unread();
    ASSERT_TRUE(t.shows("> ")) << t.unread();
  }
  t.type("/clear\n");
  ASSERT_TRUE(t.shows("> "));
  t.type("/nothing\n");
  ASSERT_TRUE(t.shows("/clear forgets the conversation"));
  t.type(kCtrlD);
  const int status = t.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << " " << t.unread();
}

TEST(LlmProgram, CtrlCAtThePromptEndsTheProgram) {
  const Model m;
  Terminal t({TG_PROGRAM, "llm", "--model", m.file()});
  ASSERT_TRUE(t.shows("> ")) << t.unread();
  t.type(kCtrlC);
  const int status = t.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

TEST(LlmProgram, CtrlCDuringOneAnswerIsTheExitCode) {
  const Model m(1 << 20);
  Terminal t(
      {TG_PROGRAM, "llm", "--model", m.file(), "--context", "200000", "-p", "a", "--raw", "--temperature", "0.1"});
  ::usleep(1'500'000);
  t.type(kCtrlC);
  const int status = t.wait();
  EXPECT_TRUE((WIFEXITED(status) && WEXITSTATUS(status) == 130) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT))
      << status << " " << t.unread();
}

}  // namespace
}  // namespace tg
#endif
