/// \file The tg program as users meet it: commands, benchmark rows, messages, exit codes.
#ifdef TG_PROGRAM
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tinygrad/base/paths.h"
#include "tinygrad/base/process.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

ProcessResult tg_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TG_PROGRAM);
  return run_process(arguments, {.timeout_s = 100});
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::vector<std::string> listed(const std::string& filter = "") {
  const ProcessResult r = tg_run({"bench", "--list", "--filter", filter});
  EXPECT_TRUE(r.ok()) << r.err;
  std::vector<std::string> names;
  for (const std::string& line : lines(r.out)) names.push_back(line.substr(0, line.find(' ')));
  return names;
}

TEST(Tg, Version) { EXPECT_EQ(tg_run({"--version"}).out, std::string(version()) + "\n"); }

TEST(Tg, HelpNamesTheCommands) {
  const ProcessResult r = tg_run({"--help"});
  EXPECT_TRUE(r.ok());
  EXPECT_THAT(r.out, testing::AllOf(HasSubstr("bench"), HasSubstr("env")));
  EXPECT_THAT(tg_run({"bench", "--help"}).out, HasSubstr("--filter"));
}

/// The names of the commands, from tg --help: the lines that begin with two blanks below a heading.
std::vector<std::string> commands() {
  std::vector<std::string> out;
  const std::string help = tg_run({"--help"}).out;
  for (const std::string& line :
       lines(help.substr(help.find("Models:"), help.find("tg COMMAND") - help.find("Models:"))))
    if (line.starts_with("  ")) out.push_back(line.substr(2, line.find(' ', 2) - 2));
  return out;
}

TEST(Tg, EveryCommandHasExamples) {
  EXPECT_GE(commands().size(), 12U);
  for (const std::string& c : commands()) {
    const ProcessResult r = tg_run({c, "--help"});
    EXPECT_TRUE(r.ok()) << c;
    EXPECT_THAT(r.out, HasSubstr("Examples:\n  ")) << c;
    EXPECT_THAT(r.out, testing::Not(HasSubstr("Exit status"))) << c << " has the text of tg --help";
  }
}

TEST(Tg, BashCompletesCommandsAndOptions) {
  const auto completed = [](const std::string& words, int at) {
    const ProcessResult r =
        run_process({"bash", "-c",
                     std::string("source <(") + TG_PROGRAM + " completion bash) && COMP_WORDS=(" + words +
                         ") COMP_CWORD=" + std::to_string(at) + "; _tg; echo \"${COMPREPLY[@]}\""},
                    {.timeout_s = 100});
    return r.out + r.err;
  };
  EXPECT_EQ(completed("tg re", 1), "replay-compare\n");
  EXPECT_EQ(completed("tg viz --per", 2), "--perfetto\n");
  EXPECT_EQ(completed("tg viz rec", 2), "record\n");
  EXPECT_EQ(completed("tg cache xyz", 2), "\n");
}

TEST(Tg, CompletionsAndManualNameEveryCommand) {
  for (const std::string shell : {"zsh", "fish"}) {
    const ProcessResult r = tg_run({"completion", shell});
    EXPECT_TRUE(r.ok());
    for (const std::string& c : commands()) EXPECT_THAT(r.out, HasSubstr(c)) << shell;
  }
  EXPECT_EQ(tg_run({"completion", "csh"}).exit_code, 2);
  const ProcessResult manual = tg_run({"manual"});
  EXPECT_TRUE(manual.ok());
  EXPECT_THAT(manual.out, testing::AllOf(HasSubstr(".SH EXIT STATUS"), HasSubstr(".B 130\nCtrl\\-C"),
                                         HasSubstr(".SS tg viz record"), HasSubstr(".B \\-\\-perfetto")));
}

