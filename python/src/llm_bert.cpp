/// \file BERT encoders.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "tinygrad/llm/bert.h"

namespace tg::python {

void bind_llm_bert(nb::module_& m) {
  using llm::BertModel;
  nb::class_<BertModel>(m, "BertModel", "Texts to vectors: BERT from a Hugging Face folder or a GGUF file.")
      .def_static(
          "open", [](const std::string& path, const std::string& device) { return BertModel::open(path, device); },
          nb::arg("path"), nb::arg("device") = "CPU")
      .def(
          "tokens",
          [](const BertModel& b, std::string_view text, int64_t max_tokens) {
            return b.tokens(text, {.max_tokens = max_tokens});
          },
          nb::arg("text"), nb::arg("max_tokens") = 0, "Returns the tokens of a text as they are embedded.")
      .def("hidden", &BertModel::hidden, nb::arg("ids"), nb::arg("keep"),
           "Returns the vectors of tokens: ids and keep (batch, time) -> (batch, time, dim).")
      .def(
          "embed",
          [](const BertModel& b, const std::vector<std::string>& texts, bool normalize, int64_t max_tokens) {
            return b.embed(texts, {.normalize = normalize, .max_tokens = max_tokens});
          },
          nb::arg("texts"), nb::arg("normalize") = true, nb::arg("max_tokens") = 0,
          "Returns the vectors of texts as lists of floats.")
      .def_prop_ro("tokenizer", &BertModel::tokenizer)
      .def_prop_ro("dim", [](const BertModel& b) { return b.config().dim; })
      .def_prop_ro("max_positions", [](const BertModel& b) { return b.config().max_positions; });
}

}  // namespace tg::python
