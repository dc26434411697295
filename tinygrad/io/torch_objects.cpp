/// \file The names torch.save's pickles use, and what each stands for.
#include "tinygrad/io/torch_objects.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/base/math.h"
#include "tinygrad/io/npy.h"

namespace tg::io {

/// A class or function and what it is to this reader: an element type, a storage of one, a function with its arguments,
/// or something that is refused and why. With none of these it may only stand as a value or an argument.
struct TorchObjects::Known {
  std::string_view module, name;
  DType dtype = {};
  Call call = nullptr;
  int least = 0, most = 0;  ///< arguments
  std::string_view refusal = {};
};

namespace {
constexpr std::string_view kTorch = "torch", kUtils = "torch._utils", kStorage = "torch.storage";
constexpr std::string_view kUnsupported = "a type this library has not";
}  // namespace

std::span<const TorchObjects::Known> TorchObjects::table() {
  using T = TorchObjects;
  // clang-format off
  static const Known kTable[] = {
    // element types
    {kTorch, "float64", dtypes::float64}, {kTorch, "float32", dtypes::float32}, {kTorch, "float16", dtypes::float16},
    {kTorch, "bfloat16", dtypes::bfloat16}, {kTorch, "int64", dtypes::int64}, {kTorch, "int32", dtypes::int32},
    {kTorch, "int16", dtypes::int16}, {kTorch, "int8", dtypes::int8}, {kTorch, "uint8", dtypes::uint8},
    {kTorch, "uint16", dtypes::uint16}, {kTorch, "uint32", dtypes::uint32}, {kTorch, "uint64", dtypes::uint64},
    {kTorch, "bool", dtypes::bool_}, {kTorch, "float8_e4m3fn", dtypes::fp8e4m3},
    {kTorch, "float8_e5m2", dtypes::fp8e5m2}, {kTorch, "float8_e4m3fnuz", dtypes::fp8e4m3fnuz},
    {kTorch, "float8_e5m2fnuz", dtypes::fp8e5m2fnuz}, {kTorch, "float8_e8m0fnu", {}}, {kTorch, "complex32", {}},
    {kTorch, "complex64", {}}, {kTorch, "complex128", {}}, {kTorch, "float4_e2m1fn_x2", {}}, {kTorch, "qint8", {}},
    {kTorch, "quint8", {}}, {kTorch, "qint32", {}}, {kTorch, "quint4x2", {}}, {kTorch, "quint2x4", {}},
    // storages
    {kTorch, "DoubleStorage", dtypes::float64}, {kTorch, "FloatStorage", dtypes::float32},
    {kTorch, "HalfStorage", dtypes::float16}, {kTorch, "BFloat16Storage", dtypes::bfloat16},
    {kTorch, "LongStorage", dtypes::int64}, {kTorch, "IntStorage", dtypes::int32},
    {kTorch, "ShortStorage", dtypes::int16}, {kTorch, "CharStorage", dtypes::int8},
    {kTorch, "ByteStorage", dtypes::uint8}, {kTorch, "BoolStorage", dtypes::bool_},
    {kTorch, "UntypedStorage", dtypes::uint8}, {kStorage, "UntypedStorage", dtypes::uint8},
    {kTorch, "ComplexFloatStorage", {}, nullptr, 0, 0, "a storage of complex numbers"},
    {kTorch, "ComplexDoubleStorage", {}, nullptr, 0, 0, "a storage of complex numbers"},
    {kTorch, "QInt8Storage", {}, nullptr, 0, 0, "a storage of quantized numbers"},
    {kTorch, "QUInt8Storage", {}, nullptr, 0, 0, "a storage of quantized numbers"},
    {kTorch, "QInt32Storage", {}, nullptr, 0, 0, "a storage of quantized numbers"},
    {kTorch, "QUInt4x2Storage", {}, nullptr, 0, 0, "a storage of quantized numbers"},
    {kTorch, "QUInt2x4Storage", {}, nullptr, 0, 0, "a storage of quantized numbers"},
    // tensors
    {kUtils, "_rebuild_tensor", {}, &T::tensor, 4, 4}, {kUtils, "_rebuild_tensor_v2", {}, &T::tensor, 6, 7},
    {kUtils, "_rebuild_tensor_v3", {}, &T::tensor, 7, 8}, {kUtils, "_rebuild_parameter", {}, &T::first, 2, 3},
    {kUtils, "_rebuild_parameter_with_state", {}, &T::first, 3, 4},
    {"torch._tensor", "_rebuild_from_type_v2", {}, &T::from_type, 4, 4}, {kTorch, "Tensor", {}},
    {"torch.nn.parameter", "Parameter", {}, &T::first, 0, 2}, {"torch.nn.parameter", "Buffer", {}},
    {kUtils, "_rebuild_qtensor", {}, nullptr, 0, 0, "a quantized tensor"},
    {kUtils, "_rebuild_sparse_tensor", {}, nullptr, 0, 0, "a sparse tensor"},
    {kUtils, "_rebuild_sparse_csr_tensor", {}, nullptr, 0, 0, "a sparse tensor"},
    {kUtils, "_rebuild_nested_tensor", {}, nullptr, 0, 0, "a nested tensor"},
    {kUtils, "_rebuild_meta_tensor_no_storage", {}, nullptr, 0, 0, "a tensor without data"},
    {kUtils, "_rebuild_wrapper_subclass", {}, nullptr, 0, 0, "a tensor of a class of its own"},
    {kUtils, "_rebuild_device_tensor_from_numpy", {}, nullptr, 0, 0, "a tensor of another device's format"},
    {kUtils, "_rebuild_device_tensor_from_cpu_tensor", {}, nullptr, 0, 0, "a tensor of another device's format"},
    {kStorage, "_load_from_bytes", {}, nullptr, 0, 0, "a pickle inside of the pickle"},
    {kTorch, "per_tensor_affine", {}}, {kTorch, "per_tensor_symmetric", {}}, {kTorch, "per_channel_affine", {}},
    {kTorch, "per_channel_symmetric", {}}, {kTorch, "per_channel_affine_float_qparams", {}},
    {kTorch, "FloatTensor", {}}, {kTorch, "DoubleTensor", {}}, {kTorch, "HalfTensor", {}}, {kTorch, "LongTensor", {}},
    {kTorch, "IntTensor", {}}, {kTorch, "ShortTensor", {}}, {kTorch, "CharTensor", {}}, {kTorch, "ByteTensor", {}},
    // other values
    {kTorch, "Size", {}, &T::torch_size, 1, 1}, {kTorch, "device", {}, &T::first, 1, 2},
    {"torch.serialization", "_get_layout", {}, &T::first, 1, 1},
    {"collections", "OrderedDict", {}, &T::dictionary, 0, 1}, {"collections", "Counter", {}, &T::dictionary, 0, 1},
    {"collections", "defaultdict", {}, &T::dictionary, 0, 1},
    {"builtins", "set", {}, &T::set, 0, 1}, {"__builtin__", "set", {}, &T::set, 0, 1},
    {"builtins", "frozenset", {}, &T::set, 0, 1}, {"__builtin__", "frozenset", {}, &T::set, 0, 1},
    {"builtins", "bytes", {}, &T::byte_string, 0, 1}, {"__builtin__", "bytes", {}, &T::byte_string, 0, 1},
    {"builtins", "bytearray", {}, &T::byte_string, 0, 1}, {"__builtin__", "bytearray", {}, &T::byte_string, 0, 1},
    {"builtins", "list", {}}, {"__builtin__", "list", {}}, {"builtins", "dict", {}}, {"__builtin__", "dict", {}},
    {"builtins", "int", {}}, {"__builtin__", "int", {}}, {"builtins", "float", {}}, {"__builtin__", "float", {}},
    {"builtins", "complex", {}, nullptr, 0, 0, "a complex number"},
    {"__builtin__", "complex", {}, nullptr, 0, 0, "a complex number"},
    {"_codecs", "encode", {}, &T::encode, 2, 2},
    {"numpy", "dtype", {}, &T::numpy_dtype, 1, 3}, {"numpy", "ndarray", {}},
    {"numpy.core.multiarray", "scalar", {}, &T::numpy_scalar, 2, 2},
    {"numpy._core.multiarray", "scalar", {}, &T::numpy_scalar, 2, 2},
    {"numpy.core.multiarray", "_reconstruct", {}, &T::numpy_array, 3, 3},
    {"numpy._core.multiarray", "_reconstruct", {}, &T::numpy_array, 3, 3}};
  // clang-format on
  return kTable;
}

std::span<const PickleName> TorchObjects::names() {
  static const std::vector<PickleName> kNames = [] {
    std::vector<PickleName> out;
    for (const Known& k : table()) out.emplace_back(k.module, k.name);
    return out;
  }();
  return kNames;
}

std::optional<DType> TorchObjects::storage_type(std::string_view name) {
  for (const Known& k : table())
    if (k.name == name && name.ends_with("Storage") && !k.dtype.is_void()) return k.dtype;
  return {};
}

const TorchObjects::Known* TorchObjects::known(PickleId name) const {
  for (const Known& k : table())
    if (pickle_.is_name(name, k.module, k.name)) return &k;
  return nullptr;
}

void TorchObjects::charge(uint64_t bytes, PickleId at) {
  check(bytes <= budget_, at, "more copies of objects than ", kTorchDerivedBytes, " bytes and ", kTorchDerivedTimes,
        " times the pickle's ", pickle_.size);
  budget_ -= bytes;
}

// ---- parts of objects, with their kinds checked ----

template <class... A> void TorchObjects::check(bool ok, PickleId at, const A&... got) const {
  if (!ok) [[unlikely]]
    throw FormatError(str(what_, ": byte ", base_ + node(at).offset, ": got ", got...));
}

const std::vector<PickleId>& TorchObjects::tuple(PickleId id) const {
  if (node(id).kind == PickleKind::kTuple) return node(id).items;
  check(node(id).kind == PickleKind::kCall && file_.nodes[id].kind == TorchKind::kTuple, id,
        "something else where a tuple belongs");
  return file_.nodes[id].items;
}
int64_t TorchObjects::integer(PickleId id) const {
  check(node(id).kind == PickleKind::kInt, id, "something else where a number belongs");
  return node(id).integer;
}
uint64_t TorchObjects::size(PickleId id) const {
  const int64_t n = integer(id);
  check(n >= 0, id, n, ", expected a number of 0 or more");
  return static_cast<uint64_t>(n);
}
std::string_view TorchObjects::text(PickleId id) const {
  check(node(id).kind == PickleKind::kString, id, "something else where a text belongs");
  return node(id).text;
}
/// Bytes, also when they are made by a call of encode, as protocol 2 has them.
std::string_view TorchObjects::bytes(PickleId id) const {
  check(file_.nodes[id].kind == TorchKind::kBytes || file_.nodes[id].kind == TorchKind::kString, id,
        "something else where bytes belong");
  return file_.nodes[id].text;
}
std::string TorchObjects::key(PickleId id) const {
  return node(id).kind == PickleKind::kInt ? std::to_string(node(id).integer) : std::string(text(id));
}
DType TorchObjects::dtype(PickleId id) const {
  const Known* k = known(id);
  check(k && k->refusal.empty(), id, k ? k->refusal : "something else where a type of elements belongs");
  check(!k->dtype.is_void(), id, "elements of ", k->module, ".", k->name, ", ", kUnsupported);
  return k->dtype;
}

// ---- storages and tensors ----

uint64_t TorchObjects::element_size(const TorchStorage& s) const {
  return static_cast<uint64_t>(storage_types_[static_cast<size_t>(&s - file_.storages.data())].itemsize());
}

void TorchObjects::add_storage(TorchStorage storage, DType dtype) {
  const auto number = static_cast<uint32_t>(file_.storages.size());
  if (storage.in_file)
    TG_CHECK(FormatError, storage_numbers_.emplace(storage.key, number).second, what_, ": byte ", storage.offset,
             ": got storage ", storage.key, " twice");
  file_.storages.push_back(std::move(storage));
  storage_types_.push_back(dtype);
}

void TorchObjects::check_inside(const TorchTensor& t, const StorageView& view, uint64_t at) const {
  const auto outside = [&] {
    throw FormatError(str(what_, ": byte ", at, ": got a tensor outside of the ", view.count,
                          " elements of its storage ", file_.storages[view.storage].key));
  };
  uint64_t last = t.offset;
  bool empty = false;
  for (size_t i = 0; i < t.shape.size(); i++) {
    if (t.shape[i] < 0 || t.strides[i] < 0) outside();
    empty |= t.shape[i] == 0;
  }
  if (empty) return;
  for (size_t i = 0; i < t.shape.size(); i++) {
    const auto step = checked_mul(static_cast<uint64_t>(t.shape[i] - 1), static_cast<uint64_t>(t.strides[i]));
    const auto sum = step ? checked_add(last, *step) : std::nullopt;
    if (!sum) outside();
    last = *sum;
  }
  if (last >= view.count) outside();
}

TorchNode TorchObjects::add(TorchTensor t, const StorageView& view, DType storage_type, uint64_t at) {
  const std::optional<int64_t> count = checked_prod(t.shape);
  TG_CHECK(FormatError, count && checked_mul<int64_t>(*count, 8) && t.shape.size() <= kMaxTorchAxes, what_, ": byte ",
           at, ": got a tensor with more elements or axes than there can be");
  // Elements of another type than the storage's own: its bytes, counted again.
  StorageView seen = view;
  if (storage_type.itemsize() != t.dtype.itemsize()) {
    TG_CHECK(FormatError, view.first == 0 && storage_type == dtypes::uint8, what_, ": byte ", at, ": got a tensor of ",
             t.dtype, " in a storage of ", storage_type);
    seen.count = view.count / static_cast<uint64_t>(t.dtype.itemsize());
  }
  check_inside(t, seen, at);
  t.storage = view.storage;
  t.offset += view.first;
  file_.tensors.push_back(std::move(t));
  TorchNode out;
  out.kind = TorchKind::kTensor;
  out.integer = static_cast<int64_t>(file_.tensors.size() - 1);
  return out;
}

/// The storage itself, as a tensor of one axis.
TorchNode TorchObjects::whole(const StorageView& view) {
  TorchTensor t{view.storage, storage_types_[view.storage], 0, {static_cast<int64_t>(view.count)}, {1}, false};
  return add(std::move(t), view, storage_types_[view.storage], 0);
}

void TorchObjects::add_tensor(const std::string& key, const std::string& storage, TorchTensor tensor, uint64_t at) {
  const auto found = storage_numbers_.find(storage);
  TG_CHECK(FormatError, found != storage_numbers_.end(), what_, ": byte ", at, ": got a tensor of storage ", storage,
           ", which is not there");
  const DType type = storage_types_[found->second];
  tensor.dtype = type;
  const uint64_t count = file_.storages[found->second].bytes / static_cast<uint64_t>(type.itemsize());
  const TorchNode made = add(std::move(tensor), {found->second, 0, count}, type, at);
  TG_CHECK(FormatError, tensor_numbers_.emplace(key, static_cast<uint32_t>(made.integer)).second, what_, ": byte ", at,
           ": got tensor ", key, " twice");
}

void TorchObjects::tensor_reference(PickleId id) {
  const auto found = tensor_numbers_.find(key(node(id).items[0]));
  check(found != tensor_numbers_.end(), id, "a tensor that is not in the file");
  file_.nodes[id].kind = TorchKind::kTensor;
  file_.nodes[id].integer = found->second;
}

/// ("storage", class, key, place, elements, part): the part is (its key, first element, elements) in old files.
void TorchObjects::reference(PickleId id) {
  const PickleId pid = node(id).items[0];
  if (!tensor_numbers_.empty()) return tensor_reference(id);
  const std::vector<PickleId>& t = tuple(pid);
  check((t.size() == 5 || t.size() == 6) && text(t[0]) == "storage", id, "a reference to something that is no storage");
  const DType type = dtype(t[1]);
  const std::string name(key(t[2]));
  const uint64_t count = size(t[4]);
  const std::optional<uint64_t> bytes = checked_mul(count, static_cast<uint64_t>(type.itemsize()));
  check(bytes && *bytes <= INT64_MAX, id, "a storage of ", count, " elements");
  const auto [at, is_new] = storage_numbers_.try_emplace(name, static_cast<uint32_t>(file_.storages.size()));
  if (is_new) {
    file_.storages.push_back({name, 0, *bytes, {}, true});
    storage_types_.push_back(type);
  }
  const uint32_t number = at->second;
  check(file_.storages[number].bytes == *bytes && storage_types_[number] == type, id, "storage ", name,
        " with another size or type than before");
  StorageView view{number, 0, count};
  if (t.size() == 6 && node(t[5]).kind != PickleKind::kNone) {
    const std::vector<PickleId>& part = tuple(t[5]);
    check(part.size() == 3, id, "a part of a storage that is no tuple of three");
    view = {number, size(part[1]), size(part[2])};
    check(view.first <= count && view.count <= count - view.first, id, "a part outside of storage ", name);
  }
  charge(sizeof(TorchTensor) + sizeof view, id);
  views_.emplace(id, view);
  file_.nodes[id] = whole(view);
}

/// Returns the numbers of a tuple, one for each axis of a tensor.
std::vector<int64_t> TorchObjects::sizes(PickleId list, PickleId of) {
  const std::vector<PickleId>& numbers = tuple(list);
  check(numbers.size() <= kMaxTorchAxes, of, "a tensor with more elements or axes than there can be");
  charge(sizeof(TorchTensor) / 2 + numbers.size() * sizeof(int64_t), of);
  std::vector<int64_t> out;
  for (const PickleId n : numbers) out.push_back(static_cast<int64_t>(size(n)));
  return out;
}

// ---- functions ----

/// (storage, offset, sizes, strides[, requires_grad, hooks[, dtype in version 3][, marks]])
TorchNode TorchObjects::tensor(PickleId id, const std::vector<PickleId>& args) {
  const auto view = views_.find(args[0]);
  check(view != views_.end(), id, "a tensor of something that is no storage");
  const DType stored = storage_types_[view->second.storage];
  TorchTensor t;
  t.offset = size(args[1]);
  t.shape = sizes(args[2], id);
  t.strides = sizes(args[3], id);
  check(t.shape.size() == t.strides.size(), id, "a tensor of ", t.shape.size(), " axes with ", t.strides.size(),
        " strides");
  size_t next = 6;
  const bool typed = args.size() > 6 && node(args[6]).kind == PickleKind::kName;
  t.dtype = typed ? dtype(args[next++]) : stored;
  if (next < args.size() && node(args[next]).kind == PickleKind::kDict) {
    const std::vector<PickleId>& marks = node(args[next]).items;
    for (size_t i = 0; i + 1 < marks.size(); i += 2)
      if (node(marks[i]).text == "neg") t.negated = node(marks[i + 1]).integer != 0;
  }
  return add(std::move(t), view->second, stored, base_ + node(id).offset);
}

/// The first argument is the value: a parameter's tensor, the name of a device or layout. Old parameters have it in
/// their state.
TorchNode TorchObjects::first(PickleId id, const std::vector<PickleId>& args) {
  if (!args.empty()) {
    check(node(args[0]).kind == PickleKind::kString || file_.nodes[args[0]].kind == TorchKind::kTensor, id,
          "a call with something else than a tensor or a name");
    return file_.nodes[args[0]];
  }
  check(node(id).state != kNoPickle, id, "a parameter without a tensor");
  const std::vector<PickleId>& state = tuple(node(id).state);
  check(!state.empty() && file_.nodes[state[0]].kind == TorchKind::kTensor, id, "a parameter without a tensor");
  return file_.nodes[state[0]];
}

/// (function, class, arguments, state): a tensor with attributes of its own.
TorchNode TorchObjects::from_type(PickleId id, const std::vector<PickleId>& args) {
  check(!pickle_.is_name(args[0], "torch._tensor", "_rebuild_from_type_v2"), id, "a tensor that is made by itself");
  return call(id, args[0], args[2]);
}

TorchNode TorchObjects::torch_size(PickleId id, const std::vector<PickleId>& args) {
  TorchNode out;
  out.kind = TorchKind::kTuple;
  charge(tuple(args[0]).size() * sizeof(PickleId), id);
  out.items = tuple(args[0]);
  return out;
}

/// Keys and values come behind the call; Python 2 gave them as a list of pairs. A defaultdict's argument is the type of
/// its values, a Counter's a dictionary.
TorchNode TorchObjects::dictionary(PickleId id, const std::vector<PickleId>& args) {
  TorchNode out;
  out.kind = TorchKind::kDict;
  if (!args.empty()) {
    const PickleNode& given = node(args[0]);
    charge(2 * given.items.size() * sizeof(PickleId), id);
    if (given.kind == PickleKind::kDict) out.items = given.items;
    else if (given.kind == PickleKind::kList) {
      for (const PickleId pair : given.items) {
        const PickleNode& p = node(pair);
        const bool is_pair = (p.kind == PickleKind::kList || p.kind == PickleKind::kTuple) && p.items.size() == 2;
        check(is_pair && node(p.items[0]).kind <= PickleKind::kBytes, id, "a dictionary of something else than pairs");
        out.items.insert(out.items.end(), p.items.begin(), p.items.end());
      }
    } else
      check(given.kind == PickleKind::kName || given.kind == PickleKind::kNone, id, "a dictionary of something else");
  }
  out.items.insert(out.items.end(), node(id).items.begin() + 2, node(id).items.end());
  return out;
}

TorchNode TorchObjects::set(PickleId id, const std::vector<PickleId>& args) {
  TorchNode out;
  out.kind = TorchKind::kSet;
  if (args.empty()) return out;
  const PickleNode& given = node(args[0]);
  check(given.kind == PickleKind::kList || given.kind == PickleKind::kTuple, id, "a set of something that is no list");
  charge(given.items.size() * sizeof(PickleId), id);
  out.items = given.items;
  return out;
}

TorchNode TorchObjects::byte_string(PickleId, const std::vector<PickleId>& args) {
  TorchNode out;
  out.kind = TorchKind::kBytes;
  if (!args.empty()) out.text = bytes(args[0]);
  return out;
}

/// (text, "latin1"): protocol 2 has bytes as the code points of a text.
TorchNode TorchObjects::encode(PickleId id, const std::vector<PickleId>& args) {
  const std::string_view from = text(args[0]), codec = text(args[1]);
  check(codec == "latin1" || codec == "latin-1", id, "the codec ", codec, ", expected latin1");
  charge(from.size(), id);
  std::string out;
  out.reserve(from.size());
  for (size_t i = 0; i < from.size(); i++) {
    const auto lead = static_cast<uint8_t>(from[i]);
    if (lead < 0x80) {
      out += from[i];
      continue;
    }
    const bool two =
        (lead == 0xc2 || lead == 0xc3) && i + 1 < from.size() && (static_cast<uint8_t>(from[i + 1]) >> 6) == 2;
    check(two, id, "a text for latin1 with other characters");
    out += static_cast<char>((lead & 3) << 6 | (static_cast<uint8_t>(from[++i]) & 0x3f));
  }
  TorchNode n;
  n.kind = TorchKind::kBytes;
  n.text = file_.texts.emplace_back(std::move(out));
  return n;
}

// ---- NumPy ----

/// (name, align, copy), with (version, byte order, ...) as state
DType TorchObjects::numpy_type(PickleId id) const {
  check(node(id).kind == PickleKind::kCall && pickle_.is_name(node(id).items[0], "numpy", "dtype"), id,
        "something else where a type of NumPy belongs");
  const std::vector<PickleId>& args = tuple(node(id).items[1]);
  check(!args.empty(), id, "a type of NumPy without name");
  const std::optional<DType> type = npy_type(text(args[0]));
  check(type.has_value(), id, "NumPy's type ", text(args[0]), ", ", kUnsupported);
  if (node(id).state != kNoPickle) {
    const std::vector<PickleId>& state = tuple(node(id).state);
    check(state.size() >= 2 && text(state[1]) != ">", id, "a type of NumPy in big-endian order");
  }
  return *type;
}

TorchNode TorchObjects::numpy_dtype(PickleId id, const std::vector<PickleId>& args) {
  static_cast<void>(id);
  TorchNode out;
  out.kind = TorchKind::kString;
  out.text = text(args[0]);
  return out;
}

TorchNode TorchObjects::numpy_scalar(PickleId id, const std::vector<PickleId>& args) {
  const DType type = numpy_type(args[0]);
  const std::string_view raw = bytes(args[1]);
  check(raw.size() == static_cast<size_t>(type.itemsize()), id, "a number of ", type, " in ", raw.size(), " bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, raw.data(), raw.size());
  TorchNode out;
  out.kind = type.is_bool() ? TorchKind::kBool : type.is_float() ? TorchKind::kFloat : TorchKind::kInt;
  if (type == dtypes::float64) std::memcpy(&out.number, &bits, sizeof bits);
  else if (type == dtypes::float32) {
    float f;
    std::memcpy(&f, &bits, sizeof f);
    out.number = f;
  } else if (type == dtypes::float16) out.number = half_to_float(static_cast<uint16_t>(bits));
  else if (type.is_bool()) out.integer = bits != 0;
  else if (type == dtypes::uint64 && bits > INT64_MAX) {
    out.kind = TorchKind::kLongInt;
    std::string& long_text = file_.texts.emplace_back(raw);
    long_text += '\0';
    out.text = long_text;
  } else {
    const int unused = 64 - type.bitsize();
    out.integer = type.is_unsigned() ? static_cast<int64_t>(bits) : static_cast<int64_t>(bits << unused) >> unused;
  }
  return out;
}

/// The array itself is in the state: (version, shape, type, Fortran order, bytes).
TorchNode TorchObjects::numpy_array(PickleId id, const std::vector<PickleId>& args) {
  check(pickle_.is_name(args[0], "numpy", "ndarray") && node(id).state != kNoPickle, id,
        "an array of NumPy without contents");
  const std::vector<PickleId>& state = tuple(node(id).state);
  check(state.size() == 5 && node(state[3]).kind == PickleKind::kBool, id, "an array of NumPy in an unknown format");
  check(node(state[4]).kind != PickleKind::kList, id, "an array of objects");
  TorchTensor t;
  t.dtype = numpy_type(state[2]);
  t.shape = sizes(state[1], id);
  const bool fortran = node(state[3]).integer != 0;
  t.strides.resize(t.shape.size());
  int64_t step = 1;
  for (size_t i = 0; i < t.shape.size(); i++) {
    const size_t axis = fortran ? i : t.shape.size() - 1 - i;
    t.strides[axis] = step;
    step = checked_mul(step, std::max<int64_t>(t.shape[axis], 1)).value_or(0);
  }
  const std::string_view raw = bytes(state[4]);
  const uint64_t count = raw.size() / static_cast<uint64_t>(t.dtype.itemsize());
  const std::optional<int64_t> expected = checked_prod(t.shape);
  check(expected && static_cast<uint64_t>(*expected) == count &&
            raw.size() % static_cast<uint64_t>(t.dtype.itemsize()) == 0,
        id, "an array whose shape does not match its ", raw.size(), " bytes");
  const DType type = t.dtype;
  const auto number = static_cast<uint32_t>(file_.storages.size());
  charge(sizeof(TorchStorage) + raw.size(), id);
  add_storage({"of NumPy", 0, raw.size(), {raw.begin(), raw.end()}, false}, type);
  return add(std::move(t), {number, 0, count}, type, base_ + node(id).offset);
}

// ---- all objects ----

/// An object of a class that is not read, by the name of the class: of what copyreg rebuilds, its first argument.
TorchNode TorchObjects::opaque(PickleId name, PickleId args) {
  const bool rebuilds = pickle_.is_name(name, "copyreg", "_reconstructor") ||
                        pickle_.is_name(name, "copy_reg", "_reconstructor") ||
                        pickle_.is_name(name, "copyreg", "__newobj_ex__");
  if (rebuilds && args != kNoPickle && !node(args).items.empty() && node(node(args).items[0]).kind == PickleKind::kName)
    name = node(args).items[0];
  const std::string_view module = node(node(name).items[0]).text, own = node(node(name).items[1]).text;
  charge(module.size() + own.size(), name);
  TorchNode out;
  out.kind = TorchKind::kOpaque;
  out.text = file_.texts.emplace_back(str(module, ".", own));
  return out;
}

TorchNode TorchObjects::call(PickleId id, PickleId function, PickleId args) {
  const Known* k = known(function);
  if (!k && keep_opaque_) return opaque(function, args);
  check(k != nullptr, id, "a call of something that is no name");
  check(k->refusal.empty(), id, k->refusal, " (", k->module, ".", k->name, "), which is not supported");
  check(k->call != nullptr, id, "a call of ", k->module, ".", k->name);
  const std::vector<PickleId>& list = tuple(args);
  check(list.size() >= static_cast<size_t>(k->least) && list.size() <= static_cast<size_t>(k->most), id, "a call of ",
        k->module, ".", k->name, " with ", list.size(), " arguments");
  return (this->*k->call)(id, list);
}

void TorchObjects::resolve(PickleId id) {
  const PickleNode& from = node(id);
  if (from.kind == PickleKind::kReference) return reference(id);
  if (from.kind == PickleKind::kCall) {
    file_.nodes[id] = call(id, from.items[0], from.items[1]);
    return;
  }
  TorchNode& to = file_.nodes[id];
  if (from.kind != PickleKind::kName) return;
  const Known* k = known(id);
  if (!k) to = opaque(id, kNoPickle);
  else {
    to.kind = TorchKind::kString;
    to.text = file_.texts.emplace_back(str(k->module, ".", k->name));
  }
}

/// The kinds that stay as they are.
static TorchKind same_kind(PickleKind kind) {
  switch (kind) {
    case PickleKind::kBool: return TorchKind::kBool;
    case PickleKind::kInt: return TorchKind::kInt;
    case PickleKind::kLongInt: return TorchKind::kLongInt;
    case PickleKind::kFloat: return TorchKind::kFloat;
    case PickleKind::kString: return TorchKind::kString;
    case PickleKind::kBytes: return TorchKind::kBytes;
    case PickleKind::kList: return TorchKind::kList;
    case PickleKind::kTuple: return TorchKind::kTuple;
    case PickleKind::kSet: return TorchKind::kSet;
    case PickleKind::kDict: return TorchKind::kDict;
    default: return TorchKind::kNone;
  }
}

/// Returns which objects the root consists of. What an opaque object is made of is no part of that.
std::vector<bool> TorchObjects::reached() const {
  std::vector<bool> out(pickle_.nodes.size());
  std::vector<PickleId> open{pickle_.root};
  while (!open.empty()) {
    const PickleId id = open.back();
    open.pop_back();
    if (out[id]) continue;
    out[id] = true;
    const PickleNode& n = node(id);
    if (n.kind == PickleKind::kCall && keep_opaque_ && !known(n.items[0])) continue;
    open.insert(open.end(), n.items.begin(), n.items.end());
    if (n.state != kNoPickle) open.push_back(n.state);
  }
  return out;
}

/// Lists the classes of opaque objects that the root has.
void TorchObjects::list_opaque(const std::vector<bool>& used) {
  std::set<std::string_view> names;
  for (PickleId id = 0; id < used.size(); id++)
    if (used[id] && file_.nodes[id].kind == TorchKind::kOpaque) names.insert(file_.nodes[id].text);
  file_.left_out.assign(names.begin(), names.end());
  check(file_.nodes[file_.root].kind != TorchKind::kOpaque, file_.root, "an object of ", file_.nodes[file_.root].text,
        " as a whole, expected tensors by name: save its state_dict()");
}

uint64_t TorchObjects::read(std::span<const uint8_t> pickle) {
  pickle_ = parse_pickle(pickle, names(), what_, base_, keep_opaque_);
  budget_ = kTorchDerivedBytes + kTorchDerivedTimes * pickle_.size;
  const auto count = static_cast<PickleId>(pickle_.nodes.size());
  file_.nodes.resize(count);
  file_.root = pickle_.root;
  for (PickleId id = 0; id < count; id++) {
    const PickleNode& from = node(id);
    TorchNode& to = file_.nodes[id];
    to.kind = same_kind(from.kind);
    to.text = from.text;
    to.integer = from.integer;  // or the number in the same place
  }
  // Arguments come before the call that has them; a state comes after it, so what is in states is made last.
  const auto needs_state = [&](PickleId id) {
    return node(id).kind == PickleKind::kCall && node(id).state != kNoPickle &&
           (known(node(id).items[0]) == nullptr || known(node(id).items[0])->call == &TorchObjects::numpy_array ||
            pickle_.is_name(node(id).items[0], "torch.nn.parameter", "Parameter"));
  };
  const std::vector<bool> used = reached();
  std::vector<PickleId> later;
  for (PickleId id = 0; id < count; id++) {
    if (!used[id] && node(id).kind != PickleKind::kReference) continue;  // storages stand in the file in any case
    if (needs_state(id)) later.push_back(id);
    else resolve(id);
  }
  for (const PickleId id : later) resolve(id);
  list_opaque(used);
  for (PickleId id = 0; id < count; id++) {
    PickleNode& from = pickle_.nodes[id];
    if (from.kind >= PickleKind::kList && from.kind <= PickleKind::kDict) file_.nodes[id].items = std::move(from.items);
  }
  return pickle_.size;
}

}  // namespace tg::io