TEST(Tg, UsageErrors) {
  const ProcessResult unknown = tg_run({"frobnicate"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("unknown command 'frobnicate', expected one of: "));
  const ProcessResult none = tg_run({});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(
      none.err,
      HasSubstr("tg: no command, expected one of: llm, serve, run, mnist, inspect, explain, viz, replay-compare, "
                "doctor, devices, bench, cache, env, completion, manual (tg --help"));
  EXPECT_EQ(tg_run({"bench", "--threads", "0"}).exit_code, 2);
  EXPECT_EQ(tg_run({"bench", "--runs", "4"}).exit_code, 2) << "a row has at least five runs";
  EXPECT_EQ(tg_run({"bench", "--no-such-option"}).exit_code, 2);
}

TEST(Tg, UsageErrorsSayWhatIsWrong) {
  const ProcessResult unknown = tg_run({"mnist", "--stepz", "3"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err,
            "tg: unexpected argument '--stepz', did you mean --steps?; tg mnist --help lists the options\n");
  EXPECT_THAT(tg_run({"mnist", "three"}).err, HasSubstr("tg: unexpected argument 'three'"));
  const ProcessResult word = tg_run({"mnist", "--steps", "abc"});
  EXPECT_EQ(word.exit_code, 2);
  EXPECT_THAT(word.err, testing::AllOf(testing::StartsWith("tg: --steps: got 'abc', expected a whole number"),
                                       HasSubstr("tg mnist --help")));
  EXPECT_THAT(tg_run({"mnist", "--batch-size", "0"}).err, HasSubstr("got 0, expected 1 to 60000"));
  EXPECT_THAT(tg_run({"mnist", "--lr", "-1"}).err, HasSubstr("tg: --lr: got '-1', expected a number of 0 or more"));
  EXPECT_THAT(tg_run({"cache"}).err, HasSubstr("tg: no command of tg cache, expected one of: info, clear"));
}

/// The program with standard output and standard error as a shell would set them up.
ProcessResult shell(const std::string& line) {
  return run_process({"sh", "-c", std::string(TG_PROGRAM) + " " + line}, {.timeout_s = 100});
}

TEST(Tg, OutputThatCannotBeWritten) {
  for (const char* command : {"env", "devices", "bench --list", "cache info --json"}) {
    const ProcessResult r = shell(std::string(command) + " > /dev/full");
    EXPECT_EQ(r.exit_code, 1) << command;
    EXPECT_THAT(r.err, HasSubstr("tg: cannot write to standard output: ")) << command;
  }
}

TEST(Tg, CtrlCSaysHowFarItCame) {
  const ProcessResult r = run_process(
      {"sh", "-c",
       std::string(TG_PROGRAM) + " mnist --steps 100000 --batch-size 8 & pid=$!; sleep 4; kill -INT $pid; wait $pid"},
      {.timeout_s = 100});
  EXPECT_EQ(r.exit_code, 130) << r.err;
  EXPECT_THAT(r.err, testing::ContainsRegex("tg: interrupted after [0-9]+ of 100000 steps"));
  EXPECT_EQ(r.out, "");
}

TEST(Tg, Json) {
  const auto parsed = [](const std::string& text) {
    std::vector<nlohmann::json> out;
    for (const std::string& line : lines(text)) out.push_back(nlohmann::json::parse(line));
    return out;
  };
  const auto variables =
      parsed(run_process({TG_PROGRAM, "env", "--json"}, {.env = {{"DEBUG", "2"}}, .timeout_s = 100}).out);
  EXPECT_GT(variables.size(), 50u);
  EXPECT_TRUE(std::any_of(variables.begin(), variables.end(),
                          [](auto& v) { return v["name"] == "DEBUG" && v["value"] == 2 && v["values"] == "0 to 7"; }));
  const auto devices = parsed(tg_run({"devices", "--json"}).out);
  EXPECT_EQ(std::count_if(devices.begin(), devices.end(), [](auto& d) { return d["default"] == true; }), 1);
  EXPECT_TRUE(std::any_of(devices.begin(), devices.end(),
                          [](auto& d) { return d["name"] == "INTERP" && d["available"] == true; }));
  const std::string file = testing::TempDir() + "tg_json_test_" + std::to_string(getpid()) + ".db";
  const auto cache = parsed(run_process({TG_PROGRAM, "cache", "info", "--json"},
                                        {.env = {{"CACHEDB", file}, {"CACHE_LIMIT", "7"}}, .timeout_s = 100})
                                .out);
  ASSERT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache[0]["path"], file);
  EXPECT_EQ(cache[0]["limit_mib"], 7);
}

TEST(Tg, LogsHaveNoColours) {
  const ProcessResult r = run_process({TG_PROGRAM, "bench", "--child", "first_result", "--threads", "1"},
                                      {.env = {{"DEBUG", "2"}}, .timeout_s = 100});
  EXPECT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(r.out, HasSubstr("*** CPU"));
  EXPECT_EQ(r.out.find('\x1b'), std::string::npos);
}

TEST(Tg, VariablesThatAreNotHonouredAreSaidOnce) {
  const auto run = [](std::vector<std::pair<std::string, std::string>> env) {
    return run_process({TG_PROGRAM, "bench", "--child", "first_result", "--threads", "1"},
                       {.env = std::move(env), .timeout_s = 100});
  };
  const ProcessResult r = run({{"MEMORY_LIMIT", "-5"}, {"SPEC", "9"}, {"CACHEDB", "/proc/nope/cache.db"}});
  EXPECT_TRUE(r.ok()) << r.err;
  for (const char* text :
       {"tinygrad: [MEMORY_LIMIT] got -5, expected 0 to 8796093022207: taken as 0\n",
        "[SPEC] got 9, expected 0 to 2: taken as 2\n", "[CACHEDB] got /proc/nope/cache.db, which cannot be opened"}) {
    EXPECT_THAT(r.err, HasSubstr(text));
    EXPECT_EQ(r.err.find(text, r.err.find(text) + 1), std::string::npos) << "once: " << r.err;
  }
  if (!has_program("clang-16") && !has_program("clang-17") && !has_program("clang-18") && !has_program("clang-19") &&
      !has_program("clang"))
    return;
  const ProcessResult plugin = run({{"TG_LLVM_PLUGIN", "/nope"}});
  EXPECT_THAT(plugin.err, HasSubstr("[TG_LLVM_PLUGIN] got /nope, where there is no plugin"));
}

TEST(Tg, APluginThatCannotBeLoadedIsReplacedByClang) {
  if (clang_path().empty()) GTEST_SKIP() << "no clang to compile kernels instead";
  const TempDir dir("tg_plugin");
  const std::string damaged = (dir.path() / "damaged.so").string();
  std::ofstream(damaged) << "no shared object";
  const auto run = [&](const char* device) {
    return run_process({TG_PROGRAM, "bench", "--child", "first_result", "--threads", "1"},
                       {.env = {{"TG_LLVM_PLUGIN", damaged}, {"CACHELEVEL", "0"}, {"DEV", device}}, .timeout_s = 100});
  };
  const ProcessResult r = run("CPU");
  EXPECT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(r.err, AllOf(HasSubstr("[llvm] the LLVM plugin cannot be loaded"), HasSubstr("damaged.so"),
                           HasSubstr("clang compiles kernels instead")));
  const ProcessResult asked = run("CPU:LLVM");
  EXPECT_EQ(asked.exit_code, 1) << asked.out;
  EXPECT_THAT(asked.err, HasSubstr("DEV=CPU:CLANG does without")) << "a renderer that was asked for is not replaced";
}

TEST(Tg, RewritesAreCounted) {
  const ProcessResult r = run_process({TG_PROGRAM, "bench", "--child", "first_result", "--threads", "1"},
                                      {.env = {{"TRACK_MATCH_STATS", "1"}, {"CACHELEVEL", "0"}}, .timeout_s = 100});
  EXPECT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(r.err,
              testing::ContainsRegex(
                  "     tries       hits         us  rule\n +[0-9]+ +[0-9]+ +[0-9]+  tinygrad/[a-z_/]+.cpp:[0-9]+\n"));
}

TEST(Tg, ProgramsAreRecordedAndShown) {
  const TempDir folder("tinygrad-test");
  const std::string file = (folder.path() / "first.viz").string();
  const ProcessResult run = run_process(
      {TG_PROGRAM, "viz", "record", "-o", file, "--", TG_PROGRAM, "bench", "--child", "first_result", "--threads", "1"},
      {.env = {{"CACHELEVEL", "0"}}, .timeout_s = 100});
  ASSERT_TRUE(run.ok()) << run.err;
  EXPECT_THAT(run.err, HasSubstr(" in " + file + "; tg viz shows it\n"));
  const auto show = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"viz", file});
    const ProcessResult r = tg_run(options);
    EXPECT_TRUE(r.ok()) << r.err;
    return r.out;
  };
  const auto overview = nlohmann::json::parse(show({"--json"}));
  EXPECT_GE(overview["kernels"], 1);
  std::string name;
  for (const auto& s : overview["spans"])
    if (s["kind"] == "kernel") name = s["name"];
  EXPECT_THAT(show({"--text"}), HasSubstr("kernel " + name));
  EXPECT_THAT(show({"--text", "--kernel", name}), testing::AllOf(HasSubstr("pass symbolic"), HasSubstr("--- source")));
  EXPECT_THAT(show({"--text", "--kernel", name, "--graph", "0"}), HasSubstr(" = SINK void"));
  EXPECT_THAT(show({"--text", "--kernel", name, "--rewrites"}), HasSubstr("\n -> "));
  EXPECT_THAT(show({"--text", "--show", "kernels"}), HasSubstr("CPU " + name));
  EXPECT_THAT(show({"--text", "--show", "rules"}), HasSubstr("tinygrad/uop/symbolic.cpp:"));
  EXPECT_THAT(show({"--text", "--show", "memory"}), HasSubstr("CPU: most "));
  EXPECT_THAT(show({"--text", "--show", "lines"}), testing::ContainsRegex("bench_[a-z]+\\.cpp:[0-9]+: .* -> "));
  EXPECT_FALSE(overview["lines"].empty());
  EXPECT_FALSE(nlohmann::json::parse(show({"--perfetto"}))["traceEvents"].empty());
}

