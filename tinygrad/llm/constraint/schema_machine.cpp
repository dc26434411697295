/// \file Follows a text through a schema.
#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/constraint/schema_grammar.h"

namespace tg::llm::constraint {
namespace {

/// Where a string stands: between characters, behind \, in \uXXXX (the digits so far in higher bits), in UTF-8.
enum TextState : int32_t { kBody, kEscape, kHex, kLowBackslash, kLowU, kUtf8 };

int32_t hex_value(uint8_t b) {
  if (b >= '0' && b <= '9') return b - '0';
  const uint8_t lower = b | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

constexpr int32_t kMaxTextState = 16;
int32_t text_state(int32_t state, int32_t rest) { return state + kMaxTextState * rest; }

}  // namespace

size_t Machine::FrameHash::operator()(const Frame& f) const {
  uint64_t h = 0x9E3779B97F4A7C15u;
  for (const int64_t v :
       {int64_t{f.parent}, int64_t{f.shape}, int64_t{f.state}, int64_t{f.depth}, int64_t{f.set}, f.count}) {
    h = (h ^ static_cast<uint64_t>(v)) * 0xD6E8FEB86659FD93u;
    h ^= h >> 29;
  }
  return h;
}

Machine::Machine(const Grammar& grammar) : g_(grammar) {
  frames_.push_back({-1, -1, 0, 0, 0, 0});  // kDone
  frames_.push_back({-2, -1, 0, 0, 0, 0});  // kOutside
  sets_.emplace_back();
  set_ids_[{}] = 0;
}

int32_t Machine::intern(const Frame& f) {
  const auto [found, added] = known_.emplace(f, static_cast<int32_t>(frames_.size()));
  if (added) frames_.push_back(f);
  return found->second;
}

int32_t Machine::intern_set(std::vector<uint64_t> s) {
  const auto [found, added] = set_ids_.emplace(s, static_cast<int32_t>(sets_.size()));
  if (added) sets_.push_back(std::move(s));
  return found->second;
}

int32_t Machine::set_with(int32_t set, size_t bit, size_t bits) {
  std::vector<uint64_t> s = sets_[static_cast<size_t>(set)];
  s.resize((bits + 63) / 64);
  s[bit / 64] |= uint64_t{1} << (bit % 64);
  return intern_set(std::move(s));
}

/// The start is a frame that expects a value: a shape of -2 with the node as its state.
Machine::Stacks Machine::start() { return {intern({kDone, -2, g_.root, 0, 0, 0})}; }

Machine::Stacks Machine::step(const Stacks& from, uint8_t byte) {
  Stacks out;
  for (const int32_t stack : from) step_one(stack, byte, out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  TG_CHECK(llm::ConstraintLimitError, out.size() <= g_.options.limits.alternatives, "[json_schema] more than ",
           g_.options.limits.alternatives, " alternatives are possible at once");
  return out;
}

void Machine::spend() {
  TG_CHECK(llm::ConstraintLimitError, steps_left_ > 0, "[json_schema] finding what may come next takes more than ",
           g_.options.limits.mask_steps, " steps");
  steps_left_--;
}

void Machine::step_one(int32_t stack, uint8_t byte, Stacks& out) {
  spend();
  const Frame f = frames_[static_cast<size_t>(stack)];
  if (f.shape == -1) return;
  if (f.shape == -2) return enter(f.state, f.parent, f.depth, byte, out);
  const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
  switch (s.type) {
    case Shape::Type::scalar: {
      const int32_t to = s.automaton.step(f.state, byte);
      if (to >= 0 && s.automaton.is_last(to)) return close(f, out);
      if (to >= 0) {
        Frame next = f;
        next.state = to;
        out.push_back(intern(next));
      } else if (s.automaton.ends(f.state)) step_one(f.parent, byte, out);  // a number ends where something else begins
      return;
    }
    case Shape::Type::text: return step_text(f, byte, out);
    case Shape::Type::array: return step_array(f, byte, out);
    case Shape::Type::object: return step_object(f, byte, out);
  }
}

void Machine::enter(int32_t node, int32_t parent, int32_t depth, uint8_t byte, Stacks& out) {
  for (const int32_t id : g_.nodes[static_cast<size_t>(node)]) {
    spend();
    const Shape& s = g_.shapes[static_cast<size_t>(id)];
    if (depth + s.depth > g_.options.limits.depth) continue;
    Frame f{parent, id, 0, depth, 0, 0};
    switch (s.type) {
      case Shape::Type::scalar: {
        f.state = s.automaton.step(0, byte);
        if (f.state >= 0 && s.automaton.is_last(f.state)) close(f, out);
        else if (f.state >= 0) out.push_back(intern(f));
        break;
      }
      case Shape::Type::text:
        if (byte == '"') out.push_back(intern(f));
        break;
      case Shape::Type::array:
      case Shape::Type::object:
        f.depth++;
        if (byte == (s.type == Shape::Type::array ? '[' : '{')) out.push_back(intern(f));
    }
  }
}

/// Counts a character, no further than matters.
void Machine::end_character(Frame& f, const Shape& s) {
  f.state = kBody;
  const int64_t cap = s.most >= 0 ? s.most : s.least;
  f.count = std::min(f.count + 1, cap);
}

void Machine::step_text(Frame f, uint8_t byte, Stacks& out) {
  const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
  const int32_t state = f.state % kMaxTextState, rest = f.state / kMaxTextState;
  if (state == kBody && byte == '"') {
    if (f.count >= s.least) close(f, out);
    return;
  }
  if (step_in_text(f, s, state, rest, byte)) out.push_back(intern(f));
}

/// Goes on inside of a string; false where the byte does not fit.
bool Machine::step_in_text(Frame& f, const Shape& s, int32_t state, int32_t rest, uint8_t byte) {
  switch (state) {
    case kBody: return begin_character(f, s, byte);
    case kEscape:
      if (byte == 'u') f.state = text_state(kHex, 1);
      else end_character(f, s);
      return byte == 'u' || std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos;
    case kHex: return step_hex(f, s, rest, hex_value(byte));
    case kLowBackslash: f.state = text_state(kLowU, 0); return byte == '\\';
    case kLowU: f.state = text_state(kHex, 2); return byte == 'u';
    default: return step_utf8(f, s, rest, byte);
  }
}

bool Machine::begin_character(Frame& f, const Shape& s, uint8_t byte) {
  const bool full = s.most >= 0 && f.count >= s.most;
  if (full || byte < 0x20 || (byte > 0x7F && byte < 0xC2) || byte > 0xF4) return false;
  if (byte == '\\') f.state = text_state(kEscape, 0);
  else if (byte < 0x80) end_character(f, s);
  else f.state = text_state(kUtf8, byte);
  return true;
}

/// `rest`: digits behind a leading 1; a 2 in front marks the second half of a pair.
bool Machine::step_hex(Frame& f, const Shape& s, int32_t rest, int32_t digit) {
  const int32_t so_far = rest * 16 + digit;
  const bool low = so_far >= 0x20000 || (rest >= 2 && rest < 16) || (rest >= 0x20 && rest < 0x100) ||
                   (rest >= 0x200 && rest < 0x1000);
  if (digit < 0) return false;
  if (low && rest == 2 && digit != 13) return false;      // D
  if (low && rest == 0x2D && digit < 12) return false;    // C to F
  if (!low && rest == 0x1D && digit >= 12) return false;  // no second half comes first
  if (so_far < 0x10000) f.state = text_state(kHex, so_far);
  else if (!low && (so_far & 0xFC00) == 0xD800) f.state = text_state(kLowBackslash, 0);
  else end_character(f, s);
  return true;
}

/// `rest`: the leading byte, then how many bytes are to come, + 0x100.
bool Machine::step_utf8(Frame& f, const Shape& s, int32_t rest, uint8_t byte) {
  const bool first = rest < 0x100;
  const int32_t low = !first ? 0x80 : rest == 0xE0 ? 0xA0 : rest == 0xF0 ? 0x90 : 0x80;
  const int32_t high = !first ? 0xBF : rest == 0xED ? 0x9F : rest == 0xF4 ? 0x8F : 0xBF;
  if (byte < low || byte > high) return false;
  const int32_t more = !first ? rest - 0x100 - 1 : rest < 0xE0 ? 0 : rest < 0xF0 ? 1 : 2;
  if (more == 0) end_character(f, s);
  else f.state = text_state(kUtf8, 0x100 + more);
  return true;
}

int32_t Machine::item_node(const Shape& s, int64_t i) const {
  return i < static_cast<int64_t>(s.items.size()) ? s.items[static_cast<size_t>(i)] : s.rest;
}

bool Machine::item_fits(const Shape& s, const Frame& f) const {
  if (s.most >= 0 && f.count >= s.most) return false;
  const int32_t node = item_node(s, f.count);
  return node >= 0 && f.depth + g_.depths[static_cast<size_t>(node)] <= g_.options.limits.depth;
}

void Machine::step_array(Frame f, uint8_t byte, Stacks& out) {
  const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
  const bool may_close = (f.state == kOpened || f.state == kAfterValue) && f.count >= s.least;
  if (byte == ']' && may_close) return close(f, out);
  if (!item_fits(s, f)) return;
  if (f.state == kAfterValue) {
    if (byte != ',') return;
    f.state = kAfterComma;
    out.push_back(intern(f));
    return;
  }
  if (f.state == kAfterComma && byte == ' ' && g_.options.spacing == JsonSpacing::python) {
    f.state = kAfterSpace;
    out.push_back(intern(f));
    return;
  }
  const int32_t node = item_node(s, f.count);
  f.state = kAfterValue;
  const int64_t cap = std::max<int64_t>({s.most, s.least, static_cast<int64_t>(s.items.size())});
  f.count = std::min(f.count + 1, cap);
  enter(node, intern(f), f.depth, byte, out);
}

bool Machine::complete(const Shape& s, const Frame& f) const {
  const std::vector<uint64_t>& seen = sets_[static_cast<size_t>(f.set)];
  for (size_t i = 0; i < s.required.size(); i++)
    if (s.required[i] && (i / 64 >= seen.size() || !(seen[i / 64] >> (i % 64) & 1))) return false;
  return true;
}

/// Returns the tags of keys that may come: properties not seen, and further ones; in order where that is asked for.
const std::vector<uint64_t>& Machine::open_tags(const Frame& f) {
  const auto [found, added] = open_.try_emplace({f.shape, f.set, f.depth});
  std::vector<uint64_t>& open = found->second;
  if (!added) return open;
  const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
  const std::vector<uint64_t>& seen = sets_[static_cast<size_t>(f.set)];
  const size_t n = s.items.size();
  open.assign((n + s.others.size() + 63) / 64, 0);
  const auto is_seen = [&](size_t i) { return i / 64 < seen.size() && (seen[i / 64] >> (i % 64) & 1); };
  const auto fits = [&](int32_t node) {
    return node >= 0 && f.depth + g_.depths[static_cast<size_t>(node)] <= g_.options.limits.depth;
  };
  size_t first = 0;
  for (size_t i = 0; g_.options.ordered && i < n; i++)
    if (is_seen(i)) first = i + 1;
  bool blocked = false;
  for (size_t i = first; i < n && !blocked; i++) {
    if (is_seen(i)) continue;
    if (fits(s.items[i])) open[i / 64] |= uint64_t{1} << (i % 64);
    blocked = g_.options.ordered && s.required[i];
  }
  for (size_t i = 0; i < s.others.size() && !blocked; i++)
    if (fits(s.others[i])) open[(n + i) / 64] |= uint64_t{1} << ((n + i) % 64);
  return open;
}

bool Machine::any_open(const Frame& f) {
  const auto& open = open_tags(f);
  return std::any_of(open.begin(), open.end(), [](uint64_t w) { return w != 0; });
}

void Machine::step_key(Frame f, uint8_t byte, Stacks& out) {
  const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
  const int32_t to = s.automaton.step(f.state - kInKey, byte);
  if (to < 0) return;
  const std::vector<uint64_t>& open = open_tags(f);
  const auto& reach = s.reach[static_cast<size_t>(to)];
  bool any = false;
  for (size_t i = 0; i < open.size(); i++) any |= (open[i] & reach[i]) != 0;
  if (!any) return;
  f.state = kInKey + to;
  const int32_t tag = s.automaton.states[static_cast<size_t>(to)].tag;
  if (tag >= 0) {
    f.state = kAfterKey;
    f.count = tag;
    if (static_cast<size_t>(tag) < s.items.size()) f.set = set_with(f.set, static_cast<size_t>(tag), s.items.size());
  }
  out.push_back(intern(f));
}

void Machine::step_object(Frame f, uint8_t byte, Stacks& out) {
  const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
  if (f.state >= kInKey) return step_key(f, byte, out);
  const auto go = [&](int32_t state) {
    f.state = state;
    out.push_back(intern(f));
  };
  const bool spaces = g_.options.spacing == JsonSpacing::python;
  switch (f.state) {
    case kOpened:
    case kAfterValue:
      if (byte == '}' && complete(s, f)) return close(f, out);
      if (byte == (f.state == kOpened ? '"' : ',') && any_open(f)) go(f.state == kOpened ? kInKey : kAfterComma);
      return;
    case kAfterComma:
    case kAfterSpace:
      if (byte == ' ' && spaces && f.state == kAfterComma) go(kAfterSpace);
      else if (byte == '"') go(kInKey);
      return;
    case kAfterKey:
      if (byte == ':') go(kAfterColon);
      return;
    default: break;
  }
  if (byte == ' ' && spaces && f.state == kAfterColon) return go(kAfterColonSpace);
  const auto tag = static_cast<size_t>(f.count);
  const int32_t node = tag < s.items.size() ? s.items[tag] : s.others[tag - s.items.size()];
  f.state = kAfterValue;
  f.count = 0;
  enter(node, intern(f), f.depth, byte, out);
}

bool Machine::finished(const Stacks& at) const {
  for (const int32_t stack : at) {
    if (stack == kDone) return true;
    const Frame& f = frames_[static_cast<size_t>(stack)];
    if (f.shape < 0 || f.parent != kDone) continue;
    const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
    if (s.type == Shape::Type::scalar && s.automaton.ends(f.state)) return true;
  }
  return false;
}

bool Machine::lone_text(int32_t stack, int64_t ahead, int32_t& alone) {
  Frame f = frames_[static_cast<size_t>(stack)];
  if (f.shape < 0 || g_.shapes[static_cast<size_t>(f.shape)].type != Shape::Type::text) return false;
  const Shape& s = g_.shapes[static_cast<size_t>(f.shape)];
  f.parent = kOutside;
  f.depth = 0;
  // Bounds that are further than `ahead` characters away do not matter, so that places between them are one.
  if (s.most < 0 || s.most - f.count >= ahead) {
    if (f.count >= s.least) f.count = s.least;
    else if (s.least - f.count >= ahead) f.count = 0;
  }
  alone = intern(f);
  return true;
}

Machine::Stacks Machine::import(const Machine& from, const Stacks& at) {
  Stacks out;
  for (const int32_t stack : at) {
    std::vector<int32_t> path;
    int32_t parent = stack;
    for (; parent > kOutside; parent = from.frames_[static_cast<size_t>(parent)].parent) path.push_back(parent);
    for (auto frame = path.rbegin(); frame != path.rend(); ++frame) {
      Frame f = from.frames_[static_cast<size_t>(*frame)];
      f.parent = parent;
      f.set = intern_set(from.sets_[static_cast<size_t>(f.set)]);
      parent = intern(f);
    }
    out.push_back(parent);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tg::llm::constraint
