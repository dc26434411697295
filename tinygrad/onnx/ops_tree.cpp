/// \file Ensembles of decision trees: all trees take a step at once.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tinygrad/onnx/ml_scores.h"
#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

enum class Mode : uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember, kLeaf };

/// Nodes of all trees. A leaf leads to itself.
struct Forest {
  std::vector<int64_t> feature, yes, no, roots;
  std::vector<double> split;
  std::vector<Mode> mode;
  std::vector<bool> missing;                       ///< whether NaN goes to `yes`
  std::vector<std::map<int64_t, double>> weights;  ///< of targets, in leaves
  int64_t targets = 0;

  int64_t add() {
    const auto at = static_cast<int64_t>(feature.size());
    feature.push_back(0);
    yes.push_back(at);
    no.push_back(at);
    split.push_back(0);
    mode.push_back(Mode::kLeaf);
    missing.push_back(false);
    weights.emplace_back();
    return at;
  }
};

/// Deepest tree that is walked.
constexpr int64_t kMostDepth = 2048;

/// Returns the length of the longest way from a root to a leaf.
int64_t depth_of(const NodeContext& c, const Forest& f) {
  std::vector<int64_t> level = f.roots;
  for (int64_t depth = 0;; depth++) {
    std::set<int64_t> next;
    for (const int64_t n : level) {
      const auto i = static_cast<size_t>(n);
      if (f.mode[i] != Mode::kLeaf) next.insert({f.yes[i], f.no[i]});
    }
    if (next.empty()) return depth;
    c.check(depth < kMostDepth, "the trees are deeper than ", kMostDepth, ", or their nodes form a circle");
    level.assign(next.begin(), next.end());
  }
}

/// Compares values with the splits of nodes, as the nodes' modes say.
Tensor decided(const NodeContext& c, const Forest& f, const Tensor& value, const Tensor& split, const Tensor& node) {
  const auto compare = [&](Mode m) {
    switch (m) {
      case Mode::kLeq: return value.le(split);
      case Mode::kLt: return value.lt(split);
      case Mode::kGte: return value.ge(split);
      case Mode::kGt: return value.gt(split);
      case Mode::kEq: return value.eq(split);
      default: return value.ne(split);
    }
  };
  std::set<Mode> used(f.mode.begin(), f.mode.end());
  used.erase(Mode::kLeaf);
  if (used.size() == 1) return compare(*used.begin());
  std::vector<int64_t> numbers;
  for (const Mode m : f.mode) numbers.push_back(static_cast<int64_t>(m));
  const Tensor mode = Tensor::from(numbers, {.device = c.device()})[node];
  Tensor out;
  for (const Mode m : used) {
    const Tensor one = mode.eq(Tensor(static_cast<int64_t>(m))).bitwise_and(compare(m));
    out = out.defined() ? out.bitwise_or(one) : one;
  }
  return out;
}

/// Returns the leaf of each row in each tree: (rows, trees).
Tensor leaves(const NodeContext& c, const Forest& f, const Tensor& x) {
  const auto table = [&](const auto& v) { return Tensor::from(v, {.device = c.device()}); };
  const Tensor feature = table(f.feature), yes = table(f.yes), no = table(f.no), split = table(f.split).cast(x.dtype());
  const bool tracks = std::ranges::find(f.missing, true) != f.missing.end();
  Tensor node = table(f.roots).unsqueeze(0).expand(Shape{x.shape()[0], static_cast<int64_t>(f.roots.size())});
  const int64_t depth = depth_of(c, f);
  for (int64_t i = 0; i < depth; i++) {
    const Tensor value = x.gather(1, feature[node]);
    Tensor decision = decided(c, f, value, split[node], node);
    if (tracks) decision = decision.bitwise_or(value.isnan().bitwise_and(table(f.missing)[node]));
    node = decision.where(yes[node], no[node]);
  }
  return node;
}