TEST(Tg, RecordingsThatCannotBeShown) {
  const auto error_of = [](const std::vector<std::string>& options, int code = 1) {
    const ProcessResult r = tg_run(options);
    EXPECT_EQ(r.exit_code, code);
    return r.err;
  };
  EXPECT_THAT(error_of({"viz", "/nope.viz", "--text"}), HasSubstr("/nope.viz"));
  EXPECT_THAT(error_of({"viz", TG_PROGRAM, "--text"}), HasSubstr("got no recording of this version"));
  EXPECT_THAT(error_of({"viz", "record"}, 2), HasSubstr("[viz] got no program, expected one"));
  EXPECT_THAT(error_of({"viz", "record", "--", "/nope/program"}), HasSubstr("[viz] cannot run /nope/program"));
}

TEST(Tg, ExplainsExpressions) {
  const ProcessResult product =
      tg_run({"explain", "--quick", "x = rand(32, 48); w = rand(48, 16); (x @ w + 1).relu()"});
  EXPECT_TRUE(product.ok()) << product.err;
  EXPECT_THAT(product.out, testing::AllOf(HasSubstr("kernel 1 of 1: "), HasSubstr("made by dot, add, relu"),
                                          HasSubstr("limit"), HasSubstr("32 x 16 x r48")));
  const ProcessResult sliced =
      tg_run({"explain", "--quick", "--json", "arange(12).reshape(3, 4)[1:, ::2].sum(axis=0, keepdim=True)"});
  EXPECT_TRUE(sliced.ok()) << sliced.err;
  const auto json = nlohmann::json::parse(sliced.out);
  EXPECT_EQ(json["kernels"].size(), 1u);
  EXPECT_EQ(json["buffers"].back()["elements"], 2);
  EXPECT_FALSE(json["kernels"][0]["source"].get<std::string>().empty());
  const ProcessResult convolution =
      tg_run({"explain", "--quick",
              "g = ones(8); rand(1, 4, 6, 6).conv2d(rand(8, 4, 3, 3), None, padding=1).batchnorm(g, g, g, g).relu()"});
  EXPECT_TRUE(convolution.ok()) << convolution.err;
  EXPECT_THAT(convolution.out, HasSubstr("made by conv2d, batchnorm, relu"));
  EXPECT_THAT(tg_run({"explain", "--list"}).out, testing::AllOf(HasSubstr("softmax"), HasSubstr("einsum")));
}

