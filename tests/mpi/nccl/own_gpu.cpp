/// \file Gives each process a GPU of its own before the program begins, as launchers of clusters do. NCCL_TEST says
/// what is otherwise: "shared": all have one GPU; "hosts": one, but each on a machine of its own, as NCCL is told;
/// "absent": rank 1 has no NCCL; "insists": rank 1 alone takes nothing else; "mixed": rank 1 has no GPU at all.
#include <cstdlib>
#include <string>

namespace {
const bool prepared = [] {
  const char *open_mpi = std::getenv("OMPI_COMM_WORLD_RANK"), *mpich = std::getenv("PMI_RANK"),
             *given = std::getenv("NCCL_TEST");
  const std::string rank = open_mpi ? open_mpi : mpich ? mpich : "0", how = given ? given : "";
  setenv("CUDA_VISIBLE_DEVICES", how == "shared" || how == "hosts" ? "0" : rank.c_str(), 1);
  if (how == "hosts") setenv("NCCL_HOSTID", rank.c_str(), 1);
  if (how == "absent" && rank == "1") setenv("NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  if (how == "insists" && rank == "1") setenv("NCCL", "2", 1);
  if (how == "mixed" && rank == "1") setenv("DEV", "CPU", 1);
  return true;
}();
}  // namespace
