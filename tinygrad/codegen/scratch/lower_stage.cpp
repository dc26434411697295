/// \file The table of STAGE kinds, and the kinds whose memory the threads of a workgroup share.
#include "tinygrad/codegen/scratch/lower_stage.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/scratch/boxes.h"
#include "tinygrad/codegen/scratch/panel.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/target/gpu_figures.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {
namespace {
constexpr int64_t kSteps =
    4;  // of the sum, in memory at a time where instructions read it: where a loop is written out
        // four times, each iteration has a place of its own
constexpr int64_t kTurns = 8;  // of a thread that fills a tile: that many loads are in flight together

/// The memory of an operand of matrix instructions, in rows with padding behind each: along the sum, or across it where
/// memory has the elements so. Threads read words of several rows at once, which lie in banks of their own then.
struct FragmentPanel {
  UOps rows, columns;  ///< ranges, outermost first
  UOps loops;          ///< those of `rows` that are loops of the sum
  int64_t words = 1, stride, count = 1;
  bool across = false;    ///< columns are those of the result
  bool matrices = false;  ///< rows are cut into parts of 128 bytes, for instructions that read them from memory

  FragmentPanel(UOp stage, bool in_matrices) : FragmentPanel(stage.src(0), stage.srcs().subspan(1), in_matrices) {}
  FragmentPanel(UOp value, std::span<const UOp> over, bool in_matrices) : matrices(in_matrices) {
    if (matrices) {
      find_matrices(value, over);
      return;
    }
    for (UOp x : over) {
      const bool loop = is_loop(x) && axis_type(x) == AxisType::kReduce;
      (loop ? loops : axis_type(x) == AxisType::kUnroll ? columns : rows).push_back(x);
    }
    across = is_across(value);
    if (across) std::swap(rows, columns);
    auto outside = [&](UOp x, UOp y) {
      const int64_t p = stride_along(value, x), q = stride_along(value, y);
      return p != q ? p > q : nests_before(x, y);
    };
    std::sort(loops.begin(), loops.end(), nests_before);
    std::sort(rows.begin(), rows.end(), outside);
    if (across) std::sort(columns.begin(), columns.end(), outside);
    else std::sort(columns.begin(), columns.end(), nests_before);
    rows.insert(rows.begin(), loops.begin(), loops.end());
    words = size_of(columns);
    count = size_of(rows);
    stride = panel_row_elements(words, value.dtype().itemsize());
  }
  static int64_t size_of(const UOps& ranges) {
    int64_t n = 1;
    for (UOp x : ranges) n *= constant_size(x);
    return n;
  }
  /// Takes the ranges as they come: columns are the last ones that are all of the sum, or none of it.
  void find_matrices(UOp value, std::span<const UOp> over) {
    auto is_column = [&](UOp x) { return (axis_type(x) == AxisType::kUnroll) != across; };
    across = axis_type(over.back()) != AxisType::kUnroll;
    for (UOp x : over) {
      if (axis_type(x) == AxisType::kReduce) loops.push_back(x);
      (axis_type(x) != AxisType::kReduce && is_column(x) ? columns : rows).push_back(x);
    }
    words = size_of(columns);
    count = size_of(rows);
    stride = kMatrixRow / value.dtype().itemsize();
    TG_ASSERT(words % stride == 0 && count % kMatrixRows == 0, "no matrices of ", count, " rows and ", words,
              " columns: ", value);
  }
  /// True for elements that memory has side by side across the sum.
  bool is_across(UOp value) const {
    if (!value.is(Ops::LOAD)) return false;
    const AffineIndex index(value.src(0).src(1));
    auto adjacent = [&](UOp x) { return index.coefficient(x) == 1; };
    return std::none_of(columns.begin(), columns.end(), adjacent) && std::any_of(rows.begin(), rows.end(), adjacent);
  }
  int64_t size() const { return matrices ? count * words : count * stride; }
  UOps over() const {
    UOps all = rows;
    all.insert(all.end(), columns.begin(), columns.end());
    return all;
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> out(rows.size() + columns.size());
    int64_t step = 1;
    for (size_t i = out.size(); i-- > 0; step *= constant_size(over()[i])) {
      if (i + 1 == rows.size()) step = stride;
      out[i] = step;
    }
    return out;
  }
};

/// Returns the sum of coordinates by the steps of ranges that follow each other, the last one by 1.
UOp packed_index(const UOps& ranges, std::span<const UOp> coordinates) {
  std::vector<int64_t> steps(ranges.size(), 1);
  for (size_t i = ranges.size(); i-- > 1;) steps[i - 1] = steps[i] * constant_size(ranges[i]);
  return scratch_index(steps, UOps(coordinates.begin(), coordinates.end()));
}
UOp quotient(UOp v, int64_t n) { return UOp::alu(Ops::FLOORDIV, {v, UOp::constant(n)}); }
UOp rest(UOp v, int64_t n) { return UOp::alu(Ops::FLOORMOD, {v, UOp::constant(n)}); }

/// Returns the element of a panel of matrices in part `part` of 16 bytes of the columns, counted through all parts of
/// 128 bytes: parts are exchanged by the number of the row.
UOp matrix_element(const FragmentPanel& p, UOp row, UOp part, UOp within) {
  const int64_t parts = kMatrixRow / kMatrixPart, each = p.stride / parts;
  const UOp line = fold_add(fold_mul(quotient(part, parts), p.count), row),
            exchanged = UOp::alu(Ops::XOR, {rest(part, parts), rest(row, kMatrixRows)});
  return fold_add(fold_add(fold_mul(line, p.stride), fold_mul(exchanged, each)), within);
}

/// Returns where a panel has an element. `lane`: of 16 bytes that are moved at once, the last coordinate is the number
/// of these then; empty: it is that of an element.
UOp panel_index(const FragmentPanel& p, const UOps& coordinates, UOp lane = {}) {
  if (!p.matrices) return scratch_index(p.steps(), coordinates);
  const std::span<const UOp> all = coordinates;
  const UOp row = packed_index(p.rows, all.first(p.rows.size()));
  if (lane) return matrix_element(p, row, coordinates.back(), lane);
  const UOp column = packed_index(p.columns, all.subspan(p.rows.size()));
  const int64_t part = p.stride * kMatrixPart / kMatrixRow;
  return matrix_element(p, row, quotient(column, part), rest(column, part));
}

/// Returns where a panel has the first element of a matrix: that of a row whose parts are as they come.
UOp corner_index(const FragmentPanel& p, const UOps& coordinates) {
  const std::span<const UOp> all = coordinates;
  const UOp row = packed_index(p.rows, all.first(p.rows.size())),
            column = packed_index(p.columns, all.subspan(p.rows.size()));
  return fold_add(fold_mul(fold_add(fold_mul(quotient(column, p.stride), p.count), row), p.stride),
                  rest(column, p.stride));
}

/// What the rules know of the kernel besides the node.
struct Lowering {
  KernelContext& names;
  const Target& target;
  UOp lane;                                               ///< the range of the kernel's lanes; empty: there are none
  UOps threads;                                           ///< the ranges of a workgroup, outermost first
  UOps fragments;                                         ///< STAGEs that hold operands of matrix instructions
  UOps matrices{};                                        ///< those that are read from memory by the instructions
  std::unordered_map<UOp, std::pair<UOp, UOp>> filled{};  ///< by STAGE: their memory, and where a step begins
  bool doubled = false;  ///< they have room for two steps of the sum: one is filled while the other is read
  bool ahead = false;    ///< instructions read them, and they have room for kSteps
  UOp beside{};          ///< the innermost range of the grid: groups that differ in it alone are neighbours

