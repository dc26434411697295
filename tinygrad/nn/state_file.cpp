/// \file Files of parameters.
#include "tinygrad/nn/state_file.h"

#include <fmt/format.h>

#include <unordered_map>

#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/safetensors.h"

namespace tg::nn {

void safe_save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata) {
  std::vector<io::SafetensorsEntry> entries;
  Tensors values;
  for (const auto& [name, t] : tensors) {
    TG_CHECK(ValueError, t.defined(), "[safe_save] got an undefined tensor for ", name, ", expected one with values");
    TG_CHECK(DTypeError, !t.dtype().is_weak(), "[safe_save] got ", name, " of ", t.dtype(),
             ", expected concrete dtypes: cast it");
    io::SafetensorsEntry e{name, t.dtype(), {}, 0, 0};
    for (const SInt& n : t.shape()) e.shape.push_back(n.value());
    entries.push_back(std::move(e));
    values.push_back(t.detach().contiguous());
  }
  const std::string header = io::safetensors_header(entries, metadata);
  if (!values.empty()) realize(values);
  const auto raw = [](const auto& bytes) {
    return std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  std::vector<std::span<const uint8_t>> parts{raw(header)};
  for (const Tensor& t : values)
    if (t.numel()) parts.push_back(raw(t.bytes()));
  io::write_file_durable(path, parts, "safe_save");
}

namespace {

constexpr std::string_view kIndexSuffix = ".index.json", kSuffix = ".safetensors", kModel = "model";

io::SafetensorsIndex read_index(const std::filesystem::path& path, std::string_view op) {
  const io::MappedFile file = io::map_file(path, op);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  return io::parse_safetensors_index(text, path.string());
}

/// Returns which save a file or an index is of, "" where it does not say.
std::string save_of(const Metadata& metadata) {
  for (const auto& [key, value] : metadata)
    if (key == kSaveKey) return value;
  return "";
}

/// Returns the tensors of a file that belongs to an index.
StateDict load_shard(const std::filesystem::path& path, const std::string& save) {
  const ByteSource source = ByteSource::of_file(path, "safe_load");
  const Metadata metadata = io::parse_safetensors(source.bytes(), source.bytes().size(), source.name()).metadata;
  TG_CHECK(FormatError, save.empty() || save_of(metadata) == save, "[safe_load] ", path.string(), ": got a file of ",
           save_of(metadata).empty() ? "no save" : "save " + save_of(metadata).substr(0, 32),
           ", but its index is of save ", save.substr(0, 32));
  return safe_load(source);
}

/// Returns the tensors that an index names, each from its file.
StateDict load_shards(const std::filesystem::path& index_path) {
  const io::SafetensorsIndex index = read_index(index_path, "safe_load");
  const std::string save = save_of(index.metadata);
  std::unordered_map<std::string, std::unordered_map<std::string, Tensor>> shards;
  StateDict out;
  for (const auto& [tensor, shard] : index.files) {
    const auto [at, is_new] = shards.try_emplace(shard);
    if (is_new)
      for (auto& [name, t] : load_shard(index_path.parent_path() / shard, save)) at->second.emplace(name, t);
    const auto found = at->second.find(tensor);
    TG_CHECK(FormatError, found != at->second.end(), "[safe_load] ", index_path.string(), ": ", shard, " has no ",
             tensor);
    out.emplace_back(tensor, found->second);
  }
  return out;
}

/// Returns the file or index of a model in a folder.
std::filesystem::path model_in(const std::filesystem::path& folder) {
  const std::filesystem::path one = folder / str(kModel, kSuffix), index = folder / str(kModel, kSuffix, kIndexSuffix);
  std::error_code none;
  return std::filesystem::exists(index, none) ? index : one;
}

/// Returns the file or index that a path means.
std::filesystem::path file_of(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none) ? model_in(path) : path;
}

}  // namespace

StateDict safe_load(const ByteSource& source) {
  const HostFaultWatch faults;
  const io::Safetensors contents = io::parse_safetensors(source.bytes(), source.bytes().size(), source.name());
  faults.check();
  StateDict out;
  for (const io::SafetensorsEntry& e : contents.entries)
    out.emplace_back(e.name,
                     source.view(contents.data_start + e.begin, e.dtype, Shape{std::span<const int64_t>(e.shape)}));
  return out;
}

StateDict safe_load(const std::filesystem::path& path, const std::string& device) {
  const std::filesystem::path file = file_of(path);
  StateDict out =
      file.string().ends_with(kIndexSuffix) ? load_shards(file) : safe_load(ByteSource::of_file(file, "safe_load"));
  for (auto& [name, t] : out) t = t.to(device);
  return out;
}

void safe_save_sharded(const StateDict& tensors, const std::filesystem::path& folder, const ShardOptions& o) {
  std::vector<StateDict> shards(1);
  uint64_t total = 0, in_last = 0;
  for (const auto& [name, t] : tensors) {
    TG_CHECK(ValueError, t.defined(), "[safe_save_sharded] got an undefined tensor for ", name,
             ", expected one with values");
    const auto bytes = static_cast<uint64_t>(t.numel() * t.element_size());
    if (in_last + bytes > o.max_bytes && !shards.back().empty()) {
      shards.emplace_back();
      in_last = 0;
    }
    shards.back().emplace_back(name, t);
    in_last += bytes;
    total += bytes;
  }
  if (shards.size() == 1) return safe_save(tensors, folder / str(o.name, kSuffix), o.metadata);
  io::SafetensorsIndex index{{}, {{"total_size", std::to_string(total)}}};
  for (size_t i = 0; i < shards.size(); i++) {
    const std::string file = fmt::format("{}-{:05}-of-{:05}{}", o.name, i + 1, shards.size(), kSuffix);
    safe_save(shards[i], folder / file, o.metadata);
    for (const auto& [name, t] : shards[i]) index.files.emplace_back(name, file);
  }
  const std::string text = io::safetensors_index(index);
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  io::write_file_durable(folder / str(o.name, kSuffix, kIndexSuffix), std::span(&bytes, 1), "safe_save_sharded");
}

Metadata safe_metadata(const std::filesystem::path& path) {
  const std::filesystem::path name = file_of(path);
  if (name.string().ends_with(kIndexSuffix)) return read_index(name, "safe_metadata").metadata;
  const io::MappedFile file = io::map_file(name, "safe_metadata");
  return io::parse_safetensors(file.bytes, file.bytes.size(), name.string()).metadata;
}

}  // namespace tg::nn
