/// \file Reads recordings: every length and number is checked, what is missing is shown as missing.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tinygrad/base/error.h"
#include "tinygrad/base/recording_format.h"
#include "tinygrad/io/file.h"
#include "tinygrad/viz/recording_data.h"

namespace tg::viz {
namespace {
using recording::BlockHeader;
using recording::Kind;
constexpr uint64_t kMaxFile = uint64_t{16} << 30;
constexpr uint64_t kMostPacked = 100;  // of honest recordings it is about 8

/// The fields of one record.
class Fields {
 public:
  Fields(std::string_view bytes, const std::string& file) : left_(bytes), file_(file) {}
  bool empty() const { return left_.empty(); }
  uint8_t byte() {
    check(!left_.empty(), "an early end of a record");
    const auto b = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return b;
  }
  uint64_t number() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = byte();
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (!(b & 0x80)) return v;
    }
    check(false, "a number of more than 64 bits");
    return v;
  }
  int64_t time() { return static_cast<int64_t>(number()); }
  int64_t difference() {
    const uint64_t v = number();
    return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
  }
  std::string_view text() {
    const uint64_t size = number();
    check(size <= left_.size(), "a text that is longer than its record");
    const std::string_view s = left_.substr(0, size);
    left_.remove_prefix(size);
    return s;
  }
  /// Takes the next `size` bytes.
  std::string_view take(uint64_t size) {
    check(size <= left_.size(), "a record that is longer than its block");
    const std::string_view s = left_.substr(0, size);
    left_.remove_prefix(size);
    return s;
  }
  /// Reads how many numbers follow: each takes a byte or more.
  size_t count() {
    const uint64_t n = number();
    check(n <= left_.size(), "a count that is larger than its record");
    return static_cast<size_t>(n);
  }
  void check(bool ok, const char* what) const { TG_CHECK(FormatError, ok, "[viz] ", file_, ": got ", what); }

 private:
  std::string_view left_;
  const std::string& file_;
};

/// Times are those of a clock of the machine: the first one becomes 0.
class Parser {
 public:
  explicit Parser(Recording& r) : r_(r) {}

  void block(uint64_t thread, std::string_view records) {
    thread_ = thread;
    Fields all(records, r_.file);
    while (!all.empty()) record(Fields(all.take(all.number()), r_.file));
  }

  void finish() {
    order_nodes();
    name_all();
    order_spans();
    shift_times();
  }

 private:
  void record(Fields f) {
    switch (static_cast<Kind>(f.byte())) {
      case Kind::kName: return read_name(f);
      case Kind::kTotal: return read_total(f);
      case Kind::kNode: return read_node(f);
      case Kind::kOpen: return read_open(f);
      case Kind::kClose: return read_close(f);
      case Kind::kValue: return read_value(f);
      case Kind::kText: return read_text(f);
      case Kind::kGraph: return read_graph(f);
      case Kind::kRewrite: return read_rewrite(f);
      case Kind::kEvent: return read_event(f);
      case Kind::kMemory: return read_memory(f);
    }
    // A kind of a later version: its length said where the next one begins.
  }

  /// Returns the number of a name in the file, which name_all() replaces by that in `names`.
  static uint32_t name_in_file(Fields& f) { return static_cast<uint32_t>(std::min<uint64_t>(f.number(), UINT32_MAX)); }