/// Combines the weights of the leaves over trees: (rows, targets).
Tensor aggregated(const NodeContext& c, const Forest& f, const Tensor& leaf, const std::string& how, DType d) {
  const bool extreme = how == "MIN" || how == "MAX";
  const double absent = extreme ? (how == "MIN" ? 1 : -1) * std::numeric_limits<float>::max() : 0;
  c.check(f.targets > 0 && f.targets < 1 << 20 && f.targets * static_cast<int64_t>(f.weights.size()) < 1 << 26, "got ",
          f.targets, " targets for ", f.weights.size(), " nodes");
  std::vector<double> table;
  for (const auto& weights : f.weights)
    for (int64_t t = 0; t < f.targets; t++) {
      const auto at = weights.find(t);
      table.push_back(at == weights.end() ? absent : at->second);
    }
  const Tensor all =
      Tensor::from(table, {static_cast<int64_t>(f.weights.size()), f.targets}, {.device = c.device()}).cast(d)[leaf];
  if (how == "MIN") return all.min(1);
  if (how == "MAX") return all.max(1);
  const Tensor sum = all.sum(1);
  return how == "AVERAGE" ? sum / static_cast<double>(f.roots.size()) : sum;
}

Mode mode_named(const NodeContext& c, const std::string& name) {
  static const std::map<std::string, Mode> kModes{
      {"BRANCH_LEQ", Mode::kLeq}, {"BRANCH_LT", Mode::kLt},   {"BRANCH_GTE", Mode::kGte}, {"BRANCH_GT", Mode::kGt},
      {"BRANCH_EQ", Mode::kEq},   {"BRANCH_NEQ", Mode::kNeq}, {"LEAF", Mode::kLeaf}};
  const auto at = kModes.find(name);
  c.check(at != kModes.end(), "nodes_modes has \"", name.substr(0, 32),
          "\", expected BRANCH_LEQ and the like, or LEAF");
  return at->second;
}

/// Numbers of an attribute that is a list of floats, or a tensor under the name with _as_tensor.
std::vector<double> numbers_of(const NodeContext& c, const std::string& name) {
  const TensorProto* t = c.attr_tensor(name + "_as_tensor");
  if (!t) return c.attr_floats(name);
  std::vector<double> out;
  const HostRef h = host_array_of(t->bytes.bytes, number_dtype(t->type), t->dims);
  for (size_t i = 0; i < h->count(); i++) out.push_back(h->number(i));
  return out;
}

/// Reads the attributes of the older operators, whose nodes are named by tree and number. `prefix`: class or target.
Forest named_forest(const NodeContext& c, const std::string& prefix) {
  const std::vector<int64_t> trees = c.attr_ints("nodes_treeids"), ids = c.attr_ints("nodes_nodeids"),
                             features = c.attr_ints("nodes_featureids"), yes = c.attr_ints("nodes_truenodeids"),
                             no = c.attr_ints("nodes_falsenodeids"),
                             missing = c.attr_ints("nodes_missing_value_tracks_true");
  const std::vector<double> values = numbers_of(c, "nodes_values");
  const std::vector<std::string> modes = c.attr_strings("nodes_modes");
  const size_t n = trees.size();
  c.check(ids.size() == n && features.size() == n && yes.size() == n && no.size() == n && values.size() == n &&
              modes.size() == n,
          "the attributes of nodes are of different lengths");
  Forest f;
  std::map<std::pair<int64_t, int64_t>, int64_t> place;
  std::set<int64_t> seen, reached;
  for (size_t i = 0; i < n; i++) place[{trees[i], ids[i]}] = f.add();
  const auto find = [&](int64_t tree, int64_t id) {
    const auto at = place.find({tree, id});
    c.check(at != place.end(), "tree ", tree, " has no node ", id);
    return at->second;
  };
  for (size_t i = 0; i < n; i++) {
    f.mode[i] = mode_named(c, modes[i]);
    if (f.mode[i] == Mode::kLeaf) continue;
    c.check(features[i] >= 0, "nodes_featureids has ", features[i]);
    f.feature[i] = features[i];
    f.split[i] = values[i];
    f.missing[i] = i < missing.size() && missing[i] != 0;
    f.yes[i] = find(trees[i], yes[i]);
    f.no[i] = find(trees[i], no[i]);
    reached.insert({f.yes[i], f.no[i]});
  }
  for (size_t i = 0; i < n; i++)  // the first node that no other leads to
    if (!reached.contains(static_cast<int64_t>(i)) && seen.insert(trees[i]).second)
      f.roots.push_back(static_cast<int64_t>(i));
  const std::vector<int64_t> target = c.attr_ints(prefix + "_ids"), at_tree = c.attr_ints(prefix + "_treeids"),
                             at_node = c.attr_ints(prefix + "_nodeids");
  const std::vector<double> weights = numbers_of(c, prefix + "_weights");
  c.check(target.size() == weights.size() && at_tree.size() == weights.size() && at_node.size() == weights.size(),
          "the attributes of ", prefix, "s are of different lengths");
  for (size_t i = 0; i < target.size(); i++)
    f.weights[static_cast<size_t>(find(at_tree[i], at_node[i]))][target[i]] += weights[i];
  return f;
}

