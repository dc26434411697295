/// \file Several processes and one disk cache: killed while they fill it, damaged entries, recorded runs, and kernels
/// that are the same every time.
#ifdef TG_PROGRAM
#include "tinygrad/base/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tinygrad/base/disk_cache.h"
#include "tinygrad/engine/process_replay.h"

extern char** environ;

namespace tg {
namespace {

using testing::HasSubstr;
using Env = std::vector<std::pair<std::string, std::string>>;

/// A process that compiles and runs something and checks the result itself.
ProcessResult child(const std::string& row, const std::string& db, Env env = {}, int threads = 2) {
  env.insert(env.end(), {{"CACHEDB", db}, {"SPEC", "0"}});
  return run_process({TG_PROGRAM, "bench", "--child", row, "--threads", std::to_string(threads)},
                     {.env = env, .timeout_s = 200});
}

pid_t start(const std::string& row, const std::string& db) {
  std::vector<std::string> env;
  for (char** e = environ; *e; e++)
    if (!std::string_view(*e).starts_with("CACHEDB=")) env.push_back(*e);
  env.push_back("CACHEDB=" + db);
  std::vector<char*> pointers;
  for (std::string& e : env) pointers.push_back(e.data());
  pointers.push_back(nullptr);
  std::string program = TG_PROGRAM, name = row;
  std::string words[] = {program, "bench", "--child", name, "--threads", "1"};
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (int fd : {1, 2}) posix_spawn_file_actions_addopen(&files, fd, "/dev/null", 1, 0);
  pid_t pid = -1;
  EXPECT_EQ(posix_spawn(&pid, program.c_str(), &files, nullptr, argv.data(), pointers.data()), 0);
  posix_spawn_file_actions_destroy(&files);
  return pid;
}

TEST(Processes, KilledWhileTheyFillOneCache) {
  const TempDir dir;
  const std::string db = (dir.path() / "c.db").string();
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 10 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(8); round++) {
    const pid_t a = start("gpt2_block_compile", db), b = start("gpt2_block_compile", db);
    std::this_thread::sleep_for(std::chrono::milliseconds(120 + 70 * round));
    for (pid_t p : {a, b}) {
      kill(p, SIGKILL);
      waitpid(p, nullptr, 0);
    }
  }
  const ProcessResult r = child("gpt2_block_compile", db);
  EXPECT_TRUE(r.ok()) << r.err;
  DiskCache cache(db);
  ASSERT_TRUE(cache.info().usable);
  int64_t programs = 0;
  for (const auto& t : cache.info().tables) programs += t.name == "program" ? t.entries : 0;
  EXPECT_GE(programs, 20);
}

TEST(Processes, FlippedBytesAreCompiledAgain) {
  const TempDir dir;
  const std::string db = (dir.path() / "c.db").string();
  ASSERT_TRUE(child("gpt2_block_compile", db).ok());
  // Values with right checksums for wrong bytes would be trusted; these have wrong ones.
  sqlite3* file = nullptr;
  ASSERT_EQ(sqlite3_open(db.c_str(), &file), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(
                file, "UPDATE entries SET value = CAST(substr(value, 1, 300) || X'5a5a' || substr(value, 303) AS BLOB)",
                nullptr, nullptr, nullptr),
            SQLITE_OK);
  const int changed = sqlite3_changes(file);
  sqlite3_close(file);
  EXPECT_GT(changed, 40);
  const ProcessResult r = child("gpt2_block_compile", db);
  EXPECT_TRUE(r.ok()) << r.err;
  const ProcessResult again = child("gpt2_block_compile", db, {{"DEBUG", "0"}});
  EXPECT_TRUE(again.ok()) << again.err;
}

TEST(Processes, EntriesOfAnotherBuildAreNotUsed) {
  const TempDir dir;
  const std::string db = (dir.path() / "c.db").string();
  ASSERT_TRUE(child("first_result", db).ok());
  DiskCache cache(db);
  for (const std::string& key : cache.keys("program")) {
    std::vector<uint8_t> bytes = *cache.get("program", key);
    bytes[13] ^= 1;  // in the identity of the build; stored with the checksum that fits
    cache.put("program", key, bytes);
  }
  for (const char* table : {"compile_llvm", "compile_clang"})
    for (const std::string& key : cache.keys(table))
      cache.put(table, key, std::vector<uint8_t>{'n', 'o', ' ', 'E', 'L', 'F'});
  const ProcessResult r = child("first_result", db);
  EXPECT_TRUE(r.ok()) << r.err;
}

TEST(Processes, TheSameKernelsEveryTime) {
  const TempDir dir;
  const auto db = [&](const char* name) { return (dir.path() / name).string(); };
  const Env capture{{"CAPTURE_PROCESS_REPLAY", "1"}};
  const auto captured = [&](const char* name, const char* parallel, int threads) {
    Env env = capture;
    env.emplace_back("PARALLEL", parallel);
    const ProcessResult r = child("gpt2_block_compile", db(name), env, threads);
    EXPECT_TRUE(r.ok()) << r.err;
  };
  captured("a", "1", 2);
  captured("b", "2", 2);
  captured("c", "0", 2);
  captured("one", "0", 1);
  captured("one_again", "2", 1);
  for (auto [x, y] : {std::pair{"a", "b"}, {"a", "c"}, {"one", "one_again"}}) {
    const ReplayComparison c = compare_replays(db(x), db(y));
    EXPECT_GT(c.same, 30);
    EXPECT_TRUE(c.different.empty()) << x << " and " << y << ": " << c.different.size();
    // Objects too: the programs' entries hold the machine code.
    DiskCache p(db(x)), q(db(y));
    const std::vector<std::string> keys = p.keys("program");
    EXPECT_EQ(keys, q.keys("program"));
    EXPECT_GT(keys.size(), 30u);
    for (const std::string& key : keys) EXPECT_EQ(p.get("program", key), q.get("program", key)) << key;
  }
}

TEST(Processes, RecordedRunsAreCompared) {
  const TempDir dir;
  const std::string a = (dir.path() / "a.db").string(), b = (dir.path() / "b.db").string();
  const Env capture{{"CAPTURE_PROCESS_REPLAY", "1"}};
  Env noopt = capture;
  noopt.emplace_back("NOOPT", "1");
  ASSERT_TRUE(child("first_result", a, capture).ok());
  ASSERT_TRUE(child("first_result", b, noopt).ok());
  const ProcessResult same = run_process({TG_PROGRAM, "replay-compare", a, a}, {.timeout_s = 60});
  EXPECT_TRUE(same.ok()) << same.err;
  EXPECT_THAT(same.out, HasSubstr(" kernels are the same, 0 differ"));
  const ProcessResult other = run_process({TG_PROGRAM, "replay-compare", a, b}, {.timeout_s = 60});
  const bool differ = other.out.find(", 0 differ") == std::string::npos;
  EXPECT_EQ(other.exit_code, differ ? 1 : 0) << other.out;
  const ProcessResult none = run_process({TG_PROGRAM, "replay-compare", a, "/nonexistent.db"}, {.timeout_s = 60});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("/nonexistent.db"));
}

