/// \file The tables of rows, one per file; all_rows() joins them in this order.
#pragma once
#include "apps/tg/bench.h"

namespace tg::bench {

std::span<const Row> machine_rows();
std::span<const ChildRow> machine_children();
std::span<const Row> matmul_rows();
std::span<const Row> conv_rows();
std::span<const Row> memory_rows();
std::span<const Row> layer_rows();
std::span<const Row> model_rows();
std::span<const ChildRow> model_children();
std::span<const Row> zoo_rows();
std::span<const Row> collective_rows();
std::span<const ChildRow> collective_children();
/// Rows of sizes that fill an accelerator; they are rows of `tg bench` only where the default device is one.
std::span<const Row> large_matmul_rows();
std::span<const Row> large_memory_rows();

}  // namespace tg::bench
