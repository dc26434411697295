/// \file Records gather in a buffer per thread and go to the file in compressed blocks.
#include "tinygrad/base/recording.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/recording_format.h"
#include "tinygrad/base/text.h"

namespace tg::recording {
namespace {
constexpr size_t kBlockBytes = 256 << 10;
constexpr size_t kMaxNames = 1 << 20;

std::atomic<bool> g_begun{false}, g_forked{false};
std::atomic<uint64_t> g_generation{1}, g_spans{0};
thread_local uint64_t t_span = 0;

void append_number(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

/// The file; blocks are appended to it. Failing to write ends the recording, not the program.
class File {
 public:
  void write(uint64_t thread, const std::string& records) {
    std::string block = make_block(thread, records);
    std::lock_guard lock(mutex_);
    if (failed_ || (file_ < 0 && !open())) return;
    if (written_ + static_cast<int64_t>(block.size()) > limit_) lost_ += static_cast<int64_t>(records.size());
    else if (::write(file_, block.data(), block.size()) == static_cast<ssize_t>(block.size()))
      written_ += static_cast<int64_t>(block.size());
    else give_up("cannot write to ");
  }

  /// Closes it and says where it is. The next recording tries again where this one failed.
  void close() {
    std::lock_guard lock(mutex_);
    failed_ = false;
    if (file_ < 0) return;
    ::close(file_);
    file_ = -1;
    std::string what = str("viz: ", human_bytes(static_cast<double>(written_)), " in ", path_);
    if (lost_) what += str(", without ", human_bytes(static_cast<double>(lost_)), " beyond VIZ_LIMIT");
    note_lines(what + "; tg viz shows it");
  }

  std::string path() {
    std::lock_guard lock(mutex_);
    return file_ < 0 ? std::string() : path_;
  }

 private:
  /// A process that still writes to a file of this name keeps it, without the name.
  bool open() {
    try {
      path_ = default_path();
    } catch (const FileError& e) {
      env::not_honoured("VIZ", str(e.what(), "; nothing is recorded"));
      failed_ = true;
      return false;
    }
    std::error_code none;
    // The cache folder is ours to make; a folder that somebody named is theirs.
    if (env::VIZ_FILE.get().empty())
      std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), none);
    std::filesystem::remove(path_, none);
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    limit_ = env::VIZ_LIMIT.get() << 20;
    lost_ = 0;
    written_ = sizeof kMagic;
    if (file_ < 0) give_up("cannot create ");
    else if (::write(file_, kMagic, sizeof kMagic) != sizeof kMagic) give_up("cannot write to ");
    return !failed_;
  }

  void give_up(const char* what) {
    env::not_honoured("VIZ", str(what, path_, ": ", std::strerror(errno), "; nothing more is recorded"));
    failed_ = true;
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  std::mutex mutex_;
  std::string path_;
  int file_ = -1;
  bool failed_ = false;
  int64_t written_ = 0, lost_ = 0, limit_ = 0;
};

/// What one thread has recorded and not written yet.
struct Stream {
  std::mutex mutex;
  std::string records;
  uint64_t thread = 0;

  void append(const std::string& record, File& file) {
    std::lock_guard lock(mutex);
    append_number(records, record.size());
    records += record;
    if (records.size() >= kBlockBytes) write(file);
  }
  void write(File& file) {
    if (records.empty()) return;
    file.write(thread, records);
    records.clear();
  }
};

/// The file, the names and the threads' streams. Never destroyed: other threads may record while the program exits.
class Recorder {
 public:
  static Recorder& get() {
    static auto* r = new Recorder;
    return *r;
  }

  void append(const std::string& record) {
    if (g_forked) return;
    thread_local const std::shared_ptr<Stream> mine = join();
    mine->append(record, file_);
  }

  /// Returns the number of a text, and whether it is new.
  std::pair<uint64_t, bool> number_of(std::string_view text) {
    std::lock_guard lock(mutex_);
    if (names_.size() >= kMaxNames) return {0, false};
    const auto [it, fresh] = names_.try_emplace(std::string(text), names_.size() + 1);
    return {it->second, fresh};
  }

  void flush() {
    std::lock_guard lock(mutex_);
    for (auto& s : streams_) {
      std::lock_guard one(s->mutex);
      s->write(file_);
    }
    std::erase_if(streams_, [](const auto& s) { return s.use_count() == 1; });  // its thread has ended
  }

  void before_finish(void (*write)()) {
    std::lock_guard lock(mutex_);
    last_words_.push_back(write);
  }

  void finish() {
    std::vector<void (*)()> last;
    {
      std::lock_guard lock(mutex_);
      last = last_words_;
    }
    for (auto* write : last) write();
    flush();
    file_.close();
    std::lock_guard lock(mutex_);
    names_.clear();
    g_generation++;
    g_begun = false;
  }

