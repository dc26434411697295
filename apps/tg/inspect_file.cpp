/// \file tg inspect: what is in a model's file.
#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "apps/tg/model_inputs.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/nn/npy_file.h"
#include "tinygrad/nn/state_file.h"
#include "tinygrad/nn/torch_load.h"
#include "tinygrad/onnx/operators.h"

namespace tg::app {
namespace {

using Json = nlohmann::ordered_json;

/// A file of any format, as data; strings are valid UTF-8.
struct FileContents {
  struct TensorRow {
    std::string name, type, shape;
    int64_t elements = 0, bytes = 0;
  };
  struct OperatorRow {
    std::string name;
    int64_t nodes = 0;
    std::string problem;  ///< empty: it is supported
  };
  explicit FileContents(std::string f) : format(std::move(f)) {}
  std::string format;
  std::vector<std::pair<std::string, std::string>> facts;  ///< producer, metadata, ...
  std::vector<std::pair<std::string, std::string>> inputs, outputs;
  std::vector<TensorRow> tensors;
  std::vector<OperatorRow> operators;
};

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::string out = "(";
  for (const int64_t n : sizes) out += str(out.size() > 1 ? ", " : "", n);
  return out + ")";
}

void add_tensors(FileContents& out, const nn::StateDict& tensors) {
  for (const auto& [name, t] : tensors)
    out.tensors.push_back({onnx::printable(name), std::string(t.dtype().name()), str(t.shape()), t.numel(),
                           t.numel() * t.stored_dtype().itemsize()});
}

// ---- ONNX ----

void count_operators(const onnx::ModelProto& model, const onnx::GraphProto& graph,
                     std::map<std::string, FileContents::OperatorRow>& rows);

/// Counts a node, and those of the graphs inside of it.
void count_node(const onnx::ModelProto& model, const onnx::Node& n,
                std::map<std::string, FileContents::OperatorRow>& rows) {
  const std::string name = onnx::printable(n.domain.empty() ? str(n.op) : str(n.domain, ".", n.op));
  FileContents::OperatorRow& row = rows[name];
  row.name = name;
  row.nodes++;
  const auto own = [&](const onnx::FunctionProto& f) { return f.name == n.op && f.domain == n.domain; };
  int64_t version = 1;
  for (const auto& [domain, v] : model.opsets)
    if (domain == n.domain) version = v;
  if (std::ranges::none_of(model.functions, own) && !onnx::find_operator(n.domain, n.op, version))
    row.problem = str("version ", version, " is not supported: there is ", onnx::supported_versions(n.domain, n.op));
  for (const onnx::Attribute& a : n.attributes)
    if (a.graph) count_operators(model, *a.graph, rows);
}

void count_operators(const onnx::ModelProto& model, const onnx::GraphProto& graph,
                     std::map<std::string, FileContents::OperatorRow>& rows) {
  for (const onnx::Node& n : graph.nodes) count_node(model, n, rows);
}

FileContents of_onnx(const std::string& path) {
  const onnx::Model model = onnx::Model::from_file(path);
  const onnx::ModelProto& proto = model.proto();
  FileContents out("ONNX");
  if (!proto.producer.empty())
    out.facts.emplace_back("producer", onnx::printable(str(proto.producer, " ", proto.producer_version)));
  out.facts.emplace_back("file version", str(proto.ir_version));
  for (const auto& [domain, version] : proto.opsets)
    out.facts.emplace_back(str("operators of ", domain.empty() ? "ai.onnx" : onnx::printable(domain)), str(version));
  for (const auto& [key, value] : proto.metadata) out.facts.emplace_back(onnx::printable(key), onnx::printable(value));
  for (const onnx::ValueInfo& v : model.inputs()) out.inputs.emplace_back(onnx::printable(v.name), describe(v));
  for (const onnx::ValueInfo& v : model.outputs()) out.outputs.emplace_back(onnx::printable(v.name), describe(v));
  for (const onnx::TensorProto& t : proto.graph.initializers)
    out.tensors.push_back({onnx::printable(t.name), onnx::elem_name(t.type), shape_text(t.dims), t.count(),
                           static_cast<int64_t>(t.bytes.bytes.size())});
  std::map<std::string, FileContents::OperatorRow> rows;
  count_operators(proto, proto.graph, rows);
  for (const onnx::FunctionProto& f : proto.functions)
    for (const onnx::Node& n : f.nodes) count_node(proto, n, rows);
  for (auto& [name, row] : rows) out.operators.push_back(std::move(row));
  std::ranges::stable_sort(out.operators, std::greater<>(), &FileContents::OperatorRow::nodes);
  return out;
}

// ---- other formats ----

std::string value_text(const io::GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, io::GgufArray>) return str(v.count, " values");
        else if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
        else if constexpr (std::is_same_v<T, std::string_view>) return onnx::printable(v);
        else if constexpr (std::is_integral_v<T>) return std::to_string(v);
        else return str(v);
      },
      value);
}

FileContents of_gguf(const std::string& path) {
  const io::GgufFile file = io::GgufFile::open(path);
  FileContents out("GGUF");
  for (const io::GgufMetadata::Entry& e : file.metadata().entries())
    out.facts.emplace_back(onnx::printable(e.key), value_text(e.value));
  for (const io::GgufTensor& t : file.tensors())
    out.tensors.push_back({onnx::printable(t.name), std::string(io::ggml_type_info(t.type).name), shape_text(t.shape),
                           t.numel(), static_cast<int64_t>(t.bytes)});
  return out;
}

FileContents of_safetensors(const std::string& path) {
  FileContents out("safetensors");
  for (const auto& [key, value] : nn::safe_metadata(path))
    out.facts.emplace_back(onnx::printable(key), onnx::printable(value));
  add_tensors(out, nn::safe_load(path));
  return out;
}

