/// \file Files of parameters.
#include "tinygrad/nn/state_file.h"

#include "tinygrad/base/error.h"
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
  io::write_file_atomic(path, parts, "safe_save");
}

StateDict safe_load(const std::filesystem::path& path, const std::string& device) {
  const io::MappedFile file = io::map_file(path, "safe_load");
  const io::Safetensors contents = io::parse_safetensors(file.bytes, file.bytes.size(), path.string());
  StateDict out;
  for (const io::SafetensorsEntry& e : contents.entries) {
    const std::span<uint8_t> bytes = file.bytes.subspan(contents.data_start + e.begin, e.end - e.begin);
    const Shape shape{std::span<const int64_t>(e.shape)};
    // Misaligned data cannot be used in place.
    const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(e.dtype.itemsize()) == 0;
    const Tensor t = aligned && !bytes.empty()
                         ? Tensor::from_blob(bytes.data(), shape, e.dtype, "CPU", file.owner)
                         : Tensor::from_bytes(std::as_bytes(bytes), e.dtype, shape, {.device = "CPU"});
    out.emplace_back(e.name, t.to(device));
  }
  return out;
}

Metadata safe_metadata(const std::filesystem::path& path) {
  const io::MappedFile file = io::map_file(path, "safe_metadata");
  return io::parse_safetensors(file.bytes, file.bytes.size(), path.string()).metadata;
}

}  // namespace tg::nn
