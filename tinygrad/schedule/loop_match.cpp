/// \file Comparing the affine index of a load with that of a store.
#include "tinygrad/schedule/loop_match.h"

#include <algorithm>
#include <numeric>

#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using Renaming = std::vector<std::pair<UOp, UOp>>;
using Terms = std::vector<std::pair<UOp, int64_t>>;

/// Tries, where sizes are variables, pairs of ranges of equal sizes until one index is the other.
std::optional<Renaming> match_by_trial(UOp index, const KernelStep& from) {
  constexpr size_t kMaxRanges = 5;
  const UOps& own = from.loops;
  const UOps& theirs = ranges_of(index);
  if (own.size() != theirs.size() || own.size() > kMaxRanges) return {};
  const UOp wanted = simplify(index);
  std::vector<size_t> order(own.size());
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    Renaming rename;
    for (size_t i = 0; i < own.size() && own[i].src(0) == theirs[order[i]].src(0); i++)
      rename.push_back({own[i], theirs[order[i]]});
    if (rename.size() == own.size() && simplify(from.index.substitute(rename)) == wanted) return rename;
  } while (std::next_permutation(order.begin(), order.end()));
  return {};
}

/// Takes the term with this coefficient and size (empty: any constant one) away; returns its range, empty where there
/// is none.
UOp take_term(Terms& terms, int64_t coefficient, UOp size) {
  const auto it = std::find_if(terms.begin(), terms.end(), [&](const auto& t) {
    return t.second == coefficient && (size ? t.first.src(0) == size : t.first.src(0).is_const());
  });
  if (it == terms.end()) return {};
  UOp r = it->first;
  terms.erase(it);
  return r;
}

/// Takes what a range with the coefficient k is out of the terms of an index: one of them, or several that count
/// through it together, as the heads of a group do. Empty where it is neither.
UOp take_range(UOp range, int64_t k, Terms& terms) {
  if (UOp r = take_term(terms, k, range.src(0))) return r;
  if (!range.src(0).is_const()) return {};
  const int128 size = range.src(0).const_int();
  UOp sum;
  int128 counted = 1;
  while (counted < size) {
    UOp r = take_term(terms, k * static_cast<int64_t>(counted), {});
    if (!r || r.src(0).const_int() < 2) return {};
    UOp term = counted == 1 ? r : r * ConstValue(static_cast<int64_t>(counted));
    sum = sum ? term + sum : term;
    counted *= r.src(0).const_int();
  }
  return counted == size ? sum : UOp();
}
}  // namespace

std::optional<Terms> range_terms(UOp index) {
  Terms terms;
  bool others = false;
  for_each_summand(index, 1, [&](UOp u, int128 k) {
    if (u.is(Ops::RANGE)) terms.push_back({u, static_cast<int64_t>(k)});
    else others |= !u.is_const_int(0);
  });
  return others ? std::nullopt : std::optional(terms);
}

std::optional<Renaming> match_loops(UOp load, const KernelStep& from) {
  if (load.nsrc() != 1) return {};
  const std::optional<Terms> own = range_terms(from.index);
  if (!own) return match_by_trial(index_of(load), from);
  std::optional<Terms> theirs = range_terms(index_of(load));
  if (!theirs || own->size() != from.loops.size()) return {};
  Renaming rename;
  for (const auto& [r, k] : *own) {
    UOp there = take_range(r, k, *theirs);
    if (!there) return {};
    rename.push_back({r, there});
  }
  if (!theirs->empty()) return {};
  return rename;
}

}  // namespace tg
