#include "tinygrad/llm/load_served.h"

#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/llm/bert.h"

namespace tg::llm {
namespace {

constexpr int64_t kPoolLast = 3, kPoolKinds = 4;  // values of `pooling_type`: none, mean, first, last, rank

ServedModel load_encoder(const std::filesystem::path& path, const std::string& chat_template) {
  TG_CHECK(ValueError, chat_template.empty(), "[serve] ", path.string(), " is an encoder: it takes no chat template");
  const BertModel bert = BertModel::open(path);
  ServedModel served;
  served.tokenizer = bert.tokenizer();
  served.embedding_context = bert.config().max_positions;
  served.embed = [bert](std::span<const std::string> texts) { return bert.embed(texts); };
  return served;
}

}  // namespace

ServedModel load_served_model(const std::filesystem::path& file, const ModelOptions& options,
                              const std::string& chat_template) {
  if (std::filesystem::is_directory(file)) {
    ServedModel served = load_encoder(file, chat_template);
    served.id = std::filesystem::weakly_canonical(file).filename().string();
    return served;
  }
  const io::GgufFile gguf = io::GgufFile::open(file);
  const io::GgufMetadata& metadata = gguf.metadata();
  if (metadata.string_or("general.architecture", "") == "bert") {
    TG_CHECK(ValueError, !options.leader, "[serve] ", file.string(),
             " is an encoder, which one process computes: start it without a launcher");
    ServedModel served = load_encoder(file, chat_template);
    served.id = file.stem().string();
    return served;
  }
  ServedModel served;
  served.id = file.stem().string();
  served.tokenizer = Tokenizer::from_gguf(metadata);
  served.chat_template = find_chat_template(metadata, chat_template);
  served.model = LanguageModel::load(gguf, options);
  const std::string pooling = served.model->config().architecture + ".pooling_type";
  served.embed_last_token = metadata.integer_or(pooling, 0, 0, kPoolKinds) == kPoolLast;
  return served;
}

}  // namespace tg::llm
