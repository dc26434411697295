/// \file The table of operators.
#include "tinygrad/onnx/operators.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tg::onnx {
namespace {

using Key = std::pair<std::string_view, std::string_view>;
using Table = std::map<Key, std::vector<OperatorRow>>;

Table make_table() {
  Table table;
  for (const auto rows :
       {elementwise_operators, cast_operators,    shape_operators,     reduce_operators, matrix_operators,
        conv_operators,        pool_operators,    norm_operators,      rnn_operators,    quant_operators,
        index_operators,       image_operators,   detection_operators, signal_operators, loss_operators,
        random_operators,      control_operators, sequence_operators,  text_operators,   attention_operators,
        microsoft_operators,   ml_operators,      map_operators,       svm_operators,    tree_operators,
        training_operators})
    for (const OperatorRow& row : rows()) table[{row.domain, row.name}].push_back(row);
  for (auto& [key, rows] : table) std::ranges::sort(rows, {}, &OperatorRow::since);
  return table;
}

const Table& table() {
  static const Table made = make_table();
  return made;
}

}  // namespace

const OperatorRow* find_operator(std::string_view domain, std::string_view name, int64_t version) {
  const auto found = table().find({domain, name});
  if (found == table().end()) return nullptr;
  const OperatorRow* best = nullptr;
  for (const OperatorRow& row : found->second)
    if (row.since <= version) best = &row;
  return best;
}

std::string supported_versions(std::string_view domain, std::string_view name) {
  const auto found = table().find({domain, name});
  if (found == table().end()) return "no version of it";
  std::string out;
  for (const OperatorRow& row : found->second) out += (out.empty() ? "versions from " : ", ") + str(row.since);
  return out;
}

std::vector<OperatorRow> all_operators() {
  std::vector<OperatorRow> out;
  for (const auto& [key, rows] : table()) out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

bool is_deterministic(const Node& n) {
  if (n.op == "Dropout" || n.op == "Bernoulli" || n.op == "Multinomial") return false;
  return !n.op.starts_with("Random");
}

}  // namespace tg::onnx
