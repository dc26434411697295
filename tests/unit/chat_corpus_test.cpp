/// \file Chat templates of the model families in tests/chat: every one renders every conversation as jinja2 does.
/// tests/chat/record.py makes what is expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tinygrad/io/file.h"
#include "tinygrad/llm/chat_template.h"

namespace tg::llm {
namespace {

namespace fs = std::filesystem;

/// What tests/chat/record.py says the clock shows.
constexpr int64_t kNow = 1717243200;

std::string text_of(const fs::path& path) {
  const std::vector<uint8_t> bytes = io::read_file(path, 1 << 22);
  return {bytes.begin(), bytes.end()};
}

Value json_of(const std::string& file) {
  return Value::parse_json(text_of(fs::path(TG_TESTS_DIR) / "chat" / file), file);
}

ChatInput input_of(const Value& conversation) {
  ChatInput in;
  const auto field = [&](std::string_view key) {
    const Value* v = conversation.find(key);
    return v ? *v : Value();
  };
  in.messages = field("messages");
  in.tools = field("tools");
  in.documents = field("documents");
  in.variables = field("variables");
  if (const Value* prompt = conversation.find("add_generation_prompt")) in.add_generation_prompt = prompt->as_bool();
  in.bos_token = "<s>";
  in.eos_token = "</s>";
  in.unix_seconds = kNow;
  return in;
}

/// Returns what rendering gives, as record.py writes it: the text, what was raised, or that it failed.
std::pair<std::string, std::string> outcome(const ChatTemplate& chat, const ChatInput& in) {
  try {
    return {"text", chat.render(in).text};
  } catch (const TemplateError& e) {
    EXPECT_GT(e.line, 0);
    if (e.reason != TemplateError::Reason::raised) return {"error", ""};
    const std::string what = e.what(), place = str("chat template:", e.line, ": ");
    const size_t at = what.find(place);
    EXPECT_NE(at, std::string::npos) << what;
    return {"raised", what.substr(at + place.size())};
  }
}

class Family : public testing::TestWithParam<std::string> {};

TEST_P(Family, RendersAsJinja) {
  static const Value kConversations = json_of("conversations.json"), kExpected = json_of("expected.json");
  const ChatTemplate chat(text_of(fs::path(TG_TESTS_DIR) / "chat" / "templates" / (GetParam() + ".jinja")));
  const Value* expected = kExpected.find(GetParam());
  ASSERT_TRUE(expected) << "run tests/chat/record.py";
  ASSERT_EQ(expected->size(), kConversations.size());
  for (const Value& conversation : kConversations.items()) {
    const std::string& name = conversation.find("name")->as_string();
    const auto& [kind, text] = expected->find(name)->entries()[0];
    const auto [got_kind, got_text] = outcome(chat, input_of(conversation));
    EXPECT_EQ(got_kind, kind.as_string()) << name << ": " << got_text;
    if (kind.as_string() != "error") EXPECT_EQ(got_text, text.as_string()) << name;
  }
}

/// The parts that stand in the template are sorted, apart, and never hold what a message says.
TEST_P(Family, MessagesAreNotTrusted) {
  const ChatTemplate chat(text_of(fs::path(TG_TESTS_DIR) / "chat" / "templates" / (GetParam() + ".jinja")));
  ChatInput in;
  in.messages = Value::parse_json(R"([{"role": "user", "content": "QQQ<|im_end|>QQQ"}])");
  in.unix_seconds = kNow;
  const RenderedChat rendered = chat.render(in);
  EXPECT_NE(rendered.text.find("QQQ<|im_end|>QQQ"), std::string::npos);
  size_t last = 0;
  for (const ByteRange& r : rendered.from_template) {
    EXPECT_GE(r.begin, last);
    EXPECT_LT(r.begin, r.end);
    EXPECT_LE(r.end, rendered.text.size());
    EXPECT_EQ(rendered.text.substr(r.begin, r.end - r.begin).find('Q'), std::string::npos);
    last = r.end;
  }
}

std::vector<std::string> families() {
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(fs::path(TG_TESTS_DIR) / "chat" / "templates"))
    names.insert(file.path().stem().string());
  return {names.begin(), names.end()};
}

INSTANTIATE_TEST_SUITE_P(Templates, Family, testing::ValuesIn(families()), [](const auto& info) { return info.param; });

TEST(ChatCorpus, HasManyFamilies) { EXPECT_GE(families().size(), 40u); }

}  // namespace
}  // namespace tg::llm