TEST(Tg, ExpressionsThatAreNotUnderstood) {
  const std::pair<const char*, const char*> cases[] = {
      {"rand(3", "got the end at character 7, expected ','"},
      {"rand(3).foo()", "got foo, which is no method of a tensor; did you mean"},
      {"randd(3)", "got randd, which is no function; did you mean rand?"},
      {"x + 1", "got x, which is no variable"},
      {"rand(3, 4) @ rand(3)", "expected equal inner sizes"},
      {"rand(3).sum(0, False, None, 7)", "[sum] got 4 arguments, expected 3"},
      {"rand(3).sum(dim=1)", "[sum] got dim=, which it does not take"},
      {"rand(3).softmax('a')", "[softmax] got no integer as axis, expected one"},
      {"rand(3.5)", "[rand] got no integer as shape, expected one"},
      {"rand(3) $", "got '$' at character 9"},
      {"", "got no expression"},
  };
  for (const auto& [text, message] : cases) {
    const ProcessResult r = tg_run({"explain", "--quick", text});
    EXPECT_EQ(r.exit_code, std::string_view(text).find('@') == std::string_view::npos ? 2 : 1) << text;
    EXPECT_THAT(r.err, HasSubstr(message)) << text;
  }
  EXPECT_THAT(tg_run({"explain", "--quick", std::string(5000, '(')}).err, HasSubstr("fewer p"));
  std::string powers = "2";
  for (int i = 0; i < 5000; i++) powers += "**2";
  EXPECT_THAT(tg_run({"explain", "--quick", powers}).err, HasSubstr("fewer powers of powers"));
  EXPECT_TRUE(tg_run({"explain", "--quick", "rand(3) + " + std::string(50000, '-') + "2"}).ok())
      << "signs are no depth";
}

