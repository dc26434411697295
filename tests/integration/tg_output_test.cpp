/// \file What tg prints: JSON of every command, exit codes, the report of tg doctor, and progress: at a terminal only.
#ifdef TG_PROGRAM
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "helpers/file_server.h"
#include "helpers/terminal.h"
#include "helpers/tg_program.h"
#include "helpers/tiny_chat_model.h"
#include "temp_dir.h"
#include "tinygrad/base/process.h"

namespace tg {
namespace {

using nlohmann::json;
using test::Terminal;
using test::tg_program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;
using Environment = std::vector<std::pair<std::string, std::string>>;

std::vector<json> parsed(const std::string& text) {
  std::vector<json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

// ---- JSON ----

TEST(TgOutput, EveryCommandWithDataHasJson) {
  const std::set<std::string> scripts{"completion", "manual"};
  const std::string help = tg_program({"--help"}).out;
  std::istringstream in(help.substr(help.find("Models:")));
  int commands = 0;
  for (std::string line; std::getline(in, line) && !line.starts_with("tg COMMAND");) {
    if (!line.starts_with("  ")) continue;
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    if (scripts.contains(name)) continue;
    commands++;
    std::vector<std::vector<std::string>> all{{name}};
    if (name == "cache") all = {{name, "info"}, {name, "clear"}};
    for (std::vector<std::string>& c : all) {
      c.emplace_back("--help");
      EXPECT_THAT(tg_program(c).out, HasSubstr("--json")) << name;
    }
  }
  EXPECT_GE(commands, 10);
}

TEST(TgOutput, Lists) {
  const auto rows = parsed(tg_program({"bench", "--list", "--json", "--filter", "^roofline_fma$"}).out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["unit"], "GFLOP/s");
  const auto names = parsed(tg_program({"explain", "--list", "--json"}).out);
  ASSERT_EQ(names.size(), 1u);
  EXPECT_THAT(names[0]["methods"].get<std::vector<std::string>>(), ::testing::Contains("softmax"));
}

TEST(TgOutput, CacheAndReplays) {
  const TempDir dir;
  const auto run = [&](const char* file, const char* what) {
    const ProcessResult r = tg_program({"bench", "--child", what, "--threads", "1"},
                                       {{"CACHEDB", dir / file}, {"CAPTURE_PROCESS_REPLAY", "1"}});
    EXPECT_TRUE(r.ok()) << r.err;
  };
  run("a.db", "first_result");
  run("b.db", "first_result");
  const ProcessResult same = tg_program({"replay-compare", "--json", dir / "a.db", dir / "b.db"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_GE(parsed(same.out).at(0)["same"], 1);
  EXPECT_TRUE(parsed(same.out).at(0)["different"].empty());
  const Environment a{{"CACHEDB", dir / "a.db"}};
  const json info = parsed(tg_program({"cache", "info", "--json"}, a).out).at(0);
  ASSERT_FALSE(info["tables"].empty());
  EXPECT_GE(info["tables"][0]["misses"].get<int>() + info["tables"][0]["hits"].get<int>(), 0);
  const json cleared = parsed(tg_program({"cache", "clear", "--json"}, a).out).at(0);
  EXPECT_EQ(cleared["cleared"], true);
  EXPECT_GT(cleared["entries"], 0);
  EXPECT_TRUE(parsed(tg_program({"cache", "info", "--json"}, a).out).at(0)["tables"].empty());
  const ProcessResult other = tg_program({"replay-compare", "--json", dir / "a.db", dir / "b.db"});
  EXPECT_EQ(other.exit_code, 1) << "kernels are gone";
  EXPECT_FALSE(parsed(other.out).at(0)["different"].empty());
}

TEST(TgOutput, Training) {
  const json r = parsed(tg_program({"mnist", "--steps", "2", "--batch-size", "8", "--json"}).out).at(0);
  EXPECT_EQ(r["steps"], 2);
  EXPECT_GT(r["loss"], 0);
  EXPECT_GT(r["test_accuracy"], 0);
  EXPECT_GT(r["step_seconds"], 0);
}

// ---- exit codes ----

TEST(TgOutput, ExitCodesAreThoseOfTheHelp) {
  const std::string help = tg_program({"--help"}).out;
  const std::pair<int, std::vector<std::string>> cases[] = {
      {0, {"env"}},
      {1, {"viz", "--text", "/nonexistent.viz"}},
      {1, {"explain", "rand(3, 4) @ rand(3)"}},
      {2, {"explain", "nothing_of_this_name(3)"}},
      {2, {"explain"}},
      {2, {"viz", "record"}},
      {2, {"bench", "--filter", "["}},
      {1, {"replay-compare", "/nonexistent/a", "/nonexistent/b"}},
      {1, {"mnist", "--device", "TOASTER"}},
      {2, {"bench", "--no-such-option"}},
      {2, {}},
  };
  for (const auto& [code, arguments] : cases) {
    const ProcessResult r = tg_program(arguments);
    EXPECT_EQ(r.exit_code, code) << (arguments.empty() ? "" : arguments[0]);
    EXPECT_THAT(help, HasSubstr("\n  " + std::to_string(code) + "  "));
    EXPECT_EQ(r.err.empty(), code == 0) << r.err;
  }
  EXPECT_THAT(help, AllOf(HasSubstr("\n  3  "), HasSubstr("\n  130  ")));
}

// ---- help ----

TEST(TgOutput, HelpFitsATerminal) {
  const std::string all = tg_program({"help"}).out;
  EXPECT_EQ(all, tg_program({"--help"}).out);
  EXPECT_EQ(tg_program({"help", "bench"}).out, tg_program({"bench", "--help"}).out);
  std::vector<std::string> pages{all};
  std::istringstream commands(all.substr(all.find("Models:")));
  for (std::string line; std::getline(commands, line) && !line.starts_with("tg COMMAND");)
    if (line.starts_with("  ")) pages.push_back(tg_program({line.substr(2, line.find(' ', 2) - 2), "--help"}).out);
  EXPECT_GE(pages.size(), 12u);
  for (const std::string& page : pages) {
    std::istringstream in(page);
    bool examples = false;
    for (std::string line; std::getline(in, line);) {
      examples = line == "Examples:" || (examples && line.starts_with("  "));  // to be copied: in one line each
      EXPECT_TRUE(examples || line.size() <= 80) << line;
    }
    for (const char* residue : {"(0x)", " in [", "REQUIRED", "Excludes:", "[Exactly"})
      EXPECT_THAT(page, Not(HasSubstr(residue)));
  }
}

// ---- tg doctor ----

json finding(const json& report, const std::string& name) {
  for (const json& f : report.at("findings"))
    if (f.at("name") == name) return f;
  return {};
}

TEST(TgDoctor, LooksAtEverything) {
  const TempDir dir;
  const ProcessResult r = tg_program({"doctor", "--json", "--quick"}, {{"CACHEDB", dir / "c.db"}});
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  const json report = parsed(r.out).at(0);
  std::set<std::string> areas;
  for (const json& f : report["findings"]) {
    areas.insert(f.at("area"));
    EXPECT_EQ(f["grade"] == "slow", !f["why"].get<std::string>().empty() && f["grade"] == "slow") << f;
  }
  EXPECT_THAT(areas, ::testing::ElementsAre("build", "caches", "compilers", "devices", "processor", "variables"));
  EXPECT_GT(finding(report, "a kernel")["numbers"]["compile_seconds"], 0);
  EXPECT_EQ(finding(report, "CPU")["numbers"]["available"], true);
  EXPECT_EQ(finding(report, "kernels")["numbers"]["path"], dir / "c.db");
}

TEST(TgDoctor, MeasuresRates) {
  const ProcessResult r = tg_program({"doctor", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.out << r.err;
  const json report = parsed(r.out).at(0);
  const json core = finding(report, "one core")["numbers"];
  EXPECT_GT(core["clock_hz"], 1e8);
  EXPECT_LT(core["clock_hz"], 6.5e9) << "additions that renaming does away with were counted as cycles";
  EXPECT_GT(core["flops"], 1e8);
  EXPECT_LT(core["flops"].get<double>(), 1.3 * core["expected_flops"].get<double>());
  EXPECT_GT(finding(report, "memory")["numbers"].size(), 0u);
  EXPECT_GT(finding(report, "matrix product")["numbers"]["flops"], 1e8);
  EXPECT_GE(finding(report, "while measuring")["numbers"]["others_processors"], 0);
}

TEST(TgDoctor, SaysWhatSlowsPrograms) {
  const ProcessResult r = tg_program({"doctor", "--quick"},
                                     {{"NOOPT", "1"}, {"SPEC", "1"}, {"CACHE_LIMIT", "7"}, {"NUM_CPU_THREADS", "1"}});
  EXPECT_EQ(r.exit_code, 0) << "slow is no failure";
  EXPECT_THAT(r.out, AllOf(HasSubstr("kernels are not optimised"), HasSubstr("graphs are verified after every stage"),
                           HasSubstr("do:  unset NOOPT"), HasSubstr("do:  a larger CACHE_LIMIT")));
  EXPECT_THAT(tg_program({"doctor", "--quick"}, {{"NOOPT", "0"}, {"SPEC", "0"}}).out,
              HasSubstr("none that slows programs"));
  const ProcessResult cache = tg_program({"doctor", "--quick"}, {{"CACHEDB", "/proc/nope/cache.db"}});
  EXPECT_THAT(cache.out, HasSubstr("every process compiles all of its kernels"));
}

TEST(TgDoctor, FailsWhereNothingCompiles) {
  const ProcessResult r = tg_program({"doctor", "--quick", "--json"}, {{"DEV", "TOASTER"}});
  EXPECT_EQ(r.exit_code, 1) << r.out;
  EXPECT_GE(parsed(r.out).at(0)["broken"], 1);
  const ProcessResult none =
      tg_program({"doctor", "--quick"}, {{"DEV", "CPU:LLVM"}, {"TG_LLVM_PLUGIN", "/nope"}, {"CC", "/nope/clang"}});
  EXPECT_EQ(none.exit_code, 1) << none.out;
  EXPECT_THAT(none.out, AllOf(HasSubstr("BROKEN"), HasSubstr("no kernel can be compiled")));
}

TEST(TgDoctor, SaysThatClangDoesNotStart) {
  const TempDir dir;
  const std::string clang = dir / "clang";
  std::ofstream(clang) << "#!/bin/sh\necho cannot open libLLVM >&2\nexit 127\n";
  std::filesystem::permissions(clang, std::filesystem::perms::owner_all);
  const ProcessResult r = tg_program({"doctor", "--quick"}, {{"CC", clang}});
  EXPECT_THAT(r.out, HasSubstr("does not start: cannot open libLLVM"));
}

// ---- progress ----

constexpr const char* kLine = "\r\x1b[K";

/// What a program shows at a terminal.
std::string at_terminal(const std::vector<std::string>& arguments, Environment env = {}) {
  std::vector<std::string> command{TG_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Terminal t(command, env);
  const int status = t.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << t.unread();
  return t.unread();
}

TEST(TgProgress, IsShownAtATerminalAndLeavesNothing) {
  const std::vector<std::string> bench{"bench", "--filter", "^roofline_(fma|read)$", "--threads", "1", "--time", "0"};
  const std::string shown = at_terminal(bench, {{"PROGRESS", "2"}});
  EXPECT_THAT(shown, AllOf(HasSubstr(std::string(kLine) + "bench:   0%"), HasSubstr("roofline_read]")));
  EXPECT_EQ(shown.substr(shown.rfind(kLine)), kLine) << "the last line is taken away: " << shown;
  EXPECT_THAT(at_terminal(bench, {{"PROGRESS", "0"}}), Not(HasSubstr(kLine)));
  std::vector<std::string> piped = bench;
  piped.emplace_back("--json");
  const ProcessResult r = tg_program(piped, {{"PROGRESS", "2"}});
  EXPECT_EQ(r.err, "") << "no terminal";
  EXPECT_EQ(parsed(r.out).size(), 2u);
}

TEST(TgProgress, CompilingSearchingAndDoctor) {
  const std::vector<std::string> train{"mnist", "--steps", "1", "--batch-size", "4"};
  const std::string compiled = at_terminal(train, {{"PROGRESS", "2"}, {"CACHELEVEL", "0"}});
  EXPECT_THAT(compiled, AllOf(HasSubstr("compiling: "), HasSubstr("loading mnist: "), HasSubstr("mnist: 100%")));
  EXPECT_THAT(
      at_terminal({"explain", "(rand(64, 64) @ rand(64, 64)).softmax(-1)"}, {{"PROGRESS", "2"}, {"CACHELEVEL", "0"}}),
      HasSubstr("inspecting: "));
  const ProcessResult piped = tg_program(train, {{"PROGRESS", "2"}, {"CACHELEVEL", "0"}});
  EXPECT_EQ(piped.err, "");
  EXPECT_THAT(at_terminal({"doctor", "--quick"}, {{"PROGRESS", "2"}}), HasSubstr("doctor:   0%"));
}

TEST(TgProgress, LoadingAndDownloadingAModel) {
  const TempDir dir;
  const std::string bytes = test::tiny_chat_model(64);
  test::FileServer server([&](const auto& r) { return test::FileServer::part_of(bytes, r); });
  const std::string shown = at_terminal({"llm", "--model", server.url("/tiny.gguf"), "-p", "x", "-n", "1"},
                                        {{"PROGRESS", "2"}, {"XDG_CACHE_HOME", dir / "cache"}});
  EXPECT_THAT(shown, AllOf(HasSubstr("tiny.gguf: 0 B"), HasSubstr("loading layers: ")));
}

}  // namespace
}  // namespace tg
#endif
