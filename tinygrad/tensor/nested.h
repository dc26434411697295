/// \file Nested vectors and arrays of values, read as the rows of a tensor.
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tinygrad/tensor/options.h"

namespace tg::nested {

/// Element type and nesting depth of vectors and arrays; `Number` is void for anything else.
template <class T> struct Of {
  using Number = std::conditional_t<std::is_arithmetic_v<T>, T, void>;
  static constexpr size_t depth = 0;
};
template <class T> struct OfSequence {
  using Number = typename Of<T>::Number;
  static constexpr size_t depth = Of<T>::depth + 1;
};
template <class T> struct Of<std::vector<T>> : OfSequence<T> {};
template <class T, size_t N> struct Of<std::array<T, N>> : OfSequence<T> {};
template <class T> using Number = typename Of<T>::Number;

/// A vector of vectors, an array, an array of vectors, ... of values. A plain vector has constructors of its own.
template <class T> struct IsVector : std::false_type {};
template <class T> struct IsVector<std::vector<T>> : std::bool_constant<std::is_arithmetic_v<T>> {};
template <class T>
concept Rows = Of<T>::depth > 0 && !std::is_void_v<Number<T>> && !IsVector<T>::value;

/// The values row by row; bools as bytes, as tensors store them.
template <class T> struct Flat {
  using Stored = std::conditional_t<std::is_same_v<Number<T>, bool>, uint8_t, Number<T>>;
  std::vector<int64_t> shape;
  std::vector<Stored> values;

  /// Flattens nested rows. Throws ShapeError where rows differ in length.
  explicit Flat(const T& rows) {
    measure(rows);
    add(rows, 0);
  }

 private:
  /// Reads the sizes from the first row of each level; a level below an empty one has size 0.
  template <class R> void measure(const R& rows) {
    shape.push_back(static_cast<int64_t>(rows.size()));
    if constexpr (Of<R>::depth > 1) {
      if (rows.empty()) shape.insert(shape.end(), Of<R>::depth - 1, 0);
      else measure(rows[0]);
    }
  }
  template <class R> void add(const R& rows, size_t level) {
    TG_CHECK(ShapeError, static_cast<int64_t>(rows.size()) == shape[level],
             "[Tensor] got rows of different lengths: ", shape[level], " and ", rows.size(), " elements along axis ",
             level, ", expected equal ones");
    for (const auto& r : rows) {
      if constexpr (Of<R>::depth > 1) add(r, level + 1);
      else values.push_back(static_cast<Stored>(r));
    }
  }
};

}  // namespace tg::nested
