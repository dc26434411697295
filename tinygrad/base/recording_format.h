/// \file What a recording looks like on disk: the magic, then blocks. Little endian.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tg::recording {

/// What a record is about. The numbers are those of files: new ones are appended.
enum class Kind : uint8_t {
  kName = 1,  ///< number, text: what later records call by number
  kTotal,     ///< name of a rule, tries, hits, nanoseconds: of the whole process
  kNode,      ///< graph, number, name of the op, name of the type, tag, name of the origin, sources, argument
  kOpen,      ///< span, parent, name of its kind, name, begin
  kClose,     ///< span, end
  kValue,     ///< span, name of the key, text
  kText,      ///< span, name of the title, name of the language, text
  kGraph,     ///< span, name of the title, graph, count, roots: one, or the instructions of a program in their order
  kRewrite,   ///< span, name of the rule, graph, node before, node after, nanoseconds
  kEvent,     ///< name of the track, lane, name, span, begin, end, details
  kMemory,    ///< name of the device, span, address, bytes (zigzag: negative ones are freed), time
};

inline constexpr char kMagic[8] = {'T', 'G', 'V', 'I', 'Z', '\r', '\n', 1};  // the last byte is the version

/// In front of the records of one thread, which zlib has compressed. Each record is its length, its kind (a byte) and
/// its fields; lengths and numbers are LEB128. Blocks stand in the order they were written in: a record may name what
/// a later block of another thread defines.
struct BlockHeader {
  uint64_t thread;
  uint32_t packed, unpacked;  ///< bytes
  uint32_t checksum;          ///< CRC-32 of the packed bytes
  uint32_t reserved = 0;
};
static_assert(sizeof(BlockHeader) == 24);
/// Returns a block: its header and the compressed records.
std::string make_block(uint64_t thread, std::string_view records);

inline constexpr uint32_t kMaxText = 16 << 20;   ///< bytes of one text; what is longer is cut
inline constexpr uint32_t kMaxBlock = 64 << 20;  ///< bytes of a block, unpacked: a buffer and a record fit

}  // namespace tg::recording
