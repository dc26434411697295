/// \file ElfImage::load: parses section headers, maps, relocates, protects. Every offset is checked against the bytes
/// before use.
#include "tinygrad/runtime/elf_loader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "tinygrad/base/error.h"

namespace tg {
namespace {

// The parts of <elf.h> we need; the header itself is absent outside Linux.
struct FileHeader {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, phoff, shoff;
  uint32_t flags;
  uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, addr, offset, size;
  uint32_t link, info;
  uint64_t addralign, entsize;
};
struct Symbol {
  uint32_t name;
  uint8_t info, other;
  uint16_t section;
  uint64_t value, size;
};
struct Rela {
  uint64_t offset, info;
  int64_t addend;
};
static_assert(sizeof(FileHeader) == 64 && sizeof(SectionHeader) == 64 && sizeof(Symbol) == 24 && sizeof(Rela) == 24);

enum : uint32_t { kProgBits = 1, kSymTab = 2, kStrTab = 3, kRela = 4, kNoBits = 8, kRel = 9 };
enum : uint64_t { kWrite = 1, kAlloc = 2, kExec = 4, kTls = 0x400 };
enum : uint16_t { kUndefined = 0, kReserved = 0xff00, kAbsolute = 0xfff1 };
enum : uint8_t { kBindLocal = 0, kTypeFunction = 2, kTypeTls = 6 };
constexpr uint64_t kMaxImage = uint64_t{1}
                               << 28;  // a kernel is kilobytes; this keeps every displacement within 31 bits
constexpr size_t kStubBytes = 16;

#if defined(__x86_64__)
constexpr uint16_t kHostMachine = kElfX86_64;
#elif defined(__aarch64__)
constexpr uint16_t kHostMachine = kElfAArch64;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr uint16_t kHostMachine = kElfRiscV;
#else
constexpr uint16_t kHostMachine = 0;
#endif

/// Returns e_machine of an architecture, 0 for one whose objects nobody loads.
uint16_t machine_of(std::string_view arch) {
  return arch == "x86_64" ? kElfX86_64 : arch == "arm64" ? kElfAArch64 : arch == "riscv64" ? kElfRiscV : 0;
}

/// A bounds-checked reader.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  std::span<const uint8_t> slice(uint64_t offset, uint64_t size, const char* what) const {
    TG_CHECK(FormatError, offset <= bytes_.size() && size <= bytes_.size() - offset, "[elf] ", what, " of ", size,
             " bytes at ", offset, " lies outside the object of ", bytes_.size(), " bytes");
    return bytes_.subspan(offset, size);
  }
  template <class T> T read(uint64_t offset, const char* what) const {
    T value;
    std::memcpy(&value, slice(offset, sizeof(T), what).data(), sizeof(T));
    return value;
  }
  template <class T> std::vector<T> table(uint64_t offset, uint64_t size, const char* what) const {
    TG_CHECK(FormatError, size % sizeof(T) == 0, "[elf] ", what, " has a size of ", size, " bytes");
    auto bytes = slice(offset, size, what);
    std::vector<T> result(size / sizeof(T));
    if (size) std::memcpy(result.data(), bytes.data(), size);
    return result;
  }

 private:
  std::span<const uint8_t> bytes_;
};

std::string text_at(std::span<const uint8_t> strings, uint64_t offset) {
  TG_CHECK(FormatError, offset < strings.size(), "[elf] name at ", offset, " lies outside the string table of ",
           strings.size(), " bytes");
  const void* end = std::memchr(strings.data() + offset, 0, strings.size() - offset);
  TG_CHECK(FormatError, end != nullptr, "[elf] name at ", offset, " has no end");
  return std::string(reinterpret_cast<const char*>(strings.data() + offset), static_cast<const char*>(end));
}

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

/// Three runs of pages in one mapping: code and stubs, constants and the offset table, writable data.
enum Segment { kText, kConst, kData, kSegments };

