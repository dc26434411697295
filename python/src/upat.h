/// \file Patterns over nodes as Python builds them.
#pragma once
#include <functional>
#include <memory>

#include "graph.h"

namespace tg::python {

/// What a node must look like. Immutable once made.
struct Pattern {
  enum class Sources : uint8_t { kAny, kThese, kPermuted, kEach };  // UPat's src: None, tuple, list, one UPat
  OpSet ops;                                                        // empty: any
  std::vector<DType> dtypes;                                        // empty: any
  nb::object arg, tag;                                              // None: any; tag: a tuple of those allowed
  std::string name;                                                 // empty: none
  Sources sources = Sources::kAny;
  std::vector<nb::object> src;  // UPat objects; of kEach one
  bool more = false;            // further sources may follow
  bool any = false;             // one of `src` matches the node itself
};

/// Names bound so far.
class Bindings {
 public:
  UOp find(const std::string& name) const {
    for (const auto& [n, u] : all_)
      if (*n == name) return u;
    return {};
  }
  void push(const std::string& name, UOp u) { all_.emplace_back(&name, u); }
  size_t size() const { return all_.size(); }
  void cut(size_t n) { all_.resize(n); }
  const std::vector<std::pair<const std::string*, UOp>>& all() const { return all_; }

 private:
  std::vector<std::pair<const std::string*, UOp>> all_;
};

const Pattern& pattern_of(nb::handle upat);
/// Calls `found` for every way the node matches, until it says true. Recursion is as deep as the pattern.
bool match(const Pattern& p, UOp u, Bindings& b, const std::function<bool()>& found);

void bind_upat(nb::module_& m);

}  // namespace tg::python
