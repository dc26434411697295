/// \file Language models: the engine that tinygrad_cpp.llm.engine shows.
#include "tinygrad/llm/language_model.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "casters.h"
#include "interrupt.h"
#include "tinygrad/llm/generate.h"
#include "tinygrad/llm/sampler.h"

namespace tg::python {

namespace {

using llm::LanguageModel;

Tensor rows_of(std::span<const float> logits, int64_t columns) {
  return Tensor::from(logits, Shape{static_cast<int64_t>(logits.size()) / columns, columns});
}

std::shared_ptr<LanguageModel> load(const std::string& file, int64_t max_context, int64_t max_sequences,
                                    const std::string& cache_dtype, int64_t prefill_chunk, const std::string& device,
                                    bool divided) {
  Unlocked work;
  return LanguageModel::load(std::filesystem::path(file), {.max_context = max_context,
                                                           .max_sequences = max_sequences,
                                                           .cache_dtype = dtypes::from_name(cache_dtype),
                                                           .prefill_chunk = prefill_chunk,
                                                           .device = device,
                                                           .divided = divided});
}

Tensor decode(LanguageModel& m, const std::vector<std::pair<int64_t, int32_t>>& next) {
  std::vector<llm::NextToken> tokens;
  for (const auto& [sequence, token] : next) tokens.push_back({sequence, token});
  Unlocked work;
  return rows_of(m.decode(tokens), m.vocab_size());
}

llm::SamplingOptions sampling(double temperature, int64_t top_k, double top_p, double min_p, double repetition_penalty,
                              double frequency_penalty, double presence_penalty, int64_t penalty_window,
                              std::vector<std::pair<int32_t, double>> logit_bias, uint64_t seed) {
  return {temperature,
          top_k,
          top_p,
          min_p,
          repetition_penalty,
          frequency_penalty,
          presence_penalty,
          penalty_window,
          std::move(logit_bias),
          seed};
}

std::vector<float> floats_of(const Tensor& t) { return t.to_vector<float>(); }

nb::list probabilities(const std::vector<llm::TokenProbability>& p) {
  nb::list out;
  for (const llm::TokenProbability& one : p) out.append(nb::make_tuple(one.token, one.logprob));
  return out;
}

void bind_sampler(nb::module_& m) {
  nb::class_<llm::Sampler>(m, "Sampler", "Draws tokens from logits; the same options and logits give the same tokens.")
      .def(
          "__init__",
          [](llm::Sampler* self, double temperature, int64_t top_k, double top_p, double min_p,
             double repetition_penalty, double frequency_penalty, double presence_penalty, int64_t penalty_window,
             std::vector<std::pair<int32_t, double>> logit_bias, uint64_t seed) {
            new (self) llm::Sampler(sampling(temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty,
                                             presence_penalty, penalty_window, std::move(logit_bias), seed));
          },
          "temperature"_a = 0.8, "top_k"_a = 40, "top_p"_a = 0.95, "min_p"_a = 0.05, "repetition_penalty"_a = 1.0,
          "frequency_penalty"_a = 0.0, "presence_penalty"_a = 0.0, "penalty_window"_a = 64,
          "logit_bias"_a = std::vector<std::pair<int32_t, double>>(), "seed"_a = 0)
      .def("accept", &llm::Sampler::accept)
      .def("reset", &llm::Sampler::reset)
      .def(
          "sample",
          [](llm::Sampler& s, const Tensor& logits, const std::vector<uint64_t>& allowed) {
            return s.sample(floats_of(logits), allowed);
          },
          "logits"_a, "allowed"_a = std::vector<uint64_t>());
  m.def("llm_top_logprobs",
        [](const Tensor& logits, int64_t count) { return probabilities(llm::top_logprobs(floats_of(logits), count)); });
}

}  // namespace

void bind_language_model(nb::module_& m) {
  nb::class_<LanguageModel>(m, "LanguageModel", "A decoder of a GGUF file with the sequences it holds.")
      .def_static("load", load, "file"_a, "max_context"_a = 0, "max_sequences"_a = 1, "cache_dtype"_a = "float32",
                  "prefill_chunk"_a = 0, "device"_a = "", "divided"_a = false,
                  "Loads a model; divided: each process of the world computes a part, and all make the same calls.")
      .def_prop_ro("architecture", [](const LanguageModel& l) { return l.config().architecture; })
      .def_prop_ro("name", [](const LanguageModel& l) { return l.config().name; })
      .def_prop_ro("vocab_size", &LanguageModel::vocab_size)
      .def_prop_ro("max_context", &LanguageModel::max_context)
      .def_prop_ro("max_sequences", &LanguageModel::max_sequences)
      .def_prop_ro("weight_bytes", &LanguageModel::weight_bytes)
      .def_prop_ro("context_warning", &LanguageModel::context_warning)
      .def_prop_ro("cache_bytes", &LanguageModel::cache_bytes)
      .def("position", &LanguageModel::position, "sequence"_a)
      .def("tokens",
           [](const LanguageModel& l, int64_t s) {
             const std::span<const int32_t> t = l.tokens(s);
             return std::vector<int32_t>(t.begin(), t.end());
           })
      .def("rewindable", &LanguageModel::rewindable, "sequence"_a, "tokens"_a)
      .def("rewind", &LanguageModel::rewind, "sequence"_a, "tokens"_a)
      .def("copy", &LanguageModel::copy, "source"_a, "target"_a, "tokens"_a)
      .def(
          "prefill",
          [](LanguageModel& l, int64_t s, const std::vector<int32_t>& tokens) {
            Unlocked work;
            return rows_of(l.prefill(s, tokens), l.vocab_size());
          },
          "sequence"_a, "tokens"_a)
      .def(
          "prefill_all",
          [](LanguageModel& l, int64_t s, const std::vector<int32_t>& tokens) {
            Unlocked work;
            return rows_of(l.prefill_all(s, tokens), l.vocab_size());
          },
          "sequence"_a, "tokens"_a)
      .def("decode", decode, "next"_a);
  bind_sampler(m);
}

}  // namespace tg::python
