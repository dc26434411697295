/// \file Models in GGUF files: mapped parts, and their tensors.
#include <cstdio>
#include <unordered_map>

#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/ggml_dequantize.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::io {
namespace {

/// Returns the `number`-th of `count` names of files, counting from 1.
std::string part_suffix(uint64_t number, uint64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(number),
                static_cast<unsigned long long>(count));
  return text;
}

uint64_t split_count(const GgufMetadata& m) {
  return static_cast<uint64_t>(m.integer_or("split.count", 1, 0, static_cast<int64_t>(kMaxGgufParts)));
}

}  // namespace

struct GgufFile::Parts {
  struct Part {
    MappedFile file;
    Gguf gguf;
  };
  std::vector<Part> parts;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> index;

  void add(MappedFile file, std::string_view name) {
    Gguf g = parse_gguf(file.bytes, name);
    for (GgufTensor& t : g.tensors) {
      t.part = parts.size();
      tensors.push_back(std::move(t));
    }
    g.tensors.clear();
    parts.push_back({std::move(file), std::move(g)});
  }
  /// Makes the index, once all tensors are there.
  void complete() {
    index.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); i++)
      if (!index.emplace(tensors[i].name, i).second)
        throw FormatError(str("[gguf] ", parts[tensors[i].part].gguf.metadata.file(), ": byte ", tensors[i].offset,
                              " (", tensors[i].name, "): another part has a tensor of this name"));
  }
  const GgufMetadata& metadata(size_t part = 0) const { return parts[part].gguf.metadata; }
};

GgufFile GgufFile::open(const std::filesystem::path& path) {
  const HostFaultWatch faults;
  auto all = std::make_shared<Parts>();
  all->add(map_file(path, "gguf"), path.string());
  const uint64_t count = split_count(all->metadata());
  if (count > 1) {
    TG_CHECK(ValueError, all->metadata().integer_or("split.no", 0, 0, INT64_MAX) == 0, "[gguf] ", path.string(),
             ": got a later part of a model in ", count, " files, expected the first");
    const std::string name = path.filename().string(), suffix = part_suffix(1, count);
    TG_CHECK(ValueError, name.ends_with(suffix), "[gguf] ", path.string(), ": got the first of ", count,
             " files, expected a name that ends with ", suffix);
    const std::string stem = name.substr(0, name.size() - suffix.size());
    for (uint64_t i = 1; i < count; i++) {
      const std::filesystem::path part = path.parent_path() / (stem + part_suffix(i + 1, count));
      all->add(map_file(part, "gguf"), part.string());
      const GgufMetadata& m = all->metadata(i);
      const auto number = static_cast<int64_t>(i), parts = static_cast<int64_t>(count);
      m.integer("split.no", number, number);
      m.integer("split.count", parts, parts);
    }
    const auto tensors = static_cast<int64_t>(all->tensors.size());
    all->metadata().integer_or("split.tensors.count", tensors, tensors, tensors);
  }
  all->complete();
  faults.check();
  GgufFile out;
  out.parts_ = std::move(all);
  return out;
}

GgufFile GgufFile::from_memory(std::span<uint8_t> bytes, std::shared_ptr<void> owner, std::string_view name) {
  auto all = std::make_shared<Parts>();
  all->add({bytes, std::move(owner)}, name);
  TG_CHECK(ValueError, split_count(all->metadata()) <= 1, "[gguf] ", name,
           ": got one of several files in memory, expected the path of the first");
  all->complete();
  GgufFile out;
  out.parts_ = std::move(all);
  return out;
}

GgufFile GgufFile::from_tensor(const Tensor& bytes) {
  TG_CHECK(DTypeError, bytes.dtype() == dtypes::uint8, "[gguf] got ", bytes.dtype(), ", expected uint8");
  TG_CHECK(ShapeError, bytes.ndim() == 1, "[gguf] got shape ", bytes.shape(), ", expected one axis");
  const Tensor host = bytes.detach().to("CPU");
  HostBytes b = host_bytes(host);
  // Tensors of the file may be written to.
  if (b.access == HostBytes::Access::kReadOnly) b = copied_bytes(host);
  auto* data = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(b.bytes.data()));
  return from_memory({data, b.bytes.size()}, std::const_pointer_cast<void>(b.owner), "tensor");
}

const GgufMetadata& GgufFile::metadata() const { return parts_->metadata(); }
const std::vector<GgufTensor>& GgufFile::tensors() const { return parts_->tensors; }
const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto at = parts_->index.find(name);
  return at == parts_->index.end() ? nullptr : &parts_->tensors[at->second];
}
std::span<const uint8_t> GgufFile::bytes(const GgufTensor& t) const {
  return std::span<const uint8_t>(parts_->parts.at(t.part).file.bytes).subspan(t.offset, t.bytes);
}

Tensor GgufFile::packed(const GgufTensor& t, const std::string& device) const {
  const MappedFile& file = parts_->parts.at(t.part).file;
  const GgmlTypeInfo& info = ggml_type_info(t.type);
  std::vector<int64_t> sizes = t.shape;
  if (sizes.empty()) sizes.push_back(1);
  sizes.back() /= info.elements;
  sizes.push_back(info.bytes);
  const Shape shape{std::span<const int64_t>(sizes)};
  if (t.bytes == 0) return Tensor::zeros(shape, {.dtype = dtypes::uint8, .device = device});
  return Tensor::from_blob(file.bytes.data() + t.offset, shape, dtypes::uint8, "CPU", file.owner).to(device);
}

Tensor GgufFile::tensor(const GgufTensor& t, const std::string& device) const {
  const GgmlTypeInfo& info = ggml_type_info(t.type);
  const Shape shape{std::span<const int64_t>(t.shape)};
  if (t.bytes == 0) return Tensor::zeros(shape, {.dtype = info.native.value_or(dtypes::float32), .device = device});
  if (!info.native) return ggml_dequantize(packed(t, device), t.type).reshape(shape);
  const MappedFile& file = parts_->parts.at(t.part).file;
  uint8_t* data = file.bytes.data() + t.offset;
  // Misaligned data cannot be used in place.
  const bool aligned = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(info.native->itemsize()) == 0;
  const Tensor v =
      aligned ? Tensor::from_blob(data, shape, *info.native, "CPU", file.owner)
              : Tensor::from_bytes(std::as_bytes(std::span(data, t.bytes)), *info.native, shape, {.device = "CPU"});
  return v.to(device);
}
Tensor GgufFile::tensor(std::string_view name, const std::string& device) const {
  const GgufTensor* t = find(name);
  TG_CHECK(IndexError, t, "[gguf] ", metadata().file(), ": there is no tensor ", name);
  return tensor(*t, device);
}

}  // namespace tg::io
