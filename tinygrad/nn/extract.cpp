/// \file Contents of archives.
#include "tinygrad/nn/extract.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/math.h"
#include "tinygrad/io/gzip.h"
#include "tinygrad/io/tar.h"
#include "tinygrad/io/zip.h"

namespace tg::nn {
namespace {

Tensor part(const ByteSource& source, uint64_t offset, uint64_t size) {
  return source.view(offset, dtypes::uint8, {static_cast<int64_t>(size)});
}

ByteSource unpacked(const ByteSource& source, uint64_t max_bytes) {
  return ByteSource::of_bytes(io::gunzip(source.bytes(), max_bytes, source.name()), source.what());
}

}  // namespace

StateDict tar_extract(const ByteSource& source) {
  if (io::is_gzip(source.bytes())) return tar_extract(unpacked(source, kMaxUnpacked));
  StateDict out;
  std::unordered_map<std::string, size_t> numbers;
  for (const io::TarEntry& e : io::tar_entries(source.bytes(), source.name())) {
    const Tensor t = part(source, e.offset, e.size);
    const auto [at, is_new] = numbers.try_emplace(e.name, out.size());
    if (is_new) out.emplace_back(e.name, t);
    else out[at->second].second = t;
  }
  return out;
}
StateDict tar_extract(const std::filesystem::path& path) {
  return tar_extract(ByteSource::of_file(path, "tar_extract"));
}

StateDict zip_extract(const ByteSource& source, uint64_t max_bytes) {
  StateDict out;
  for (const io::ZipEntry& e : io::zip_entries(source.bytes(), source.what(), max_bytes)) {
    if (!e.deflated) {
      out.emplace_back(e.name, part(source, e.offset, e.size));
      continue;
    }
    const ByteSource content = ByteSource::of_bytes(io::zip_read(source.bytes(), e, source.what()), source.what());
    out.emplace_back(e.name, part(content, 0, e.size));
  }
  return out;
}
StateDict zip_extract(const std::filesystem::path& path, uint64_t max_bytes) {
  return zip_extract(ByteSource::of_file(path, "zip_extract"), max_bytes);
}

Tensor gz_extract(const ByteSource& source, uint64_t max_bytes) {
  const ByteSource content = unpacked(source, max_bytes);
  return part(content, 0, content.bytes().size());
}
Tensor gz_extract(const std::filesystem::path& path, uint64_t max_bytes) {
  return gz_extract(ByteSource::of_file(path, "gz_extract"), max_bytes);
}

TensorIO::TensorIO(const Tensor& t) : source_(ByteSource::of_tensor(t, "TensorIO")) {}

size_t TensorIO::read(std::span<uint8_t> out) {
  const size_t n = std::min<size_t>(out.size(), size() - at_);
  const std::span<const uint8_t> from = source_.bytes().subspan(at_, n);
  std::copy(from.begin(), from.end(), out.begin());
  at_ += n;
  return n;
}

uint64_t TensorIO::seek(int64_t offset, From from) {
  const auto end = static_cast<int64_t>(size());
  const int64_t base = from == From::kBegin ? 0 : from == From::kHere ? static_cast<int64_t>(at_) : end;
  const int64_t to = checked_add(base, offset).value_or(offset < 0 ? 0 : end);
  at_ = static_cast<uint64_t>(std::clamp<int64_t>(to, 0, end));
  return at_;
}

}  // namespace tg::nn
