/// \file The table of contents of a zip archive held in memory: stored and deflated entries, zip64 (PKWARE APPNOTE
/// 6.3.10). Nothing in an archive is trusted.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tg::io {

/// A file inside an archive. Its packed bytes are archive[offset, offset + packed_size).
struct ZipEntry {
  std::string name;  ///< UTF-8; a key, not a path to be trusted
  uint64_t offset;
  uint64_t packed_size;
  uint64_t size;  ///< bytes of content
  uint32_t crc;   ///< CRC-32 of the content
  bool deflated;  ///< otherwise stored: the packed bytes are the content
};

inline constexpr uint64_t kMaxZipEntries = 1 << 20;
/// Most bytes of content for each deflated byte: what the format itself can reach.
inline constexpr uint64_t kMaxDeflateRatio = 1032;
/// Most bytes of content that all deflated entries of an archive have together, unless a caller says otherwise.
inline constexpr uint64_t kMaxInflated = uint64_t{16} << 30;

/// Returns files in the order of the central directory; folders are left out. Nothing is unpacked or copied. Throws
/// FormatError that begins with `what` and names the byte and the field: for truncated or contradictory records,
/// encrypted or split archives, other methods of compression, names that occur twice, hold a zero or are not UTF-8,
/// entries outside of the archive or that share bytes, more than kMaxZipEntries of them, and contents larger than
/// `max_inflated` or than deflate can make of their bytes.
std::vector<ZipEntry> zip_entries(std::span<const uint8_t> archive, std::string_view what,
                                  uint64_t max_inflated = kMaxInflated);

/// Returns the content of an entry that zip_entries gave. Throws FormatError when it is not what the directory says;
/// `check_crc` off leaves the checksum of stored entries unread.
std::vector<uint8_t> zip_read(std::span<const uint8_t> archive, const ZipEntry& entry, std::string_view what,
                              bool check_crc = true);

/// Lays out a new archive of stored entries, zip64 where sizes need it. Contents begin at multiples of 64 bytes, so
/// that they can be used where they lie.
class ZipWriter {
 public:
  /// Adds a file, whose content must stay where it is until the archive is written. ValueError for a name that is
  /// empty, taken, longer than 65,535 bytes or not UTF-8.
  void add(const std::string& name, std::vector<std::span<const uint8_t>> content);
  /// Adds the central directory and returns the archive's bytes in pieces, headers and contents in turn.
  std::vector<std::span<const uint8_t>> finish();

 private:
  struct Written {
    std::string name;
    uint64_t header, size;
    uint32_t crc;
  };
  void append(std::string bytes);
  std::deque<std::string> headers_;
  std::unordered_set<std::string> names_;
  std::vector<Written> written_;
  std::vector<std::span<const uint8_t>> parts_;
  uint64_t at_ = 0;
};

}  // namespace tg::io
