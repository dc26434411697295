/// \file The fuzz target of captured functions in files. Such a file belongs to one version of the library, so the
/// target makes one, and inputs say what to change in it.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/io/jit_file.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::fuzz {

/// Returns a file with memory, random numbers and a variable in it.
inline const std::vector<uint8_t>& captured_file() {
  static const std::vector<uint8_t> file = [] {
    Tensor w = Tensor({1.f, 2.f, 3.f, 4.f}).realize(), x = Tensor({4.f, 3.f, 2.f, 1.f}).realize();
    const Variable n("n", 1, 4);
    auto f = jit([=](const Tensor& a, const BoundVariable& v) {
      return std::pair{(a * w).contiguous().sum() + Tensor::rand({4}), a.shrink({{SInt(0), SInt(v.uop())}}).sum()};
    });
    for (int i = 0; i < 3; i++) f(x, n.bind(2));
    return dump_jit(f.core(), {.note = "note"});
  }();
  return file;
}

/// Returns a file of a kernel for the interpreter, with a grid of threads.
inline const std::vector<uint8_t>& interpreted_file() {
  static const std::vector<uint8_t> file = [] {
    const Context grids{{"IMAGE", 1}};
    const Tensor x = Tensor(std::vector<float>(4096, 3.f)).to("INTERP").realize();
    auto f = jit([=](const Tensor& a) { return ((a * 2).contiguous().reshape(64, 64).sum(1) + 1).contiguous(); });
    for (int i = 0; i < 3; i++) f(x);
    return dump_jit(f.core());
  }();
  return file;
}

/// Changes of four bytes each: what (set, flip, cut off), where (16 bits, little endian), value. The checksum of header
/// and description is made right again, so that what is behind it is read.
inline void change_jit_file(std::vector<uint8_t> file, std::span<const uint8_t> in) {
  constexpr size_t kHead = 64, kChecksum = 32, kBodySize = 16;
  for (; in.size() >= 4 && !file.empty(); in = in.subspan(4)) {
    const size_t at = (in[1] | static_cast<size_t>(in[2]) << 8) % file.size();
    if (in[0] % 3 == 0) file[at] = in[3];
    else if (in[0] % 3 == 1) file[at] ^= in[3];
    else file.resize(at);
  }
  uint64_t body = 0;
  if (file.size() >= kHead) std::memcpy(&body, file.data() + kBodySize, sizeof body);
  if (file.size() >= kHead && body <= file.size() - kHead) {
    const std::span<const uint8_t> all(file);
    const Sha256Digest d = Sha256().update(all.first(kChecksum)).update(all.subspan(kHead, body)).finish();
    std::memcpy(file.data() + kChecksum, d.data(), d.size());
  }
  try {
    parse_jit(file, {}, "fuzz");
  } catch (const DeviceError& e) {  // code of a device or processor that is not here
    throw FormatError(str("fuzz: ", e.what()));
  } catch (const ValueError& e) {  // memory that is stored by name
    throw FormatError(str("fuzz: ", e.what()));
  }
}

inline void jit_file(std::span<const uint8_t> in) { change_jit_file(captured_file(), in); }
inline void jit_interpreted(std::span<const uint8_t> in) {
  const Context grids{{"IMAGE", 1}};
  change_jit_file(interpreted_file(), in);
}

}  // namespace tg::fuzz
