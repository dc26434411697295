#!/usr/bin/env python3
"""Tests of the driver, without peers and without times: selection, turns, statistics, output, report."""
import argparse, json, pathlib, re, subprocess, sys, tempfile, unittest, unittest.mock
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare, environment, rank_overhead, report, sampling
from rows import BY_NAME, COLLECTIVE_ROWS, LARGE_ROWS, ROWS, ZOO_ROWS

ECHO = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: print(sys.argv[1], flush=True)"


class Script:
  """A program with given samples; a string is the reason it fails with."""
  def __init__(self, *values): self.values, self.taken = list(values), 0
  def sample(self, timeout):
    value = self.values[min(self.taken, len(self.values) - 1)]
    self.taken += 1
    return sampling.parse_seconds(f"cannot {value}" if isinstance(value, str) else str(value))


class Kernels(unittest.TestCase):
  def test_openblas_is_told_what_the_processor_has(self):
    avx512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    self.assertEqual(environment.openblas_kernels({"avx2"}), {})
    self.assertEqual(environment.openblas_kernels(avx512), {"OPENBLAS_CORETYPE": "SkylakeX"})
    self.assertEqual(environment.openblas_kernels(avx512 | {"avx512_bf16"}), {"OPENBLAS_CORETYPE": "Cooperlake"})

  def test_settings_of_the_machine_do_not_choose_kernels(self):
    with unittest.mock.patch.dict("os.environ", {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "1"}):
      told = environment.variables(1)
    self.assertNotIn("OPENBLAS_L2_SIZE", told)
    self.assertNotEqual(told.get("OPENBLAS_CORETYPE"), "Haswell")

  def test_mkl_is_told_only_where_it_would_not_use_what_there_is(self):
    with tempfile.TemporaryDirectory() as folder:
      self.assertEqual(environment.mkl_kernels("GenuineIntel", {"avx512f"}, pathlib.Path(folder)), {})
      self.assertEqual(environment.mkl_kernels("AuthenticAMD", {"avx2"}, pathlib.Path(folder)), {})
      for path in environment.mkl_kernels("AuthenticAMD", {"avx512f"}, pathlib.Path(folder)).values():
        self.assertTrue(pathlib.Path(path).exists())


class Rows(unittest.TestCase):
  def test_names_are_unique(self):
    self.assertEqual(len(BY_NAME), len(ROWS + ZOO_ROWS + COLLECTIVE_ROWS + LARGE_ROWS))

  def test_work_is_known(self):
    self.assertEqual(BY_NAME["matmul_f32_1023x777x513_nn"].flops, 2 * 1023 * 777 * 513)
    self.assertEqual(BY_NAME["conv3x3_64_fwd"].flops, 2 * 9 * 64 * 64 * 8 * 64 * 64)
    self.assertEqual(BY_NAME["conv7x7_s2_fwd"].args["y"], (8, 64, 112, 112))
    self.assertEqual(BY_NAME["gemv_q4_0_4096"].bytes, 4096 * 4096 * 18 / 32)

  def test_filter(self):
    self.assertEqual([r.name for r in compare.choose_rows("^(exp_16m|sum_16m)$")], ["exp_16m", "sum_16m"])
    self.assertEqual(compare.choose_rows("^copy_64m$", "CUDA")[0].bytes, 2 ** 29)
    for pattern in ("nothing like this", "(", "^copy_64m$"):
      with self.assertRaises(SystemExit): compare.choose_rows(pattern)

  def test_sums_of_several_processes_are_compared_with_mpi_alone(self):
    self.assertEqual([r.name for r in compare.choose_rows("^allreduce_64mb$")], ["allreduce_64mb"])
    self.assertEqual(compare.peers_of(BY_NAME["allreduce_64mb"], compare.PEERS), ["mpi"])
    self.assertNotIn("mpi", compare.peers_of(BY_NAME["exp_16m"], compare.PEERS))

  def test_steps_of_several_processes_are_compared_with_ddp_alone(self):
    for name in ("ddp_mnist_step_512", "ddp_gpt2_block_step"):
      self.assertEqual(compare.peers_of(BY_NAME[name], compare.PEERS), ["ddp"])
    self.assertNotIn("ddp", compare.peers_of(BY_NAME["mnist_step_512"], compare.PEERS))

  def test_networks_are_compared_with_pytorchs_alone(self):
    self.assertEqual(compare.peers_of(BY_NAME["zoo_resnet18"], compare.PEERS), ["zoo"])
    self.assertNotIn("zoo", compare.peers_of(BY_NAME["resnet18_step_8"], compare.PEERS))

  def test_both_sides_have_each_network(self):
    names = sorted(r.name for r in ZOO_ROWS)
    table = (environment.ROOT / "apps" / "tg" / "bench_zoo.cpp").read_text()
    self.assertEqual(sorted(re.findall(r'{"(zoo_\w+)",', table)), names)
    for row in ZOO_ROWS: self.assertIn(str(row.args["parameters"]), table, row.name)
    peer = (environment.ROOT / "benchmarks" / "peers" / "zoo_peer.py").read_text()
    networks = peer[peer.index("NETWORKS = {"):]
    self.assertEqual(sorted("zoo_" + n for n in re.findall(r'"(\w+)": ', networks)), names)

  def test_peers_of_quantized_rows(self):
    self.assertEqual(compare.peers_of(BY_NAME["gemv_q4_0_4096"], compare.PEERS), ["tinygrad", "llama", "llama_native"])
    self.assertNotIn("llama", compare.peers_of(BY_NAME["exp_16m"], compare.PEERS))


