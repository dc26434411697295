/// \file Reader of zip archives.
#include "tinygrad/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"

namespace tg::io {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kEnd64LocatorMark = 0x07064b50;
constexpr uint32_t kDirectoryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint64_t kEndSize = 22, kEnd64Size = 56, kEnd64LocatorSize = 20, kDirectorySize = 46, kLocalSize = 30;
constexpr uint64_t kMaxComment = 0xffff;
constexpr uint16_t kEncrypted = 1, kMaskedHeader = 1 << 13, kExtraZip64 = 1;
constexpr uint16_t kStored = 0, kDeflated = 8;

template <class T> T get(Bytes bytes, uint64_t at) {
  T v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

/// Where the central directory lies.
struct Directory {
  uint64_t begin, end, entries;
};

/// What one record of the central directory says.
struct FileRecord {
  ZipEntry entry;
  uint64_t at, local, next;  ///< the record, the local header, the record after this one
  bool folder;
};

class ZipReader {
 public:
  ZipReader(Bytes archive, std::string_view what) : archive_(archive), what_(what) {}

  std::vector<ZipEntry> entries(uint64_t max_inflated) const {
    const Directory directory = find_directory();
    std::vector<ZipEntry> out;
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    std::unordered_set<std::string> names;
    uint64_t inflated = 0, at = directory.begin;
    for (uint64_t i = 0; i < directory.entries; i++) {
      FileRecord r = record(at, directory);
      at = r.next;
      if (r.folder) continue;
      locate(r, directory.begin);
      taken.emplace_back(r.local, r.entry.offset + r.entry.packed_size);
      check(names.insert(r.entry.name).second, r.at, "two entries called ", r.entry.name);
      if (r.entry.deflated) {
        check(r.entry.size <= max_inflated - inflated, r.at, "deflated entries of more than ", max_inflated,
              " bytes together");
        inflated += r.entry.size;
      }
      out.push_back(std::move(r.entry));
    }
    check(at == directory.end, at, "a directory of ", directory.end - directory.begin, " bytes with ",
          directory.entries, " records of ", at - directory.begin);
    std::sort(taken.begin(), taken.end());
    for (size_t i = 1; i < taken.size(); i++)
      check(taken[i - 1].second <= taken[i].first, taken[i].first, "two entries that share bytes");
    return out;
  }

 private:
  template <class... A> void check(bool ok, uint64_t at, const A&... got) const {
    if (!ok) [[unlikely]]
      throw FormatError(str(what_, ": byte ", at, ": got ", got...));
  }

  /// Returns the place of the end record: the last one whose comment reaches to the end of the archive.
  uint64_t find_end() const {
    const uint64_t size = archive_.size();
    check(size >= kEndSize, 0, "an archive of ", size, " bytes, expected at least ", kEndSize);
    for (uint64_t comment = 0; comment <= std::min(kMaxComment, size - kEndSize); comment++) {
      const uint64_t at = size - kEndSize - comment;
      if (get<uint32_t>(archive_, at) == kEndMark && get<uint16_t>(archive_, at + 20) == comment) return at;
    }
    throw FormatError(str(what_, ": got no end of a central directory: the archive is cut off or no zip archive"));
  }

  Directory find_directory() const {
    const uint64_t end = find_end();
    Directory d{get<uint32_t>(archive_, end + 16), 0, get<uint16_t>(archive_, end + 10)};
    uint64_t size = get<uint32_t>(archive_, end + 12), limit = end;
    uint32_t disk = get<uint16_t>(archive_, end + 4), first_disk = get<uint16_t>(archive_, end + 6);
    uint64_t here = get<uint16_t>(archive_, end + 8);
    const bool large =
        end >= kEnd64LocatorSize && get<uint32_t>(archive_, end - kEnd64LocatorSize) == kEnd64LocatorMark;
    if (large) {
      const uint64_t locator = end - kEnd64LocatorSize, at = get<uint64_t>(archive_, locator + 8);
      check(locator >= kEnd64Size && at <= locator - kEnd64Size, locator + 8, "a zip64 record at ", at,
            ", outside of the archive");
      check(get<uint32_t>(archive_, at) == kEnd64Mark, at, "no zip64 record where the locator says");
      disk = get<uint32_t>(archive_, at + 16);
      first_disk = get<uint32_t>(archive_, at + 20);
      here = get<uint64_t>(archive_, at + 24);
      d.entries = get<uint64_t>(archive_, at + 32);
      size = get<uint64_t>(archive_, at + 40);
      d.begin = get<uint64_t>(archive_, at + 48);
      limit = at;
    }
    check(disk == 0 && first_disk == 0 && here == d.entries, end, "an archive in several parts");
    check(d.begin <= limit && size == limit - d.begin, end, "a directory of ", size, " bytes at ", d.begin,
          ", expected one that ends at ", limit);
    check(d.entries <= kMaxZipEntries, end, d.entries, " entries, expected at most ", kMaxZipEntries);
    check(d.entries <= size / kDirectorySize, end, d.entries, " entries in a directory of ", size, " bytes");
    d.end = limit;
    return d;
  }

  /// Replaces sizes and offset that do not fit 32 bits by those of the zip64 field.
  void widen(FileRecord& r, Bytes extra, uint64_t extra_at) const {
    uint64_t* const wide[] = {&r.entry.size, &r.entry.packed_size, &r.local};
    for (uint64_t at = 0; at + 4 <= extra.size();) {
      const auto id = get<uint16_t>(extra, at), size = get<uint16_t>(extra, at + 2);
      check(size <= extra.size() - at - 4, extra_at + at, "an extra field of ", size, " bytes, past the end of all");
      uint64_t from = at + 4;
      const uint64_t end = from + size;
      if (id == kExtraZip64) {
        for (uint64_t* field : wide) {
          if (*field != 0xffffffff) continue;
          check(end - from >= 8, extra_at + at, "a zip64 field of ", size, " bytes, too short for what it holds");
          *field = get<uint64_t>(extra, from);
          from += 8;
        }
        return;
      }
      at = end;
    }
  }

  FileRecord record(uint64_t at, const Directory& d) const {
    check(d.end - at >= kDirectorySize && get<uint32_t>(archive_, at) == kDirectoryMark, at,
          "no record of the central directory");
    const auto flags = get<uint16_t>(archive_, at + 8), method = get<uint16_t>(archive_, at + 10);
    const uint64_t name = get<uint16_t>(archive_, at + 28), extra = get<uint16_t>(archive_, at + 30),
                   comment = get<uint16_t>(archive_, at + 32);
    check(name + extra + comment <= d.end - at - kDirectorySize, at + 28, "a record past the end of the directory");
    check(get<uint16_t>(archive_, at + 34) == 0, at + 34, "an entry in another part of the archive");
    check(!(flags & (kEncrypted | kMaskedHeader)), at + 8, "an encrypted entry");
    FileRecord r{{std::string(reinterpret_cast<const char*>(archive_.data()) + at + kDirectorySize, name), 0,
                  get<uint32_t>(archive_, at + 20), get<uint32_t>(archive_, at + 24), get<uint32_t>(archive_, at + 16),
                  method == kDeflated},
                 at,
                 get<uint32_t>(archive_, at + 42),
                 at + kDirectorySize + name + extra + comment,
                 name > 0 && archive_[at + kDirectorySize + name - 1] == '/'};
    check(name > 0 && r.entry.name.find('\0') == std::string::npos && is_utf8(r.entry.name), at + 46,
          "a name that is empty, holds a zero or is not UTF-8");
    check(method == kStored || method == kDeflated, at + 10, "compression method ", method, " of ", r.entry.name,
          ", expected stored or deflated");
    widen(r, archive_.subspan(at + kDirectorySize + name, extra), at + kDirectorySize + name);
    check(r.folder || r.entry.deflated || r.entry.size == r.entry.packed_size, at + 20, r.entry.name, " of ",
          r.entry.size, " bytes stored in ", r.entry.packed_size);
    check(!r.entry.deflated || r.entry.size / kMaxDeflateRatio <= r.entry.packed_size, at + 24, r.entry.name, " of ",
          r.entry.size, " bytes deflated to ", r.entry.packed_size, ", more than deflate can do");
    return r;
  }

  /// Finds the packed bytes behind the local header, which has a name and extra fields of its own.
  void locate(FileRecord& r, uint64_t end) const {
    check(r.local <= end && end - r.local >= kLocalSize, r.at + 42, r.entry.name, " at byte ", r.local,
          ", outside of the archive");
    check(get<uint32_t>(archive_, r.local) == kLocalMark, r.local, "no local header of ", r.entry.name);
    const uint64_t name = get<uint16_t>(archive_, r.local + 26), extra = get<uint16_t>(archive_, r.local + 28);
    const uint64_t left = end - r.local - kLocalSize;
    check(name + extra <= left && r.entry.packed_size <= left - name - extra, r.local + 26, r.entry.name,
          " past the end of the files' bytes");
    const std::string_view own(reinterpret_cast<const char*>(archive_.data()) + r.local + kLocalSize, name);
    check(own == r.entry.name, r.local + kLocalSize, "another name in the local header of ", r.entry.name);
    check(get<uint16_t>(archive_, r.local + 8) == (r.entry.deflated ? kDeflated : kStored), r.local + 8,
          "another compression method in the local header of ", r.entry.name);
    r.entry.offset = r.local + kLocalSize + name + extra;
  }

  Bytes archive_;
  std::string_view what_;
};

struct RawInflater {
  z_stream z{};
  RawInflater() { TG_CHECK(Error, inflateInit2(&z, -MAX_WBITS) == Z_OK, "[zip] zlib does not start"); }
  ~RawInflater() { inflateEnd(&z); }
  RawInflater(const RawInflater&) = delete;
  RawInflater& operator=(const RawInflater&) = delete;
};

/// Returns exactly `size` bytes of content, or nothing if the packed bytes give another number. Memory grows with what
/// has been unpacked.
std::optional<std::vector<uint8_t>> inflated(Bytes packed, uint64_t size) {
  constexpr uint64_t kPiece = std::numeric_limits<uInt>::max();  // zlib counts in 32 bits
  std::vector<uint8_t> out(std::min<uint64_t>(size, 4 * uint64_t{packed.size()} + 64));
  RawInflater inflater;
  z_stream& z = inflater.z;
  for (size_t in_at = 0, out_at = 0;;) {
    if (out_at == out.size() && out.size() < size) out.resize(std::min<uint64_t>(size, 2 * uint64_t{out.size()}));
    uint8_t overflow;  // one byte past the size tells "exactly full" from "too large"
    const bool full = out_at == out.size();
    const auto give = static_cast<uInt>(std::min<uint64_t>(packed.size() - in_at, kPiece));
    const uInt room = full ? 1 : static_cast<uInt>(std::min<uint64_t>(out.size() - out_at, kPiece));
    z.next_in = const_cast<Bytef*>(packed.data() + in_at);
    z.avail_in = give;
    z.next_out = full ? &overflow : out.data() + out_at;
    z.avail_out = room;
    const int status = inflate(&z, Z_NO_FLUSH);
    const size_t took = give - z.avail_in, made = room - z.avail_out;
    if (full && made != 0) return {};
    in_at += took;
    out_at += made;
    if (status == Z_STREAM_END) {
      if (in_at != packed.size() || out_at != size) return {};
      return out;
    }
    if ((status != Z_OK && status != Z_BUF_ERROR) || (took == 0 && made == 0)) return {};
  }
}

uint32_t crc_of(Bytes bytes) { return static_cast<uint32_t>(crc32_z(0, bytes.data(), bytes.size())); }

}  // namespace

std::vector<ZipEntry> zip_entries(std::span<const uint8_t> archive, std::string_view what, uint64_t max_inflated) {
  return ZipReader(archive, what).entries(max_inflated);
}

std::vector<uint8_t> zip_read(std::span<const uint8_t> archive, const ZipEntry& entry, std::string_view what,
                              bool check_crc) {
  const Bytes packed = archive.subspan(entry.offset, entry.packed_size);
  std::vector<uint8_t> content;
  if (entry.deflated) {
    std::optional<std::vector<uint8_t>> made = inflated(packed, entry.size);
    TG_CHECK(FormatError, made, what, ": byte ", entry.offset, ": got ", entry.name,
             " whose deflated bytes are corrupt or give another size than ", entry.size);
    content = std::move(*made);
  } else content.assign(packed.begin(), packed.end());
  if (check_crc || entry.deflated)
    TG_CHECK(FormatError, crc_of(content) == entry.crc, what, ": byte ", entry.offset, ": got ", entry.name,
             " with another checksum than the directory has");
  return content;
}

// ---- writing ----

namespace {

constexpr uint16_t kVersion = 20, kVersion64 = 45, kUtf8Names = 1 << 11, kNewYear1980 = 1 << 5 | 1;
constexpr uint16_t kExtraPadding = 0xfb46;  // unknown to readers, who skip it
constexpr uint64_t kAlign = 64;
constexpr uint32_t kSeeZip64 = 0xffffffff;

/// Fields in order, little-endian.
class FieldWriter {
 public:
  template <class T> FieldWriter& put(T v) {
    const auto* p = reinterpret_cast<const char*>(&v);
    bytes_.append(p, sizeof v);
    return *this;
  }
  FieldWriter& u16(uint64_t v) { return put(static_cast<uint16_t>(v)); }
  FieldWriter& u32(uint64_t v) { return put(static_cast<uint32_t>(v)); }
  FieldWriter& u64(uint64_t v) { return put(v); }
  FieldWriter& text(std::string_view s) {
    bytes_ += s;
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

bool is_large(uint64_t v) { return v >= kSeeZip64; }
uint64_t or_zip64(uint64_t v) { return is_large(v) ? kSeeZip64 : v; }

}  // namespace

void ZipWriter::append(std::string bytes) {
  const std::string& kept = headers_.emplace_back(std::move(bytes));
  parts_.emplace_back(reinterpret_cast<const uint8_t*>(kept.data()), kept.size());
  at_ += kept.size();
}

void ZipWriter::add(const std::string& name, std::vector<std::span<const uint8_t>> content) {
  const bool good = !name.empty() && name.size() <= 0xffff && is_utf8(name) && names_.insert(name).second;
  TG_CHECK(ValueError, good, "[zip] got the name '", name,
           "', expected one that is new, not empty, at most 65535 bytes long and UTF-8");
  Written w{name, at_, 0, 0};
  for (const Bytes part : content) {
    w.size += part.size();
    w.crc = static_cast<uint32_t>(crc32_z(w.crc, part.data(), part.size()));
  }
  const bool large = is_large(w.size);
  const uint64_t before = at_ + kLocalSize + name.size() + (large ? 20 : 0) + 4;
  const uint64_t padding = (kAlign - before % kAlign) % kAlign;
  FieldWriter r;
  r.u32(kLocalMark).u16(large ? kVersion64 : kVersion).u16(kUtf8Names).u16(kStored).u16(0).u16(kNewYear1980);
  r.u32(w.crc).u32(or_zip64(w.size)).u32(or_zip64(w.size)).u16(name.size()).u16((large ? 20 : 0) + 4 + padding);
  r.text(name);
  if (large) r.u16(kExtraZip64).u16(16).u64(w.size).u64(w.size);
  r.u16(kExtraPadding).u16(padding).text(std::string(padding, '\0'));
  append(r.take());
  for (const Bytes part : content) parts_.push_back(part);
  at_ += w.size;
  written_.push_back(std::move(w));
}

std::vector<std::span<const uint8_t>> ZipWriter::finish() {
  const uint64_t begin = at_;
  for (const Written& w : written_) {
    const bool large = is_large(w.size), far = is_large(w.header);
    const uint64_t extra = (large ? 16 : 0) + (far ? 8 : 0);
    FieldWriter r;
    r.u32(kDirectoryMark).u16(kVersion64).u16(large || far ? kVersion64 : kVersion).u16(kUtf8Names).u16(kStored).u16(0);
    r.u16(kNewYear1980).u32(w.crc).u32(or_zip64(w.size)).u32(or_zip64(w.size)).u16(w.name.size());
    r.u16(extra ? extra + 4 : 0).u16(0).u16(0).u16(0).u32(0).u32(or_zip64(w.header)).text(w.name);
    if (extra) r.u16(kExtraZip64).u16(extra);
    if (large) r.u64(w.size).u64(w.size);
    if (far) r.u64(w.header);
    append(r.take());
  }
  const uint64_t size = at_ - begin, end = at_, count = written_.size();
  FieldWriter r;
  const bool large = is_large(size) || is_large(begin) || count >= 0xffff;
  if (large) {
    r.u32(kEnd64Mark).u64(kEnd64Size - 12).u16(kVersion64).u16(kVersion64).u32(0).u32(0).u64(count).u64(count);
    r.u64(size).u64(begin).u32(kEnd64LocatorMark).u32(0).u64(end).u32(1);
  }
  const uint64_t shown = std::min<uint64_t>(count, 0xffff);
  r.u32(kEndMark).u16(0).u16(0).u16(shown).u16(shown).u32(or_zip64(size)).u32(or_zip64(begin)).u16(0);
  append(r.take());
  return std::move(parts_);
}

}  // namespace tg::io
