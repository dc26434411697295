#!/bin/sh
# under_mpich.sh PROGRAM...: runs a process of mpirun -disable-auto-cleanup of MPICH. When a signal ends a process that
# it started itself, that mpirun kills the others before they can say why they end; here it is this shell's.
trap '' USR1  # tells of a death; ends who does not ignore it
"$@"
exit $?
