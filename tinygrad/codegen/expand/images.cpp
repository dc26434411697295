/// \file Which parameters become images, their sizes, and the coordinates of their pixels.
#include "tinygrad/codegen/expand/images.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/opt/pixels.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr size_t kNumbers = kPixelNumbers;

/// Returns the elements of a parameter; 0 where they are not known.
int64_t elements_of(UOp param) {
  const UOp n = param.nsrc() && param.src(0).nsrc() == 1 ? param.src(0).src(0) : UOp();
  return n && n.is_const() ? static_cast<int64_t>(n.const_int()) : 0;
}

/// Accesses of the four numbers of one pixel.
struct Pixel {
  UOp number, gate, alt;  ///< of the pixel, counted through all rows; gate and alt are empty where there are none
  UOp parts[kNumbers]{};

  bool is_whole() const {
    return std::all_of(std::begin(parts), std::end(parts), [](UOp p) { return bool(p); });
  }
};

/// Where a pixel is, and what is left of its gate.
struct Coordinates {
  UOp y, x, gate;
  size_t dropped = 0;  ///< clauses of the gate that the border of the image stands for
};

struct Candidate {
  UOp param;
  bool possible = true, loaded = false, stored = false;
  std::vector<Pixel> pixels;
  ImageSize size;
};

/// Returns bounds of a coordinate wherever a clause does not hold; empty where it always holds.
std::optional<Bounds> bounds_without(UOp coordinate, const Clause& clause) {
  const Bounds all = bounds_of(clause.expr);
  const Bounds off = clause.upper ? Bounds{clause.bound + 1, all.hi} : Bounds{all.lo, clause.bound - 1};
  if (off.lo > off.hi) return std::nullopt;
  const UOps parts = split_add_terms(clause.expr);
  const auto zero_only = [](UOp p) { return p.in(groups::kIrreducible) && !p.is_const() && vmin(p) == 0; };
  if (off.hi == 0 && std::all_of(parts.begin(), parts.end(), zero_only)) {  // all of a sum that is 0
    std::vector<std::pair<UOp, UOp>> zeros;
    for (UOp p : parts) zeros.emplace_back(p, p.const_like(int128{0}));
    return bounds_of(simplify(coordinate.substitute(zeros)));
  }
  return bounds_within(coordinate, clause.expr, off);
}
/// Whether a coordinate is outside of [0, n) wherever a clause does not hold.
bool is_outside(UOp coordinate, int64_t n, const Clause& clause) {
  const std::optional<Bounds> b = bounds_without(coordinate, clause);
  return !b || b->hi < 0 || b->lo >= n;
}

Coordinates coordinates_of(const Pixel& p, const ImageSize& size) {
  Coordinates c{UOp::constant(int64_t{0}), p.number, p.gate};
  if (size.height > 1) {
    const UOp width = p.number.const_like(size.width);
    c.y = simplify(p.number / width);
    c.x = simplify(p.number % width);
  }
  if (!p.gate) return c;
  c.y = uop_given_valid(p.gate, c.y);
  c.x = uop_given_valid(p.gate, c.x);
  if (!p.alt || !p.alt.is_const() || p.alt.const_value().as_double() != 0) return c;
  UOps kept;
  for (UOp clause : split_terms(p.gate, Ops::AND)) {
    const auto parsed = parse_clause(clause);
    const bool needless =
        parsed && parsed->exact && (is_outside(c.y, size.height, *parsed) || is_outside(c.x, size.width, *parsed));
    if (needless) c.dropped++;
    else kept.push_back(clause);
  }
  if (c.dropped) c.gate = kept.empty() ? UOp() : join_terms(Ops::AND, kept, dtypes::bool_);
  return c;
}

/// Finds candidates among the parameters of a kernel, and rewrites their accesses.
class ImageUse {
 public:
  ImageUse(UOp sink, const ImageLimits& limits) : sink_(sink), limits_(limits) {}

