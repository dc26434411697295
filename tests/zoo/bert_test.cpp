/// \file BERT against transformers.
#include "models/bert.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

constexpr models::BertOptions kSmall{
    .vocab_size = 60, .hidden_size = 32, .layers = 2, .heads = 4, .intermediate_size = 64, .max_positions = 16};

models::BertInput small_input() {
  const Tensor lengths = Tensor({11, 7, 4}).unsqueeze(1);
  return {zoo::numbers("ids", 60, {3, 11}), (Tensor::arange(11) < lengths).cast(dtypes::int32),
          zoo::numbers("types", 2, {3, 11})};
}

TEST(Bert, Pretraining) {
  const models::BertForPretraining model(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  zoo::expect_recorded("bert_pretraining", "hidden", model.bert(small_input()));
  const auto logits = model(small_input(), zoo::numbers("masked", 4, {3, 3}));
  zoo::expect_recorded("bert_pretraining", "words", logits.words);
  zoo::expect_recorded("bert_pretraining", "next_sentence", logits.next_sentence);
  const Tensor counts({{1, 1, 0}, {1, 0, 0}, {1, 1, 1}});
  const Tensor loss = model.loss(logits, zoo::numbers("words", 60, {3, 3}), counts, Tensor({0, 1, 1}));
  zoo::expect_recorded("bert_pretraining", "loss", loss.reshape(1));
  zoo::expect_gradients("bert_pretraining", weights,
                        Tensor::cat({logits.words.flatten(), logits.next_sentence.flatten()}));
}

TEST(Bert, QuestionAnswering) {
  const models::BertForQuestionAnswering model(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const auto logits = model(small_input());
  zoo::expect_recorded("bert_question_answering", "start", logits.start);
  zoo::expect_recorded("bert_question_answering", "end", logits.end);
  const Tensor loss = model.loss(logits, Tensor({3, 0, 1}), Tensor({9, 6, 1}));
  zoo::expect_recorded("bert_question_answering", "loss", loss.reshape(1));
  zoo::expect_gradients("bert_question_answering", weights, Tensor::cat({logits.start, logits.end}));
}

TEST(Bert, NamesOfTheLargeModel) {
  zoo::expect_names("bert_pretraining", nn::get_state_dict(models::BertForPretraining()));
  nn::StateDict question = nn::get_state_dict(models::BertForQuestionAnswering());
  zoo::expect_names("bert_question_answering", question);
}

TEST(Bert, WeightsOfFiles) {
  const models::BertForPretraining model(kSmall);
  nn::StateDict file;
  for (const auto& [name, t] : nn::get_state_dict(model)) {
    std::string old = name;
    if (const size_t at = old.find("LayerNorm.weight"); at != std::string::npos) old.replace(at, 16, "LayerNorm.gamma");
    if (const size_t at = old.find("LayerNorm.bias"); at != std::string::npos) old.replace(at, 14, "LayerNorm.beta");
    if (old.starts_with("cls.pooler.")) old.replace(0, 4, "bert.");
    file.emplace_back(old, t.full_like(2));
  }
  file.emplace_back("bert.embeddings.position_ids", Tensor::arange(16));
  file.emplace_back("cls.predictions.decoder.weight", Tensor::zeros({60, 32}));
  nn::load_state_dict(model, models::bert_for_pretraining_weights(file));
  EXPECT_EQ(model.pooler.weight.mean().item<float>(), 2);
  const models::BertForQuestionAnswering question(kSmall);
  file.emplace_back("qa_outputs.weight", Tensor::zeros({2, 32}));
  file.emplace_back("qa_outputs.bias", Tensor::zeros({2}));
  nn::load_state_dict(question, models::bert_for_question_answering_weights(file));
  EXPECT_EQ(question.bert.layers[1].output.layer_norm.weight.mean().item<float>(), 2);
}

TEST(Bert, TrainingDropsElements) {
  const models::Bert model(kSmall);
  const nn::Training mode;
  const Tensor once = model(small_input()).realize(), again = model(small_input()).realize();
  EXPECT_TRUE(once.isfinite().all().item<bool>());
  EXPECT_GT((once - again).abs().max().item<float>(), 0.01f);
}

TEST(Bert, PaddingAloneIsFinite) {
  const models::Bert model(kSmall);
  const Tensor ids = Tensor::zeros({1, 4}, dtypes::int32);
  EXPECT_TRUE(model({ids, ids, ids}).isfinite().all().item<bool>());
}

TEST(Bert, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::Bert({.hidden_size = 30, .heads = 4}); }),
            "[Bert] got 4 heads for vectors of 30, expected a divisor");
  const models::BertForPretraining model(kSmall);
  const Tensor ids = Tensor::zeros({1, 17}, dtypes::int32), few = Tensor::zeros({1, 4}, dtypes::int32);
  EXPECT_EQ(test::error_text<ShapeError>([&] { model.bert({ids, ids, ids}); }),
            "[Bert] got 17 tokens, expected at most 16");
  EXPECT_EQ(test::error_text<ShapeError>([&] { model.bert({ids, few, ids}); }),
            "[Bert] got ids (1, 17), mask (1, 4) and types (1, 17), expected (batch, time) for each");
  EXPECT_EQ(test::error_text<ShapeError>([&] { model({few, few, few}, Tensor({1, 2})); }),
            "[BertForPretraining] got positions (2,) for ids (1, 4), expected (batch, masked words)");
}

}  // namespace
}  // namespace tg
