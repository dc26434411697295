/// \file How a thread waits for the lock of the global graph.
#pragma once
#include <mutex>

namespace tg {

/// Called where another thread holds the global graph; returns with the lock taken. A host language with a lock of its own gives that up meanwhile,
/// so that whoever holds the graph may take it. Set once, before threads are made; by default the thread just waits.
void set_graph_wait(void (*wait)(std::recursive_mutex& lock));

}  // namespace tg
