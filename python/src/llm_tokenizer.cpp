/// \file Tokenizers of language models.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "tinygrad/base/error.h"
#include "tinygrad/llm/tokenizer.h"

namespace tg::python {
namespace {

using llm::StreamDecoder;
using llm::Tokenizer;

nb::object decoded(const std::string& utf8) { return nb::str(utf8.data(), utf8.size()); }

/// Returns the bytes of a str or bytes, which live as long as the object.
std::string_view text_of(nb::handle text) {
  if (PyBytes_Check(text.ptr()))
    return {PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr()))};
  Py_ssize_t size = 0;
  const char* data = PyUnicode_Check(text.ptr()) ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
  if (data == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
  TG_CHECK(DTypeError, data != nullptr, "[Tokenizer] got a text of type ",
           nb::cast<std::string>(nb::str(nb::handle((PyObject*)Py_TYPE(text.ptr())))), ", expected str or bytes");
  return {data, static_cast<size_t>(size)};
}

/// Reads the keys tokenizer.ggml.* of a dict; FormatError for values of another type.
class Keys {
 public:
  explicit Keys(const nb::dict& d) : d_(d) {}
  template <class T> T get(const char* key, T fallback) const {
    const std::string full = str("tokenizer.ggml.", key);
    if (!d_.contains(full.c_str())) return fallback;
    T value;
    TG_CHECK(FormatError, nb::try_cast<T>(d_[full.c_str()], value), "[tokenizer] ", full,
             ": got a value of another type");
    return value;
  }
  std::optional<int64_t> id(const char* key) const { return get<std::optional<int64_t>>(key, std::nullopt); }
  std::optional<bool> flag(const char* key) const { return get<std::optional<bool>>(key, std::nullopt); }

 private:
  const nb::dict& d_;
};

llm::TokenizerData data_of(const nb::dict& kv) {
  const Keys keys(kv);
  llm::TokenizerData d;
  d.model = keys.get<std::string>("model", "gpt2");
  d.pre = keys.get<std::string>("pre", "");
  d.tokens = keys.get<std::vector<std::string>>("tokens", {});
  d.scores = keys.get<std::vector<float>>("scores", {});
  d.token_types = keys.get<std::vector<int32_t>>("token_type", {});
  d.merges = keys.get<std::vector<std::string>>("merges", {});
  d.bos = keys.id("bos_token_id");
  d.eos = keys.id("eos_token_id");
  d.eot = keys.id("eot_token_id");
  d.eom = keys.id("eom_token_id");
  d.unk = keys.id("unknown_token_id");
  d.sep = keys.id("seperator_token_id");
  d.pad = keys.id("padding_token_id");
  d.cls = keys.id("cls_token_id");
  d.mask = keys.id("mask_token_id");
  d.add_bos = keys.flag("add_bos_token");
  d.add_eos = keys.flag("add_eos_token");
  d.add_sep = keys.flag("add_sep_token");
  d.add_space_prefix = keys.flag("add_space_prefix");
  d.remove_extra_whitespaces = keys.flag("remove_extra_whitespaces");
  for (const int64_t b : keys.get<std::vector<int64_t>>("precompiled_charsmap", {}))
    d.precompiled_charsmap.push_back(static_cast<uint8_t>(b));
  return d;
}

}  // namespace

void bind_llm_tokenizer(nb::module_& m) {
  nb::class_<StreamDecoder>(m, "StreamDecoder", "Decodes tokens as they arrive; gives out whole characters only.")
      .def(
          "push", [](StreamDecoder& d, int32_t id) { return decoded(d.push(id)); }, nb::arg("token"),
          "Adds a token and returns the text that is complete now.")
      .def(
          "finish", [](StreamDecoder& d) { return decoded(d.finish()); },
          "Ends the text: returns what was kept, as U+FFFD when it is incomplete, and starts over.");

  nb::class_<Tokenizer>(m, "Tokenizer", "Text <-> tokens: byte-level BPE, SentencePiece (BPE, unigram) and WordPiece.")
      .def_static(
          "from_gguf_kv",
          [](const nb::dict& kv, std::string_view name) { return Tokenizer::from_data(data_of(kv), name); },
          nb::arg("kv"), nb::arg("name") = "GGUF", "Makes a tokenizer from the metadata of a GGUF file.")
      .def_static(
          "from_json",
          [](nb::bytes json, std::string_view name) {
            return Tokenizer::from_json({reinterpret_cast<const uint8_t*>(json.c_str()), json.size()}, name);
          },
          nb::arg("json"), nb::arg("name") = "tokenizer.json", "Makes a tokenizer from the bytes of a tokenizer.json.")
      .def(
          "encode",
          [](const Tokenizer& t, nb::object text, bool add_special, bool parse_special) {
            return t.encode(text_of(text), {.add_special = add_special, .parse_special = parse_special});
          },
          nb::arg("text"), nb::arg("add_special") = true, nb::arg("parse_special") = false,
          "Returns the tokens of a text (str, or bytes of which those that are not UTF-8 count as U+FFFD).")
      .def(
          "decode",
          [](const Tokenizer& t, const std::vector<int32_t>& ids, bool skip_special) {
            return decoded(t.decode(ids, skip_special));
          },
          nb::arg("tokens"), nb::arg("skip_special") = true)
      .def("stream_decoder", &Tokenizer::stream_decoder, nb::arg("skip_special") = true)
      .def(
          "token_bytes",
          [](const Tokenizer& t, int32_t id, bool first) {
            const std::string b = t.token_bytes(id, first);
            return nb::bytes(b.data(), b.size());
          },
          nb::arg("token"), nb::arg("first") = false)
      .def(
          "token_text", [](const Tokenizer& t, int32_t id) { return decoded(std::string(t.token_text(id))); },
          nb::arg("token"))
      .def("token_id", &Tokenizer::token_id, nb::arg("text"))
      .def("is_special", &Tokenizer::is_special, nb::arg("token"))
      .def("is_end", &Tokenizer::is_end, nb::arg("token"))
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("end_tokens", &Tokenizer::end_tokens)
      .def_prop_ro("special_tokens", &Tokenizer::special_tokens)
      .def_prop_ro("bos_id", &Tokenizer::bos)
      .def_prop_ro("eos_id", &Tokenizer::eos)
      .def_prop_ro("eot_id", &Tokenizer::eot)
      .def_prop_ro("unk_id", &Tokenizer::unk)
      .def_prop_ro("pad_id", &Tokenizer::pad)
      .def_prop_ro("adds_bos", &Tokenizer::adds_bos);
}

}  // namespace tg::python
