/// \file The methods and functions of tensor expressions: one line each, names and arguments as in Python.
#include <algorithm>
#include <span>

#include "apps/tg/expression.h"
#include "apps/tg/usage_error.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"

namespace tg::app {
namespace {

using Arguments = CallArguments;
struct Method {
  const char* name;
  Tensor (*call)(const Tensor& x, Arguments& a);
};
struct Function {
  const char* name;
  Tensor (*call)(Arguments& a);
};

TensorOptions options(Arguments& a) {
  return {.dtype = a.dtype(SIZE_MAX, "dtype"), .device = a.text(SIZE_MAX, "device", "")};
}
Shape shape(const std::vector<int64_t>& sizes) { return Shape(std::span<const int64_t>(sizes)); }
ReduceOptions reduce(Arguments& a) {
  return {.axis = a.axes(0, "axis", {}), .keepdim = a.flag(1, "keepdim", false), .dtype = a.dtype(2, "dtype")};
}
int axis(Arguments& a, size_t place, int otherwise) { return static_cast<int>(a.integer(place, "axis", otherwise)); }
ConvOptions convolution(Arguments& a) {
  return {.groups = a.integer(2, "groups", 1),
          .stride = a.sizes(3, "stride", 1),
          .dilation = a.sizes(4, "dilation", 1),
          .padding = a.sizes(5, "padding", 0)};
}
PoolOptions pooling(Arguments& a) {
  return {.kernel_size = a.sizes(0, "kernel_size", {2, 2}),
          .stride = a.sizes(1, "stride", {}),
          .dilation = a.sizes(2, "dilation", 1),
          .padding = a.sizes(3, "padding", 0)};
}
VarOptions variance(Arguments& a) {
  return {.axis = a.axes(0, "axis", {}),
          .keepdim = a.flag(1, "keepdim", false),
          .correction = a.number(2, "correction", 1)};
}
/// Returns (before, after) of each axis from a flat or nested list.
std::vector<std::pair<int64_t, int64_t>> pairs(const std::vector<int64_t>& flat) {
  TG_CHECK(app::UsageError, flat.size() % 2 == 0, "[expression] got ", flat.size(),
           " bounds, expected two for each axis");
  std::vector<std::pair<int64_t, int64_t>> out;
  for (size_t i = 0; i < flat.size(); i += 2) out.emplace_back(flat[i], flat[i + 1]);
  return out;
}
Tensor shrunk(const Tensor& x, Arguments& a) {
  std::vector<std::pair<SInt, SInt>> ranges;
  for (const auto& [from, to] : pairs(a.integers(0, "arg"))) ranges.emplace_back(from, to);
  return x.shrink(ranges);
}
std::vector<int> small(const std::vector<int64_t>& list) { return {list.begin(), list.end()}; }

#define TG_UNARY(name) {#name, [](const Tensor& x, Arguments&) { return x.name(); }}
#define TG_BINARY(name) {#name, [](const Tensor& x, Arguments& a) { return x.name(a.tensor(0, "x")); }}
#define TG_REDUCE(name) {#name, [](const Tensor& x, Arguments& a) { return x.name(reduce(a)); }}

constexpr Method kMethods[] = {
    TG_UNARY(abs),
    TG_UNARY(acos),
    TG_UNARY(acosh),
    TG_UNARY(asin),
    TG_UNARY(asinh),
    TG_UNARY(atan),
    TG_UNARY(atanh),
    TG_UNARY(bitwise_not),
    TG_UNARY(celu),
    TG_UNARY(ceil),
    TG_UNARY(cos),
    TG_UNARY(cosh),
    TG_UNARY(elu),
    TG_UNARY(erf),
    TG_UNARY(exp),
    TG_UNARY(exp2),
    TG_UNARY(floor),
    TG_UNARY(gelu),
    TG_UNARY(hardsigmoid),
    TG_UNARY(hardswish),
    TG_UNARY(hardtanh),
    TG_UNARY(isfinite),
    TG_UNARY(isinf),
    TG_UNARY(isnan),
    TG_UNARY(leaky_relu),
    TG_UNARY(log),
    TG_UNARY(log10),
    TG_UNARY(log2),
    TG_UNARY(logical_not),
    TG_UNARY(logsigmoid),
    TG_UNARY(mish),
    TG_UNARY(neg),
    TG_UNARY(quick_gelu),
    TG_UNARY(reciprocal),
    TG_UNARY(relu),
    TG_UNARY(relu6),
    TG_UNARY(round),
    TG_UNARY(rsqrt),
    TG_UNARY(selu),
    TG_UNARY(sigmoid),
    TG_UNARY(sign),
    TG_UNARY(silu),
    TG_UNARY(sin),
    TG_UNARY(sinh),
    TG_UNARY(softplus),
    TG_UNARY(softsign),
    TG_UNARY(sqrt),
    TG_UNARY(square),
    TG_UNARY(swish),
    TG_UNARY(tan),
    TG_UNARY(tanh),
    TG_UNARY(trunc),
    TG_UNARY(contiguous),
    TG_UNARY(detach),
    TG_UNARY(realize),
    TG_UNARY(half),
    TG_UNARY(bfloat16),
    {"float", [](const Tensor& x, Arguments&) { return x.to_float(); }},
    {"double", [](const Tensor& x, Arguments&) { return x.to_double(); }},
    {"int", [](const Tensor& x, Arguments&) { return x.to_int(); }},
    {"bool", [](const Tensor& x, Arguments&) { return x.to_bool(); }},
    {"cast", [](const Tensor& x, Arguments& a) { return x.cast(a.text(0, "dtype", "float32")); }},
    {"to", [](const Tensor& x, Arguments& a) { return x.to(a.text(0, "device", "")); }},

    TG_BINARY(add),
    TG_BINARY(sub),
    TG_BINARY(mul),
    TG_BINARY(div),
    TG_BINARY(floor_div),
    TG_BINARY(mod),
    TG_BINARY(fmod),
    TG_BINARY(pow),
    TG_BINARY(maximum),
    TG_BINARY(minimum),
    TG_BINARY(bitwise_and),
    TG_BINARY(bitwise_or),
    TG_BINARY(bitwise_xor),
    TG_BINARY(lshift),
    TG_BINARY(rshift),
    TG_BINARY(eq),
    TG_BINARY(ne),
    TG_BINARY(lt),
    TG_BINARY(gt),
    TG_BINARY(le),
    TG_BINARY(ge),
    TG_BINARY(dot),
    TG_BINARY(matmul),
    TG_BINARY(copysign),
    TG_BINARY(logaddexp),
    {"where", [](const Tensor& x, Arguments& a) { return x.where(a.tensor(0, "x"), a.tensor(1, "y")); }},
    {"masked_fill",
     [](const Tensor& x, Arguments& a) { return x.masked_fill(a.tensor(0, "mask"), a.tensor(1, "value")); }},
    {"clamp", [](const Tensor& x, Arguments& a) { return x.clamp(a.tensor(0, "min_"), a.tensor(1, "max_")); }},
    {"clip", [](const Tensor& x, Arguments& a) { return x.clamp(a.tensor(0, "min_"), a.tensor(1, "max_")); }},
    {"lerp", [](const Tensor& x, Arguments& a) { return x.lerp(a.tensor(0, "end"), a.tensor(1, "weight")); }},

    TG_REDUCE(sum),
    TG_REDUCE(prod),
    TG_REDUCE(max),
    TG_REDUCE(min),
    TG_REDUCE(mean),
    TG_REDUCE(any),
    TG_REDUCE(all),
    TG_REDUCE(logsumexp),
    {"var", [](const Tensor& x, Arguments& a) { return x.var(variance(a)); }},
    {"std", [](const Tensor& x, Arguments& a) { return x.std(variance(a)); }},
    {"argmax", [](const Tensor& x, Arguments& a) { return x.argmax(axis(a, 0, -1), a.flag(1, "keepdim", false)); }},
    {"argmin", [](const Tensor& x, Arguments& a) { return x.argmin(axis(a, 0, -1), a.flag(1, "keepdim", false)); }},
    {"softmax", [](const Tensor& x, Arguments& a) { return x.softmax(a.axes(0, "axis", -1), a.dtype(1, "dtype")); }},
    {"log_softmax",
     [](const Tensor& x, Arguments& a) { return x.log_softmax(a.axes(0, "axis", -1), a.dtype(1, "dtype")); }},
    {"cumsum", [](const Tensor& x, Arguments& a) { return x.cumsum(axis(a, 0, 0)); }},
    {"cumprod", [](const Tensor& x, Arguments& a) { return x.cumprod(axis(a, 0, 0)); }},
    {"layernorm",
     [](const Tensor& x, Arguments& a) { return x.layernorm(a.axes(0, "axis", -1), a.number(1, "eps", 1e-5)); }},
    {"rms_norm", [](const Tensor& x, Arguments& a) { return x.rms_norm(axis(a, 0, -1), a.number(1, "eps", 1e-6)); }},
    {"batchnorm",
     [](const Tensor& x, Arguments& a) {
       return x.batchnorm(a.tensor_or_none(0, "weight"), a.tensor_or_none(1, "bias"), a.tensor(2, "mean"),
                          a.tensor(3, "invstd"), a.axes(4, "axis", 1));
     }},
    {"argsort",
     [](const Tensor& x, Arguments& a) {
       return x.argsort(static_cast<int>(a.integer(0, "dim", -1)), a.flag(1, "descending", false));
     }},

    {"linear",
     [](const Tensor& x, Arguments& a) { return x.linear(a.tensor(0, "weight"), a.tensor_or_none(1, "bias")); }},
    {"conv2d",
     [](const Tensor& x, Arguments& a) {
       return x.conv2d(a.tensor(0, "weight"), a.tensor_or_none(1, "bias"), convolution(a));
     }},
    {"conv_transpose2d",
     [](const Tensor& x, Arguments& a) {
       return x.conv_transpose2d(a.tensor(0, "weight"), a.tensor_or_none(1, "bias"),
                                 {.groups = a.integer(2, "groups", 1),
                                  .stride = a.sizes(3, "stride", 1),
                                  .dilation = a.sizes(4, "dilation", 1),
                                  .padding = a.sizes(5, "padding", 0),
                                  .output_padding = a.sizes(6, "output_padding", 0)});
     }},
    {"max_pool2d", [](const Tensor& x, Arguments& a) { return x.max_pool2d(pooling(a)); }},
    {"avg_pool2d", [](const Tensor& x, Arguments& a) { return x.avg_pool2d(pooling(a)); }},
    {"scaled_dot_product_attention",
     [](const Tensor& x, Arguments& a) {
       return x.scaled_dot_product_attention(a.tensor(0, "key"), a.tensor(1, "value"), a.tensor_or_none(2, "attn_mask"),
                                             a.number(3, "dropout_p", 0), a.flag(4, "is_causal", false),
                                             a.flag(5, "enable_gqa", false));
     }},
    {"triu", [](const Tensor& x, Arguments& a) { return x.triu(a.integer(0, "diagonal", 0)); }},
    {"tril", [](const Tensor& x, Arguments& a) { return x.tril(a.integer(0, "diagonal", 0)); }},
    {"cross_entropy", [](const Tensor& x, Arguments& a) { return x.cross_entropy(a.tensor(0, "Y")); }},
    {"sparse_categorical_crossentropy",
     [](const Tensor& x, Arguments& a) { return x.sparse_categorical_crossentropy(a.tensor(0, "Y")); }},

    {"reshape", [](const Tensor& x, Arguments& a) { return x.reshape(shape(a.integers(0, "shape"))); }},
    {"view", [](const Tensor& x, Arguments& a) { return x.reshape(shape(a.integers(0, "shape"))); }},
    {"expand", [](const Tensor& x, Arguments& a) { return x.expand(shape(a.integers(0, "shape"))); }},
    {"permute", [](const Tensor& x, Arguments& a) { return x.permute(small(a.integers(0, "order"))); }},
    {"flip", [](const Tensor& x, Arguments& a) { return x.flip(small(a.integers(0, "axis"))); }},
    {"transpose",
     [](const Tensor& x, Arguments& a) {
       return x.transpose(static_cast<int>(a.integer(0, "dim0", 1)), static_cast<int>(a.integer(1, "dim1", 0)));
     }},
    {"pad", [](const Tensor& x, Arguments& a) { return x.pad(pairs(a.integers(0, "padding"))); }},
    {"shrink", shrunk},
    {"repeat", [](const Tensor& x, Arguments& a) { return x.repeat(Ints(a.integers(0, "repeats"))); }},
    {"squeeze", [](const Tensor& x, Arguments&) { return x.squeeze(); }},
    {"unsqueeze", [](const Tensor& x, Arguments& a) { return x.unsqueeze(static_cast<int>(a.integer(0, "dim", 0))); }},
    {"flatten",
     [](const Tensor& x, Arguments& a) {
       return x.flatten(static_cast<int>(a.integer(0, "start_dim", 0)), static_cast<int>(a.integer(1, "end_dim", -1)));
     }},
    {"rearrange", [](const Tensor& x, Arguments& a) { return x.rearrange(a.text(0, "formula", "")); }},
    {"gather", [](const Tensor& x,
                  Arguments& a) { return x.gather(static_cast<int>(a.integer(0, "dim", 0)), a.tensor(1, "index")); }},
    {"one_hot", [](const Tensor& x, Arguments& a) { return x.one_hot(a.integer(0, "num_classes", 1)); }},
};

/// Random values and files are what a program is given: they are computed before.
constexpr Function kFunctions[] = {
    {"rand", [](Arguments& a) { return Tensor::rand(shape(a.integers(0, "shape")), options(a)).realize(); }},
    {"randn", [](Arguments& a) { return Tensor::randn(shape(a.integers(0, "shape")), options(a)).realize(); }},
    {"randint",
     [](Arguments& a) {
       return Tensor::randint(shape(a.integers(0, "shape")),
                              {.low = a.integer(SIZE_MAX, "low", 0), .high = a.integer(SIZE_MAX, "high", 10)})
           .realize();
     }},
    {"empty", [](Arguments& a) { return Tensor::empty(shape(a.integers(0, "shape")), options(a)); }},
    {"zeros", [](Arguments& a) { return Tensor::zeros(shape(a.integers(0, "shape")), options(a)); }},
    {"ones", [](Arguments& a) { return Tensor::ones(shape(a.integers(0, "shape")), options(a)); }},
    {"full",
     [](Arguments& a) {
       return Tensor::full(shape(std::vector<int64_t>(a.sizes(0, "shape", {}))), a.scalar(1, "fill_value"), options(a));
     }},
    {"arange", [](Arguments& a) { return Tensor::arange(a.scalar(0, "stop"), options(a)); }},
    {"eye", [](Arguments& a) { return Tensor::eye(a.integer(0, "n", 1), options(a)); }},
    {"cat",
     [](Arguments& a) {
       const Tensors t = a.tensors(0, "tensors");
       return Tensor::cat(t, static_cast<int>(a.integer(1, "dim", 0)));
     }},
    {"stack",
     [](Arguments& a) {
       const Tensors t = a.tensors(0, "tensors");
       return Tensor::stack(t, static_cast<int>(a.integer(1, "dim", 0)));
     }},
    {"einsum",
     [](Arguments& a) {
       const std::string f = a.text(0, "formula", "");
       return Tensor::einsum(f, a.tensors(1, "operands"));
     }},
};
#undef TG_UNARY
#undef TG_BINARY
#undef TG_REDUCE

template <class Row, size_t n> std::vector<std::string> names_of(const Row (&rows)[n]) {
  std::vector<std::string> names;
  for (const Row& r : rows) names.emplace_back(r.name);
  return names;
}

template <class Row, size_t n> const Row& row_of(const Row (&rows)[n], const std::string& name, const char* what) {
  const auto it = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.name == name; });
  if (it == std::end(rows))
    throw UsageError(str("[expression] got ", name, ", which is no ", what, "; did you mean ",
                         nearest_name(name, names_of(rows)), "?"));
  return *it;
}

}  // namespace

Tensor call_method(const Tensor& x, const std::string& name, CallArguments& arguments) {
  return row_of(kMethods, name, "method of a tensor").call(x, arguments);
}
Tensor call_function(const std::string& name, CallArguments& arguments) {
  return row_of(kFunctions, name, "function").call(arguments);
}
std::vector<std::string> method_names() { return names_of(kMethods); }
std::vector<std::string> function_names() { return names_of(kFunctions); }

}  // namespace tg::app
