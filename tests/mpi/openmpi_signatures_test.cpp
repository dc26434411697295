/// \file The table of Open MPI's functions against its mpi.h.
#include <gtest/gtest.h>
#include <mpi.h>

#include "abi_check.h"

namespace tg {
namespace {
using Abi = mpi::OpenMpi;
TG_CHECK_MPI(Abi)
#define FUNCTION(name, parameters) \
  static_assert(called_alike(decltype(mpi::Functions<Abi>::name){}, decltype(&MPI_##name){}), #name);
#include "tinygrad/runtime/world/mpi_functions.inc"
#undef FUNCTION

TEST(OpenMpiSignatures, AreThoseOfItsHeader) { SUCCEED() << "compared when this file was compiled"; }
}  // namespace
}  // namespace tg
