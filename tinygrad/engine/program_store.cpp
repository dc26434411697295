/// \file Reading and writing of stored programs.
#include "tinygrad/engine/program_store.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>

#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/env.h"

namespace tg {
namespace {
constexpr uint32_t kMagic = 0x31504754;  // "TGP1"
constexpr const char* kTable = "program";

/// Appends plain values and length-prefixed strings.
class Writer {
 public:
  template <class T> void value(T v) {
    bytes.insert(bytes.end(), reinterpret_cast<const uint8_t*>(&v), reinterpret_cast<const uint8_t*>(&v) + sizeof v);
  }
  void text(std::string_view s) {
    value<uint64_t>(s.size());
    bytes.insert(bytes.end(), s.begin(), s.end());
  }
  std::vector<uint8_t> bytes;
};

/// Reads them back; `ok` turns false, for good, at the first thing that does not fit.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> b) : left_(b) {}
  template <class T> T value() {
    T v{};
    if (left_.size() < sizeof v) {
      ok = false;
      return v;
    }
    std::memcpy(&v, left_.data(), sizeof v);
    left_ = left_.subspan(sizeof v);
    return v;
  }
  std::string text() {
    auto n = value<uint64_t>();
    if (n > left_.size()) {
      ok = false;
      return std::string();
    }
    std::string s(reinterpret_cast<const char*>(left_.data()), n);
    left_ = left_.subspan(n);
    return s;
  }
  uint64_t count(uint64_t limit) {
    auto n = value<uint64_t>();
    if (n > limit) ok = false;
    return ok ? n : 0;
  }
  bool done() const { return ok && left_.empty(); }
  bool ok = true;

 private:
  std::span<const uint8_t> left_;
};

struct Search {
  const void* address;
  std::string id, path;
};

int find_build_id(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  auto at = reinterpret_cast<uintptr_t>(search->address);
  bool mine = false;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& h = info->dlpi_phdr[i];
    mine |= h.p_type == PT_LOAD && at - (info->dlpi_addr + h.p_vaddr) < h.p_memsz;
  }
  if (!mine) return 0;
  search->path = info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& h = info->dlpi_phdr[i];
    if (h.p_type != PT_NOTE) continue;
    const char *p = reinterpret_cast<const char*>(info->dlpi_addr + h.p_vaddr), *end = p + h.p_memsz;
    while (p + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(p);
      const char *name = p + sizeof *note, *desc = name + (note->n_namesz + 3) / 4 * 4;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !std::memcmp(name, "GNU", 4))
        search->id.assign(desc, note->n_descsz);
      p = desc + (note->n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}
}  // namespace

const std::string& build_identity() {
  static const std::string identity = [] {
    Search search{reinterpret_cast<const void*>(&build_identity), {}, {}};
    dl_iterate_phdr(find_build_id, &search);
    if (!search.id.empty()) return search.id;
    struct stat info{};
    if (stat(search.path.c_str(), &info) != 0) return std::string();
    return str(info.st_size, '.', info.st_mtime);
  }();
  return identity;
}

std::shared_ptr<Program> load_stored_program(const std::string& key) {
  if (!env::CCACHE || build_identity().empty()) return {};
  auto bytes = disk_cache::get(kTable, key);
  if (!bytes) return {};
  Reader r(*bytes);
  auto p = std::make_shared<Program>();
  if (r.value<uint32_t>() != kMagic || r.text() != build_identity()) return {};
  p->name = r.text();
  p->nbuffers = static_cast<int>(r.count(1 << 20));
  for (int i = 0; i < p->nbuffers && r.ok; i++) {
    auto flags = r.value<uint8_t>();
    p->reads.push_back(flags & 1);
    p->writes.push_back(flags & 2);
  }
  for (uint64_t n = r.count(1 << 16); n > 0 && r.ok; n--) p->vars.push_back(r.text());
  for (uint64_t n = r.count(1 << 16); n > 0 && r.ok; n--) {
    Opt o{static_cast<OptOp>(r.value<uint8_t>())};
    o.axis = r.value<int32_t>();
    o.arg = r.value<int64_t>();
    p->applied_opts.push_back(o);
  }
  auto extent = r.value<int64_t>();
  p->estimates = r.value<Estimates>();
  std::string binary = r.text();
  if (!r.done() || binary.empty()) return {};
  p->binary.assign(binary.begin(), binary.end());
  p->arena = std::make_shared<Arena>();
  if (extent >= 0) {
    ArenaScope scope(*p->arena);
    p->thread_extent = UOp::constant(extent);
  }
  return p;
}

void store_program(const std::string& key, const Program& p) {
  if (!env::CCACHE || build_identity().empty()) return;
  if (p.thread_extent && !p.thread_extent.is_const()) return;
  Writer w;
  w.value(kMagic);
  w.text(build_identity());
  w.text(p.name);
  w.value<uint64_t>(static_cast<uint64_t>(p.nbuffers));
  for (size_t i = 0; i < static_cast<size_t>(p.nbuffers); i++)
    w.value<uint8_t>(static_cast<uint8_t>((p.reads[i] ? 1 : 0) | (p.writes[i] ? 2 : 0)));
  w.value<uint64_t>(p.vars.size());
  for (const std::string& v : p.vars) w.text(v);
  w.value<uint64_t>(p.applied_opts.size());
  for (const Opt& o : p.applied_opts) {
    w.value(static_cast<uint8_t>(o.op));
    w.value(o.axis);
    w.value(o.arg);
  }
  w.value<int64_t>(p.thread_extent ? static_cast<int64_t>(p.thread_extent.const_int()) : -1);
  w.value(p.estimates);
  w.text({reinterpret_cast<const char*>(p.binary.data()), p.binary.size()});
  disk_cache::put(kTable, key, w.bytes);
}

}  // namespace tg
