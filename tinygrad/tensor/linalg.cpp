/// \file Matrices: dot, linear, triangles, einsum, attention.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "tinygrad/tensor/attention.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops.h"
#include "tinygrad/tensor/product.h"

namespace tg {
using namespace tensor_detail;

Tensor Tensor::dot(const Tensor& w, std::optional<DType> dtype) const {
  OpScope s;
  uop_of(*this, "dot");
  uop_of(w, "dot");
  const Shape a = shape(), b = w.shape();
  TG_CHECK(ShapeError, !a.empty() && !b.empty(), "[dot] got shapes ", a, " and ", b,
           ", expected at least one axis each");
  size_t inner = b.size() - std::min<size_t>(b.size(), 2);
  TG_CHECK(ShapeError, a.back() == b[inner], "[dot] got shapes ", a, " and ", b,
           ", expected equal inner sizes: ", a.back(), " and ", b[inner], " differ");
  if (a.size() > 2 && b.size() > 2) {
    Shape la(a.begin(), a.end() - 2), lb(b.begin(), b.end() - 2);
    const Shape* both[] = {&la, &lb};
    broadcast_shapes(both, "dot");
  }
  // x (..., m, 1, k) times w^T (..., 1, n, k), summed over k; a vector lacks m or n.
  Tensor x = b.size() > 1 && a.size() > 1 ? unsqueeze(-2) : *this;
  Tensor y = b.size() > 1 ? w.transpose(-1, -2) : w;
  if (a.size() > 1 && b.size() > 2) y = y.unsqueeze(-3);
  if (b.size() == 2 && a.size() > 1) y = y.unsqueeze(0);
  Tensor r = sum_of_products(x, y, -1, dtype);
  r = attention::with_gradient(r, *this, w);
  return s(dtype ? r : r.cast(least_upper_dtype(x.dtype(), y.dtype())));
}

Tensor Tensor::linear(const Tensor& weight, const Tensor& bias, std::optional<DType> dtype) const {
  OpScope s;
  if (dtype) return s(cast(*dtype).linear(weight.cast(*dtype), bias.defined() ? bias.cast(*dtype) : bias));
  Tensor x = weight.ndim() == 1 ? *this * weight : dot(weight);
  return s(bias.defined() ? x + bias : x);
}

/// Returns where column - row >= `diagonal` + `more`. Sizes and diagonal may be symbolic.
static Tensor above(const Tensor& t, const SInt& diagonal, int64_t more, const char* op) {
  const Shape sh = t.shape();
  TG_CHECK(ShapeError, sh.size() >= 2, "[", op, "] got shape ", sh, ", expected at least two axes");
  auto count = [](const SInt& n) { return Tensor::arange(n.max()).shrink({{0, n}}); };
  Tensor row = count(sh[sh.size() - 2]).unsqueeze(-1), d = Tensor(more);
  d = diagonal.symbolic() ? Tensor::from_uop(diagonal.uop().cast(dtypes::default_int())) + more
                          : Tensor(diagonal.value() + more);
  return row + d <= count(sh.back());
}
Tensor Tensor::triu(const SInt& diagonal) const {
  OpScope s;
  return s(max_numel() ? above(*this, diagonal, 0, "triu").where(*this, zeros_like()) : *this);
}
Tensor Tensor::tril(const SInt& diagonal) const {
  OpScope s;
  return s(max_numel() ? above(*this, diagonal, 1, "tril").where(zeros_like(), *this) : *this);
}

Tensor Tensor::einsum(const std::string& formula, const Tensors& operands, std::optional<DType> dtype) {
  OpScope s;
  std::string f;
  for (char c : formula)
    if (c != ' ') f += c;
  size_t arrow = f.find("->");
  for (size_t i = 0; i < f.size(); i++) {
    const bool known = std::isalpha(static_cast<unsigned char>(f[i])) || f[i] == ',' || i == arrow || i == arrow + 1 ||
                       f.substr(i, 3) == "..." || (i >= 1 && f.substr(i - 1, 3) == "...") ||
                       (i >= 2 && f.substr(i - 2, 3) == "...");
    TG_CHECK(ValueError, known, "[einsum] got '", f[i], "' in '", formula,
             "', expected letters, ',', '...' and one '->'");
  }
  std::string left = f.substr(0, arrow);
  std::vector<std::string> terms{""};
  for (char c : left) {
    if (c == ',') terms.emplace_back();
    else terms.back() += c;
  }
  TG_CHECK(ValueError, terms.size() == operands.size(), "[einsum] got ", operands.size(), " tensors for '", formula,
           "', expected ", terms.size());
  // An ellipsis stands for unnamed axes; they get fresh names, aligned at the right.
  size_t dots = 0;
  for (size_t i = 0; i < terms.size(); i++)
    if (terms[i].find("...") != std::string::npos) {
      size_t named = terms[i].size() - 3, n = static_cast<size_t>(operands[i].ndim());
      TG_CHECK(ValueError, n >= named, "[einsum] got shape ", operands[i].shape(), " for '", terms[i],
               "', expected at least ", named, " axes");
      dots = std::max(dots, n - named);
    }
  auto dot_names = [&](size_t n) {
    std::string r;
    for (size_t i = dots - n; i < dots; i++) r += static_cast<char>(1 + i);
    return r;
  };
  auto replaced = [&](std::string t, size_t n) {
    size_t at = t.find("...");
    return at == std::string::npos ? t : t.replace(at, 3, dot_names(n));
  };
  std::map<char, SInt> size;
  std::map<char, int> uses;  // of each letter in the terms as given
  Tensors x = operands;
  for (size_t i = 0; i < terms.size(); i++) {
    std::string& t = terms[i];
    size_t extra = t.find("...") == std::string::npos ? 0 : static_cast<size_t>(x[i].ndim()) - (t.size() - 3);
    t = replaced(t, extra);
    TG_CHECK(ValueError, static_cast<int64_t>(t.size()) == x[i].ndim(), "[einsum] got shape ", x[i].shape(),
             " for term ", i, " of '", formula, "', expected ", t.size(), " axes");
    for (char c : t) uses[c]++;
    // A letter twice in one term selects its diagonal.
    for (size_t a = 0; a < t.size(); a++)
      for (size_t b = a + 1; b < t.size();) {
        if (t[a] != t[b]) {
          b++;
          continue;
        }
        x[i] = x[i].diagonal(0, static_cast<int>(a), static_cast<int>(b));
        char c = t[a];
        t.erase(b, 1);
        t.erase(a, 1);
        t += c;
        b = a + 1;
        if (a >= t.size()) break;
      }
    for (size_t a = 0; a < t.size(); a++) {
      const SInt n = x[i].shape()[a];
      SInt& known = size.try_emplace(t[a], n).first->second;
      TG_CHECK(ShapeError, known == n || n == 1 || known == 1, "[einsum] got sizes ", known, " and ", n,
               " for one letter of '", formula, "', expected equal ones");
      if (known == 1) known = n;
    }
  }
  std::string out;
  if (arrow != std::string::npos) out = replaced(f.substr(arrow + 2), dots);
  else  // what occurs once, in alphabetical order
    for (auto [c, n] : uses)
      if (n == 1 || c < 32) out += c;
  std::string all = out;
  for (auto [c, n] : size)
    if (all.find(c) == std::string::npos) all += c;
  for (size_t i = 0; i < out.size(); i++) {
    TG_CHECK(ValueError, size.count(out[i]), "[einsum] got letter '", out[i], "' in the result of '", formula,
             "', expected letters of the operands");
    TG_CHECK(ValueError, out.find(out[i]) == i, "[einsum] got letter '", out[i], "' twice in the result of '", formula,
             "', expected different ones");
  }
  DType factors = x[0].dtype();
  for (const Tensor& t : x) factors = least_upper_dtype(factors, t.dtype());
  const DType wide = all.size() > out.size() ? wide_dtype(factors, dtype) : factors;
  Tensor p;
  for (size_t i = 0; i < terms.size(); i++) {
    std::vector<int> order;
    Shape shape;
    if (wide != factors) x[i] = x[i].cast(factors).cast(wide);
    for (char c : all) {
      size_t at = terms[i].find(c);
      if (at == std::string::npos) {
        shape.push_back(1);
        continue;
      }
      order.push_back(static_cast<int>(at));
      shape.push_back(x[i].shape()[at]);
    }
    Tensor t = x[i].permute(order).reshape(shape);
    p = p.defined() ? p * t : t;
  }
  Axes summed(std::vector<int>{});
  for (size_t i = out.size(); i < all.size(); i++) summed.list.push_back(static_cast<int>(i));
  if (summed.list.empty()) return s(dtype ? p.cast(*dtype) : p);
  const Tensor sum = p.sum({.axis = summed, .dtype = wide != factors ? wide : dtype});
  return s(wide != factors && !dtype && factors.is_float() ? sum.cast(factors) : sum);
}

Tensor Tensor::scaled_dot_product_attention(const Tensor& key, const Tensor& value, const Tensor& mask,
                                            double dropout_p, bool causal, bool enable_gqa) const {
  OpScope s;
  const char* op = "scaled_dot_product_attention";
  TG_CHECK(ShapeError, ndim() >= 2 && key.ndim() >= 2 && value.ndim() >= 2, "[", op, "] got shapes ", shape(), ", ",
           key.shape(), " and ", value.shape(), ", expected at least two axes each");
  TG_CHECK(ValueError, !(causal && mask.defined()), "[", op, "] got a mask and causal, expected one of them");
  if (enable_gqa) {
    auto heads = [&](const Tensor& t) {
      TG_CHECK(ShapeError, ndim() >= 3 && t.ndim() >= 3 && t.shape(-3) > 0 && shape(-3) % t.shape(-3) == 0, "[", op,
               "] got shapes ", shape(), " and ", t.shape(),
               ", expected a number of heads (axis -3) that divides the query's");
      return t.repeat_interleave(shape(-3) / t.shape(-3), -3);
    };
    return s(scaled_dot_product_attention(heads(key), heads(value), mask, dropout_p, causal));
  }
  DType acc = least_upper_dtype(least_upper_dtype(dtype(), key.dtype()), dtypes::float32);
  Tensor qk = dot(key.transpose(-2, -1), acc) * (1 / std::sqrt(static_cast<double>(shape(-1))));
  const Shape qs = qk.shape();
  Tensor m = causal ? full(Shape(qs.end() - 2, qs.end()), true).tril() : mask;
  if (m.defined()) qk = m.dtype().is_bool() ? m.where(qk, -std::numeric_limits<double>::infinity()) : qk + m;
  if (env::ROUND_PRODUCTS || !dtype().is_float()) return s(qk.cast(dtype()).softmax(-1).dropout(dropout_p).dot(value));
  // The scores of narrow floats stay in their accumulation type until the result.
  return s(qk.softmax(-1).dropout(dropout_p).dot(value).cast(least_upper_dtype(dtype(), value.dtype())));
}

}  // namespace tg
