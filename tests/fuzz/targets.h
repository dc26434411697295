/// \file The parsers of foreign bytes as fuzz targets. A target takes any bytes: it returns, or throws FormatError; all
/// else is a failure. The regression test (foreign/fuzz_test.cpp) runs each over corpus/NAME and mutations of it;
/// -DTG_FUZZ=ON builds them with libFuzzer (fuzz_main.cpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/chat_targets.h"
#include "fuzz/darknet_target.h"
#include "fuzz/jit_target.h"
#include "fuzz/onnx_target.h"
#include "fuzz/recording_target.h"
#include "fuzz/serve_targets.h"
#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/io/npy.h"
#include "tinygrad/io/pickle.h"
#include "tinygrad/io/picture.h"
#include "tinygrad/io/safetensors.h"
#include "tinygrad/io/sound.h"
#include "tinygrad/io/tar.h"
#include "tinygrad/io/torch_file.h"
#include "tinygrad/io/zip.h"
#include "tinygrad/llm/model_config.h"
#include "tinygrad/llm/tokenizer.h"
#include "tinygrad/nn/cifar.h"
#include "tinygrad/nn/idx.h"

namespace tg::fuzz {

using Bytes = std::span<const uint8_t>;
inline constexpr uint64_t kLimit = 1 << 20;  // of what a compressed input may grow to

inline void idx(Bytes in) {
  const nn::IdxArray a = nn::parse_idx(in, "fuzz", kLimit);
  uint64_t bytes = a.dtype == dtypes::float64                               ? 8
                   : a.dtype == dtypes::int32 || a.dtype == dtypes::float32 ? 4
                   : a.dtype == dtypes::int16                               ? 2
                                                                            : 1;
  for (int64_t d : a.shape) bytes *= d;
  TG_ASSERT(bytes == a.data.size() && !a.shape.empty(), "shape and data disagree");
}

inline void gzip(Bytes in) { TG_ASSERT(io::gunzip(in, kLimit, "fuzz").size() <= kLimit, "limit passed"); }

inline void image(Bytes in) {
  if (in.size() > kLimit) return;
  const io::Image grey = io::decode_image(in, 1, "fuzz"), rgb = io::decode_image(in, 3, "fuzz");
  TG_ASSERT(grey.pixels.size() == static_cast<size_t>(grey.height * grey.width), "pixels are lost");
  TG_ASSERT(rgb.height == grey.height && rgb.pixels.size() == 3 * grey.pixels.size(), "sizes differ");
}
inline void sound(Bytes in) {
  if (in.size() > kLimit) return;
  const io::Sound s = io::decode_sound(in, "fuzz");
  TG_ASSERT(s.channels > 0 && s.samples.size() % static_cast<size_t>(s.channels) == 0, "frames are incomplete");
}

inline void tar(Bytes in) {
  for (const io::TarEntry& e : io::tar_entries(in, "fuzz"))
    TG_ASSERT(e.offset <= in.size() && e.size <= in.size() - e.offset, "entry outside of the archive");
}

inline void cifar(Bytes in) {
  const nn::CifarBytes c = nn::parse_cifar10_archive(in, "fuzz", 1);
  TG_ASSERT(c.train_labels.size() == 5 && c.test_images.size() == nn::kCifarImageBytes, "incomplete set");
}

inline void safetensors(Bytes in) {
  const io::Safetensors f = io::parse_safetensors(in, in.size(), "fuzz");
  TG_ASSERT(f.data_start <= in.size(), "data outside of the file");
  for (const io::SafetensorsEntry& e : f.entries) {
    uint64_t bytes = static_cast<uint64_t>(e.dtype.itemsize());
    for (int64_t d : e.shape) bytes *= static_cast<uint64_t>(d);
    TG_ASSERT(e.begin <= e.end && e.end <= in.size() - f.data_start && bytes == e.end - e.begin,
              "entry outside of the file");
  }
}

/// Asks for the values of every key in every way.
inline void gguf_values(const io::GgufMetadata& m) {
  const auto ask = [](auto&& get) {
    try {
      get();
    } catch (const FormatError&) {  // of another type
    }
  };
  for (const io::GgufMetadata::Entry& e : m.entries()) {
    TG_ASSERT(m.find(e.key) == &e, "another entry of this name");
    ask([&] { TG_ASSERT(m.integer(e.key, -5, 5) <= 5, "out of range"); });
    ask([&] { m.integers(e.key, INT64_MIN, INT64_MAX); });
    ask([&] { m.real(e.key); });
    ask([&] { m.reals(e.key); });
    ask([&] { m.flag(e.key); });
    ask([&] { m.string(e.key); });
    ask([&] {
      size_t bytes = 0;
      for (std::string_view s : m.strings(e.key))
        for (char c : s) bytes += c != 0;
      TG_ASSERT(bytes < SIZE_MAX, "reads them all");
    });
  }
}
inline void gguf(Bytes in) {
  const io::Gguf f = io::parse_gguf(in, "fuzz");
  gguf_values(f.metadata);
  for (const io::GgufTensor& t : f.tensors) {
    const io::GgmlTypeInfo& type = io::ggml_type_info(t.type);
    TG_ASSERT(t.offset % f.alignment == 0 || t.bytes == 0, "misaligned");
    TG_ASSERT(t.offset <= in.size() && t.bytes <= in.size() - t.offset, "tensor outside of the file");
    TG_ASSERT(static_cast<uint64_t>(type.size(t.numel())) == t.bytes, "shape and bytes disagree");
    for (const io::GgufTensor& o : f.tensors)
      TG_ASSERT(
          &o == &t || t.bytes == 0 || o.bytes == 0 || t.offset + t.bytes <= o.offset || o.offset + o.bytes <= t.offset,
          "tensors share bytes");
  }
}

/// Reads the hyperparameters of a decoder: sizes are such that nothing made of them overflows or divides by zero.
inline void model_config(Bytes in) {
  const io::Gguf f = io::parse_gguf(in, "fuzz");
  const llm::ModelConfig c = llm::read_model_config(f.metadata, [&](std::string_view name) -> const io::GgufTensor* {
    const auto at = std::find_if(f.tensors.begin(), f.tensors.end(), [&](const auto& t) { return t.name == name; });
    return at == f.tensors.end() ? nullptr : &*at;
  });
  const auto size = [](int64_t n) { return n >= 1 && n <= llm::kMaxDim; };
  TG_ASSERT(size(c.dim) && size(c.head_dim) && size(c.value_dim) && size(c.trained_context / 128 + 1), "no size");
  TG_ASSERT(c.blocks() >= 1 && c.blocks() <= llm::kMaxBlocks && c.vocab_size >= 1, "no layers or no words");
  TG_ASSERT(c.rope.dims % 2 == 0 && c.rope.dims <= c.head_dim && c.rope.factor > 0, "pairs do not fit");
  TG_ASSERT(c.experts.used <= c.experts.count && (c.experts.count == 0 || c.experts.count % c.experts.groups == 0),
            "experts do not fit");
  int64_t values = 0;
  for (const io::GgufTensor& t : f.tensors) values += t.numel();
  for (const llm::LayerConfig& l : c.layers) {
    TG_ASSERT(l.recurrent || (l.kv_heads > 0 && l.heads % l.kv_heads == 0), "heads do not fit");
    TG_ASSERT(l.recurrent || c.latent.kv_rank != 0 || l.kv_heads * c.head_dim <= values, "more than the file pays for");
  }
}

/// Makes tokens of a text with all that tokenizers split at, and text of all tokens.
inline void use_tokenizer(const llm::Tokenizer& t) {
  const std::string_view text =
      "Hello  wörld's <s> [CLS] 1234\t\xe2\x96\x81x \xff\xe4\xb8\xad<0x41> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
  try {
    for (const bool special : {false, true})
      for (const int32_t id : t.encode(text, {.parse_special = special}))
        TG_ASSERT(id >= 0 && id < t.vocab_size(), "a token outside of the vocabulary");
  } catch (const ValueError&) {  // an expression that takes too many steps
  }
  llm::StreamDecoder stream = t.stream_decoder(false);
  const int32_t n = std::min(t.vocab_size(), 1000);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < n; id++) {
    ids.push_back(id);
    stream.push(id);
  }
  stream.finish();
  t.decode(ids, false);
}

