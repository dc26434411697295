/// \file tg run: a model of an ONNX file on pictures, sound, arrays, texts and random values.
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/tg/command.h"
#include "apps/tg/measured_roofline.h"
#include "apps/tg/model_inputs.h"
#include "apps/tg/pipelines.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/stats.h"
#include "tinygrad/base/text.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/nn/npy_file.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/inspect_tensors.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::app {
namespace {

using Json = nlohmann::ordered_json;
using SteadyClock = std::chrono::steady_clock;
double since(SteadyClock::time_point t) { return std::chrono::duration<double>(SteadyClock::now() - t).count(); }

struct Options {
  std::string model, labels, type;
  PipelineOptions pipeline;
  std::vector<std::string> inputs, sizes, outputs;
  InputOptions input;
  int64_t top = 5, seconds = 2;
  bool benchmark = false, profile = false, explain = false, json = false;
};

/// Splits "NAME=REST".
std::pair<std::string, std::string> split(const std::string& text, const char* option) {
  const size_t at = text.find('=');
  TG_CHECK(app::UsageError, at != std::string::npos && at > 0, "[run] got ", option, " ", text,
           ", expected NAME=VALUE");
  return {text.substr(0, at), text.substr(at + 1)};
}

/// Reads "1x3x224".
std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> out;
  for (const char *at = text.data(), *end = at + text.size(); at <= end; at++) {
    int64_t n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    TG_CHECK(app::UsageError, error == std::errc() && n > 0 && (next == end || *next == 'x'), "[run] got size ", text,
             ", expected a number or several with x between");
    out.push_back(n);
    at = next;
  }
  return out;
}

// ---- results ----

std::vector<std::string> read_labels(const std::string& path) {
  std::vector<std::string> out;
  std::ifstream in(path);
  TG_CHECK(FileError, in, "[run] ", path, ": cannot be read");
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// Returns whether values are probabilities: not negative, with a sum of one.
bool are_probabilities(const std::vector<float>& v) {
  const float sum = std::accumulate(v.begin(), v.end(), 0.f);
  return std::abs(sum - 1) < 1e-2f && std::ranges::all_of(v, [](float x) { return x >= 0; });
}

/// Returns the most likely classes of a row.
Json classes_of(std::vector<float> v, const std::vector<std::string>& labels, int64_t top) {
  if (!are_probabilities(v)) {
    const float most = *std::ranges::max_element(v);
    float sum = 0;
    for (float& x : v) sum += x = std::exp(x - most);
    for (float& x : v) x /= sum;
  }
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t n = std::min(order.size(), static_cast<size_t>(top));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                    [&](size_t a, size_t b) { return v[a] > v[b] || (v[a] == v[b] && a < b); });
  Json out = Json::array();
  for (size_t i = 0; i < n; i++) {
    out.push_back({{"class", order[i]}, {"probability", v[order[i]]}});
    if (order[i] < labels.size()) out.back()["label"] = onnx::printable(labels[order[i]]);
  }
  return out;
}

/// Returns what is said of a tensor: type, shape, extremes, few values; where it can be a row of classes, the most
/// likely ones.
Json facts_of(const Tensor& t, const Options& o, const std::vector<std::string>& labels) {
  Json out{{"type", t.dtype().name()}, {"shape", str(t.shape())}};
  if (t.numel() == 0) return out;
  const std::vector<float> v = t.cast(dtypes::float32).to_vector<float>();
  if (v.size() <= 8) out["values"] = v;
  const auto [least, most] = std::ranges::minmax_element(v);
  out["least"] = *least;
  out["mean"] = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  out["greatest"] = *most;
  const bool row = t.ndim() > 0 && t.ndim() <= 2 && t.numel() == t.shape(-1) && t.is_floating_point();
  if (row && (t.numel() >= 10 || static_cast<int64_t>(labels.size()) == t.numel()))
    out["classes"] = classes_of(v, labels, o.top);
  return out;
}

/// Returns an item of a map.
Json json_of(const onnx::ValueMap::Item& v) {
  if (const auto* text = std::get_if<std::string>(&v)) return onnx::printable(*text);
  if (const auto* whole = std::get_if<int64_t>(&v)) return *whole;
  return std::get<double>(v);
}
std::string shown(const onnx::ValueMap::Key& k) {
  const auto* text = std::get_if<std::string>(&k);
  return text ? onnx::printable(*text) : str(std::get<int64_t>(k));
}

