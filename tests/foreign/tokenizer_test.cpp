/// \file Tokenizers: what text becomes, special tokens, streams of bytes, and corrupt vocabularies, refused with the
/// reason. Equality with the reference libraries is python/tests/test_llm_tokenizer.py.
#include "tinygrad/llm/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "fuzz/targets.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/io/file.h"
#include "tinygrad/llm/tokenize/split_presets.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

std::vector<uint8_t> corpus(const std::string& target, const std::string& file) {
  return io::read_file(std::string(TG_TESTS_DIR) + "/fuzz/corpus/" + target + "/" + file, 1 << 20);
}
Tokenizer vocabulary(const std::string& file) {
  return Tokenizer::from_data(fuzz::tokenizer_data(corpus("vocabulary", file)), "model");
}
Tokenizer from_json(const std::string& file) { return Tokenizer::from_json(corpus("tokenizer_json", file), "model"); }

std::vector<std::string> texts(const Tokenizer& t, std::string_view text, EncodeOptions options = {}) {
  std::vector<std::string> out;
  for (const int32_t id : t.encode(text, options)) out.emplace_back(t.token_text(id));
  return out;
}

TEST(Tokenizer, ByteLevelBpe) {
  const Tokenizer t = vocabulary("good_bpe");
  EXPECT_THAT(texts(t, "hello w"), ElementsAre("hell", "o", "Ġw"));
  EXPECT_THAT(texts(t, "hellhe"), ElementsAre("hell", "he"));
  EXPECT_THAT(texts(t, "12"), ElementsAre("1", "2"));
  EXPECT_THAT(texts(t, ""), IsEmpty());
  EXPECT_THAT(texts(t, "z"), IsEmpty());  // no token for this byte and no unknown one
  EXPECT_EQ(t.decode(t.encode("hello world")), "hello world");
}

TEST(Tokenizer, WithoutMergesTheSmallestIdIsMergedFirst) {
  EXPECT_THAT(texts(vocabulary("good_bpe_without_merges"), "hello"), ElementsAre("hell", "o"));
  // he before ll: "hell" only comes out of both
  EXPECT_THAT(texts(vocabulary("good_bpe_without_merges"), "llhe w"), ElementsAre("ll", "he", "Ġw"));
}

TEST(Tokenizer, LongWordsMergeAsShortOnes) {
  const Tokenizer t = vocabulary("good_bpe");
  std::string word;
  std::vector<std::string> expected;
  for (int i = 0; i < 20'000; i++) {
    word += "hell";
    expected.emplace_back("hell");
  }
  EXPECT_EQ(texts(t, word), expected);
}

TEST(Tokenizer, SpecialTokensComeFromTextOnlyWhenAsked) {
  const Tokenizer t = vocabulary("good_bpe");
  EXPECT_THAT(texts(t, "a<|end|>b"), ElementsAre("a", "<", "e", "d", ">", "b"));  // no tokens for | and n
  EXPECT_THAT(texts(t, "a<|end|>b", {.parse_special = true}), ElementsAre("a", "<|end|>", "b"));
  EXPECT_THAT(texts(t, "aCLSb"), ElementsAre("a", "CLS", "b"));  // user-defined: always
  EXPECT_TRUE(t.is_special(*t.token_id("<|end|>")));
  EXPECT_TRUE(t.is_end(*t.token_id("<|end|>")));
  EXPECT_FALSE(t.is_special(*t.token_id("CLS")));
  const Tokenizer spm = vocabulary("good_spm");
  for (const int32_t id : spm.encode("<s></s><unk><0x41>", {.add_special = false})) EXPECT_FALSE(spm.is_special(id));
  EXPECT_THAT(texts(spm, "<s>", {.add_special = false, .parse_special = true}), ElementsAre("<s>"));
  EXPECT_THAT(texts(spm, "<0x41>", {.add_special = false})[0], "▁");  // not the byte token
}

TEST(Tokenizer, SentencePiece) {
  const Tokenizer t = vocabulary("good_spm");
  EXPECT_THAT(texts(t, "Hello"), ElementsAre("<s>", "▁Hel", "lo"));
  EXPECT_THAT(texts(t, "é", {.add_special = false}), ElementsAre("▁", "<0xC3>", "<0xA9>"));
  EXPECT_EQ(t.decode(t.encode("Hello é中")), "Hello é中");
  EXPECT_THAT(texts(vocabulary("good_unigram"), "  Hello   Hello  "), ElementsAre("▁Hello", "▁Hello", "</s>"));
  EXPECT_THAT(texts(vocabulary("good_spm_unused"), "Hello", {.add_special = false}), ElementsAre("▁Hel", "lo"));
  EXPECT_THAT(texts(vocabulary("good_spm_unused"), "el", {.add_special = false}), ElementsAre("▁", "e", "l"));
}