/// Metadata as lines: "m MODEL", "p PRE", "t1 TOKEN" (the digit is the type), "s SCORE", "g LEFT RIGHT" (a merge),
/// "b 0" (bos; e: eos, u: unk, c: cls), "x HEX" (charsmap), "a1" (add_bos).
inline llm::TokenizerData tokenizer_data(Bytes in) {
  llm::TokenizerData d;
  std::string_view text(reinterpret_cast<const char*>(in.data()), in.size());
  const auto number = [](std::string_view s) -> int64_t { return std::strtoll(std::string(s).c_str(), nullptr, 10); };
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.size() < 2) continue;
    const char kind = line[0], digit = line[1];
    const std::string_view rest = line.substr(std::min<size_t>(kind == 't' ? 3 : 2, line.size()));
    switch (kind) {
      case 'm': d.model = rest; break;
      case 'p': d.pre = rest; break;
      case 't':
        d.tokens.emplace_back(rest);
        d.token_types.push_back(digit - '0');
        break;
      case 's': d.scores.push_back(std::strtof(std::string(rest).c_str(), nullptr)); break;
      case 'g': d.merges.emplace_back(rest); break;
      case 'b': d.bos = number(rest); break;
      case 'e': d.eos = number(rest); break;
      case 'u': d.unk = number(rest); break;
      case 'c': d.cls = number(rest); break;
      case 'a': d.add_bos = digit == '1'; break;
      case 'x':
        for (size_t i = 0; i + 2 <= rest.size(); i += 2)
          d.precompiled_charsmap.push_back(
              static_cast<uint8_t>(std::strtoul(std::string(rest.substr(i, 2)).c_str(), nullptr, 16)));
        break;
    }
  }
  return d;
}