  std::string path() { return file_.path(); }

 private:
  Recorder() {
    std::atexit(recording::finish);
    // A child shares the file and has copies of its parent's buffers: it records nothing.
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  }

  std::shared_ptr<Stream> join() {
    auto s = std::make_shared<Stream>();
    std::lock_guard lock(mutex_);
    s->thread = threads_++;
    streams_.push_back(s);
    return s;
  }

  File file_;
  std::mutex mutex_;
  std::unordered_map<std::string, uint64_t> names_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<void (*)()> last_words_;
  uint64_t threads_ = 0;
};
}  // namespace

std::string make_block(uint64_t thread, std::string_view records) {
  uLongf size = compressBound(records.size());
  std::string out(sizeof(BlockHeader) + size, '\0');
  auto* body = reinterpret_cast<Bytef*>(out.data() + sizeof(BlockHeader));
  compress2(body, &size, reinterpret_cast<const Bytef*>(records.data()), records.size(), Z_BEST_SPEED);
  const BlockHeader header{.thread = thread,
                           .packed = static_cast<uint32_t>(size),
                           .unpacked = static_cast<uint32_t>(records.size()),
                           .checksum = static_cast<uint32_t>(crc32(0, body, static_cast<uInt>(size)))};
  std::memcpy(out.data(), &header, sizeof header);
  out.resize(sizeof header + size);
  return out;
}

bool begun() { return g_begun; }
uint64_t generation() { return g_generation; }
int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t name(std::string_view text) {
  if (text.empty()) return 0;
  const auto [number, fresh] = Recorder::get().number_of(text);
  if (fresh) Record(Kind::kName).number(number).text(text);
  return number;
}

Record::Record(Kind kind) { bytes_ += static_cast<char>(kind); }
Record::~Record() {
  g_begun = true;
  Recorder::get().append(bytes_);
}
Record& Record::number(uint64_t v) {
  append_number(bytes_, v);
  return *this;
}
Record& Record::text(std::string_view s) {
  s = s.substr(0, kMaxText);
  append_number(bytes_, s.size());
  bytes_ += s;
  return *this;
}

Span::Span(std::string_view kind, std::string_view title) {
  if (!on()) return;
  number_ = ++g_spans;
  generation_ = g_generation;
  outer_ = std::exchange(t_span, number_);
  const uint64_t kind_name = name(kind), its_name = name(title);
  Record(Kind::kOpen).number(number_).number(outer_).number(kind_name).number(its_name).time(now());
}
/// A recording that has ended meanwhile knows nothing more of it, the next one nothing at all.
bool Span::recorded() const { return number_ && generation_ == g_generation; }
Span::~Span() {
  if (recorded()) Record(Kind::kClose).number(number_).time(now());
  if (number_) t_span = outer_;
}
void Span::value(std::string_view key, std::string_view text) const {
  if (!recorded()) return;
  const uint64_t key_name = name(key);
  Record(Kind::kValue).number(number_).number(key_name).text(text);
}
void Span::text(std::string_view title, std::string_view language, std::string_view text) const {
  if (!recorded()) return;
  const uint64_t title_name = name(title), language_name = name(language);
  Record(Kind::kText).number(number_).number(title_name).number(language_name).text(text);
}
uint64_t Span::current() { return t_span; }

Inside::Inside(uint64_t span) : outer_(std::exchange(t_span, span)) {}
Inside::~Inside() { t_span = outer_; }

void event(std::string_view track, int lane, std::string_view title, int64_t begin, int64_t end,
           std::string_view details) {
  const uint64_t track_name = name(track), its_name = name(title);
  Record(Kind::kEvent)
      .number(track_name)
      .number(static_cast<uint64_t>(lane))
      .number(its_name)
      .number(t_span)
      .time(begin)
      .time(end)
      .text(details);
}
void memory(std::string_view device, const void* address, int64_t bytes) {
  const uint64_t device_name = name(device);
  Record(Kind::kMemory)
      .number(device_name)
      .number(t_span)
      .number(reinterpret_cast<uintptr_t>(address))
      .difference(bytes)
      .time(now());
}

void rule_total(std::string_view rule, uint64_t tries, uint64_t hits, uint64_t nanoseconds) {
  const uint64_t rule_name = name(rule);
  Record(Kind::kTotal).number(rule_name).number(tries).number(hits).number(nanoseconds);
}

void before_finish(void (*write)()) { Recorder::get().before_finish(write); }
void flush() { Recorder::get().flush(); }
void finish() {
  if (begun() && !g_forked) Recorder::get().finish();
}
std::string path() { return Recorder::get().path(); }
std::string default_path() {
  const std::string& asked = env::VIZ_FILE.get();
  return asked.empty() ? cache_dir() + "/last.viz" : asked;
}

}  // namespace tg::recording