TEST(Tg, CacheClearOfAnUnknownTable) {
  const std::string file = testing::TempDir() + "tg_cache_test_" + std::to_string(getpid()) + ".db";
  const ProcessResult r =
      run_process({TG_PROGRAM, "cache", "clear", "nosuch"}, {.env = {{"CACHEDB", file}}, .timeout_s = 100});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("[cache clear] got table nosuch, expected one of: "));
  EXPECT_EQ(run_process({TG_PROGRAM, "cache", "clear"}, {.env = {{"CACHEDB", file}}, .timeout_s = 100}).exit_code, 0);
}

TEST(Tg, EnvironmentTable) {
  const ProcessResult r = tg_run({"env"});
  EXPECT_TRUE(r.ok());
  EXPECT_THAT(r.out, testing::AllOf(HasSubstr("NUM_CPU_THREADS"), HasSubstr("TINYGRAD_DATA")));
  EXPECT_THAT(tg_run({"env", "--markdown"}).out, testing::StartsWith("# Environment variables"));
}

TEST(Tg, Devices) {
  const ProcessResult r = tg_run({"devices"});
  ASSERT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(lines(r.out),
              testing::IsSupersetOf({testing::ContainsRegex("^. CPU +yes"), testing::ContainsRegex("^. INTERP +yes"),
                                     testing::ContainsRegex("^. NULL +yes")}));
  EXPECT_EQ(std::count_if(r.out.begin(), r.out.end(), [](char c) { return c == '*'; }), 1) << "one default device\n"
                                                                                           << r.out;
}

/// Losses of a short training.
std::vector<double> train(const std::vector<std::string>& options) {
  const TempDir folder("tinygrad-test");
  const std::string path = (folder.path() / "losses").string();
  std::vector<std::string> arguments{"mnist", "--steps", "3", "--batch-size", "16", "--losses", path};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const ProcessResult r = tg_run(arguments);
  EXPECT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(r.out, testing::MatchesRegex("steps 3, test accuracy [0-9.]+%, [0-9.]+ ms/step\n"));
  std::vector<double> losses;
  std::ifstream in(path);
  for (double loss; in >> loss;) losses.push_back(loss);
  return losses;
}

TEST(TgMnist, SeedDecidesTheLosses) {
  const std::vector<double> losses = train({});
  ASSERT_EQ(losses.size(), 3u);
  for (double loss : losses) EXPECT_TRUE(loss > 0.5 && loss < 5) << loss;
  EXPECT_EQ(train({}), losses) << "the same seed";
  EXPECT_NE(train({"--seed", "7"}), losses);
}

TEST(TgMnist, Errors) {
  EXPECT_EQ(tg_run({"mnist", "--steps", "-1"}).exit_code, 2);
  EXPECT_EQ(tg_run({"mnist", "--batch-size", "0"}).exit_code, 2);
  const ProcessResult device = tg_run({"mnist", "--device", "TOASTER"});
  EXPECT_EQ(device.exit_code, 1);
  EXPECT_THAT(device.err, HasSubstr("TOASTER"));
  EXPECT_EQ(tg_run({"mnist", "--losses", "/nonexistent/folder/file"}).exit_code, 1);
}