  Lowering(UOp sink, KernelContext& n, const Target& t) : names(n), target(t) {
    for (UOp u : sink.toposort()) {
      if (is_shared_product(u)) add_operands(u);
      if (!u.is(Ops::RANGE)) continue;
      const AxisType type = axis_type(u);
      if (type == AxisType::kGlobal && (!beside || nests_before(beside, u))) beside = u;
      if (type == AxisType::kVector && !lane) lane = u;
      if (type == AxisType::kLocal || type == AxisType::kGroupReduce) threads.push_back(u);
    }
    std::sort(threads.begin(), threads.end(), nests_before);
    int64_t bytes = 0;
    for (UOp f : fragments) bytes += panel_of(f).size() * f.dtype().itemsize();
    doubled = 2 * bytes <= target.shared_bytes;
    ahead = !matrices.empty() && matrices.size() == fragments.size() && kSteps * bytes <= target.shared_bytes;
  }
  void add_operands(UOp product) {
    for (UOp operand : product.srcs().first(2))
      for (UOp read : operand.toposort()) {
        if (!reads_stage(read)) continue;
        add_once(fragments, read.src(0).src(0));
        if (is_matrix_in_memory(operand)) add_once(matrices, read.src(0).src(0));
      }
  }
  FragmentPanel panel_of(UOp stage) const { return {stage, contains(matrices, stage)}; }
  int64_t lanes() const { return lane ? constant_size(lane) : 0; }
};

/// Returns the elements from step to step of each dimension, and of the whole.
std::vector<int64_t> packed_steps(const UOps& over, int64_t* size) {
  std::vector<int64_t> steps(over.size());
  *size = 1;
  for (size_t i = over.size(); i-- > 0; *size *= constant_size(over[i])) steps[i] = *size;
  return steps;
}

/// Returns the memory as a fill finds it: within loops all threads must have read what the iteration before has left.
UOp emptied(UOp memory, const UOps& loops) {
  return loops.empty() ? memory : memory.after({UOp::make(Ops::BARRIER, dtypes::void_, loops)});
}
UOp behind_barrier(UOp memory, UOp filled) { return memory.after({UOp::make(Ops::BARRIER, dtypes::void_, {filled})}); }

/// Elements of a tile that a thread fills: number `element`, counted along memory, in `loops`.
struct Share {
  UOp element;
  UOps loops;
  bool beyond;  ///< some threads have nothing to do in the last turn
};
/// `row`: elements that follow each other in memory, where several turns of a thread should be among them, as many as
/// leave eight neighbouring threads together; their addresses differ by small constants then. 0: neighbours are as many
/// as there are threads.
Share share_of_thread(int64_t size, Lowering& c, int64_t row = 0) {
  constexpr int64_t kTogether = 8;
  Share s{UOp::constant(int64_t{0}), {}, false};
  int64_t group = 1;
  for (size_t i = c.threads.size(); i-- > 0; group *= constant_size(c.threads[i]))
    s.element = fold_add(s.element, fold_mul(c.threads[i], group));
  if (size > group) {
    const int64_t turns = (size + group - 1) / group;
    const UOp turn = c.names.range(turns, turns <= kTurns ? AxisType::kUpcast : AxisType::kLoop);
    s.loops.push_back(turn);
    const int64_t along = size % group || group % kTogether ? 1 : std::gcd(turns, row / kTogether);
    if (row && along > 1) {
      const UOp together = UOp::constant(kTogether), beside = UOp::constant(along);
      const UOp line = fold_add(fold_mul(UOp::alu(Ops::FLOORDIV, {s.element, together}), along),
                                UOp::alu(Ops::FLOORMOD, {turn, beside}));
      s.element = fold_add(fold_add(fold_mul(line, kTogether), UOp::alu(Ops::FLOORMOD, {s.element, together})),
                           fold_mul(UOp::alu(Ops::FLOORDIV, {turn, beside}), group * along));
    } else {
      s.element = fold_add(s.element, fold_mul(turn, group));
    }
  }
  s.beyond = size % group != 0;
  return s;
}

/// Returns the coordinates of element n of a tile, counted as memory is walked: along the smallest stride first.
/// `sizes`: of the dimensions `over`.
UOps coordinates_of(UOp n, UOp value, const UOps& over, const std::vector<int64_t>& sizes) {
  std::vector<std::pair<int64_t, size_t>> walk;
  for (size_t i = 0; i < over.size(); i++) walk.emplace_back(stride_along(value, over[i]), i);
  std::stable_sort(walk.begin(), walk.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  UOps at(over.size());
  int64_t passed = 1;
  for (size_t k = walk.size(); k-- > 0;) {
    const size_t i = walk[k].second;
    UOp rest = passed == 1 ? n : UOp::alu(Ops::FLOORDIV, {n, UOp::constant(passed)});
    at[i] = k ? UOp::alu(Ops::FLOORMOD, {rest, UOp::constant(sizes[i])}) : rest;
    passed *= sizes[i];
  }
  return at;
}
std::vector<int64_t> sizes_of(const UOps& over) {
  std::vector<int64_t> out;
  for (UOp x : over) out.push_back(constant_size(x));
  return out;
}

/// Lowers a panel that the threads of a workgroup share. They fill it together, neighbours along memory, and wait for
/// each other.
UOp lower_tile(UOp read, Lowering& c) {
  const StageRead r(read);
  // Threads of a group read adjacent elements: their ranges come last.
  auto rank = [](UOp x) {
    return is_loop(x) ? 0 : axis_type(x) == AxisType::kUnroll ? 1 : axis_type(x) == AxisType::kUpcast ? 2 : 3;
  };
  UOps over = r.over;
  std::sort(over.begin(), over.end(),
            [&](UOp a, UOp b) { return rank(a) != rank(b) ? rank(a) < rank(b) : nests_before(a, b); });
  int64_t size = 0;
  const std::vector<int64_t> steps = packed_steps(over, &size);
  UOp memory = c.names.scratch(r.value.dtype(), size);
  const Share share = share_of_thread(size, c);
  const UOps at = coordinates_of(share.element, r.value, over, sizes_of(over));
  std::vector<std::pair<UOp, UOp>> map;
  for (size_t i = 0; i < over.size(); i++) map.push_back({over[i], at[i]});
  UOp filled = r.value.substitute(map), index = scratch_index(steps, at);
  if (share.beyond) {
    filled = gate_loads(filled, share.element < size);
    index = index.valid(share.element < size);
  }
  UOp loop;  // the innermost one in whose iterations it is filled
  for (UOp x : ranges_of(r.stage))
    if (axis_type(x) == AxisType::kReduce && (!loop || nests_before(loop, x))) loop = x;
  UOp store = emptied(memory, loop ? UOps{loop} : UOps{}).index({index}).store(filled).end(share.loops);
  return behind_barrier(memory, store).index({scratch_index(steps, over)}).load();
}

/// Returns how many elements along the columns of a panel are copied at once: 16 bytes where memory has them side by
/// side and the loads begin at multiples of that, as far as the index says, else 1.
int64_t elements_of_copy(UOp value, const FragmentPanel& p, const Target& target) {
  const int64_t n = 16 / value.dtype().itemsize();
  if (!target.has("copy16") || !value.is(Ops::LOAD) || value.nsrc() != 1 || p.words % n) return 1;
  const AffineIndex index(value.src(0).src(1));
  if (!value.src(0).src(0).is(Ops::PARAM) || !index.rest.empty() || index.offset % n) return 1;
  int64_t step = 1;
  for (size_t i = p.columns.size(); i-- > 0; step *= constant_size(p.columns[i]))
    if (index.coefficient(p.columns[i]) != step) return 1;
  for (const auto& [r, k] : index.terms)
    if (k % n && !contains(p.columns, r)) return 1;
  return n;
}

/// What a panel is filled with, and where.
struct Filling {
  UOp memory;
  UOp offset{};      ///< the element it begins with; empty: the first
  UOp loop{}, at{};  ///< a loop around, and the value it has here; empty: its own
  UOp gate{};        ///< nothing happens where it is off; empty: it never is
};

/// Returns the effect that all threads together fill a panel.
UOp fill_fragments(UOp value, const FragmentPanel& p, const Filling& f, Lowering& c) {
  const UOps over = p.over();
  const int64_t each = elements_of_copy(value, p, c.target), size = p.count * p.words / each;
  Share share = share_of_thread(size, c, p.across && each > 1 ? p.words / each : 0);
  std::vector<int64_t> sizes = sizes_of(over);
  if (each > 1) {  // columns are one dimension, in memory and in the panel: that of the last one
    std::fill(sizes.begin() + static_cast<std::ptrdiff_t>(p.rows.size()), sizes.end(), 1);
    sizes.back() = p.words / each;
  }
  UOps coordinates = coordinates_of(share.element, value, over, sizes);
  UOp index;
  if (each > 1) {
    const UOp lane = c.names.range(each, AxisType::kVector);
    for (size_t i = p.rows.size(); i < over.size(); i++)
      if (sizes[i] == 1) coordinates[i] = UOp::constant(int64_t{0});
    share.loops.push_back(lane);
    index = p.matrices ? panel_index(p, coordinates, lane) : UOp();
    coordinates.back() = fold_add(fold_mul(coordinates.back(), each), lane);
  }
  if (!index) index = panel_index(p, coordinates);
  std::vector<std::pair<UOp, UOp>> map;
  for (size_t i = 0; i < over.size(); i++) map.push_back({over[i], coordinates[i]});
  if (f.at) map.push_back({f.loop, f.at});
  UOp filled = value.substitute(map), gate = f.gate;
  if (f.offset) index = fold_add(index, f.offset);
  if (share.beyond) gate = gate ? gate & (share.element < size) : share.element < size;
  if (gate) {
    filled = gate_loads(filled, gate);
    index = index.valid(gate);
  }
  return f.memory.index({index}).store(filled).end(share.loops);
}

/// Returns the memory of an operand of matrix instructions, as reads find it, and where its step begins. With room for
/// two steps of the sum, the next one is filled while a step is read, and there is one barrier in an iteration.
std::pair<UOp, UOp> filled_fragments(UOp stage, const FragmentPanel& p, Lowering& c) {
  const UOp value = stage.src(0);
  UOps loops;
  for (UOp x : ranges_of(stage))
    if (axis_type(x) == AxisType::kReduce) loops.push_back(x);
  std::sort(loops.begin(), loops.end(), nests_before);
  const int64_t trips = loops.size() == 1 ? constant_size(loops[0]) : 0;
  if (!c.doubled || trips < 2) {
    const UOp memory = c.names.scratch(value.dtype(), p.size()),
              ready = emptied(memory, loops.empty() ? UOps{} : UOps{loops.back()});
    return {behind_barrier(memory, fill_fragments(value, p, {ready}, c)), UOp()};
  }
  const UOp loop = loops[0], memory = c.names.scratch(value.dtype(), 2 * p.size());
  auto half = [&](UOp i) { return fold_mul(UOp::alu(Ops::FLOORMOD, {i, UOp::constant(int64_t{2})}), p.size()); };
  const UOp first = fill_fragments(value, p, {.memory = memory, .loop = loop, .at = UOp::constant(int64_t{0})}, c),
            ready = memory.after({first, UOp::make(Ops::BARRIER, dtypes::void_, {loop})}), next = loop + 1;
  const UOp filled = fill_fragments(
      value, p, {.memory = ready, .offset = half(next), .loop = loop, .at = next, .gate = loop < trips - 1}, c);
  return {memory.after({filled}), half(loop)};
}

/// Returns the loop of a sum that fills panels of matrices some steps ahead; empty: there are too few steps, or several
/// loops.
UOp loop_ahead(const Lowering& c) {
  UOp loop;
  for (UOp stage : c.matrices)
    for (UOp x : ranges_of(stage)) {
      if (axis_type(x) != AxisType::kReduce) continue;
      if (loop && loop != x) return {};
      loop = x;
    }
  return c.ahead && loop && constant_size(loop) >= kSteps ? loop : UOp();
}

UOp after(UOp memory, const UOps& effects) {
  UOps src{memory};
  src.insert(src.end(), effects.begin(), effects.end());
  return effects.empty() ? memory : UOp::make(Ops::AFTER, memory.dtype(), src);
}

constexpr int64_t kAhead = kSteps - 2;  // steps of the sum that are filled before the first one is read

/// A panel of matrices with room for kSteps steps of the sum.
struct PanelAhead {
  UOp stage, memory;
  FragmentPanel form;
  std::optional<BoxedPanel> boxes{};  ///< empty: threads fill it
  UOp begin_of(UOp step) const { return fold_mul(rest(step, kSteps), form.size()); }
};
std::vector<PanelAhead> panels_ahead(Lowering& c) {
  std::vector<PanelAhead> panels;
  for (UOp stage : c.matrices) {
    const FragmentPanel form = c.panel_of(stage);
    panels.push_back({stage, c.names.scratch(stage.dtype(), kSteps * form.size()), form});
  }
  return panels;
}

/// Finds the boxes that fill all panels; false: some can't be filled so. Groups that are neighbours in the grid are a
/// cluster where they have a panel in common: each copies a part of it to all of them. `cluster` gets their number.
bool find_boxes(std::vector<PanelAhead>& panels, const Lowering& c, int64_t* cluster) {
  if (!copies_boxes(c.target)) return false;
  const int64_t beside = c.beside ? constant_size(c.beside) : 1;
  const bool few = beside == kClusterGroups;
  *cluster = 1;
  for (PanelAhead& p : panels) {
    const UOp value = without_ends(p.stage.src(0));
    if (!p.form.loops.empty()) return false;
    if (few && !depends_on(value, c.beside)) p.boxes = BoxedPanel::of(value, p.form.rows, p.form.columns, c.beside);
    if (p.boxes) *cluster = beside;
    else p.boxes = BoxedPanel::of(value, p.form.rows, p.form.columns, {});
    if (!p.boxes) return false;
  }
  return true;
}

/// Fills all panels of matrices by a copy engine, which one thread tells what to copy. Each step has two barriers in
/// memory: one is told when it has come, for which all threads wait, at the other one warps arrive when they have
/// multiplied it (release_room()), for which the thread waits before it is filled again.
void fill_by_boxes(const std::vector<PanelAhead>& panels, UOp loop, int64_t cluster, Lowering& c) {
  int64_t bytes = 0, warps = 1;
  for (const PanelAhead& p : panels) bytes += p.form.size() * p.stage.dtype().itemsize();
  for (UOp t : c.threads) warps *= constant_size(t);
  warps /= gpu_figures(c.target).warp;
  auto barrier = [](const UOps& src, const std::string& form) {
    return UOp::make(Ops::BARRIER, dtypes::void_, src, Arg(form));
  };
  const UOp come = c.names.scratch(dtypes::uint64, kSteps), room = c.names.scratch(dtypes::uint64, kSteps),
            zero = UOp::constant(int64_t{0}), two = UOp::constant(int64_t{2});
  const UOp begun = barrier({come.index({zero})}, str("begin ", kSteps, " ", cluster, " 1")),
            empty = barrier({after(room, {begun}).index({zero})},
                            str("begin ", kSteps, " ", cluster, " ", warps * cluster));
  auto phase = [&](UOp step, int64_t more) {
    return UOp::alu(Ops::FLOORMOD, {fold_add(quotient(step, kSteps), UOp::constant(more)), two});
  };
  auto fill = [&](UOp step, UOps behind, UOp gate) {
    const UOp number = rest(step, kSteps);
    if (gate) behind = {barrier({after(room, behind).index({number}), phase(step, 1), gate}, "room")};
    const UOp told = after(come, behind);
    UOps src{told.index({number})};
    if (gate) src.push_back(gate);
    for (const PanelAhead& p : panels)
      p.boxes->copy({after(p.memory, behind), p.begin_of(step), told, number, gate, {{loop, step}}}, &src);
    return barrier(src, str("expect ", bytes));
  };
  UOps behind{empty};
  for (int64_t i = 0; i < kAhead; i++) behind = {fill(UOp::constant(i), behind, {})};
  const UOp filled = fill(loop + ConstValue(kAhead), behind, loop < constant_size(loop) - kAhead),
            here = barrier({after(come, {filled}).index({rest(loop, kSteps)}), phase(loop, 0)}, "await");
  for (const PanelAhead& p : panels) c.filled.emplace(p.stage, std::pair(p.memory.after({here}), p.begin_of(loop)));
}

/// Fills all panels of matrices, each with kSteps steps of the sum. The copies of a step are a group. Two groups are
/// under way while the instructions of one step run and those of the next are started: what an iteration fills was read
/// two iterations before.
void fill_ahead(UOp loop, Lowering& c) {
  std::vector<PanelAhead> panels = panels_ahead(c);
  int64_t cluster = 1;
  if (find_boxes(panels, c, &cluster)) return fill_by_boxes(panels, loop, cluster, c);
  auto fill = [&](UOp at, const UOps& behind, UOp gate) {
    UOps filled;
    for (const PanelAhead& p : panels)
      filled.push_back(fill_fragments(
          p.stage.src(0), p.form,
          {.memory = after(p.memory, behind), .offset = p.begin_of(at), .loop = loop, .at = at, .gate = gate}, c));
    return end_copies(filled);
  };
  UOps behind;
  for (int64_t i = 0; i < kAhead; i++) behind = {fill(UOp::constant(i), behind, {})};
  behind.push_back(wait_for_copies(loop, kAhead - 1));
  const UOp filled = fill(loop + ConstValue(kAhead), behind, loop < constant_size(loop) - kAhead);
  for (const PanelAhead& p : panels) c.filled.emplace(p.stage, std::pair(p.memory.after({filled}), p.begin_of(loop)));
}

/// Lowers a read of an operand of matrix instructions.
UOp lower_fragments(UOp read, Lowering& c) {
  const StageRead r(read);
  const FragmentPanel p = c.panel_of(r.stage);
  auto known = c.filled.find(r.stage);
  if (const UOp loop = known == c.filled.end() && p.matrices ? loop_ahead(c) : UOp()) {
    fill_ahead(loop, c);
    known = c.filled.find(r.stage);
  }
  if (known == c.filled.end()) known = c.filled.emplace(r.stage, filled_fragments(r.stage, p, c)).first;
  const auto& [memory, offset] = known->second;
  const UOps over = p.over();
  UOps at(over.size());
  for (size_t i = 0; i < over.size(); i++)
    at[i] = r.coordinates[static_cast<size_t>(std::find(r.over.begin(), r.over.end(), over[i]) - r.over.begin())];
  const UOp index = p.matrices ? corner_index(p, at) : scratch_index(p.steps(), at);
  return memory.index({offset ? fold_add(index, offset) : index}).load();
}

/// Lowers partial results of the threads of a workgroup: each stores its own, and all wait for each other.
UOp lower_partial(UOp read, Lowering& c) {
  const StageRead r(read);
  int64_t size = 0;
  const std::vector<int64_t> steps = packed_steps(r.over, &size);
  UOp memory = c.names.scratch(r.value.dtype(), size);
  UOps around;
  for (UOp x : ranges_of(r.stage))
    if (axis_type(x) == AxisType::kReduce || axis_type(x) == AxisType::kLoop) around.push_back(x);
  UOp store = emptied(memory, around).index({scratch_index(steps, r.over)}).store(r.value);
  return behind_barrier(memory, store).index({scratch_index(steps, r.coordinates)}).load();
}

/// Matches a read of a STAGE of one kind.
template <StageKind kind> constexpr auto read_of() {
  return upat::when(upat::node<Ops::LOAD>(),
                    [](UOp u) { return reads_stage(u) && u.src(0).src(0).arg<StageArg>().use == kind; });
}

const PatternMatcher<>& pm_lower_stages() {
  using namespace upat;
  // clang-format off
  static const PatternMatcher<> pm{
      rule(u = read_of<StageKind::kPanel>(),   [](U u, Lowering& c) { return lower_panel(u, c.names, c.lanes()); }),
      rule(u = read_of<StageKind::kWindow>(),  [](U u, Lowering& c) { return lower_window(u, c.names, c.lane); }),
      rule(u = read_of<StageKind::kTile>(),    [](U u, Lowering& c) {
        return contains(c.fragments, u.src(0).src(0)) ? lower_fragments(u, c) : lower_tile(u, c);
      }),
      rule(u = read_of<StageKind::kPartial>(), [](U u, Lowering& c) { return lower_partial(u, c); }),
  };
  // clang-format on
  return pm;
}
}  // namespace

UOp release_room(UOp memory, UOp loop, UOp behind) {
  for (UOp u : memory.toposort()) {
    if (!awaits_room(u)) continue;
    const UOp barriers = storage_of(u.src(0));
    int64_t groups = 1;
    for (UOp b : u.toposort())
      if (begins_barriers(b)) groups = barrier_number(b, 2);
    const UOp before = rest(loop + ConstValue(kSteps - 1), kSteps), any = UOp::constant(int64_t{0}) < loop;
    return UOp::make(Ops::BARRIER, dtypes::void_, {barriers.index({before}), any, behind},
                     Arg(str("release ", groups)));
  }
  return behind;
}

int64_t panel_row_elements(int64_t words, int itemsize) { return words + 16 / itemsize; }

int64_t panel_steps_ahead() { return kSteps; }

bool is_copied_across(UOp load, const UOps& over, const Target& target) {
  const FragmentPanel p(load, over, false);
  return p.across && elements_of_copy(load, p, target) > 1;
}
bool is_copied_in_rows(UOp load, const UOps& over, const Target& target) {
  return elements_of_copy(load, {load, over, true}, target) > 1;
}

UOp lower_stages(UOp sink, KernelContext& names, const Target& target) {
  Lowering c(sink, names, target);
  return graph_rewrite(sink, pm_lower_stages(), c, {.name = "lower stages"});
}

UOp join_barriers(UOp sink) {
  std::vector<std::pair<UOps, UOps>> groups;  // loops around barriers, the barriers
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::BARRIER) || u.src(0).is(Ops::RANGE) || u.arg_kind() != ArgKind::kNone) continue;
    UOps around;
    for (UOp r : ranges_of(u))
      if (is_loop(r) && axis_type(r) == AxisType::kReduce) around.push_back(r);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == around; });
    if (it == groups.end()) groups.push_back({around, {u}});
    else it->second.push_back(u);
  }
  std::vector<std::pair<UOp, UOp>> map;
  for (const auto& [around, barriers] : groups) {
    UOps fills;
    for (UOp b : barriers) fills.insert(fills.end(), b.srcs().begin(), b.srcs().end());
    for (UOp b : barriers)
      if (barriers.size() > 1) map.push_back({b, UOp::make(Ops::BARRIER, dtypes::void_, fills)});
  }
  return sink.substitute(map);
}

}  // namespace tg
