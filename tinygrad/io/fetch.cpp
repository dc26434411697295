/// \file Downloads through the curl or wget program, the download cache, and tensors of downloaded files.
#include "tinygrad/io/fetch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/base/task_progress.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/io/tar.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::io {
namespace fs = std::filesystem;

namespace {
constexpr std::string_view kFile = "file://";

std::string digest(const std::string& text) {
  return sha256_hex(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())).substr(0, 32);
}

void make_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  TG_CHECK(FileError, !failed, "[fetch] cannot create ", folder.string(), ": ", failed.message());
}

fs::path place_of(const std::string& url, const FetchOptions& o) {
  if (o.name.find('/') != std::string::npos) return o.name;
  std::string headers;
  auto sorted = o.headers;
  std::sort(sorted.begin(), sorted.end());
  for (auto& [key, value] : sorted) headers += key + ":" + value + "\n";
  std::string file = o.name.empty() ? digest(url) : o.name;
  if (!headers.empty()) file += "_" + digest(headers);
  return downloads_dir() / o.subdir / (file + (o.gunzip ? ".gunzip" : ""));
}
}  // namespace

constexpr const char* kMaxRedirects = "10";
constexpr double kTransferSeconds = 1800, kLongTransferSeconds = 7 * 86400.0;

fs::path downloads_dir() { return fs::path(cache_dir()) / "downloads"; }

namespace {
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
constexpr int kCurlNoRanges = 33;  // curl: the server cannot go on in the middle of a file

/// Returns a command that ends when a file it writes becomes larger than `max_bytes`: servers need not say a length.
std::vector<std::string> limited(std::vector<std::string> command, uint64_t max_bytes) {
  constexpr uint64_t kBlock = 512;  // of ulimit, by POSIX
  const std::string blocks = std::to_string(std::min(max_bytes, kMostBytes) / kBlock + 1);
  std::vector<std::string> out{"sh", "-c", "ulimit -c 0; ulimit -f \"$0\" 2>/dev/null; exec \"$@\"", blocks};
  out.insert(out.end(), command.begin(), command.end());
  return out;
}

/// Returns a line of curl's configuration file.
std::string config_line(std::string_view option, std::string_view value) {
  std::string out = str(option, " = \"");
  for (const char c : value) out += c == '"' || c == '\\' ? str('\\', c) : std::string(1, c);
  return out + "\"\n";
}

/// Returns what curl reads on its standard input: the address and the headers, which may hold secrets, and which
/// command lines show to all users of the machine. curl sends Authorization to the first host alone.
std::string curl_input(const std::string& url, const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string out = config_line("url", url);
  for (const auto& [key, value] : headers) out += config_line("header", key + ": " + value);
  return out;
}

std::vector<std::string> curl_command(const std::string& url, const fs::path& to, uint64_t max_bytes, bool resume) {
  std::vector<std::string> c{"curl",
                             "-fsSL",
                             "--proto",
                             "=http,https",
                             "--max-redirs",
                             kMaxRedirects,
                             "--connect-timeout",
                             "15",
                             "--retry",
                             "2",
                             "--max-filesize",
                             std::to_string(max_bytes),
                             "-o",
                             to.string(),
                             "-K",
                             "-"};
  // What was asked for over TLS does not come without.
  if (url.starts_with("https://")) c.insert(c.end(), {"--proto-redir", "=https"});
  if (resume) c.insert(c.end(), {"-C", "-"});
  return c;
}

/// Returns the last line of what a program said: why it failed.
std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

std::vector<std::string> wget_command(const fs::path& to, bool resume) {
  std::vector<std::string> c{"wget",
                             "--progress=dot:giga",
                             "--timeout=15",
                             "--tries=3",
                             str("--max-redirect=", kMaxRedirects),
                             "-i",
                             "-",
                             "-O",
                             to.string()};
  if (resume) c.emplace_back("-c");
  return c;
}

/// Whether wget was sent on to an address without TLS.
bool left_tls(const std::string& said) { return said.find("\nLocation: http://") != std::string::npos; }

/// Runs curl or wget; returns what is wrong, empty where nothing is.
std::string run_transfer(const std::string& url, const fs::path& to, uint64_t max_bytes,
                         const std::vector<std::pair<std::string, std::string>>& headers, bool curl, bool resume) {
  const double seconds = resume ? kLongTransferSeconds : kTransferSeconds;
  const auto run = [&](bool go_on) {
    return run_process(limited(curl ? curl_command(url, to, max_bytes, go_on) : wget_command(to, go_on), max_bytes),
                       {.input = curl ? curl_input(url, headers) : url + "\n", .timeout_s = seconds});
  };
  ProcessResult r = run(resume);
  if (curl && resume && r.exit_code == kCurlNoRanges) r = run(false);
  std::error_code failed;
  const auto size = static_cast<uint64_t>(fs::file_size(to, failed));
  if (r.signal == SIGXFSZ || (!failed && size > max_bytes))
    return str("got more than ", max_bytes, " bytes, expected at most that");
  if (!r.ok())
    return str(curl ? "curl" : "wget", " ended with ", r.exit_code, r.err.empty() ? "" : ": " + last_line(r.err));
  if (!curl && url.starts_with("https://") && left_tls(r.err)) return "it redirects to an address without TLS";
  return "";
}

/// Returns what a request cannot be made with; empty where it can be.
std::string refused_request(const std::string& url, const std::vector<std::pair<std::string, std::string>>& headers,
                            bool curl) {
  const auto breaks = [](const std::string& text) {
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  };
  if (breaks(url)) return "got an address with control characters";
  for (const auto& [key, value] : headers)
    if (breaks(key + value)) return "got a header with control characters";
  if (curl || headers.empty()) return "";
  return "headers need curl, which is not installed: wget shows them to all users, and sends them to where it is "
         "redirected";
}
}  // namespace

