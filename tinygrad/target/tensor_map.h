/// \file TensorMap: how a GPU's copy engine (TMA) sees a parameter of a kernel. PTX ISA, "Tensors" and
/// `cp.async.bulk.tensor`.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tg {

constexpr int64_t kMostBoxRows = 256;     ///< of a box, along each dimension
constexpr int64_t kTensorAlignment = 16;  ///< bytes: what the address and the bytes of a row are multiples of
constexpr int64_t kTensorMapBytes = 128;  ///< of the structure that a kernel is given for it,
constexpr int64_t kTensorMapAlign = 64;   ///< and what its address is a multiple of

/// A parameter as rows of elements that follow each other in memory, of which one command copies a box: rows of 128
/// bytes, to the memory of a group as target/shared_matrix.h says. Elements outside of it are 0.
struct TensorMap {
  int slot = 0;                           ///< the parameter
  int itemsize = 0;                       ///< bytes of an element: 1, 2 or 4
  int64_t width = 0, height = 0;          ///< elements of a row, rows
  int64_t box_width = 0, box_height = 0;  ///< of a copy: elements, rows
  bool operator==(const TensorMap&) const = default;
  int64_t box_bytes() const { return box_width * box_height * itemsize; }

  /// Returns it as part of the argument of a node, "0 2 8192 8192 64 128".
  std::string text() const;
  /// Reads what text() has written.
  static TensorMap from_text(std::string_view text);
};

/// Says whether the copy engine takes a map: parts of 128 bytes, rows that begin at multiples of 16 bytes.
bool is_possible(const TensorMap& m);

/// Returns text that a kernel's image holds as data, so that whoever loads it knows the maps that are its last
/// parameters. Digits, letters, blanks and semicolons.
std::string image_text(std::span<const TensorMap> maps);
/// Returns the maps that an image says it has; none where it says nothing. Throws FormatError for text that is cut off,
/// or maps that the copy engine does not take.
std::vector<TensorMap> maps_of_image(std::span<const uint8_t> image);

}  // namespace tg