class Arguments(unittest.TestCase):
  def test_lists(self):
    self.assertEqual(compare.parse_threads("1,2"), [1, 2])
    self.assertEqual(compare.parse_peers("numpy,torch"), ["numpy", "torch"])
    for parse, bad in ((compare.parse_threads, "0"), (compare.parse_threads, "x"), (compare.parse_peers, "nobody")):
      with self.assertRaises(argparse.ArgumentTypeError): parse(bad)


class Turns(unittest.TestCase):
  def run_turns(self, pairs=5, seconds=0, known={}, **programs):
    failures = []
    samples = sampling.interleave(programs, known, pairs, seconds, 1, lambda name, why: failures.append((name, why)),
                                  clock=lambda: 0)
    return samples, failures

  def test_every_program_in_the_running_has_a_sample_of_each_round(self):
    samples, failures = self.run_turns(ours=Script(9, 1, 2, 3, 4, 5), fast=Script(8, 2), slow=Script(100))
    self.assertEqual(samples["ours"], [1, 2, 3, 4, 5])  # the first one only warms
    self.assertEqual(samples["fast"], [2] * 5)
    self.assertEqual(samples["slow"], [100], "too slow to be asked again")
    self.assertEqual(failures, [])

  def test_a_long_and_slow_run_is_not_repeated(self):
    slow = Script("never asked")
    samples, failures = self.run_turns(known={"fast": 1.0, "slow": 50.0}, ours=Script(1), fast=Script(1), slow=slow)
    self.assertEqual((samples["slow"], slow.taken, failures), ([50.0], 0, []))

  def test_our_program_is_always_in_the_running(self):
    samples, _ = self.run_turns(ours=Script(1.0), fast=Script(0.01))
    self.assertEqual((len(samples["ours"]), len(samples["fast"])), (5, 5))

  def test_short_rows_have_more_rounds_within_the_time(self):
    self.assertEqual(len(self.run_turns(seconds=1, ours=Script(0.1), peer=Script(0.1))[0]["ours"]), 15)

  def test_a_peer_that_fails_is_left_out(self):
    samples, failures = self.run_turns(ours=Script(1), peer=Script(1, 1, "no memory"), other=Script(1),
                                       never=Script("no such thing"))
    self.assertEqual({n: len(v) for n, v in samples.items()}, {"ours": 5, "other": 5})
    self.assertEqual(failures, [("never", "no such thing"), ("peer", "no memory")])

  def test_our_failure_ends_the_row(self):
    with self.assertRaisesRegex(sampling.Failed, "wrong"): self.run_turns(ours=Script("wrong"), peer=Script(1))