TEST(TgBench, ListHasUniqueNames) {
  const std::vector<std::string> names = listed();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_THAT(names, testing::IsSupersetOf({"roofline_fma",
                                            "roofline_read",
                                            "process_start",
                                            "matmul_f32_256",
                                            "matmul_f32_512",
                                            "matmul_f32_1024",
                                            "matmul_f32_2048",
                                            "conv3x3_64_fwd",
                                            "conv3x3_64_bwd",
                                            "add_mul_16m",
                                            "exp_16m",
                                            "sum_16m",
                                            "softmax_4096",
                                            "layernorm_4096",
                                            "gpt2_block_fwd",
                                            "gpt2_block_train",
                                            "gpt2_block_train_4096",
                                            "mnist_step_512",
                                            "resnet18_compile_cold",
                                            "resnet18_schedule_cold",
                                            "resnet18_warm_disk",
                                            "resnet18_train_peak",
                                            "schedule_cache_hit_resnet18",
                                            "gpt2_block_compile_cold",
                                            "start_to_first_result",
                                            "rewrite_nodes_per_s",
                                            "build_10k_ops",
                                            "eager_add",
                                            "jit_replay_per_kernel"}));
  EXPECT_THAT(listed("^roofline_(fma|read)$"), testing::ElementsAre("roofline_fma", "roofline_read"));
}

TEST(TgBench, JsonRows) {
  const ProcessResult r = tg_run(
      {"bench", "--json", "--filter", "roofline_fma|roofline_read|process_start", "--threads", "1", "--time", "0"});
  ASSERT_TRUE(r.ok()) << r.err;
  std::vector<std::string> names;
  for (const std::string& line : lines(r.out)) {
    const nlohmann::json row = nlohmann::json::parse(line);
    names.push_back(row.at("name"));
    EXPECT_GT(row.at("min").get<double>(), 0) << line;
    EXPECT_LE(row.at("min").get<double>(), row.at("value").get<double>()) << line;
    EXPECT_LE(row.at("value").get<double>(), row.at("max").get<double>()) << line;
    EXPECT_GE(row.at("runs").get<int>(), 5) << line;
    EXPECT_EQ(row.at("threads").get<int>(), 1) << line;
    EXPECT_FALSE(row.at("unit").get<std::string>().empty()) << line;
  }
  EXPECT_THAT(names, testing::ElementsAre("roofline_fma", "roofline_read", "process_start"));
}

TEST(TgBench, ComputedRowsCheckTheirResults) {
  const ProcessResult r = tg_run({"bench", "--json", "--filter", "^(matmul_f32_256|start_to_first_result|eager_add)$",
                                  "--threads", "1", "--time", "0"});
  ASSERT_TRUE(r.ok()) << r.err;
  EXPECT_EQ(lines(r.out).size(), 3u);
  EXPECT_GT(nlohmann::json::parse(lines(r.out)[0]).at("peak_fraction").get<double>(), 0);
}

TEST(TgBench, TableForPeople) {
  const ProcessResult r = tg_run({"bench", "--filter", "process_start", "--threads", "2", "--time", "0"});
  ASSERT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(r.out,
              testing::AllOf(testing::StartsWith("2 threads, "), HasSubstr("\nprocess_start "), HasSubstr(" ms ")));
}