class Loader {
 public:
  Loader(std::span<const uint8_t> object, uint16_t machine) : bytes_(object), machine_(machine) {}

  void parse();
  void lay_out();
  void fill(uint8_t* base);
  uint64_t size() const { return end_[kData]; }
  uint64_t end(Segment s) const { return end_[s]; }
  template <class F> void for_functions(F f) const;

 private:
  bool loaded(uint64_t section) const { return section < segments_.size() && segments_[section] != kSegments; }
  uint64_t address_of(size_t symbol) const;
  Relocation resolve(const SectionHeader& header, const Rela& r) const;
  void relocate(const SectionHeader& header);
  uint64_t slot(size_t symbol) const { return slots_begin_ + 8 * external_[symbol]; }
  uint64_t stub(size_t symbol) const { return stubs_begin_ + kStubBytes * external_[symbol]; }
  void write_stub(uint64_t offset, uint64_t slot_offset);
  void parse_symbols(const SectionHeader& header);
  void choose_sections();
  void prepare(const Rela& r);
  void collect_slots();

  static constexpr uint32_t kNoSlot = ~uint32_t{0};
  Bytes bytes_;
  uint16_t machine_;
  std::vector<SectionHeader> sections_;
  size_t symtab_ = 0;
  std::vector<Symbol> symbols_;
  std::vector<std::string> names_;
  std::vector<uint64_t> resolved_;  // by symbol: the host address of an undefined one
  std::vector<uint32_t> external_;  // by symbol: index of its slot and stub
  std::vector<size_t> slotted_;     // the symbols that have one
  std::vector<Segment> segments_;   // by section; kSegments: not loaded
  std::vector<uint64_t> offsets_;   // by section: its offset in the mapping
  uint64_t end_[kSegments] = {}, stubs_begin_ = 0, slots_begin_ = 0;
  uint8_t* base_ = nullptr;
};

void Loader::parse() {
  auto header = bytes_.read<FileHeader>(0, "file header");
  static const uint8_t kIdent[7] = {0x7f, 'E', 'L', 'F', 2, 1, 1};  // 64 bits, little endian, version 1
  TG_CHECK(FormatError, std::memcmp(header.ident, kIdent, sizeof(kIdent)) == 0,
           "[elf] got bytes that are no little endian ELF64 file");
  TG_CHECK(FormatError, header.type == 1, "[elf] got file type ", header.type, ", expected a relocatable object");
  TG_CHECK(FormatError, header.machine == machine_, "[elf] got an object for machine ", header.machine, ", expected ",
           machine_);
  TG_CHECK(FormatError, header.shentsize == sizeof(SectionHeader), "[elf] got section headers of ", header.shentsize,
           " bytes");
  sections_ =
      bytes_.table<SectionHeader>(header.shoff, uint64_t{header.shnum} * sizeof(SectionHeader), "section table");
  for (size_t i = 0; i < sections_.size(); ++i) {
    if (sections_[i].type != kSymTab) continue;
    TG_CHECK(FormatError, symtab_ == 0, "[elf] got two symbol tables");
    symtab_ = i;
  }
  TG_CHECK(FormatError, symtab_ != 0, "[elf] got no symbol table");
  parse_symbols(sections_[symtab_]);
}

void Loader::parse_symbols(const SectionHeader& header) {
  symbols_ = bytes_.table<Symbol>(header.offset, header.size, "symbol table");
  TG_CHECK(FormatError, header.link < sections_.size() && sections_[header.link].type == kStrTab,
           "[elf] symbol table without names");
  auto strings = bytes_.slice(sections_[header.link].offset, sections_[header.link].size, "string table");
  names_.resize(symbols_.size());
  resolved_.assign(symbols_.size(), 0);
  external_.assign(symbols_.size(), kNoSlot);
  for (size_t i = 1; i < symbols_.size(); ++i) {
    const Symbol& s = symbols_[i];
    if (s.name) names_[i] = text_at(strings, s.name);
    TG_CHECK(FormatError, (s.info & 15) != kTypeTls, "[elf] thread local symbol ", names_[i]);
    TG_CHECK(FormatError, s.section < kReserved || s.section == kAbsolute, "[elf] symbol ", names_[i],
             " lies in section ", s.section);
    if (s.section == kUndefined || s.section >= kReserved) continue;
    TG_CHECK(FormatError, s.section < sections_.size() && s.value <= sections_[s.section].size, "[elf] symbol ",
             names_[i], " lies outside its section");
  }
}

