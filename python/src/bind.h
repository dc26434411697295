/// \file The parts of the extension, one file each; module.cpp calls them in this order.
#pragma once
#include <nanobind/nanobind.h>

#include "tinygrad/tensor/tensor.h"

namespace tg::python {

namespace nb = nanobind;
using namespace nb::literals;
using TensorClass = nb::class_<Tensor>;

void bind_errors(nb::module_& m);
void bind_argument_errors(nb::module_& m);  // last: it goes over everything the others made
void bind_dtype(nb::module_& m);
void bind_env(nb::module_& m);
void bind_uop(nb::module_& m);
void bind_matcher(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_host_memory(nb::module_& m);
void bind_device(nb::module_& m);
void bind_counters(nb::module_& m);
void bind_gguf(nb::module_& m);
void bind_nn(nb::module_& m);
void bind_optim(nb::module_& m);
void bind_llm_chat(nb::module_& m);
void bind_llm_server(nb::module_& m);
void bind_llm_bert(nb::module_& m);
void bind_llm_tokenizer(nb::module_& m);
void bind_files(nb::module_& m);
void bind_language_model(nb::module_& m);
void bind_adapted_model(nb::module_& m);
void bind_chat_session(nb::module_& m);
void bind_distributed(nb::module_& m);
void bind_parallel(nb::module_& m);
void bind_onnx(nb::module_& m);

// Families of Tensor methods, added by bind_tensor.
void bind_tensor_creation(TensorClass& c);
void bind_tensor_data(TensorClass& c);
void bind_tensor_movement(TensorClass& c);
void bind_tensor_elementwise(TensorClass& c);
void bind_tensor_reduce(TensorClass& c);
void bind_tensor_index(TensorClass& c);
void bind_tensor_matrix(TensorClass& c);
void bind_tensor_gradient(TensorClass& c);
void bind_tensor_dlpack(TensorClass& c);
void bind_tensor_exchange(TensorClass& c);
void bind_function(nb::module_& m, TensorClass& c);
void bind_jit(nb::module_& m);
void bind_call_site(nb::module_& m);
void bind_tensor_schedule(TensorClass& c);
void bind_tensor_multi(TensorClass& c);
void bind_tensor_mesh(TensorClass& c);

}  // namespace tg::python
