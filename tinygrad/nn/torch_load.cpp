/// \file Tensors of torch files.
#include "tinygrad/nn/torch_load.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/base/output.h"

namespace tg::nn {

struct TorchValue::Contents {
  io::TorchFile file;
  ByteSource source;  ///< texts and tensors are parts of it
  std::unordered_map<int64_t, Tensor> tensors;
};

namespace {

using io::TorchFile;
using io::TorchKind;
using io::TorchNode;
using io::TorchTensor;

/// Parts may be shared, so a small file can name very many paths to them.
constexpr size_t kMaxVisited = 1 << 22;
constexpr size_t kMaxNameBytes = size_t{128} << 20;  ///< of all paths together
constexpr size_t kMostClassesNamed = 8;

/// Returns the tensors that can be reached from the root.
std::vector<int64_t> used_tensors(const TorchFile& f) {
  std::vector<bool> seen(f.nodes.size()), used(f.tensors.size());
  std::vector<uint32_t> open{f.root};
  while (!open.empty()) {
    const uint32_t id = open.back();
    open.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    const TorchNode& n = f.nodes[id];
    if (n.kind == TorchKind::kTensor) used[static_cast<size_t>(n.integer)] = true;
    open.insert(open.end(), n.items.begin(), n.items.end());
  }
  std::vector<int64_t> out;
  for (size_t i = 0; i < used.size(); i++)
    if (used[i]) out.push_back(static_cast<int64_t>(i));
  return out;
}

StridedLayout layout_of(const TorchTensor& t) { return {t.offset, t.shape, t.strides}; }

/// Makes the tensors of a file. Overlapping ones become views of one tensor, so that a write to one is seen in others
/// as in PyTorch; equal ones are one handle.
class TensorMaker {
 public:
  TensorMaker(const TorchFile& file, const ByteSource& source) : file_(file), source_(source) {}

  std::unordered_map<int64_t, Tensor> make() {
    std::map<uint32_t, std::vector<int64_t>> by_storage;
    for (const int64_t i : used_tensors(file_)) by_storage[at(i).storage].push_back(i);
    for (const auto& [storage, numbers] : by_storage) make_of(file_.storages[storage], numbers);
    return std::move(out_);
  }

 private:
  using Key = std::tuple<uint64_t, std::vector<int64_t>, std::vector<int64_t>, DType, bool>;

  const TorchTensor& at(int64_t i) const { return file_.tensors[static_cast<size_t>(i)]; }

  bool overlap(const std::vector<int64_t>& numbers) const {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;  // in bytes
    std::vector<Key> keys;
    for (const int64_t i : numbers) {
      const TorchTensor& t = at(i);
      const auto size = static_cast<uint64_t>(t.dtype.itemsize());
      const Key key(t.offset, t.shape, t.strides, t.dtype, false);
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      if (keys.size() < 64) keys.push_back(key);
      ranges.emplace_back(t.offset * size, layout_of(t).end() * size);
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); i++)
      if (ranges[i].first < ranges[i - 1].second) return true;
    return false;
  }

  void make_of(const io::TorchStorage& s, const std::vector<int64_t>& numbers) {
    std::map<Key, Tensor> made;
    std::map<DType, Tensor> rows;  // the whole storage, for tensors that overlap
    const bool one_row = !s.in_file || overlap(numbers);
    for (const int64_t i : numbers) {
      const TorchTensor& t = at(i);
      Tensor& out = made[Key(t.offset, t.shape, t.strides, t.dtype, t.negated)];
      if (!out.defined()) {
        out = one_row ? strided_view(row(rows, s, t.dtype), layout_of(t)) : direct(s, t);
        if (t.negated) out = out.neg();
      }
      out_.emplace(i, out);
    }
  }

  Tensor direct(const io::TorchStorage& s, const TorchTensor& t) const {
    return strided_view(source_, s.offset, s.bytes / static_cast<uint64_t>(t.dtype.itemsize()), t.dtype, layout_of(t));
  }

  Tensor row(std::map<DType, Tensor>& rows, const io::TorchStorage& s, DType d) const {
    Tensor& out = rows[d];
    if (out.defined()) return out;
    const auto count = static_cast<int64_t>(s.bytes / static_cast<uint64_t>(d.itemsize()));
    if (s.in_file) out = source_.view(s.offset, d, {count});
    else {
      const std::span<const uint8_t> own = std::span(s.own).first(static_cast<size_t>(count * d.itemsize()));
      out = Tensor::from_bytes(std::as_bytes(own), d, {count}, {.device = "CPU"});
    }
    return out;
  }

  const TorchFile& file_;
  const ByteSource& source_;
  std::unordered_map<int64_t, Tensor> out_;
};

std::string_view kind_name(TorchKind kind) {
  static constexpr std::string_view kNames[] = {"None",     "a bool",   "an int",          "a large int", "a float",
                                                "a string", "bytes",    "a list",          "a tuple",     "a set",
                                                "a dict",   "a tensor", "an opaque object"};
  return kNames[static_cast<size_t>(kind)];
}

/// A key as part of a name; empty for one that has none.
std::string key_text(const TorchNode& n) {
  switch (n.kind) {
    case TorchKind::kString: return std::string(n.text);
    case TorchKind::kInt: return std::to_string(n.integer);
    case TorchKind::kBool: return n.integer ? "True" : "False";
    default: return {};
  }
}

}  // namespace

const io::TorchNode& TorchValue::node() const { return contents_->file.nodes[id_]; }

TorchValue::Kind TorchValue::kind() const { return node().kind; }