/// Finds what a relocation needs: undefined symbols, and all that are addressed through the offset table, get a slot
/// and a stub.
void Loader::prepare(const Rela& r) {
  const uint64_t symbol = r.info >> 32;
  const auto type = static_cast<uint32_t>(r.info);
  TG_CHECK(FormatError, symbol < symbols_.size(), "[elf] relocation of symbol ", symbol, " of ", symbols_.size());
  const RelocationNeed need = relocation_need(machine_, type);
  TG_CHECK(FormatError, need != RelocationNeed::kUnknown, "[elf] got relocation type ", type,
           ", which the loader does not know");
  const bool undefined = symbol != 0 && symbols_[symbol].section == kUndefined;
  if (undefined && !resolved_[symbol]) {
    resolved_[symbol] = reinterpret_cast<uint64_t>(host_symbol(names_[symbol]));
    TG_CHECK(FormatError, resolved_[symbol], "[elf] undefined symbol ", names_[symbol],
             ": kernels may call memory, libm and conversion functions only");
  }
  if ((!undefined && need != RelocationNeed::kSlot) || external_[symbol] != kNoSlot) return;
  external_[symbol] = static_cast<uint32_t>(slotted_.size());
  slotted_.push_back(symbol);
}

void Loader::collect_slots() {
  for (const SectionHeader& h : sections_) {
    TG_CHECK(FormatError, h.type != kRel || !loaded(h.info), "[elf] got relocations without addends");
    if (h.type != kRela || !loaded(h.info)) continue;
    TG_CHECK(FormatError, h.link == symtab_, "[elf] relocations refer to section ", h.link,
             ", expected the symbol table");
    for (const Rela& r : bytes_.table<Rela>(h.offset, h.size, "relocation table")) prepare(r);
  }
}

/// Decides which sections are loaded and into which segment; notes and unwind tables are skipped.
void Loader::choose_sections() {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  segments_.assign(sections_.size(), kSegments);
  for (size_t i = 1; i < sections_.size(); ++i) {
    const SectionHeader& h = sections_[i];
    if (!(h.flags & kAlloc) || h.size == 0 || (h.type != kProgBits && h.type != kNoBits)) continue;
    TG_CHECK(FormatError, !(h.flags & kTls), "[elf] thread local section");
    TG_CHECK(FormatError, !(h.flags & kExec) || !(h.flags & kWrite), "[elf] section is writable and executable");
    TG_CHECK(FormatError, (h.addralign & (h.addralign - 1)) == 0 && h.addralign <= page, "[elf] section alignment of ",
             h.addralign, " bytes");
    TG_CHECK(FormatError, h.size <= kMaxImage, "[elf] section of ", h.size, " bytes is too large");
    if (h.type == kProgBits) bytes_.slice(h.offset, h.size, "section");
    segments_[i] = h.flags & kExec ? kText : h.flags & kWrite ? kData : kConst;
  }
}

