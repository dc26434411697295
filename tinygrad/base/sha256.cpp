/// \file SHA-256 (FIPS 180-4).
#include "tinygrad/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tg {
namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress_portable(std::array<uint32_t, 8>& state, const uint8_t* p) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++)
    w[i] = uint32_t{p[4 * i]} << 24 | uint32_t{p[4 * i + 1]} << 16 | uint32_t{p[4 * i + 2]} << 8 | p[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; i++) {
    const uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; i++) state[i] += add[i];
}

#if defined(__x86_64__)
/// Four rounds per step with the SHA extensions; several times faster, which matters for archives of hundreds of
/// megabytes.
__attribute__((target("sha,sse4.1"))) void compress_sha_ni(std::array<uint32_t, 8>& state, const uint8_t* p) {
  const auto load = [](const void* q) { return _mm_loadu_si128(static_cast<const __m128i*>(q)); };
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(load(&state[0]), 0xB1), efgh = _mm_shuffle_epi32(load(&state[4]), 0x1B);
  const __m128i abef_in = _mm_alignr_epi8(cdab, efgh, 8), cdgh_in = _mm_blend_epi16(efgh, cdab, 0xF0);
  __m128i abef = abef_in, cdgh = cdgh_in, w[4];
  for (int i = 0; i < 16; i++) {
    __m128i& now = w[i % 4];  // held W[i-4] until here
    if (i < 4) {
      now = _mm_shuffle_epi8(load(p + 16 * i), swap);
    } else {
      const __m128i last = w[(i + 3) % 4], seven_back = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
      now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), seven_back), last);
    }
    const __m128i keyed = _mm_add_epi32(now, load(kRound + 4 * i));
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, keyed);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(keyed, 0x0E));
  }
  const __m128i feba = _mm_shuffle_epi32(_mm_add_epi32(abef, abef_in), 0x1B),
                dchg = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh_in), 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha_ni() {
  unsigned a, b = 0, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}
#else
constexpr auto compress_sha_ni = compress_portable;
bool has_sha_ni() { return false; }
#endif

}  // namespace

void Sha256::compress(const uint8_t* block) {
  static const bool fast = has_sha_ni();
  fast && !portable_ ? compress_sha_ni(state_, block) : compress_portable(state_, block);
}

Sha256& Sha256::update(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return *this;
  size_t held = length_ % 64;
  length_ += bytes.size();
  if (held != 0) {
    const size_t take = std::min(bytes.size(), 64 - held);
    std::memcpy(block_.data() + held, bytes.data(), take);
    bytes = bytes.subspan(take);
    held += take;
    if (held < 64) return *this;
    compress(block_.data());
  }
  for (; bytes.size() >= 64; bytes = bytes.subspan(64)) compress(bytes.data());
  if (!bytes.empty()) std::memcpy(block_.data(), bytes.data(), bytes.size());
  return *this;
}

Sha256Digest Sha256::finish() {
  const uint64_t bits = length_ * 8;
  uint8_t pad[72] = {0x80};
  const size_t zeros_end = (119 - length_ % 64) % 64 + 1;  // 0x80 and zeros up to 56 mod 64
  for (int i = 0; i < 8; i++) pad[zeros_end + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update({pad, zeros_end + 8});
  Sha256Digest out;
  for (int i = 0; i < 32; i++) out[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  std::string s;
  for (uint8_t b : bytes) {
    s += "0123456789abcdef"[b >> 4];
    s += "0123456789abcdef"[b & 15];
  }
  return s;
}

std::string sha256_hex(std::span<const uint8_t> bytes) { return to_hex(Sha256().update(bytes).finish()); }

}  // namespace tg
