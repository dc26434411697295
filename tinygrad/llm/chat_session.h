/// \file ChatSession: a conversation with a model, turn by turn.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/llm/chat_prompt.h"
#include "tinygrad/llm/generate.h"
#include "tinygrad/llm/language_model.h"
#include "tinygrad/llm/model_template.h"
#include "tinygrad/llm/tokenizer.h"

namespace tg::llm {

struct ChatMessage {
  std::string role, content;
};

struct ReplyOptions {
  int64_t max_tokens = -1;
  SamplingOptions sampling = {};
  std::vector<std::string> stop = {};
  std::function<bool(const std::string& text)> on_text = {};  ///< called as text becomes certain; false cancels
  const std::atomic<bool>* cancel = nullptr;
};

/// A model, its tokenizer and one conversation, which uses sequence 0. Turns that were computed are not computed again.
/// When the conversation outgrows the context, its oldest turns are left out (`forgotten`), the system message never.
class ChatSession {
 public:
  /// Reads model, tokenizer and chat template of a GGUF file, or takes the template that `chat_template` names
  /// (find_chat_template). A file without a template, or with a broken one, can complete texts only.
  static ChatSession open(const std::filesystem::path& file, const ModelOptions& options = {},
                          const std::string& chat_template = {});
  ChatSession(std::shared_ptr<LanguageModel> model, Tokenizer tokenizer, ModelTemplate chat_template);

  void set_system(std::string text);
  const std::vector<ChatMessage>& messages() const { return messages_; }
  /// Forgets the conversation, but for the system message.
  void clear();
  /// Adds what the user says and the reply to it, as far as it came before it was cancelled (neither when nothing was
  /// said). ValueError for a model without a template, and for a message that
  /// alone is longer than the context; the conversation stays as it was then.
  Generated reply(const std::string& user, const ReplyOptions& o = {});
  /// Continues a text, without template and conversation.
  Generated complete(const std::string& text, const ReplyOptions& o = {});

  bool can_chat() const { return template_.chat != nullptr; }
  const std::string& chat_problem() const { return template_.problem; }  ///< why it cannot; empty when it can
  int64_t forgotten() const { return forgotten_; }  ///< messages that were left out of the last prompt
  LanguageModel& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::vector<int32_t> render(size_t first) const;
  std::vector<int32_t> fitting_prompt();
  Generated run(const std::vector<int32_t>& prompt, const ReplyOptions& o);

  std::shared_ptr<LanguageModel> model_;
  Tokenizer tokenizer_;
  ChatEncoder encoder_;
  ModelTemplate template_;
  std::string system_;
  std::vector<ChatMessage> messages_;  ///< without the system message
  int64_t forgotten_ = 0;
};

}  // namespace tg::llm