void Loader::lay_out() {
  choose_sections();
  collect_slots();
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  offsets_.assign(sections_.size(), 0);
  uint64_t at = 0;
  for (int segment = kText; segment < kSegments; ++segment) {
    for (size_t i = 1; i < sections_.size(); ++i) {
      if (segments_[i] != segment) continue;
      offsets_[i] = round_up(at, sections_[i].addralign ? sections_[i].addralign : 1);
      at = offsets_[i] + sections_[i].size;
      TG_CHECK(FormatError, at <= kMaxImage, "[elf] object of ", at, " bytes is too large");
    }
    TG_CHECK(FormatError, segment != kText || at > 0, "[elf] object has no code");
    if (segment == kText) {
      stubs_begin_ = round_up(at, kStubBytes);
      at = stubs_begin_ + kStubBytes * slotted_.size();
    } else if (segment == kConst) {
      slots_begin_ = round_up(at, 8);
      at = slots_begin_ + 8 * slotted_.size();
    }
    end_[segment] = at = round_up(at, page);
  }
  TG_CHECK(FormatError, at <= kMaxImage, "[elf] object of ", at, " bytes is too large");
}

uint64_t Loader::address_of(size_t symbol) const {
  if (symbol == 0) return 0;
  const Symbol& s = symbols_[symbol];
  if (s.section == kAbsolute) return s.value;
  if (s.section == kUndefined) return resolved_[symbol];
  TG_CHECK(FormatError, loaded(s.section), "[elf] symbol ", names_[symbol], " lies in a section that is not loaded");
  return reinterpret_cast<uint64_t>(base_) + offsets_[s.section] + s.value;
}

/// A jump through the slot, for functions too far away for a direct call.
void Loader::write_stub(uint64_t offset, uint64_t slot_offset) {
  uint8_t* code = base_ + offset;
  if (machine_ == kElfX86_64) {
    static const uint8_t kJump[] = {0xff, 0x25};  // jmp [rip + displacement]
    auto displacement = static_cast<int32_t>(slot_offset - (offset + 6));
    std::memcpy(code, kJump, sizeof(kJump));
    std::memcpy(code + 2, &displacement, 4);
  } else if (machine_ == kElfRiscV) {
    const uint32_t words[4] = {0x00000e17, 0x000e3e03, 0x000e0067, 0};  // auipc t3, slot; ld t3, slot(t3); jr t3
    std::memcpy(code, words, sizeof(words));
    const auto base = reinterpret_cast<uint64_t>(base_);
    apply_relocation({machine_, 23, code, 4, base + offset, base + slot_offset, 0, 0});
    apply_relocation({machine_, 24, code + 4, 4, base + offset, base + slot_offset, 0, 0});
  } else {
    uint32_t words[3] = {0x90000010, 0xf9400210, 0xd61f0200};  // adrp x16, slot; ldr x16, [x16, slot]; br x16
    std::memcpy(code, words, sizeof(words));
    const auto base = reinterpret_cast<uint64_t>(base_);
    apply_relocation({machine_, 275, code, 4, base + offset, base + slot_offset, 0, 0});
    apply_relocation({machine_, 286, code + 4, 4, base + offset + 4, base + slot_offset, 0, 0});
  }
}

/// Resolves one relocation of a section: where it is, what it refers to.
Relocation Loader::resolve(const SectionHeader& header, const Rela& r) const {
  const uint64_t begin = offsets_[header.info], size = sections_[header.info].size;
  TG_CHECK(FormatError, r.offset <= size, "[elf] relocation at ", r.offset, " lies outside its section of ", size,
           " bytes");
  const size_t symbol = r.info >> 32;
  const bool undefined = symbol != 0 && symbols_[symbol].section == kUndefined;
  const auto base = reinterpret_cast<uint64_t>(base_);
  Relocation out{machine_,
                 static_cast<uint32_t>(r.info),
                 base_ + begin + r.offset,
                 size - r.offset,
                 base + begin + r.offset,
                 address_of(symbol),
                 r.addend,
                 0};
  if (external_[symbol] != kNoSlot) out.got_slot = base + slot(symbol);
  if (undefined && !(machine_ == kElfX86_64 && out.type == 1))
    out.symbol = base + stub(symbol);  // calls go through the stub
  return out;
}

