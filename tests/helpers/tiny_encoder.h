/// \file A folder with a sentence encoder of one layer and six tokens.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tinygrad/nn/state_file.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::test {

inline constexpr const char* kBertVocabulary =
    R"({"version":"1.0","added_tokens":[{"id":0,"content":"[PAD]","special":true},
  {"id":1,"content":"[UNK]","special":true},{"id":2,"content":"[CLS]","special":true},
  {"id":3,"content":"[SEP]","special":true}],"normalizer":{"type":"BertNormalizer","lowercase":true},
  "pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":{"type":"BertProcessing","sep":["[SEP]",3],
  "cls":["[CLS]",2]},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
  "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
  "vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"a":4,"##b":5}}})";
inline constexpr const char* kBertConfig = R"({"model_type":"bert","vocab_size":6,"hidden_size":8,"num_hidden_layers":1,
  "num_attention_heads":2,"intermediate_size":12,"max_position_embeddings":10,"type_vocab_size":2,
  "layer_norm_eps":1e-12,"hidden_act":"gelu","position_embedding_type":"absolute"})";

/// Writes the files of an encoder, as Hugging Face has them. Its layer adds nothing: the vector of a word is its row
/// of `words` (6, 8), normalized and multiplied by `scale`.
inline void write_tiny_bert(const std::filesystem::path& folder, const Tensor& words = Tensor::zeros(6, 8),
                            double scale = 0) {
  const auto write = [](const std::filesystem::path& path, std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
  };
  std::filesystem::create_directories(folder / "1_Pooling");
  write(folder / "config.json", kBertConfig);
  write(folder / "tokenizer.json", kBertVocabulary);
  write(folder / "1_Pooling" / "config.json", R"({"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true})");
  write(folder / "sentence_bert_config.json", R"({"max_seq_length": 8})");
  nn::StateDict all;
  const auto affine = [&](const std::string& name, int64_t out, int64_t in) {
    all.emplace_back(name + ".weight", in == 0 ? Tensor::ones(out) * scale : Tensor::zeros(out, in));
    if (in != 0 || name.find("Norm") != std::string::npos) all.emplace_back(name + ".bias", Tensor::zeros(out));
  };
  const std::string e = "embeddings.", l = "encoder.layer.0.";
  all.emplace_back(e + "word_embeddings.weight", words);
  all.emplace_back(e + "position_embeddings.weight", Tensor::zeros(10, 8));
  all.emplace_back(e + "token_type_embeddings.weight", Tensor::zeros(2, 8));
  affine(e + "LayerNorm", 8, 0);
  for (const char* name : {"query", "key", "value"}) affine(l + "attention.self." + name, 8, 8);
  affine(l + "attention.output.dense", 8, 8);
  affine(l + "attention.output.LayerNorm", 8, 0);
  affine(l + "intermediate.dense", 12, 8);
  affine(l + "output.dense", 8, 12);
  affine(l + "output.LayerNorm", 8, 0);
  nn::safe_save(all, folder / "model.safetensors");
}

}  // namespace tg::test
