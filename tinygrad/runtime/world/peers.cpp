/// \file pidfd and SIGTERM, waited for by a thread.
#include "tinygrad/runtime/world/peers.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/profile.h"

namespace tg {
namespace {
int g_sigterm_fd = -1;
volatile sig_atomic_t g_sigterm = 0;

void on_sigterm(int) {
  const int saved = errno;
  g_sigterm = 1;
  const uint64_t one = 1;
  if (write(g_sigterm_fd, &one, sizeof one) < 0) _exit(143);
  errno = saved;
}

void fill(char* to, size_t room, const std::string& text) {
  std::memset(to, 0, room);
  std::memcpy(to, text.data(), std::min(room - 1, text.size()));
}
}  // namespace

PeerCard own_card(const std::string& device) {
  PeerCard c;
  fill(c.device, sizeof c.device, device.substr(0, device.find(':')));
  fill(c.version, sizeof c.version, std::string(version()));
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat names{};
  const bool known = stat("/proc/self/ns/pid", &names) == 0;
  char host[64] = {};
  gethostname(host, sizeof host - 1);
  fill(c.machine, sizeof c.machine, str(host, " ", boot, " ", known ? names.st_ino : 0));
  c.pid = getpid();
  c.profiled = profile::on();
  c.per_machine = env::WORLD_PER_MACHINE.get();
  c.seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return c;
}

PeerWatch::PeerWatch(const std::vector<PeerCard>& cards, int me, Events events) : events_(std::move(events)) {
  wake_ = eventfd(0, EFD_CLOEXEC);
  const auto mine = static_cast<size_t>(me);
  for (size_t r = 0; r < cards.size(); r++) {
    if (r == mine || std::strcmp(cards[r].machine, cards[mine].machine) != 0) continue;
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(cards[r].pid), 0));
    if (fd >= 0) watched_.emplace_back(fd, static_cast<int>(r));
  }
  g_sigterm_fd = wake_;
  struct sigaction now{};
  sigaction(SIGTERM, nullptr, &now);
  if (now.sa_handler == SIG_DFL) {
    struct sigaction ours{};
    ours.sa_handler = on_sigterm;
    ours.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // a second one ends the process
    sigaction(SIGTERM, &ours, nullptr);
  }
  // mpirun of MPICH tells of a death by a signal that would end us.
  sigaction(SIGUSR1, nullptr, &now);
  if (now.sa_handler == SIG_DFL) signal(SIGUSR1, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // where the launcher itself is gone
  thread_ = std::thread([this] { run(); });
}

PeerWatch::~PeerWatch() {
  stop_ = true;
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof one) == sizeof one) thread_.join();
  else thread_.detach();
  struct sigaction now{};
  sigaction(SIGTERM, nullptr, &now);
  if (now.sa_handler == on_sigterm) signal(SIGTERM, SIG_DFL);
  for (auto [fd, rank] : watched_) close(fd);
  close(wake_);
}

void PeerWatch::wake_stopped() {
  for (auto [fd, rank] : watched_) syscall(SYS_pidfd_send_signal, fd, SIGCONT, nullptr, 0);  // others ignore it
}

void PeerWatch::run() {
  std::vector<pollfd> fds{{wake_, POLLIN, 0}};
  for (auto [fd, rank] : watched_) fds.push_back({fd, POLLIN, 0});
  while (!stop_) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    for (size_t i = 1; i < fds.size(); i++)
      if (fds[i].revents) {
        events_.died(watched_[i - 1].second);
        fds[i].fd = -1;  // poll() leaves it out
      }
    if (!fds[0].revents) continue;
    uint64_t count = 0;
    if (read(wake_, &count, sizeof count) < 0) continue;
    if (g_sigterm && !stop_) {
      g_sigterm = 0;
      events_.asked_to_end();
    }
  }
}

}  // namespace tg