std::string transfer(const std::string& url, const fs::path& to, uint64_t max_bytes,
                     const std::vector<std::pair<std::string, std::string>>& headers, bool resume,
                     int64_t expected_bytes) {
  if (url.starts_with(kFile)) {
    std::error_code failed;
    fs::copy_file(url.substr(kFile.size()), to, fs::copy_options::overwrite_existing, failed);
    return failed ? failed.message() : "";
  }
  const bool curl = has_program("curl");
  if (!curl && !has_program("wget")) return "neither curl nor wget is installed";
  if (const std::string refused = refused_request(url, headers, curl); !refused.empty()) return refused;
  TaskProgress progress(fs::path(url.substr(0, url.find('?'))).filename().string(), expected_bytes,
                        ProgressUnit::kBytes);
  progress.follow([&to] {
    std::error_code absent;
    const auto bytes = fs::file_size(to, absent);
    return absent ? int64_t{0} : static_cast<int64_t>(bytes);
  });
  return run_transfer(url, to, max_bytes, headers, curl, resume);
}

/// Returns a name next to a file for what is not complete yet, another one for each call.
static fs::path part_of(const fs::path& file) {
  static std::atomic<uint64_t> number{0};
  return file.string() + str(".part", getpid(), ".", number++);
}

void extract_tar(const std::vector<uint8_t>& archive, const fs::path& to, const std::string& name) {
  for (const TarEntry& e : tar_entries(archive, name)) {
    const fs::path relative = fs::path(e.name).lexically_normal();
    TG_CHECK(FormatError, !relative.is_absolute() && !relative.empty() && *relative.begin() != "..", "[extract] ", name,
             ": got the name ", e.name, ", expected one inside the archive");
    make_folder((to / relative).parent_path());
    write_file_atomic(to / relative, std::span(archive).subspan(e.offset, e.size));
  }
}

fs::path fetch(const std::string& url, const FetchOptions& o) {
  if (url.starts_with("/") || url.starts_with(".")) return url;
  TG_CHECK(ValueError, url.starts_with("http://") || url.starts_with("https://") || url.starts_with(kFile),
           "[fetch] got '", url, "', expected an address with http://, https:// or file://, or a path");
  const fs::path place = place_of(url, o), folder = place.string() + ".extract";
  std::error_code ignored;
  bool usable = fs::is_regular_file(place, ignored) && o.allow_caching && !env::DISABLE_HTTP_CACHE;
  if (usable && !o.sha256.empty()) usable = sha256_hex(read_file(place, o.max_bytes)) == o.sha256;
  if (!usable) {
    make_folder(place.parent_path());
    fs::remove_all(folder, ignored);
    // In the same folder, so that the finished file is moved there atomically.
    const fs::path part = part_of(place);
    struct Remove {
      const fs::path& file;
      ~Remove() {
        std::error_code e;
        fs::remove(file, e);
      }
    } remove{part};
    const std::string problem = transfer(url, part, o.max_bytes, o.headers);
    TG_CHECK(FileError, problem.empty(), "[fetch] cannot get ", url, ": ", problem);
    if (o.gunzip) write_file_atomic(part, gunzip(read_file(part, o.max_bytes), o.max_bytes, url));
    if (!o.sha256.empty()) {
      const std::string got = sha256_hex(read_file(part, o.max_bytes));
      TG_CHECK(FormatError, got == o.sha256, "[fetch] ", url, ": got SHA-256 ", got, ", expected ", o.sha256);
    }
    fs::rename(part, place);
  }
  if (!o.extract) return place;
  if (!fs::is_directory(folder, ignored)) {
    std::vector<uint8_t> archive = read_file(place, o.max_bytes);
    if (is_gzip(archive)) archive = gunzip(archive, o.max_bytes, url);
    const fs::path unfinished = part_of(folder);
    fs::remove_all(unfinished, ignored);
    make_folder(unfinished);
    extract_tar(archive, unfinished, url);
    fs::rename(unfinished, folder, ignored);
    if (ignored) fs::remove_all(unfinished, ignored);  // another process was faster
    TG_CHECK(FileError, fs::is_directory(folder, ignored), "[fetch] cannot create ", folder.string());
  }
  return folder;
}

}  // namespace tg::io

namespace tg {
Tensor Tensor::from_url(const std::string& url, bool gunzip, const TensorOptions& o) {
  return from_file(io::fetch(url, {.gunzip = gunzip}).string(), o);
}
}  // namespace tg
