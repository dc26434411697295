/// \file Tensors that are parts of files.
#include "tinygrad/nn/byte_source.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::nn {
namespace {

/// Returns elements [first, first + product of the shape) of a row.
using Row = std::function<Tensor(uint64_t first, const Shape& shape)>;

/// Axes with more than one element and a stride, the largest stride first.
struct Axes {
  std::vector<int> order;  ///< their numbers in the layout
  std::vector<int64_t> sizes, strides;
};

Axes moving_axes(const StridedLayout& layout) {
  Axes out;
  for (size_t i = 0; i < layout.shape.size(); i++)
    if (layout.shape[i] != 1 && layout.strides[i] != 0) out.order.push_back(static_cast<int>(i));
  std::stable_sort(out.order.begin(), out.order.end(), [&](int a, int b) {
    return layout.strides[static_cast<size_t>(a)] > layout.strides[static_cast<size_t>(b)];
  });
  for (const int i : out.order) {
    out.sizes.push_back(layout.shape[static_cast<size_t>(i)]);
    out.strides.push_back(layout.strides[static_cast<size_t>(i)]);
  }
  return out;
}

Shape shape_of_sizes(const std::vector<int64_t>& sizes) { return Shape{std::span<const int64_t>(sizes)}; }

bool is_dense(const Axes& a) {
  int64_t step = 1;
  for (size_t i = a.sizes.size(); i-- > 0;) {
    if (a.strides[i] != step) return false;
    step *= a.sizes[i];
  }
  return true;
}

/// A box in a grid of rows: axis i of the result is [from[i], from[i] + sizes[i]) of widths[i].
struct Grid {
  uint64_t first;
  std::vector<int64_t> widths, from;
};

/// Finds the grid whose rows begin at element `first`, if the axes are a box of it.
std::optional<Grid> grid_at(uint64_t first, uint64_t offset, uint64_t count, const Axes& a) {
  Grid g{first, {a.sizes[0]}, {0}};
  if (static_cast<uint64_t>(a.sizes[0]) > (count - first) / static_cast<uint64_t>(a.strides[0])) return {};
  auto rest = static_cast<int64_t>(offset - first);
  if (rest >= a.strides[0]) return {};
  for (size_t i = 1; i <= a.sizes.size(); i++) {
    const bool last = i == a.sizes.size();  // the elements between two of the innermost axis
    const int64_t stride = last ? 1 : a.strides[i], size = last ? 1 : a.sizes[i];
    if (a.strides[i - 1] % stride != 0) return {};
    g.widths.push_back(a.strides[i - 1] / stride);
    g.from.push_back(rest / stride);
    rest %= stride;
    if (g.from.back() + size > g.widths.back()) return {};
  }
  return g;
}

/// Returns the elements of the axes, in their order; others are left out.
Tensor elements(const Row& row, uint64_t count, uint64_t offset, const Axes& a) {
  if (is_dense(a)) return row(offset, shape_of_sizes(a.sizes));
  const auto stride = static_cast<uint64_t>(a.strides[0]), rows = static_cast<uint64_t>(a.sizes[0]);
  std::optional<Grid> grid = grid_at(offset - offset % stride, offset, count, a);
  // The last row of a slice may end before the grid's does; then the grid ends with the elements.
  if (!grid && rows <= count / stride && count - rows * stride <= offset)
    grid = grid_at(count - rows * stride, offset, count, a);
  if (grid) {
    std::vector<std::pair<SInt, SInt>> box;
    for (size_t i = 0; i < grid->from.size(); i++)
      box.emplace_back(grid->from[i], grid->from[i] + (i < a.sizes.size() ? a.sizes[i] : 1));
    return row(grid->first, shape_of_sizes(grid->widths)).shrink(box).reshape(shape_of_sizes(a.sizes));
  }
  Tensor number = Tensor::full({}, 0, dtypes::int64);
  int64_t last = 0;
  for (size_t i = 0; i < a.sizes.size(); i++) {
    std::vector<int64_t> along(a.sizes.size(), 1);
    along[i] = a.sizes[i];
    number = number + (Tensor::arange(a.sizes[i], dtypes::int64) * a.strides[i]).reshape(shape_of_sizes(along));
    last += (a.sizes[i] - 1) * a.strides[i];
  }
  return row(offset, {last + 1})[number];
}

Tensor seen_through(const Row& row, uint64_t count, const StridedLayout& layout) {
  const Axes a = moving_axes(layout);
  std::vector<int> back(a.order.size());
  std::vector<int> by_axis(a.order);
  std::sort(by_axis.begin(), by_axis.end());
  std::vector<int64_t> kept(layout.shape);
  for (size_t i = 0; i < by_axis.size(); i++)
    back[i] = static_cast<int>(std::find(a.order.begin(), a.order.end(), by_axis[i]) - a.order.begin());
  for (size_t i = 0; i < kept.size(); i++)
    if (layout.strides[i] == 0) kept[i] = 1;
  Tensor t = elements(row, count, layout.offset, a);
  if (back.size() > 1) t = t.permute(back);
  return t.reshape(shape_of_sizes(kept)).expand(shape_of_sizes(layout.shape));
}

bool has_no_elements(const StridedLayout& layout) {
  return std::find(layout.shape.begin(), layout.shape.end(), 0) != layout.shape.end();
}

}  // namespace

