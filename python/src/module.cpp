/// \file The extension tinygrad_cpp._core.
#include "bind.h"
#include "tinygrad/base/paths.h"

NB_MODULE(_core, m) {
  using namespace tg::python;
  nb::set_leak_warnings(false);  // the DType objects live as long as the interpreter
  m.doc() = "tinygrad in C++: the compiled part of tinygrad_cpp";
  m.attr("__version__") = nb::str(tg::version().data(), tg::version().size());
  bind_errors(m);
  bind_dtype(m);
  bind_env(m);
  bind_uop(m);
  bind_matcher(m);
  bind_tensor(m);
  bind_host_memory(m);
  bind_device(m);
  bind_counters(m);
  bind_gguf(m);
  bind_nn(m);
  bind_optim(m);
  bind_llm_chat(m);
  bind_llm_server(m);
  bind_llm_tokenizer(m);
  bind_llm_bert(m);
  bind_files(m);
  bind_jit(m);
  bind_language_model(m);
  bind_adapted_model(m);
  bind_chat_session(m);
  bind_distributed(m);
  bind_parallel(m);
  bind_onnx(m);
  bind_call_site(m);
  bind_argument_errors(m);
}