  UOp run() {
    const UOps order = sink_.toposort();
    for (UOp u : order)
      if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal) add_param(u);
    for (UOp u : order) {
      for (UOp s : u.srcs())
        if (s.is(Ops::STORE)) users_[s].push_back(u);
      if (u.is(Ops::INDEX)) continue;
      if (u.in(Ops::LOAD | Ops::STORE)) add_access(u);
      else  // anything else that knows a parameter
        for (UOp s : u.srcs())
          if (Candidate* c = find(storage_of(s))) c->possible = false;
    }
    for (Candidate& c : candidates_)
      if (qualifies(c)) choose_size(c);
    std::vector<std::pair<UOp, UOp>> stores, loads;
    for (const Candidate& c : candidates_)
      if (c.size.width) rewrite(c, c.stored ? stores : loads);
    if (stores.empty() && loads.empty()) return sink_;
    UOp out = sink_;
    if (!stores.empty()) out = rebuild(out.substitute(stores), without_repetition);
    if (loads.empty()) return out;
    add_casts(out, loads);
    return out.substitute(loads);
  }

 private:
  Candidate* find(UOp storage) {
    const auto it = std::find_if(candidates_.begin(), candidates_.end(), [&](auto& c) { return c.param == storage; });
    return it == candidates_.end() ? nullptr : &*it;
  }
  void add_param(UOp param) {
    Candidate c{param, fits_image(param.dtype(), elements_of(param), limits_), false, false, {}, {}};
    for (Candidate& o : candidates_)  // two views of one buffer
      if (o.param.arg<ParamArg>().slot == param.arg<ParamArg>().slot) c.possible = o.possible = false;
    candidates_.push_back(std::move(c));
  }
  void add_access(UOp u) {
    const MemRef m{u};
    Candidate* c = find(storage_of(m.at()));
    if (!c || !c->possible) return;
    (m.value() == u ? c->loaded : c->stored) = true;
    c->possible = m.buffer() == c->param && add_part(*c, m);
  }
  /// Adds an access to those of its pixel. Returns false where it is not by such an index.
  static bool add_part(Candidate& c, MemRef m) {
    AffineSum at(m.index());
    const int128 part = (at.c % 4 + 4) % 4;
    at.c -= part;
    if (m.at().dtype() != c.param.dtype() || lane_of(m.index())) return false;
    for (UOp u : m.index().toposort())
      if (u.is(Ops::LOAD)) return false;
    const UOp number = divides(at.build(), kNumbers).value_or(UOp());
    if (!number) return false;
    auto it = std::find_if(c.pixels.begin(), c.pixels.end(), [&](const Pixel& p) {
      return p.number == number && p.gate == m.gate() && p.alt == m.alt();
    });
    if (it == c.pixels.end()) it = c.pixels.insert(it, Pixel{number, m.gate(), m.alt()});
    UOp& place = it->parts[static_cast<size_t>(part)];
    if (place) return false;  // stored twice
    place = m.op;
    return true;
  }
  bool qualifies(const Candidate& c) const {
    return c.possible && c.loaded != c.stored && std::all_of(c.pixels.begin(), c.pixels.end(), [&](const Pixel& p) {
             return p.is_whole() && (c.loaded || are_stored_together(p));
           });
  }
  bool are_stored_together(const Pixel& p) const {
    const UOps& user = users_.at(p.parts[0]);
    return user.size() == 1 &&
           std::all_of(std::begin(p.parts), std::end(p.parts), [&](UOp s) { return users_.at(s) == user; });
  }

  /// Tries rows that are as long as the step of a summand of an index, and the longest one.
  void choose_size(Candidate& c) const {
    const int64_t pixels = elements_of(c.param) / static_cast<int64_t>(kNumbers);
    std::vector<int64_t> widths;
    for (const Pixel& p : c.pixels)
      for (const Term& t : AffineSum(p.number).terms) {
        const int128 step = t.coef < 0 ? -t.coef : t.coef;
        if (step <= limits_.width && is_image_width(static_cast<int64_t>(step), pixels, limits_))
          add_once(widths, static_cast<int64_t>(step));
      }
    add_once(widths, widest_image(pixels, limits_));
    std::sort(widths.begin(), widths.end(), std::greater<>());  // of equally good ones the longest
    const auto gated = std::find_if(c.pixels.begin(), c.pixels.end(), [](const Pixel& p) { return bool(p.gate); });
    const Pixel& sample = gated == c.pixels.end() ? c.pixels.front() : *gated;
    size_t dropped = 0, nodes = SIZE_MAX;
    for (int64_t w : widths) {
      const ImageSize size{w, pixels / w, c.param.dtype().itemsize()};
      const Coordinates at = coordinates_of(sample, size);
      const size_t n = at.y.toposort().size() + at.x.toposort().size();
      if (at.dropped < dropped || (at.dropped == dropped && n >= nodes)) continue;
      dropped = at.dropped;
      nodes = n;
      c.size = size;
    }
  }

  static void rewrite(const Candidate& c, std::vector<std::pair<UOp, UOp>>& to) {
    const UOp image =
        UOp::make(Ops::PARAM, c.param.dtype(),
                  {UOp::shape_stack(std::vector<int64_t>{c.size.height, c.size.width, kNumbers})}, c.param.arg());
    for (const Pixel& p : c.pixels) {
      Coordinates at = coordinates_of(p, c.size);
      if (c.stored) at.gate = p.gate;  // nothing is written outside
      const UOp index = UOp::make(Ops::INDEX, c.param.dtype(), {image, at.y, at.x});
      const UOp access = c.stored ? pixel_store(p, index) : pixel_load(p, index, at.gate);
      for (size_t i = 0; i < kNumbers; i++) {
        UOp out = access;
        if (c.loaded) {
          out = UOp::make(Ops::GETTUPLE, dtypes::float32, {access}, Arg(static_cast<int64_t>(i)));
          if (c.param.dtype() != dtypes::float32) out = out.cast(c.param.dtype());
        }
        to.emplace_back(p.parts[i], out);
      }
    }
  }
  static UOp pixel_load(const Pixel& p, UOp index, UOp gate) {
    if (!gate) return UOp::make(Ops::LOAD, dtypes::float32, {index});
    return UOp::make(Ops::LOAD, dtypes::float32, {index, p.alt.cast(dtypes::float32), gate});
  }
  static UOp pixel_store(const Pixel& p, UOp index) {
    UOps src{index};
    for (UOp part : p.parts) {
      const UOp v = part.src(1);
      const bool narrowed = v.is(Ops::CAST) && v.dtype() == dtypes::float16 && v.src(0).dtype() == dtypes::float32;
      src.push_back(narrowed ? v.src(0) : v.cast(dtypes::float32));
    }
    if (p.gate) src.push_back(p.gate);
    return UOp::make(Ops::STORE, dtypes::void_, src);
  }
  static UOp without_repetition(UOp u) {
    if (!u.is(Ops::GROUP)) return u;
    UOps src;
    for (UOp s : u.srcs()) add_once(src, s);
    return src.size() == u.nsrc() ? u : u.with_srcs(src);
  }
  /// float16 numbers that are read as float32 need not be rounded to be float32 again.
  static void add_casts(UOp sink, std::vector<std::pair<UOp, UOp>>& loads) {
    const size_t n = loads.size();
    for (UOp u : sink.toposort()) {
      if (!u.is(Ops::CAST) || u.dtype() != dtypes::float32) continue;
      for (size_t i = 0; i < n; i++)
        if (loads[i].first == u.src(0)) loads.emplace_back(u, loads[i].second.src(0));
    }
  }

  UOp sink_;
  const ImageLimits& limits_;
  std::vector<Candidate> candidates_;
  std::unordered_map<UOp, UOps> users_;  // of stores
};
}  // namespace

UOp use_images(UOp sink, const ImageLimits& limits) { return ImageUse(sink, limits).run(); }

}  // namespace tg
