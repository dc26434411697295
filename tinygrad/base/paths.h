/// \file Where things lie: the cache folder, the plugin libraries, the data that comes with the sources or an
/// installation.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tg {

/// The library's version, "major.minor.patch".
std::string_view version();

/// Folder for caches and downloads: $XDG_CACHE_HOME/tinygrad_cpp, else ~/.cache/tinygrad_cpp, else a folder of the
/// user's in the temporary directory. Not created here.
std::string cache_dir();

/// The `data` folder of the source tree the library was built from; empty if it is gone.
std::string source_data_dir();

/// The `share/tinygrad/data` folders of installations that are there: of the prefix the library was configured for, and
/// beside the folders in which the running program looks for shared libraries (its run path names the installation it
/// was linked with).
std::vector<std::string> installed_data_dirs();

/// Names to give to dlopen, in order, for a plugin such as "tinygrad_llvm": `override_path` alone if it is set (a file,
/// or a folder that holds it), else ../lib and the folder of the running program, the installed and the built library
/// folders, and last the bare file name, which the loader looks up in the program's run path and the system's folders.
/// Files known not to exist are left out.
std::vector<std::string> plugin_candidates(std::string_view name, std::string_view override_path = {});

}  // namespace tg
