/// \file BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
/// arXiv 1810.04805) to be trained, with the heads of its pretraining and of question answering. Names of weights are
/// those of the published PyTorch files. (tinygrad/llm/bert.h embeds texts with files of such encoders.)
#pragma once
#include <cstdint>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Sizes of BERT; those of BERT-large without changes.
struct BertOptions {
  int64_t vocab_size = 30522;
  int64_t hidden_size = 1024;
  int64_t layers = 24;
  int64_t heads = 16;                ///< divides hidden_size
  int64_t intermediate_size = 4096;  ///< of the feed-forward layers
  int64_t max_positions = 512;       ///< tokens a sequence may have
  int64_t types = 2;                 ///< kinds of segments
  double dropout = 0.1;              ///< of embeddings and of what layers add, in training mode
  double attention_dropout = 0.1;    ///< of attention weights, in training mode
};

/// What an encoder reads. All are (batch, time) of integers.
struct BertInput {
  Tensor ids;
  Tensor mask;  ///< 1 for tokens, 0 for padding
  Tensor types;
};

/// Normalized sum of the vectors of words, positions and segments: (batch, time) -> (batch, time, hidden).
struct BertEmbeddings {
  nn::Embedding word_embeddings, position_embeddings, token_type_embeddings;
  nn::LayerNorm layer_norm;
  double dropout;
  explicit BertEmbeddings(const BertOptions& o);
  /// Throws ShapeError for more tokens than there are positions.
  Tensor operator()(const Tensor& ids, const Tensor& types) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// The end of both halves of a layer: a projection, dropout, and the normalized sum with what went in.
struct BertOutput {
  nn::Linear dense;
  nn::LayerNorm layer_norm;
  double dropout;
  BertOutput(int64_t in, const BertOptions& o);
  Tensor operator()(const Tensor& x, const Tensor& residual) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// A layer of the encoder: attention of every token to all, then a feed-forward network.
struct BertLayer {
  nn::Linear query, key, value;
  BertOutput attention_output;
  nn::Linear intermediate;
  BertOutput output;
  int64_t heads;
  double attention_dropout;
  explicit BertLayer(const BertOptions& o);
  /// `bias` is added to the scores, (batch, 1, 1, time).
  Tensor operator()(const Tensor& x, const Tensor& bias) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// The encoder: tokens -> their vectors (batch, time, hidden), of the weights' type.
struct Bert {
  BertEmbeddings embeddings;
  std::vector<BertLayer> layers;
  /// Makes the network with random weights. ValueError unless heads divide the vectors.
  explicit Bert(const BertOptions& o = {});
  /// Throws ShapeError for inputs of different shapes and for more tokens than there are positions.
  Tensor operator()(const BertInput& in) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Finds the part of a text that answers a question.
struct BertForQuestionAnswering {
  Bert bert;
  nn::Linear qa_outputs;
  /// Makes the network with random weights. ValueError as Bert.
  explicit BertForQuestionAnswering(const BertOptions& o = {});
  /// Logits (batch, time) that a token is the first of the answer, and that it is the last.
  struct Span {
    Tensor start, end;
  };
  Span operator()(const BertInput& in) const;
  /// Returns the mean of both cross entropies; `start` and `end` (batch,) are the positions of the answers.
  static Tensor loss(const Span& logits, const Tensor& start, const Tensor& end);
  TG_STATE(bert, qa_outputs)
};

/// Guesses masked words, and whether the second segment follows the first.
struct BertForPretraining {
  Bert bert;
  nn::Linear transform;      ///< of the vectors of masked words, before their products with all words' embeddings
  nn::LayerNorm layer_norm;  ///< behind it
  Tensor bias;               ///< (vocabulary)
  nn::Linear pooler;         ///< of the first token's vector
  nn::Linear seq_relationship;
  /// Makes the network with random weights. ValueError as Bert.
  explicit BertForPretraining(const BertOptions& o = {});
  struct Logits {
    Tensor words;          ///< (batch, masked words, vocabulary)
    Tensor next_sentence;  ///< (batch, 2): it follows, it does not
  };
  /// `masked` are the positions of masked words, (batch, masked words).
  Logits operator()(const BertInput& in, const Tensor& masked) const;
  /// Returns the mean cross entropy of masked words, each counted `weights` times (0 for padding), plus that of the
  /// next sentence. `words` and `weights` are (batch, masked words), `next_sentence` (batch,): 0 where it follows.
  static Tensor loss(const Logits& logits, const Tensor& words, const Tensor& weights, const Tensor& next_sentence);
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Return the weights of published PyTorch files under the names above: norms may have "gamma" and "beta", words'
/// embeddings may stand twice, and for question answering the pooler is left out.
nn::StateDict bert_for_question_answering_weights(const nn::StateDict& file);
nn::StateDict bert_for_pretraining_weights(const nn::StateDict& file);

}  // namespace tg::models
