/// \file Whether a launcher (mpirun, srun) started this process, and what it says of the world.
#pragma once
#include <string>

namespace tg {

struct Launcher {
  std::string name;     ///< "mpirun (Open MPI)", ...; empty: none
  std::string library;  ///< the implementation it belongs to: "openmpi", "mpich"; empty: either
  int size = 1;
};

/// Reads the launcher's environment. A batch system around a program that it did not start by itself does not count.
Launcher find_launcher();

}  // namespace tg
