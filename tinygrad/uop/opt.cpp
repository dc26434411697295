/// \file Names, text and bytes of optimisations.
#include "tinygrad/uop/opt.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "tinygrad/base/binary.h"

namespace tg {
namespace {
constexpr const char* kNames[] = {"TC",     "UPCAST", "UNROLL",   "VECTOR",      "LOCAL",
                                  "THREAD", "GROUP",  "GROUPTOP", "NOLOCALS",    "PADTO",
                                  "SWAP",   "SPLIT",  "STAGE",    "STAGEWINDOW", "PACKED4"};
static_assert(std::size(kNames) == kOptOpCount);
}  // namespace

const char* name_of(OptOp op) { return kNames[static_cast<int>(op)]; }
std::ostream& operator<<(std::ostream& os, const Opt& o) {
  return os << name_of(o.op) << '(' << o.axis << ", " << o.arg << ')';
}

std::string to_text(const Opts& opts) {
  std::string s;
  for (const Opt& o : opts) s += str(s.empty() ? "" : " ", o);
  return s;
}
std::optional<Opts> opts_from_text(std::string_view text) {
  Opts opts;
  std::istringstream in{std::string(text)};
  for (std::string name; std::getline(in >> std::ws, name, '(');) {
    Opt o{OptOp::kTc};
    char comma = 0, close = 0;
    const auto* known = std::find(std::begin(kNames), std::end(kNames), name);
    if (known == std::end(kNames) || !(in >> o.axis >> comma >> o.arg >> close) || comma != ',' || close != ')')
      return {};
    o.op = static_cast<OptOp>(known - std::begin(kNames));
    opts.push_back(o);
  }
  return opts;
}

void add_to_hash(Hash128& h, const Opts& opts) {
  h.add(opts.size());
  for (const Opt& o : opts) {
    h.add(static_cast<uint64_t>(o.op));
    h.add(static_cast<uint64_t>(o.axis));
    h.add(static_cast<uint64_t>(o.arg));
  }
}

void write_opts(ByteWriter& w, const Opts& opts) {
  w.size(opts.size());
  for (const Opt& o : opts) {
    w.value(static_cast<uint8_t>(o.op));
    w.value(o.axis);
    w.value(o.arg);
  }
}
Opts read_opts(ByteReader& r) {
  Opts opts(r.size(13));
  for (Opt& o : opts) {
    o.op = static_cast<OptOp>(r.below<uint8_t>(kOptOpCount, "an unknown optimisation"));
    o.axis = r.value<int32_t>();
    o.arg = r.value<int64_t>();
  }
  return opts;
}

}  // namespace tg
