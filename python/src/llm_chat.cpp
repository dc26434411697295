/// \file Chat templates, replies and JSON schemas.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "tinygrad/base/error.h"
#include "tinygrad/llm/chat_reply.h"
#include "tinygrad/llm/chat_template.h"
#include "tinygrad/llm/json_constraint.h"

namespace tg::python {
namespace {

using llm::Value;

/// Most values that one Python object may hold: lists that share parts can be larger than memory.
constexpr size_t kMaxPythonValues = 4'000'000;

std::string utf8(nb::handle text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (!data) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

/// Makes values of Python objects.
class ValueReader {
 public:
  explicit ValueReader(std::string_view what) : what_(what) {}

  Value read(nb::handle h, int depth = 0) {
    TG_CHECK(ValueError, depth < llm::kMaxValueDepth, "[", what_, "] got objects nested more than ",
             llm::kMaxValueDepth - 1, " deep");
    TG_CHECK(ValueError, ++values_ <= kMaxPythonValues, "[", what_, "] got more than ", kMaxPythonValues, " values");
    if (h.is_none()) return {};
    if (PyBool_Check(h.ptr())) return Value(h.ptr() == Py_True);
    if (PyLong_Check(h.ptr())) return integer(h);
    if (PyFloat_Check(h.ptr())) return Value(PyFloat_AS_DOUBLE(h.ptr()));
    if (PyUnicode_Check(h.ptr())) return Value(utf8(h));
    if (nb::isinstance<nb::dict>(h)) {
      std::vector<Value::Entry> entries;
      for (const auto& [key, value] : nb::borrow<nb::dict>(h))
        entries.emplace_back(read(key, depth + 1), read(value, depth + 1));
      return Value::dict(std::move(entries));
    }
    const bool tuple = nb::isinstance<nb::tuple>(h);
    TG_CHECK(DTypeError, tuple || nb::isinstance<nb::list>(h), "[", what_, "] got an object of type ",
             nb::type_name(h.type()).c_str(), ", expected None, bool, int, float, str, list, tuple or dict");
    std::vector<Value> items;
    for (const nb::handle item : nb::borrow<nb::sequence>(h)) items.push_back(read(item, depth + 1));
    return tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }

 private:
  Value integer(nb::handle h) const {
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
    TG_CHECK(ValueError, !overflow, "[", what_, "] got an integer of more than 64 bits");
    return Value(static_cast<int64_t>(v));
  }

  std::string_view what_;
  size_t values_ = 0;
};

nb::str text_object(const std::string& text) {
  PyObject* s = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (!s) throw nb::python_error();
  return nb::steal<nb::str>(s);
}

llm::RenderedChat render(const llm::ChatTemplate& chat, nb::object messages, nb::object tools, nb::object documents,
                         bool add_generation_prompt, const std::string& bos_token, const std::string& eos_token,
                         std::optional<int64_t> unix_seconds, const nb::kwargs& variables) {
  ValueReader reader("chat_template");
  llm::ChatInput in;
  in.messages = reader.read(messages);
  in.tools = reader.read(tools);
  in.documents = reader.read(documents);
  in.add_generation_prompt = add_generation_prompt;
  in.bos_token = bos_token;
  in.eos_token = eos_token;
  in.variables = reader.read(variables);
  in.unix_seconds = unix_seconds;
  const nb::gil_scoped_release unlocked;
  return chat.render(in);
}

void bind_chat_template(nb::module_& m) {
  nb::class_<llm::ChatTemplate>(m, "ChatTemplate",
                                "A chat template: the part of Jinja that GGUF and Hugging Face files use, rendered "
                                "as apply_chat_template renders it, with limits and without host access.")
      .def(nb::init<std::string, std::string>(), "source"_a, "name"_a = "chat template",
           "Parses a template; FormatError that names the line where it is wrong. name is for messages.")
      .def(
          "render",
          [](const llm::ChatTemplate& chat, nb::object messages, nb::object tools, nb::object documents,
             bool add_generation_prompt, const std::string& bos_token, const std::string& eos_token,
             std::optional<int64_t> unix_seconds, const nb::kwargs& variables) {
            return text_object(render(chat, std::move(messages), std::move(tools), std::move(documents),
                                      add_generation_prompt, bos_token, eos_token, unix_seconds, variables)
                                   .text);
          },
          "messages"_a, nb::kw_only(), "tools"_a = nb::none(), "documents"_a = nb::none(),
          "add_generation_prompt"_a = true, "bos_token"_a = "", "eos_token"_a = "", "unix_seconds"_a = nb::none(),
          "variables"_a,
          "Returns the text of a conversation: a list of dicts with role, content, perhaps tool_calls. Further "
          "keywords are further variables of the template. unix_seconds is what strftime_now says, in UTC.")
      .def(
          "render_variables",
          [](const llm::ChatTemplate& chat, nb::dict variables, std::optional<int64_t> unix_seconds) {
            const Value v = ValueReader("chat_template").read(variables);
            std::string text;
            {
              const nb::gil_scoped_release unlocked;
              text = chat.render_variables(v, unix_seconds).text;
            }
            return text_object(text);
          },
          "variables"_a, "unix_seconds"_a = nb::none(), "Renders with these variables and nothing else.")
      .def("reads", &llm::ChatTemplate::reads, "variable"_a,
           "Returns whether the template reads a variable of this name anywhere.")
      .def_prop_ro("source", [](const llm::ChatTemplate& chat) { return text_object(chat.source()); });
}

nb::dict delta_dict(const llm::ReplyDelta& delta) {
  nb::dict out;
  nb::list calls;
  for (const llm::ToolCall& c : delta.tool_calls) {
    nb::dict call;
    call["id"] = text_object(c.id);
    call["name"] = text_object(c.name);
    call["arguments"] = text_object(c.arguments);
    calls.append(call);
  }
  out["content"] = text_object(delta.content);
  out["reasoning_content"] = text_object(delta.reasoning);
  out["tool_calls"] = calls;
  return out;
}

void bind_reply_parser(nb::module_& m) {
  nb::class_<llm::ReplyParser>(m, "ReplyParser",
                               "Reads reasoning and calls of tools from a reply in pieces, in the form its chat "
                               "template shows.")
      .def(
          "__init__",
          [](llm::ReplyParser* self, const std::string& template_source, const std::string& prompt) {
            new (self) llm::ReplyParser(llm::detect_reply_form(template_source, prompt));
          },
          "template_source"_a, "prompt"_a = "",
          "Takes the source of the template, and the rendered conversation: its end says whether the reply begins "
          "inside of reasoning.")
      .def(
          "feed", [](llm::ReplyParser& p, const std::string& text) { return delta_dict(p.feed(text)); }, "text"_a,
          "Takes more text and returns what is certain now: content, reasoning_content, tool_calls.")
      .def(
          "finish", [](llm::ReplyParser& p) { return delta_dict(p.finish()); },
          "Takes the end of the reply and returns what was held back.");
}

void bind_json_schema(nb::module_& m) {
  nb::class_<llm::JsonConstraint>(m, "JsonConstraint", "Where one reply stands in a schema.")
      .def(
          "allowed",
          [](llm::JsonConstraint& c) {
            nb::list out;
            const std::span<const uint64_t> mask = c.mask();
            for (size_t w = 0; w < mask.size(); w++)
              for (uint64_t rest = mask[w]; rest; rest &= rest - 1)
                out.append(w * 64 + static_cast<size_t>(__builtin_ctzll(rest)));
            return out;
          },
          "Returns the tokens that may come next.")
      .def(
          "mask",
          [](llm::JsonConstraint& c) {
            const std::span<const uint64_t> mask = c.mask();
            return nb::bytes(reinterpret_cast<const char*>(mask.data()), mask.size_bytes());
          },
          "Returns the tokens that may come next as bits: bit i % 64 of the little-endian 64-bit word i // 64.")
      .def("accept", &llm::JsonConstraint::accept, "token"_a,
           "Goes on by a token; False, without a change, where it may not come.")
      .def("reset", &llm::JsonConstraint::reset, "Returns to the beginning.")
      .def_prop_ro("finished", &llm::JsonConstraint::finished, "Whether the text is complete.")
      .def_prop_ro("exhausted", &llm::JsonConstraint::exhausted, "Whether nothing may follow.");
  nb::class_<llm::TokenBytes>(m, "TokenBytes", "A vocabulary as bytes, sorted once for all constraints.")
      .def(
          "__init__",
          [](llm::TokenBytes* self, const std::vector<nb::bytes>& tokens) {
            std::vector<std::string> all;
            for (const nb::bytes& t : tokens) all.emplace_back(t.c_str(), t.size());
            new (self) llm::TokenBytes(std::move(all));
          },
          "tokens"_a, "Takes the bytes of every token; an empty one never may come.")
      .def("__len__", &llm::TokenBytes::size);
  nb::class_<llm::JsonSchema>(m, "JsonSchema",
                              "A compiled JSON schema. ValueError that names the keyword and its path for what "
                              "cannot be enforced.")
      .def(
          "__init__",
          [](llm::JsonSchema* self, nb::object schema, bool ordered, bool compact) {
            llm::SchemaOptions options;
            options.ordered = ordered;
            if (compact) options.spacing = llm::JsonSpacing::compact;
            const Value v = PyUnicode_Check(schema.ptr()) ? Value::parse_json(utf8(schema), "schema")
                                                          : ValueReader("json_schema").read(schema);
            const nb::gil_scoped_release unlocked;
            new (self) llm::JsonSchema(v, options);
          },
          "schema"_a, nb::kw_only(), "ordered"_a = false, "compact"_a = false,
          "Compiles a schema: a dict, a bool, or JSON text. ordered: properties stand in the schema's order. compact: "
          "no spaces; else one may follow each comma and colon.")
      .def(
          "accepts", [](const llm::JsonSchema& s, const std::string& text) { return s.accepts(text); }, "text"_a,
          "Returns whether sampling can give exactly this text.")
      .def(
          "constraint",
          [](const llm::JsonSchema& s, const llm::TokenBytes& tokens) { return llm::JsonConstraint(s, tokens); },
          "tokens"_a, "Returns a constraint at the beginning of a text; those of one schema share their masks.");
}

}  // namespace

void bind_llm_chat(nb::module_& m) {
  bind_chat_template(m);
  bind_reply_parser(m);
  bind_json_schema(m);
}

}  // namespace tg::python
