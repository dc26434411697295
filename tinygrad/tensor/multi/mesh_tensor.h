/// \file Meshes of processes as programs name them: which axes of a tensor are divided along which axes of the mesh.
#pragma once
#include <string>
#include <vector>

#include "tinygrad/uop/mesh.h"

namespace tg {

/// The processes of a world in rows and columns: Mesh({{"data", 4}, {"tensor", 2}}). Rank r is at position r / 2 along
/// "data" and r % 2 along "tensor". In a world of one process all sizes are 1, and tensors on it are ordinary ones.
class Mesh {
 public:
  /// A mesh of all processes, each with its `device`, or the default one; one size may be -1. ValueError unless the
  /// sizes' product is the number of processes, or for two axes of one name.
  explicit Mesh(std::vector<MeshAxis> axes, const std::string& device = "");

  /// Returns names and sizes of the axes, the last one fastest.
  const std::vector<MeshAxis>& axes() const { return devices_.axes; }
  /// Returns the size of an axis. ValueError for a name that is none.
  int64_t size(const std::string& axis) const { return axes()[number_of(axis)].size; }
  /// Returns where this process is along an axis.
  int64_t position(const std::string& axis) const;
  /// Returns the number of an axis. ValueError for a name that is none.
  size_t number_of(const std::string& axis) const;
  /// Returns the ranks of the processes that differ from this one along these axes alone, in order.
  std::vector<int> group(const std::vector<std::string>& axes) const;
  /// Returns what tensors on the mesh say as their device.
  std::string device() const;
  /// Returns the axes as bits, for CollectiveArg.
  uint32_t bits_of(const std::vector<std::string>& axes) const;
  /// Returns for each axis of the mesh which axis of a tensor `spec` divides along it: spec[i] names an axis of the
  /// mesh, or "" for none. "tensor:3" divides each of three equal blocks, which follow each other along axis i, as
  /// queries, keys and values do in one matrix. ValueError for an axis that is named twice, and a number of blocks that
  /// is none.
  ShardAxes axes_of(const std::vector<std::string>& spec) const;

 private:
  WorldDevices devices_;
};

}  // namespace tg
