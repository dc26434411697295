/// \file Attention in blocks (online softmax) by groups of threads: the scores stay in registers.
#pragma once
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/schedule/attention_form.h"
#include "tinygrad/target/renderer.h"

namespace tg {

/// Returns the kernel of attention_blocks (codegen/plan/attention_blocks.h) for a target with workgroups. A group has a
/// tile of rows; running maxima, sums and weighted sums are registers. Keys and values of a block, and the queries, are
/// in the memory of the group where they fit, probabilities pass through it. A thread has the scores of some rows and
/// keys, then of some rows and columns of the result; maxima and sums of a row are combined across its threads. With
/// matrix instructions probabilities stay in registers, as the sums of two 16-bit numbers.
UOp attention_groups(UOp sink, const AttentionForm& form, const Renderer& renderer, const CodegenOptions& options,
                     KernelContext& names);

}  // namespace tg
