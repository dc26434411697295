/// \file The chat templates of families of models, and which template a model is asked with.
#include "tinygrad/llm/model_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "helpers/gguf_bytes.h"
#include "temp_dir.h"
#include "tinygrad/io/gguf.h"

namespace tg::llm {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;
using ::testing::ThrowsMessage;

/// Returns the metadata of a file with this template; empty: with none.
class File {
 public:
  explicit File(const std::string& source = {}) {
    test::GgufBytes g;
    if (!source.empty()) g.string("tokenizer.chat_template", source);
    bytes_ = g.build();
    gguf_ = io::parse_gguf({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()}, "model");
  }
  const io::GgufMetadata& metadata() const { return gguf_.metadata; }

 private:
  std::string bytes_;
  io::Gguf gguf_;
};

Value message(const char* role, const char* content) { return Value::dict({{"role", role}, {"content", content}}); }

std::string rendered(const ChatTemplate& t, std::vector<Value> messages) {
  ChatInput in;
  in.messages = Value::list(std::move(messages));
  in.bos_token = "<s>";
  in.eos_token = "</s>";
  return t.render(in).text;
}

TEST(ModelTemplate, KnownOnesWriteTheirForm) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"chatml",
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
       "<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n"},
      {"gemma",
       "<s><start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n<start_of_turn>user\n"
       "C<end_of_turn>\n<start_of_turn>model\n"},
      {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B </s><s>[INST] C [/INST]"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nA"
       "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>user<|end_header_id|>"
       "\n\nC<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"mistral", "<s>[INST] S\n\nA [/INST] B</s>[INST] C [/INST]"},
      {"phi3",
       "<|system|>\nS<|end|>\n<|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n<|user|>\nC<|end|>\n<|assistant|>\n"},
      {"vicuna", "S\n\nUSER: A\nASSISTANT: B</s>\nUSER: C\nASSISTANT:"},
      {"zephyr", "<|system|>\nS</s>\n<|user|>\nA</s>\n<|assistant|>\nB</s>\n<|user|>\nC</s>\n<|assistant|>\n"},
  };
  ASSERT_EQ(known_chat_templates().size(), expected.size());
  for (const auto& [name, text] : expected) {
    const ModelTemplate t = find_chat_template(File().metadata(), name);
    ASSERT_TRUE(t.chat) << name;
    EXPECT_EQ(t.problem, "");
    EXPECT_EQ(rendered(*t.chat,
                       {message("system", "S"), message("user", "A"), message("assistant", "B"), message("user", "C")}),
              text)
        << name;
  }
}

/// Special tokens are looked for where the template wrote: marks of roles are the template's, not the message's.
TEST(ModelTemplate, MarksOfRolesAreTheTemplates) {
  for (const std::string name : {"phi3", "zephyr"}) {
    ChatInput in;
    in.messages = Value::list({message("user", "A")});
    const RenderedChat chat = find_chat_template(File().metadata(), name).chat->render(in);
    ASSERT_FALSE(chat.from_template.empty());
    EXPECT_GE(chat.from_template[0].end, std::string_view("<|user|>").size()) << name;
  }
}

TEST(ModelTemplate, FilesOwnTemplates) {
  const ModelTemplate own = find_chat_template(File("{{ messages[0].content }}!").metadata());
  ASSERT_TRUE(own.chat);
  EXPECT_EQ(rendered(*own.chat, {message("user", "A")}), "A!");
  const ModelTemplate none = find_chat_template(File().metadata());
  EXPECT_FALSE(none.chat);
  EXPECT_EQ(none.problem, "the model has no chat template");
  const ModelTemplate broken = find_chat_template(File("{% for m in messages %}{% endfxr %}").metadata());
  EXPECT_FALSE(broken.chat);
  EXPECT_THAT(broken.problem, HasSubstr("the model's chat template is broken: [chat_template] chat template:1: "));
  EXPECT_TRUE(find_chat_template(File("{% broken").metadata(), "chatml").chat) << "another one stands in its place";
}

TEST(ModelTemplate, FilesThatUsersGive) {
  const TempDir dir;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(dir / name, std::ios::binary) << text;
    return std::string(dir / name);
  };
  const std::string good = write("good.jinja", "<{{ messages[0].content }}>\n");
  EXPECT_EQ(rendered(*find_chat_template(File().metadata(), good).chat, {message("user", "A")}), "<A>");
  const std::string bad = write("bad.jinja", "\n{% if %}");
  EXPECT_THAT([&] { find_chat_template(File().metadata(), bad); },
              ThrowsMessage<TemplateError>(HasSubstr("bad.jinja:2: ")));
  EXPECT_THAT([] { find_chat_template(File().metadata(), "llama9"); },
              ThrowsMessage<ValueError>(HasSubstr("[chat_template] got 'llama9', expected a file or one of chatml, ")));
}

}  // namespace
}  // namespace tg::llm
