/// \file Names of meshes, and who is where in one.
#include "tinygrad/uop/mesh.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "tinygrad/base/error.h"

namespace tg {
namespace {
bool read_number(std::string_view text, int64_t* to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *to);
  return error == std::errc() && end == text.data() + text.size() && *to >= 0;
}
}  // namespace

int64_t WorldDevices::count() const {
  int64_t n = 1;
  for (const MeshAxis& a : axes) n *= a.size;
  return n;
}

std::vector<int64_t> WorldDevices::position_of(int64_t rank) const {
  TG_CHECK(DeviceError, rank >= first && rank < first + count(), "[mesh] got rank ", rank, ", which is not in ",
           name());
  std::vector<int64_t> out(axes.size());
  int64_t rest = rank - first;
  for (size_t k = axes.size(); k-- > 0; rest /= axes[k].size) out[k] = rest % axes[k].size;
  return out;
}

std::vector<int> WorldDevices::group_of(int64_t rank, uint32_t mesh_axes) const {
  const std::vector<int64_t> mine = position_of(rank);
  std::vector<int> out;
  for (int64_t r = first; r < first + count(); r++) {
    const std::vector<int64_t> at = position_of(r);
    bool same = true;
    for (size_t k = 0; k < axes.size(); k++) same &= (mesh_axes >> k & 1) || at[k] == mine[k];
    if (same) out.push_back(static_cast<int>(r));
  }
  return out;
}

std::string WorldDevices::name() const {
  std::string out = str(device, "@", first, "-", first + count() - 1);
  for (const MeshAxis& a : axes) out += str("/", a.name, ":", a.size);
  return out;
}

WorldDevices parse_world(std::string_view name) {
  const auto bad = [&]() -> DeviceError {
    return DeviceError(str("[device] got ", name, ", expected DEVICE@FIRST-LAST/AXIS:SIZE..."));
  };
  WorldDevices out;
  const size_t at = name.find('@');
  if (at == std::string_view::npos) throw bad();
  out.device = name.substr(0, at);
  std::string_view rest = name.substr(at + 1);
  const std::string_view ranks = rest.substr(0, rest.find('/'));
  rest.remove_prefix(ranks.size());
  const size_t dash = ranks.find('-');
  int64_t last = 0;
  if (dash == std::string_view::npos || !read_number(ranks.substr(0, dash), &out.first) ||
      !read_number(ranks.substr(dash + 1), &last))
    throw bad();
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view axis = rest.substr(0, rest.find('/'));
    rest.remove_prefix(axis.size());
    const size_t colon = axis.find(':');
    MeshAxis a;
    if (colon == std::string_view::npos || !read_number(axis.substr(colon + 1), &a.size) || a.size < 1) throw bad();
    a.name = axis.substr(0, colon);
    out.axes.push_back(std::move(a));
  }
  if (out.axes.empty()) out.axes.push_back({"", last - out.first + 1});
  if (out.axes.size() > kMaxMeshAxes || out.first + out.count() - 1 != last) throw bad();
  return out;
}

std::string text_of(const ShardAxes& axes) {
  size_t n = kMaxMeshAxes;
  while (n > 1 && axes[n - 1] < 0) n--;
  const auto one = [&](size_t k) {
    return axes.blocks[k] == 1 ? str(axes[k]) : str(axes[k], " in ", int{axes.blocks[k]}, " blocks");
  };
  if (n == 1) return "axis " + one(0);
  std::string out = "axes (";
  for (size_t k = 0; k < n; k++) out += (k ? ", " : "") + one(k);
  return out + ")";
}

const WorldDevices& world_of(const std::string& name) {
  static auto* known = new std::map<std::string, WorldDevices>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  const auto it = known->find(name);
  return it != known->end() ? it->second : known->emplace(name, parse_world(name)).first->second;
}

}  // namespace tg