/// Returns what is said of a result of any kind.
Json facts_of(const onnx::Value& v, const Options& o, const std::vector<std::string>& labels) {
  if (const onnx::StringArray* texts = v.strings()) {
    Json out{{"type", "text"}, {"texts", Json::array()}};
    for (const std::string& text : texts->texts) out["texts"].push_back(onnx::printable(text));
    return out;
  }
  if (const onnx::Sequence* s = v.sequence()) {
    Json out{{"type", "sequence"}, {"items", Json::array()}};
    for (const onnx::Value& item : s->items) out["items"].push_back(facts_of(item, o, labels));
    return out;
  }
  if (const onnx::ValueMap* m = v.map()) {
    Json out{{"type", "map"}, {"entries", Json::object()}};
    for (const auto& [key, item] : m->items) out["entries"][shown(key)] = json_of(item);
    return out;
  }
  return v.is_none() ? Json{{"type", "nothing"}} : facts_of(v.as_tensor(), o, labels);
}

/// Prints what facts_of returns.
void print(const std::string& name, const Json& facts) {
  std::printf("  %s  %s", name.c_str(), facts["type"].get<std::string>().c_str());
  if (facts.contains("shape")) std::printf(" %s", facts["shape"].get<std::string>().c_str());
  if (facts.contains("texts"))
    for (const Json& text : facts["texts"]) std::printf(" \"%s\"", text.get<std::string>().c_str());
  if (facts.contains("values")) {
    std::printf("  ");
    for (const Json& x : facts["values"]) std::printf(" %g", x.is_null() ? NAN : x.get<double>());
  } else if (facts.contains("mean")) {
    const auto number = [&](const char* key) { return facts[key].is_null() ? NAN : facts[key].get<double>(); };
    std::printf("  least %g, mean %g, greatest %g", number("least"), number("mean"), number("greatest"));
  }
  if (facts.contains("entries")) std::printf(" %s", facts["entries"].dump().c_str());
  std::printf("\n");
  if (facts.contains("items"))
    for (size_t i = 0; i < facts["items"].size(); i++) print(str(name, "[", i, "]"), facts["items"][i]);
  if (!facts.contains("classes")) return;
  for (const Json& c : facts["classes"])
    std::printf("    %5.1f %%  %lld%s%s\n", 100 * c["probability"].get<double>(),
                static_cast<long long>(c["class"].get<int64_t>()), c.contains("label") ? "  " : "",
                c.value("label", "").c_str());
}

/// Writes a result as .npy, .png or .jpg.
void save(const Tensor& t, const std::string& path) {
  TG_CHECK(ValueError, t.defined(), "[run] the output for ", path, " is no tensor");
  if (path.ends_with(".npy")) nn::npy_save(t, path);
  else save_picture(t, path);
}

// ---- what else is asked for ----

Tensors tensors_of(const onnx::Model::NamedValues& values) {
  Tensors out;
  for (const auto& [name, v] : values)
    if (v.tensor() || v.host()) out.push_back(v.as_tensor());
  return out;
}

/// Times captured calls with the same inputs.
Json benchmark(const onnx::Model& model, const onnx::Model::NamedValues& inputs, const Options& o) {
  Tensors given;
  for (const auto& [name, v] : inputs) {
    const Tensor* t = v.tensor();
    TG_CHECK(app::UsageError, t, "[run] input ", name, " is no tensor: such models cannot be timed");
    given.push_back(*t);
  }
  auto call = jit([&](const Tensors& in) {
    onnx::Model::NamedValues values;
    for (size_t i = 0; i < in.size(); i++)
      values.emplace_back(inputs[i].first, onnx::Value(in[i], inputs[i].second.elem()));
    return tensors_of(model.run(values));
  });
  for (int i = 0; i < 3; i++) call(given);
  GlobalCounters::reset();
  std::vector<double> seconds;
  for (const auto start = SteadyClock::now(); seconds.size() < 5 || since(start) < static_cast<double>(o.seconds);) {
    const auto one = SteadyClock::now();
    call(given);
    Device::synchronize();
    seconds.push_back(since(one));
  }
  const auto calls = static_cast<int64_t>(seconds.size());
  const Summary s = summarize(seconds);
  const double operations = static_cast<double>(GlobalCounters::ops) / static_cast<double>(calls);
  Json out{{"calls", calls},
           {"seconds", s.median},
           {"least_seconds", s.min},
           {"greatest_seconds", s.max},
           {"kernels", GlobalCounters::kernels / calls},
           {"operations", operations}};
  if (Device::get(Device::default_name()).kind() == "CPU")
    out["peak_fraction"] = operations / s.median / measured_roofline().operations;
  return out;
}