  void read_name(Fields& f) {
    const uint32_t number = name_in_file(f);
    known_.emplace(number, f.text());
  }
  void read_total(Fields& f) {
    RuleTotal& t = r_.rules.emplace_back();
    t.rule = name_in_file(f);
    t.tries = f.number();
    t.hits = f.number();
    t.nanoseconds = f.time();
  }
  void read_node(Fields& f) {
    NodeTable& t = r_.graphs[f.number()];
    Node n;
    n.number = f.number();
    n.op = name_in_file(f);
    n.type = name_in_file(f);
    n.tag = f.number();
    n.origin = name_in_file(f);
    const size_t sources = f.count();
    n.source = static_cast<uint32_t>(t.sources.size());
    n.sources = static_cast<uint32_t>(sources);
    for (size_t i = 0; i < sources; i++) {
      const uint64_t before = f.number();
      f.check(before > 0 && before <= n.number, "a node that comes before its source");
      t.sources.push_back(n.number - before);
    }
    const std::string_view argument = f.text();
    f.check(t.sources.size() < UINT32_MAX && t.arguments.size() + argument.size() < UINT32_MAX,
            "a graph that is too large");
    n.argument = static_cast<uint32_t>(t.arguments.size());
    n.argument_size = static_cast<uint32_t>(argument.size());
    t.arguments += argument;
    t.nodes.push_back(n);
  }
  void read_open(Fields& f) {
    Span& s = span(f.number());
    s.parent = f.number();
    s.kind = name_in_file(f);
    s.name = name_in_file(f);
    s.thread = thread_;
    s.begin = noted(f.time());
    s.end = std::max(s.end, s.begin);
  }
  void read_close(Fields& f) {
    Span& s = span(f.number());
    s.end = noted(f.time());
    closed_.insert(s.number);
  }
  void read_value(Fields& f) {
    Span& s = span(f.number());
    const uint32_t key = name_in_file(f);
    s.values.emplace_back(key, f.text());
  }
  void read_text(Fields& f) {
    Text& t = span(f.number()).texts.emplace_back();
    t.title = name_in_file(f);
    t.language = name_in_file(f);
    t.text = f.text();
  }
  void read_graph(Fields& f) {
    Snapshot& g = span(f.number()).graphs.emplace_back();
    g.title = name_in_file(f);
    g.graph = f.number();
    for (size_t n = f.count(); n-- > 0;) g.roots.push_back(f.number());
  }
  void read_rewrite(Fields& f) {
    Rewrite& w = span(f.number()).rewrites.emplace_back();
    w.rule = name_in_file(f);
    w.graph = f.number();
    w.before = f.number();
    w.after = f.number();
    w.nanoseconds = f.time();
  }
  void read_event(Fields& f) {
    Event& e = r_.events.emplace_back();
    e.track = name_in_file(f);
    e.lane = f.number();
    e.name = name_in_file(f);
    e.span = f.number();
    e.begin = noted(f.time());
    e.end = std::max(noted(f.time()), e.begin);
    e.details = f.text();
  }
  void read_memory(Fields& f) {
    MemoryChange& m = r_.memory.emplace_back();
    m.device = name_in_file(f);
    m.span = f.number();
    m.address = f.number();
    m.bytes = f.difference();
    m.time = noted(f.time());
  }

  /// Returns a span, made when it is first spoken of. 0 is what was noted outside of any.
  Span& span(uint64_t number) {
    const auto [it, fresh] = at_.try_emplace(number, r_.spans.size());
    if (fresh) r_.spans.emplace_back().number = number;
    return r_.spans[it->second];
  }
  /// Notes a time, and returns it within bounds: differences must not overflow.
  int64_t noted(int64_t t) {
    t = std::clamp<int64_t>(t, 0, INT64_MAX / 4);
    first_ = std::min(first_, t);
    last_ = std::max(last_, t);
    return t;
  }

  void order_nodes() {
    for (auto& [number, t] : r_.graphs)
      std::stable_sort(t.nodes.begin(), t.nodes.end(),
                       [](const Node& a, const Node& b) { return a.number < b.number; });
  }

  /// Gives names the numbers of Recording::names; one that the file does not explain is "?".
  void name_all() {
    std::unordered_map<uint32_t, uint32_t> numbers{{0, 0}};
    for (auto& [number, text] : known_) {
      if (!numbers.try_emplace(number, static_cast<uint32_t>(r_.names.size())).second) continue;
      r_.names.push_back(std::move(text));
    }
    const auto unknown = static_cast<uint32_t>(r_.names.size());
    r_.names.emplace_back("?");
    const auto fix = [&](uint32_t& n) {
      const auto it = numbers.find(n);
      n = it == numbers.end() ? unknown : it->second;
    };
    for (auto& [number, t] : r_.graphs)
      for (Node& n : t.nodes)
        for (uint32_t* part : {&n.op, &n.type, &n.origin}) fix(*part);
    for (Span& s : r_.spans) {
      fix(s.kind);
      fix(s.name);
      for (auto& [key, text] : s.values) fix(key);
      for (Text& t : s.texts)
        for (uint32_t* part : {&t.title, &t.language}) fix(*part);
      for (Snapshot& g : s.graphs) fix(g.title);
      for (Rewrite& w : s.rewrites) fix(w.rule);
    }
    for (Event& e : r_.events)
      for (uint32_t* part : {&e.track, &e.name}) fix(*part);
    for (MemoryChange& m : r_.memory) fix(m.device);
    for (RuleTotal& t : r_.rules) fix(t.rule);
  }

