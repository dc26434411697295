/// \file LLVM IR: loads that stride along the lanes, side by side in memory, as rows of a tile that is transposed in registers.
#include "tinygrad/codegen/access.h"
#include "tinygrad/render/llvmir_writer.h"

namespace tg {
namespace {
constexpr int64_t kLeastColumns = 4;  ///< fewer are gathered

struct Column {
  UOp load;
  Access access;
  LinearForm form;
};
bool same_but_offset(const Column& a, const Column& b) {
  if (a.access.base != b.access.base || a.access.lanes != b.access.lanes || a.access.stride != b.access.stride || a.load.dtype() != b.load.dtype() ||
      a.form.rest != b.form.rest || a.form.terms.size() != b.form.terms.size())
    return false;
  for (auto [r, k] : a.form.terms)
    if (b.form.coefficient(r) != k) return false;
  return true;
}
}  // namespace

void LlvmWriter::find_tiles() {
  std::vector<std::vector<Column>> groups;
  UOps written;
  for (const LinearInst& in : view_.insts())
    if (in.u.is(Ops::STORE)) written.push_back(view_.access(in.u.src(0)).base);
  auto close = [&] {
    for (std::vector<Column>& group : groups) {
      const UOp first = group[0].load;  // the tile is loaded where the first of its columns is
      const int64_t at = group[0].form.offset;
      std::stable_sort(group.begin(), group.end(), [](const Column& a, const Column& b) { return a.form.offset < b.form.offset; });
      std::vector<Tile> tiles;
      for (const Column& c : group) {
        if (tiles.empty() || static_cast<int>(tiles.back().columns.size()) == c.access.lanes ||
            c.form.offset != group[0].form.offset + tiles.back().offset + static_cast<int64_t>(tiles.back().columns.size()))
          tiles.push_back({c.form.offset - group[0].form.offset, {}});
        tiles.back().columns.push_back(c.load);
      }
      for (Tile& t : tiles) {
        t.offset += group[0].form.offset - at;
        if (static_cast<int64_t>(t.columns.size()) >= kLeastColumns) tiles_[view_.position(first)].push_back(std::move(t));
      }
    }
    groups.clear();
  };
  for (const LinearInst& in : view_.insts()) {
    const UOp u = in.u;
    if ((u.is(Ops::RANGE) && !is_vector_range(u)) || u.is(Ops::END)) close();
    if (!u.is(Ops::LOAD) || u.nsrc() != 1 || u.dtype().is_bool() || u.dtype().itemsize() < 4) continue;
    Column c{u, view_.access(u.src(0)), {}};
    const Access& a = c.access;
    if (a.lanes < 4 || !a.affine || std::abs(a.stride) <= 4 || !a.base.is(Ops::PARAM)) continue;
    if (std::find(written.begin(), written.end(), a.base) != written.end()) continue;
    c.form = linear_form(a.index);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Column>& g) { return same_but_offset(g[0], c); });
    if (group == groups.end()) groups.push_back({std::move(c)});
    else group->push_back(std::move(c));
  }
  close();
}

void LlvmWriter::load_tile(UOp first, const Tile& tile) {
  const Access a = view_.access(first.src(0));
  const DType d = first.dtype();
  const int n = a.lanes, columns = static_cast<int>(tile.columns.size());
  const std::string t = memory_type(d, n), index = lane0(a.index);
  std::vector<std::string> rows;
  for (int lane = 0; lane < n; lane++) {
    const std::string at = address(a, d, index, a.index.dtype(), tile.offset + lane * a.stride);
    if (columns == n) {
      rows.push_back(emit("load " + t + ", ptr " + at + ", align " + std::to_string(d.itemsize()) + aliasing(a)));
      continue;
    }
    const std::string mt = type(dtypes::bool_, n), name = "@llvm.masked.load." + suffix(d, n) + ".p0";
    declare("declare " + t + " " + name + "(ptr, i32 immarg, " + mt + ", " + t + ")");
    std::string mask = "<";
    for (int i = 0; i < n; i++) mask += str(i ? ", " : "", "i1 ", i < columns ? "true" : "false");
    rows.push_back(emit("call " + t + " " + name + "(ptr " + at + ", i32 " + std::to_string(d.itemsize()) + ", " + mt + " " + mask + ">, " + t +
                        " poison)" + aliasing(a)));
  }
  // Blocks of 1, 2, 4, ... elements change places with their mirror images.
  for (int step = 1; step < n; step *= 2) {
    std::string low = "<", high = "<";
    for (int i = 0; i < n; i++) {
      low += str(i ? ", " : "", "i32 ", i & step ? n + i - step : i);
      high += str(i ? ", " : "", "i32 ", i & step ? n + i : i + step);
    }
    for (int i = 0; i < n; i++) {
      if (i & step) continue;
      const auto x = static_cast<size_t>(i), y = static_cast<size_t>(i + step);
      const std::string both = "shufflevector " + t + " " + rows[x] + ", " + t + " " + rows[y] + ", <" + std::to_string(n) + " x i32> ";
      std::string upper = emit(both + low + ">"), lower = emit(both + high + ">");
      rows[x] = std::move(upper), rows[y] = std::move(lower);
    }
  }
  for (int i = 0; i < columns; i++) values_[static_cast<size_t>(view_.position(tile.columns[static_cast<size_t>(i)]))] = rows[static_cast<size_t>(i)];
}

}  // namespace tg