TEST(Processes, SearchedKernelsAreTakenFromTheDisk) {
  const TempDir dir;
  const std::string db = (dir.path() / "c.db").string();
  const auto searches = [&](const char* variable, const char* value) {
    const ProcessResult r = run_process(
        {TG_PROGRAM, "bench", "--filter", "^matmul_f32_256$", "--time", "0"},
        {.env = {{"CACHEDB", db}, {"DEBUG", "2"}, {"BEAM", "1"}, {"BEAM_TIMEOUT_SEC", "1"}, {variable, value}},
         .timeout_s = 100});
    EXPECT_TRUE(r.ok()) << r.err;
    return r.out.find("\nbeam r_") != std::string::npos;
  };
  EXPECT_TRUE(searches("SPEC", "0"));
  EXPECT_FALSE(searches("SPEC", "0"));
  EXPECT_FALSE(searches("CCACHE", "0")) << "only the program is made again";
  EXPECT_TRUE(searches("IGNORE_BEAM_CACHE", "1"));
  EXPECT_TRUE(searches("BEAM_CANDIDATES_MAX", "4")) << "another search";
  EXPECT_THAT(run_process({TG_PROGRAM, "cache", "info"}, {.env = {{"CACHEDB", db}}, .timeout_s = 60}).out,
              HasSubstr("\nbeam "));
}

TEST(Processes, CacheCommand) {
  const TempDir dir;
  const std::string db = (dir.path() / "c.db").string();
  ASSERT_TRUE(child("first_result", db).ok());
  const ProcessOptions here{.env = {{"CACHEDB", db}}, .timeout_s = 60};
  const ProcessResult info = run_process({TG_PROGRAM, "cache", "info"}, here);
  EXPECT_TRUE(info.ok()) << info.err;
  EXPECT_THAT(info.out, testing::AllOf(HasSubstr(db), HasSubstr("\nprogram "), HasSubstr(" entries  "),
                                       HasSubstr("limit 1.07 GB")));
  EXPECT_TRUE(run_process({TG_PROGRAM, "cache", "clear", "program"}, here).ok());
  EXPECT_THAT(run_process({TG_PROGRAM, "cache", "info"}, here).out, testing::Not(HasSubstr("\nprogram ")));
  EXPECT_TRUE(run_process({TG_PROGRAM, "cache", "clear"}, here).ok());
  EXPECT_THAT(run_process({TG_PROGRAM, "cache", "info"}, here).out, testing::Not(HasSubstr(" entries")));
  EXPECT_EQ(run_process({TG_PROGRAM, "cache"}, here).exit_code, 2);
  EXPECT_EQ(
      run_process({TG_PROGRAM, "cache", "info"}, {.env = {{"CACHEDB", "/dev/null/x.db"}}, .timeout_s = 60}).exit_code,
      1);
}

TEST(Processes, ProfileIsATrace) {
  const TempDir dir;
  const std::string db = (dir.path() / "c.db").string(), file = (dir.path() / "trace.json").string();
  const ProcessResult r = child("first_result", db, {{"PROFILE", "1"}, {"PROFILE_FILE", file}});
  ASSERT_TRUE(r.ok()) << r.err;
  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  std::set<std::string> tracks, names;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.at("ph") == "M") {
      if (e.at("name") == "process_name") tracks.insert(e.at("args").at("name").get<std::string>());
      continue;
    }
    EXPECT_EQ(e.at("ph"), "X");
    EXPECT_GE(e.at("ts").get<double>(), 0);
    EXPECT_GE(e.at("dur").get<double>(), 0);
    names.insert(e.at("name").get<std::string>());
  }
  EXPECT_THAT(tracks, testing::IsSupersetOf({"host", "compile", "CPU"}));
  EXPECT_THAT(names, testing::IsSupersetOf({"schedule", "run"}));
  EXPECT_GE(names.size(), 4u) << "kernels have their names";
  EXPECT_THAT(r.err, HasSubstr("profile: " + file));
}

}  // namespace
}  // namespace tg
#endif
