/// \file LLVM IR: transposed blocks as rows of memory and shuffles.
#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/render/llvmir/llvmir_writer.h"

namespace tg {
namespace {
constexpr int kColumns = 16;  // columns that are transposed at once

std::string shuffle_mask(const std::vector<int64_t>& m) {
  std::string s = "<" + str(m.size()) + " x i32> <";
  for (size_t i = 0; i < m.size(); i++) s += str(i ? ", i32 " : "i32 ", m[i]);
  return s + ">";
}
std::vector<int64_t> counting(int64_t from, int n) {
  std::vector<int64_t> m;
  for (int i = 0; i < n; i++) m.push_back(from + i);
  return m;
}
/// Halves have no shuffles of their own.
std::string element_type(DType d, const std::string& memory) { return d.itemsize() == 2 ? "i16" : memory; }
std::string vector_of(const std::string& element, int n) { return "<" + str(n) + " x " + element + ">"; }
}  // namespace

std::string LlvmWriter::shuffle(const std::string& t, const std::string& a, const std::string& b,
                                const std::vector<int64_t>& mask) {
  return emit("shufflevector " + t + " " + a + ", " + t + " " + b + ", " + shuffle_mask(mask));
}

/// True where LLVM tries to combine all shuffles of registers of this size.
bool LlvmWriter::simplifies_shuffles(int bytes) const {
  return target_.arch == "x86_64" && (bytes == 16 || bytes == 32 || bytes == 64) && bytes <= target_.vector_bytes;
}

std::vector<std::string> LlvmWriter::exchange(std::vector<std::string> v, const std::string& t, int lanes,
                                              int itemsize) {
  const int n = static_cast<int>(v.size());
  const std::vector<ExchangeStep> steps = exchange_steps(n, lanes, itemsize);
  for (size_t k = 0; k < steps.size(); k++) {
    const ExchangeStep& s = steps[k];
    for (int i = 0; i < n; i++) {
      if (i & s.bit) continue;
      std::string &a = v[static_cast<size_t>(i)], &b = v[static_cast<size_t>(i | s.bit)];
      std::string low = shuffle(t, a, b, s.low);
      b = shuffle(t, a, b, s.high);
      a = std::move(low);
    }
    // Each result depends on all registers: LLVM would search every path through all steps for shuffles to combine, and
    // finds none. An empty asm costs no instruction and stops the search.
    if (k % 2 == 1 && k + 1 < steps.size() && simplifies_shuffles(lanes * itemsize))
      for (std::string& x : v) x = emit("call " + t + " asm \"\", \"=v,0\"(" + t + " " + x + ") nounwind memory(none)");
  }
  std::vector<std::string> out;
  for (int i = 0; i < n; i++) out.push_back(v[static_cast<size_t>(exchanged_register(i, n, itemsize))]);
  return out;
}

/// Returns the address of column 0 in lane 0.
std::string LlvmWriter::block_address(const LaneBlock& b, DType d) { return address(b.access, d, -b.first_at); }

/// Loads the columns of a block; every row is read contiguously.
std::vector<std::string> LlvmWriter::load_block(const LaneBlock& b, DType d) {
  const int lanes = b.access.lanes, columns = static_cast<int>(b.members.size());
  const std::string element = element_type(d, memory_type(d)), whole = vector_of(element, lanes),
                    first = block_address(b, d);
  std::vector<std::string> out(static_cast<size_t>(columns));
  for (auto [start, n] : block_parts(columns, std::min(lanes, kColumns))) {
    std::vector<std::string> v;
    for (int r = 0; r < n; r++) {
      // Every n-th row, one after another.
      std::vector<std::string> rows;
      for (int64_t row = r; row < lanes; row += n) {
        const std::string at =
            emit("getelementptr " + element + ", ptr " + first + ", i64 " + str(row * b.access.stride + start));
        rows.push_back(emit("load " + vector_of(element, n) + ", ptr " + at + ", align " + str(d.itemsize()) +
                            aliasing(b.access)));
      }
      for (int width = n; rows.size() > 1; width *= 2) {
        std::vector<std::string> pairs;
        for (size_t i = 0; i < rows.size(); i += 2)
          pairs.push_back(shuffle(vector_of(element, width), rows[i], rows[i + 1], counting(0, 2 * width)));
        rows = std::move(pairs);
      }
      v.push_back(rows[0]);
    }
    v = exchange(std::move(v), whole, lanes, d.itemsize());
    for (int c = 0; c < n; c++) {
      std::string& column = out[static_cast<size_t>(start + c)];
      if (column.empty())
        column = element == memory_type(d)
                     ? v[static_cast<size_t>(c)]
                     : emit("bitcast " + whole + " " + v[static_cast<size_t>(c)] + " to " + memory_type(d, lanes));
    }
  }
  return out;
}

void LlvmWriter::store_block(const LaneBlock& b, DType d, const std::vector<std::string>& columns) {
  const int lanes = b.access.lanes, count = static_cast<int>(columns.size());
  const std::string element = element_type(d, memory_type(d)), whole = vector_of(element, lanes),
                    first = block_address(b, d);
  for (auto [start, n] : block_parts(count, std::min(lanes, kColumns))) {
    std::vector<std::string> v;
    for (int c = 0; c < n; c++) {
      const std::string& column = columns[static_cast<size_t>(start + c)];
      v.push_back(element == memory_type(d) ? column
                                            : emit("bitcast " + memory_type(d, lanes) + " " + column + " to " + whole));
    }
    v = exchange(std::move(v), whole, lanes, d.itemsize());
    for (int64_t row = 0; row < lanes; row++) {
      const std::string& from = v[static_cast<size_t>(row % n)];
      const std::string part = n == lanes ? from : shuffle(whole, from, "poison", counting(row / n * n, n));
      const std::string at =
          emit("getelementptr " + element + ", ptr " + first + ", i64 " + str(row * b.access.stride + start));
      line("store " + vector_of(element, n) + " " + part + ", ptr " + at + ", align " + str(d.itemsize()) +
           aliasing(b.access));
    }
  }
}

/// Columns that fill memory without a gap, element by element in turns. `masks`: lanes of each that are stored; empty:
/// all.
void LlvmWriter::store_interleaved(const LaneBlock& b, DType d, const std::vector<std::string>& columns,
                                   const std::vector<std::string>& masks) {
  const int lanes = b.access.lanes, n = static_cast<int>(columns.size());
  const DType m = d.is_bool() ? dtypes::uint8 : d;
  const std::string t = memory_type(d, lanes), mt = type(dtypes::bool_, lanes), first = block_address(b, d);
  for (int part = 0; part < n; part++) {
    // The columns join one by one.
    auto joined = [&](const std::string& vector, const std::vector<std::string>& of) {
      std::string v = of[0];
      for (int c = 1; c < n; c++) {
        std::vector<int64_t> from;
        for (int e = part * lanes; e < (part + 1) * lanes; e++)
          from.push_back(e % n == c ? lanes + e / n : c == 1 ? e / n : e - part * lanes);
        v = shuffle(vector, v, of[static_cast<size_t>(c)], from);
      }
      return v;
    };
    const std::string v = joined(t, columns), at = part ? emit("getelementptr " + memory_type(d) + ", ptr " + first +
                                                               ", i64 " + str(part * lanes))
                                                        : first;
    if (masks.empty()) {
      line("store " + t + " " + v + ", ptr " + at + ", align " + str(d.itemsize()) + aliasing(b.access));
      continue;
    }
    const std::string name = "@llvm.masked.store." + suffix(m, lanes) + ".p0";
    declare("declare void " + name + "(" + t + ", ptr, i32 immarg, " + mt + ")");
    line("call void " + name + "(" + t + " " + v + ", ptr " + at + ", i32 " + str(d.itemsize()) + ", " + mt + " " +
         joined(mt, masks) + ")" + aliasing(b.access));
  }
}

/// Two or four bytes for each lane: the registers that hold them all, permuted. Nothing outside of what the lanes need
/// is touched.
std::string LlvmWriter::load_words(const LaneBlock& b) {
  const MemAccess& a = b.access;
  const auto bytes = static_cast<int64_t>(b.members.size()), halves = bytes / 2;
  const std::string first = block_address(b, dtypes::uint8), out = vector_of("i" + str(8 * bytes), a.lanes);
  if (a.affine && a.stride == bytes) return emit("load " + out + ", ptr " + first + ", align 1" + aliasing(a));
  std::vector<int64_t> places = a.offsets;
  for (int i = 0; a.affine && i < a.lanes; i++) places.push_back(i * a.stride);
  const auto [low, high] = std::minmax_element(places.begin(), places.end());
  const int64_t span = (*high - *low + bytes) / 2, window = 32;  // in halves
  const std::string t = vector_of("i16", static_cast<int>(window));
  auto at = [&](int64_t half) { return emit("getelementptr i8, ptr " + first + ", i64 " + str(*low + 2 * half)); };
  auto whole = [&](int64_t half) { return emit("load " + t + ", ptr " + at(half) + ", align 1" + aliasing(a)); };
  std::string x, y = "poison";
  if (span < window) {
    std::string mask = "<";
    for (int64_t i = 0; i < window; i++) mask += str(i ? ", i1 " : "i1 ", i < span ? "true" : "false");
    declare("declare " + t + " @llvm.masked.load.v32i16.p0(ptr, i32 immarg, <32 x i1>, " + t + ")");
    x = emit("call " + t + " @llvm.masked.load.v32i16.p0(ptr " + at(0) + ", i32 1, <32 x i1> " + mask + ">, " + t +
             " poison)" + aliasing(a));
  } else {
    x = whole(0);
    if (span > window) y = whole(span - window);
  }
  std::vector<int64_t> mask;
  for (int64_t o : places)
    for (int64_t k = 0; k < halves; k++) {
      const int64_t half = (o - *low) / 2 + k;
      mask.push_back(half < window ? half : half - (span - window) + window);
    }
  return emit("bitcast " + vector_of("i16", static_cast<int>(mask.size())) + " " + shuffle(t, x, y, mask) + " to " +
              out);
}

/// Loads the words of all blocks of a group into one register. Reads nothing beyond the first and the last of them.
std::string LlvmWriter::load_group(const LaneBlock& b) {
  const WordGroup& g = accesses_.blocks.group(b.group);
  const std::vector<int64_t>& at = b.access.offsets;
  const auto [low, high] = std::minmax_element(at.begin(), at.end());
  const std::string first = block_address(b, dtypes::uint8), t = vector_of("i16", WordGroup::kHalves);
  const std::string load = "@llvm.masked.load.v32i16.p0";
  declare("declare " + t + " " + load + "(ptr, i32 immarg, <32 x i1>, " + t + ")");
  std::string words = "poison";
  std::vector<int64_t> order(at.size(), 0);
  for (size_t i = 0; i < g.parts.size(); i++) {
    const WordGroup::Part& part = g.parts[i];
    const int64_t from = part.offset - g.parts[static_cast<size_t>(b.number)].offset + *low - 2 * part.shift;
    const std::string address = emit("getelementptr i8, ptr " + first + ", i64 " + str(from));
    for (size_t d = 0; d < part.places.size(); d++) order[d * static_cast<size_t>(g.run) + i] = part.places[d];
    if (i == 0 && g.parts.back().offset + *high - *low + 2 >= 2 * WordGroup::kHalves) {
      words = emit("load " + t + ", ptr " + address + ", align 1" + aliasing(b.access));
      continue;
    }
    std::string mask;
    for (int h = 0; h < WordGroup::kHalves; h++)
      mask += str(h ? ", i1 " : "i1 ", contains(part.places, h) ? "true" : "false");
    words = emit("call " + t + " " + load + "(ptr " + address + ", i32 1, <32 x i1> <" + mask + ">, " + t + " " +
                 words + ")" + aliasing(b.access));
  }
  return shuffle(t, words, "poison", order);
}

/// Returns a half, as a float, of a block whose group is converted at once; "" for other values.
std::string LlvmWriter::grouped_half(UOp u, int lanes) {
  if (!u.is(Ops::CAST) || u.dtype() != dtypes::float32 || lanes != 16) return "";
  UOp half = u.src(0);
  if (!half.is(Ops::BITCAST) || half.dtype() != dtypes::float16 || !half.src(0).is(Ops::OR)) return "";
  const LaneBlock* b = nullptr;
  UOp bytes[2];
  for (UOp s : half.src(0).srcs()) {
    const bool high = s.is(Ops::SHL) && s.src(1).is_const_int(8);
    if (high) s = s.src(0);
    if (!s.is(Ops::CAST) || s.dtype() != dtypes::uint16 || !s.src(0).is(Ops::LOAD)) return "";
    bytes[high] = s.src(0);
    b = accesses_.blocks.of(bytes[high]);
  }
  if (!b || b->group < 0 || bytes[0] != b->members[0] || bytes[1] != b->members[1]) return "";
  GroupOfHalves& all = word_groups_[b->group];
  if (all.halves.block != block_) return "";
  if (all.floats.block != block_) {
    const std::string halves = emit("bitcast <16 x i16> " + all.halves.name + " to <16 x half>");
    all.floats = {block_, 16, convert(halves, dtypes::float16, dtypes::float32, 16)};
  }
  const int run = accesses_.blocks.group(b->group).run;
  std::vector<int64_t> mask;
  for (int l = 0; l < lanes; l++) mask.push_back(l / run * run + b->number);
  return shuffle("<16 x float>", all.floats.name, "poison", mask);
}

/// True when every lane of the mask is set.
std::string LlvmWriter::all_lanes(const std::string& mask, int lanes) {
  const std::string word = "i" + std::to_string(lanes);
  return emit("icmp eq " + word + " " + emit("bitcast " + type(dtypes::bool_, lanes) + " " + mask + " to " + word) +
              ", -1");
}

/// Writes the two ways of a branch: block F of `id` where the condition holds, G where not; both go on at J.
void LlvmWriter::branch(const std::string& condition, const std::string& id, const std::function<void()>& holds,
                        const std::function<void()>& fails) {
  line("br i1 " + condition + ", label %F" + id + ", label %G" + id);
  begin_block("F" + id);
  holds();
  line("br label %J" + id);
  begin_block("G" + id);
  fails();
  line("br label %J" + id);
  begin_block("J" + id);
}
/// Returns the value after a branch.
std::string LlvmWriter::join(const std::string& t, const std::string& id, const std::string& holds,
                             const std::string& fails) {
  return emit("phi " + t + " [ " + holds + ", %F" + id + " ], [ " + fails + ", %G" + id + " ]");
}

/// Loads the members of a block whose bytes are the parts of one word for each lane.
void LlvmWriter::load_bytes(const LaneBlock& b) {
  const int lanes = b.access.lanes;
  const auto bytes = static_cast<int>(b.members.size());
  if (b.group >= 0)
    if (GroupOfHalves& all = word_groups_[b.group]; all.halves.block != block_)
      all = {{block_, lanes, load_group(b)}, {}};
  const std::string word = load_words(b), t = vector_of("i" + str(8 * bytes), lanes);
  words_[view_.position(b.first)] = {block_, lanes, word};
  for (int c = 0; c < bytes; c++) {
    std::string v = word;
    if (c) {
      std::string by = "<";
      for (int i = 0; i < lanes; i++) by += str(i ? ", i" : "i", 8 * bytes, " ", 8 * c);
      v = emit("lshr " + t + " " + v + ", " + by + ">");
    }
    values_[static_cast<size_t>(view_.position(b.members[static_cast<size_t>(c)]))] =
        emit("trunc " + t + " " + v + " to " + vector_of("i8", lanes));
  }
}

/// Loads the members of a block. Gates are those of padding: open nearly everywhere.
void LlvmWriter::load_members(const LaneBlock& b, const std::string& id) {
  const int lanes = b.access.lanes;
  const DType d = b.first.dtype();
  std::vector<std::string> columns, some;
  if (b.gated) {
    const std::string mask = value(b.first.src(2), lanes);
    branch(
        all_lanes(mask, lanes), id, [&] { columns = load_block(b, d); },
        [&] {
          for (size_t c = 0; c < columns.size(); c++)
            some.push_back(load_masked(b.access, d, mask, to_memory(value(b.members[c].src(1), lanes), d, lanes),
                                       static_cast<int64_t>(c) - b.first_at));
        });
    for (size_t c = 0; c < columns.size(); c++) columns[c] = join(memory_type(d, lanes), id, columns[c], some[c]);
  } else {
    columns = load_block(b, d);
  }
  for (size_t c = 0; c < columns.size(); c++)
    values_[static_cast<size_t>(view_.position(b.members[c]))] = from_memory(columns[c], d, lanes);
}

void LlvmWriter::store_members(const LaneBlock& b, const std::string& id) {
  const int lanes = b.access.lanes;
  const DType d = b.last.src(1).dtype();
  std::vector<std::string> columns;
  for (UOp m : b.members) columns.push_back(to_memory(value(m.src(1), lanes), d, lanes));
  if (b.access.stride <= kShuffledStride) {
    std::vector<std::string> masks;
    for (UOp m : b.members)
      if (b.gated) masks.push_back(value(m.src(2), lanes));
    return store_interleaved(b, d, columns, masks);
  }
  if (!b.gated) return store_block(b, d, columns);
  const std::string mask = value(b.last.src(2), lanes);
  branch(
      all_lanes(mask, lanes), id, [&] { store_block(b, d, columns); },
      [&] {
        for (size_t c = 0; c < columns.size(); c++)
          scatter(b.access, d, columns[c], mask, static_cast<int64_t>(c) - b.first_at);
      });
}

/// Writes a block where its first load or its last store is.
void LlvmWriter::block(UOp u, const LaneBlock& b) {
  const std::string id = std::to_string(next_++);
  if (u.is(Ops::LOAD) && u == b.first) return b.words ? load_bytes(b) : load_members(b, id);
  if (u.is(Ops::STORE) && u == b.last) store_members(b, id);
}

}  // namespace tg
