/// \file Language models of real shapes whose weights are zeros: a GGUF file in memory that takes none.
#pragma once
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/io/ggml_types.h"
#include "tinygrad/io/gguf.h"

namespace tg {

/// The sizes of a decoder of llama's architecture.
struct DecoderSizes {
  int64_t dim, heads, kv_heads, hidden, vocabulary;
  io::GgmlType type;   ///< of matrices
  bool tied = true;    ///< the output is the embeddings
  int64_t layers = 2;  ///< all of a model's have the same kernels
};

class ZeroModel {
 public:
  explicit ZeroModel(const DecoderSizes& s) {
    text_value("general.architecture", "llama");
    for (const auto& [key, value] :
         std::vector<std::pair<const char*, int64_t>>{{"context_length", 256},
                                                      {"embedding_length", s.dim},
                                                      {"block_count", s.layers},
                                                      {"feed_forward_length", s.hidden},
                                                      {"attention.head_count", s.heads},
                                                      {"attention.head_count_kv", s.kv_heads}})
      value_of(std::string("llama.") + key, 11, raw(value));            // int64
    value_of("llama.attention.layer_norm_rms_epsilon", 12, raw(1e-5));  // float64
    const int64_t head = s.dim / s.heads;
    const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
      tensor(name + ".weight", {rows, columns}, s.type);
    };
    const auto norm = [&](const std::string& name) { tensor(name + ".weight", {s.dim}, io::GgmlType::kF32); };
    matrix("token_embd", s.vocabulary, s.dim);
    if (!s.tied) matrix("output", s.vocabulary, s.dim);
    norm("output_norm");
    for (int64_t i = 0; i < s.layers; i++) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      norm(layer + "attn_norm");
      norm(layer + "ffn_norm");
      matrix(layer + "attn_q", s.dim, s.dim);
      matrix(layer + "attn_k", s.kv_heads * head, s.dim);
      matrix(layer + "attn_v", s.kv_heads * head, s.dim);
      matrix(layer + "attn_output", s.dim, s.dim);
      matrix(layer + "ffn_gate", s.hidden, s.dim);
      matrix(layer + "ffn_up", s.hidden, s.dim);
      matrix(layer + "ffn_down", s.dim, s.hidden);
    }
  }

  io::GgufFile file() const {
    std::string head = "GGUF" + raw(uint32_t{3}) + raw(uint64_t{tensors_}) + raw(uint64_t{values_}) + keys_ + table_;
    head.resize((head.size() + kAlignment - 1) / kAlignment * kAlignment);
    const size_t n = head.size() + data_;
    void* memory = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TG_CHECK(OutOfMemoryError, memory != MAP_FAILED, "no address space for ", n, " bytes");
    std::memcpy(memory, head.data(), head.size());
    return io::GgufFile::from_memory({static_cast<uint8_t*>(memory), n},
                                     std::shared_ptr<void>(memory, [n](void* m) { munmap(m, n); }), "zeros");
  }

 private:
  static constexpr size_t kAlignment = 32;
  template <class T> static std::string raw(T v) {
    std::string out(sizeof v, '\0');
    std::memcpy(out.data(), &v, sizeof v);
    return out;
  }
  static std::string text(const std::string& s) { return raw(uint64_t{s.size()}) + s; }
  void value_of(const std::string& key, uint32_t type, const std::string& bytes) {
    keys_ += text(key) + raw(type) + bytes;
    values_++;
  }
  void text_value(const std::string& key, const std::string& value) { value_of(key, 8, text(value)); }
  void tensor(const std::string& name, const std::vector<int64_t>& shape, io::GgmlType type) {
    table_ += text(name) + raw(static_cast<uint32_t>(shape.size()));
    int64_t n = 1;
    for (size_t i = shape.size(); i-- > 0; n *= shape[i]) table_ += raw(shape[i]);
    table_ += raw(static_cast<uint32_t>(type)) + raw(uint64_t{data_});
    data_ += static_cast<size_t>(io::ggml_type_info(type).size(n));
    data_ = (data_ + kAlignment - 1) / kAlignment * kAlignment;
    tensors_++;
  }

  std::string keys_, table_;
  size_t values_ = 0, tensors_ = 0, data_ = 0;
};

}  // namespace tg
