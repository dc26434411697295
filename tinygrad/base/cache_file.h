/// \file Whether a file is a disk cache of this library: told by its first bytes, before SQLite touches it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tg {

/// The application_id in the header of our databases.
inline constexpr int32_t kCacheApplicationId = 0x74676370;

enum class CacheFile : uint8_t {
  kAbsent,   ///< no file, or an empty one
  kOurs,     ///< its header has our application_id, whatever follows
  kUnknown,  ///< cannot be read, or a database without tables: SQLite and its log tell
  kForeign,  ///< anything else; must not be changed
};

/// Reads the header of the file at `path` and tells whose it is.
CacheFile identify_cache_file(const std::string& path);

/// Returns the first name of PATH.bad, PATH.bad.2, ... PATH.bad.9 that nothing has, for a damaged file to be renamed
/// to. Nothing where all exist.
std::optional<std::string> free_aside_name(const std::string& path);

/// Returns whether a new file could be made at `path`: a nameless one, or one removed at once, can be made in the
/// nearest folder that exists.
bool can_be_created(const std::string& path);

}  // namespace tg
