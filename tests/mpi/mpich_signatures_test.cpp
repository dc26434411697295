/// \file The table of MPICH's functions against its mpi.h.
#include <gtest/gtest.h>
#include <mpi.h>

#include "abi_check.h"

namespace tg {
namespace {
using Abi = mpi::Mpich;
TG_CHECK_MPI(Abi)
#define FUNCTION(name, parameters) \
  static_assert(called_alike(decltype(mpi::Functions<Abi>::name){}, decltype(&MPI_##name){}), #name);
#include "tinygrad/runtime/world/mpi_functions.inc"
#undef FUNCTION
static_assert(MPI_COMM_WORLD == Abi::world && MPI_BYTE == Abi::byte && MPI_ERRORS_RETURN == Abi::errors_return);

TEST(MpichSignatures, AreThoseOfItsHeader) { SUCCEED() << "compared when this file was compiled"; }
}  // namespace
}  // namespace tg
