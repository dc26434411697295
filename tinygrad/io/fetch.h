/// \file Files by URL: downloaded once into the cache, verified, and unpacked on request.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tg::io {

struct FetchOptions {
  std::string name = {};    ///< file name in the cache, or (with a '/') a path of its own; empty: made from the address
  std::string subdir = {};  ///< folder below the cache's downloads
  bool gunzip = false;      ///< keep the decompressed file
  bool allow_caching = true;
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< of the request
  std::string sha256 = {};  ///< hexadecimal digest the kept file must have; a cached file without it is fetched again
  bool extract = false;     ///< unpack the tar archive (compressed or not) and return that folder
  uint64_t max_bytes = uint64_t{1} << 36;
};

/// Returns the local file for an http://, https:// or file:// address; a path that starts with '/' or '.' is returned
/// unchanged. Files are complete and verified before they appear in the cache, so that processes can share it.
/// DISABLE_HTTP_CACHE=1 downloads again. Throws FileError when it cannot be fetched, FormatError when it is corrupt or
/// does not match sha256.
std::filesystem::path fetch(const std::string& url, const FetchOptions& o = {});

/// Returns the folder of fetched files.
std::filesystem::path downloads_dir();

/// Copies the contents of `url` to the file `to` with curl or wget (file:// needs neither). With `resume` what `to`
/// holds already is not fetched again, from servers that can do so, and a download may take as long as it needs. At
/// most 10 redirects are followed, from https to https only. Address and headers are not on the command line, where all
/// users see them; headers need curl, and an Authorization goes to the first host alone. `expected_bytes` is for the
/// line that shows how far it is; 0: not known. Returns the error message, empty on success.
std::string transfer(const std::string& url, const std::filesystem::path& to, uint64_t max_bytes,
                     const std::vector<std::pair<std::string, std::string>>& headers = {}, bool resume = false,
                     int64_t expected_bytes = 0);

/// Writes the regular files of a tar archive below `to`. Throws FormatError for a name that would escape it.
void extract_tar(const std::vector<uint8_t>& archive, const std::filesystem::path& to, const std::string& name);

}  // namespace tg::io
