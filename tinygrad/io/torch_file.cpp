/// \file Reader of torch.save's files: the containers. What their pickles mean is in torch_objects.cpp.
#include "tinygrad/io/torch_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "tinygrad/base/error.h"
#include "tinygrad/io/pickle.h"
#include "tinygrad/io/tar.h"
#include "tinygrad/io/torch_objects.h"
#include "tinygrad/io/zip.h"

namespace tg::io {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr std::string_view kPickleName = "data.pkl";
// The magic number 0x1950a86a20f9469cfc6c, as a pickle has it.
constexpr std::string_view kLegacyMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kLegacyProtocol = 1001;
constexpr int64_t kMaxLegacyObjects = 1 << 20;

std::string_view text_of(Bytes b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }

template <class T> T get(Bytes bytes, uint64_t at) {
  T v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

// ---- zip ----

/// Turns the bytes of each element round.
std::vector<uint8_t> turned(std::vector<uint8_t> bytes, uint64_t element) {
  for (size_t at = 0; at + element <= bytes.size(); at += element)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + element));
  return bytes;
}

/// Returns whether the archive says that its numbers are in big-endian order.
bool is_big_endian(Bytes file, const ZipEntry& order, std::string_view what) {
  const std::vector<uint8_t> value = zip_read(file, order, what, /*check_crc=*/false);
  const std::string_view text = text_of(value);
  TG_CHECK(FormatError, text == "little" || text == "big", what, ": got byte order '", text.substr(0, 16),
           "', expected little or big");
  return text == "big";
}

/// Finds the bytes of a storage in the archive, in memory where they are packed or in big-endian order.
void place_storage(TorchStorage& s, const ZipEntry& e, uint64_t element, bool big, Bytes file, std::string_view what) {
  TG_CHECK(FormatError, e.size >= s.bytes, what, ": byte ", e.offset, ": got ", e.size, " bytes of ", e.name,
           ", expected ", s.bytes);
  s.offset = e.offset;
  if (!e.deflated && (!big || element == 1)) return;
  s.own = zip_read(file, e, what, /*check_crc=*/e.deflated);
  if (big) s.own = turned(std::move(s.own), element);
  s.in_file = false;
}

TorchFile parse_zip(Bytes file, std::string_view what, bool keep_opaque) {
  const std::vector<ZipEntry> entries = zip_entries(file, what);
  std::unordered_map<std::string_view, const ZipEntry*> by_name;
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& e : entries) {
    by_name.emplace(e.name, &e);
    const bool found = e.name == kPickleName || e.name.ends_with("/" + std::string(kPickleName));
    if (found && (!pickle || e.name.size() < pickle->name.size())) pickle = &e;
  }
  TG_CHECK(FormatError, pickle, what, ": got a zip archive without ", kPickleName, ", expected what torch.save writes");
  const std::string folder = pickle->name.substr(0, pickle->name.size() - kPickleName.size());
  const auto order = by_name.find(folder + "byteorder");
  const bool big = order != by_name.end() && is_big_endian(file, *order->second, what);
  std::vector<uint8_t> unpacked;
  Bytes bytes = file.subspan(pickle->offset, pickle->packed_size);
  // torch.save can leave checksums out, so those of stored entries say nothing.
  if (pickle->deflated) bytes = unpacked = zip_read(file, *pickle, what);
  TorchObjects objects(what, pickle->deflated ? 0 : pickle->offset, keep_opaque);
  objects.read(bytes);
  std::vector<uint64_t> elements;
  for (TorchStorage& s : objects.storages()) {
    elements.push_back(objects.element_size(s));
    if (!s.in_file) continue;
    const auto at = by_name.find(folder + "data/" + s.key);
    TG_CHECK(FormatError, at != by_name.end(), what, ": got no ", folder, "data/", s.key, " in the archive");
    place_storage(s, *at->second, elements.back(), big, file, what);
  }
  TorchFile out = objects.take();
  for (const TorchTensor& t : out.tensors)
    TG_CHECK(FormatError, !big || static_cast<uint64_t>(t.dtype.itemsize()) == elements[t.storage], what,
             ": got a tensor of ", t.dtype, " in a storage of bytes in a big-endian file, which says no element size");
  out.unpacked = std::move(unpacked);  // keeps its place in memory
  return out;
}

