/// \file Attention over long keys, in kernels that do not store its scores: softmax-weighted means,
/// sum_j exp((s_j - max s) k) w_j / sum_j exp((s_j - max s) k); their normalizers, max s + log sum_j exp(s_j - max s);
/// and the products of their gradients, sum_j f(s_j, ...) w_j.
///
/// Plain kernels store the scores s and pass over them for the maximum, the sum and the product. Online softmax
/// (Milakov and Gimelshein 2018, Dao et al. 2022) computes the scores in blocks that stay in the cache; a block that
/// raises the maximum rescales the sums before it.
#pragma once
#include <optional>
#include <span>

#include "tinygrad/uop/uop.h"

namespace tg {

/// A value that holds one of them once, and its parts.
struct AttentionForm {
  enum Kind : uint8_t { kMean, kTotal, kProduct } kind = kMean;
  UOp sum;  ///< REDUCE(ADD, product of `power`, the factor 1 / total and `weight`; over), of a product of `factor` and
            ///< `weight`; of a total empty
  UOp factor;            ///< of a product: what its weight is multiplied by, else empty
  UOps sums;             ///< the reduces in `factor`: sums of products that depend on `over`
  UOp power;             ///< EXP2((score - top) * k), k > 0
  UOp score;             ///< s at `over`: a float32 that contains a reduce
  UOp top;               ///< REDUCE(MAX, score), or with `bounded` the maximum of that and a number
  UOp total;             ///< REDUCE(ADD, power); empty: nothing is divided by it
  UOp divisor;           ///< `total`, or with `bounded` the maximum of that and a number
  bool bounded = false;  ///< a row of nothing but -inf is zero, else NaN
  UOp weight;            ///< w
  UOp over;              ///< the range of the mean
  UOps more;             ///< of a product: further ranges of `sum`, such as that of the heads that share keys
  UOp row;  ///< the largest range of the result that the scores (of a product: the factor) depend on and the weights do
            ///< not; of a mean by groups it may be empty: there is one row
  UOp column;  ///< the range of the result that the weights depend on and the scores do not; of a total empty
};

/// Recognises the value a kernel stores for each point of `ranges`. Returns nullopt for other values, and where sizes
/// do not fit: multiples of 64 or at least 128 for `over`, multiples of 32 or at least 64 for `row`, multiples of 16
/// for `column`. Of a mean `over` and `row` may be variable numbers. For kernels of groups of threads, `by_groups`, any
/// numbers of keys and rows will do, and multiples of 8 for `column`.
std::optional<AttentionForm> match_attention(UOp value, std::span<const UOp> ranges, bool by_groups = false);

/// Recognises the value that a kernel's AST stores.
std::optional<AttentionForm> match_attention(UOp sink, bool by_groups = false);

/// Returns what a mean is divided by where the powers add up to `total`.
UOp divisor_of(const AttentionForm& form, UOp total);

/// Returns the factors of a product, factors that are products replaced by theirs. A quotient by a sum, perhaps
/// bounded, contributes the factors of its dividend and the reciprocal of the sum.
UOps factors_of(UOp product);

/// Returns true for REDUCE(ADD, a * b).
bool is_sum_of_products(UOp u);

}  // namespace tg
