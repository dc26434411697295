#!/usr/bin/env python3
"""mpi_loop.py BYTES REPEATS: a process of a loop of MPI_Allreduce of float32 under Open MPI, by ctypes. Rank 0
takes a sample for each line that it gets, and answers the mean seconds of REPEATS in a row."""
import ctypes, sys, time
import numpy as np

mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)


def handle(name: str) -> ctypes.c_void_p: return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


IGNORE = ctypes.c_void_p(0)
WORLD, FLOAT, INT, SUM = (handle(f"ompi_mpi_{n}") for n in ("comm_world", "float", "int", "op_sum"))


def told(more: ctypes.c_int, rank: int, size: int) -> bool:
  """What rank 0 reads, in all; the others look for it now and then, so that they leave the processors to other
  programs meanwhile."""
  if rank == 0:
    more.value = 1 if sys.stdin.readline() else 0
    for to in range(1, size): mpi.MPI_Send(ctypes.byref(more), 1, INT, to, 0, WORLD)
    return bool(more.value)
  there = ctypes.c_int()
  while not there.value:
    time.sleep(1e-3)
    mpi.MPI_Iprobe(0, 0, WORLD, ctypes.byref(there), IGNORE)
  mpi.MPI_Recv(ctypes.byref(more), 1, INT, 0, 0, WORLD, IGNORE)
  return bool(more.value)


def main() -> None:
  count, repeats = int(sys.argv[1]) // 4, int(sys.argv[2])
  mpi.MPI_Init(None, None)
  rank, size = ctypes.c_int(), ctypes.c_int()
  mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
  mpi.MPI_Comm_size(WORLD, ctypes.byref(size))
  x, out = np.full(count, rank.value + 1, np.float32), np.empty(count, np.float32)
  a, b = x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p)
  more = ctypes.c_int(1)
  while told(more, rank.value, size.value):
    mpi.MPI_Barrier(WORLD)
    start = time.perf_counter()
    failed = any([mpi.MPI_Allreduce(a, b, count, FLOAT, SUM, WORLD) for _ in range(repeats)])
    seconds = (time.perf_counter() - start) / repeats
    if failed or (out != size.value * (size.value + 1) / 2).any(): sys.exit("MPI_Allreduce: a wrong result")
    if rank.value == 0: print(f"{seconds:.9g}", flush=True)
  mpi.MPI_Finalize()


if __name__ == "__main__": main()
