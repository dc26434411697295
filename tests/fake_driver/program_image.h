/// \file What the fake GPU runs: a kernel as bytes, with what a cubin says of itself.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "tinygrad/base/binary.h"
#include "tinygrad/render/program_view.h"
#include "tinygrad/target/program.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/serialize.h"
#include "tinygrad/uop/spec.h"

namespace tg::fake {

/// A pointer parameter of a kernel.
struct ImageBuffer {
  int64_t bytes = 0;  ///< at most
  bool exact = true;  ///< not fewer either
  bool reads = false, writes = false;
};

/// A kernel with its metadata.
struct ProgramImage {
  std::shared_ptr<Program> program;
  std::vector<ImageBuffer> buffers;
  std::array<int64_t, 3> group{};  ///< threads along each dimension; 0: known at the launch only
  int64_t shared_bytes = 0;
  std::vector<TensorMap> maps;  ///< further parameters
  int64_t cluster = 1;          ///< groups of a cluster
};

inline constexpr std::string_view kImageMagic = "fake GPU image 1";

inline ProgramImage image_of(std::shared_ptr<Program> program) {
  ProgramImage out;
  const Program& p = *program;
  ArenaScope scope(*p.arena);
  out.buffers.resize(static_cast<size_t>(p.nbuffers));
  for (size_t i = 0; i < out.buffers.size(); i++) {
    out.buffers[i].reads = p.reads[i];
    out.buffers[i].writes = p.writes[i];
  }
  for (const UOp u : p.insts)
    if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal) {
      ImageBuffer& b = out.buffers[static_cast<size_t>(u.arg<ParamArg>().slot)];
      b.bytes = storage_size(u) * u.dtype().itemsize();
      b.exact = u.src(0).src(0).is_const();
    }
  for (size_t i = 0; i < 3; i++) {
    const UOp size = p.local_size[i];
    out.group[i] = !size ? 1 : size.is_const() ? static_cast<int64_t>(size.const_int()) : 0;
  }
  out.shared_bytes = p.shared_bytes;
  out.program = std::move(program);
  return out;
}

inline std::vector<uint8_t> write_image(const ProgramImage& image) {
  const Program& p = *image.program;
  ArenaScope scope(*p.arena);
  ByteWriter body;
  body.text(p.name);
  body.size(image.buffers.size());
  for (const ImageBuffer& b : image.buffers) {
    body.value<int64_t>(b.bytes);
    for (const bool flag : {b.exact, b.reads, b.writes}) body.value<uint8_t>(flag);
  }
  body.size(p.vars.size());
  for (const std::string& v : p.vars) body.text(v);
  for (const int64_t n : image.group) body.value<int64_t>(n);
  body.value<int64_t>(image.shared_bytes);
  body.text(image_text(tensor_maps(p.insts)));
  write_graph(body, p.insts);
  ByteWriter w;
  w.bytes.assign(kImageMagic.begin(), kImageMagic.end());
  w.size(body.bytes.size());  // drivers get no size
  w.bytes.insert(w.bytes.end(), body.bytes.begin(), body.bytes.end());
  return w.bytes;
}

inline constexpr std::string_view kImageCode = ".code ";

/// The image of a program in hexadecimal.
inline std::string image_text(const Program& p) {
  std::string text(kImageCode);
  for (const uint8_t byte : write_image(image_of(std::make_shared<Program>(p))))
    text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return text;
}
/// Returns the image in a source; empty where there is none.
inline std::vector<uint8_t> image_in(const std::string& source) {
  const size_t at = source.find(kImageCode);
  std::vector<uint8_t> bytes;
  if (at == std::string::npos) return bytes;
  for (size_t i = at + kImageCode.size(); i + 1 < source.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(source.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// FormatError for bytes that are none.
inline ProgramImage read_image(const void* data) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  TG_CHECK(FormatError, std::memcmp(bytes, kImageMagic.data(), kImageMagic.size()) == 0, "not an image");
  uint64_t size = 0;
  std::memcpy(&size, bytes + kImageMagic.size(), sizeof size);
  ByteReader r({bytes + kImageMagic.size() + sizeof size, size}, "image");
  ProgramImage out;
  out.program = std::make_shared<Program>();
  Program& p = *out.program;
  p.name = r.text();
  out.buffers.resize(r.size(11));
  for (ImageBuffer& b : out.buffers) {
    b.bytes = r.value<int64_t>();
    for (bool* flag : {&b.exact, &b.reads, &b.writes}) *flag = r.flag();
  }
  p.nbuffers = static_cast<int>(out.buffers.size());
  p.vars.resize(r.size(8));
  for (std::string& v : p.vars) v = r.text();
  for (int64_t& n : out.group) n = r.value<int64_t>();
  out.shared_bytes = r.value<int64_t>();
  const std::string maps = r.text();  // what runtimes look for
  out.maps = maps_of_image({reinterpret_cast<const uint8_t*>(maps.data()), maps.size()});
  p.arena = std::make_shared<Arena>();
  ArenaScope scope(*p.arena);
  p.insts = read_graph(r);
  verify_program(p.insts, "load");
  for (const UOp u : p.insts)
    if (begins_barriers(u)) out.cluster = barrier_number(u, 2);
  return out;
}

}  // namespace tg::fake
