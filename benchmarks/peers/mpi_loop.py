#!/usr/bin/env python3
"""mpi_loop.py BYTES: a process of a loop of MPI_Allreduce of float32 under mpirun of Open MPI, by ctypes. Rank 0 takes
a sample for each line that it gets, and answers its seconds."""
import ctypes, sys, time
import numpy as np

mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)


def handle(name: str) -> ctypes.c_void_p: return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


WORLD, FLOAT, INT, SUM = (handle(f"ompi_mpi_{n}") for n in ("comm_world", "float", "int", "op_sum"))


def main() -> None:
  count = int(sys.argv[1]) // 4
  mpi.MPI_Init(None, None)
  rank, size = ctypes.c_int(), ctypes.c_int()
  mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
  mpi.MPI_Comm_size(WORLD, ctypes.byref(size))
  x, out = np.full(count, rank.value + 1, np.float32), np.empty(count, np.float32)
  a, b = x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p)
  more = ctypes.c_int(1)
  while True:
    if rank.value == 0: more.value = 1 if sys.stdin.readline() else 0
    mpi.MPI_Bcast(ctypes.byref(more), 1, INT, 0, WORLD)
    if not more.value: break
    mpi.MPI_Barrier(WORLD)
    start = time.perf_counter()
    failed = mpi.MPI_Allreduce(a, b, count, FLOAT, SUM, WORLD)
    seconds = time.perf_counter() - start
    if failed or (out != size.value * (size.value + 1) / 2).any(): sys.exit("MPI_Allreduce: a wrong result")
    if rank.value == 0: print(f"{seconds:.9g}", flush=True)
  mpi.MPI_Finalize()


if __name__ == "__main__": main()
