/// \file Membership in short lists.
#pragma once
#include <algorithm>
#include <iterator>

namespace tg {

/// Returns whether `value` is an element of `list`.
template <class List, class T> constexpr bool contains(const List& list, const T& value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}
/// Appends `value` unless it is an element already.
template <class List, class T> void add_once(List& list, const T& value) {
  if (!contains(list, value)) list.push_back(value);
}
/// Returns whether every element of `values` is an element of `list`.
template <class List, class Values> constexpr bool contains_all(const List& list, const Values& values) {
  return std::all_of(std::begin(values), std::end(values), [&](const auto& v) { return contains(list, v); });
}

}  // namespace tg