  /// Sorts spans by number and links them. Parents are older than their parts: what says otherwise has none.
  void order_spans() {
    std::sort(r_.spans.begin(), r_.spans.end(), [](const Span& a, const Span& b) { return a.number < b.number; });
    for (size_t i = 0; i < r_.spans.size(); i++) {
      Span& s = r_.spans[i];
      const Span* parent = s.parent && s.parent < s.number ? r_.span(s.parent) : nullptr;
      if (!parent) s.parent = 0;
      if (parent) r_.spans[static_cast<size_t>(parent - r_.spans.data())].children.push_back(static_cast<uint32_t>(i));
      else r_.roots.push_back(static_cast<uint32_t>(i));
      s.all_rewrites = s.rewrites.size();
      if (!closed_.contains(s.number)) s.end = parent && closed_.contains(parent->number) ? parent->end : last_;
    }
    for (size_t i = r_.spans.size(); i-- > 0;)
      for (uint32_t part : r_.spans[i].children) r_.spans[i].all_rewrites += r_.spans[part].all_rewrites;
  }

  void shift_times() {
    if (first_ > last_) return;
    r_.length = last_ - first_;
    const auto shift = [&](int64_t& t) { t = std::max<int64_t>(t - first_, 0); };
    for (Span& s : r_.spans)
      for (int64_t* t : {&s.begin, &s.end}) shift(*t);
    for (Event& e : r_.events)
      for (int64_t* t : {&e.begin, &e.end}) shift(*t);
    for (MemoryChange& m : r_.memory) shift(m.time);
  }

  Recording& r_;
  uint64_t thread_ = 0;
  std::map<uint32_t, std::string> known_;
  std::unordered_map<uint64_t, size_t> at_;
  std::set<uint64_t> closed_;
  int64_t first_ = INT64_MAX, last_ = 0;
};

/// Returns the records of a block; FormatError for a block that is damaged.
std::string unpack(const BlockHeader& h, std::string_view packed, const std::string& file) {
  TG_CHECK(FormatError, h.unpacked <= recording::kMaxBlock, "[viz] ", file, ": got a block of ", h.unpacked,
           " bytes, expected at most ", recording::kMaxBlock);
  const auto* bytes = reinterpret_cast<const Bytef*>(packed.data());
  TG_CHECK(FormatError, crc32(0, bytes, static_cast<uInt>(packed.size())) == h.checksum, "[viz] ", file,
           ": got a block with a wrong checksum");
  std::string out(h.unpacked, '\0');
  uLongf size = h.unpacked;
  const int status = uncompress(reinterpret_cast<Bytef*>(out.data()), &size, bytes, packed.size());
  TG_CHECK(FormatError, status == Z_OK && size == h.unpacked, "[viz] ", file, ": got a block that does not unpack");
  return out;
}
}  // namespace

const Node* NodeTable::find(uint64_t number) const {
  if (number && number <= nodes.size() && nodes[number - 1].number == number) return &nodes[number - 1];
  const auto it = std::lower_bound(nodes.begin(), nodes.end(), number,
                                   [](const Node& n, uint64_t wanted) { return n.number < wanted; });
  return it != nodes.end() && it->number == number ? &*it : nullptr;
}

const Span* Recording::span(uint64_t number) const {
  const auto it = std::lower_bound(spans.begin(), spans.end(), number,
                                   [](const Span& s, uint64_t wanted) { return s.number < wanted; });
  return it != spans.end() && it->number == number ? &*it : nullptr;
}
const NodeTable* Recording::graph(uint64_t number) const {
  const auto it = graphs.find(number);
  return it == graphs.end() ? nullptr : &it->second;
}
std::string_view Recording::value(const Span& s, std::string_view key) const {
  for (const auto& [k, text] : s.values)
    if (name(k) == key) return text;
  return {};
}

Recording parse_recording(std::string_view bytes, std::string name) {
  Recording r;
  r.file = std::move(name);
  const std::string_view magic(recording::kMagic, sizeof recording::kMagic);
  TG_CHECK(FormatError, bytes.substr(0, magic.size()) == magic, "[viz] ", r.file,
           ": got no recording of this version, expected a file that a program wrote under VIZ=1");
  bytes.remove_prefix(magic.size());
  uint64_t left = bytes.size() * kMostPacked + recording::kMaxBlock;
  Parser parser(r);
  while (!bytes.empty()) {
    BlockHeader h;
    r.broken = bytes.size() < sizeof h;
    if (r.broken) break;
    std::memcpy(&h, bytes.data(), sizeof h);
    r.broken = bytes.size() - sizeof h < h.packed;
    if (r.broken) break;
    TG_CHECK(FormatError, h.unpacked <= left, "[viz] ", r.file, ": got blocks that unpack to more than ", kMostPacked,
             " times their size");
    left -= h.unpacked;
    parser.block(h.thread, unpack(h, bytes.substr(sizeof h, h.packed), r.file));
    bytes.remove_prefix(sizeof h + h.packed);
  }
  parser.finish();
  return r;
}

Recording read_recording(const std::string& path) {
  const std::vector<uint8_t> bytes = io::read_file(path, kMaxFile);
  return parse_recording({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace tg::viz
