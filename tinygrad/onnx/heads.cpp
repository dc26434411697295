/// \file Heads of attention and rotated positions.
#include "tinygrad/onnx/heads.h"

#include "tinygrad/onnx/op_helpers.h"

namespace tg::onnx {

Tensor split_heads(const NodeContext& c, const Tensor& x, int64_t heads) {
  const Shape s = x.shape();
  c.check(heads > 0 && s.size() == 3 && s[2].value() % heads == 0, "got shape ", s, " for ", heads, " heads");
  return x.reshape(Shape{s[0], s[1], heads, s[2].value() / heads}).transpose(1, 2);
}
Tensor join_heads(const Tensor& x) {
  const Shape s = x.shape();
  return x.transpose(1, 2).reshape(Shape{s[0], s[2], s[1].value() * s[3].value()});
}
Tensor shared_heads(const NodeContext& c, const Tensor& x, int64_t heads) {
  const int64_t own = x.shape(1);
  c.check(own > 0 && heads % own == 0, heads, " heads of queries do not divide among ", own);
  return own == heads ? x : x.repeat_interleave(heads / own, 1);
}

Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  const int64_t whole = x.shape(-1), size = cos.shape(-1) * 2;
  const Tensor part = x.slice(-1, 0, size);
  Tensor out;
  if (interleaved) {
    Shape pairs = part.shape();
    pairs.back() = size / 2;
    pairs.push_back(2);
    const Tensor p = part.reshape(pairs), a = p.slice(-1, 0, 1).squeeze(-1), b = p.slice(-1, 1, 2).squeeze(-1);
    out = Tensor::stack({a * cos - b * sin, a * sin + b * cos}, -1).reshape(part.shape());
  } else {
    const Tensors p = equal_parts(part, 2, -1);
    out = (p[0] * cos - p[1] * sin).cat(p[0] * sin + p[1] * cos, -1);
  }
  return size == whole ? out : out.cat(x.slice(-1, size, whole), -1);
}

}  // namespace tg::onnx
