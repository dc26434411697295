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

/// The axis of a tensor along which processes have slices; -1: they have the same. An axis may consist of equal blocks,
/// as queries, keys and values in one matrix: processes then have a slice of each block, one after the other.
struct ShardAxis {
  int axis = -1;
  int blocks = 1;
  bool operator==(const ShardAxis&) const = default;
  /// Returns both as a number, the axis itself where there is one block, and the reverse.
  int64_t code() const { return axis < 0 ? -1 : axis + 256 * (blocks - 1); }
  static ShardAxis of_code(int64_t code) {
    return code < 0 ? ShardAxis{} : ShardAxis{static_cast<int>(code % 256), static_cast<int>(code / 256) + 1};
  }
};
inline constexpr int kMaxShardBlocks = 255;

/// For each axis of a mesh the axis of a tensor that it divides. Devices of one process are a mesh of one axis,
/// and divide in one block.
struct ShardAxes {
  std::array<int8_t, kMaxMeshAxes> of{-1, -1, -1, -1};
  std::array<uint8_t, kMaxMeshAxes> blocks{1, 1, 1, 1};
  ShardAxes() = default;
  /// Along the first axis of the mesh.
  ShardAxes(int axis) { of[0] = static_cast<int8_t>(axis); }
  int operator[](size_t mesh_axis) const { return of[mesh_axis]; }
  ShardAxis at(size_t mesh_axis) const { return {of[mesh_axis], blocks[mesh_axis]}; }
  void set(size_t mesh_axis, const ShardAxis& a) {
    of[mesh_axis] = static_cast<int8_t>(a.axis);
    blocks[mesh_axis] = static_cast<uint8_t>(a.axis < 0 ? 1 : a.blocks);
  }
  bool none() const { return *this == ShardAxes(); }
  bool operator==(const ShardAxes&) const = default;
};

/// "axis 0", or "axes (0, -1)" of a mesh.
std::string text_of(const ShardAxes& axes);

}  // namespace tg
