/// \file tg explain: what becomes of a tensor expression, from the graph to the machine.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "apps/tg/expression.h"
#include "apps/tg/measured_roofline.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/inspect_tensors.h"

namespace tg::app {
namespace {

struct Options {
  std::string expression;
  bool source = false, json = false, list = false, quick = false;
};

/// Returns the rates of the device: those of this processor are measured, those of others are not known.
Roofline roofline_of(const std::string& device) {
  return Device::get(device).kind() == "CPU" ? measured_roofline() : Roofline{};
}

using Json = nlohmann::ordered_json;
template <class T> Json value_json(const T& v) { return v; }
Json value_json(const std::vector<CostAccount::Part>& parts) {
  Json out = Json::object();
  for (const CostAccount::Part& p : parts) out[p.what] = p.cycles;
  return out;
}
template <class T> Json list_json(const std::vector<T>& list) {
  Json out = Json::array();
  for (const T& one : list) {
    Json fields = Json::object();
    each_field(one, [&](const char* name, const auto& value) { fields[name] = value_json(value); });
    out.push_back(std::move(fields));
  }
  return out;
}
Json to_json(const Inspection& in) {
  return {{"graph", in.graph}, {"buffers", list_json(in.buffers)}, {"kernels", list_json(in.kernels)}};
}

int list_names(bool json) {
  auto functions = function_names(), methods = method_names();
  for (auto* names : {&functions, &methods}) std::sort(names->begin(), names->end());
  if (json) {
    std::cout << Json{{"functions", functions}, {"methods", methods}} << '\n';
    return kOk;
  }
  auto print = [](const char* what, const std::vector<std::string>& names) {
    std::cout << what;
    for (const std::string& n : names) std::cout << ' ' << n;
    std::cout << '\n';
  };
  print("functions:", functions);
  print("methods:", methods);
  return kOk;
}

int run(const Options& o) {
  if (o.list) return list_names(o.json);
  const Tensor t = evaluate(o.expression);
  const Inspection in = inspect({t}, {.measure = !o.quick, .assembly = o.source || o.json});
  if (o.json) std::cout << to_json(in).dump() << '\n';
  else std::cout << explain(in, o.quick ? Roofline{} : roofline_of(Device::default_name()), o.source);
  return kOk;
}

}  // namespace

std::function<int()> define_explain(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.footer(
      "Examples:\n  tg explain 'rand(512, 512) @ rand(512, 512)'\n  tg explain --source 'x = randn(64, 1024); "
      "x.softmax(-1)'\n  DEV=NULL:CUDA:sm_90 tg explain 'empty(8, 64, 56, 56).conv2d(empty(64, 64, 3, 3), "
      "padding=1).relu()'");
  auto* expression = app.add_option("expression", o->expression,
                                    "Statements separated by ';' in Python's spelling; the last one is explained");
  app.add_flag("--source", o->source, "Print source and machine code of every kernel as well");
  app.add_flag("--json", o->json, "Print all of it as JSON");
  app.add_flag("--quick", o->quick, "Run nothing: no times, no roofline");
  auto* list = app.add_flag("--list", o->list, "List the functions and methods that expressions know");
  expression->excludes(list);
  return [o] {
    if (o->expression.empty() && !o->list)
      throw UsageError("[explain] got no expression: tg explain --help has examples");
    return run(*o);
  };
}

}  // namespace tg::app
