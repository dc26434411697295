/// \file SHAKE-128, the two kinds of store, and trees of chunks.
#include "tinygrad/io/tinyfs.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/io/file.h"

namespace tg::io {
namespace {
constexpr size_t kBlock = 4096, kHash = sizeof(ChunkHash), kFan = kChunkBytes / kHash;

void keccak(std::array<uint64_t, 25>& a) {
  static constexpr uint64_t kRound[24] = {
      0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
      0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
      0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
      0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
      0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};
  for (uint64_t round : kRound) {
    uint64_t c[5], moved[25];
    for (size_t x = 0; x < 5; x++) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
    for (size_t i = 0; i < 25; i++) a[i] ^= c[(i + 4) % 5] ^ std::rotl(c[(i + 1) % 5], 1);
    size_t x = 1, y = 0;
    moved[0] = a[0];
    for (int t = 0; t < 24; t++) {  // visits all lanes but the first, each rotated by a triangular number
      const size_t from = x + 5 * y, ny = (2 * x + 3 * y) % 5;
      x = y;
      y = ny;
      moved[x + 5 * y] = std::rotl(a[from], (t + 1) * (t + 2) / 2 % 64);
    }
    for (size_t i = 0; i < 25; i++)
      a[i] = moved[i] ^ (~moved[i / 5 * 5 + (i + 1) % 5] & moved[i / 5 * 5 + (i + 2) % 5]);
    a[0] ^= round;
  }
}

/// One TCP connection; every operation completes or throws FileError.
class Connection {
 public:
  explicit Connection(const std::string& endpoint) : name_(endpoint) {
    const size_t colon = endpoint.rfind(':');
    TG_CHECK(FileError, colon != std::string::npos && colon > 0, "[tinyfs] got the endpoint '", endpoint,
             "', expected host:port or a folder");
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int rc = getaddrinfo(endpoint.substr(0, colon).c_str(), endpoint.substr(colon + 1).c_str(), &hints, &found);
    TG_CHECK(FileError, rc == 0, "[tinyfs] cannot find ", endpoint, ": ", gai_strerror(rc));
    std::string why;
    for (addrinfo* a = found; a && fd_ < 0; a = a->ai_next) {
      fd_ = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
      if (fd_ >= 0 && connect(fd_, a->ai_addr, a->ai_addrlen) != 0) {
        why = std::strerror(errno);
        close(fd_);
        fd_ = -1;
      }
    }
    freeaddrinfo(found);
    TG_CHECK(FileError, fd_ >= 0, "[tinyfs] cannot reach ", endpoint, ": ", why,
             ": start a server there, or set TINYFS_ENDPOINT to another or to a folder");
    timeval limit{env::TINYFS_TIMEOUT.get(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;

  void send(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      check(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  void send(const std::string& line) { send({reinterpret_cast<const uint8_t*>(line.data()), line.size()}); }
  void receive(std::span<uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = recv(fd_, bytes.data(), bytes.size(), 0);
      check(n);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  nlohmann::json receive_json() {
    std::string line;
    for (uint8_t c = 0; c != '\n';) {
      receive({&c, 1});
      line += static_cast<char>(c);
      TG_CHECK(FormatError, line.size() < size_t{1} << 26, "[tinyfs] got an endless line from ", name_);
    }
    nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
    TG_CHECK(FormatError, !j.is_discarded(), "[tinyfs] got '", line.substr(0, 60), "' from ", name_, ", expected JSON");
    return j;
  }

 private:
  void check(ssize_t n) const {
    TG_CHECK(FileError, n > 0, "[tinyfs] lost the connection to ", name_, ": ",
             n == 0 ? "closed by the server" : std::strerror(errno));
  }
  std::string name_;
  int fd_ = -1;
};

class ServerStore final : public ChunkStore {
 public:
  explicit ServerStore(const std::string& endpoint) : control_(endpoint) {
    control_.send("INFO\r\n");
    const nlohmann::json info = control_.receive_json();
    TG_CHECK(FormatError, info.is_object(), "[tinyfs] got no table of nodes from ", endpoint);
    for (const auto& [node, places] : info.items())
      if (places.is_array() && !places.empty() && places.back().is_string())
        nodes_[node] = places.back().get<std::string>();
  }
  std::vector<ChunkHash> store(std::span<const uint8_t> bytes) override {
    control_.send(str("STORE_IN ", bytes.size(), "\r\n"));
    control_.send(bytes);
    std::vector<ChunkHash> hashes(bytes.size() / kChunkBytes);
    control_.receive({hashes.data()->data(), hashes.size() * kHash});
    return hashes;
  }
  std::vector<uint8_t> load(std::span<const ChunkHash> hashes, size_t bytes) override {
    control_.send(str("LOAD_IN ", hashes.size() * kHash, "\r\n"));
    control_.send({hashes.data()->data(), hashes.size() * kHash});
    const nlohmann::json places = control_.receive_json();
    TG_CHECK(FormatError, places.is_array() && places.size() == hashes.size(), "[tinyfs] got no place for each chunk");
    std::vector<uint8_t> out(bytes);
    for (size_t i = 0; i < hashes.size(); i++) {
      const auto node = places[i].is_string() ? nodes_.find(places[i].get<std::string>()) : nodes_.end();
      TG_CHECK(FormatError, node != nodes_.end(), "[tinyfs] got a chunk on a node that is not in the table");
      auto& connection = data_[node->second];
      if (!connection) connection = std::make_unique<Connection>(node->second);
      const size_t size = std::min(kChunkBytes, bytes - i * kChunkBytes);
      connection->send(str("CHUNK_OUT ", size, "\r\n"));
      connection->send(hashes[i]);
      connection->receive(std::span(out).subspan(i * kChunkBytes, size));
    }
    return out;
  }

 private:
  Connection control_;
  std::map<std::string, std::string> nodes_;
  std::map<std::string, std::unique_ptr<Connection>> data_;
};

class FolderStore final : public ChunkStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::error_code ec;
    std::filesystem::create_directories(folder_, ec);
    TG_CHECK(FileError, !ec, "[tinyfs] cannot make ", folder_.string(), ": ", ec.message());
  }
  std::vector<ChunkHash> store(std::span<const uint8_t> bytes) override {
    std::vector<ChunkHash> hashes;
    for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
      const auto chunk = bytes.subspan(at, kChunkBytes);
      hashes.push_back(chunk_hash(chunk));
      const auto path = folder_ / to_hex(hashes.back());
      if (!std::filesystem::exists(path)) write_file_atomic(path, chunk);
    }
    return hashes;
  }
  std::vector<uint8_t> load(std::span<const ChunkHash> hashes, size_t bytes) override {
    std::vector<uint8_t> out;
    for (const ChunkHash& h : hashes) {
      const std::vector<uint8_t> chunk = read_file(folder_ / to_hex(h), kChunkBytes);
      TG_CHECK(FormatError, chunk.size() == kChunkBytes && chunk_hash(chunk) == h, "[tinyfs] ",
               (folder_ / to_hex(h)).string(), ": damaged chunk");
      out.insert(out.end(), chunk.begin(),
                 chunk.begin() + static_cast<std::ptrdiff_t>(std::min(kChunkBytes, bytes - out.size())));
    }
    return out;
  }

 private:
  std::filesystem::path folder_;
};

size_t chunks_of(size_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }
}  // namespace

ChunkHash shake128(std::span<const uint8_t> bytes) {
  constexpr size_t kRate = 168;
  std::array<uint64_t, 25> state{};
  auto absorb = [&](const uint8_t* block) {
    for (size_t i = 0; i < kRate / 8; i++) {
      uint64_t lane;
      std::memcpy(&lane, block + 8 * i, 8);
      state[i] ^= lane;
    }
    keccak(state);
  };
  for (; bytes.size() >= kRate; bytes = bytes.subspan(kRate)) absorb(bytes.data());
  uint8_t last[kRate] = {};
  std::copy(bytes.begin(), bytes.end(), last);
  last[bytes.size()] ^= 0x1f;
  last[kRate - 1] ^= 0x80;
  absorb(last);
  ChunkHash h;
  std::memcpy(h.data(), state.data(), h.size());
  return h;
}

ChunkHash chunk_hash(std::span<const uint8_t> chunk) {
  std::vector<uint8_t> hashes;
  for (size_t at = 0; at < chunk.size(); at += kBlock) {
    const ChunkHash h = shake128(chunk.subspan(at, std::min(kBlock, chunk.size() - at)));
    hashes.insert(hashes.end(), h.begin(), h.end());
  }
  return shake128(hashes);
}

std::unique_ptr<ChunkStore> open_store(const std::string& endpoint) {
  const char* set = std::getenv("TINYFS_ENDPOINT");  // read now: programs set it after loading the library
  const std::string e = !endpoint.empty() ? endpoint : set && *set ? set : env::TINYFS_ENDPOINT.get();
  if (e.find('/') != std::string::npos) return std::make_unique<FolderStore>(e);
  return std::make_unique<ServerStore>(e);
}

ChunkHash store_bytes(ChunkStore& store, std::vector<uint8_t> bytes) {
  TG_CHECK(ValueError, !bytes.empty(), "[fs_store] got no bytes, expected at least one");
  size_t depth = 0;
  for (size_t n = chunks_of(bytes.size()); n > 1; n = (n + kFan - 1) / kFan) depth++;
  std::vector<ChunkHash> hashes;
  for (size_t level = 0; level <= depth; level++) {
    bytes.resize(chunks_of(bytes.size()) * kChunkBytes);
    hashes = store.store(bytes);
    const auto* p = hashes.data()->data();
    bytes.assign(p, p + hashes.size() * kHash);
  }
  return hashes[0];
}

std::vector<uint8_t> load_bytes(ChunkStore& store, const ChunkHash& address, size_t size) {
  TG_CHECK(ValueError, size > 0, "[fs_load] got size 0, expected that of what was stored");
  std::vector<size_t> levels{chunks_of(size)};  // chunks of each level, leaves first
  while (levels.back() > 1) levels.push_back((levels.back() + kFan - 1) / kFan);
  std::vector<ChunkHash> hashes{address};
  for (size_t level = levels.size(); level-- > 1;) {
    std::vector<ChunkHash> below(levels[level - 1]);
    const std::vector<uint8_t> list = store.load(hashes, below.size() * kHash);
    TG_CHECK(FormatError, list.size() == below.size() * kHash, "[fs_load] got a list of ", list.size(),
             " bytes, expected ", below.size() * kHash);
    std::memcpy(below.data(), list.data(), list.size());
    hashes = std::move(below);
  }
  std::vector<uint8_t> bytes = store.load(hashes, hashes.size() * kChunkBytes);
  for (size_t i = 0; i < hashes.size(); i++)
    TG_CHECK(FormatError, chunk_hash(std::span(bytes).subspan(i * kChunkBytes, kChunkBytes)) == hashes[i],
             "[fs_load] got chunk ", i, " with other contents than ", to_hex(hashes[i]),
             " has: it is damaged or missing");
  bytes.resize(size);
  return bytes;
}

}  // namespace tg::io
