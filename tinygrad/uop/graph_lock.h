/// \file How a thread waits for the lock of the global graph, and whether it holds it.
#pragma once
#include <mutex>

namespace tg {

/// Called where another thread holds the global graph; returns with the lock taken. A host language with a lock of its
/// own gives that up meanwhile, so that whoever holds the graph may take it. Set once, before threads are made; by
/// default the thread just waits.
void set_graph_wait(void (*wait)(std::recursive_mutex& lock));
/// Takes any other lock that a thread may hold for long in the same way.
void wait_for(std::recursive_mutex& lock);

/// GraphScopes this thread has open.
int graph_scope_depth();

}  // namespace tg
