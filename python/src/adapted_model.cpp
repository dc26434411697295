/// \file Fine-tuning of language models: tinygrad_cpp.llm.AdaptedModel.
#include "tinygrad/llm/adapted_model.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "casters.h"
#include "interrupt.h"

namespace tg::python {

void bind_adapted_model(nb::module_& m) {
  using llm::AdaptedModel;
  nb::class_<AdaptedModel>(m, "AdaptedModel",
                           "A decoder of a GGUF file whose packed weights are fine-tuned by low-rank adapters.")
      .def_static(
          "load",
          [](const std::string& file, int64_t rank, double alpha, std::vector<std::string> targets, int64_t max_time,
             const std::string& device) {
            const Unlocked work;
            return AdaptedModel::load(std::filesystem::path(file), {rank, alpha, std::move(targets)}, max_time, device);
          },
          "file"_a, "rank"_a = 8, "alpha"_a = 16.0, "targets"_a = std::vector<std::string>{"attn_q", "attn_v"},
          "max_time"_a = 0, "device"_a = "",
          "Opens a model. `targets` are the last parts of the names of the projections that get adapters.")
      .def_prop_ro(
          "adapters",
          [](const AdaptedModel& a) {
            nb::dict out;
            for (const auto& [name, t] : a.adapters()) out[name.c_str()] = t;
            return out;
          },
          "The adapters by name: what an optimizer trains.")
      .def("logits", &AdaptedModel::logits, "tokens"_a,
           "Returns the logits after each token: (batch, time) -> (batch, time, vocab_size).")
      .def("loss", &AdaptedModel::loss, "tokens"_a,
           "Returns the mean cross entropy of each token but the first: (batch, time) -> ().");
}

}  // namespace tg::python
