/// \file SHA-256 against the published examples, in pieces of every length around the block size.
#include "tinygrad/base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tg {
namespace {

std::span<const uint8_t> bytes(std::string_view s) { return {reinterpret_cast<const uint8_t*>(s.data()), s.size()}; }

TEST(Sha256, PublishedExamples) {
  EXPECT_EQ(sha256_hex(bytes("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(bytes(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesMakeTheWhole) {
  std::string text;
  for (int i = 0; i < 300; i++) text += static_cast<char>(i * 7 + 3);
  for (size_t size = 0; size < text.size(); size++) {
    const std::string part = text.substr(0, size), whole = sha256_hex(bytes(part));
    for (size_t piece : {1, 55, 63, 64, 65}) {
      Sha256 h;
      for (size_t at = 0; at < size; at += piece) h.update(bytes(std::string_view(part).substr(at, piece)));
      ASSERT_EQ(to_hex(h.finish()), whole) << size << " bytes in pieces of " << piece;
    }
    ASSERT_EQ(to_hex(Sha256(true).update(bytes(part)).finish()), whole) << size << " bytes without SHA instructions";
  }
}

}  // namespace
}  // namespace tg
