/// \file Forward passes of BERT, and names of its weights.
#include "models/bert.h"

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

constexpr double kEps = 1e-12;

nn::LayerNorm norm(const BertOptions& o) { return nn::LayerNorm(o.hidden_size, {.eps = kEps}); }

std::string replaced(std::string name, std::string_view from, std::string_view to) {
  const size_t at = name.find(from);
  return at == std::string::npos ? name : name.replace(at, from.size(), to);
}

bool ends_with_any(std::string_view name, std::initializer_list<const char*> ends) {
  for (const char* end : ends)
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace

BertEmbeddings::BertEmbeddings(const BertOptions& o)
    : word_embeddings(o.vocab_size, o.hidden_size),
      position_embeddings(o.max_positions, o.hidden_size),
      token_type_embeddings(o.types, o.hidden_size),
      layer_norm(norm(o)),
      dropout(o.dropout) {}

Tensor BertEmbeddings::operator()(const Tensor& ids, const Tensor& types) const {
  const int64_t time = ids.shape(1), most = position_embeddings.weight.shape(0);
  TG_CHECK(ShapeError, time <= most, "[Bert] got ", time, " tokens, expected at most ", most);
  const Tensor positions = position_embeddings.weight[Slice(0, time)];
  return layer_norm(word_embeddings(ids) + positions + token_type_embeddings(types)).dropout(dropout);
}

void BertEmbeddings::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("word_embeddings, position_embeddings, token_type_embeddings, LayerNorm", word_embeddings,
                  position_embeddings, token_type_embeddings, layer_norm);
}

BertOutput::BertOutput(int64_t in, const BertOptions& o)
    : dense(in, o.hidden_size), layer_norm(norm(o)), dropout(o.dropout) {}

Tensor BertOutput::operator()(const Tensor& x, const Tensor& residual) const {
  return layer_norm(dense(x).dropout(dropout) + residual);
}

void BertOutput::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("dense, LayerNorm", dense, layer_norm);
}

BertLayer::BertLayer(const BertOptions& o)
    : query(o.hidden_size, o.hidden_size),
      key(o.hidden_size, o.hidden_size),
      value(o.hidden_size, o.hidden_size),
      attention_output(o.hidden_size, o),
      intermediate(o.hidden_size, o.intermediate_size),
      output(o.intermediate_size, o),
      heads(o.heads),
      attention_dropout(o.attention_dropout) {}

Tensor BertLayer::operator()(const Tensor& x, const Tensor& bias) const {
  auto split = [&](const Tensor& t) { return t.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const Tensor attended =
      split(query(x)).scaled_dot_product_attention(split(key(x)), split(value(x)), bias, attention_dropout);
  const Tensor y = attention_output(attended.transpose(1, 2).flatten(2), x);
  return output(intermediate(y).gelu(false), y);
}

void BertLayer::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("attention.self.query, attention.self.key, attention.self.value, attention.output", query, key, value,
                  attention_output);
  visitor.members("intermediate.dense, output", intermediate, output);
}

Bert::Bert(const BertOptions& o) : embeddings(o) {
  TG_CHECK(ValueError, o.heads > 0 && o.hidden_size % o.heads == 0, "[Bert] got ", o.heads, " heads for vectors of ",
           o.hidden_size, ", expected a divisor");
  for (int64_t i = 0; i < o.layers; i++) layers.emplace_back(o);
}

Tensor Bert::operator()(const BertInput& in) const {
  TG_CHECK(ShapeError, in.ids.ndim() == 2 && in.mask.shape() == in.ids.shape() && in.types.shape() == in.ids.shape(),
           "[Bert] got ids ", in.ids.shape(), ", mask ", in.mask.shape(), " and types ", in.types.shape(),
           ", expected (batch, time) for each");
  Tensor x = embeddings(in.ids, in.types);
  // Finite, so that a sequence of padding alone has finite values too.
  const Tensor bias = (1 - in.mask.cast(x.dtype()).unsqueeze(1).unsqueeze(2)) * -10000.0;
  for (const BertLayer& layer : layers) x = layer(x, bias);
  return x;
}

void Bert::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("embeddings, encoder.layer", embeddings, layers);
}

BertForQuestionAnswering::BertForQuestionAnswering(const BertOptions& o) : bert(o), qa_outputs(o.hidden_size, 2) {}

BertForQuestionAnswering::Span BertForQuestionAnswering::operator()(const BertInput& in) const {
  const Tensor logits = qa_outputs(bert(in));
  return {logits(Ellipsis, 0), logits(Ellipsis, 1)};
}

Tensor BertForQuestionAnswering::loss(const Span& logits, const Tensor& start, const Tensor& end) {
  return (logits.start.cross_entropy(start) + logits.end.cross_entropy(end)) / 2;
}

BertForPretraining::BertForPretraining(const BertOptions& o)
    : bert(o),
      transform(o.hidden_size, o.hidden_size),
      layer_norm(norm(o)),
      bias(Tensor::zeros({o.vocab_size}).is_param_()),
      pooler(o.hidden_size, o.hidden_size),
      seq_relationship(o.hidden_size, 2) {}

BertForPretraining::Logits BertForPretraining::operator()(const BertInput& in, const Tensor& masked) const {
  TG_CHECK(ShapeError, masked.ndim() == 2 && masked.shape(0) == in.ids.shape(0), "[BertForPretraining] got positions ",
           masked.shape(), " for ids ", in.ids.shape(), ", expected (batch, masked words)");
  const Tensor x = bert(in);
  const Tensor chosen = masked.one_hot(x.shape(1)).cast(x.dtype()).dot(x);
  const Tensor transformed = layer_norm(transform(chosen).gelu(false));
  return {transformed.linear(bert.embeddings.word_embeddings.weight.T(), bias),
          seq_relationship(pooler(x(Slice(), 0)).tanh())};
}

Tensor BertForPretraining::loss(const Logits& logits, const Tensor& words, const Tensor& weights,
                                const Tensor& next_sentence) {
  const Tensor each = logits.words.sparse_categorical_crossentropy(words, {.reduction = Reduction::kNone});
  const Tensor counted = weights.cast(each.dtype());
  // The small number is the reference's, for batches without a masked word.
  return (each * counted).sum() / (counted.sum() + 1e-5) + logits.next_sentence.cross_entropy(next_sentence);
}

void BertForPretraining::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("bert, cls.predictions.bias, cls.predictions.transform.dense, cls.predictions.transform.LayerNorm",
                  bert, bias, transform, layer_norm);
  visitor.members("cls.pooler.dense, cls.seq_relationship", pooler, seq_relationship);
}

nn::StateDict bert_for_pretraining_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    if (ends_with_any(name, {"position_ids", "predictions.decoder.weight", "predictions.decoder.bias",
                             "predictions.embedding_weight"}))
      continue;
    const std::string norms =
        replaced(replaced(name, "LayerNorm.gamma", "LayerNorm.weight"), "LayerNorm.beta", "LayerNorm.bias");
    out.emplace_back(replaced(norms, "bert.pooler.", "cls.pooler."), t);
  }
  return out;
}

nn::StateDict bert_for_question_answering_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : bert_for_pretraining_weights(file))
    if (!name.starts_with("cls.")) out.emplace_back(name, t);
  return out;
}

}  // namespace tg::models
