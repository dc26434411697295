/// \file Turns of a conversation.
#include "tinygrad/llm/chat_session.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"

namespace tg::llm {
namespace {

constexpr int64_t kRoomForReply = 256;  // tokens a prompt leaves for the reply, unless the context is short

std::string token_or_nothing(const Tokenizer& t, std::optional<int32_t> id) {
  return id ? std::string(t.token_text(*id)) : std::string();
}

}  // namespace

ChatSession ChatSession::open(const std::filesystem::path& file, const ModelOptions& options,
                              const std::string& chat_template) {
  const io::GgufFile gguf = io::GgufFile::open(file);
  const io::GgufMetadata& m = gguf.metadata();
  ModelTemplate found = find_chat_template(m, chat_template);
  return ChatSession(LanguageModel::load(gguf, options), Tokenizer::from_gguf(m), std::move(found));
}

ChatSession::ChatSession(std::shared_ptr<LanguageModel> model, Tokenizer tokenizer, ModelTemplate chat_template)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      encoder_(tokenizer_),
      template_(std::move(chat_template)) {}

void ChatSession::set_system(std::string text) { system_ = std::move(text); }

void ChatSession::clear() {
  messages_.clear();
  forgotten_ = 0;
}

/// Returns the prompt of the messages from number `first` on.
std::vector<int32_t> ChatSession::render(size_t first) const {
  std::vector<Value> messages;
  const auto add = [&](const std::string& role, const std::string& content) {
    messages.push_back(Value::dict({{"role", role}, {"content", content}}));
  };
  if (!system_.empty()) add("system", system_);
  for (size_t i = first; i < messages_.size(); i++) add(messages_[i].role, messages_[i].content);
  ChatInput in;
  in.messages = Value::list(std::move(messages));
  in.bos_token = token_or_nothing(tokenizer_, tokenizer_.bos());
  in.eos_token = token_or_nothing(tokenizer_, tokenizer_.eos());
  return encoder_.encode(template_.chat->render(in));
}

/// Returns the prompt of as many of the last turns as fit.
std::vector<int32_t> ChatSession::fitting_prompt() {
  const int64_t context = model_->max_context(), most = context - std::min(kRoomForReply, context / 4);
  for (size_t first = 0;; first += 2) {
    std::vector<int32_t> prompt = render(first);
    forgotten_ = static_cast<int64_t>(first);
    if (static_cast<int64_t>(prompt.size()) <= most) return prompt;
    TG_CHECK(ValueError, first + 2 < messages_.size(), "[chat] the message and the system message take ", prompt.size(),
             " tokens, expected at most ", most, " of a context of ", context);
  }
}

Generated ChatSession::run(const std::vector<int32_t>& prompt, const ReplyOptions& o) {
  // What the sequence holds already is a prefix; the last token is computed again, for its logits.
  const std::span<const int32_t> held = model_->tokens(0);
  const size_t most = std::min(held.size(), prompt.size() - 1);
  const auto same = static_cast<int64_t>(
      std::mismatch(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(most), prompt.begin()).first -
      held.begin());
  const int64_t start = model_->rewindable(0, same);
  model_->rewind(0, start);
  StreamDecoder decoder = tokenizer_.stream_decoder();
  GenerateOptions g;
  g.max_tokens = o.max_tokens;
  g.sampling = o.sampling;
  g.stop_tokens = tokenizer_.end_tokens();
  g.stop = o.stop;
  g.cancel = o.cancel;
  if (o.on_text) g.on_token = [&](int32_t, const std::string& text) { return text.empty() || o.on_text(text); };
  Generated out = generate(
      *model_, 0, std::span(prompt).subspan(static_cast<size_t>(start)),
      [&](int32_t token) { return decoder.push(token); }, g);
  if (const std::string rest = decoder.finish(); !rest.empty() && out.reason != FinishReason::kStop) {
    out.text += rest;
    if (o.on_text) o.on_text(rest);
  }
  return out;
}

Generated ChatSession::reply(const std::string& user, const ReplyOptions& o) {
  TG_CHECK(ValueError, can_chat(), "[chat] ", chat_problem(), ": it can complete texts only");
  messages_.push_back({"user", user});
  try {
    Generated out = run(fitting_prompt(), o);
    if (out.tokens.empty() && out.reason == FinishReason::kCancelled) messages_.pop_back();
    else messages_.push_back({"assistant", out.text});
    return out;
  } catch (...) {
    messages_.pop_back();
    throw;
  }
}

Generated ChatSession::complete(const std::string& text, const ReplyOptions& o) {
  const std::vector<int32_t> prompt = tokenizer_.encode(text);
  TG_CHECK(ValueError, !prompt.empty(), "[chat] got an empty text, expected one to continue");
  return run(prompt, o);
}

}  // namespace tg::llm