void print_times(const Json& times) {
  const auto number = [&](const char* key) { return times[key].get<double>(); };
  std::printf("%g calls: median %s (least %s, greatest %s), %g kernels, %s operations, %s/s", number("calls"),
              human_seconds(number("seconds")).c_str(), human_seconds(number("least_seconds")).c_str(),
              human_seconds(number("greatest_seconds")).c_str(), number("kernels"),
              human_count(number("operations")).c_str(), human_count(number("operations") / number("seconds")).c_str());
  if (times.contains("peak_fraction")) std::printf(" (%.0f %% of the peak of float32)", 100 * number("peak_fraction"));
  std::printf("\n");
}

/// Prints the kernels that take longest.
void profile(const Tensors& results) {
  const Inspection in = inspect(results, {.measure = true});
  double all = 0;
  std::vector<const InspectedKernel*> order;
  for (const InspectedKernel& k : in.kernels) {
    all += k.seconds;
    order.push_back(&k);
  }
  std::ranges::stable_sort(order, std::greater<>(), [](const InspectedKernel* k) { return k->seconds; });
  std::printf("%zu kernels, %s; those that take longest:\n", in.kernels.size(), human_seconds(all).c_str());
  for (size_t i = 0; i < order.size() && i < 15; i++) {
    const InspectedKernel& k = *order[i];
    const double operations = static_cast<double>(k.estimates.ops);
    std::printf("  %4.1f %%  %9s  %9s/s  %s  %s\n", all > 0 ? 100 * k.seconds / all : 0,
                human_seconds(k.seconds).c_str(), human_count(k.seconds > 0 ? operations / k.seconds : 0).c_str(),
                k.name.c_str(), k.origin.c_str());
  }
}

onnx::Model load(const Options& o) {
  onnx::ModelOptions options;
  if (!o.type.empty()) options.float_type = o.type == "float16" ? dtypes::float16 : dtypes::bfloat16;
  return onnx::Model::from_file(o.model, options);
}

Json facts_of(const onnx::Model& model, const std::vector<MadeInput>& made) {
  Json out = Json::array();
  for (size_t i = 0; i < made.size(); i++)
    out.push_back({{"name", onnx::printable(made[i].name)},
                   {"type", describe(model.inputs()[i])},
                   {"shape", str(made[i].value.shape())},
                   {"made", onnx::printable(made[i].made)}});
  return out;
}

void print_inputs(const Json& inputs) {
  std::printf("inputs:\n");
  for (const Json& i : inputs)
    std::printf("  %s  %s  %s (%s)\n", i["name"].get<std::string>().c_str(), i["type"].get<std::string>().c_str(),
                i["shape"].get<std::string>().c_str(), i["made"].get<std::string>().c_str());
}

/// Returns an output; undefined where it is no tensor.
Tensor named(const onnx::Model::NamedValues& results, const std::string& name) {
  std::string known;
  for (const auto& [n, v] : results) {
    if (n == name) return v.as_tensor();
    known += str(known.empty() ? "" : ", ", n);
  }
  throw UsageError(str("[run] got output ", name, ", expected one of: ", known));
}

/// Runs a pipeline on files. Its result is a picture at most: -o takes the name alone.
int run_pipeline(const Pipeline& p, Options& o) {
  TG_CHECK(app::UsageError, !o.pipeline.files.empty(), "[run] ", p.name, " got no file");
  TG_CHECK(app::UsageError, o.outputs.size() <= 1 && o.inputs.empty(), "[run] ", p.name,
           " takes files, and --output once");
  if (!o.outputs.empty()) o.pipeline.output = o.outputs[0];
  o.pipeline.json = o.json;
  return p.run(o.pipeline);
}

