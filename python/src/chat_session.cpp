/// \file Conversations with a language model: what tinygrad_cpp.llm.chat shows.
#include "tinygrad/llm/chat_session.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "casters.h"
#include "interrupt.h"
#include "tinygrad/llm/model_registry.h"

namespace tg::python {

namespace {

using llm::ChatSession;

llm::ReplyOptions options_of(int64_t max_tokens, double temperature, int64_t top_k, double top_p, double min_p,
                             double repetition_penalty, double frequency_penalty, double presence_penalty,
                             int64_t penalty_window, uint64_t seed, std::vector<std::string> stop,
                             std::function<bool(const std::string&)> on_text) {
  llm::ReplyOptions o;
  o.max_tokens = max_tokens;
  o.sampling = {temperature,      top_k,          top_p, min_p, repetition_penalty, frequency_penalty,
                presence_penalty, penalty_window, {},    seed};
  o.stop = std::move(stop);
  o.on_text = std::move(on_text);
  return o;
}

/// Returns text, reason and seconds of a reply.
nb::dict to_dict(const llm::Generated& g) {
  nb::dict d;
  d["text"] = nb::steal(PyUnicode_DecodeUTF8(g.text.data(), static_cast<Py_ssize_t>(g.text.size()), "replace"));
  d["tokens"] = g.tokens;
  d["finish_reason"] = llm::finish_reason_name(g.reason);
  d["prompt_tokens"] = g.prefill_tokens;
  d["prefill_seconds"] = g.prefill_seconds;
  d["decode_seconds"] = g.decode_seconds;
  return d;
}

template <llm::Generated (ChatSession::*kMethod)(const std::string&, const llm::ReplyOptions&)>
nb::dict generate(ChatSession& chat, const std::string& text, int64_t max_tokens, double temperature, int64_t top_k,
                  double top_p, double min_p, double repetition_penalty, double frequency_penalty,
                  double presence_penalty, int64_t penalty_window, uint64_t seed, std::vector<std::string> stop,
                  std::function<bool(const std::string&)> on_text) {
  llm::Generated g;
  {
    const llm::ReplyOptions o =
        options_of(max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty,
                   presence_penalty, penalty_window, seed, std::move(stop), std::move(on_text));
    Unlocked work;
    g = (chat.*kMethod)(text, o);
  }
  return to_dict(g);
}

template <class F> void def_generate(nb::class_<ChatSession>& c, const char* name, F f, const char* doc) {
  c.def(name, f, "text"_a, nb::kw_only(), "max_tokens"_a = -1, "temperature"_a = 0.8, "top_k"_a = 40, "top_p"_a = 0.95,
        "min_p"_a = 0.05, "repetition_penalty"_a = 1.0, "frequency_penalty"_a = 0.0, "presence_penalty"_a = 0.0,
        "penalty_window"_a = 64, "seed"_a = 0, "stop"_a = std::vector<std::string>(), "on_text"_a.none() = nb::none(),
        doc);
}

}  // namespace

void bind_chat_session(nb::module_& m) {
  m.def(
      "llm_find_model",
      [](const std::string& model, std::function<void(const std::string&)> report) {
        Unlocked work;
        return llm::find_model(model, report).string();
      },
      "model"_a, "report"_a.none() = nb::none());
  m.def("llm_known_models", [] {
    nb::list out;
    for (const llm::KnownModel& k : llm::known_models())
      out.append(nb::make_tuple(std::string(k.name), std::string(k.url)));
    return out;
  });
  nb::class_<ChatSession> c(m, "ChatSession", "A model, its tokenizer and one conversation.");
  c.def_static(
       "open",
       [](const std::string& file, int64_t max_context, const std::string& cache_dtype, const std::string& device,
          const std::string& chat_template) {
         Unlocked work;
         return ChatSession::open(
             file, {.max_context = max_context, .cache_dtype = dtypes::from_name(cache_dtype), .device = device},
             chat_template);
       },
       "file"_a, "max_context"_a = 0, "cache_dtype"_a = "float32", "device"_a = "", "chat_template"_a = "")
      .def("set_system", &ChatSession::set_system, "text"_a)
      .def("clear", &ChatSession::clear)
      .def_prop_ro("can_chat", &ChatSession::can_chat)
      .def_prop_ro("chat_problem", &ChatSession::chat_problem)
      .def_prop_ro("forgotten", &ChatSession::forgotten)
      .def_prop_ro(
          "model", [](ChatSession& s) -> llm::LanguageModel& { return s.model(); }, nb::rv_policy::reference_internal)
      .def_prop_ro("messages", [](const ChatSession& s) {
        nb::list out;
        for (const llm::ChatMessage& message : s.messages()) out.append(nb::make_tuple(message.role, message.content));
        return out;
      });
  def_generate(c, "reply", &generate<&ChatSession::reply>, "Adds a message of the user and the reply to it.");
  def_generate(c, "complete", &generate<&ChatSession::complete>, "Continues a text.");
}

}  // namespace tg::python
