/// \file Child processes: exit codes, pipes larger than their buffers, environment, time limits, missing programs.
#include "tinygrad/base/process.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tinygrad/base/error.h"

namespace tg {
namespace {

TEST(Process, ExitCodeAndBothOutputs) {
  const ProcessResult r = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_EQ(r.out, "out\n");
  EXPECT_EQ(r.err, "err\n");
  EXPECT_FALSE(r.ok());
  EXPECT_GE(r.first_output_s, 0);
  EXPECT_GE(r.total_s, r.first_output_s);
}

TEST(Process, InputLargerThanAPipe) {
  const std::string input(3 << 20, 'x');
  const ProcessResult r = run_process({"cat"}, {.input = input});
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.out, input);
}

TEST(Process, ChildThatReadsNothing) {
  const ProcessResult r = run_process({"true"}, {.input = std::string(3 << 20, 'x')});
  EXPECT_TRUE(r.ok());
  EXPECT_LT(r.first_output_s, 0);
}

TEST(Process, EnvironmentIsAddedAndReplaced) {
  const ProcessResult r = run_process({"sh", "-c", "echo $TG_PROCESS_TEST:${PATH:+kept}:$HOME"},
                                      {.env = {{"TG_PROCESS_TEST", "a b;c"}, {"HOME", "elsewhere"}}});
  EXPECT_EQ(r.out, "a b;c:kept:elsewhere\n");
}

TEST(Process, ArgumentsAreNotParsedByAShell) {
  EXPECT_EQ(run_process({"printf", "%s", "$(id) `id` *"}).out, "$(id) `id` *");
}

TEST(Process, TimeLimit) {
  const ProcessResult r = run_process({"sleep", "30"}, {.timeout_s = 0.1});
  EXPECT_TRUE(r.timed_out);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.signal, 9);
  EXPECT_LT(r.total_s, 10);
  const ProcessResult closed = run_process({"sh", "-c", "exec >&- 2>&-; exec sleep 30"}, {.timeout_s = 0.2});
  EXPECT_TRUE(closed.timed_out);
  EXPECT_LT(closed.total_s, 10);
}

TEST(Process, MissingProgram) {
  EXPECT_THROW(run_process({"no-such-program-at-all"}), FileError);
  EXPECT_THROW(run_process({}), ValueError);
  EXPECT_FALSE(has_program("no-such-program-at-all"));
  EXPECT_TRUE(has_program("sh"));
}

TEST(Process, TempDirIsRemovedWithItsContent) {
  std::filesystem::path path;
  {
    const TempDir dir;
    path = dir.path();
    std::filesystem::create_directories(path / "a" / "b");
    std::ofstream(path / "a" / "file") << "x";
    EXPECT_TRUE(std::filesystem::exists(path / "a" / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tg