uint64_t StridedLayout::end() const {
  if (has_no_elements(*this)) return offset;
  uint64_t last = offset;
  for (size_t i = 0; i < shape.size(); i++) last += static_cast<uint64_t>((shape[i] - 1) * strides[i]);
  return last + 1;
}

ByteSource ByteSource::of_file(const std::filesystem::path& path, std::string_view op) {
  ByteSource s;
  s.what_ = str("[", op, "] ", path.string());
  s.device_ = "DISK:" + path.string();
  s.file_ = io::map_file(path, op);
  s.bytes_ = s.file_.bytes;
  return s;
}

ByteSource ByteSource::of_tensor(const Tensor& t, std::string_view op) {
  TG_CHECK(ValueError, t.defined() && t.ndim() == 1 && t.dtype() == dtypes::uint8, "[", op, "] got ",
           t.defined() ? str("shape ", t.shape(), " of ", t.dtype()) : "an undefined tensor",
           ", expected one axis of uint8");
  ByteSource s;
  s.what_ = str("[", op, "] tensor");
  s.tensor_ = t;
  s.memory_ = host_bytes(t);
  s.bytes_ = {reinterpret_cast<const uint8_t*>(s.memory_.bytes.data()), s.memory_.bytes.size()};
  return s;
}

ByteSource ByteSource::of_bytes(std::vector<uint8_t> bytes, std::string what) {
  ByteSource s;
  s.what_ = std::move(what);
  s.device_ = "DISK:" + s.what_;  // is never opened
  const auto owner = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
  s.file_ = {*owner, owner};
  s.bytes_ = s.file_.bytes;
  return s;
}

Tensor ByteSource::view(uint64_t offset, DType dtype, const Shape& shape) const {
  const int64_t size = shape.numel() * dtype.itemsize();
  TG_ASSERT(size >= 0 && offset <= bytes_.size() && static_cast<uint64_t>(size) <= bytes_.size() - offset, what_,
            ": a view outside of the bytes");
  if (size == 0) return Tensor::empty(shape, {.dtype = dtype, .device = "CPU"});
  const auto begin = static_cast<int64_t>(offset);
  if (tensor_.defined()) return tensor_.shrink({{begin, begin + size}}).bitcast(dtype).reshape(shape).to("CPU");
  uint8_t* at = file_.bytes.data() + offset;
  if (reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(dtype.itemsize()) == 0)
    return Tensor::from_blob(at, shape, dtype, "CPU", file_.owner);
  // Kernels cannot read these pages; the copy is made when it is needed.
  return Tensor::from_blob(at, {size}, dtypes::uint8, device_, file_.owner).bitcast(dtype).reshape(shape).to("CPU");
}

Tensor strided_view(const ByteSource& source, uint64_t offset, uint64_t count, DType dtype,
                    const StridedLayout& layout) {
  if (has_no_elements(layout)) return Tensor::empty(shape_of_sizes(layout.shape), {.dtype = dtype, .device = "CPU"});
  const auto size = static_cast<uint64_t>(dtype.itemsize());
  return seen_through(
      [&](uint64_t first, const Shape& shape) { return source.view(offset + first * size, dtype, shape); }, count,
      layout);
}

Tensor strided_view(const Tensor& row, const StridedLayout& layout) {
  if (has_no_elements(layout))
    return Tensor::empty(shape_of_sizes(layout.shape), {.dtype = row.dtype(), .device = row.device()});
  return seen_through(
      [&](uint64_t first, const Shape& shape) {
        const auto begin = static_cast<int64_t>(first);
        return row.shrink({{begin, begin + shape.numel()}}).reshape(shape);
      },
      static_cast<uint64_t>(row.numel()), layout);
}

}  // namespace tg::nn