TEST(Tokenizer, WordPiece) {
  for (const Tokenizer& t : {vocabulary("good_bert"), from_json("good_bert")}) {
    EXPECT_THAT(texts(t, "HÉLLO world"),
                ElementsAre("[CLS]", t.token_text(3), t.token_text(4), t.token_text(5), "[SEP]"));
    EXPECT_THAT(texts(t, "hello\x01 [CLS] ?")[2], "[UNK]");
    EXPECT_EQ(t.decode(t.encode("Hello World")), "hello world");
  }
}

TEST(Tokenizer, TokenizerJson) {
  const Tokenizer t = from_json("good_bpe");
  EXPECT_THAT(texts(t, "hello w"), ElementsAre("<s>", "hell", "o", "Ġw"));
  EXPECT_THAT(texts(t, "a CLS b"), ElementsAre("<s>", "a", "CLS", "b"));  // takes the spaces beside it
  EXPECT_THAT(texts(t, "aCLSb"), ElementsAre("<s>", "a", "b"));           // only as a word
  const Tokenizer u = from_json("good_unigram");
  EXPECT_THAT(texts(u, "Hello  l"), ElementsAre("▁Hello", "▁", "l"));
  EXPECT_EQ(u.decode(u.encode("Hello l")), "Hello l");
  EXPECT_THAT(texts(from_json("good_word_level"), "Hello you"), ElementsAre("Hello", "[UNK]"));
}

/// Added tokens that are found in normalized text are decoded as such: so are they in tokenizers from version 0.23 on.
TEST(Tokenizer, NormalizedAddedTokensAreDecodedNormalized) {
  const auto with = [](const char* normalized) {
    const std::string json =
        str(R"({"added_tokens": [{"id": 3, "content": "NOR", "special": false, "normalized": )", normalized,
            R"(}], "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
          "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "unk_token": "<unk>"}})");
    return Tokenizer::from_json({reinterpret_cast<const uint8_t*>(json.data()), json.size()}, "model");
  };
  const Tokenizer t = with("true");
  EXPECT_THAT(t.encode("a NOR b"), ElementsAre(1, 3, 2));
  EXPECT_EQ(t.decode(t.encode("a NOR b"), false), "a nor b");
  EXPECT_EQ(t.token_bytes(3), " nor");
  EXPECT_EQ(t.token_text(3), "NOR");
  EXPECT_EQ(with("false").decode(std::vector<int32_t>{1, 3, 2}, false), "a NOR b");
}

TEST(Tokenizer, TextsThatGrowWithoutEndAreRefused) {
  const std::vector<uint8_t> bytes = corpus("tokenizer_json", "good_bpe");
  const auto with = [&](const char* step, const nlohmann::json& value) {
    nlohmann::json j = nlohmann::json::parse(bytes.begin(), bytes.end());
    j[step] = value;
    const std::string text = j.dump();
    return Tokenizer::from_json({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "model");
  };
  const nlohmann::json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const std::vector<nlohmann::json> steps(40, twice);  // each doubles what the one before made
  const nlohmann::json long_step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'b')}};
  const auto too_long = ThrowsMessage<ValueError>(HasSubstr("[tokenizer] got a text that grows too long: more than"));
  const Tokenizer normal = with("normalizer", {{"type", "Sequence"}, {"normalizers", steps}});
  EXPECT_THAT([&] { normal.encode("a"); }, too_long);
  EXPECT_EQ(normal.encode("b").size(), 2u);
  const Tokenizer long_text = with("normalizer", long_step), long_reply = with("decoder", long_step);
  EXPECT_THAT([&] { long_text.encode("aaaaaaaaa"); }, too_long);
  const Tokenizer decoder = with("decoder", {{"type", "Sequence"}, {"decoders", steps}});
  const int32_t a = with("normalizer", nullptr).encode("a").back();
  EXPECT_THAT([&] { decoder.decode(std::vector<int32_t>{a}, false); }, too_long);
  EXPECT_THAT([&] { decoder.token_bytes(a); }, too_long);
  EXPECT_THAT([&] { long_reply.decode(std::vector<int32_t>(30, a), false); }, too_long);
}

