/// \file The linearizer: a depth-first walk in which a loop's END counts everything used inside the loop, but computed
/// outside, among its sources.
#include "tinygrad/codegen/linear/linearize.h"

#include <algorithm>

#include "tinygrad/target/tensor_core.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {
constexpr size_t kLongSum = 16;     // terms whose factors do not fit in registers
constexpr size_t kSideBySide = 16;  // registers that are reduced at once
constexpr OpSet kFirst = groups::kDefines | Ops::CONST | Ops::STACK;

/// True for a product of matrices that the threads of a warp hold in registers.
bool multiplies_registers(UOp u) {
  if (!u.is(Ops::WMMA)) return false;
  const TensorCore* core = find_tensor_core(u.arg<std::string>());
  return core && core->threads > 1 && !core->reads_memory();
}

struct Loop {
  UOp range, end;
  int depth = 0;  // 1: outermost
  int parent = -1;
  UOps outside;  // values of enclosing blocks that are used inside
  bool known = false;
};

class Linearizer {
 public:
  explicit Linearizer(UOp sink) : sink_(sink), order_(sink.toposort()) {
    uint32_t limit = 0;
    for (UOp u : order_) limit = std::max(limit, u.id() + 1);
    block_.assign(limit, -1);
    last_use_.assign(limit, -1);
    loop_of_.assign(limit, -1);
    emitted_.assign(limit, false);
    mark_.assign(limit, 0);
  }

  UOps run() {
    for (UOp u : order_)
      if (is_loop(u)) {
        loop_of_[u.id()] = static_cast<int>(loops_.size());
        loops_.push_back({u, {}, 0, -1, {}, false});
      }
    for (UOp u : order_) {
      if (!u.is(Ops::END)) continue;
      for (size_t i = 1; i < u.nsrc(); i++) {
        Loop& l = loops_[static_cast<size_t>(loop_of_[u.src(i).id()])];
        TG_ASSERT(!l.end, "range ", l.range, " ends twice");
        l.end = u;
      }
    }
    for (size_t i = 0; i < loops_.size(); i++) place(loops_[i].range);
    for (UOp u : order_) block_[u.id()] = innermost(u);
    for (UOp u : order_) {
      if (u.is(Ops::END) || u.is(Ops::SINK)) continue;
      for (UOp s : u.srcs()) use(s, block_[u.id()]);
    }
    // An END is outside of the loop, its effect inside.
    for (Loop& l : loops_)
      for (UOp s : l.end.srcs())
        if (s != l.range) use(s, loop_of_[l.range.id()]);

    for (UOp u : order_)
      if (u.in(kFirst) && ranges_of(u).empty()) emit(u);
    for (UOp s : sink_.srcs()) walk(s);
    return std::move(out_);
  }