Tensor rows_of(const NodeContext& c) {
  const Tensor x = c.tensor(0);
  return x.dtype() == dtypes::float64 ? x : x.cast(dtypes::float32);
}

Values regressor(NodeContext& c) {
  Forest f = named_forest(c, "target");
  f.targets = c.attr("n_targets", int64_t{1});
  const std::string how = c.choice("aggregate_function", "SUM", {"SUM", "AVERAGE", "MIN", "MAX"});
  const Tensor x = rows_of(c);
  Tensor out = aggregated(c, f, leaves(c, f, x), how, x.dtype());
  const std::vector<double> base = numbers_of(c, "base_values");
  if (!base.empty()) out = out + Tensor::from(base, {.device = c.device()}).cast(out.dtype());
  return {post_transformed(c, out).cast(dtypes::float32)};
}

/// Scores of classes; weights of a single class are the probability of the second of two.
Values classifier(NodeContext& c) {
  Forest f = named_forest(c, "class");
  const std::vector<int64_t> ids = c.attr_ints("class_ids");
  const std::vector<int64_t> labels = c.attr_ints("classlabels_int64s");
  f.targets = static_cast<int64_t>(std::max(labels.size(), c.attr_strings("classlabels_strings").size()));
  c.check(f.targets > 0, "has no class labels");
  const bool binary = std::set<int64_t>(ids.begin(), ids.end()).size() == 1;
  const Tensor x = rows_of(c);
  Tensor scores = aggregated(c, f, leaves(c, f, x), "SUM", dtypes::float32);
  const std::vector<double> base = numbers_of(c, "base_values");
  if (!base.empty()) scores = scores + Tensor::from(base, {.device = c.device()}).cast(dtypes::float32);
  if (binary) {
    const Tensor second = scores.slice(1, 0, 1);
    const std::string how = c.attr("post_transform", "NONE");
    scores = (how == "NONE" || how == "PROBIT" ? 1 - second : -second).cat(second, 1);
  }
  scores = post_transformed(c, scores).cast(dtypes::float32);
  const Tensor best = scores.argmax(1);
  if (labels.size() == 1) return {best.cast(dtypes::int64) * labels[0], scores};
  return {labels_of(c, best, "classlabels_int64s", "classlabels_strings"), scores};
}

/// Adds the node of an interior node of version 5; set membership becomes a row of comparisons for equality.
struct EnsembleReader {
  const NodeContext& c;
  Forest f;
  std::vector<int64_t> features, yes, no, yes_leaf, no_leaf, modes, missing, leaf_targets;
  std::vector<double> splits, leaf_weights;
  std::vector<std::vector<double>> members;  ///< of each interior node
  std::vector<int64_t> place, leaf_place;    ///< -1: not there yet

  int64_t leaf(int64_t i) {
    c.check(i >= 0 && i < static_cast<int64_t>(leaf_weights.size()), "there is no leaf ", i);
    int64_t& at = leaf_place[static_cast<size_t>(i)];
    if (at < 0) {
      at = f.add();
      f.weights.back()[leaf_targets[static_cast<size_t>(i)]] = leaf_weights[static_cast<size_t>(i)];
    }
    return at;
  }
  int64_t node(int64_t i) {
    c.check(i >= 0 && i < static_cast<int64_t>(features.size()), "there is no node ", i);
    int64_t& at = place[static_cast<size_t>(i)];
    if (at < 0) at = f.add();
    return at;
  }
  void connect(size_t i) {
    const int64_t on_yes = yes_leaf[i] ? leaf(yes[i]) : node(yes[i]), on_no = no_leaf[i] ? leaf(no[i]) : node(no[i]);
    const bool member = static_cast<Mode>(modes[i]) == Mode::kMember;
    const std::vector<double> values = member ? members[i] : std::vector<double>{splits[i]};
    int64_t at = node(static_cast<int64_t>(i));
    for (size_t k = 0; k < values.size(); k++) {
      const auto n = static_cast<size_t>(at);
      f.feature[n] = features[i];
      f.split[n] = values[k];
      f.mode[n] = member ? Mode::kEq : static_cast<Mode>(modes[i]);
      f.missing[n] = i < missing.size() && missing[i] != 0;
      f.yes[n] = on_yes;
      at = k + 1 < values.size() ? f.add() : on_no;
      f.no[n] = at;
    }
  }
};

