/// \file Reader of pickles.
#include "tinygrad/io/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

// The opcodes that are read, by the names and numbers of Python's pickletools.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kOpNone = 'N',
  kBinPersid = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTupleOp = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyTuple = ')',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

constexpr int kFirstProtocol = 2, kLastProtocol = 5;
constexpr PickleId kTheNone = 0, kTheTrue = 1, kTheFalse = 2;  // one object each, as in Python

class PickleReader {
 public:
  PickleReader(std::span<const uint8_t> bytes, std::span<const PickleName> known, std::string_view what, uint64_t base,
               bool any)
      : bytes_(bytes.first(std::min<uint64_t>(bytes.size(), kMaxPickleBytes))),
        known_(known),
        what_(what),
        base_(base),
        any_(any) {
    out_.nodes.resize(3);
    out_.nodes[kTheTrue].kind = out_.nodes[kTheFalse].kind = PickleKind::kBool;
    out_.nodes[kTheTrue].integer = 1;
  }

  Pickle parse() {
    do begin_ = at_;
    while (step(byte()));
    out_.size = at_;
    check_nesting();
    return std::move(out_);
  }

 private:
  template <class... A> void check(bool ok, const A&... got) const {
    if (!ok) [[unlikely]]
      throw FormatError(str(what_, ": byte ", base_ + begin_, ": got ", got...));
  }

  // ---- bytes ----
  template <class T> T value() {
    T v;
    const std::string_view raw = take(sizeof v);
    std::memcpy(&v, raw.data(), sizeof v);
    return v;
  }
  uint8_t byte() { return value<uint8_t>(); }
  std::string_view take(uint64_t n) {
    check(n <= bytes_.size() - at_, "an early end, expected ", n, " more bytes at byte ", base_ + at_);
    const std::string_view out(reinterpret_cast<const char*>(bytes_.data()) + at_, n);
    at_ += n;
    return out;
  }
  std::string_view line() {
    const auto* from = bytes_.data() + at_;
    const auto* end = static_cast<const uint8_t*>(std::memchr(from, '\n', bytes_.size() - at_));
    check(end != nullptr, "a name without end");
    const std::string_view out = take(static_cast<uint64_t>(end - from));
    at_++;
    return out;
  }

  // ---- objects ----
  PickleNode& at(PickleId id) { return out_.nodes[id]; }
  PickleId add(PickleKind kind) {
    check(out_.nodes.size() < kMaxPickleNodes, "more than ", kMaxPickleNodes, " objects");
    PickleNode& n = out_.nodes.emplace_back();
    n.kind = kind;
    n.offset = static_cast<uint32_t>(begin_);
    return static_cast<PickleId>(out_.nodes.size() - 1);
  }
  PickleId add_text(PickleKind kind, std::string_view text) {
    const PickleId id = add(kind);
    at(id).text = text;
    return id;
  }
  PickleId add_int(int64_t v) {
    const PickleId id = add(PickleKind::kInt);
    at(id).integer = v;
    return id;
  }
  PickleId add_long(std::string_view text) {
    while (text.size() > 8 && (text.back() == 0 || text.back() == -1) &&
           (text.back() < 0) == (text[text.size() - 2] < 0))
      text.remove_suffix(1);  // repeats of the sign
    if (text.size() > 8) return add_text(PickleKind::kLongInt, text);
    uint64_t v = !text.empty() && text.back() < 0 ? ~uint64_t{0} : 0;
    for (size_t i = text.size(); i-- > 0;) v = v << 8 | static_cast<uint8_t>(text[i]);
    return add_int(static_cast<int64_t>(v));
  }
  PickleId add_items(PickleKind kind, std::vector<PickleId> items) {
    count_items(items.size());
    const PickleId id = add(kind);
    at(id).items = std::move(items);
    return id;
  }
  void count_items(size_t n) {
    check(n <= kMaxPickleItems - items_, "more than ", kMaxPickleItems, " parts of objects");
    items_ += n;
  }

