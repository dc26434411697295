/// \file The container: magic, version, sizes, SHA-256 of header and body, body, then memory in blocks of 64 bytes,
/// each with its own digest.
#include "tinygrad/io/jit_file.h"

#include <algorithm>

#include "tinygrad/base/binary.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/io/file.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/uop/serialize.h"

namespace tg {
namespace {
constexpr char kMagic[8] = {'T', 'G',  'J',  'I',
                            'T', '\r', '\n', 0x1a};  // not text, and corrupted by line-end conversion
constexpr uint32_t kVersion = 4;
constexpr size_t kAlign = 64, kHeader = 64;

struct Header {
  char magic[8];
  uint32_t version, format;  // format: graph_format() of the library that wrote it
  uint64_t body, memory;     // bytes; the body is padded to kAlign
  Sha256Digest digest;       // of the fields above and the body
};
static_assert(sizeof(Header) == kHeader);

Sha256Digest digest_of(const Header& h, std::span<const uint8_t> body) {
  return Sha256().update({reinterpret_cast<const uint8_t*>(&h), offsetof(Header, digest)}).update(body).finish();
}
std::span<const uint8_t> bytes_of(Buffer& b, std::vector<std::vector<std::byte>>& copies) {
  if (void* p = b.data()) return {static_cast<const uint8_t*>(p), static_cast<size_t>(b.nbytes())};
  std::vector<std::byte>& copy = copies.emplace_back(static_cast<size_t>(b.nbytes()));
  b.copy_out(copy);
  return {reinterpret_cast<const uint8_t*>(copy.data()), copy.size()};
}

/// A file in pieces: `use` receives them in order.
template <class F> void write_pieces(const JitCore& core, const SaveJitOptions& o, F&& use) {
  ByteWriter w, rest;
  std::vector<StoredMemory> memory;
  std::vector<std::vector<std::byte>> copies;
  core.write(rest, memory, o.state);
  w.text(o.note);
  w.size(memory.size());
  std::vector<std::span<const uint8_t>> blocks;
  static constexpr uint8_t zeros[kAlign] = {};
  Header h{};
  for (const StoredMemory& m : memory) {
    blocks.push_back(bytes_of(*m.buffer, copies));
    w.size(blocks.back().size());
    w.value(Sha256().update(blocks.back()).finish());
    if (size_t odd = blocks.back().size() % kAlign) blocks.push_back({zeros, kAlign - odd});
  }
  for (auto b : blocks) h.memory += b.size();
  w.bytes.insert(w.bytes.end(), rest.bytes.begin(), rest.bytes.end());
  h.body = w.bytes.size();
  std::copy(std::begin(kMagic), std::end(kMagic), h.magic);
  h.version = kVersion;
  h.format = graph_format();
  h.digest = digest_of(h, w.bytes);
  std::vector<std::span<const uint8_t>> pieces{{reinterpret_cast<const uint8_t*>(&h), sizeof h}, w.bytes};
  if (size_t odd = w.bytes.size() % kAlign) pieces.push_back({zeros, kAlign - odd});
  pieces.insert(pieces.end(), blocks.begin(), blocks.end());
  use(pieces);
}
}  // namespace

Tensors LoadedJit::operator()(const Tensors& tensors, const std::vector<BoundVariable>& variables) const {
  JitInputs in{tensors, core_->input_names(), {}, {}, {}};
  for (const BoundVariable& v : variables) in.variables.push_back(v.uop());
  return core_->call(in, {});
}

void save_jit(const JitCore& core, const std::filesystem::path& path, const SaveJitOptions& o) {
  write_pieces(core, o, [&](const auto& pieces) { io::write_file_atomic(path, pieces, "save_jit"); });
}
std::vector<uint8_t> dump_jit(const JitCore& core, const SaveJitOptions& o) {
  std::vector<uint8_t> out;
  write_pieces(core, o, [&](const auto& pieces) {
    for (auto p : pieces) out.insert(out.end(), p.begin(), p.end());
  });
  return out;
}

LoadedJit load_jit(const std::filesystem::path& path, const NamedTensors& state) {
  const io::MappedFile file = io::map_file(path, "load_jit");
  return parse_jit(file.bytes, state, "[load_jit] " + path.string());
}

LoadedJit parse_jit(std::span<const uint8_t> bytes, const NamedTensors& state, const std::string& name) {
  const size_t known = std::min(bytes.size(), sizeof kMagic);
  TG_CHECK(FormatError, known > 0 && std::equal(kMagic, kMagic + known, bytes.begin()), name,
           " is no file of a captured function, expected one that ", "save_jit or TinyJit.save wrote");
  ByteReader file(bytes, name);
  const auto h = file.value<Header>();
  TG_CHECK(FormatError, h.version == kVersion && h.format == graph_format(), name,
           " was saved by another version of the library (format ", h.version, ".", h.format, ", expected ", kVersion,
           ".", graph_format(), "): save the function again with this one");
  file.check(h.body <= file.left(), "an early end");
  const std::span<const uint8_t> body = file.take(h.body);
  file.check(digest_of(h, body) == h.digest, "damaged contents: the checksum differs");
  ByteReader r(body, name);
  std::string note = r.text();
  std::vector<std::pair<uint64_t, Sha256Digest>> blocks(r.size(40));
  uint64_t total = 0;
  for (auto& [size, digest] : blocks) {
    size = r.value<uint64_t>();
    digest = r.value<Sha256Digest>();
    r.check(size <= bytes.size(), "a count that is larger than the file");
    total += (size + kAlign - 1) / kAlign * kAlign;
  }
  const size_t padding = (kAlign - h.body % kAlign) % kAlign;
  r.check(total == h.memory && file.left() == total + padding, "another size than the header tells");
  auto skip = [&](size_t n) {
    for (uint8_t b : file.take(n)) file.check(b == 0, "damaged contents: bytes between its parts");
  };
  skip(padding);
  std::vector<StoredMemory> memory;
  std::shared_ptr<JitCore> core;
  try {
    core = JitCore::read(r, state, memory);
  } catch (const DeviceError&) { throw; } catch (const ValueError&) {
    throw;
  } catch (const FormatError& e) {
    if (std::string_view(e.what()).starts_with(name)) throw;
    throw FormatError(name + ": got " + e.what());  // of its machine code
  } catch (const OutOfMemoryError&) { throw; } catch (const Error& e) {
    throw FormatError(name + ": got contents that do not fit together: " + e.what());
  } catch (const InternalError& e) { throw FormatError(name + ": got contents that do not fit together: " + e.what()); }
  r.check(r.left() == 0 && memory.size() == blocks.size(), "more than belongs there");
  for (size_t i = 0; i < memory.size(); i++) {
    r.check(static_cast<uint64_t>(memory[i].bytes) == blocks[i].first, "memory of another size");
    const auto data = file.take(blocks[i].first);
    file.check(Sha256().update(data).finish() == blocks[i].second,
               "damaged contents: the checksum of its memory differs");
    skip((kAlign - data.size() % kAlign) % kAlign);
    memory[i].buffer->ensure_allocated();
    memory[i].buffer->copy_in(std::as_bytes(data));
  }
  return {std::move(core), std::move(note)};
}

}  // namespace tg