FileContents of_torch(const std::string& path) {
  FileContents out("torch.save");
  add_tensors(out, nn::torch_load(path));
  return out;
}

FileContents of_numpy(const std::string& path) {
  FileContents out("NumPy");
  add_tensors(out, path.ends_with(".npz") ? nn::npz_load(path) : nn::StateDict{{"array", nn::npy_load(path)}});
  return out;
}

/// Chooses the reader by the first bytes of the file, ONNX files, which have no mark, by what is left.
FileContents contents_of(const std::string& path) {
  if (std::filesystem::is_directory(path)) return of_safetensors(path);
  const io::MappedFile file = io::map_file(path, "inspect");
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  if (text.starts_with("GGUF")) return of_gguf(path);
  if (text.starts_with("\x93NUMPY") || path.ends_with(".npz")) return of_numpy(path);
  if (text.starts_with("PK") || text.starts_with("\x80")) return of_torch(path);
  const bool header = text.size() > 9 && text[8] == '{' && text.substr(4, 4) == std::string_view("\0\0\0\0", 4);
  if (header || path.ends_with(".index.json")) return of_safetensors(path);
  try {
    return of_onnx(path);
  } catch (const FormatError&) {
    if (path.ends_with(".onnx")) throw;
    throw FormatError(str("[inspect] ", path, ": this is no ONNX, GGUF, safetensors, torch.save or NumPy file"));
  }
}

// ---- printing ----

Json to_json(const FileContents& c, const std::string& path) {
  const auto pairs = [](const auto& list) {
    Json out = Json::object();
    for (const auto& [key, value] : list) out[key] = value;
    return out;
  };
  Json tensors = Json::array(), operators = Json::array();
  for (const FileContents::TensorRow& t : c.tensors)
    tensors.push_back({{"name", t.name}, {"type", t.type}, {"shape", t.shape}, {"bytes", t.bytes}});
  for (const FileContents::OperatorRow& r : c.operators)
    operators.push_back({{"name", r.name}, {"nodes", r.nodes}, {"supported", r.problem.empty()}});
  return {{"file", onnx::printable(path)}, {"format", c.format}, {"facts", pairs(c.facts)}, {"inputs", pairs(c.inputs)},
          {"outputs", pairs(c.outputs)},   {"tensors", tensors}, {"operators", operators}};
}

void print_pairs(const char* title, const std::vector<std::pair<std::string, std::string>>& list) {
  constexpr size_t kLongest = 200;
  if (!list.empty()) std::printf("%s:\n", title);
  for (const auto& [key, value] : list) {
    std::string line = value.substr(0, kLongest);
    std::ranges::replace_if(line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    std::printf("  %s  %s%s\n", key.c_str(), line.c_str(), value.size() > kLongest ? " ..." : "");
  }
}

void print_tensors(const std::vector<FileContents::TensorRow>& tensors, bool each) {
  std::map<std::string, std::pair<int64_t, int64_t>> types;  // tensors and bytes
  int64_t elements = 0, bytes = 0;
  for (const FileContents::TensorRow& t : tensors) {
    types[t.type].first++;
    types[t.type].second += t.bytes;
    elements += t.elements;
    bytes += t.bytes;
  }
  std::printf("tensors: %zu, %s values, %s\n", tensors.size(), human_count(static_cast<double>(elements)).c_str(),
              human_bytes(static_cast<double>(bytes)).c_str());
  for (const auto& [type, sum] : types)
    std::printf("  %s  %lld tensors, %s\n", type.c_str(), static_cast<long long>(sum.first),
                human_bytes(static_cast<double>(sum.second)).c_str());
  if (each)
    for (const FileContents::TensorRow& t : tensors)
      std::printf("  %s  %s %s\n", t.name.c_str(), t.type.c_str(), t.shape.c_str());
}

void print(const FileContents& c, const std::string& path, bool each) {
  std::printf("%s: %s\n", path.c_str(), c.format.c_str());
  print_pairs("about", c.facts);
  print_pairs("inputs", c.inputs);
  print_pairs("outputs", c.outputs);
  print_tensors(c.tensors, each);
  if (c.operators.empty()) return;
  int64_t nodes = 0, lacking = 0;
  for (const FileContents::OperatorRow& r : c.operators) {
    nodes += r.nodes;
    lacking += !r.problem.empty();
  }
  std::printf("operators: %zu, %lld nodes, %s\n", c.operators.size(), static_cast<long long>(nodes),
              lacking ? str(lacking, " not supported").c_str() : "all supported");
  for (const FileContents::OperatorRow& r : c.operators)
    std::printf("  %lld  %s%s%s\n", static_cast<long long>(r.nodes), r.name.c_str(), r.problem.empty() ? "" : "  ",
                r.problem.c_str());
}

}  // namespace

std::function<int()> define_inspect(CLI::App& app) {
  struct Options {
    std::string path;
    bool json = false, tensors = false;
  };
  auto o = std::make_shared<Options>();
  app.footer("Examples:\n  tg inspect model.onnx\n  tg inspect --tensors model.gguf");
  app.add_option("file", o->path, "ONNX, GGUF, safetensors, torch.save or NumPy; a folder of safetensors")->required();
  app.add_flag("--tensors", o->tensors, "List each tensor");
  app.add_flag("--json", o->json, "Print all of it as JSON");
  return [o] {
    const FileContents contents = contents_of(o->path);
    if (o->json) std::cout << to_json(contents, o->path).dump() << '\n';
    else print(contents, o->path, o->tensors);
    return kOk;
  };
}

}  // namespace tg::app
