/// \file The table of Tensor operations that tests run: each name of cases.tsv (inputs, values and gradients recorded
/// from PyTorch, see record.py) with the call under test. Used with the dense evaluator and, by the device tests, with
/// every device.
#pragma once
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::oracle {

/// Deterministic inputs: the formula of record.py.
inline std::vector<double> input_values(int64_t n, int64_t seed, double lo, double hi) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; i++)
    v.push_back(lo + (hi - lo) * (static_cast<double>((i * 618034 + seed * 104729 + 12345) % 1000003) / 1000003.0));
  return v;
}

struct Recorded {
  std::string name;
  std::vector<std::string> inputs;  ///< "f:3,5:-2.0:2.0"
  DType dtype;
  Shape shape;
  std::vector<double> values;
  std::vector<std::vector<double>> gradients;  ///< per input, empty: none
};

inline std::ostream& operator<<(std::ostream& os, const Recorded& r) { return os << r.name; }

/// Operations that are kernels written as loops in order: only devices run those.
inline bool is_kernel_by_hand(const std::string& name) {
  for (const char* begin : {"keccak", "qr_", "svd_", "masked_select", "nonzero"})
    if (name.starts_with(begin)) return true;
  return false;
}

inline std::vector<std::string> split(const std::string& s, char by) {
  std::vector<std::string> out(1);
  for (char c : s) {
    if (c == by) out.emplace_back();
    else out.back() += c;
  }
  return out;
}
inline std::vector<double> numbers(const std::string& s) {
  std::vector<double> out;
  for (const std::string& w : split(s, ' '))
    if (!w.empty()) out.push_back(std::strtod(w.c_str(), nullptr));
  return out;
}
inline Shape shape_from(const std::string& s) {
  Shape out;
  for (const std::string& w : split(s, ','))
    if (!w.empty()) out.push_back(static_cast<int64_t>(std::stoll(w)));
  return out;
}
inline std::vector<Recorded> recorded(const std::string& path) {
  std::vector<Recorded> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> f = split(line, '\t');
    Recorded r{f[0], split(f[1], ';'), dtypes::from_name(f[2]), shape_from(f[3]), numbers(f[4]), {}};
    if (f.size() > 5 && !f[5].empty())
      for (const std::string& g : split(f[5], '|'))
        r.gradients.push_back(g == "-" ? std::vector<double>{} : numbers(g));
    out.push_back(std::move(r));
  }
  return out;
}

inline Tensor input(const std::string& spec, int64_t seed) {
  std::vector<std::string> f = split(spec, ':');
  Shape shape = shape_from(f[1]);
  std::vector<double> v = input_values(shape.numel(), seed, std::stod(f[2]), std::stod(f[3]));
  static const std::map<char, DType> types{{'f', dtypes::float32}, {'h', dtypes::float16}, {'d', dtypes::float64},
                                           {'b', dtypes::bool_},   {'i', dtypes::int32},   {'l', dtypes::int64},
                                           {'u', dtypes::uint8},   {'s', dtypes::int16}};
  DType d = types.at(f[0][0]);
  if (!d.is_float())
    for (double& x : v) x = std::floor(x);
  if (d.is_bool())
    for (double& x : v) x = std::fmod(x, 2);
  if (d == dtypes::float16)
    for (double& x : v) x = static_cast<float>(x);
  return Tensor::from(v, shape, {.dtype = d});
}

using Call = std::function<Tensor(const Tensors&)>;
struct OpCase {
  Call call;
  double tolerance =
      2e-6;  ///< relative and absolute; wider only where the method's own approximation is (asin, erf: polynomials)
};

/// Labels, the negative ones replaced by the one that is ignored.
inline Tensor labels(const Tensors& t, int64_t ignored) { return (t[1] < 0).where(ignored, t[1]); }

inline const std::map<std::string, OpCase>& op_cases() {
#define TG_UNARY(name)                             \
  {                                                \
    #name, {                                       \
      [](const Tensors& t) { return t[0].name(); } \
    }                                              \
  }
#define TG_BINARY(key, method)                           \
  {                                                      \
    key, {                                               \
      [](const Tensors& t) { return t[0].method(t[1]); } \
    }                                                    \
  }
#define TG_CASE(key, ...)                                                     \
  {                                                                           \
    key, {                                                                    \
      []([[maybe_unused]] const Tensors& t) -> Tensor { return __VA_ARGS__; } \
    }                                                                         \
  }
