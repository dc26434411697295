/// \file ONNX models in memory, as tests need them: nothing is checked, so that any lie can be told.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/host_bytes.h"

namespace tg::test {

/// A protobuf message.
class PbMessage {
 public:
  PbMessage& integer(int field, int64_t v) {
    head(field, 0);
    varint(static_cast<uint64_t>(v));
    return *this;
  }
  PbMessage& real(int field, float v) {
    head(field, 5);
    text_.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  PbMessage& text(int field, std::string_view v) {
    head(field, 2);
    varint(v.size());
    text_ += v;
    return *this;
  }
  PbMessage& message(int field, const PbMessage& m) { return text(field, m.text_); }
  const std::string& bytes() const { return text_; }

 private:
  void head(int field, int wire) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire)); }
  void varint(uint64_t v) {
    for (; v >= 128; v >>= 7) text_ += static_cast<char>(v | 128);
    text_ += static_cast<char>(v);
  }
  std::string text_;
};

inline PbMessage onnx_attribute(const char* name, int64_t v) {
  return PbMessage().text(1, name).integer(3, v).integer(20, 2);
}
inline PbMessage onnx_ints_attribute(const char* name, const std::vector<int64_t>& v) {
  PbMessage a = PbMessage().text(1, name).integer(20, 7);
  for (const int64_t i : v) a.integer(8, i);
  return a;
}
inline PbMessage onnx_attribute(const char* name, const PbMessage& graph) {
  return PbMessage().text(1, name).message(6, graph).integer(20, 5);
}
inline PbMessage onnx_text_attribute(const char* name, std::string_view v) {
  return PbMessage().text(1, name).text(4, v).integer(20, 3);
}
inline PbMessage onnx_node(const char* op, const std::vector<const char*>& inputs,
                           const std::vector<const char*>& outputs, const std::vector<PbMessage>& attributes = {},
                           const char* domain = "") {
  PbMessage n;
  for (const char* name : inputs) n.text(1, name);
  for (const char* name : outputs) n.text(2, name);
  n.text(3, std::string("the_") + op).text(4, op);
  for (const PbMessage& a : attributes) n.message(5, a);
  return *domain ? n.text(7, domain) : n;
}
template <class T>
PbMessage onnx_tensor(const char* name, int type, const std::vector<int64_t>& dims, const std::vector<T>& values) {
  PbMessage t;
  for (const int64_t d : dims) t.integer(1, d);
  return t.integer(2, type).text(8, name).text(
      9, std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}
/// A value of float32 (or another type); sizes below 0 are names.
inline PbMessage onnx_value(const char* name, const std::vector<int64_t>& sizes, int type = 1) {
  PbMessage shape;
  for (const int64_t s : sizes)
    shape.message(1, s < 0 ? PbMessage().text(2, "n" + std::to_string(-s)) : PbMessage().integer(1, s));
  return PbMessage().text(1, name).message(2, PbMessage().message(1, PbMessage().integer(1, type).message(2, shape)));
}
struct OnnxGraph {
  std::vector<PbMessage> nodes, initializers, inputs, outputs;
  PbMessage build() const {
    PbMessage g;
    for (const PbMessage& m : nodes) g.message(1, m);
    g.text(2, "graph");
    for (const PbMessage& m : initializers) g.message(5, m);
    for (const PbMessage& m : inputs) g.message(11, m);
    for (const PbMessage& m : outputs) g.message(12, m);
    return g;
  }
};
inline PbMessage onnx_model(const PbMessage& graph, int64_t version = 20) {
  return PbMessage().integer(1, 9).message(7, graph).message(8, PbMessage().integer(2, version));
}
inline HostBytes bytes_of(const PbMessage& m) {
  return HostBytes::made_by(m.bytes().size(),
                            [&](std::span<std::byte> out) { std::memcpy(out.data(), m.bytes().data(), out.size()); });
}

}  // namespace tg::test
