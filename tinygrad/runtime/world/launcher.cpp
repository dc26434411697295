/// \file The environment variables of launchers.
#include "tinygrad/runtime/world/launcher.h"

#include <cstdlib>
#include <iterator>

namespace tg {
namespace {
struct Variables {
  const char *size, *rank;  ///< both are set by the launcher
  const char *name, *library;
};
// srun sets SLURM_PROCID in its steps alone; with PMI or PMIx it sets theirs as well, which come first.
constexpr Variables kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun of Open MPI", "openmpi"},
    {"PMI_SIZE", "PMI_RANK", "mpirun of MPICH", "mpich"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpirun of MVAPICH", "mpich"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun", ""},
};
}  // namespace

Launcher find_launcher() {
  for (const Variables& v : kLaunchers) {
    const char *size = std::getenv(v.size), *rank = std::getenv(v.rank);
    if (!size || !rank) continue;
    const int n = std::atoi(size);
    if (n > 0) return {v.name, v.library, n};
  }
  return {};
}

}  // namespace tg
