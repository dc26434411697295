/// \file Locations of files. CMake defines TG_BUILD_LIBDIR, TG_INSTALL_PREFIX, TG_INSTALL_LIBDIR,
/// TG_INSTALL_DATADIR, TG_SOURCE_DATADIR and TG_VERSION for this file alone.
#include "tinygrad/base/paths.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ios>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace fs = std::filesystem;

std::string_view version() { return TG_VERSION; }

static std::string env_or_empty(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

/// Makes a folder in a directory that others can write to, or checks that the one there is this user's alone.
static void make_private(const std::string& folder) {
  const bool made = mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
  TG_CHECK(FileError, made, "[cache] cannot create ", folder, ": ", std::strerror(errno));
  struct stat info{};
  TG_CHECK(FileError, lstat(folder.c_str(), &info) == 0, "[cache] ", folder, ": ", std::strerror(errno));
  const bool writable_by_others = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  TG_CHECK(FileError, S_ISDIR(info.st_mode) && info.st_uid == geteuid() && !writable_by_others, "[cache] got ", folder,
           " of user ", info.st_uid, " with mode ", std::oct, info.st_mode & 07777, std::dec,
           ", expected a folder that only this user can write to; set HOME or XDG_CACHE_HOME");
}

std::string cache_dir() {
  if (std::string xdg = env_or_empty("XDG_CACHE_HOME"); !xdg.empty()) return (fs::path(xdg) / "tinygrad_cpp").string();
  if (std::string home = env_or_empty("HOME"); !home.empty())
    return (fs::path(home) / ".cache" / "tinygrad_cpp").string();
  std::error_code ec;
  fs::path tmp = fs::temp_directory_path(ec);
  if (ec) tmp = "/tmp";
  std::string folder = (tmp / str("tinygrad_cpp-", geteuid())).string();
  make_private(folder);
  return folder;
}

std::string source_data_dir() {
  std::error_code ec;
  return fs::is_directory(TG_SOURCE_DATADIR, ec) ? TG_SOURCE_DATADIR : "";
}

/// Returns where the loader looks for the program's shared libraries.
static std::vector<fs::path> library_search_path() {
  std::vector<fs::path> found;
#ifdef __GLIBC__
  void* program = dlopen(nullptr, RTLD_LAZY);
  if (!program) return found;
  Dl_serinfo size{};
  if (dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0) {
    std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* info = reinterpret_cast<Dl_serinfo*>(memory.data());
    if (dlinfo(program, RTLD_DI_SERINFOSIZE, info) == 0 && dlinfo(program, RTLD_DI_SERINFO, info) == 0)
      for (unsigned i = 0; i < info->dls_cnt; i++) found.emplace_back(info->dls_serpath[i].dls_name);
  }
  dlclose(program);
#endif
  return found;
}

std::vector<std::string> installed_data_dirs() {
  std::vector<std::string> found;
  std::error_code ec;
  auto add = [&](const fs::path& dir) {
    std::string path = dir.lexically_normal().string();
    if (fs::is_directory(dir, ec) && !contains(found, path)) found.push_back(std::move(path));
  };
  add(TG_INSTALL_DATADIR);
  for (const fs::path& lib : library_search_path())
    for (const char* up : {"..", "../.."})
      add(lib / up / "share" / "tinygrad" / "data");  // lib, or lib/x86_64-linux-gnu
  return found;
}

/// Returns whether a folder lies below the prefix that the library is installed to.
static bool is_installed(const fs::path& folder) {
  const fs::path from_prefix = folder.lexically_relative(fs::path(TG_INSTALL_PREFIX).lexically_normal());
  return !from_prefix.empty() && *from_prefix.begin() != "..";
}

std::vector<std::string> plugin_candidates(std::string_view name, std::string_view override_path) {
  const std::string file = "lib" + std::string(name) + ".so";
  std::error_code ec;
  if (!override_path.empty()) {
    const fs::path p(override_path);
    return {fs::is_directory(p, ec) ? (p / file).string() : p.string()};
  }
  std::vector<std::string> found;
  auto add = [&](const fs::path& dir) {
    std::string path = (dir / file).lexically_normal().string();
    if (fs::exists(path, ec) && !contains(found, path)) found.push_back(std::move(path));
  };
  fs::path home;  // of the program or shared object that contains the library, such as a Python module
  if (Dl_info here; dladdr(reinterpret_cast<const void*>(&plugin_candidates), &here) && here.dli_fname) {
    home = fs::canonical(here.dli_fname, ec).parent_path();
    add(home);
  }
  if (const fs::path self = fs::read_symlink("/proc/self/exe", ec); !ec) {
    add(self.parent_path() / ".." / "lib");
    add(self.parent_path());
  }
  add(TG_INSTALL_LIBDIR);
  // A program that was installed never loads what a build tree happens to have.
  if (found.empty() && !is_installed(home)) add(TG_BUILD_LIBDIR);
  found.push_back(file);
  return found;
}

}  // namespace tg
