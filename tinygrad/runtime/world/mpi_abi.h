/// \file What Open MPI and MPICH have in their headers, as far as it is needed: handles, structures, numbers.
#pragma once
#include <cstddef>

namespace tg::mpi {

/// Open MPI 3 to 5: handles are addresses of objects that the library exports.
struct OpenMpi {
  using H = void*;
  struct S {
    int source, tag, error, cancelled;
    size_t bytes;
  };
  static constexpr const char* name = "Open MPI";
  static constexpr const char* files[] = {"libmpi.so.40", "libmpi.so.41", "libmpi.so"};
  static constexpr const char *world = "ompi_mpi_comm_world", *byte = "ompi_mpi_byte",
                              *errors_return = "ompi_mpi_errors_return";
  static constexpr int any_source = -1, tag_limit = 0, serialized = 2, multiple = 3;
};

/// MPICH 3 and 4, and what shares its binary interface (Intel MPI, MVAPICH, Cray MPICH): handles are numbers.
struct Mpich {
  using H = int;
  struct S {
    int count_low, count_high, source, tag, error;
  };
  static constexpr const char* name = "MPICH";
  static constexpr const char* files[] = {"libmpich.so.12", "libmpi.so.12"};
  static constexpr H world = 0x44000000, byte = 0x4c00010d, errors_return = 0x54000001;
  static constexpr int any_source = -2, tag_limit = 0x64400001, serialized = 2, multiple = 3;
};

/// Functions of an implementation, by the names MPI gives them.
template <class Abi> struct Functions {
  using H = typename Abi::H;
  using S = typename Abi::S;
#define FUNCTION(name, parameters) int(*name) parameters = nullptr;
#include "tinygrad/runtime/world/mpi_functions.inc"
#undef FUNCTION
};

}  // namespace tg::mpi