class Programs(unittest.TestCase):
  def setUp(self):
    self.log = tempfile.TemporaryFile()
    self.addCleanup(self.log.close)

  def test_a_program_answers_line_by_line(self):
    p = sampling.Program([sys.executable, "-c", ECHO, "0.25"], None, self.log)
    self.assertEqual(p.line(20), "ready")
    self.assertEqual([p.sample(20), p.sample(20)], [0.25, 0.25])
    p.finish()
    self.assertEqual(p.process.returncode, 0)

  def test_failures_have_reasons(self):
    p = sampling.Program([sys.executable, "-c", "raise SystemExit('out of luck')"], None, self.log)
    with self.assertRaisesRegex(sampling.Failed, "out of luck"): p.line(20)
    p.finish()
    p = sampling.Program([sys.executable, "-c", "import time; time.sleep(60)"], None, self.log)
    with self.assertRaisesRegex(sampling.Failed, "no answer"): p.line(0.1)
    self.assertFalse(p.alive())
    p.finish()

  def test_answers(self):
    self.assertEqual(sampling.parse_seconds("1e-3"), 0.001)
    for answer, reason in (("cannot do it", "do it"), ("fast", "expected seconds"), ("0", "positive"),
                           ("nan", "positive")):
      with self.assertRaisesRegex(sampling.Failed, reason): sampling.parse_seconds(answer)


class Processes(unittest.TestCase):
  def test_cpu_seconds_of_a_process_below_another(self):
    work = "x = 0\nwhile x < 3_000_000: x += 1\n"
    wait = "print('', flush=True)\ninput()"
    inner = f"import sys\n{work}{wait}"
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}])"
    p = subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdout.readline()
    self.assertEqual(rank_overhead.processes_below(p.pid)[0], p.pid)
    child = rank_overhead.processes_below(p.pid)[1]
    self.assertGreater(rank_overhead.cpu_seconds(child), 0.01)
    p.communicate(b"\n")
    self.assertEqual(p.returncode, 0)


class Results(unittest.TestCase):
  def result(self, name="exp_16m", ours=0.004):
    return sampling.result(name, 1, {"tg": [ours, ours * 1.5, ours * 0.5], "torch": [0.005] * 3, "numpy": [0.010] * 2},
                           {"torch": "2", "numpy": "1", "llama": "0"})

  def test_statistics(self):
    r = self.result()
    self.assertEqual((r["name"], r["threads"], r["unit"], r["pairs"]), ("exp_16m", 1, "ms", 3))
    self.assertEqual((r["ours"], r["peers"], r["ratio"], r["best"]), (4, {"torch": 5, "numpy": 10}, 0.8, "torch"))
    self.assertEqual(r["spread"]["tg"], [3, 5])
    self.assertEqual(r["samples"]["numpy"], 2)
    self.assertEqual(r["versions"], {"torch": "2", "numpy": "1"})
    self.assertEqual(json.loads(json.dumps(r)), r)
    self.assertTrue(compare.table_line(r).startswith("exp_16m "))

  def test_without_peers(self):
    r = sampling.result("exp_16m", 1, {"tg": [0.004]}, {})
    self.assertEqual((r["ratio"], r["best"], r["peers"]), (None, None, {}))
    self.assertIn(" - ", compare.table_line(r))

  def test_quartiles(self):
    self.assertEqual(sampling.quartiles([5, 1, 3, 2, 4]), (2, 4))
    self.assertEqual(sampling.quartiles([7]), (7, 7))

  def test_report(self):
    peaks = {"fma": 100, "read": 25, "triad": 15, "triad_stream": 30}
    rows = [self.result(), self.result("matmul_f32_1024_nn", 0.03), self.result("conv3x3_64_fwd", 0.02),
            self.result("mnist_step_512", 1.0),
            sampling.result("gemv_q8_0_4096", 1, {"tg": [0.001]}, {})]
    with tempfile.TemporaryDirectory() as folder:
      store, markdown = pathlib.Path(folder) / "store.jsonl", pathlib.Path(folder) / "performance.md"
      store.write_text("\n".join(map(json.dumps, [{"machine": "a machine", "peaks": {"1": peaks}}, *rows])))
      report.write(store, markdown)
      body = markdown.read_text()
      for r in rows: self.assertIn(f"`{r['name']}`", body)
      self.assertIn("71.6 GFLOP/s | 72 %", body)  # 2 * 1024^3 in 30 ms
      figures = re.findall(r"\((performance/\w+\.svg)\)", body)
      self.assertEqual(len(figures), 5)
      for figure in figures: xml.parse(pathlib.Path(folder) / figure)
      store.write_text('{"name": "no such row"}\n')
      with self.assertRaises(SystemExit): report.write(store, markdown)


if __name__ == "__main__": unittest.main()
