/// \file Matrices: dot, linear, triangles, einsum, attention.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/attention_mask.h"
#include "tinygrad/tensor/ops/dot_product_attention.h"
#include "tinygrad/tensor/ops/image.h"
#include "tinygrad/tensor/ops/product.h"

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
  const bool images = a.size() > 1 && b.size() > 1 && image::are_wanted(*this, w);
  return s(images ? image_dot(w, dtype) : plain_dot(*this, w, dtype));
}

Tensor tensor_detail::plain_dot(const Tensor& t, const Tensor& w, std::optional<DType> dtype) {
  OpScope s;
  const Shape a = t.shape(), b = w.shape();
  // x (..., m, 1, k) times w^T (..., 1, n, k), summed over k; a vector lacks m or n.
  Tensor x = b.size() > 1 && a.size() > 1 ? t.unsqueeze(-2) : t;
  const Tensor stored = attention::stored_in_rows(t, w);
  Tensor y = b.size() > 1 ? stored.transpose(-1, -2) : stored;
  if (a.size() > 1 && b.size() > 2) y = y.unsqueeze(-3);
  if (b.size() == 2 && a.size() > 1) y = y.unsqueeze(0);
  Tensor r = sum_of_products(x, y, -1, dtype);
  r = attention::with_gradient(r, t, stored);
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

namespace {
/// Splits an einsum formula into its terms and, where there is an arrow, its result.
std::pair<std::vector<std::string>, std::optional<std::string>> parse_einsum(const std::string& formula) {
  std::string f;
  for (char c : formula)
    if (c != ' ') f += c;
  const size_t arrow = f.find("->");
  for (size_t i = 0; i < f.size(); i++) {
    const bool known = std::isalpha(static_cast<unsigned char>(f[i])) || f[i] == ',' || i == arrow || i == arrow + 1 ||
                       f.substr(i, 3) == "..." || (i >= 1 && f.substr(i - 1, 3) == "...") ||
                       (i >= 2 && f.substr(i - 2, 3) == "...");
    TG_CHECK(ValueError, known, "[einsum] got '", f[i], "' in '", formula,
             "', expected letters, ',', '...' and one '->'");
  }
  std::vector<std::string> terms{""};
  for (char c : f.substr(0, arrow)) {
    if (c == ',') terms.emplace_back();
    else terms.back() += c;
  }
  if (arrow == std::string::npos) return {terms, std::nullopt};
  return {terms, f.substr(arrow + 2)};
}

/// Returns the number of axes that an ellipsis stands for, in the operand that has the most.
size_t count_ellipsis_axes(const std::vector<std::string>& terms, const Tensors& operands) {
  size_t dots = 0;
  for (size_t i = 0; i < terms.size(); i++) {
    if (terms[i].find("...") == std::string::npos) continue;
    const size_t named = terms[i].size() - 3, n = static_cast<size_t>(operands[i].ndim());
    TG_CHECK(ValueError, n >= named, "[einsum] got shape ", operands[i].shape(), " for '", terms[i],
             "', expected at least ", named, " axes");
    dots = std::max(dots, n - named);
  }
  return dots;
}

/// Replaces an ellipsis of n axes by fresh names, characters below ' '; those of all terms are aligned at the right.
std::string name_ellipsis(std::string term, size_t n, size_t dots) {
  const size_t at = term.find("...");
  if (at == std::string::npos) return term;
  std::string names;
  for (size_t i = dots - n; i < dots; i++) names += static_cast<char>(1 + i);
  return term.replace(at, 3, names);
}

/// Takes the diagonal of axes with the same letter.
void take_diagonals(Tensor& x, std::string& term) {
  for (size_t a = 0; a < term.size(); a++)
    for (size_t b = a + 1; b < term.size();) {
      if (term[a] != term[b]) {
        b++;
        continue;
      }
      x = x.diagonal(0, static_cast<int>(a), static_cast<int>(b));
      const char c = term[a];
      term.erase(b, 1);
      term.erase(a, 1);
      term += c;
      b = a + 1;
      if (a >= term.size()) break;
    }
}

/// Adds the sizes of a term's letters, of which those of size 1 broadcast.
void collect_sizes(const Tensor& x, const std::string& term, const std::string& formula, std::map<char, SInt>& size) {
  for (size_t a = 0; a < term.size(); a++) {
    const SInt n = x.shape()[a];
    SInt& known = size.try_emplace(term[a], n).first->second;
    TG_CHECK(ShapeError, known == n || n == 1 || known == 1, "[einsum] got sizes ", known, " and ", n,
             " for one letter of '", formula, "', expected equal ones");
    if (known == 1) known = n;
  }
}

/// Returns the letters of the result: those given, or those that occur once, in alphabetical order.
std::string result_letters(const std::optional<std::string>& given, size_t dots, const std::map<char, int>& uses,
                           const std::string& formula) {
  if (!given) {
    std::string out;
    for (auto [c, n] : uses)
      if (n == 1 || c < 32) out += c;
    return out;
  }
  const std::string out = name_ellipsis(*given, dots, dots);
  for (size_t i = 0; i < out.size(); i++) {
    TG_CHECK(ValueError, uses.count(out[i]), "[einsum] got letter '", out[i], "' in the result of '", formula,
             "', expected letters of the operands");
    TG_CHECK(ValueError, out.find(out[i]) == i, "[einsum] got letter '", out[i], "' twice in the result of '", formula,
             "', expected different ones");
  }
  return out;
}

/// Returns x with its axes in the order of `letters`, and size 1 for those it lacks.
Tensor align_axes(const Tensor& x, const std::string& term, const std::string& letters) {
  std::vector<int> order;
  Shape shape;
  for (char c : letters) {
    const size_t at = term.find(c);
    if (at != std::string::npos) order.push_back(static_cast<int>(at));
    shape.push_back(at == std::string::npos ? SInt(1) : x.shape()[at]);
  }
  return x.permute(order).reshape(shape);
}

/// Returns the products of all operands, summed over the letters that the result lacks.
Tensor contract(Tensors x, const std::vector<std::string>& terms, const std::string& out,
                const std::map<char, SInt>& size, std::optional<DType> dtype) {
  std::string all = out;
  Axes summed(std::vector<int>{});
  for (const auto& [c, n] : size) {
    if (out.find(c) != std::string::npos) continue;
    summed.list.push_back(static_cast<int>(all.size()));
    all += c;
  }
  const DType factors = common_dtype(x);
  const DType wide = summed.list.empty() ? factors : wide_dtype(factors, dtype);
  Tensor p;
  for (size_t i = 0; i < terms.size(); i++) {
    if (wide != factors) x[i] = x[i].cast(factors).cast(wide);
    const Tensor t = align_axes(x[i], terms[i], all);
    p = p.defined() ? p * t : t;
  }
  if (summed.list.empty()) return dtype ? p.cast(*dtype) : p;
  const Tensor sum = p.sum({.axis = summed, .dtype = wide != factors ? wide : dtype});
  return wide != factors && !dtype && factors.is_float() ? sum.cast(factors) : sum;
}
}  // namespace

Tensor Tensor::einsum(const std::string& formula, const Tensors& operands, std::optional<DType> dtype) {
  OpScope s;
  auto [terms, result] = parse_einsum(formula);
  TG_CHECK(ValueError, terms.size() == operands.size(), "[einsum] got ", operands.size(), " tensors for '", formula,
           "', expected ", terms.size());
  const size_t dots = count_ellipsis_axes(terms, operands);
  std::map<char, SInt> size;
  std::map<char, int> uses;  // of each letter in the terms as given
  Tensors x = operands;
  for (size_t i = 0; i < terms.size(); i++) {
    std::string& t = terms[i];
    const bool ellipsis = t.find("...") != std::string::npos;
    t = name_ellipsis(t, ellipsis ? static_cast<size_t>(x[i].ndim()) - (t.size() - 3) : 0, dots);
    TG_CHECK(ValueError, static_cast<int64_t>(t.size()) == x[i].ndim(), "[einsum] got shape ", x[i].shape(),
             " for term ", i, " of '", formula, "', expected ", t.size(), " axes");
    for (char c : t) uses[c]++;
    take_diagonals(x[i], t);
    collect_sizes(x[i], t, formula, size);
  }
  return s(contract(x, terms, result_letters(result, dots, uses, formula), size, dtype));
}

Tensor Tensor::scaled_dot_product_attention(const Tensor& key, const Tensor& value) const {
  return scaled_dot_product_attention(key, value, Attention{});
}

Tensor Tensor::scaled_dot_product_attention(const Tensor& key, const Tensor& value, const Attention& o) const {
  OpScope s;
  const char* op = "scaled_dot_product_attention";
  TG_CHECK(ShapeError, ndim() >= 2 && key.ndim() >= 2 && value.ndim() >= 2, "[", op, "] got shapes ", shape(), ", ",
           key.shape(), " and ", value.shape(), ", expected at least two axes each");
  TG_CHECK(ValueError, !(o.is_causal && o.mask.defined()), "[", op, "] got a mask and is_causal, expected one of them");
  if (o.enable_gqa) {
    auto heads = [&](const Tensor& t) {
      TG_CHECK(ShapeError, ndim() >= 3 && t.ndim() >= 3 && t.shape(-3) > 0 && shape(-3) % t.shape(-3) == 0, "[", op,
               "] got shapes ", shape(), " and ", t.shape(),
               ", expected a number of heads (axis -3) that divides the query's");
      return t.repeat_interleave(shape(-3) / t.shape(-3), -3);
    };
    Attention each = o;
    each.enable_gqa = false;
    return s(scaled_dot_product_attention(heads(key), heads(value), each));
  }
  DType acc = least_upper_dtype(least_upper_dtype(dtype(), key.dtype()), dtypes::float32);
  Tensor qk = dot(key.transpose(-2, -1), acc) * (1 / std::sqrt(static_cast<double>(shape(-1))));
  const bool masks = o.mask.defined();
  qk = attention::masked(qk, masks ? Tensors{o.mask} : Tensors{}, o.is_causal);
  // A causal mask alone leaves every row its first position.
  const auto weights = [&](const Tensor& t) {
    return (masks ? attention::softmax_or_zero(t) : t.softmax(-1)).dropout(o.dropout_p);
  };
  if (!dtype().is_float()) return s(qk.cast(dtype()).softmax(-1).dropout(o.dropout_p).dot(value));
  if (env::ROUND_PRODUCTS) return s(weights(qk.cast(dtype())).dot(value));
  // The scores of narrow floats stay in their accumulation type until the result.
  return s(weights(qk).dot(value).cast(least_upper_dtype(dtype(), value.dtype())));
}

}  // namespace tg