// ---- the format before 1.6: pickles one after another, then storages ----

/// Says where the storages lie that follow a list of their keys: each a number of elements and its bytes.
void read_legacy_storages(TorchObjects& objects, const Pickle& keys, Bytes file, uint64_t at, std::string_view what) {
  std::unordered_map<std::string_view, TorchStorage*> waiting;
  for (TorchStorage& s : objects.storages())
    if (s.in_file) waiting.emplace(s.key, &s);
  for (const PickleId id : keys[keys.root].items) {
    const auto found = waiting.find(keys[id].text);
    TG_CHECK(FormatError, keys[id].kind == PickleKind::kString && found != waiting.end(), what, ": byte ", at,
             ": got a storage that no tensor has, or one twice");
    TorchStorage& s = *found->second;
    TG_CHECK(FormatError, file.size() - at >= 8, what, ": byte ", at, ": got an early end, expected a storage");
    const auto count = get<uint64_t>(file, at);
    at += 8;
    const uint64_t size = objects.element_size(s);
    TG_CHECK(FormatError, s.bytes <= file.size() - at && count == s.bytes / size, what, ": byte ", at - 8, ": got ",
             count, " elements of storage ", s.key, " with ", file.size() - at, " bytes left, expected ",
             s.bytes / size);
    s.offset = at;
    at += s.bytes;
    waiting.erase(found);
  }
  TG_CHECK(FormatError, waiting.empty(), what, ": byte ", at, ": got no storage ", waiting.begin()->first);
}

TorchFile parse_legacy(Bytes file, std::string_view what, bool keep_opaque) {
  uint64_t at = 0;
  const auto next = [&] {
    Pickle p = parse_pickle(file.subspan(at), {}, what, at);
    at += p.size;
    return p;
  };
  next();  // the magic number
  const Pickle protocol = next();
  TG_CHECK(FormatError,
           protocol[protocol.root].kind == PickleKind::kInt && protocol[protocol.root].integer == kLegacyProtocol, what,
           ": byte ", at, ": got another version of the format than ", kLegacyProtocol);
  const Pickle system = next();
  const PickleNode& facts = system[system.root];
  TG_CHECK(FormatError, facts.kind == PickleKind::kDict, what, ": byte ", at, ": got no facts about the machine");
  for (size_t i = 0; i < facts.items.size(); i += 2)
    TG_CHECK(FormatError, system[facts.items[i]].text != "little_endian" || system[facts.items[i + 1]].integer == 1,
             what, ": byte ", at, ": got a file in big-endian order, expected little");
  TorchObjects objects(what, at, keep_opaque);
  at += objects.read(file.subspan(at));
  const Pickle keys = next();
  TG_CHECK(FormatError, keys[keys.root].kind == PickleKind::kList, what, ": byte ", at, ": got no list of storages");
  read_legacy_storages(objects, keys, file, at, what);
  return objects.take();
}

// ---- the tar format of 0.1: storages, tensors of them, and a pickle that refers to tensors ----

class TarFormat {
 public:
  TarFormat(Bytes file, std::string_view what, bool keep_opaque)
      : file_(file), what_(what), entries_(tar_entries(file, what)), keep_opaque_(keep_opaque) {}

  TorchFile parse() {
    const TarEntry storages = member("storages"), tensors = member("tensors"), pickle = member("pickle");
    TorchObjects objects(what_, pickle.offset, keep_opaque_);
    at_ = storages.offset;
    end_ = storages.offset + storages.size;
    for (int64_t n = count(); n > 0; n--) read_storage(objects);
    const Pickle views = next();
    TG_CHECK(FormatError, views[views.root].kind == PickleKind::kList && views[views.root].items.empty(), what_,
             ": byte ", at_, ": got storages that are parts of others, which is not supported");
    at_ = tensors.offset;
    end_ = tensors.offset + tensors.size;
    for (int64_t n = count(); n > 0; n--) read_tensor(objects);
    objects.read(file_.subspan(pickle.offset, pickle.size));
    return objects.take();
  }

