/// \file Devices of a world of processes: a mesh of ranks under one name, "CPU@0-7/data:4/tensor:2".
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg {

/// An axis of a mesh and the number of processes along it.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};
inline constexpr size_t kMaxMeshAxes = 4;

/// A device of each rank from `first` on, arranged as a mesh, the last axis fastest. The name is the same in all
/// processes.
struct WorldDevices {
  std::string device;  ///< of each process: "CPU"
  int64_t first = 0;
  std::vector<MeshAxis> axes;

  int64_t count() const;  ///< of processes
  /// Returns the position of a rank along each axis. DeviceError when the mesh does not have it.
  std::vector<int64_t> position_of(int64_t rank) const;
  /// Returns the ranks that differ from `rank` along these axes (bits) alone, it included, in order.
  std::vector<int> group_of(int64_t rank, uint32_t mesh_axes) const;
  std::string name() const;
};

/// Whether a name is one of devices of several processes. A file's name may contain anything.
inline bool is_world(std::string_view device) {
  return device.find('@') != std::string_view::npos && !device.starts_with("DISK:");
}
/// Returns what a name says. DeviceError for one that is not well formed.
WorldDevices parse_world(std::string_view name);
/// Returns the same for a name that is in a graph; it is parsed once.
const WorldDevices& world_of(const std::string& name);

/// For each axis of a mesh the axis of a tensor along which processes have slices; -1: they have the same. Devices of
/// one process are a mesh of one axis.
struct ShardAxes {
  std::array<int8_t, kMaxMeshAxes> of{-1, -1, -1, -1};
  ShardAxes() = default;
  /// Along the first axis of the mesh.
  ShardAxes(int axis) { of[0] = static_cast<int8_t>(axis); }
  int operator[](size_t mesh_axis) const { return of[mesh_axis]; }
  bool none() const { return *this == ShardAxes(); }
  bool operator==(const ShardAxes&) const = default;
};

/// "axis 0", or "axes (0, -1)" of a mesh.
std::string text_of(const ShardAxes& axes);

}  // namespace tg
