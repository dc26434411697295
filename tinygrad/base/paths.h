/// \file Locations of files: the cache folder, the plugin libraries, the data that comes with the sources or an
/// installation.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tg {

/// The library's version, "major.minor.patch".
std::string_view version();

/// Returns the folder for caches and downloads: $XDG_CACHE_HOME/tinygrad_cpp, else ~/.cache/tinygrad_cpp; these are not
/// created here. Without HOME it is tinygrad_cpp-UID in the temporary directory, where any user may make a folder of
/// that name: it is created with mode 0700, and one that is there must be this user's and writable by no other.
/// Throws FileError otherwise: the cache holds machine code.
std::string cache_dir();

/// Returns the `data` folder of the source tree the library was built from; empty if it no longer exists.
std::string source_data_dir();

/// Returns the existing `share/tinygrad/data` folders of installations: of the prefix the library was configured for,
/// and next to the folders in which the running program looks for shared libraries (its run path names the installation
/// it was linked with).
std::vector<std::string> installed_data_dirs();

/// Returns names to pass to dlopen, in order, for a plugin such as "tinygrad_llvm": only `override_path` if it is set
/// (a file, or a folder that holds it), else ../lib and the folder of the running program, the installed and the built
/// library folders, and last the bare file name, which the loader looks up in the program's run path and the system's
/// folders. Files known not to exist are skipped.
std::vector<std::string> plugin_candidates(std::string_view name, std::string_view override_path = {});

}  // namespace tg
