/// \file The memory a process may use: that of the machine, and limits of control groups in both versions.
#include "tinygrad/base/system_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "temp_dir.h"

namespace tg {
namespace {

/// A root folder with the kernel's files.
class Root {
 public:
  Root() { write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 100 kB\nMemAvailable:    600 kB\n"); }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(std::string(dir_ / file));
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  SystemMemory read() const { return system_memory(path()); }
  std::string path() const { return std::filesystem::path(std::string(dir_ / "x")).parent_path(); }

 private:
  testing::TempDir dir_;
};

TEST(SystemMemory, OfTheMachine) {
  Root root;
  EXPECT_EQ(root.read().total, 1000 << 10);
  EXPECT_EQ(root.read().available, 600 << 10);
  root.write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(root.read().total, 1000 << 10);
  const SystemMemory here = system_memory();
  EXPECT_GT(here.total, 0);
  EXPECT_LE(here.available, here.total);
}

TEST(SystemMemory, OfControlGroups) {
  Root root;
  root.write("proc/self/cgroup", "0::/outer/inner\n");
  root.write("sys/fs/cgroup/outer/memory.max", "400000");
  root.write("sys/fs/cgroup/outer/memory.current", "300000");
  root.write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 50000\n");
  EXPECT_EQ(root.read().total, 400000);
  EXPECT_EQ(root.read().available, 150000) << "pages of files that nobody uses are given back";
  root.write("sys/fs/cgroup/outer/inner/memory.max", "200000");
  root.write("sys/fs/cgroup/outer/inner/memory.current", "250000");
  EXPECT_EQ(root.read().total, 200000);
  EXPECT_EQ(root.read().available, 0);
}

TEST(SystemMemory, OfControlGroupsOfTheFirstVersion) {
  Root root;
  root.write("proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000");
  root.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "200000");
  root.write("sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 100000\n");
  EXPECT_EQ(root.read().total, 500000);
  EXPECT_EQ(root.read().available, 400000);
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(root.read().total, 500000) << "no limit is a large number";
}

TEST(SystemMemory, FilesThatAreNotThere) {
  const testing::TempDir empty;
  const SystemMemory none = system_memory(std::filesystem::path(std::string(empty / "x")).parent_path());
  EXPECT_EQ(none.total, 0);
  EXPECT_EQ(none.available, 0);
}

}  // namespace
}  // namespace tg
