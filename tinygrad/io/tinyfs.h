/// \file Content addressed storage: bytes in chunks of 1 MiB, found by their hashes. A file's address is the hash at
/// the root of a tree whose inner chunks are lists of hashes. The store is a tinyfs server (TINYFS_ENDPOINT=host:port)
/// or a folder of chunk files (TINYFS_ENDPOINT=/path).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tg::io {

inline constexpr size_t kChunkBytes = size_t{1} << 20;
using ChunkHash = std::array<uint8_t, 16>;

/// Returns the first 16 bytes of SHAKE-128.
ChunkHash shake128(std::span<const uint8_t> bytes);
/// Returns the address of one chunk: the hash of the hashes of its blocks of 4096 bytes.
ChunkHash chunk_hash(std::span<const uint8_t> chunk);

/// A chunk store.
class ChunkStore {
 public:
  virtual ~ChunkStore() = default;
  /// Stores whole chunks and returns their addresses.
  virtual std::vector<ChunkHash> store(std::span<const uint8_t> bytes) = 0;
  /// Returns the first `bytes` of these chunks, concatenated; only the last may be shorter than a chunk.
  virtual std::vector<uint8_t> load(std::span<const ChunkHash> hashes, size_t bytes) = 0;
};
/// Opens the store `endpoint` names, by default TINYFS_ENDPOINT, localhost:6767 without one. FileError when it cannot
/// be reached.
std::unique_ptr<ChunkStore> open_store(const std::string& endpoint = {});

/// Stores bytes, zero-padded to whole chunks, and returns their address. FileError.
ChunkHash store_bytes(ChunkStore& store, std::vector<uint8_t> bytes);
/// Returns `size` bytes stored at an address. FileError for missing chunks, FormatError for chunks that do not match
/// their address.
std::vector<uint8_t> load_bytes(ChunkStore& store, const ChunkHash& address, size_t size);

}  // namespace tg::io
