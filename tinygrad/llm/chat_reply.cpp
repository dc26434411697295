/// \file Reasoning and calls of tools in replies.
#include "tinygrad/llm/chat_reply.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/value.h"

namespace tg::llm {
namespace {

/// How one form marks calls: `open` begins them, `close` ends them (the end of the reply does too where it is empty).
struct CallMarks {
  ToolCallForm form;
  std::string_view open, close;
};
constexpr CallMarks kMarks[] = {{ToolCallForm::hermes, "<tool_call>", "</tool_call>"},
                                {ToolCallForm::xml, "<tool_call>", "</tool_call>"},
                                {ToolCallForm::xml, "<function=", "</function>"},
                                {ToolCallForm::glm, "<tool_call>", "</tool_call>"},
                                {ToolCallForm::llama3, "<|python_tag|>", "<|eom_id|>"},
                                {ToolCallForm::mistral, "[TOOL_CALLS]", ""},
                                {ToolCallForm::functionary, "<function=", "</function>"},
                                {ToolCallForm::functionary, ">>>", ">>>"},
                                {ToolCallForm::deepseek, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"},
                                {ToolCallForm::command_r, "<|START_ACTION|>", "<|END_ACTION|>"},
                                {ToolCallForm::command_r, "Action: ```json", "```"},
                                {ToolCallForm::granite, "<|tool_call|>", "<|/tool_call|>"},
                                {ToolCallForm::kimi, "<|tool_call_begin|>", "<|tool_call_end|>"},
                                {ToolCallForm::harmony, "<|channel|>commentary to=", "<|call|>"},
                                {ToolCallForm::harmony, "<|start|>assistant to=", "<|call|>"}};

/// Marks that stand around calls and are no content.
struct Noise {
  ToolCallForm form;
  std::string_view text;
};
constexpr Noise kNoise[] = {{ToolCallForm::deepseek, "<｜tool▁calls▁begin｜>"},
                            {ToolCallForm::deepseek, "<｜tool▁calls▁end｜>"},
                            {ToolCallForm::kimi, "<|tool_calls_section_begin|>"},
                            {ToolCallForm::kimi, "<|tool_calls_section_end|>"},
                            {ToolCallForm::functionary, ">>>all\n"},
                            {ToolCallForm::command_r, "<|START_RESPONSE|>"},
                            {ToolCallForm::command_r, "<|END_RESPONSE|>"},
                            {ToolCallForm::harmony, "<|channel|>final<|message|>"},
                            {ToolCallForm::harmony, "<|channel|>commentary<|message|>"},
                            {ToolCallForm::harmony, "<|start|>assistant"},
                            {ToolCallForm::harmony, "<|return|>"},
                            {ToolCallForm::harmony, "<|end|>"}};

std::string_view stripped(std::string_view s) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = s.find_first_not_of(kSpace);
  return begin == s.npos ? std::string_view() : s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
}

/// Parses JSON; none for what is none (null counts as none too: no call is null).
Value parse_or_none(std::string_view text) {
  try {
    return Value::parse_json(stripped(text), "tool call", {ReplyParser::kMaxToolCallBytes, 100'000, 64});
  } catch (const FormatError&) { return {}; }
}

/// Reads calls out of what stands between the marks; false, and nothing in `out`, where it is malformed.
class CallReader {
 public:
  explicit CallReader(std::vector<ToolCall>& out) : out_(out) {}

  bool read(ToolCallForm form, std::string_view open, std::string_view body) {
    body = stripped(body);
    switch (form) {
      case ToolCallForm::xml:
        return open == "<function=" ? xml(body) : body.starts_with("<function=") ? xml(body.substr(10)) : json(body);
      case ToolCallForm::glm: return glm(body);
      case ToolCallForm::llama3: return llama(body);
      case ToolCallForm::mistral: return body.starts_with("[") ? json(body) : mistral(body);
      case ToolCallForm::functionary: return functionary(open, body);
      case ToolCallForm::deepseek: return deepseek(body);
      case ToolCallForm::kimi: return kimi(body);
      case ToolCallForm::harmony: return harmony(body);
      default: return json(body);
    }
  }

  /// Reads an object with a name and arguments, or a list of them.
  bool json(std::string_view text) { return calls(parse_or_none(text)); }

 private:
  bool calls(const Value& v) {
    if (!v.is_list()) return object(v);
    const size_t before = out_.size();
    for (const Value& call : v.items())
      if (!object(call)) {
        out_.resize(before);
        return false;
      }
    return out_.size() > before;
  }
  bool object(const Value& v) {
    const Value* inner = v.find("function");
    if (inner && inner->is_dict()) return object(*inner);
    const Value* name = v.find("name");
    if (!name) name = v.find("tool_name");
    const Value* arguments = v.find("arguments");
    if (!arguments) arguments = v.find("parameters");
    const Value* id = v.find("id");
    if (!id) id = v.find("tool_call_id");
    if (!name || !name->is_string() || name->as_string().empty()) return false;
    Value parsed;
    if (arguments && arguments->is_string()) parsed = parse_or_none(arguments->as_string());
    else parsed = arguments ? *arguments : Value::dict({});
    if (parsed.is_none()) parsed = Value::dict({});
    if (!parsed.is_dict()) return false;
    out_.push_back({id && id->is_string() ? id->as_string() : "", name->as_string(), parsed.json()});
    return true;
  }
  /// Adds a call whose arguments are a JSON text.
  bool named(std::string_view name, std::string_view arguments, std::string id = {}) {
    name = stripped(name);
    const Value parsed = stripped(arguments).empty() ? Value::dict({}) : parse_or_none(arguments);
    if (name.empty() || name.size() > 256 || !parsed.is_dict()) return false;
    out_.push_back({std::move(id), std::string(name), parsed.json()});
    return true;
  }
  /// Returns a value of an XML parameter: JSON where it is some, else the text.
  static Value loose(std::string_view text) {
    const std::string_view s = stripped(text);
    const Value v = parse_or_none(s);
    if (!v.is_none() || s == "null") return v;
    if (text.starts_with("\n")) text.remove_prefix(1);
    if (text.ends_with("\n")) text.remove_suffix(1);
    return Value(text);
  }
  /// NAME>\n<parameter=KEY>\nvalue\n</parameter>...</function>
  bool xml(std::string_view s) {
    const size_t name_end = s.find('>');
    if (name_end == s.npos) return false;
    const std::string name(stripped(s.substr(0, name_end)));
    std::vector<Value::Entry> arguments;
    for (size_t at = s.find("<parameter=", name_end); at != s.npos; at = s.find("<parameter=", at)) {
      const size_t key = at + 11, key_end = s.find('>', key);
      if (key_end == s.npos) return false;
      const size_t end = s.find("</parameter>", key_end);
      if (end == s.npos) return false;
      arguments.emplace_back(Value(stripped(s.substr(key, key_end - key))),
                             loose(s.substr(key_end + 1, end - key_end - 1)));
      at = end;
    }
    if (name.empty()) return false;
    out_.push_back({"", name, Value::dict(std::move(arguments)).json()});
    return true;
  }
  /// NAME<arg_key>k</arg_key><arg_value>v</arg_value>...
  bool glm(std::string_view s) {
    if (s.starts_with("{")) return json(s);
    const size_t first = std::min(s.find("<arg_key>"), s.size());
    const std::string_view name = stripped(s.substr(0, first));
    std::vector<Value::Entry> arguments;
    for (size_t at = first; at < s.size(); at = s.find("<arg_key>", at)) {
      const size_t key_end = s.find("</arg_key>", at), value = s.find("<arg_value>", at),
                   end = s.find("</arg_value>", at);
      if (key_end == s.npos || value == s.npos || end == s.npos || value < key_end || end < value) return false;
      arguments.emplace_back(Value(stripped(s.substr(at + 9, key_end - at - 9))),
                             loose(s.substr(value + 11, end - value - 11)));
      at = end;
    }
    if (name.empty() || name.find('<') != name.npos) return false;
    out_.push_back({"", std::string(name), Value::dict(std::move(arguments)).json()});
    return true;
  }
  /// NAME[ARGS]{...}, perhaps with [CALL_ID]id before [ARGS]; perhaps several after [TOOL_CALLS] each
  bool mistral(std::string_view s) {
    const size_t before = out_.size();
    while (!s.empty()) {
      const size_t next = std::min(s.find("[TOOL_CALLS]"), s.size());
      const std::string_view call = s.substr(0, next);
      const size_t args = call.find("[ARGS]"), id = call.find("[CALL_ID]");
      const size_t name_end = std::min(id, args);
      const bool has_id = id != call.npos && args != call.npos && id < args;
      if (args == call.npos || !named(call.substr(0, name_end), call.substr(args + 6),
                                      has_id ? std::string(call.substr(id + 9, args - id - 9)) : "")) {
        out_.resize(before);
        return false;
      }
      s = next == s.size() ? std::string_view() : s.substr(next + 12);
    }
    return out_.size() > before;
  }
  bool functionary(std::string_view open, std::string_view s) {
    const size_t end = s.find(open == ">>>" ? '\n' : '>');
    return end != s.npos && named(s.substr(0, end), s.substr(end + 1));
  }
  /// {...}; {...}
  bool llama(std::string_view s) {
    if (json(s)) return true;
    const size_t before = out_.size();
    for (size_t at = s.find(';'); at != s.npos; at = s.find(';', at + 1)) {
      if (!json(s.substr(0, at))) continue;  // inside of a string, perhaps
      s = stripped(s.substr(at + 1));
      if (json(s)) return true;
      at = 0;
    }
    out_.resize(before);
    return false;
  }
  /// function<｜tool▁sep｜>NAME\n```json\n{...}\n```, or NAME<｜tool▁sep｜>{...}
  bool deepseek(std::string_view s) {
    constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
    const size_t at = s.find(kSeparator);
    if (at == s.npos) return false;
    const std::string_view rest = s.substr(at + kSeparator.size());
    const size_t fence = rest.find("```json");
    if (fence == rest.npos) return named(s.substr(0, at), rest);
    const std::string_view json = rest.substr(fence + 7);
    return named(rest.substr(0, fence), json.substr(0, json.rfind("```")));
  }
  /// functions.NAME:0<|tool_call_argument_begin|>{...}
  bool kimi(std::string_view s) {
    constexpr std::string_view kArguments = "<|tool_call_argument_begin|>";
    const size_t at = s.find(kArguments);
    if (at == s.npos) return false;
    const std::string id(stripped(s.substr(0, at)));
    std::string_view name = id;
    name = name.substr(0, name.rfind(':'));
    if (name.starts_with("functions.")) name.remove_prefix(10);
    return named(name, s.substr(at + kArguments.size()), id);
  }
  /// functions.NAME <|constrain|>json<|message|>{...}
  bool harmony(std::string_view s) {
    const size_t message = s.find("<|message|>");
    if (message == s.npos) return false;
    std::string_view name = s.substr(0, std::min(s.find_first_of(" <"), message));
    if (name.starts_with("functions.")) name.remove_prefix(10);
    return named(name, s.substr(message + 11));
  }

  std::vector<ToolCall>& out_;
};

/// Returns how many bytes at the end of `text` could begin `mark`.
size_t partial(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; n--)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

bool has(std::string_view source, std::string_view mark) { return source.find(mark) != source.npos; }

ToolCallForm form_of(std::string_view s) {
  if (has(s, "<|channel|>") && has(s, "to=functions.")) return ToolCallForm::harmony;
  if (has(s, "<|tool_call_argument_begin|>")) return ToolCallForm::kimi;
  if (has(s, "tool▁call▁begin")) return ToolCallForm::deepseek;
  if (has(s, "[TOOL_CALLS]")) return ToolCallForm::mistral;
  if (has(s, "<arg_key>")) return ToolCallForm::glm;
  if (has(s, "<parameter=")) return ToolCallForm::xml;
  if (has(s, "<tool_call>")) return ToolCallForm::hermes;
  if (has(s, "<|START_ACTION|>") || has(s, "Action: ```json")) return ToolCallForm::command_r;
  if (has(s, "<|tool_call|>")) return ToolCallForm::granite;
  if (has(s, ">>>") && has(s, "recipient")) return ToolCallForm::functionary;
  if (has(s, "<function=")) return ToolCallForm::functionary;
  if (has(s, "<|python_tag|>") || (has(s, "<|eot_id|>") && has(s, "\"parameters\""))) return ToolCallForm::llama3;
  return ToolCallForm::none;
}

}  // namespace

ReplyForm detect_reply_form(std::string_view template_source, std::string_view prompt) {
  ReplyForm form;
  form.tools = form_of(template_source);
  if (form.tools == ToolCallForm::harmony) {
    form.reasoning_open = "<|channel|>analysis<|message|>";
    form.reasoning_close = "<|end|>";
  } else {
    constexpr std::pair<std::string_view, std::string_view> kThoughts[] = {{"<think>", "</think>"},
                                                                           {"<|START_THINKING|>", "<|END_THINKING|>"},
                                                                           {"[THINK]", "[/THINK]"},
                                                                           {"<seed:think>", "</seed:think>"}};
    for (const auto& [open, close] : kThoughts)
      if (form.reasoning_open.empty() && has(template_source, close)) {
        form.reasoning_open = open;
        form.reasoning_close = close;
      }
  }
  form.starts_in_reasoning = !form.reasoning_open.empty() && stripped(prompt).ends_with(form.reasoning_open);
  return form;
}

ReplyParser::ReplyParser(ReplyForm form)
    : form_(std::move(form)), state_(form_.starts_in_reasoning ? State::reasoning : State::content) {}

ReplyDelta ReplyParser::feed(std::string_view text) {
  held_ += text;
  ReplyDelta out;
  while (step(out, false)) {}
  return out;
}

ReplyDelta ReplyParser::finish() {
  ReplyDelta out;
  while (step(out, true)) {}
  return out;
}

bool ReplyParser::step(ReplyDelta& out, bool at_end) {
  if (held_.empty()) return false;
  switch (state_) {
    case State::reasoning: return step_reasoning(out, at_end);
    case State::call: return step_call(out, at_end);
    default: return step_content(out, at_end);
  }
}

bool ReplyParser::step_reasoning(ReplyDelta& out, bool at_end) {
  const size_t end = held_.find(form_.reasoning_close);
  const bool found = end != std::string::npos;
  size_t n = found ? end : held_.size() - (at_end ? 0 : partial(held_, form_.reasoning_close));
  if (trim_) {  // no line breaks before the first word
    const size_t word = std::min(held_.find_first_not_of("\r\n"), n);
    held_.erase(0, word);
    n -= word;
    trim_ = n == 0 && !found;
  }
  out.reasoning += held_.substr(0, n);
  held_.erase(0, found ? n + form_.reasoning_close.size() : n);
  if (found) {
    state_ = State::content;
    content_begun_ = false;
  }
  return found;
}

void ReplyParser::give_content(ReplyDelta& out, std::string_view text) {
  if (!content_begun_) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    content_begun_ = !text.empty();
  }
  out.content += text;
}

/// Returns the mark that comes first in what is held, the longest one where several begin at one place. What the end of
/// the text may still make of it decides whether it is `certain`; what comes before `free` is no part of any mark.
ReplyParser::Mark ReplyParser::first_mark(bool at_end) const {
  Mark best;
  best.at = std::string::npos;
  best.free = held_.size();
  const auto look = [&](std::string_view open, std::string_view close, Mark::Kind kind) {
    if (open.empty()) return;
    const size_t at = held_.find(open);
    if (at < best.at || (at == best.at && at != std::string::npos && open.size() > best.open.size())) {
      best.at = at;
      best.open = open;
      best.close = close;
      best.kind = kind;
    }
    if (!at_end) best.free = std::min(best.free, held_.size() - partial(held_, open));
  };
  look(form_.reasoning_open, "", Mark::Kind::thought);
  for (const CallMarks& m : kMarks)
    if (m.form == form_.tools && calls_ < kMaxToolCalls) look(m.open, m.close, Mark::Kind::call);
  for (const Noise& m : kNoise)
    if (m.form == form_.tools) look(m.text, "", Mark::Kind::noise);
  best.certain = best.at != std::string::npos && best.free > best.at;
  best.free = std::min(best.free, best.at);
  return best;
}

/// Gives out content up to the first mark. A reply that is JSON from its first character on may be a call of Llama 3.
bool ReplyParser::step_content(ReplyDelta& out, bool at_end) {
  const size_t word = held_.find_first_not_of(" \t\r\n");
  if (form_.tools == ToolCallForm::llama3 && !content_begun_ && word != std::string::npos && held_[word] == '{') {
    held_.erase(0, word);
    close_.clear();
    state_ = State::call;
    return true;
  }
  const Mark mark = first_mark(at_end);
  give_content(out, std::string_view(held_).substr(0, mark.free));
  held_.erase(0, mark.free);
  if (!mark.certain) return false;
  if (mark.kind != Mark::Kind::call) {
    held_.erase(0, mark.open.size());
    trim_ = mark.kind == Mark::Kind::thought;
    if (trim_) state_ = State::reasoning;
    return true;
  }
  close_ = mark.close;  // the opening mark stays held, so that a malformed call is given out whole
  open_ = mark.open;
  searched_ = mark.open.size();
  state_ = State::call;
  return true;
}

/// Returns where the call's text ends; npos where that is not known yet.
size_t ReplyParser::end_of_call() {
  const size_t from = searched_ > close_.size() ? std::max(open_.size(), searched_ - close_.size()) : open_.size();
  const size_t end = close_.empty() ? std::string::npos : held_.find(close_, std::min(from, held_.size()));
  searched_ = held_.size();
  return end;
}

bool ReplyParser::step_call(ReplyDelta& out, bool at_end) {
  const size_t end = end_of_call();
  const bool found = end != std::string::npos && end + close_.size() <= kMaxToolCallBytes;
  const bool too_long = !found && held_.size() > kMaxToolCallBytes;
  if (!found && !at_end && !too_long) return false;
  size_t n = found ? end : held_.size();
  std::vector<ToolCall> calls;
  const bool read =
      !too_long &&
      CallReader(calls).read(form_.tools, open_, std::string_view(held_).substr(open_.size(), n - open_.size())) &&
      calls.size() <= kMaxToolCalls - calls_;
  // What closes a call may open the next one.
  const size_t all = n + (found && close_ != open_ ? close_.size() : 0);
  if (read) {
    for (ToolCall& c : calls) {
      if (c.id.empty()) c.id = str("call_", calls_);
      calls_++;
      out.tool_calls.push_back(std::move(c));
    }
    content_begun_ = false;
    held_.erase(0, all);
  } else {
    n = all;
    if (too_long) {
      // The same bytes whatever the pieces were, and whole characters.
      for (n = kMaxToolCallBytes; n > 0 && (static_cast<unsigned char>(held_[n]) & 0xC0) == 0x80;) n--;
    }
    content_begun_ = true;
    give_content(out, std::string_view(held_).substr(0, n));
    held_.erase(0, n);
  }
  open_.clear();
  searched_ = 0;
  state_ = State::content;
  return !held_.empty();
}

ReplyDelta parse_reply(std::string_view text, const ReplyForm& form) {
  ReplyParser parser(form);
  ReplyDelta all = parser.feed(text);
  ReplyDelta rest = parser.finish();
  all.content += rest.content;
  all.reasoning += rest.reasoning;
  all.tool_calls.insert(all.tool_calls.end(), rest.tool_calls.begin(), rest.tool_calls.end());
  return all;
}

}  // namespace tg::llm