int run(Options& o) {
  if (const Pipeline* p = find_pipeline(o.model)) return run_pipeline(*p, o);
  TG_CHECK(app::UsageError, o.pipeline.files.empty() && o.pipeline.weights.empty(), "[run] got \"", o.model,
           "\", which is a file: files behind it and --weights are for pipelines");
  for (const std::string& text : o.inputs) o.input.given.insert(split(text, "--input"));
  for (const std::string& text : o.sizes) {
    const auto [name, value] = split(text, "--size");
    const std::vector<int64_t> sizes = numbers(value);
    if (value.find('x') == std::string::npos) o.input.sizes[name] = sizes[0];
    o.input.shapes[name] = sizes;
  }
  const std::vector<std::string> labels = o.labels.empty() ? std::vector<std::string>() : read_labels(o.labels);
  const onnx::Model model = load(o);
  const std::vector<MadeInput> made = make_inputs(model, o.input);
  Json report{{"file", onnx::printable(o.model)}, {"inputs", facts_of(model, made)}, {"outputs", Json::array()}};
  if (!o.json) print_inputs(report["inputs"]);
  onnx::Model::NamedValues inputs;
  for (const MadeInput& m : made) inputs.emplace_back(m.name, m.value);
  const auto start = SteadyClock::now();
  const onnx::Model::NamedValues results = model.run(inputs);
  const Tensors tensors = tensors_of(results);
  if (o.profile) profile(tensors);
  if (o.explain) std::cout << explain(inspect(tensors, {.measure = true}), measured_roofline()) << std::flush;
  realize(tensors);
  Device::synchronize();
  report["seconds"] = since(start);
  if (!o.json)
    std::printf("outputs, %s with %lld kernels compiled:\n", human_seconds(report["seconds"].get<double>()).c_str(),
                static_cast<long long>(GlobalCounters::compiled.load()));
  for (const auto& [name, v] : results) {
    const Json facts = facts_of(v, o, labels);
    if (!o.json) print(onnx::printable(name), facts);
    report["outputs"].push_back({{"name", onnx::printable(name)}, {"value", facts}});
  }
  for (const std::string& text : o.outputs) {
    const auto [name, path] = split(text, "--output");
    save(named(results, name), path);
    if (!o.json) std::printf("wrote %s\n", path.c_str());
  }
  if (o.benchmark) {
    report["benchmark"] = benchmark(model, inputs, o);
    if (!o.json) print_times(report["benchmark"]);
  }
  if (o.json) std::cout << report.dump() << '\n';
  return kOk;
}

}  // namespace

std::function<int()> define_run(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.footer(
      "Examples:\n  tg run model.onnx\n  tg run resnet.onnx -i image=cat.jpg --mean 0.485,0.456,0.406 --std "
      "0.229,0.224,0.225 --labels classes.txt\n  tg run vad.onnx -i input=speech.wav -i sr=16000 --benchmark\n  tg run "
      "upscale.onnx -i x=small.png -o y=large.png");
  std::string known;
  for (const Pipeline& p : pipelines()) known += str("; ", p.name, ": ", p.help);
  app.add_option("model", o->model, "An ONNX file, or a pipeline" + known)->required();
  app.add_option("files", o->pipeline.files, "What a pipeline is run on");
  app.add_option("--weights", o->pipeline.weights, "A pipeline's models: a file, a folder, or a wheel");
  auto* json = app.add_flag("--json", o->json, "Print all of it as JSON");
  app.add_option("-i,--input", o->inputs,
                 "NAME=FILE (picture, sound, .npy, text), random, zeros, ones, or numbers 1,2,3");
  app.add_option("-o,--output", o->outputs, "NAME=FILE: write an output as .npy, .png or .jpg");
  app.add_option("--size", o->sizes,
                 "NAME=NUMBER: a size that the file only names; INPUT=2x512: the shape of an input");
  app.add_option("--labels", o->labels, "A file with the name of each class, one a line");
  app.add_option("--top", o->top, "So many of the most likely classes")->check(whole_number(1, 1000));
  app.add_option("--mean", o->input.picture.mean, "Subtracted from pictures, for all or each channel")->delimiter(',');
  app.add_option("--std", o->input.picture.deviation, "What pictures are divided by then")->delimiter(',');
  app.add_option("--scale", o->input.picture.scale, "What pixels are multiplied by first")->capture_default_str();
  app.add_flag("--bgr", o->input.picture.bgr, "Give pictures as blue, green, red");
  app.add_option("--rate", o->input.rate, "Samples of sound a second")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--seed", o->input.seed, "Of random inputs")->check(whole_number(0, INT32_MAX));
  app.add_option("--type", o->type, "Compute float32 models in this type")
      ->check(CLI::IsMember({"float16", "bfloat16"}));
  app.add_flag("--benchmark", o->benchmark, "Time captured calls");
  app.add_option("--seconds", o->seconds, "How long to time them")->check(whole_number(1, 3600))->capture_default_str();
  app.add_flag("--profile", o->profile, "Show the kernels that take longest")->excludes(json);
  app.add_flag("--explain", o->explain, "Show all kernels, and what limits each")->excludes(json);
  return [o] { return run(*o); };
}

}  // namespace tg::app
