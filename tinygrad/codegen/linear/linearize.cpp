/// \file The linearizer: a depth-first walk in which a loop's END counts everything used inside the loop, but computed
/// outside, among its sources.
#include "tinygrad/codegen/linear/linearize.h"

#include <algorithm>

#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {
constexpr OpSet kFirst = groups::kDefines | Ops::CONST | Ops::STACK;

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
};
}  // namespace

UOps linearize(UOp sink) { return Linearizer(sink).run(); }

}  // namespace tg
