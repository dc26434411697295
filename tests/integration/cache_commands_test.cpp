/// \file Commands that are given the disk cache: they make, move and change nothing that is not theirs. The folder of
/// the cache where there is no home.
#ifdef TG_PROGRAM
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "temp_dir.h"
#include "tinygrad/base/process.h"

namespace tg {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

TEST(CacheCommands, LeaveOtherFilesAlone) {
  const TempDir dir;
  const std::string file = dir / "notes.txt", text = "buy milk\n";
  std::ofstream(file) << text;
  const std::string expected = "got " + file + ", expected a cache database of this library";
  const std::vector<std::vector<std::string>> commands{
      {"cache", "info"}, {"cache", "info", "--json"}, {"cache", "clear"}, {"replay-compare", file, file}};
  for (const std::vector<std::string>& arguments : commands) {
    std::vector<std::string> command{TG_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const ProcessResult r = run_process(command, {.env = {{"CACHEDB", file}}, .timeout_s = 100});
    EXPECT_EQ(r.exit_code, 1) << arguments.back();
    EXPECT_THAT(r.out + r.err, HasSubstr(expected));
    std::stringstream now;
    now << std::ifstream(file).rdbuf();
    EXPECT_EQ(now.str(), text);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / ""), {}), 1);
  }
  const ProcessResult none =
      run_process({TG_PROGRAM, "cache", "info"}, {.env = {{"CACHEDB", dir / "none.db"}}, .timeout_s = 100});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "none.db"));
}

TEST(CacheFolder, WithoutHomeTheCacheFolderIsThisUsersAlone) {
  const TempDir dir;
  const std::string folder = dir / ("tinygrad_cpp-" + std::to_string(geteuid()));
  const auto run = [&](std::vector<std::string> arguments) {
    std::vector<std::string> command{
        "env", "-u", "HOME", "-u", "XDG_CACHE_HOME", "-u", "CACHEDB", "TMPDIR=" + dir / ""};
    command.emplace_back(TG_PROGRAM);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_process(command, {.timeout_s = 100});
  };
  const std::vector<std::string> program{"bench", "--child", "first_result", "--threads", "1"};
  EXPECT_TRUE(run(program).ok());
  struct stat info{};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
  EXPECT_TRUE(std::filesystem::exists(folder + "/cache.db"));
  const std::string refusal = "[cache] got " + folder + " of user " + std::to_string(geteuid()) +
                              " with mode 777, expected a folder that only this user can write to";
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  const ProcessResult r = run(program);
  EXPECT_TRUE(r.ok()) << r.err;
  EXPECT_THAT(r.err, HasSubstr(refusal));
  EXPECT_EQ(r.err.find(refusal, r.err.find(refusal) + 1), std::string::npos) << "once: " << r.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(run({"cache", "info"}).exit_code, 1);
  std::filesystem::remove(folder);
  std::filesystem::create_directory_symlink(dir / "elsewhere", folder);
  EXPECT_THAT(run(program).err, HasSubstr("expected a folder that only this user can write to"));
}

}  // namespace
}  // namespace tg
#endif
