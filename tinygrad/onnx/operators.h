/// \file The table of operators: a row for each operator and version with the function that builds it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/onnx/node_context.h"

namespace tg::onnx {

/// Returns the outputs of a node; fewer than it names are an error of the run.
using Builder = Values (*)(NodeContext&);

/// A row serves the versions of its domain from `since` to the next row of the operator.
struct OperatorRow {
  std::string_view domain;  ///< "" for the default one
  std::string_view name;
  int64_t since;
  Builder build;
};

/// The rows of one subject, a file each.
using OperatorRows = std::span<const OperatorRow>;
OperatorRows elementwise_operators();
OperatorRows cast_operators();
OperatorRows shape_operators();
OperatorRows reduce_operators();
OperatorRows matrix_operators();
OperatorRows conv_operators();
OperatorRows pool_operators();
OperatorRows norm_operators();
OperatorRows rnn_operators();
OperatorRows quant_operators();
OperatorRows index_operators();
OperatorRows image_operators();
OperatorRows detection_operators();
OperatorRows signal_operators();
OperatorRows loss_operators();
OperatorRows random_operators();
OperatorRows control_operators();
OperatorRows sequence_operators();
OperatorRows text_operators();
OperatorRows attention_operators();
OperatorRows microsoft_operators();
OperatorRows ml_operators();
OperatorRows map_operators();
OperatorRows svm_operators();
OperatorRows tree_operators();
OperatorRows training_operators();

/// Returns the row that serves an operator in a version of its domain, or null.
const OperatorRow* find_operator(std::string_view domain, std::string_view name, int64_t version);
/// Returns what is there of an operator, for messages: "versions 1, 13" or "no version".
std::string supported_versions(std::string_view domain, std::string_view name);
/// Returns all rows, by domain and name.
std::vector<OperatorRow> all_operators();
/// Returns whether equal inputs give equal outputs in every run.
bool is_deterministic(const Node& n);

}  // namespace tg::onnx
