/// \file Signed indices into containers.
#pragma once
#include <cstddef>

namespace tg {

/// Returns v[i] for the signed ids of buffers, states, steps and nodes.
template <class V, class I> decltype(auto) at(V& v, I i) { return v[static_cast<size_t>(i)]; }

}  // namespace tg