inline void vocabulary(Bytes in) { use_tokenizer(llm::Tokenizer::from_data(tokenizer_data(in), "fuzz")); }
inline void tokenizer_json(Bytes in) { use_tokenizer(llm::Tokenizer::from_json(in, "fuzz")); }

inline void safetensors_index(Bytes in) {
  const io::SafetensorsIndex index =
      io::parse_safetensors_index({reinterpret_cast<const char*>(in.data()), in.size()}, "fuzz");
  for (const auto& [tensor, file] : index.files)
    TG_ASSERT(file.find('/') == std::string::npos && file != ".." && !file.empty(), "file outside of the folder");
}

inline void zip(Bytes in) {
  uint64_t content = 0;
  for (const io::ZipEntry& e : io::zip_entries(in, "fuzz", kLimit)) {
    TG_ASSERT(e.offset <= in.size() && e.packed_size <= in.size() - e.offset, "entry outside of the archive");
    TG_ASSERT(e.deflated || e.size == e.packed_size, "stored entry of another size");
    if (e.deflated) content += e.size;
    try {
      TG_ASSERT(io::zip_read(in, e, "fuzz").size() == e.size, "content of another size");
    } catch (const FormatError&) {  // one entry that is damaged
      if (e.deflated) continue;
    }
  }
  TG_ASSERT(content <= kLimit, "limit passed");
}

inline void npy(Bytes in) {
  const io::NpyHeader h = io::parse_npy(in, "fuzz");
  uint64_t bytes = static_cast<uint64_t>(h.dtype.itemsize());
  for (const int64_t d : h.shape) bytes *= static_cast<uint64_t>(d);
  TG_ASSERT(h.data_start <= in.size() && bytes == h.bytes && h.bytes == in.size() - h.data_start,
            "shape and data disagree");
}

inline void pickle(Bytes in) {
  static constexpr io::PickleName kKnown[] = {{"collections", "OrderedDict"}, {"_codecs", "encode"}};
  const io::Pickle p = io::parse_pickle(in, kKnown, "fuzz");
  TG_ASSERT(p.root < p.nodes.size() && p.size <= in.size(), "no root");
  for (const io::PickleNode& n : p.nodes)
    for (const io::PickleId id : n.items) TG_ASSERT(id < p.nodes.size(), "a part that is not there");
}

inline void check_torch(const io::TorchFile& f, size_t size) {
  for (const io::TorchTensor& t : f.tensors) {
    const io::TorchStorage& s = f.storages.at(t.storage);
    const uint64_t room = s.in_file ? size - std::min<uint64_t>(s.offset, size) : s.own.size();
    TG_ASSERT(s.bytes <= room, "storage outside of the file");
    uint64_t last = t.offset;
    bool empty = false;
    for (size_t i = 0; i < t.shape.size(); i++) {
      empty |= t.shape[i] == 0;
      last += static_cast<uint64_t>(t.shape[i] - 1) * static_cast<uint64_t>(t.strides[i]);
    }
    TG_ASSERT(empty || last < s.bytes / static_cast<uint64_t>(t.dtype.itemsize()), "tensor outside of its storage");
  }
}

inline void torch(Bytes in) {
  try {
    check_torch(io::parse_torch_file(in, "fuzz", /*keep_opaque=*/true), in.size());
  } catch (const FormatError&) {  // so it is without opaque objects
  }
  check_torch(io::parse_torch_file(in, "fuzz"), in.size());
}

struct Target {
  std::string_view name;
  void (*run)(Bytes);
};
inline constexpr Target kTargets[] = {
    {"idx", idx},
    {"gzip", gzip},
    {"image", image},
    {"sound", sound},
    {"tar", tar},
    {"cifar", cifar},
    {"safetensors", safetensors},
    {"safetensors_index", safetensors_index},
    {"gguf", gguf},
    {"model_config", model_config},
    {"jit_file", jit_file},
    {"jit_interpreted", jit_interpreted},
    {"recording", recording_records},
    {"zip", zip},
    {"npy", npy},
    {"pickle", pickle},
    {"torch", torch},
    {"onnx", onnx_file},
    {"vocabulary", vocabulary},
    {"tokenizer_json", tokenizer_json},
    {"http", http},
    {"api_request", api_request},
    {"chat_template", chat_template},
    {"json_schema", json_schema},
    {"chat_reply", chat_reply},
    {"darknet", darknet},
};

}  // namespace tg::fuzz
