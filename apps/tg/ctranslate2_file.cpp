/// \file Weights of CTranslate2: a list of named arrays, and how those of Whisper are named there.
#include "apps/tg/ctranslate2_file.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "tinygrad/base/binary.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::app {
namespace {

/// Types by their numbers in files.
constexpr std::array kTypes{dtypes::float32, dtypes::int8,    dtypes::int16,
                            dtypes::int32,   dtypes::float16, dtypes::bfloat16};

/// Reads a text, whose length counts a zero behind it.
std::string read_text(ByteReader& in) {
  const std::span<const uint8_t> bytes = in.take(in.value<uint16_t>());
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

/// Reads an array; of a type other than floats nothing.
Tensor read_array(ByteReader& in) {
  Shape shape;
  uint64_t count = 1;
  const auto axes = in.below<uint8_t>(9, "an array of more than 8 axes");
  for (uint8_t i = 0; i < axes; i++) {
    const auto n = in.value<uint32_t>();
    in.check(n > 0 && count <= (uint64_t{1} << 32) / n, "an array without elements, or with more than fit");
    count *= n;
    shape.push_back(int64_t{n});
  }
  const DType type = kTypes.at(in.below<uint8_t>(kTypes.size(), "an array of an unknown type"));
  const auto size = in.value<uint32_t>();
  in.check(size == count * static_cast<uint64_t>(type.itemsize()),
           "an array whose size in bytes is not that of its elements");
  const std::span<const uint8_t> bytes = in.take(size);
  if (!type.is_float()) return {};
  const auto copy = [&](std::span<std::byte> out) { std::memcpy(out.data(), bytes.data(), bytes.size()); };
  return from_host_bytes(HostBytes::made_by(bytes.size(), copy), shape, type);
}

/// Adds the parts of an array, which is several of them one below the other.
void add_parts(nn::StateDict& out, const Tensor& t, const std::string& prefix, const std::vector<const char*>& parts,
               const std::string& ending) {
  const auto n = static_cast<int64_t>(parts.size());
  TG_CHECK(FormatError, t.ndim() > 0 && t.shape(0) % n == 0, "[transcribe] ", prefix, " has shape ", t.shape(),
           ", expected ", n, " equal parts");
  const int64_t each = t.shape(0) / n;
  for (int64_t i = 0; i < n; i++) {
    const std::string part = parts[static_cast<size_t>(i)];
    if (part == "key" && ending == "bias") continue;  // keys have none: these are zeros
    out.emplace_back(prefix + part + "." + ending, t.slice(0, i * each, (i + 1) * each));
  }
}

/// Adds an array of a layer, by its name behind "layer_N/".
void add_of_layer(nn::StateDict& out, const Tensor& t, const std::string& prefix, const std::string& name) {
  const std::string ending = name.ends_with("weight") || name.ends_with("gamma") ? "weight" : "bias";
  static const std::pair<const char*, std::vector<const char*>> kNames[] = {
      {"self_attention/layer_norm/", {"attn_ln"}},
      {"self_attention/linear_0/", {"query", "key", "value"}},
      {"self_attention/linear_1/", {"out"}},
      {"attention/layer_norm/", {"cross_attn_ln"}},
      {"attention/linear_0/", {"query"}},
      {"attention/linear_1/", {"key", "value"}},
      {"attention/linear_2/", {"out"}},
      {"ffn/layer_norm/", {"mlp_ln"}},
      {"ffn/linear_0/", {"mlp.0"}},
      {"ffn/linear_1/", {"mlp.2"}}};
  for (const auto& [begin, parts] : kNames) {
    if (!name.starts_with(begin)) continue;
    const bool is_projection = std::string_view(begin).find("attention/linear") != std::string_view::npos;
    const char* where = !is_projection ? "" : name.starts_with("self_") ? "attn." : "cross_attn.";
    return add_parts(out, t, prefix + where, parts, ending);
  }
}

}  // namespace

nn::StateDict read_ctranslate2(const HostBytes& file, std::string_view what) {
  ByteReader in({reinterpret_cast<const uint8_t*>(file.bytes.data()), file.bytes.size()}, std::string(what));
  const auto version = in.value<uint32_t>();
  in.check(version >= 4 && version <= 6, "a file of another version than 4 to 6 of CTranslate2");
  read_text(in);  // the name of the kind of model
  in.value<uint32_t>();
  const auto count = in.value<uint32_t>();
  nn::StateDict out;
  for (uint32_t i = 0; i < count; i++) {
    const std::string name = read_text(in);
    const Tensor t = read_array(in);
    in.check(!name.ends_with("weight_scale"), "quantized weights, which are not supported");
    if (t.defined()) out.emplace_back(name, t);
  }
  return out;
}

nn::StateDict whisper_of_ctranslate2(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) continue;
    const std::string side = name.substr(0, slash) + ".", rest = name.substr(slash + 1);
    if (rest.starts_with("layer_norm/"))
      out.emplace_back(side + (side == "encoder." ? "ln_post." : "ln.") + (rest.ends_with("gamma") ? "weight" : "bias"),
                       t);
    else if (rest == "position_encodings/encodings") out.emplace_back(side + "positional_embedding", t);
    else if (rest == "embeddings/weight") out.emplace_back(side + "token_embedding.weight", t);
    else if (rest.starts_with("conv") && rest.size() > 6)
      out.emplace_back(side + rest.substr(0, 5) + "." + rest.substr(6), t);
    else if (const size_t end = rest.find('/'); rest.starts_with("layer_") && end != std::string::npos)
      add_of_layer(out, t, side + "blocks." + rest.substr(6, end - 6) + ".", rest.substr(end + 1));
  }
  return out;
}

}  // namespace tg::app
