/// \file Meshes, and tensors on them.
#include "tinygrad/tensor/multi/mesh_tensor.h"

#include <charconv>
#include <mutex>
#include <set>

#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/world/agree.h"
#include "tinygrad/runtime/world/launcher.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/multi/world_shards.h"
#include "tinygrad/tensor/state/moved_handles.h"
#include "tinygrad/tensor/state/stored_view.h"

namespace tg {
using namespace tensor_detail;

Mesh::Mesh(std::vector<MeshAxis> axes, const std::string& device) {
  const int64_t world = distributed::size();
  TG_CHECK(ValueError, !axes.empty() && axes.size() <= kMaxMeshAxes, "[mesh] got ", axes.size(),
           " axes, expected 1 to ", kMaxMeshAxes);
  const Launcher launcher = distributed::is_initialized() ? Launcher{} : find_launcher();
  TG_CHECK(ValueError, launcher.size == 1, "[mesh] got a mesh before init() in one of ", launcher.size,
           " processes that ", launcher.name, " started, expected distributed::init() first");
  int64_t known = 1;
  MeshAxis* open = nullptr;
  for (MeshAxis& a : axes) {
    for (const MeshAxis& b : axes)
      TG_CHECK(ValueError, &a == &b || a.name != b.name, "[mesh] got two axes named '", a.name, "'");
    TG_CHECK(ValueError, a.name.find_first_of("/:@,") == std::string::npos, "[mesh] got the name '", a.name,
             "', expected one without / : @ ,");
    TG_CHECK(ValueError, a.size >= 1 || (a.size == -1 && !open), "[mesh] got size ", a.size, " of axis ", a.name,
             open ? ", expected a positive number: one size alone may be -1" : ", expected a positive number or -1");
    if (a.size == -1) open = &a;
    else known *= a.size;
  }
  if (open) {
    open->size = world / known;
    known *= open->size;
  }
  TG_CHECK(ValueError, known == world, "[mesh] got sizes for ", known, " processes in a world of ", world,
           world == 1 ? ": mpirun and srun start several" : "");
  const std::string name = Device::canonical(device);
  TG_CHECK(DeviceError, !is_device_list(name), "[mesh] got devices ", name, ", expected one of each process");
  devices_ = {name, 0, std::move(axes)};
}

size_t Mesh::number_of(const std::string& axis) const {
  std::string names;
  for (size_t k = 0; k < axes().size(); k++) {
    if (axes()[k].name == axis) return k;
    names += (k ? ", " : "") + axes()[k].name;
  }
  throw ValueError(str("[mesh] got axis '", axis, "', expected one of ", names));
}
int64_t Mesh::position(const std::string& axis) const {
  return devices_.position_of(distributed::rank())[number_of(axis)];
}
uint32_t Mesh::bits_of(const std::vector<std::string>& names) const {
  uint32_t bits = 0;
  for (const std::string& a : names) bits |= 1u << number_of(a);
  return bits;
}
std::vector<int> Mesh::group(const std::vector<std::string>& names) const {
  return devices_.group_of(distributed::rank(), bits_of(names));
}
std::string Mesh::device() const { return devices_.count() == 1 ? devices_.device : devices_.name(); }

namespace {
/// An entry of a spec: an axis of the mesh, and in how many blocks it divides.
struct SpecEntry {
  std::string axis;
  int blocks = 1;
  explicit SpecEntry(const std::string& text) : axis(text.substr(0, text.find(':'))) {
    if (axis.size() == text.size()) return;
    const char *at = text.data() + axis.size() + 1, *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(at, end, blocks);
    TG_CHECK(ValueError, error == std::errc() && rest == end && blocks >= 1 && blocks <= kMaxShardBlocks,
             "[shard] got '", text, "', expected an axis and 1 to ", kMaxShardBlocks, " blocks");
  }
};
}  // namespace

ShardAxes Mesh::axes_of(const std::vector<std::string>& spec) const {
  ShardAxes out;
  for (size_t i = 0; i < spec.size(); i++) {
    if (spec[i].empty()) continue;
    const SpecEntry entry(spec[i]);
    const size_t k = number_of(entry.axis);
    TG_CHECK(ValueError, out[k] < 0, "[shard] got the axis '", entry.axis, "' of the mesh twice");
    out.set(k, {static_cast<int>(i), entry.blocks});
  }
  return out;
}

namespace {
void check_divides(UOp u, const std::vector<std::string>& spec, const Mesh& mesh) {
  const Shape shape = shape_of(u);
  TG_CHECK(ShapeError, spec.size() <= shape.size(), "[shard] got ", spec.size(), " axes for shape ", shape);
  for (size_t i = 0; i < spec.size(); i++) {
    if (spec[i].empty()) continue;
    const SpecEntry e(spec[i]);
    TG_CHECK(ShapeError, shape[i].value() % (mesh.size(e.axis) * e.blocks) == 0, "[shard] multi axis uneven: got size ",
             shape[i], " along axis ", i, " of shape ", shape, " for ", mesh.size(e.axis), " processes along '", e.axis,
             "'", e.blocks > 1 ? str(" in ", e.blocks, " blocks") : "", ", expected a multiple");
  }
}
}  // namespace

Tensor Tensor::shard(const Mesh& mesh, const std::vector<std::string>& spec) const {
  OpScope s;
  UOp u = uop_of(*this, "shard");
  check_divides(u, spec, mesh);
  const ShardAxes axes = mesh.axes_of(spec);
  if (!is_world(mesh.device())) return to(mesh.device());
  if (on_storage_device(u)) return to(split_devices(mesh.device())[0]).shard(mesh, spec);
  if (device_of(u) == mesh.device() && shard_axes(u) == axes) return *this;
  Tensor t = s(distribute(u, mesh.device(), axes));
  t.impl_->requires_grad = impl_->requires_grad;
  t.impl_->asked = impl_->asked;
  if (impl_->grad) t.impl_->grad = Tensor(impl_->grad).shard(mesh, spec).impl_;
  return t;
}
const Tensor& Tensor::shard_(const Mesh& mesh, const std::vector<std::string>& spec) const {
  OpScope s;
  const Tensor t = shard(mesh, spec);
  move_handle(*impl_, t.uop());
  impl_->grad = t.impl_->grad;
  return *this;
}
namespace {
/// Looks whether all processes have a part of this shape and type, when it is the first one: else they would compute
/// with tensors of different shapes. ShapeError in all.
void check_parts_alike(const UOp& part) {
  static std::mutex mutex;
  static std::set<std::string> known;
  const std::string mine = str(part.dtype(), " and shape ", shape_of(part));
  {
    std::lock_guard lock(mutex);
    if (known.contains(mine)) return;
  }
  const std::vector<std::string> all = distributed::of_all(mine);
  for (size_t r = 0; r < all.size(); r++)
    TG_CHECK(ShapeError, all[r] == all[0], "[from_local] got a part of type ", all[r], " in rank ", r,
             ", expected type ", all[0], ", as in rank 0: parts are alike");
  std::lock_guard lock(mutex);
  known.insert(mine);
}
}  // namespace
Tensor Tensor::from_local(const Tensor& part, const Mesh& mesh, const std::vector<std::string>& spec) {
  OpScope s;
  UOp u = uop_of(part, "from_local");
  TG_CHECK(DeviceError, !is_multi(u), "[from_local] got a tensor on ", device_of(u),
           ", expected what this process has");
  TG_CHECK(ShapeError, spec.size() <= shape_of(u).size(), "[from_local] got ", spec.size(), " axes for shape ",
           shape_of(u));
  if (!is_world(mesh.device())) return part;
  check_parts_alike(u);
  if (device_of(u).empty()) u = materialize(u, split_devices(mesh.device())[0]);
  return s(join_shards({&u, 1}, mesh.axes_of(spec), mesh.device()));
}
Tensor Tensor::to_local() const {
  OpScope s;
  UOp u = uop_of(*this, "to_local");
  return is_multi(u) && is_world(device_of(u)) ? s(UOp::make(Ops::MSELECT, u.dtype(), {u}, Arg(0))) : *this;
}

}  // namespace tg
