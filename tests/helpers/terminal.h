/// \file Programs at a pseudo terminal, as people run them.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace tg::test {

/// The program at a terminal of its own.
class Terminal {
 public:
  /// `env`: variables that the program sees besides ours.
  explicit Terminal(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, std::string>>& env = {}) {
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    child_ = ::forkpty(&fd_, nullptr, nullptr, nullptr);
    if (child_ != 0) return;
    for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    _exit(127);
  }
  ~Terminal() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) { ASSERT_EQ(::write(fd_, keys.data(), keys.size()), ssize_t(keys.size())); }
  /// Reads until the text since the last call has `wanted`; false when it does not come.
  bool shows(const std::string& wanted, double seconds = 60) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (true) {
      if (const size_t at = unread_.find(wanted); at != std::string::npos) {
        unread_.erase(0, at + wanted.size());
        return true;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd p{fd_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&p, 1, static_cast<int>(left.count())) <= 0) return false;
      char piece[4096];
      const ssize_t n = ::read(fd_, piece, sizeof piece);
      if (n <= 0) return false;
      unread_.append(piece, static_cast<size_t>(n));
    }
  }
  /// Waits for the end and returns the status of waitpid.
  int wait() {
    int status = -1;
    for (int i = 0; i < 1000; i++) {
      shows("\n\n\n never", 0.02);  // drains, so that the program can write
      ::usleep(20'000);
      if (::waitpid(child_, &status, WNOHANG) != child_) continue;
      shows("\n\n\n never", 0.2);
      return status;
    }
    return -1;
  }
  const std::string& unread() const { return unread_; }

 private:
  int fd_ = -1;
  pid_t child_ = -1;
  std::string unread_;
};

}  // namespace tg::test