void Loader::relocate(const SectionHeader& header) {
  const auto table = bytes_.table<Rela>(header.offset, header.size, "relocation table");
  std::map<uint64_t, const Relocation> high;  // by address: what a low part refers to
  std::vector<Relocation> low;
  for (const Rela& r : table) {
    const Relocation out = resolve(header, r);
    if (relocation_need(machine_, out.type) == RelocationNeed::kHighPart) {
      low.push_back(out);
      continue;
    }
    apply_relocation(out);
    high.emplace(out.address, out);
  }
  for (Relocation& r : low) {
    const auto at = high.find(r.symbol);
    TG_CHECK(FormatError, at != high.end(), "[elf] relocation type ", r.type, " without the one of the upper part");
    const Relocation& upper = at->second;
    const bool slotted = relocation_need(machine_, upper.type) == RelocationNeed::kSlot;
    r.symbol = slotted ? upper.got_slot : upper.symbol;
    r.addend = upper.addend;
    r.address = upper.address;
    apply_relocation(r);
  }
}

void Loader::fill(uint8_t* base) {
  base_ = base;
  for (size_t i = 1; i < sections_.size(); ++i)
    if (loaded(i) && sections_[i].type == kProgBits) {
      auto bytes = bytes_.slice(sections_[i].offset, sections_[i].size, "section");
      std::memcpy(base_ + offsets_[i], bytes.data(), bytes.size());
    }
  for (size_t symbol : slotted_) {
    const uint64_t address = address_of(symbol);
    std::memcpy(base_ + slot(symbol), &address, 8);
    write_stub(stub(symbol), slot(symbol));
  }
  for (const SectionHeader& h : sections_)
    if (h.type == kRela && loaded(h.info)) relocate(h);
}

template <class F> void Loader::for_functions(F f) const {
  for (size_t i = 1; i < symbols_.size(); ++i) {
    const Symbol& s = symbols_[i];
    if ((s.info >> 4) == kBindLocal || (s.info & 15) != kTypeFunction || s.section == kUndefined ||
        s.section == kAbsolute || !loaded(s.section))
      continue;
    if (!(sections_[s.section].flags & kExec)) continue;
    f(names_[i], offsets_[s.section] + s.value);
  }
}

}  // namespace

std::shared_ptr<ElfImage> ElfImage::load(std::span<const uint8_t> object) {
  Loader loader(object, kHostMachine);
  loader.parse();
  loader.lay_out();
  std::shared_ptr<ElfImage> image(new ElfImage);
  void* memory = mmap(nullptr, loader.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TG_CHECK(OutOfMemoryError, memory != MAP_FAILED, "[elf] no memory for ", loader.size(), " bytes of code");
  image->base_ = static_cast<uint8_t*>(memory);
  image->size_ = loader.size();
  loader.fill(image->base_);
  const size_t text = loader.end(kText), constants = loader.end(kConst);
  bool ok = mprotect(image->base_, text, PROT_READ | PROT_EXEC) == 0;
  if (constants > text) ok = mprotect(image->base_ + text, constants - text, PROT_READ) == 0 && ok;
  TG_CHECK(DeviceError, ok, "[elf] the system does not let memory become executable");
  __builtin___clear_cache(reinterpret_cast<char*>(image->base_), reinterpret_cast<char*>(image->base_ + text));
  loader.for_functions([&](const std::string& name, size_t offset) { image->functions_.push_back({name, offset}); });
  return image;
}

void ElfImage::check(std::span<const uint8_t> object, std::string_view arch) {
  Loader loader(object, machine_of(arch));
  loader.parse();
  loader.lay_out();
}

ElfImage::~ElfImage() {
  if (base_) munmap(base_, size_);
}

void* ElfImage::function(std::string_view name) const {
  for (const Function& f : functions_)
    if (f.name == name) return base_ + f.offset;
  return nullptr;
}

}  // namespace tg