#define TG_NEAR(key, tolerance, ...)                                                     \
  {                                                                                      \
    key, {                                                                               \
      []([[maybe_unused]] const Tensors& t) -> Tensor { return __VA_ARGS__; }, tolerance \
    }                                                                                    \
  }
  const static std::map<std::string, OpCase> cases{
      // ---- elementwise ----
      TG_UNARY(relu),
      TG_UNARY(sigmoid),
      TG_UNARY(tanh),
      TG_UNARY(exp),
      TG_UNARY(exp2),
      TG_UNARY(sin),
      TG_UNARY(cos),
      TG_UNARY(square),
      TG_UNARY(abs),
      TG_UNARY(sign),
      TG_UNARY(ceil),
      TG_UNARY(floor),
      TG_UNARY(round),
      TG_UNARY(trunc),
      TG_UNARY(neg),
      TG_UNARY(silu),
      TG_UNARY(relu6),
      TG_UNARY(hardswish),
      TG_UNARY(mish),
      TG_UNARY(softplus),
      TG_UNARY(softsign),
      TG_UNARY(logsigmoid),
      TG_UNARY(quick_gelu),
      TG_UNARY(hardsigmoid),
      TG_UNARY(celu),
      TG_UNARY(elu),
      TG_UNARY(selu),
      TG_UNARY(leaky_relu),
      TG_UNARY(hardtanh),
      TG_UNARY(gelu),
      TG_UNARY(sinh),
      TG_UNARY(cosh),
      TG_UNARY(log),
      TG_UNARY(log2),
      TG_UNARY(log10),
      TG_UNARY(sqrt),
      TG_UNARY(rsqrt),
      TG_UNARY(reciprocal),
      TG_UNARY(atanh),
      TG_UNARY(tan),
      TG_UNARY(asinh),
      TG_UNARY(acosh),
      TG_UNARY(logical_not),
      TG_NEAR("erf", 1e-5, t[0].erf()),
      TG_NEAR("gelu_erf", 1e-5, t[0].gelu(false)),
      TG_NEAR("asin", 1e-5, t[0].asin()),
      TG_NEAR("acos", 1e-5, t[0].acos()),
      TG_NEAR("atan", 1e-5, t[0].atan()),
      TG_BINARY("add_broadcast", add),
      TG_BINARY("sub_broadcast", sub),
      TG_BINARY("mul_scalar_shape", mul),
      TG_BINARY("div", div),
      TG_BINARY("div_int", div),
      TG_BINARY("floor_div_int", floor_div),
      TG_BINARY("trunc_div_int", trunc_div),
      TG_BINARY("mod_int", mod),
      TG_BINARY("fmod_int", fmod),
      TG_BINARY("mod_float", mod),
      TG_BINARY("pow_tensor", pow),
      TG_CASE("pow_2", t[0].pow(2)),
      TG_CASE("pow_m3", t[0].pow(-3)),
      TG_CASE("pow_frac", t[0].pow(1.7)),
      TG_CASE("pow_of_scalar", Tensor(2.5).pow(t[0])),
      TG_BINARY("maximum", maximum),
      TG_BINARY("minimum", minimum),
      TG_BINARY("maximum_int", maximum),
      TG_BINARY("minimum_int", minimum),
      TG_BINARY("minimum_u8", minimum),
      TG_CASE("where", t[0].where(t[1], t[2])),
      TG_CASE("where_scalar", t[0].where(t[1], 2.0)),
      TG_CASE("clamp", t[0].clamp(-0.5, 1.0)),
      TG_CASE("clamp_min", t[0].clamp(0.25)),
      TG_BINARY("lt_int", lt),
      TG_BINARY("gt_int", gt),
      TG_BINARY("le_int", le),
      TG_BINARY("ge_int", ge),
      TG_BINARY("eq_int", eq),
      TG_BINARY("ne_int", ne),
      TG_BINARY("lt_float", lt),
      TG_BINARY("gt_float", gt),
      TG_BINARY("le_float", le),
      TG_BINARY("ge_float", ge),
      TG_BINARY("eq_float", eq),
      TG_BINARY("ne_float", ne),
      TG_BINARY("and_int", bitwise_and),
      TG_BINARY("or_int", bitwise_or),
      TG_BINARY("xor_int", bitwise_xor),
      TG_BINARY("and_bool", bitwise_and),
      TG_BINARY("or_bool", bitwise_or),
      TG_BINARY("xor_bool", bitwise_xor),
      TG_CASE("not_int", ~t[0]),
      TG_BINARY("lshift", lshift),
      TG_BINARY("rshift", rshift),
      TG_BINARY("copysign", copysign),
      TG_BINARY("logaddexp", logaddexp),
      TG_CASE("lerp", t[0].lerp(t[1], t[2])),
      TG_CASE("isnan_isinf", t[0].isfinite()),
      TG_CASE("cast_float_int", t[0].to_int()),
      TG_CASE("cast_half", t[0].half()),
      TG_CASE("cast_int_bool", t[0].to_bool()),
      TG_CASE("cast_half_float", t[0].to_float()),
      TG_CASE("half_add", t[0] + t[1]),
      TG_CASE("bitcast_f32_i32", t[0].bitcast(dtypes::int32)),
      TG_CASE("bitcast_f32_i16", t[0].bitcast(dtypes::int16)),
      TG_CASE("bitcast_i16_i32", t[0].bitcast(dtypes::int32)),
      // ---- reduces ----
      TG_CASE("sum", t[0].sum()),
      TG_CASE("sum_axis", t[0].sum(1)),
      TG_CASE("sum_keepdim", t[0].sum({.axis = {-1}, .keepdim = true})),
      TG_CASE("mean", t[0].mean()),
      TG_CASE("mean_axis", t[0].mean(1)),
      TG_CASE("mean_keepdim", t[0].mean(-1, true)),
      TG_CASE("prod", t[0].prod()),
      TG_CASE("prod_axis", t[0].prod(1)),
      TG_CASE("prod_keepdim", t[0].prod(-1, true)),
      TG_CASE("sum_axes", t[0].sum({0, 2})),
      TG_CASE("sum_0d", t[0].sum()),
      TG_CASE("sum_int", t[0].sum(0)),
      TG_CASE("sum_bool", t[0].sum(0)),
      TG_CASE("sum_half", t[0].sum(0)),
      TG_CASE("max", t[0].max()),
      TG_CASE("max_axis", t[0].max(1)),
      TG_CASE("min_axis", t[0].min({0, 2}, true)),
      TG_CASE("max_int", t[0].max(1)),
      TG_CASE("min_int", t[0].min(1)),
      TG_CASE("max_ties", t[0].max()),
      TG_CASE("any", t[0].any(1)),
      TG_CASE("all", t[0].all(1)),
      TG_CASE("var", t[0].var(1)),
      TG_CASE("var_correction", t[0].var({.axis = {0, 1}, .correction = 0})),
      TG_CASE("std", t[0].std(0)),
      TG_CASE("logsumexp", t[0].logsumexp(1)),
      TG_CASE("softmax", t[0].softmax()),
      TG_CASE("softmax_axis0", t[0].softmax(0)),
      TG_CASE("log_softmax", t[0].log_softmax(1)),
      TG_CASE("argmax", t[0].argmax()),
      TG_CASE("argmax_axis", t[0].argmax(1)),
      TG_CASE("argmin_axis", t[0].argmin(0)),
      TG_CASE("argmax_ties", t[0].argmax()),
      TG_CASE("cumsum", t[0].cumsum()),
      TG_CASE("cumsum_axis1", t[0].cumsum(1)),
      TG_NEAR("cumsum_long", 1e-5, t[0].cumsum(0)),
      TG_CASE("cumprod", t[0].cumprod(1)),
      TG_CASE("cummax", t[0].cummax(1).first),
      TG_CASE("logcumsumexp", t[0].logcumsumexp(1)),
      TG_NEAR("layernorm", 5e-6, t[0].layernorm()),
      TG_CASE("normalize", t[0].normalize()),
      TG_CASE("sort", t[0].sort(1).first),
      TG_CASE("argsort_descending", t[0].argsort(1, true)),
      TG_CASE("topk", t[0].topk(3).first),
      TG_CASE("sort_descending", t[0].sort(1, true).first),
      TG_CASE("argsort_ties", t[0].argsort(1)),
      TG_CASE("sort_long", t[0].sort().first),
      TG_CASE("argsort_long_ties", t[0].argsort(1)),
      TG_CASE("argsort_long_descending", t[0].argsort(0, true)),
      // ---- movement ----
      TG_CASE("reshape", t[0].reshape(3, -1)),
      TG_CASE("expand", t[0].expand(2, -1, 4)),
      TG_CASE("permute", t[0].permute(2, 0, 1)),
      TG_CASE("transpose", t[0].transpose(-1, 0)),
      TG_CASE("shrink", t[0].shrink({{1, 3}, {2, 5}})),
      TG_CASE("pad", t[0].pad({1, 2, 0, 1})),
      TG_CASE("pad_value", t[0].pad({1, 2, 0, 1}, {.value = 2.5})),
      TG_CASE("pad_negative", t[0].pad({-1, 2, 1, -2})),
      TG_CASE("pad_reflect", t[0].pad({2, 3}, {.mode = PadOptions::kReflect})),
      TG_CASE("pad_replicate", t[0].pad({2, 3}, {.mode = PadOptions::kReplicate})),
      TG_CASE("pad_circular", t[0].pad({2, 3}, {.mode = PadOptions::kCircular})),
      TG_CASE("flip", t[0].flip({0, 1})),
      TG_CASE("cat_equal", Tensor::cat(t, 1)),
      TG_CASE("cat_unequal", Tensor::cat(t)),
      TG_CASE("stack", Tensor::stack(t, -1)),
      TG_CASE("repeat", t[0].repeat({2, 1, 3})),
      TG_CASE("repeat_interleave", t[0].repeat_interleave(2, 1)),
      TG_CASE("split", t[0].split(3)[2]),
      TG_CASE("chunk", t[0].chunk(3)[1]),
      TG_CASE("unfold", t[0].unfold(1, 4, 2)),
      TG_CASE("unfold_axis0", t[0].unfold(0, 3, 1)),
      TG_CASE("roll", t[0].roll({1, -1}, {0, 1})),
      TG_CASE("diagonal", t[0].diagonal(1)),
      TG_CASE("diagonal_neg", t[0].diagonal(-1)),
      TG_CASE("diag", t[0].diag()),
      TG_CASE("triu", t[0].triu(1)),
      TG_CASE("tril", t[0].tril(-1)),
      TG_CASE("squeeze_unsqueeze", t[0].squeeze(1).unsqueeze(-1)),
      TG_CASE("flatten", t[0].flatten(1)),
      TG_CASE("movement_chain", t[0].T().reshape(3, 8)(Slice(), Slice(1, 7)).pad({1, 1}).flip(1).T()),
      TG_CASE("zero_size_sum", t[0].sum(0)),
      TG_CASE("zero_size_add", t[0] + t[1]),
      TG_CASE("zero_size_cat", Tensor::cat(t)),
      // ---- matrices ----
      TG_BINARY("dot_1_1", dot),
      TG_BINARY("dot_2_2", dot),
      TG_BINARY("dot_1_2", dot),
      TG_BINARY("dot_2_1", dot),
      TG_BINARY("dot_3_2", dot),
      TG_BINARY("dot_3_1", dot),
      TG_BINARY("dot_1_3", dot),
      TG_BINARY("dot_2_3", dot),
      TG_BINARY("dot_4_3", dot),
      TG_BINARY("dot_int", dot),
      TG_CASE("linear", t[0].linear(t[1], t[2])),
      TG_CASE("einsum_matmul", Tensor::einsum("ij,jk->ik", t)),
      TG_CASE("einsum_batch", Tensor::einsum("bij,bjk->bki", t)),
      TG_CASE("einsum_implicit", Tensor::einsum("ab,bc", t)),
      TG_CASE("einsum_ellipsis", Tensor::einsum("...i,ij->...j", t)),
      TG_CASE("einsum_trace", Tensor::einsum("ii->", t)),
      TG_CASE("attention", t[0].scaled_dot_product_attention(t[1], t[2])),
      TG_CASE("attention_causal", t[0].scaled_dot_product_attention(t[1], t[2], {}, 0, true)),
      // ---- convolution and pooling ----
      TG_CASE("conv2d", t[0].conv2d(t[1])),
      TG_CASE("conv2d_bias_pad", t[0].conv2d(t[1], t[2], {.padding = 1})),
      TG_CASE("conv2d_stride", t[0].conv2d(t[1], {}, {.stride = 2})),
      TG_CASE("conv2d_stride_gap", t[0].conv2d(t[1], {}, {.stride = 3})),
      TG_CASE("conv2d_dilation", t[0].conv2d(t[1], {}, {.dilation = {2, 3}})),
      TG_CASE("conv2d_groups", t[0].conv2d(t[1], {}, {.groups = 2, .stride = 2, .padding = 1})),
      TG_CASE("conv2d_depthwise", t[0].conv2d(t[1], {}, {.groups = 3})),
      TG_CASE("conv2d_1x1", t[0].conv2d(t[1])),
      TG_CASE("conv1d", t[0].conv2d(t[1], {}, {.stride = 2, .padding = 2})),
      TG_CASE("conv3d", t[0].conv2d(t[1])),
      TG_CASE("conv_transpose2d", t[0].conv_transpose2d(t[1])),
      TG_CASE("conv_transpose2d_options",
              t[0].conv_transpose2d(t[1], {}, {.groups = 2, .stride = 2, .padding = 1, .output_padding = 1})),
      TG_CASE("max_pool2d", t[0].max_pool2d()),
      TG_CASE("max_pool2d_overlap", t[0].max_pool2d({.kernel_size = 3, .stride = 2, .padding = 1})),
      TG_CASE("max_pool2d_ceil", t[0].max_pool2d({.kernel_size = 3, .stride = 2, .ceil_mode = true})),
      TG_CASE("max_pool2d_dilation", t[0].max_pool2d({.kernel_size = 2, .stride = 1, .dilation = 3})),
      TG_CASE("avg_pool2d", t[0].avg_pool2d()),
      TG_CASE("avg_pool2d_pad", t[0].avg_pool2d({.kernel_size = 3, .stride = 2, .padding = 1})),
      TG_CASE("avg_pool2d_exclude",
              t[0].avg_pool2d({.kernel_size = 3, .stride = 2, .padding = 1, .count_include_pad = false})),
      TG_CASE("max_pool_1d", t[0].max_pool2d({.kernel_size = {3}, .stride = 2, .padding = 1})),
      TG_CASE("max_pool_3d", t[0].max_pool2d({.kernel_size = {2, 2, 2}, .stride = {2, 1, 2}})),
      TG_CASE("avg_pool_1d", t[0].avg_pool2d({.kernel_size = {4}, .stride = 2, .padding = 1})),
      TG_CASE("avg_pool2d_ceil", t[0].avg_pool2d({.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true})),
      // ---- losses ----
      TG_CASE("sparse_cce", t[0].sparse_categorical_crossentropy(t[1])),
      TG_CASE("sparse_cce_smooth", t[0].sparse_categorical_crossentropy(t[1], {.label_smoothing = 0.1})),
      TG_CASE("sparse_cce_ignore", t[0].sparse_categorical_crossentropy(t[1], {.ignore_index = 2})),
      TG_CASE("cross_entropy", t[0].cross_entropy(t[1])),
      TG_CASE("cross_entropy_spatial", t[0].cross_entropy(t[1], {.reduction = Reduction::kNone})),
      TG_CASE("cross_entropy_smooth", t[0].cross_entropy(t[1], {.label_smoothing = 0.2})),
      TG_CASE("cross_entropy_probabilities", t[0].cross_entropy(t[1], {.reduction = Reduction::kSum})),
      TG_CASE("nll_loss", t[0].nll_loss(t[1])),
      TG_CASE("nll_loss_weight", t[0].nll_loss(t[1], t[2].detach(), {.ignore_index = 1})),
      TG_CASE("bce", t[0].binary_crossentropy(t[1].detach())),
      TG_CASE("bce_logits", t[0].binary_crossentropy_logits(t[1])),
      TG_CASE("bce_logits_weight", t[0].binary_crossentropy_logits(t[1], Reduction::kSum, t[2].detach())),
      TG_CASE("mse", t[0].mse_loss(t[1])),
      TG_CASE("ignore_m1_sparse_mean",
              t[0].sparse_categorical_crossentropy(labels(t, -1), {.reduction = Reduction::kMean, .ignore_index = -1})),
      TG_CASE("ignore_m1_smooth_mean",
              t[0].cross_entropy(labels(t, -1),
                                 {.reduction = Reduction::kMean, .label_smoothing = 0.3, .ignore_index = -1})),
      TG_CASE("ignore_m1_nll_mean",
              t[0].nll_loss(labels(t, -1), t[2].detach(), {.reduction = Reduction::kMean, .ignore_index = -1})),
      TG_CASE("ignore_m1_sparse_sum",
              t[0].sparse_categorical_crossentropy(labels(t, -1), {.reduction = Reduction::kSum, .ignore_index = -1})),
      TG_CASE("ignore_m1_smooth_sum",
              t[0].cross_entropy(labels(t, -1),
                                 {.reduction = Reduction::kSum, .label_smoothing = 0.3, .ignore_index = -1})),
      TG_CASE("ignore_m1_nll_sum",
              t[0].nll_loss(labels(t, -1), t[2].detach(), {.reduction = Reduction::kSum, .ignore_index = -1})),
      TG_CASE("ignore_m1_sparse_none",
              t[0].sparse_categorical_crossentropy(labels(t, -1), {.reduction = Reduction::kNone, .ignore_index = -1})),
      TG_CASE("ignore_m1_smooth_none",
              t[0].cross_entropy(labels(t, -1),
                                 {.reduction = Reduction::kNone, .label_smoothing = 0.3, .ignore_index = -1})),
      TG_CASE("ignore_m1_nll_none",
              t[0].nll_loss(labels(t, -1), t[2].detach(), {.reduction = Reduction::kNone, .ignore_index = -1})),
      TG_CASE("ignore_m100_sparse_mean", t[0].sparse_categorical_crossentropy(
                                             labels(t, -100), {.reduction = Reduction::kMean, .ignore_index = -100})),
      TG_CASE("ignore_m100_smooth_mean",
              t[0].cross_entropy(labels(t, -100),
                                 {.reduction = Reduction::kMean, .label_smoothing = 0.3, .ignore_index = -100})),
      TG_CASE("ignore_m100_nll_mean",
              t[0].nll_loss(labels(t, -100), t[2].detach(), {.reduction = Reduction::kMean, .ignore_index = -100})),
      TG_CASE("ignore_m100_sparse_sum", t[0].sparse_categorical_crossentropy(
                                            labels(t, -100), {.reduction = Reduction::kSum, .ignore_index = -100})),
      TG_CASE("ignore_m100_smooth_sum",
              t[0].cross_entropy(labels(t, -100),
                                 {.reduction = Reduction::kSum, .label_smoothing = 0.3, .ignore_index = -100})),
      TG_CASE("ignore_m100_nll_sum",
              t[0].nll_loss(labels(t, -100), t[2].detach(), {.reduction = Reduction::kSum, .ignore_index = -100})),
      TG_CASE("ignore_m100_sparse_none", t[0].sparse_categorical_crossentropy(
                                             labels(t, -100), {.reduction = Reduction::kNone, .ignore_index = -100})),
      TG_CASE("ignore_m100_smooth_none",
              t[0].cross_entropy(labels(t, -100),
                                 {.reduction = Reduction::kNone, .label_smoothing = 0.3, .ignore_index = -100})),
      TG_CASE("ignore_m100_nll_none",
              t[0].nll_loss(labels(t, -100), t[2].detach(), {.reduction = Reduction::kNone, .ignore_index = -100})),
      // ---- indexing ----
      TG_CASE("index_int", t[0][1]),
      TG_CASE("index_negative", t[0](-1, -2)),
      TG_CASE("index_slice_step", t[0](Slice(1, 8, 3), Slice(None, None, 2))),
      TG_CASE("index_slice_negative_step", t[0](Slice(None, None, -2), Slice(1, None))),
      TG_CASE("index_none_ellipsis", t[0](None, Ellipsis, Slice(1, 3), None)),
      TG_CASE("index_empty_slice", t[0](Slice(3, 2))),
      TG_CASE("index_tensor", t[0][t[1]]),
      TG_CASE("index_tensor_2d", t[0][t[1]]),
      TG_CASE("index_tensor_axis1", t[0](Slice(), t[1])),
      TG_CASE("index_two_tensors", t[0](t[1], t[2])),
      TG_CASE("index_two_tensors_apart", t[0](t[1], Slice(), t[2])),
      TG_CASE("index_two_tensors_inner", t[0](Slice(), t[1], t[2])),
      TG_CASE("index_of_expression", (t[0] * 2 + 1)[t[1]]),
      TG_CASE("gather", t[0].gather(1, t[1])),
      TG_CASE("gather_axis0", t[0].gather(0, t[1])),
      TG_CASE("gather_smaller", t[0].gather(1, t[1])),
      TG_CASE("scatter", t[0].scatter(1, t[2], t[1])),
      TG_CASE("scatter_add", t[0].scatter_add(1, t[2], t[1])),
      TG_CASE("one_hot", t[0].one_hot(5)),
      // ---- further methods ----
      TG_CASE("cummax_indices", t[0].cummax(1).second),
      TG_CASE("cummin", t[0].cummin(1).first),
      TG_CASE("softmin", t[0].softmin()),
      TG_CASE("scatter_reduce_sum", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kSum)),
      TG_CASE("scatter_reduce_sum_exclude", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kSum, false)),
      TG_CASE("scatter_reduce_prod", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kProd)),
      TG_CASE("scatter_reduce_prod_exclude", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kProd, false)),
      TG_CASE("scatter_reduce_mean", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kMean)),
      TG_CASE("scatter_reduce_mean_exclude", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kMean, false)),
      TG_CASE("scatter_reduce_amax", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kMax)),
      TG_CASE("scatter_reduce_amax_exclude", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kMax, false)),
      TG_CASE("scatter_reduce_amin", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kMin)),
      TG_CASE("scatter_reduce_amin_exclude", t[0].scatter_reduce(1, t[2], t[1], ScatterReduce::kMin, false)),
      TG_CASE("masked_select", t[0].masked_select(t[1])),
      TG_CASE("masked_select_size", t[0].masked_select(t[1], 8, 9.0)),
      TG_CASE("nonzero", t[0].nonzero()),
      TG_CASE("max_pool2d_indices", t[0].max_pool2d_with_indices({.kernel_size = 3, .stride = 2, .padding = 1}).second),
      TG_CASE("max_unpool2d",
              [&] {
                auto [v, i] = t[0].max_pool2d_with_indices();
                return v.max_unpool2d(i);
              }()),
      TG_CASE("interpolate_linear", t[0].interpolate({8})),
      TG_CASE("interpolate_bilinear_corners", t[0].interpolate({5, 7}, Interpolation::kLinear, true)),
      TG_CASE("interpolate_nearest", t[0].interpolate({5, 3}, Interpolation::kNearest)),
      TG_CASE("interpolate_nearest_exact", t[0].interpolate({5, 3}, Interpolation::kNearestExact)),
      TG_CASE("rearrange", t[0].rearrange("b (h d) t -> b t (d h)", {{"h", 3}})),
      TG_CASE("rearrange_ellipsis", t[0].rearrange("... c -> c 1 (...)")),
      TG_NEAR("qr_product", 1e-5,
              [&] {
                auto [q, r] = t[0].detach().qr();
                return q.dot(r);
              }()),
      TG_NEAR("qr_orthogonal", 1e-5,
              [&] {
                Tensor q = t[0].detach().qr().first;
                return q.T().dot(q);
              }()),
      TG_NEAR("svd_values", 1e-5, t[0].detach().svd().s),
      TG_NEAR("svd_product", 1e-5,
              [&] {
                auto [u, sv, vt] = t[0].detach().svd(false);
                return (u * sv.unsqueeze(-2)).dot(vt);
              }()),
      TG_NEAR("svd_full_orthogonal", 1e-5,
              [&] {
                Tensor u = t[0].detach().svd().u;
                return u.T().dot(u);
              }()),
      TG_NEAR("newton_schulz", 1e-5, t[0].detach().newton_schulz(3, {3.4445, -4.775, 2.0315})),
      TG_CASE("keccak_sha3_256", t[0].keccak()),
      TG_CASE("keccak_sha3_224", t[0].keccak("sha3_224")),
      TG_CASE("keccak_shake_128", t[0].keccak("shake_128")),
      // ---- creation ----
      TG_CASE("arange_steps", Tensor::arange(7, -4, -3)),
      TG_CASE("arange_float", Tensor::arange(0.5, 3.0, 0.5)),
      TG_CASE("linspace", Tensor::linspace(-1, 2, 7)),
      TG_CASE("linspace_one", Tensor::linspace(3, 9, 1)),
      TG_CASE("eye_wide", Tensor::eye(3, 5)),
      TG_CASE("full_like", t[0].full_like(4.5)),
      TG_CASE("constants", t[0] * Tensor::constants({1.0, -2.0, 3.0}, dtypes::float32)),
      TG_CASE("meshgrid_ij", Tensor::meshgrid({t[0], t[1]})[0] * Tensor::meshgrid({t[0], t[1]})[1]),
      TG_CASE("meshgrid_xy", Tensor::meshgrid({t[0], t[1]}, false)[0] - Tensor::meshgrid({t[0], t[1]}, false)[1]),
      // ---- views as inputs, odd and empty shapes, negative axes ----
      TG_CASE("view_exp_flip", t[0].T().flip(0)(Slice(1, 6, 2)).exp()),
      TG_CASE("view_max_permuted", t[0].permute(2, 0, 1)(Slice(1, 4)).max(-2)),
      TG_CASE("view_cumsum_strided", t[0](Slice(None, None, 2)).T().cumsum(-1)),
      TG_CASE("view_softmax_padded", t[0].T().pad({1, 2}).softmax(-2)),
      TG_CASE("view_dot_transposed", t[0].T().dot(t[1].T())),
      TG_CASE("view_sort_expanded", t[0].expand(3, 6).sort(-1).first),
      TG_CASE("view_conv_flipped", t[0].flip(2).conv2d(t[1].flip({0, 3}))),
      TG_CASE("view_argmax_transposed", t[0].T().argmax(-1)),
      TG_CASE("var_negative_axes", t[0].var({.axis = {-1, -3}, .keepdim = true})),
      TG_CASE("std_correction_zero", t[0].std({.axis = -1, .correction = 0})),
      TG_CASE("var_mean", Tensor::stack({t[0].var_mean({.axis = 0}).first, t[0].var_mean({.axis = 0}).second})),
      TG_CASE("std_mean", Tensor::stack({t[0].std_mean({.axis = -1}).first, t[0].std_mean({.axis = -1}).second})),
      TG_CASE("prod_zero", t[0].prod(1)),
      TG_CASE("prod_int", t[0].prod(1)),
      TG_CASE("mean_int", t[0].mean(0)),
      TG_CASE("mean_zero_size_kept", t[0].sum(0)),
      TG_CASE("zero_size_max_other", t[0].max(1)),
      TG_CASE("zero_size_dot", t[0].dot(t[1])),
      TG_CASE("zero_size_cumsum", t[0].cumsum(1)),
      TG_CASE("zero_size_reshape", t[0].reshape(2, 0, 7)),
      TG_CASE("zero_size_softmax", t[0].softmax(1)),
      TG_CASE("scalar_reduce_keepdim", t[0].sum({.keepdim = true})),
      TG_CASE("scalar_softmax", t[0].softmax(0)),
      TG_CASE("scalar_where", t[0].where(t[1], t[2])),
      TG_CASE("scalar_cumsum", t[0].cumsum(0)),
      TG_CASE("logsumexp_axes", t[0].logsumexp({0, -1}, true)),
      TG_CASE("logcumsumexp_axis0", t[0].logcumsumexp(0)),
      TG_CASE("cummin_indices", t[0].cummin(1).second),
      TG_CASE("cummax_long", t[0].cummax(0).first),
      TG_CASE("cumprod_negative_axis", t[0].cumprod(-2)),
      TG_CASE("any_all_axes", t[0].any(2).all(1)),
      TG_CASE("softmax_double", t[0].softmax(1, dtypes::float64)),
      TG_CASE("log_softmax_axes", t[0].log_softmax({1, 2})),
      TG_CASE("argmin_keepdim", t[0].argmin(1, true)),
      // ---- further elementwise ----
      TG_CASE("div_trunc", t[0].div(t[1], Rounding::kTrunc)),
      TG_CASE("div_floor", t[0].div(t[1], Rounding::kFloor)),
      TG_CASE("fmod_float", t[0].fmod(t[1])),
      TG_CASE("clip_tensor_bounds", t[0].clip(t[1].detach(), t[2].detach())),
      TG_CASE("masked_fill", t[0].masked_fill(t[1], -1.5)),
      TG_CASE("isclose", t[0].isclose(t[1], 0.5, 0.1)),
      TG_CASE("allclose", (t[0] + 1e-7).allclose(t[0])),
      TG_CASE("isnan_isinf_divided",
              Tensor::stack({(t[0] * 0 / 0.0).isnan(), (t[0] / 0.0).isinf(), (-t[0].abs() / 0.0).isinf(false, true)})),
      TG_CASE("usum", t[0].usum({t[1], t[2]})),
      TG_CASE("uprod_bool", t[0].uprod({t[1]})),
      TG_CASE("lerp_uint8", t[0].lerp(t[1], t[2])),
      TG_CASE("cast_uint8_wraps", t[0].cast(dtypes::uint8)),
      TG_CASE("cast_bool_float", t[0].to_float()),
      TG_CASE("double_sin", t[0].sin()),
      TG_CASE("double_exp", t[0].exp()),
      TG_CASE("half_softmax", t[0].softmax(1)),
      TG_CASE("logaddexp_far", t[0].logaddexp(t[1])),
      TG_CASE("softplus_beta", t[0].softplus(3)),
      TG_CASE("elu_alpha", t[0].elu(0.5)),
      TG_CASE("celu_alpha", t[0].celu(0.7)),
      TG_CASE("leaky_relu_slope", t[0].leaky_relu(0.3)),
      TG_CASE("hardtanh_bounds", t[0].hardtanh(-0.5, 1.5)),
      // ---- further movement ----
      TG_CASE("pad_to", t[0].pad_to({3, 5}, 1.5)),
      TG_CASE("shrink_to", t[0].shrink_to({3, 2})),
      TG_CASE("unflatten", t[0].unflatten(-1, {3, 2})),
      TG_CASE("view_alias", t[0].view({-1, 4})),
      TG_CASE("pad_reflect_2d", t[0].pad({2, 1, 3, 0}, {.mode = PadOptions::kReflect})),
      TG_CASE("pad_reflect_rank1", t[0].pad({3, 0}, {.mode = PadOptions::kReflect})),
      TG_CASE("pad_replicate_2d", t[0].pad({2, 0, 1, 3}, {.mode = PadOptions::kReplicate})),
      TG_CASE("pad_circular_2d", t[0].pad({2, 1, 0, 3}, {.mode = PadOptions::kCircular})),
      TG_CASE("pad_reflect_negative", t[0].pad({-1, 2}, {.mode = PadOptions::kReflect})),
      TG_CASE("repeat_new_axis", t[0].repeat({2, 2})),
      TG_CASE("repeat_interleave_flat", t[0].repeat_interleave(3)),
      TG_CASE("roll_flat", t[0].roll(5)),
      TG_CASE("roll_far", t[0].roll({-7, 9}, {1, 0})),
      TG_CASE("diagonal_axes", t[0].diagonal(-1, 2, 0)),
      TG_CASE("triu_far", t[0].triu(4)),
      TG_CASE("tril_wide", t[0].tril(2)),
      TG_CASE("flip_negative", t[0].flip({-1, 0})),
      TG_CASE("chunk_uneven", t[0].chunk(4).back()),
      TG_CASE("split_sizes", t[0].split({1, 4, 2})[1]),
      TG_CASE("unfold_overlap", t[0].unfold(-1, 5, 1)),
      TG_CASE("stack_middle", Tensor::stack(t, 1)),
      TG_CASE("cat_promotes", Tensor::cat(t, -1)),
      // ---- further matrices ----
      TG_CASE("dot_broadcast_batches", t[0].matmul(t[1])),
      TG_CASE("einsum_outer", Tensor::einsum("i,j->ij", t)),
      TG_CASE("einsum_diagonal", Tensor::einsum("bii->bi", t)),
      TG_CASE("einsum_bilinear", Tensor::einsum("bn,anm,bm->ba", t)),
      TG_CASE("einsum_ellipsis_both", Tensor::einsum("...ij,...jk->...ik", t)),
      TG_CASE("einsum_ellipsis_implicit", Tensor::einsum("...ij,...jk", t)),
      TG_CASE("einsum_permute", Tensor::einsum("ijk->kij", t)),
      TG_CASE("einsum_sum", Tensor::einsum("ij->", t)),
      TG_CASE("linear_vector", t[0].linear(t[1], t[2])),
      TG_CASE("image_dot", t[0].image_dot(t[1])),
      TG_CASE("image_conv2d", t[0].image_conv2d(t[1], t[2], {.padding = 1})),
      TG_CASE("image_conv2d_groups", t[0].image_conv2d(t[1], {}, {.groups = 4, .stride = 2})),
      TG_CASE("image_conv2d_depthwise", t[0].image_conv2d(t[1], {}, {.groups = 4})),
      TG_CASE("attention_mask", t[0].scaled_dot_product_attention(t[1], t[2], t[3] | (Tensor::arange(5) == 0))),
      TG_CASE("attention_bias", t[0].scaled_dot_product_attention(t[1], t[2], t[3].detach())),
      TG_CASE("attention_causal_wide", t[0].scaled_dot_product_attention(t[1], t[2], {}, 0, true)),
      TG_CASE("attention_gqa", t[0].scaled_dot_product_attention(t[1], t[2], {}, 0, false, true)),
      TG_NEAR("qr_triangle", 1e-5, t[0].detach().qr().second.tril(-1).abs().sum(-1)),
      TG_NEAR("svd_wide_values", 1e-5, t[0].detach().svd(false).s),
      // ---- further convolution and pooling ----
      TG_CASE("conv2d_padding_sides", t[0].conv2d(t[1], {}, {.padding = {1, 2, 0, 1}})),
      TG_CASE("conv2d_padding_axes", t[0].conv2d(t[1], {}, {.padding = {2, 0}})),
      TG_CASE("conv2d_padding_negative", t[0].conv2d(t[1], {}, {.padding = {-1, 1, 1, -2}})),
      TG_CASE("conv2d_double", t[0].conv2d(t[1], {}, {.dtype = dtypes::float64})),
      TG_CASE("conv_transpose1d", t[0].conv_transpose2d(t[1], {}, {.stride = 3, .padding = 1, .output_padding = 2})),
      TG_CASE("conv_transpose3d", t[0].conv_transpose2d(t[1], {}, {.stride = {2, 1, 2}})),
      TG_CASE("conv_transpose2d_dilation", t[0].conv_transpose2d(t[1], {}, {.dilation = 2, .padding = 1})),
      TG_CASE("max_pool1d", t[0].unsqueeze(2).max_pool2d({.kernel_size = {1, 3}, .stride = {1, 2}}).squeeze(2)),
      TG_CASE("max_pool3d", t[0].max_pool2d({.kernel_size = {2, 2, 2}})),
      TG_CASE("avg_pool1d_exclude_ceil", t[0].unsqueeze(2)
                                             .avg_pool2d({.kernel_size = {1, 3},
                                                          .stride = {1, 2},
                                                          .padding = {0, 1},
                                                          .ceil_mode = true,
                                                          .count_include_pad = false})
                                             .squeeze(2)),
      TG_CASE("avg_pool3d", t[0].avg_pool2d({.kernel_size = {2, 1, 3}})),
      TG_CASE("max_pool2d_int", t[0].max_pool2d({.kernel_size = 2, .stride = 1, .padding = 1})),
      TG_CASE("interpolate_trilinear", t[0].interpolate({3, 2, 7})),
      TG_CASE("interpolate_shrink", t[0].interpolate({4})),
      TG_CASE("layernorm_axes", t[0].layernorm({1, 2}, 1e-3)),
      TG_CASE("batchnorm", t[0].batchnorm(t[1], t[2], t[3], t[4])),
      TG_CASE("batchnorm_axes", t[0].batchnorm({}, {}, t[1], t[2], {0, 2})),
      TG_CASE("rms_norm", t[0].rms_norm()),
      TG_CASE("normalize_1", t[0].normalize(1, -1)),
      TG_CASE("normalize_3", t[0].normalize(3, 0)),
      // ---- reductions of losses ----
      TG_CASE("sparse_cce_none", t[0].sparse_categorical_crossentropy(t[1], {.reduction = Reduction::kNone})),
      TG_CASE("sparse_cce_sum_ignore",
              t[0].sparse_categorical_crossentropy(t[1], {.reduction = Reduction::kSum, .ignore_index = 3})),
      TG_CASE("cross_entropy_vector", t[0].cross_entropy(t[1])),
      TG_CASE("cross_entropy_smooth_none",
              t[0].cross_entropy(t[1], {.reduction = Reduction::kNone, .label_smoothing = 0.3})),
      TG_CASE("nll_loss_spatial", t[0].nll_loss(t[1], {}, {.reduction = Reduction::kNone})),
      TG_CASE("nll_loss_sum", t[0].nll_loss(t[1], t[2].detach(), {.reduction = Reduction::kSum})),
      TG_CASE("bce_none", t[0].binary_crossentropy(t[1].detach(), Reduction::kNone)),
      TG_CASE("bce_logits_far", t[0].binary_crossentropy_logits(t[1], Reduction::kNone)),
      TG_CASE("topk_smallest", t[0].topk(2, 0, false).first),
      TG_CASE("topk_indices", t[0].topk(4).second),
      TG_CASE("keccak_sponge", t[0].keccak(72, 6)),
  };
#undef TG_UNARY
#undef TG_BINARY
#undef TG_CASE
#undef TG_NEAR
  return cases;
}

}  // namespace tg::oracle