  // ---- stack ----
  void push(PickleId id) {
    check(stack_.size() < kMaxPickleItems, "a stack of more than ", kMaxPickleItems, " objects");
    stack_.push_back(id);
  }
  PickleId top() const {
    check(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "too few objects on the stack");
    return stack_.back();
  }
  PickleId pop() {
    const PickleId id = top();
    stack_.pop_back();
    return id;
  }
  std::vector<PickleId> pop_to_mark() {
    check(!marks_.empty(), "no mark on the stack");
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleId> out(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  std::vector<PickleId> pop_some(size_t n) {
    std::vector<PickleId> out(n);
    for (size_t i = n; i-- > 0;) out[i] = pop();
    return out;
  }
  void remember(uint64_t where) {
    check(where < kMaxPickleMemo, "the memo's entry ", where, ", expected at most ", kMaxPickleMemo);
    const PickleId id = top();
    if (where >= memo_.size()) memo_.resize(where + 1, kNoPickle);
    memo_[where] = id;
  }
  PickleId recall(uint64_t where) const {
    check(where < memo_.size() && memo_[where] != kNoPickle, "the memo's entry ", where, ", which was not written");
    return memo_[where];
  }

  // ---- opcodes ----
  PickleId add_name(PickleId module, PickleId name) {
    check(at(module).kind == PickleKind::kString && at(name).kind == PickleKind::kString, "a name that is no text");
    const std::string_view m = at(module).text, n = at(name).text;
    check(any_ || std::find(known_.begin(), known_.end(), PickleName(m, n)) != known_.end(), "the name ", m, ".", n,
          ", which is not among those this reader knows; nothing that a file names is run");
    return add_items(PickleKind::kName, {module, name});
  }
  PickleId add_call() {
    const PickleId args = pop(), function = pop();
    check(at(function).kind == PickleKind::kName, "a call of something that is no name");
    check(at(args).kind == PickleKind::kTuple, "a call with arguments that are no tuple");
    return add_items(PickleKind::kCall, {function, args});
  }
  void extend(PickleId id, const std::vector<PickleId>& more) {
    count_items(more.size());
    at(id).items.insert(at(id).items.end(), more.begin(), more.end());
  }
  void append(const std::vector<PickleId>& more) {
    const PickleId id = top();
    if (any_ && at(id).kind == PickleKind::kCall) return;  // an object of a class this reader does not know
    check(at(id).kind == PickleKind::kList, "items for something that is no list");
    extend(id, more);
  }
  void add_to_set(const std::vector<PickleId>& more) {
    check(at(top()).kind == PickleKind::kSet, "items for something that is no set");
    extend(top(), more);
  }
  void set_items(const std::vector<PickleId>& more) {
    const PickleKind kind = at(top()).kind;
    check(kind == PickleKind::kDict || kind == PickleKind::kCall, "keys for something that is no dictionary");
    check(more.size() % 2 == 0, "a key without its value");
    for (size_t i = 0; i < more.size(); i += 2)
      check(is_key(more[i]), "a key that can be none: a list, a dictionary or a call");
    extend(top(), more);
  }
  bool is_key(PickleId id) const {
    const auto plain = [&](PickleId i) { return out_.nodes[i].kind <= PickleKind::kBytes; };
    const PickleNode& n = out_.nodes[id];
    return plain(id) || (n.kind == PickleKind::kTuple && std::all_of(n.items.begin(), n.items.end(), plain)) ||
           (any_ && n.kind >= PickleKind::kName);
  }
  void build() {
    const PickleId state = pop(), id = top();
    check(at(id).kind == PickleKind::kCall, "a state for something that was not made by a call");
    at(id).state = state;
  }

  /// Reads what an opcode that pushes one plain value has behind it. False for other opcodes.
  bool push_value(uint8_t op) {
    switch (op) {
      case kOpNone: push(kTheNone); break;
      case kNewTrue: push(kTheTrue); break;
      case kNewFalse: push(kTheFalse); break;
      case kBinInt: push(add_int(value<int32_t>())); break;
      case kBinInt1: push(add_int(byte())); break;
      case kBinInt2: push(add_int(value<uint16_t>())); break;
      case kLong1: push(add_long(take(byte()))); break;
      case kLong4: push(add_long(take(value<uint32_t>()))); break;
      case kBinFloat: {
        const PickleId id = add(PickleKind::kFloat);
        at(id).number = std::bit_cast<double>(__builtin_bswap64(value<uint64_t>()));
        push(id);
        break;
      }
      case kBinString: push(add_text(PickleKind::kString, take(value<uint32_t>()))); break;
      case kShortBinString: push(add_text(PickleKind::kString, take(byte()))); break;
      case kBinUnicode: push(add_text(PickleKind::kString, take(value<uint32_t>()))); break;
      case kShortBinUnicode: push(add_text(PickleKind::kString, take(byte()))); break;
      case kBinUnicode8: push(add_text(PickleKind::kString, take(value<uint64_t>()))); break;
      case kBinBytes: push(add_text(PickleKind::kBytes, take(value<uint32_t>()))); break;
      case kShortBinBytes: push(add_text(PickleKind::kBytes, take(byte()))); break;
      case kBinBytes8:
      case kByteArray8: push(add_text(PickleKind::kBytes, take(value<uint64_t>()))); break;
      default: return false;
    }
    return true;
  }
  /// Makes, extends and copies what is made of objects on the stack. False for other opcodes.
  bool push_container(uint8_t op) {
    switch (op) {
      case kEmptyTuple: push(add(PickleKind::kTuple)); break;
      case kEmptyList: push(add(PickleKind::kList)); break;
      case kEmptyDict: push(add(PickleKind::kDict)); break;
      case kEmptySet: push(add(PickleKind::kSet)); break;
      case kTuple1: push(add_items(PickleKind::kTuple, pop_some(1))); break;
      case kTuple2: push(add_items(PickleKind::kTuple, pop_some(2))); break;
      case kTuple3: push(add_items(PickleKind::kTuple, pop_some(3))); break;
      case kTupleOp: push(add_items(PickleKind::kTuple, pop_to_mark())); break;
      case kFrozenSet: push(add_items(PickleKind::kSet, pop_to_mark())); break;
      case kAppend: append({pop()}); break;
      case kAppends: append(pop_to_mark()); break;
      case kAddItems: add_to_set(pop_to_mark()); break;
      case kSetItem: set_items(pop_some(2)); break;
      case kSetItems: set_items(pop_to_mark()); break;
      default: return false;
    }
    return true;
  }
  void push_global() {
    const PickleId module = add_text(PickleKind::kString, line()), name = add_text(PickleKind::kString, line());
    push(add_name(module, name));
  }
  /// Reads one opcode and what belongs to it; false at the end.
  bool step(uint8_t op) {
    if (push_value(op) || push_container(op)) return true;
    switch (op) {
      case kProto: {
        const int version = byte();
        check(version >= kFirstProtocol && version <= kLastProtocol, "protocol ", version, ", expected 2 to 5");
        break;
      }
      case kFrame: {
        const auto size = value<uint64_t>();
        check(size <= bytes_.size() - at_, "a frame of ", size, " bytes, past the end");
        break;
      }
      case kMark:
        check(marks_.size() < kMaxPickleItems, "more than ", kMaxPickleItems, " marks");
        marks_.push_back(stack_.size());
        break;
      case kPop:  // also takes a mark, as in Python
        if (!marks_.empty() && marks_.back() == stack_.size()) marks_.pop_back();
        else pop();
        break;
      case kPopMark: pop_to_mark(); break;
      case kDup: push(top()); break;
      case kBinPut: remember(byte()); break;
      case kLongBinPut: remember(value<uint32_t>()); break;
      case kMemoize: remember(memo_.size()); break;
      case kBinGet: push(recall(byte())); break;
      case kLongBinGet: push(recall(value<uint32_t>())); break;
      case kGlobal: push_global(); break;
      case kStackGlobal: {
        const PickleId name = pop(), module = pop();
        push(add_name(module, name));
        break;
      }
      case kReduce:
      case kNewObj: push(add_call()); break;
      case kBuild: build(); break;
      case kBinPersid: push(add_items(PickleKind::kReference, {pop()})); break;
      case kStop:
        out_.root = pop();
        check(stack_.empty() && marks_.empty(), "an end with ", stack_.size(), " objects left on the stack");
        return false;
      default:
        check(false, "opcode ", static_cast<int>(op),
              op >= 0x20 && op < 0x7f ? str(" ('", static_cast<char>(op), "')") : std::string(),
              ", which is not among those this reader takes");
    }
    return true;
  }

  /// Whether an object is one of a class that the caller does not know.
  bool is_unknown(const PickleNode& n) const {
    if (!any_ || n.kind != PickleKind::kCall) return false;
    const PickleNode& name = out_.nodes[n.items[0]];
    const PickleName full(out_.nodes[name.items[0]].text, out_.nodes[name.items[1]].text);
    return std::find(known_.begin(), known_.end(), full) == known_.end();
  }

  /// Checks that no object contains itself and that none is nested too deeply.
  void check_nesting() {
    struct Open {
      PickleId id;
      size_t next;
    };
    const uint8_t kNew = 0, kOpen = 255;
    static_assert(kMaxPickleDepth < 255);
    std::vector<uint8_t> height(out_.nodes.size(), kNew);  // of finished objects, at least 1
    std::vector<Open> open{{out_.root, 0}};
    height[out_.root] = kOpen;
    while (!open.empty()) {
      Open& o = open.back();
      const PickleNode& n = out_.nodes[o.id];
      begin_ = n.offset;
      if (o.next == 0 && is_unknown(n)) {  // nobody looks into it; such objects often know what they are part of
        height[o.id] = 1;
        open.pop_back();
        continue;
      }
      const size_t parts = n.items.size() + (n.state != kNoPickle);
      if (o.next < parts) {
        const PickleId part = o.next < n.items.size() ? n.items[o.next] : n.state;
        o.next++;
        check(height[part] != kOpen, "an object that contains itself");
        if (height[part] != kNew) continue;
        height[part] = kOpen;
        open.push_back({part, 0});
        check(open.size() <= static_cast<size_t>(kMaxPickleDepth), "objects nested more than ", kMaxPickleDepth,
              " deep");
        continue;
      }
      uint8_t highest = 0;
      for (const PickleId part : n.items) highest = std::max(highest, height[part]);
      if (n.state != kNoPickle) highest = std::max(highest, height[n.state]);
      check(highest < kMaxPickleDepth, "objects nested more than ", kMaxPickleDepth, " deep");
      height[o.id] = highest + 1;
      open.pop_back();
    }
  }

  std::span<const uint8_t> bytes_;
  std::span<const PickleName> known_;
  std::string_view what_;
  uint64_t base_, at_ = 0, begin_ = 0;
  bool any_;
  Pickle out_;
  size_t items_ = 0;
  std::vector<PickleId> stack_, memo_;
  std::vector<size_t> marks_;
};

}  // namespace

bool Pickle::is_name(PickleId id, std::string_view module, std::string_view name) const {
  const PickleNode& n = nodes[id];
  return n.kind == PickleKind::kName && nodes[n.items[0]].text == module && nodes[n.items[1]].text == name;
}

Pickle parse_pickle(std::span<const uint8_t> bytes, std::span<const PickleName> known, std::string_view what,
                    uint64_t base, bool any) {
  return PickleReader(bytes, known, what, base, any).parse();
}

}  // namespace tg::io
