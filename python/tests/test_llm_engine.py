"""The C++ engine of language models against PyTorch: small models of every architecture with random weights, the cache,
batches, and draws."""
import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="models are written by the gguf package")
torch = pytest.importorskip("torch", reason="the reference is in PyTorch")

from llm_reference import Reference  # noqa: E402
from tinygrad_cpp import FormatError, GlobalCounters, Tensor  # noqa: E402
from tinygrad_cpp._core import LanguageModel, Sampler, llm_top_logprobs  # noqa: E402

DIM, HIDDEN, VOCABULARY, HEADS, KV, HEAD = 64, 96, 80, 4, 2, 16
TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 46, 2, 64, 33, 8, 32, 7, 9, 50]


class Model:
  """A file with random weights: the keys and tensors all architectures share, and what a test adds."""
  def __init__(self, arch, layers=2, seed=0):
    self.arch, self.layers, self.rng = arch, layers, np.random.default_rng(seed)
    self.keys = {"context_length": 256, "embedding_length": DIM, "block_count": layers, "feed_forward_length": HIDDEN,
                 "attention.head_count": HEADS, "attention.head_count_kv": KV, "attention.layer_norm_rms_epsilon": 1e-5}
    self.tensors = {}
    self.add("token_embd.weight", VOCABULARY, DIM, scale=1)

  def add(self, name, *shape, scale=None, around=0.0):
    scale = scale if scale is not None else 0.3 if len(shape) == 1 else 1 / np.sqrt(shape[-1])
    self.tensors[name] = (around + scale * self.rng.standard_normal(shape)).astype(np.float32)
    return self

  def each(self, name, *shape, **kwargs):
    for i in range(self.layers): self.add(f"blk.{i}.{name}", *shape, **kwargs)
    return self

  def norm(self, name, size=DIM, bias=False):
    """`name` begins with blk. for one of every layer."""
    add, name = (self.each, name[4:]) if name.startswith("blk.") else (self.add, name)
    add(name + ".weight", size, around=1.0)
    if bias: add(name + ".bias", size)
    return self

  def norms(self, bias=False): return self.norm("blk.attn_norm", bias=bias).norm("blk.ffn_norm",
      bias=bias).norm("output_norm", bias=bias)

  def attention(self, bias=False, heads=HEADS, kv=KV, q_factor=1):
    for name, out, size in (("attn_q", heads * HEAD * q_factor, DIM), ("attn_k", kv * HEAD, DIM),
                            ("attn_v", kv * HEAD, DIM), ("attn_output", DIM, heads * HEAD)):
      self.each(name + ".weight", out, size)
      if bias: self.each(name + ".bias", out)
    return self

  def network(self, gate=True, bias=False):
    for name, out, size in ((("ffn_gate", HIDDEN, DIM),) if gate else ()) + \
                            (("ffn_up", HIDDEN, DIM), ("ffn_down", DIM, HIDDEN)):
      self.each(name + ".weight", out, size)
      if bias: self.each(name + ".bias", out)
    return self

  def experts(self, count=6, used=2, hidden=32, shared=0):
    self.keys |= {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": hidden}
    self.each("ffn_gate_inp.weight", count, DIM, scale=1)
    for name, out, size in (("gate", hidden, DIM), ("up", hidden, DIM), ("down", DIM, hidden)):
      self.each(f"ffn_{name}_exps.weight", count, out, size)
      if shared: self.each(f"ffn_{name}_shexp.weight", *((shared, DIM) if size == DIM else (DIM, shared)))
    return self

  def set(self, **keys):
    self.keys |= {k.replace("__", "."): v for k, v in keys.items()}
    return self

  def drop(self, *names):
    for n in names: self.keys.pop(n)
    return self

  def write(self, path):
    w = gguf.GGUFWriter(str(path), self.arch)
    for name, v in self.keys.items():
      name = f"{self.arch}.{name}"
      if isinstance(v, bool): w.add_bool(name, v)
      elif isinstance(v, int): w.add_uint32(name, v)
      elif isinstance(v, float): w.add_float32(name, v)
      elif isinstance(v, list): w.add_array(name, v)
      else: w.add_string(name, v)
    for name, t in self.tensors.items(): w.add_tensor(name, t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return str(path)


def plain(arch, **keys): return Model(arch).norms().attention().network().set(**keys)


def gpt2():
  m = Model("gpt2").norms(bias=True).network(gate=False, bias=True).drop("attention.layer_norm_rms_epsilon",
      "attention.head_count_kv")
  m.set(attention__layer_norm_epsilon=1e-5).each("attn_qkv.weight", 3 * DIM, DIM).each("attn_qkv.bias", 3 * DIM)
  return m.each("attn_output.weight", DIM, DIM).each("attn_output.bias", DIM).add("position_embd.weight", 256, DIM,
      scale=0.5)


def layer_norm_model(arch, **keys):
  return Model(arch).drop("attention.layer_norm_rms_epsilon").set(attention__layer_norm_epsilon=1e-5, **keys)


def phi3():
  m = Model("phi3").norms().each("attn_qkv.weight", (HEADS + 2 * KV) * HEAD, DIM).each("attn_output.weight", DIM,
      HEADS * HEAD)
  m.each("ffn_up.weight", 2 * HIDDEN, DIM).each("ffn_down.weight", DIM, HIDDEN).set(attention__sliding_window=7)
  m.add("rope_factors_short.weight", HEAD // 2, scale=0.1, around=1.5).add("rope_factors_long.weight", HEAD // 2,
      scale=0.1, around=3)
  return m.set(**{"rope.scaling.type": "longrope", "rope.scaling.attn_factor": 1.2,
      "rope.scaling.original_context_length": 4096})


def deepseek2(joined, **keys):
  rank, rope, plain_dim, value, q_rank = 24, 8, 12, 10, 20
  m = Model("deepseek2").norms().network().set(**{
    "attention.kv_lora_rank": rank, "rope.dimension_count": rope, "attention.head_count_kv": HEADS if joined else 1,
    "attention.key_length" + ("" if joined else "_mla"): plain_dim + rope,
    "attention.value_length" + ("" if joined else "_mla"): value}, **keys)
  m.each("attn_kv_a_mqa.weight", rank + rope, DIM).norm("blk.attn_kv_a_norm", rank).each("attn_output.weight", DIM,
      HEADS * value)
  if joined:
    m.each("attn_kv_b.weight", HEADS * (plain_dim + value), rank)
    return m.each("attn_q.weight", HEADS * (plain_dim + rope), DIM)
  m.each("attn_k_b.weight", HEADS, rank, plain_dim).each(
    "attn_v_b.weight", HEADS, value, rank).set(**{"attention.q_lora_rank": q_rank})
  m.each("attn_q_a.weight", q_rank, DIM).norm("blk.attn_q_a_norm", q_rank).each(
    "attn_q_b.weight", HEADS * (plain_dim + rope), q_rank)
  for name in [n for n in m.tensors if n.startswith("blk.1.ffn_") and "norm" not in n]: del m.tensors[name]
  layers, m.layers = m.layers, 2
  m.experts(count=8, used=3, shared=40).set(**{"leading_dense_block_count": 1, "expert_gating_func": 2,
      "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_group_count": 4, "expert_group_used_count": 2})
  m.each("exp_probs_b.bias", 8)
  for name in [n for n in m.tensors if n.startswith("blk.0.") and ("exp" in n or "inp" in n)]: del m.tensors[name]
  return m


def qwen35():
  m = Model("qwen35", layers=4).norm("blk.attn_norm").norm("blk.post_attention_norm").norm("output_norm").network()
  m.attention(q_factor=2).norm("blk.attn_q_norm", HEAD).norm("blk.attn_k_norm", HEAD)
  groups, heads, keys, inner, width = 2, 4, 8, 32, 4
  m.set(**{"ssm.conv_kernel": width, "ssm.state_size": keys, "ssm.group_count": groups, "ssm.time_step_rank": heads,
      "ssm.inner_size": inner, "rope.dimension_count": 8, "attention.key_length": HEAD, "attention.value_length": HEAD})
  channels = inner + 2 * groups * keys
  for i in range(3):
    for n in [n for n in m.tensors if n.startswith(f"blk.{i}.attn_")]:
      if n != f"blk.{i}.attn_norm.weight": del m.tensors[n]
    p = f"blk.{i}."
    m.add(p + "attn_qkv.weight", channels, DIM).add(p + "attn_gate.weight", inner, DIM).add(p + "ssm_alpha.weight",
        heads, DIM)
    m.add(p + "ssm_beta.weight", heads, DIM).add(p + "ssm_conv1d.weight", channels, width).add(p + "ssm_dt.bias", heads)
    m.add(p + "ssm_a", heads, scale=0.1, around=- 0.5).add(p + "ssm_norm.weight", inner // heads,
        around=1.0).add(p + "ssm_out.weight", DIM, inner)
  return m


def gemma2(**keys): return plain("gemma2", attention__sliding_window=6, **
           keys).norm("blk.post_attention_norm").norm("blk.post_ffw_norm")


def gemma3():
  m = Model("gemma3", layers=7).norms().attention().network().norm("blk.post_attention_norm").norm("blk.post_ffw_norm")
  m.norm("blk.attn_q_norm", HEAD).norm("blk.attn_k_norm", HEAD)
  return m.set(**{"attention.sliding_window": 6, "rope.freq_base": 1e6,
               "rope.scaling.type": "linear", "rope.scaling.factor": 8.0})


def heads_norm(m): return m.norm("blk.attn_q_norm", HEAD).norm("blk.attn_k_norm", HEAD)
def whole_norm(m): return m.norm("blk.attn_q_norm", HEADS * HEAD).norm("blk.attn_k_norm", KV * HEAD)


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
MODELS = {
  "llama": lambda: plain("llama").add("output.weight", VOCABULARY, DIM),
  "llama tied, llama 3 factors": lambda: plain("llama").add("rope_freqs.weight", HEAD // 2, scale=0.5, around=2.0),
  "llama linear rope": lambda: plain("llama", **{"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}),
  "llama YaRN": lambda: plain("llama", **YARN),
  "llama partial rope, window": lambda: plain("llama", **{"rope.dimension_count": 8, "attention.sliding_window": 5}),
  "mixtral": lambda: Model("llama").norms().attention().experts(),
  "qwen2": lambda: (plain("qwen2", **{"rope.freq_base": 1e6})
                     .each("attn_q.bias", HEADS * HEAD).each("attn_k.bias", KV * HEAD).each("attn_v.bias", KV * HEAD)),
  "qwen2moe": lambda: (Model("qwen2moe").norms().attention(bias=True).experts(shared=40)
                        .each("ffn_gate_inp_shexp.weight", DIM, scale=0.2)),
  "qwen3": lambda: heads_norm(plain("qwen3")),
  "qwen3moe": lambda: heads_norm(Model("qwen3moe").norms().attention()).experts(),
  "qwen35": qwen35,
  "phi3": phi3,
  "phi2": lambda: (layer_norm_model("phi2").norm("blk.attn_norm", bias=True).norm("output_norm", bias=True)
                    .attention(bias=True).network(gate=False, bias=True)),
  "gemma": lambda: plain("gemma"),
  "gemma2": gemma2,
  "gemma3": gemma3,
  "olmo": lambda: layer_norm_model("olmo", **{"attention.clamp_kqv": 0.5}).attention().network(),
  "olmo2": lambda: whole_norm(Model("olmo2").attention().network().norm("blk.post_attention_norm")
                              .norm("blk.post_ffw_norm").norm("output_norm")),
  "olmoe": lambda: whole_norm(Model("olmoe").norms().attention()).experts(),
  "deepseek2, joined": lambda: deepseek2(True),
  "deepseek2, YaRN, groups of experts": lambda: deepseek2(False, **YARN, **{"rope.scaling.yarn_log_multiplier": 0.07}),
  "gpt2": gpt2,
  "granite": lambda: plain("granite", embedding_scale=3.0, residual_scale=0.5, attention__scale=0.3, logit_scale=2.0),
  "smollm3": lambda: Model("smollm3", layers=4).norms().attention().network(),
  "command-r": lambda: (layer_norm_model("command-r", logit_scale=0.25).norm("blk.attn_norm").norm("output_norm")
                         .attention().network()),
  "glm4moe": lambda: (Model("glm4moe").norm("blk.attn_norm").norm("blk.post_attention_norm").norm("output_norm")
                    .attention()
                       .experts(shared=32).each("exp_probs_b.bias", 6).set(expert_gating_func=2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_pytorch(name, tmp_path):
  path = MODELS[name]().write(tmp_path / "model.gguf")
  expected = Reference(path).logits(TOKENS).numpy()
  model = LanguageModel.load(path, max_context=64, max_sequences=2, cache_dtype="float32", prefill_chunk=8)
  # In chunks of 8 (the last is not full), then token by token, in the other sequence beside one that goes its own way.
  np.testing.assert_allclose(model.prefill_all(0, TOKENS).numpy(), expected, rtol=1e-4, atol=2e-4)
  model.rewind(0, 0)
  model.prefill(1, TOKENS[:5])
  model.prefill(0, TOKENS[:9])
  for i in range(9, 13):
    rows = model.decode([(0, TOKENS[i]), (1, TOKENS[i - 4])]).numpy()
    np.testing.assert_allclose(rows[0], expected[i], rtol=1e-4, atol=2e-4)
    np.testing.assert_allclose(rows[1], expected[i - 4], rtol=1e-4, atol=2e-4)


def small(tmp_path, **options):
  return LanguageModel.load(plain("llama").write(tmp_path / "model.gguf"), **({"max_context": 64} | options))


def test_a_sequence_goes_back_and_is_copied(tmp_path):
  model = small(tmp_path, max_sequences=3)
  whole = model.prefill_all(0, TOKENS).numpy()
  model.rewind(0, 10)
  assert model.position(0) == 10 and model.tokens(0) == TOKENS[:10] and model.rewindable(0, 20) == 10
  model.copy(0, 2, 7)
  np.testing.assert_allclose(model.prefill(2, TOKENS[7:]).numpy()[0], whole[-1], atol=1e-3)
  np.testing.assert_allclose(model.decode([(0, TOKENS[10])]).numpy()[0], whole[10], atol=1e-3)
  with pytest.raises(ValueError, match=r"\[rewind\] got 12 tokens, expected 0 to 11"): model.rewind(0, 12)


@pytest.mark.parametrize("name", ("llama", "gemma2", "mixtral", "qwen35"))
def test_a_sequence_does_not_depend_on_its_neighbours(name, tmp_path):
  """Bit for bit in steps of equal size, whatever the others are and wherever they and it stand; beside steps of another
  size, which other kernels compute, up to rounding."""
  model = LanguageModel.load(MODELS[name]().write(tmp_path / "model.gguf"), max_context=128, max_sequences=4)
  def run(slot, others, alone=False, place=0):
    for s in range(4): model.rewind(s, 0)
    for s, tokens in others.items(): model.prefill(s, tokens)
    logits = [model.prefill(slot, TOKENS[:5]).numpy()]
    for i in range(5, 9):
      rows = [(s, TOKENS[(i + s) % 20]) for s in others]
      rows.insert(place, (slot, TOKENS[i]))
      logits.append(model.decode(rows if not alone else rows[:1]).numpy()[place:place + 1])
    return np.concatenate(logits)
  for _ in range(3): run(0, {1: [4], 2: [5], 3: [6]})  # from the third on steps are replays
  first = run(0, {1: TOKENS[:3], 2: TOKENS[3:20], 3: [9]})
  np.testing.assert_array_equal(first, run(0, {1: LONG[:90], 2: [8, 9], 3: LONG[50:100]}))
  np.testing.assert_array_equal(first, run(3, {1: LONG[:33], 0: LONG[7:70], 2: [1]}))
  for place in (1, 2, 3): np.testing.assert_array_equal(first, run(0, {1: [4], 2: LONG[:40], 3: [6, 7]}, place=place))
  np.testing.assert_allclose(run(0, {}, alone=True), first, rtol=1e-4, atol=1e-4)


def test_recurrent_models_keep_their_last_state_only(tmp_path):
  model = LanguageModel.load(qwen35().write(tmp_path / "m.gguf"), max_context=64, max_sequences=2)
  last = model.prefill(0, TOKENS).numpy()
  assert model.rewindable(0, 10) == 0 and model.rewindable(0, len(TOKENS)) == len(TOKENS)
  with pytest.raises(ValueError, match="expected 0 or"): model.rewind(0, 10)
  model.copy(0, 1, len(TOKENS))
  a, b = model.decode([(0, 1), (1, 1)]).numpy()
  np.testing.assert_array_equal(a, b)
  model.rewind(0, 0)
  np.testing.assert_allclose(model.prefill(0, TOKENS).numpy(), last, atol=1e-4)


def test_half_caches_are_close(tmp_path):
  exact = small(tmp_path).prefill_all(0, TOKENS).numpy()
  half = small(tmp_path, cache_dtype="float16").prefill_all(0, TOKENS).numpy()
  assert 0 < np.abs(exact - half).max() < 0.02


LONG = [(7 * i * i + 3 * i) % VOCABULARY for i in range(230)]
WINDOWS = {
  "llama": lambda: plain("llama", attention__sliding_window=5),
  "a window of several blocks": lambda: plain("llama", attention__sliding_window=70),
  "gemma2, every other layer": gemma2,
  "gemma3, five of six": gemma3,
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("sequences", (1, 3))
def test_windows_that_begin_behind_the_first_block(name, sequences, tmp_path):
  path = WINDOWS[name]().write(tmp_path / "model.gguf")
  expected = Reference(path).logits(LONG).numpy()
  model = LanguageModel.load(path, max_context=256, max_sequences=sequences, prefill_chunk=48)
  s = sequences - 1
  np.testing.assert_allclose(model.prefill_all(s, LONG[:200]).numpy(), expected[:200], rtol=1e-4, atol=5e-4)
  if sequences > 1: model.prefill(0, LONG[:3])  # rows whose windows begin at other blocks
  for i in range(200, 206):
    rows = model.decode([(s, LONG[i])] + ([(0, LONG[i - 197])] if sequences > 1 else [])).numpy()
    np.testing.assert_allclose(rows[0], expected[i], rtol=1e-4, atol=5e-4)
    if sequences > 1: np.testing.assert_allclose(rows[1], expected[i - 197], rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("sequences", (1, 2))
def test_layers_with_a_window_read_the_window_only(sequences, tmp_path):
  """By the operations of a step of one token: the counters take sizes that change at their greatest."""
  def operations(window):
    path = plain("llama", **({"attention__sliding_window": window} if window else {})).write(tmp_path / "m.gguf")
    model = LanguageModel.load(path, max_context=256, max_sequences=sequences)
    for _ in range(4):
      before = GlobalCounters.global_ops
      model.decode([(i, 1) for i in range(sequences)])
    return GlobalCounters.global_ops - before
  block = 2 * sequences * HEADS * 32 * HEAD * 2 * 2  # products with keys and values in both layers
  # Of 8 blocks a window of 5 tokens lies in 2 at most, one of 40 in 3.
  assert operations(0) - operations(5) >= 6 * block
  assert operations(0) - operations(40) >= 5 * block


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path):
  model = small(tmp_path, max_context=16, max_sequences=2)
  model.prefill(0, TOKENS[:15])
  with pytest.raises(ValueError, match="holds 15 of at most 16"): model.prefill(0, [1, 2])
  with pytest.raises(ValueError, match="got token 80, expected 0 to 79"): model.decode([(0, 80)])
  with pytest.raises(ValueError, match="sequence 1 twice"): model.decode([(1, 1), (1, 2)])
  with pytest.raises(ValueError, match="got sequence 2"): model.decode([(2, 1)])
  assert model.position(0) == 15 and model.position(1) == 0
  model.decode([(0, 1)])
  with pytest.raises(ValueError, match="holds 16"): model.decode([(0, 1)])


@pytest.mark.parametrize("key, value, message", [
  ("attention.head_count", 0, "head_count"), ("attention.head_count_kv", 3, "divisor of 4 heads"),
  ("embedding_length", 0, "embedding_length"), ("embedding_length", 128, "token_embd.weight"),
  ("block_count", 0, "block_count"), ("block_count", 4000000000, "block_count"),
  ("feed_forward_length", 97, "ffn_gate.weight has shape"), ("attention.key_length", 4000000000, "key_length"),
  ("rope.dimension_count", 7, "expected an even number"), ("rope.freq_base", float("nan"), "freq_base"),
  ("rope.scaling.type", "bogus", "expected none, linear"), ("expert_count", 4000000000, "expert_count"),
  ("context_length", 0, "context_length"), ("attention.layer_norm_rms_epsilon", float("inf"), "epsilon"),
  ("block_count", 3, "blk.2."),
])
def test_hostile_hyperparameters_are_format_errors(key, value, message, tmp_path):
  path = plain("llama").set(**{key: value}).write(tmp_path / "m.gguf")
  with pytest.raises(FormatError, match=message): LanguageModel.load(path)


def test_unknown_architectures_are_named(tmp_path):
  path = plain("mamba").write(tmp_path / "m.gguf")
  with pytest.raises(FormatError, match="'mamba', expected one of command-r"): LanguageModel.load(path)


# ---- draws ----

LOGITS = Tensor([1.0, 3.0, 2.0, 3.0, -1.0])


def draws(n=400, **options):
  s = Sampler(**({"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0, "penalty_window": 0} | options))
  return [s.sample(LOGITS) for _ in range(n)]


def test_greedy_takes_the_first_of_equals(): assert set(draws(temperature=0)) == {1}
def test_a_seed_gives_the_same_draws(): assert draws(seed=7) == draws(seed=7) != draws(seed=8)
def test_top_k(): assert set(draws(top_k=3)) == {1, 2, 3}
def test_top_p(): assert set(draws(top_p=0.6)) == {1, 3}
def test_min_p(): assert set(draws(min_p=0.3)) == {1, 2, 3}
def test_logit_bias(): assert set(draws(logit_bias=[(1, -np.inf), (3, -np.inf), (2, 50.0)])) == {2}


def test_draws_follow_the_softmax():
  p = np.exp(LOGITS.numpy() / 0.7)
  np.testing.assert_allclose(np.bincount(draws(20000, temperature=0.7), minlength=5) / 20000, p / p.sum(), atol=0.015)


def kept(logits, top_k, top_p, min_p):
  """The tokens that may be drawn, by sorting all of them."""
  order = sorted(range(len(logits)), key=lambda t: (-logits[t], t))[:top_k or None]
  p = np.exp(np.array([logits[t] for t in order]) - logits[order[0]])
  if top_p < 1: order = order[:np.searchsorted(np.cumsum(p), top_p * p.sum()) + 1]
  return {t for t, w in zip(order, p) if w >= min_p}


@pytest.mark.parametrize("seed", range(12))
def test_cuts_of_large_vocabularies(seed):
  rng = np.random.default_rng(seed)
  logits = (rng.standard_normal(int(rng.choice([70, 1000, 5000]))) * 2).round(1).astype(np.float32)  # many are equal
  options = dict(top_k=int(rng.choice([0, 1, 5, 40, 600])), top_p=float(rng.choice([0.1, 0.6, 1.0])),
                 min_p=float(rng.choice([0.0, 0.05, 0.5])))
  s, t = Sampler(temperature=1000.0, penalty_window=0, seed=seed, **options), Tensor(logits)
  expected = kept(logits.astype(np.float64), **options)
  drawn = [s.sample(t) for _ in range(3000)]  # so hot that all are about equally likely
  assert set(drawn) <= expected
  if len(expected) < 100: assert set(drawn) == expected
  mask = rng.integers(0, 2, len(logits))
  words = [sum(1 << i for i in range(64) if 64 * w + i < len(logits) and mask[64 * w + i])
           for w in range((len(logits) + 63) // 64)]
  masked = np.where(mask, logits.astype(np.float64), -np.inf)
  allowed = kept(masked, **options)
  assert {s.sample(t, words) for _ in range(500)} <= allowed
  assert Sampler(temperature=0).sample(t, words) == int(np.argmax(masked))


def test_penalties():
  s = Sampler(temperature=0, repetition_penalty=2.0, penalty_window=2)
  assert [s.sample(LOGITS) for _ in range(4)] == [1, 3, 2, 1]  # 3 and 3 become 1.5
  s = Sampler(temperature=0, presence_penalty=1.5, penalty_window=-1)
  assert [s.sample(LOGITS) for _ in range(4)] == [1, 3, 2, 1]
  s = Sampler(temperature=0, frequency_penalty=0.6, penalty_window=-1)
  assert [s.sample(LOGITS) for _ in range(6)] == [1, 3, 1, 3, 2, 1]


def test_masks_leave_what_they_allow():
  s = Sampler(temperature=0)
  assert s.sample(LOGITS, [0b10100]) == 2
  with pytest.raises(ValueError, match="no token is left"): s.sample(LOGITS, [0b100000])
  with pytest.raises(ValueError, match="no logit is a number"): s.sample(Tensor([float("nan")] * 3))
  with pytest.raises(ValueError, match="mask of 2 words"): s.sample(LOGITS, [1, 1])


@pytest.mark.parametrize("options",
  [{"temperature": -1.0},
  {"top_p": 0.0},
  {"min_p": 2.0},
  {"repetition_penalty": 0.0},
  {"top_k": -1},
  {"penalty_window": -2},
   {"temperature": float("nan")}])
def test_options_out_of_range(options):
  with pytest.raises(ValueError, match=next(iter(options))): Sampler(**options)


def test_logprobs():
  p = torch.log_softmax(torch.tensor(LOGITS.numpy()), 0)
  assert [t for t, _ in llm_top_logprobs(LOGITS, 3)] == [1, 3, 2]
  np.testing.assert_allclose([v for _, v in llm_top_logprobs(LOGITS, 3)], p[[1, 3, 2]], rtol=1e-6)