TEST(TgBench, RowsOfTheComparison) {
  EXPECT_THAT(listed("^matmul_f32_"),
              testing::IsSupersetOf({"matmul_f32_256_nn", "matmul_f32_512_nt", "matmul_f32_1024_tn",
                                     "matmul_f32_2048_nn", "matmul_f32_1000_nn", "matmul_f32_1023x777x513_nn",
                                     "matmul_f32_4096_nn", "matmul_f32_batched_32x256_nn"}));
  EXPECT_THAT(listed("^gemv_(f32|q[48]_0)_"),
              testing::ElementsAre("gemv_f32_4096", "gemv_q4_0_4096", "gemv_q8_0_4096"));
  EXPECT_THAT(listed("^gemv_"), testing::SizeIs(14));
  EXPECT_THAT(listed("^conv"),
              testing::UnorderedElementsAre("conv3x3_64_fwd", "conv3x3_64_bwd", "conv1x1_256_fwd", "conv1x1_256_bwd",
                                            "conv7x7_s2_fwd", "conv7x7_s2_bwd", "conv_depthwise3x3_fwd",
                                            "conv_depthwise3x3_bwd", "conv5x5_32_56_fwd", "conv5x5_32_56_bwd",
                                            "conv3x3_dil2_64_fwd", "conv3x3_dil2_64_bwd"));
  EXPECT_THAT(listed("^matmul_(i8|bf16|f16)"),
              testing::IsSupersetOf({"matmul_i8_i32_1024_nn", "matmul_bf16_1024_nt", "matmul_f16_4096_nn"}));
  EXPECT_THAT(listed("^(groupnorm|embedding|lstm|vit)_"),
              testing::ElementsAre("groupnorm_8x128x56", "embedding_50257x768", "lstm_64x32x256", "vit_block_fwd"));
  EXPECT_THAT(listed("^(sin|softmax)_"), testing::ElementsAre("sin_4m", "softmax_4096", "softmax_128x50257"));
  EXPECT_THAT(listed("_(16m|4096)$|_4096_axis"),
              testing::IsSupersetOf({"add_mul_16m", "exp_16m", "gelu_16m", "sum_16m", "max_16m", "sum_4096_axis0",
                                     "sum_4096_axis1", "mean_4096_axis1", "softmax_4096", "layernorm_4096"}));
  EXPECT_THAT(listed("^(attention|gpt2_block|mnist|resnet18)_.*(fwd|train$|step_)"),
              testing::ElementsAre("attention_causal_12x1024x64_fwd", "gpt2_block_fwd", "gpt2_block_train",
                                   "mnist_step_512", "resnet18_step_8"));
  EXPECT_THAT(listed("^(allreduce|ddp)_"), testing::ElementsAre("allreduce_64mb", "allreduce_1mb", "allreduce_4kb",
                                                                "ddp_mnist_step_512", "ddp_gpt2_block_step"));
}

TEST(TgBench, SamplesOnRequest) {
  const ProcessResult r =
      run_process({TG_PROGRAM, "bench", "--on-request", "--pin", "--threads", "1", "--filter", "^gemv_f32_4096$"},
                  {.input = "\n\n\n", .timeout_s = 100});
  ASSERT_TRUE(r.ok()) << r.err;
  const std::vector<std::string> out = lines(r.out);
  ASSERT_EQ(out.size(), 4u) << r.out;
  EXPECT_EQ(out[0], "ready");
  for (size_t i = 1; i < out.size(); i++) EXPECT_GT(std::stod(out[i]), 0) << r.out;
  EXPECT_THAT(tg_run({"bench", "--on-request", "--filter", "^gemv_"}).err, HasSubstr("finds 14"));
  EXPECT_THAT(tg_run({"bench", "--on-request", "--filter", "^roofline_read$"}).err, HasSubstr("one by one"));
}

TEST(TgBench, QuantizedRowsCheckTheirResults) {
  const ProcessResult r =
      tg_run({"bench", "--json", "--filter", "^gemv_(q4_1|q8_0|q6_k)_", "--threads", "2", "--time", "0"});
  ASSERT_TRUE(r.ok()) << r.err;
  for (const std::string& line : lines(r.out)) EXPECT_EQ(nlohmann::json::parse(line).at("unit"), "GB/s") << line;
  EXPECT_EQ(lines(r.out).size(), 3u);
}

TEST(TgBench, FilterFindsGroups) {
  const ProcessResult r = tg_run({"bench", "--list", "--filter", "^collective$"});
  ASSERT_TRUE(r.ok()) << r.err;
  for (const char* row : {"allreduce_64mb", "reduce_scatter_64mb", "all_gather_64mb", "all_to_all_64mb",
                          "broadcast_64mb", "ddp_mnist_step_512"})
    EXPECT_THAT(r.out, HasSubstr(row));
  EXPECT_EQ(r.out.find("matmul"), r.out.npos);
}

TEST(TgBench, Errors) {
  const ProcessResult bad = tg_run({"bench", "--filter", "("});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("not a regular expression"));
  const ProcessResult none = tg_run({"bench", "--filter", "no_such_row", "--json"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.out, IsEmpty());
  EXPECT_THAT(none.err, HasSubstr("matches no row"));
  EXPECT_EQ(tg_run({"bench", "--child", "nobody"}).exit_code, 1);
}

}  // namespace
}  // namespace tg
#endif