 private:
  /// Finds what encloses a loop, after what encloses those loops.
  void place(UOp range) {
    UOps around;
    size_t steps = 0;
    auto enclosing = [&](UOp r) -> std::span<const UOp> {
      TG_ASSERT(loop(r).end, "range ", r, " has no END");
      TG_ASSERT(++steps <= 2 * loops_.size() * loops_.size() + 2, "cyclic loop nesting at ", r);
      around = loops_of(loop(r).end);
      return around;
    };
    tg::walk(range, [&](UOp r) { return loop(r).known; }, enclosing, [&](UOp r) { nest(loop(r)); });
  }
  void nest(Loop& l) {
    l.parent = innermost(l.end);
    l.depth = l.parent < 0 ? 1 : loops_[static_cast<size_t>(l.parent)].depth + 1;
    l.known = true;
    // Everything around must be one chain.
    for (UOp r : loops_of(l.end)) {
      int p = l.parent;
      while (p >= 0 && p != loop_of_[r.id()]) p = loops_[static_cast<size_t>(p)].parent;
      TG_ASSERT(p >= 0, "loop ", l.range, " is inside of two loops that do not nest, one is ", r);
    }
  }
  Loop& loop(UOp r) { return loops_[static_cast<size_t>(loop_of_[r.id()])]; }
  int innermost(UOp u) {
    int best = -1;
    for (UOp r : ranges_of(u)) {
      if (!is_loop(r)) continue;
      int l = loop_of_[r.id()];
      TG_ASSERT(l >= 0, "range ", r, " is not in the program");
      if (best < 0 || loops_[static_cast<size_t>(l)].depth > loops_[static_cast<size_t>(best)].depth) best = l;
    }
    return best;
  }
  /// Notes that block `b` uses s: every loop between b and the block of s needs it before it begins.
  void use(UOp s, int b) {
    int home = block_[s.id()];
    if (last_use_[s.id()] == b || s.in(kFirst)) return;
    last_use_[s.id()] = b;
    for (; b != home; b = loops_[static_cast<size_t>(b)].parent) {
      TG_ASSERT(b >= 0, "a loop's value is used outside of it: ", s);
      UOps& o = loops_[static_cast<size_t>(b)].outside;
      if (o.empty() || o.back() != s) o.push_back(s);
    }
  }
  void emit(UOp u) {
    if (emitted_[u.id()]) return;
    emitted_[u.id()] = true;
    if (!u.is(Ops::GROUP) && !u.is(Ops::NOOP)) out_.push_back(u);
  }
  /// Appends the additions of which a stored sum consists, in their order, each once. What is added is none of them.
  void additions(UOp root, UOps& out) {
    const auto terms = [](UOp u) -> std::span<const UOp> {
      if (u.is(Ops::REDUCE) || u.is(Ops::CAST)) return u.srcs().first(1);
      if (u.is(Ops::GETTUPLE) && multiplies_registers(u.src(0))) return u.srcs().first(1);
      if (u.is(Ops::ADD) || multiplies_registers(u)) return u.srcs();
      return u.is(Ops::MULACC) ? u.srcs().subspan(2) : std::span<const UOp>();
    };
    epoch_++;
    const auto known = [&](UOp u) { return mark_[u.id()] == epoch_; };
    tg::walk(root, known, terms, [&](UOp u) {
      mark_[u.id()] = epoch_;
      if (u.in(Ops::ADD | Ops::MULACC | Ops::MUL) || multiplies_registers(u)) out.push_back(u);
    });
  }
  /// Lists long sums that are stored side by side term by term: a factor that they share is computed, used by all and
  /// forgotten, where sum after sum would keep all factors.
  void walk_side_by_side(UOp group) {
    std::vector<UOps> sums;
    int block = -1;
    for (UOp s : group.srcs()) {
      if (s.is(Ops::CUSTOM)) continue;
      if (sums.empty()) block = block_[s.id()];
      if (!s.is(Ops::STORE) || block_[s.id()] != block) return;
      UOps& terms = sums.emplace_back();
      additions(s.src(1), terms);
      if (terms.empty() || terms.size() < (multiplies_registers(terms[0]) ? 2 : kLongSum)) return;
      if (terms.size() != sums[0].size()) return;
    }
    for (size_t i = 0; !sums.empty() && i < sums[0].size(); i++)
      for (const UOps& sum : sums)
        if (block_[sum[i].id()] == block) walk(sum[i]);
  }
  /// Appends the horizontal reductions in `block` that a value is computed from; none twice while the epoch lasts.
  void horizontals(UOp root, int block, UOps& out) {
    UOps stack{root};
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      if (mark_[u.id()] == epoch_ || block_[u.id()] != block || emitted_[u.id()]) continue;
      mark_[u.id()] = epoch_;
      if (u.is(Ops::REDUCE)) out.push_back(u);
      else if (u.in(groups::kElementwise)) stack.insert(stack.end(), u.srcs().rbegin(), u.srcs().rend());
    }
  }
  /// Lists the horizontal reductions of values that are stored together next to one another: renderers compute several
  /// at once.
  void walk_horizontals(UOp group) {
    UOps all;
    epoch_++;
    for (UOp s : group.srcs())
      if (s.is(Ops::STORE)) horizontals(s.src(1), block_[s.id()], all);
    for (size_t at = 0; at < all.size(); at += kSideBySide) {
      const size_t end = std::min(all.size(), at + kSideBySide);
      for (size_t i = at; i < end; i++) walk(all[i].src(0));
      for (size_t i = at; i < end; i++) walk(all[i]);
    }
  }
  void walk(UOp root) {
    struct Frame {
      UOp node;
      size_t next;
    };
    std::vector<Frame> stack{{root, 0}};
    while (!stack.empty()) {
      auto& [u, next] = stack.back();
      if (next == 0 && emitted_[u.id()]) {
        stack.pop_back();
        continue;
      }
      if (next == 0 && u.is(Ops::GROUP) && u.nsrc() > 1) {
        walk_side_by_side(u);
        walk_horizontals(u);
      }
      UOp child;
      if (u.is(Ops::END)) {
        // The loop's outside values, its RANGE, the effect.
        const Loop& l = loop(u.src(1));
        if (next < l.outside.size()) child = l.outside[next];
        else if (next == l.outside.size()) child = l.range;
        else if (next == l.outside.size() + 1) child = u.src(0);
      } else if (next < u.nsrc()) {
        child = u.src(next);
      }
      if (!child) {
        emit(u);
        stack.pop_back();
        continue;
      }
      next++;
      if (!emitted_[child.id()]) stack.push_back({child, 0});
    }
  }

  UOp sink_;
  UOps order_, out_;
  std::vector<Loop> loops_;
  std::vector<int> block_, last_use_, loop_of_;
  std::vector<bool> emitted_;
  std::vector<uint32_t> mark_;  // nodes seen in this epoch
  uint32_t epoch_ = 0;
};
}  // namespace

UOps linearize(UOp sink) { return Linearizer(sink).run(); }

}  // namespace tg
