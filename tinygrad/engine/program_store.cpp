/// \file Reading and writing of stored programs.
#include "tinygrad/engine/program_store.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "tinygrad/base/binary.h"
#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/env.h"
#include "tinygrad/uop/serialize.h"

namespace tg {
namespace {
constexpr uint32_t kMagic = 0x35504754;  // "TGP5"
constexpr const char* kTable = "program";
constexpr size_t kSizes = 7;  // THREAD range, grid, group

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

namespace {
std::shared_ptr<Program> read_program(ByteReader& r) {
  if (r.value<uint32_t>() != kMagic || r.text() != build_identity()) return {};
  auto p = std::make_shared<Program>();
  p->name = r.text();
  p->nbuffers = static_cast<int>(r.size());
  for (int i = 0; i < p->nbuffers; i++) {
    const auto flags = r.value<uint8_t>();
    p->reads.push_back(flags & 1);
    p->writes.push_back(flags & 2);
  }
  for (size_t n = r.size(8); n > 0; n--) p->vars.push_back(r.text());
  p->applied_opts = read_opts(r);
  p->arena = std::make_shared<Arena>();
  {
    ArenaScope scope(*p->arena);
    const UOps roots = read_graph(r);
    r.check(roots.size() == kSizes, "another number of sizes");
    for (size_t i = 0; i < kSizes; i++) {
      r.check(!roots[i] || is_size_expression(roots[i]), "a size that is no integer expression");
      (i == 0 ? p->thread_extent : i < 4 ? p->global_size[i - 1] : p->local_size[i - 4]) = roots[i];
    }
  }
  p->shared_bytes = r.value<int64_t>();
  read_images(r, *p);
  p->estimates = r.value<Estimates>();
  const std::string binary = r.text();
  r.check(r.left() == 0 && !binary.empty(), "more or less than a program");
  p->binary.assign(binary.begin(), binary.end());
  return p;
}
}  // namespace

bool is_size_expression(UOp u) {
  const UOps nodes = u.toposort();
  return std::all_of(nodes.begin(), nodes.end(), [](UOp n) {
    return n.in(groups::kAlu | Ops::CONST | Ops::PARAM) && n.dtype().is_int() &&
           (!n.is_const() || n.arg_kind() == ArgKind::kInt);
  });
}

void write_images(ByteWriter& w, const Program& p) {
  w.value<uint8_t>(!p.images.empty());
  for (const ImageSize& i : p.images) {
    w.value(i.width);
    w.value(i.height);
    w.value<uint8_t>(static_cast<uint8_t>(i.itemsize));
    w.value<uint8_t>(i.written);
  }
}

void read_images(ByteReader& r, Program& p) {
  constexpr int64_t kSide = 1 << 20;
  if (!r.flag()) return;
  p.images.resize(static_cast<size_t>(p.nbuffers));
  for (ImageSize& i : p.images) {
    i.width = r.below<int64_t>(kSide, "an image of no possible width");
    i.height = r.below<int64_t>(kSide, "an image of no possible height");
    i.itemsize = r.value<uint8_t>();
    i.written = r.flag();
    r.check(i.itemsize == 0 || i.itemsize == 2 || i.itemsize == 4, "pixels of no known format");
    r.check((i.itemsize == 0) == (i.width == 0) && (i.width == 0) == (i.height == 0), "an image without pixels");
  }
}

std::shared_ptr<Program> load_stored_program(const std::string& key) {
  if (!env::CCACHE || build_identity().empty()) return {};
  const auto bytes = disk_cache::get(kTable, key);
  if (!bytes) return {};
  ByteReader r(*bytes, "[program] the disk cache");
  try {
    return read_program(r);
  } catch (const FormatError&) { return {}; }
}

void store_program(const std::string& key, const Program& p) {
  if (!env::CCACHE || build_identity().empty()) return;
  ByteWriter w;
  w.value(kMagic);
  w.text(build_identity());
  w.text(p.name);
  w.size(static_cast<size_t>(p.nbuffers));
  for (size_t i = 0; i < static_cast<size_t>(p.nbuffers); i++)
    w.value<uint8_t>(static_cast<uint8_t>((p.reads[i] ? 1 : 0) | (p.writes[i] ? 2 : 0)));
  w.size(p.vars.size());
  for (const std::string& v : p.vars) w.text(v);
  write_opts(w, p.applied_opts);
  {
    ArenaScope scope(*p.arena);
    UOps sizes{p.thread_extent};
    sizes.insert(sizes.end(), std::begin(p.global_size), std::end(p.global_size));
    sizes.insert(sizes.end(), std::begin(p.local_size), std::end(p.local_size));
    write_graph(w, sizes);
  }
  w.value(p.shared_bytes);
  write_images(w, p);
  w.value(p.estimates);
  w.text({reinterpret_cast<const char*>(p.binary.data()), p.binary.size()});
  disk_cache::put(kTable, key, w.bytes);
}

}  // namespace tg