bool TorchValue::as_bool() const {
  TG_CHECK(ValueError, kind() == Kind::kBool, "[torch_load] got ", kind_name(kind()), ", expected a bool");
  return node().integer != 0;
}
int64_t TorchValue::as_int() const {
  TG_CHECK(ValueError, kind() == Kind::kInt, "[torch_load] got ", kind_name(kind()), ", expected an int");
  return node().integer;
}
double TorchValue::as_float() const {
  if (kind() == Kind::kInt) return static_cast<double>(node().integer);
  TG_CHECK(ValueError, kind() == Kind::kFloat, "[torch_load] got ", kind_name(kind()), ", expected a float");
  return node().number;
}
std::string_view TorchValue::as_text() const {
  const Kind k = kind();
  TG_CHECK(ValueError, k == Kind::kString || k == Kind::kBytes || k == Kind::kOpaque || k == Kind::kLongInt,
           "[torch_load] got ", kind_name(k), ", expected a string");
  return node().text;
}
const Tensor& TorchValue::as_tensor() const {
  TG_CHECK(ValueError, kind() == Kind::kTensor, "[torch_load] got ", kind_name(kind()), ", expected a tensor");
  return contents_->tensors.at(node().integer);
}

size_t TorchValue::size() const {
  TG_CHECK(ValueError, kind() >= Kind::kList && kind() <= Kind::kDict, "[torch_load] got ", kind_name(kind()),
           ", expected a list, tuple, set or dict");
  return node().items.size() / (kind() == Kind::kDict ? 2 : 1);
}
TorchValue TorchValue::operator[](size_t i) const {
  TG_CHECK(ValueError, kind() != Kind::kDict, "[torch_load] got a dict, expected a list: its entries have keys");
  TG_CHECK(IndexError, i < size(), "[torch_load] got index ", i, " of a list of ", size());
  return with(node().items[i]);
}
std::pair<TorchValue, TorchValue> TorchValue::entry(size_t i) const {
  TG_CHECK(ValueError, kind() == Kind::kDict, "[torch_load] got ", kind_name(kind()), ", expected a dict");
  TG_CHECK(IndexError, i < size(), "[torch_load] got index ", i, " of a dict of ", size());
  return {with(node().items[2 * i]), with(node().items[2 * i + 1])};
}
std::optional<TorchValue> TorchValue::find(std::string_view key) const {
  for (size_t i = size(); i-- > 0;) {  // the last one counts, as in Python
    const auto [k, value] = entry(i);
    if (k.kind() == Kind::kString && k.as_text() == key) return value;
  }
  return {};
}
TorchValue TorchValue::at(std::string_view key) const {
  const std::optional<TorchValue> found = find(key);
  TG_CHECK(IndexError, found, "[torch_load] got key '", key, "', which the dict of ", size(), " entries has not");
  return *found;
}

StateDict TorchValue::state_dict() const {
  struct Open {
    uint32_t id;
    std::string name;
  };
  StateDict out;
  std::vector<Open> open{{id_, ""}};
  size_t name_bytes = 0;
  const std::vector<TorchNode>& nodes = contents_->file.nodes;
  for (size_t visited = 0; !open.empty(); visited++) {
    TG_CHECK(FormatError, visited < kMaxVisited, contents_->source.what(), ": got more than ", kMaxVisited,
             " values, counting shared ones where they are used");
    const Open o = std::move(open.back());
    open.pop_back();
    const TorchNode& n = nodes[o.id];
    if (n.kind == TorchKind::kTensor) out.emplace_back(o.name, contents_->tensors.at(n.integer));
    if (n.kind < TorchKind::kList || n.kind > TorchKind::kDict) continue;
    const bool dict = n.kind == TorchKind::kDict;
    for (size_t i = n.items.size() / (dict ? 2 : 1); i-- > 0;) {
      const TorchNode& value = nodes[n.items[dict ? 2 * i + 1 : i]];
      if (value.kind < TorchKind::kList || value.kind == TorchKind::kOpaque) continue;
      const std::string key = dict ? key_text(nodes[n.items[2 * i]]) : std::to_string(i);
      name_bytes += o.name.size() + key.size() + 1;
      TG_CHECK(FormatError, o.name.size() + key.size() < (1 << 16) && name_bytes <= kMaxNameBytes,
               contents_->source.what(), ": got a name of more than 65536 bytes, or names of more than ", kMaxNameBytes,
               " together");
      open.push_back({n.items[dict ? 2 * i + 1 : i], o.name.empty() ? key : o.name + "." + key});
    }
  }
  return out;
}

/// Tells which classes of objects a program will not find in what it loads.
static void tell_left_out(const io::TorchFile& file, const std::string& what) {
  if (file.left_out.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(file.left_out.size(), kMostClassesNamed); i++)
    names += (i ? ", " : "") + file.left_out[i];
  const size_t others = file.left_out.size() - std::min(file.left_out.size(), kMostClassesNamed);
  if (others) names += str(" and ", others, " other classes");
  note_lines(str("tinygrad: ", what, ": left out objects of ", names, "\n"));
}

TorchValue torch_load_value(const ByteSource& source, bool keep_opaque) {
  const HostFaultWatch faults;
  io::TorchFile file = io::parse_torch_file(source.bytes(), source.what(), keep_opaque);
  faults.check();
  tell_left_out(file, source.what());
  std::unordered_map<int64_t, Tensor> tensors = TensorMaker(file, source).make();
  const uint32_t root = file.root;
  return {
      std::make_shared<const TorchValue::Contents>(TorchValue::Contents{std::move(file), source, std::move(tensors)}),
      root};
}

TorchValue torch_load_value(const std::filesystem::path& path, const TorchLoadOptions& o) {
  return torch_load_value(ByteSource::of_file(path, "torch_load"), o.keep_opaque);
}

StateDict torch_load(const std::filesystem::path& path, const TorchLoadOptions& o) {
  return torch_load_value(path, o).state_dict();
}

}  // namespace tg::nn
