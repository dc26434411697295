/// \file Operations that are waited for at once.
#pragma once
#include <memory>

#include "tinygrad/runtime/queue.h"
#include "tinygrad/runtime/world/collective.h"

namespace tg::distributed {

/// As start(), where the caller waits for the event before it does anything else: it makes progress itself, and no
/// thread is woken, which would take a processor from those that wait.
EventRef start_awaited(const Collective& c, const void* in, void* out, std::shared_ptr<void> keep = {});

}  // namespace tg::distributed
