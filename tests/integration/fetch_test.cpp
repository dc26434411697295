/// \file Downloads: what others on the machine and other servers learn of a request, and what servers may send.
#include "tinygrad/io/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "helpers/file_server.h"
#include "temp_dir.h"
#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

namespace fs = std::filesystem;
using test::FileServer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

std::string text_of(const fs::path& file) {
  std::stringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

/// Returns the command lines of all processes that this one may see.
std::string command_lines() {
  std::string all;
  std::error_code gone;
  for (const auto& p : fs::directory_iterator("/proc", gone))
    if (std::isdigit(static_cast<unsigned char>(p.path().filename().string()[0]))) all += text_of(p.path() / "cmdline");
  return all;
}

TEST(Fetch, SecretsAreNotOnCommandLines) {
  const TempDir dir;
  std::string seen;
  FileServer server([&](const auto&) {
    seen = command_lines();
    return FileServer::Answer{.body = "content"};
  });
  const std::string secret = "Bearer tok\"en\\with'$quotes";
  EXPECT_EQ(
      transfer(server.url("/file?signature=s3cr3t"), dir / "x", 100, {{"Authorization", secret}, {"X-Key", "k3y"}}),
      "");
  EXPECT_EQ(text_of(dir / "x"), "content");
  const std::string head = server.requests().at(0).head;
  EXPECT_THAT(head, HasSubstr("Authorization: " + secret + "\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Key: k3y\r\n"));
  EXPECT_THAT(head, HasSubstr("GET /file?signature=s3cr3t "));
  EXPECT_THAT(seen, HasSubstr("curl")) << "it was running";
  for (const char* word : {"Bearer", "k3y", "s3cr3t"}) EXPECT_THAT(seen, Not(HasSubstr(word)));
}

TEST(Fetch, AuthorizationGoesToTheFirstHostAlone) {
  const TempDir dir;
  FileServer other([](const auto&) { return FileServer::Answer{.body = "content"}; });
  const std::string there = "http://localhost" + other.url("/file").substr(std::string("http://127.0.0.1").size());
  FileServer first(
      [&](const auto&) { return FileServer::Answer{.status = 302, .headers = "Location: " + there + "\r\n"}; });
  EXPECT_EQ(transfer(first.url("/a"), dir / "x", 100, {{"Authorization", "Bearer secret"}}), "");
  EXPECT_THAT(first.requests().at(0).head, HasSubstr("Bearer secret"));
  EXPECT_THAT(other.requests().at(0).head, Not(HasSubstr("Bearer")));
}

TEST(Fetch, HeadersAndAddressesWithLineBreaksAreRefused) {
  const TempDir dir;
  EXPECT_EQ(transfer("http://127.0.0.1:9/", dir / "x", 100, {{"A", "b\r\noutput = /tmp/x"}}),
            "got a header with control characters");
  EXPECT_EQ(transfer("http://127.0.0.1:9/\noutput = x", dir / "x", 100), "got an address with control characters");
}

TEST(Fetch, BodiesWithoutALengthAreLimitedAsTheyCome) {
  const TempDir dir;
  FileServer server(
      [](const auto&) { return FileServer::Answer{.body = std::string(8 << 20, 'x'), .says_length = false}; });
  EXPECT_THAT(transfer(server.url("/a"), dir / "x", 100000), HasSubstr("got more than 100000 bytes"));
  EXPECT_LT(fs::file_size(dir / "x"), 101000u) << "it ended at the limit";
}

TEST(Fetch, ThreadsThatFetchOneAddressDoNotShareAPart) {
  const TempDir dir;
  std::string body;
  for (int i = 0; i < 200000; i++) body += std::to_string(i);
  FileServer server([&](const auto&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return FileServer::Answer{.body = body};
  });
  fs::create_directory(dir / "to");
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; i++)
    threads.emplace_back(
        [&] { good += text_of(fetch(server.url("/a"), {.name = dir / "to/file", .allow_caching = false})) == body; });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 4);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "to"), {}), 1) << "no part is left";
}

/// A folder that stands for PATH: in it are sh and a wget of ours.
class OnlyWget : public ::testing::Test {
 protected:
  OnlyWget() : before_(std::getenv("PATH")) {
    fs::create_symlink("/bin/sh", dir_ / "sh");
    write_wget("https://other/x");
    ::chmod((dir_ / "wget").c_str(), 0755);
    ::setenv("PATH", (dir_ / "").c_str(), 1);
  }
  ~OnlyWget() override { ::setenv("PATH", before_.c_str(), 1); }
  /// Makes a wget that is sent to another address, as it says on its error output.
  void write_wget(const std::string& location) {
    std::ofstream(dir_ / "wget") << "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = -O ] && echo body > \"$2\"; shift; "
                                    "done\nprintf 'Resolving\\nLocation: "
                                 << location << " [following]\\n' >&2\n";
  }
  TempDir dir_;
  std::string before_;
};

TEST_F(OnlyWget, HeadersAreRefused) {
  EXPECT_THAT(transfer("http://127.0.0.1:9/x", dir_ / "x", 100, {{"Authorization", "Bearer x"}}),
              HasSubstr("headers need curl, which is not installed"));
}

TEST_F(OnlyWget, TlsIsNotLeft) {
  EXPECT_EQ(transfer("http://host/x", dir_ / "x", 100), "");
  EXPECT_EQ(transfer("https://host/x", dir_ / "x", 100), "") << "from https to https";
  write_wget("http://other/x");
  EXPECT_EQ(transfer("https://host/x", dir_ / "x", 100), "it redirects to an address without TLS");
  EXPECT_EQ(transfer("http://host/x", dir_ / "x", 100), "");
}

}  // namespace
}  // namespace tg::io
