#!/usr/bin/env python3
"""shaped.py RATE MACHINES PROGRAM...: runs a program under mpirun of Open MPI on so many "machines" ("4"), or with
several processes on each ("2x2": two on each of two). A machine is a network namespace of its own, on a bridge, with
links of this rate ("1gbit") in each direction, as machines of a cluster have them: messages go through TCP. Needs root
and iproute2. The standard input is that of rank 0."""
import os, pathlib, subprocess, sys, tempfile

PREFIX = f"tg{os.getpid() % 10000}"
NET = f"10.{200 + os.getpid() % 50}.0."

def sh(*command): subprocess.run(command, check=True)

def set_up(rate, machines):
  sh("ip", "link", "add", PREFIX + "b", "type", "bridge")
  sh("ip", "link", "set", PREFIX + "b", "up")
  for r in range(machines):
    space, outer, inner = f"{PREFIX}n{r}", f"{PREFIX}o{r}", f"{PREFIX}i{r}"
    sh("ip", "netns", "add", space)
    sh("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
    sh("ip", "link", "set", outer, "master", PREFIX + "b", "up")
    inside = ("ip", "netns", "exec", space)
    sh(*inside, "ip", "link", "set", "lo", "up")
    sh(*inside, "ip", "link", "set", inner, "name", "tg0")
    sh(*inside, "ip", "addr", "add", f"{NET}{r + 1}/24", "dev", "tg0")
    sh(*inside, "ip", "link", "set", "tg0", "up")
    sh(*inside, "tc", "qdisc", "add", "dev", "tg0", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")

def tear_down(machines):
  for r in range(machines): subprocess.run(["ip", "netns", "del", f"{PREFIX}n{r}"], check=False)
  subprocess.run(["ip", "link", "del", PREFIX + "b"], check=False)

def main(rate, machines, each, program):
  """mpirun reaches a "machine" by a program that enters its namespace, under a host name of its own."""
  with tempfile.TemporaryDirectory() as folder:
    agent, hosts = pathlib.Path(folder, "agent"), pathlib.Path(folder, "hosts")
    agent.write_text(f"""#!/bin/sh
host=$1; shift
exec ip netns exec {PREFIX}n$((${{host##*.}} - 1)) unshare --uts sh -c "hostname tg-${{host##*.}}; $*"
""")
    agent.chmod(0o755)
    hosts.write_text("".join(f"{NET}{r + 1} slots={each}\n" for r in range(machines)))
    try:
      set_up(rate, machines)
      command = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--hostfile", str(hosts), "--mca",
                 "plm_rsh_agent", str(agent), "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca",
                 "btl_tcp_if_include", "tg0", "--mca", "oob_tcp_if_include", "tg0", "--map-by", "slot", "-n",
                 str(machines * each)] + program
      return subprocess.run(["ip", "netns", "exec", PREFIX + "n0", "unshare", "--uts", "sh", "-c",
                             'hostname tg-1; exec "$@"', "sh"] + command, check=False).returncode
    finally: tear_down(machines)

if __name__ == "__main__":
  if len(sys.argv) < 4: sys.exit(__doc__)
  machines, _, each = sys.argv[2].partition("x")
  sys.exit(main(sys.argv[1], int(machines), int(each or 1), sys.argv[3:]))
