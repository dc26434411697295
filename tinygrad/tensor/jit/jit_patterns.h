/// \file What identifies an argument of a captured function from call to call: its view without the storage and the
/// values of its variables.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/uop/uop.h"

namespace tg::tensor_detail {

/// Variables by name with a value of each.
using BoundValues = std::vector<std::pair<std::string, int64_t>>;

/// Appends the bound variables in an expression with their values.
void append_bound_values(UOp expression, BoundValues* out);
/// Returns a bound variable, or an expression of some, as text without the values: name and bounds of each, and which
/// expression.
std::string unbound_text(UOp u);

/// The BUFFER below the views a tensor is; empty when something else is in the way.
UOp buffer_below(UOp u);
/// Returns a view without what differs from call to call: its storage is a parameter, its variables are unbound. Their
/// values are appended to `values`.
UOp view_pattern(UOp u, BoundValues* values);
/// Returns the pattern of an input, which says only where its elements lie: detach() changes nothing of that, nor does
/// the shape of storage that is shown as a whole.
UOp input_pattern(UOp view);
/// Whether a pattern is all elements of some storage, in their order.
bool is_whole(UOp pattern);
/// Whether a pattern is all of a buffer like this one.
bool is_pattern_of(UOp pattern, UOp buffer);

}  // namespace tg::tensor_detail