 private:
  TarEntry member(std::string_view name) const {
    for (const TarEntry& e : entries_)
      if (e.name == name || e.name == "./" + std::string(name)) return e;
    throw FormatError(str(what_, ": got a tar archive without ", name, ", expected what torch.save wrote"));
  }
  Pickle next() {
    Pickle p = parse_pickle(file_.subspan(at_, end_ - at_), TorchObjects::names(), what_, at_);
    at_ += p.size;
    return p;
  }
  template <class T> T value() {
    TG_CHECK(FormatError, end_ - at_ >= sizeof(T), what_, ": byte ", at_, ": got an early end");
    const T v = get<T>(file_, at_);
    at_ += sizeof v;
    return v;
  }
  int64_t count() {
    const Pickle p = next();
    const PickleNode& n = p[p.root];
    TG_CHECK(FormatError, n.kind == PickleKind::kInt && n.integer >= 0 && n.integer <= kMaxLegacyObjects, what_,
             ": byte ", at_, ": got a bad number of objects");
    return n.integer;
  }
  /// Reads a tuple of three, returns the first two as text, and the name of its last.
  struct Head {
    std::string key, other, type;
  };
  Head head() {
    const uint64_t from = at_;
    const Pickle p = next();
    const PickleNode& n = p[p.root];
    TG_CHECK(FormatError,
             n.kind == PickleKind::kTuple && n.items.size() == 3 && p[n.items[2]].kind == PickleKind::kName, what_,
             ": byte ", from, ": got no head of a storage or tensor");
    const auto key = [&](PickleId id) {
      return p[id].kind == PickleKind::kInt ? std::to_string(p[id].integer) : std::string(p[id].text);
    };
    return {key(n.items[0]), key(n.items[1]), std::string(p[p[n.items[2]].items[1]].text)};
  }
  void read_storage(TorchObjects& objects) {
    const uint64_t from = at_;
    const Head h = head();
    const std::optional<DType> dtype = TorchObjects::storage_type(h.type);
    TG_CHECK(FormatError, dtype, what_, ": byte ", from, ": got a storage of type ", h.type,
             ", expected one of numbers");
    const auto elements = value<uint64_t>(), size = static_cast<uint64_t>(dtype->itemsize());
    TG_CHECK(FormatError, elements <= (end_ - at_) / size, what_, ": byte ", at_ - 8, ": got ", elements,
             " elements, past the end of the storages");
    objects.add_storage({h.key, at_, elements * size, {}, true}, *dtype);
    at_ += elements * size;
  }
  void read_tensor(TorchObjects& objects) {
    const uint64_t from = at_;
    const Head h = head();
    const auto axes = value<uint32_t>();
    value<uint32_t>();  // padding
    TG_CHECK(FormatError, axes <= kMaxTorchAxes, what_, ": byte ", from, ": got a tensor of ", axes, " axes");
    TorchTensor t;
    for (std::vector<int64_t>* list : {&t.shape, &t.strides})
      for (uint32_t i = 0; i < axes; i++) list->push_back(value<int64_t>());
    t.offset = value<uint64_t>();
    objects.add_tensor(h.key, h.other, std::move(t), from);
  }

  Bytes file_;
  std::string_view what_;
  std::vector<TarEntry> entries_;
  bool keep_opaque_;
  uint64_t at_ = 0, end_ = 0;
};

/// Whether a file begins with a pickle of the magic number: PROTO, a frame in new protocols, LONG1 of 10 bytes, STOP.
bool is_legacy(Bytes file) {
  const std::string_view head = text_of(file.first(std::min<size_t>(file.size(), 24)));
  return head.starts_with('\x80') && head.find(kLegacyMagic) != std::string_view::npos;
}

bool is_tar(Bytes file) { return file.size() >= 512 && text_of(file.subspan(257, 5)) == "ustar"; }

}  // namespace

TorchFile parse_torch_file(std::span<const uint8_t> file, std::string_view what, bool keep_opaque) {
  if (text_of(file).starts_with("PK")) return parse_zip(file, what, keep_opaque);
  if (is_legacy(file)) return parse_legacy(file, what, keep_opaque);
  TG_CHECK(FormatError, is_tar(file), what,
           ": got a file that begins neither like a zip archive nor like what older "
           "versions of torch.save wrote");
  return TarFormat(file, what, keep_opaque).parse();
}

}  // namespace tg::io
