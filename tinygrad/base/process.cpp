/// \file Child processes through posix_spawn; pipes are drained with poll so that no side can block the other.
#include "tinygrad/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "tinygrad/base/error.h"

extern char** environ;

namespace tg {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    close();
    fd_ = std::exchange(o.fd_, -1);
    return *this;
  }
  ~Fd() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};
Pipe make_pipe() {
  int fd[2];
  TG_CHECK(FileError, ::pipe2(fd, O_CLOEXEC) == 0, "[run_process] no pipe: ", std::strerror(errno));
  return {Fd(fd[0]), Fd(fd[1])};
}

std::vector<std::string> merged_environment(const ProcessOptions& options) {
  std::vector<std::string> env;
  for (char** e = environ; e && *e; e++) {
    const std::string_view entry = *e, key = entry.substr(0, entry.find('='));
    bool replaced = false;
    for (const auto& [k, v] : options.env) replaced |= k == key;
    if (!replaced) env.emplace_back(entry);
  }
  for (const auto& [k, v] : options.env) env.push_back(k + "=" + v);
  return env;
}

std::vector<char*> c_array(std::vector<std::string>& strings) {
  std::vector<char*> p;
  for (auto& s : strings) p.push_back(s.data());
  p.push_back(nullptr);
  return p;
}

/// Ignores SIGPIPE in this thread while input is written, so that a child that does not read it cannot kill us.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set_, &old_);
  }
  ~NoSigpipe() {
    const timespec none{};
    if (!sigismember(&old_, SIGPIPE))
      while (sigtimedwait(&set_, nullptr, &none) > 0) {}
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  const sigset_t& before() const { return old_; }

 private:
  sigset_t set_, old_;
};

/// The child has in.read, out.write and err.write.
struct Pipes {
  Pipe in, out, err;
};

/// Starts the child and closes its ends of the pipes in this process. Throws FileError.
pid_t spawn(std::vector<std::string> argv, const ProcessOptions& options, Pipes& pipes, const sigset_t& signals) {
  std::vector<std::string> env = merged_environment(options);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, pipes.in.read.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, pipes.out.write.get(), 1);
  if (!options.inherit_stderr) posix_spawn_file_actions_adddup2(&actions, pipes.err.write.get(), 2);
  posix_spawnattr_setsigmask(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int failed =
      posix_spawnp(&pid, argv[0].c_str(), &actions, &attributes, c_array(argv).data(), c_array(env).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  TG_CHECK(FileError, failed == 0, "[run_process] ", argv[0], " does not start: ", std::strerror(failed));
  pipes.in.read.close();
  pipes.out.write.close();
  pipes.err.write.close();
  return pid;
}

/// Appends the available bytes to `to`; closes the pipe at its end. Returns whether there were any.
bool read_some(Fd& fd, std::string& to) {
  char buffer[65536];
  const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
  if (n > 0) to.append(buffer, n);
  else if (n == 0 || errno != EINTR) fd.close();
  return n > 0;
}

/// Writes the input and reads the output until all pipes are closed or the time is up.
void exchange(Pipes& pipes, const ProcessOptions& options, Clock::time_point start, ProcessResult& r) {
  size_t written = 0;
  if (options.input.empty()) pipes.in.write.close();
  else ::fcntl(pipes.in.write.get(), F_SETFL, O_NONBLOCK);
  while (pipes.out.read.get() >= 0 || pipes.err.read.get() >= 0 || pipes.in.write.get() >= 0) {
    pollfd polls[3] = {{pipes.in.write.get(), POLLOUT, 0},  // poll skips fd -1
                       {pipes.out.read.get(), POLLIN, 0},
                       {pipes.err.read.get(), POLLIN, 0}};
    int wait_ms = -1;
    if (options.timeout_s > 0) wait_ms = std::max(0, static_cast<int>((options.timeout_s - since(start)) * 1000) + 1);
    const int ready = ::poll(polls, 3, wait_ms);
    if (options.timeout_s > 0 && since(start) >= options.timeout_s) {
      r.timed_out = true;
      return;
    }
    if (ready < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (polls[0].revents) {
      const ssize_t n = ::write(pipes.in.write.get(), options.input.data() + written, options.input.size() - written);
      if (n > 0) written += n;
      if ((n < 0 && errno != EAGAIN && errno != EINTR) || written == options.input.size()) pipes.in.write.close();
    }
    if (polls[1].revents && read_some(pipes.out.read, r.out) && r.first_output_s < 0) r.first_output_s = since(start);
    if (polls[2].revents) read_some(pipes.err.read, r.err);
  }
}

/// Waits for the child's end; kills it when its time is up. Returns its status.
int wait_for(pid_t pid, const ProcessOptions& options, Clock::time_point start, ProcessResult& r) {
  int status = 0;
  if (r.timed_out) ::kill(pid, SIGKILL);
  // The pipes are closed, but a child may close them and go on: the time limit still applies.
  while (!r.timed_out && options.timeout_s > 0) {
    if (::waitpid(pid, &status, WNOHANG) == pid) return status;
    if (since(start) >= options.timeout_s) {
      r.timed_out = true;
      ::kill(pid, SIGKILL);
      break;
    }
    ::usleep(200);
  }
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  TG_CHECK(ValueError, !command.empty(), "[run_process] got an empty command, expected a program");
  Pipes pipes{make_pipe(), make_pipe(), options.inherit_stderr ? Pipe{} : make_pipe()};
  const NoSigpipe guard;
  const auto start = Clock::now();
  const pid_t pid = spawn(command, options, pipes, guard.before());
  ProcessResult r;
  exchange(pipes, options, start, r);
  const int status = wait_for(pid, options, start, r);
  r.total_s = since(start);
  if (WIFEXITED(status)) r.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) r.signal = WTERMSIG(status);
  return r;
}

bool has_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  for (;;) {
    const size_t colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(candidate)) return true;
    if (colon == std::string_view::npos) return false;
    rest.remove_prefix(colon + 1);
  }
}

std::filesystem::path executable_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

TempDir::TempDir(const std::string& prefix) {
  std::string pattern = (std::filesystem::temp_directory_path() / (prefix + ".XXXXXX")).string();
  TG_CHECK(FileError, ::mkdtemp(pattern.data()), "[TempDir] cannot create ", pattern, ": ", std::strerror(errno));
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tg
