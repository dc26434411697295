/// \file Arrays in NumPy's files.
#include "tinygrad/nn/npy_file.h"

#include <algorithm>
#include <deque>
#include <string>

#include "tinygrad/base/error.h"
#include "tinygrad/io/npy.h"
#include "tinygrad/io/zip.h"

namespace tg::nn {
namespace {

constexpr std::string_view kSuffix = ".npy";

std::span<const uint8_t> raw(std::span<const std::byte> b) {
  return {reinterpret_cast<const uint8_t*>(b.data()), b.size()};
}
std::span<const uint8_t> raw(const std::string& s) { return {reinterpret_cast<const uint8_t*>(s.data()), s.size()}; }

/// Returns the array whose file begins at byte `offset`.
Tensor array_at(const ByteSource& source, uint64_t offset, const io::NpyHeader& h) {
  const uint64_t data = offset + h.data_start;
  StridedLayout layout{0, h.shape, std::vector<int64_t>(h.shape.size())};
  int64_t step = 1;
  for (size_t i = 0; h.bytes != 0 && i < h.shape.size(); i++) {  // without elements sizes may be any
    const size_t axis = h.fortran_order ? i : h.shape.size() - 1 - i;
    layout.strides[axis] = step;
    step *= h.shape[axis];
  }
  const auto size = static_cast<uint64_t>(h.dtype.itemsize());
  if (!h.big_endian || h.bytes == 0) return strided_view(source, data, h.bytes / size, h.dtype, layout);
  const auto bytes = static_cast<int64_t>(h.bytes), each = static_cast<int64_t>(size);
  const Tensor row = source.view(data, dtypes::uint8, {bytes / each, each}).flip(1).bitcast(h.dtype).reshape(-1);
  return strided_view(row, layout);
}

/// A tensor's header and values in memory.
struct Array {
  std::string header;
  Tensor values;
  std::vector<std::span<const uint8_t>> parts() const {
    std::vector<std::span<const uint8_t>> out{raw(header)};
    if (values.numel()) out.push_back(raw(values.bytes()));
    return out;
  }
};

Array array_of(const Tensor& t, const std::string& name, std::string_view op) {
  TG_CHECK(ValueError, t.defined(), "[", op, "] got an undefined tensor", name, ", expected one with values");
  TG_CHECK(DTypeError, !t.dtype().is_weak(), "[", op, "] got ", t.dtype(), name, ", expected a concrete type: cast it");
  std::vector<int64_t> shape;
  for (const SInt& n : t.shape()) shape.push_back(n.value());
  return {io::npy_header(t.dtype(), shape), t.detach().contiguous()};
}

}  // namespace

Tensor npy_load(const ByteSource& source) { return array_at(source, 0, io::parse_npy(source.bytes(), source.what())); }
Tensor npy_load(const std::filesystem::path& path) { return npy_load(ByteSource::of_file(path, "npy_load")); }

void npy_save(const Tensor& t, const std::filesystem::path& path) {
  const Array a = array_of(t, "", "npy_save");
  io::write_file_atomic(path, a.parts(), "npy_save");
}

StateDict npz_load(const ByteSource& source) {
  StateDict out;
  for (const io::ZipEntry& e : io::zip_entries(source.bytes(), source.what())) {
    TG_CHECK(FormatError, e.name.ends_with(kSuffix), source.what(), ": got ", e.name, ", expected .npy files only");
    const std::string what = str(source.what(), ": ", e.name);
    std::string name = e.name.substr(0, e.name.size() - kSuffix.size());
    if (e.deflated) {
      const ByteSource unpacked = ByteSource::of_bytes(io::zip_read(source.bytes(), e, source.what()), what);
      out.emplace_back(std::move(name), npy_load(unpacked));
    } else {
      const io::NpyHeader h = io::parse_npy(source.bytes().subspan(e.offset, e.size), what);
      out.emplace_back(std::move(name), array_at(source, e.offset, h));
    }
  }
  return out;
}
StateDict npz_load(const std::filesystem::path& path) { return npz_load(ByteSource::of_file(path, "npz_load")); }

void npz_save(const StateDict& arrays, const std::filesystem::path& path) {
  std::deque<Array> kept;
  Tensors values;
  for (const auto& [name, t] : arrays)
    values.push_back(kept.emplace_back(array_of(t, " for " + name, "npz_save")).values);
  if (!values.empty()) realize(values);
  io::ZipWriter zip;
  for (size_t i = 0; i < arrays.size(); i++) zip.add(arrays[i].first + std::string(kSuffix), kept[i].parts());
  io::write_file_atomic(path, zip.finish(), "npz_save");
}

}  // namespace tg::nn