TEST(Tokenizer, BytesThatAreNotUtf8CountAsReplacements) {
  EXPECT_EQ(utf8_lossy("a\xff"
                       "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(utf8_lossy("\xe2\x82"), "\xef\xbf\xbd");                              // cut off: one
  EXPECT_EQ(utf8_lossy("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate: three
  EXPECT_EQ(utf8_lossy("\xf0\x9f\x98x"), "\xef\xbf\xbdx");
  EXPECT_EQ(utf8_lossy("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");
  const Tokenizer t = vocabulary("good_spm");
  EXPECT_EQ(t.encode("a\xf0\x9f\x98z"), t.encode("a\xef\xbf\xbdz"));
}

TEST(Tokenizer, StreamsGiveWholeCharacters) {
  const Tokenizer t = vocabulary("good_spm");
  const std::string text = "Hello 😀 é";
  StreamDecoder stream = t.stream_decoder();
  std::string all;
  for (const int32_t id : t.encode(text)) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(is_utf8(part));
    all += part;
  }
  EXPECT_EQ(all + stream.finish(), text);
  stream.push(*t.token_id("<0xF0>"));
  EXPECT_EQ(stream.push(*t.token_id("<0x9F>")), "");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(stream.push(*t.token_id("<0xFF>")), "\xef\xbf\xbd");
}

TEST(Tokenizer, IdsOutsideOfTheVocabulary) {
  const Tokenizer t = vocabulary("good_bpe");
  EXPECT_THROW(t.decode(std::vector<int32_t>{-1}), IndexError);
  EXPECT_THROW(t.token_text(t.vocab_size()), IndexError);
  EXPECT_THROW(t.stream_decoder().push(1 << 30), IndexError);
  EXPECT_FALSE(t.is_end(-5));
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer t = vocabulary("good_bpe");
  const std::vector<int32_t> expected = t.encode("hello world hell he ll 1234");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int k = 0; k < 4; k++)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 500; i++) wrong[k] += t.encode("hello world hell he ll 1234") != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST(Tokenizer, AllPresetsCompile) {
  for (const std::string_view name : split_preset_names())
    EXPECT_FALSE(split_preset(name, "model").steps.empty()) << name;
}

TEST(Tokenizer, LongRunsAreLinear) {
  for (const std::string_view pre : {"llama-bpe", "qwen2", "gpt-2", "tekken", "gpt-4o", "deepseek-v3", "kimi-k2"}) {
    TokenizerData d = fuzz::tokenizer_data(corpus("vocabulary", "good_bpe"));
    d.pre = pre;
    const Tokenizer t = Tokenizer::from_data(d, "model");
    for (const char* unit : {" ", "a", "A", "\n", "!", "1", "é", " \n", "a'", "中"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      t.encode(text);
    }
  }
}

TEST(Tokenizer, ReasonsOfRefusal) {
  const auto refused = [](const std::string& file, const std::string& why) {
    EXPECT_THAT([&] { vocabulary(file); }, ThrowsMessage<FormatError>(HasSubstr("model: tokenizer.ggml." + why)))
        << file;
  };
  refused("bad_empty", "tokens: got no tokens");
  refused("bad_byte_minus", "tokens: got the byte token \"<0x-1>\", expected <0x00> to <0xFF>");
  refused("bad_byte_long", "tokens: got the byte token \"<0x100>\"");
  refused("bad_byte_twice", "tokens: got \"<0x41>\" twice");
  refused("bad_merge_unknown", "merges: got merge 4 \"q q\" of or to a token that is unknown");
  refused("bad_merge_one", "merges: got merge 4 \"abc\", expected two tokens");
  refused("bad_duplicate", "tokens: got \"he\" twice");
  refused("bad_bos", "bos_token_id: got 99999");
  refused("bad_negative_id", "bos_token_id: got -7");
  refused("bad_scores", "scores: got ");
  refused("bad_type", "token_type: got 9");
  refused("bad_utf8", "tokens: got token ");
  EXPECT_THAT([] { vocabulary("bad_pre"); },
              ThrowsMessage<FormatError>(HasSubstr("tokenizer.ggml.pre \"qwen-two\", expected \"qwen2\"")));
  EXPECT_THAT([] { vocabulary("bad_charsmap_size"); }, ThrowsMessage<FormatError>(HasSubstr("precompiled_charsmap")));
}

TEST(Tokenizer, ReasonsOfRefusalOfJson) {
  const auto refused = [](const std::string& file, const std::string& why) {
    EXPECT_THAT([&] { from_json(file); }, ThrowsMessage<FormatError>(HasSubstr("model: " + why))) << file;
  };
  refused("bad_normalizer", "normalizer: got Shout, which is not supported");
  refused("bad_pre_tokenizer", "pre_tokenizer: got UnicodeScripts, which is not supported");
  refused("bad_decoder", "decoder: got CTC, which is not supported");
  refused("bad_deep", "got JSON that is nested too deeply");
  refused("bad_merge", "merges: got merge 0 \"h z\" of or to an unknown token");
  refused("bad_id_twice", "vocab: got the id 0 of two tokens");
  refused("bad_id_huge", "vocab: got the id 1099511627776");
  refused("bad_regex", "got the pattern ((");
  refused("bad_unk_id", "unk_id: got 4");
}

}  // namespace
}  // namespace tg::llm