std::vector<double> tensor_numbers(const NodeContext& c, const char* name) {
  const TensorProto* t = c.attr_tensor(name);
  if (!t) return {};
  std::vector<double> out;
  const HostRef h = host_array_of(t->bytes.bytes, number_dtype(t->type), t->dims);
  for (size_t i = 0; i < h->count(); i++) out.push_back(h->number(i));
  return out;
}

Values ensemble(NodeContext& c) {
  EnsembleReader r{c,
                   {},
                   c.attr_ints("nodes_featureids"),
                   c.attr_ints("nodes_truenodeids"),
                   c.attr_ints("nodes_falsenodeids"),
                   c.attr_ints("nodes_trueleafs"),
                   c.attr_ints("nodes_falseleafs"),
                   {},
                   c.attr_ints("nodes_missing_value_tracks_true"),
                   c.attr_ints("leaf_targetids"),
                   tensor_numbers(c, "nodes_splits"),
                   tensor_numbers(c, "leaf_weights"),
                   {},
                   {},
                   {}};
  for (const double v : tensor_numbers(c, "nodes_modes")) r.modes.push_back(whole(v));
  const size_t n = r.features.size();
  c.check(r.yes.size() == n && r.no.size() == n && r.yes_leaf.size() == n && r.no_leaf.size() == n &&
              r.modes.size() == n && r.splits.size() == n && r.leaf_targets.size() == r.leaf_weights.size(),
          "the attributes of nodes or leaves are of different lengths");
  const std::vector<double> members = tensor_numbers(c, "membership_values");
  r.members.resize(n);
  size_t at = 0;
  for (size_t i = 0; i < n; i++) {
    c.check(r.modes[i] >= 0 && r.modes[i] <= 6 && r.features[i] >= 0, "node ", i, " has mode ", r.modes[i],
            " and feature ", r.features[i]);
    if (static_cast<Mode>(r.modes[i]) != Mode::kMember) continue;
    for (; at < members.size() && !std::isnan(members[at]); at++) r.members[i].push_back(members[at]);
    at++;  // NaN ends a set
    c.check(!r.members[i].empty(), "node ", i, " has no membership_values");
  }
  r.place.assign(n, -1);
  r.leaf_place.assign(r.leaf_weights.size(), -1);
  for (size_t i = 0; i < n; i++) r.connect(i);
  for (const int64_t root : c.attr_ints("tree_roots")) r.f.roots.push_back(r.node(root));
  r.f.targets = c.attr("n_targets", int64_t{1});
  constexpr const char* kHow[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  const int64_t how = c.attr("aggregate_function", int64_t{1});
  c.check(how >= 0 && how < 4, "attribute aggregate_function is ", how, ", expected 0 to 3");
  const Tensor x = rows_of(c);
  c.check(c.attr("post_transform", int64_t{0}) == 0, "attribute post_transform is not supported other than 0");
  return {aggregated(c, r.f, leaves(c, r.f, x), kHow[how], x.dtype()).cast(c.tensor(0).dtype())};
}

const OperatorRow kRows[] = {
    {"ai.onnx.ml", "TreeEnsembleRegressor", 1, regressor},
    {"ai.onnx.ml", "TreeEnsembleClassifier", 1, classifier},
    {"ai.onnx.ml", "TreeEnsemble", 5, ensemble},
};

}  // namespace

OperatorRows tree_operators() { return kRows; }

}  // namespace tg::onnx
