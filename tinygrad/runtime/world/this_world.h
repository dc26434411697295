/// \file The progress of the world that this process is in, for what is part of that world.
#pragma once

namespace tg {
class WorldProgress;
struct Collective;
}  // namespace tg

namespace tg::distributed {

/// Returns null in a world of one.
WorldProgress* progress_of_world();
/// Throws ValueError or DTypeError for an operation that cannot be begun.
void check(const Collective& c);

}  // namespace tg::distributed
