"""Language models: rotary positions, caches, generation, GGUF files."""
import struct

import numpy as np
import pytest

import tinygrad_cpp
from tinygrad_cpp import Tensor, dtypes
from tinygrad_cpp.llm.gguf import ggml_data_to_tensor, gguf_load
from tinygrad_cpp.llm.model import (GatedDeltaNetBlock, SSMConfig, Transformer, TransformerConfig, apply_rope,
                                    pairwise_topk, precompute_freqs_cis)


def config(**changes):
  return TransformerConfig(**({"num_blocks": 2, "dim": 16, "hidden_dim": 32, "n_heads": 4, "n_kv_heads": 2,
                               "norm_eps": 1e-5, "vocab_size": 20, "head_dim": 4,
                               "rope_theta": 10000.0, "rope_dim": 4, "v_head_dim": 4, "max_context": 12} | changes))


def test_rope_keeps_lengths_and_turns_with_position():
  x = Tensor.rand(1, 2, 3, 4)
  y = apply_rope(x, precompute_freqs_cis(4, 8)[2:5]).numpy()
  np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x.numpy(), axis=-1), rtol=1e-5)
  a, angle = x.numpy()[0, 0, 1], 3.0
  np.testing.assert_allclose(y[0, 0, 1, 0], a[0] * np.cos(angle) - a[2] * np.sin(angle), rtol=1e-4, atol=1e-6)
  with pytest.raises(AssertionError, match="even"): apply_rope(Tensor.rand(1, 1, 1, 3), precompute_freqs_cis(4, 8)[:1])


def test_pairwise_topk():
  values, places = pairwise_topk(Tensor([[[1.0, 3.0, 3.0, 2.0]]]), 3)
  assert values.tolist() == [[[2, 3, 3]]] and places.tolist() == [[[3, 2, 1]]]


@pytest.mark.parametrize("changes",
                         [{}, {"attn_output_gate": True, "qk_norm": 4},
                          {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True},
                                     {"kv_lora_rank": 8, "head_dim": 6, "rope_dim": 2},
                                     {"ssm": SSMConfig(2, 4, 2, 4, 16), "ssm_layers": (True, False)}])
def test_token_by_token_is_all_at_once(changes):
  Tensor.manual_seed(3)
  model, tokens = Transformer(config(**changes)), [3, 1, 4, 1, 5]
  for block in model.blk:  # weights that GGUF files bring
    for t in tinygrad_cpp.nn.state.get_parameters(block):
      if not t.numpy().any(): t.replace((Tensor.rand(*t.shape) - 0.5).cast(t.dtype))
  whole = model.logits(Tensor([tokens]), 0).numpy()
  for i, token in enumerate(tokens): step = model.logits(Tensor([[token]]), i).numpy()
  np.testing.assert_allclose(step, whole, rtol=2e-2, atol=2e-3)


def test_generate_is_greedy_and_reuses_what_it_knows():
  Tensor.manual_seed(1)
  model, tokens = Transformer(config()), [2, 7, 5]
  made = [t for t, _ in zip(model.generate(tokens, chunk_size=2), range(4))]
  again = Transformer.generate(model, [2, 7, 5], chunk_size=8)
  assert [next(again) for _ in range(4)] == made
  assert model.get_start_pos([2, 7, 9]) == 2
  logits = model.logits(Tensor([[2, 7, 5]]), 0).numpy()
  assert logits.argmax() == made[0]
  assert len(list(model.generate([1] * 10))) == 2


SSM = SSMConfig(2, 4, 2, 4, 16)


@pytest.mark.parametrize("changes", [{}, {"kv_lora_rank": 8, "head_dim": 6, "rope_dim": 2},
                                     {"ssm": SSM, "ssm_layers": (True, False)}])
def test_parts_of_a_prompt_have_any_length(changes):
  """Parts of variable length, the last one shorter, a prompt that goes on, and the whole at once say the same."""
  Tensor.manual_seed(5)
  model = Transformer(config(max_context=40, **changes))
  for block in model.blk:
    for t in tinygrad_cpp.nn.state.get_parameters(block):
      if not t.numpy().any(): t.replace((Tensor.rand(*t.shape) - 0.5).cast(t.dtype))
  prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
  def first(tokens, n=4, **options): return [t for t, _ in zip(model.generate(list(tokens), **options), range(n))]
  whole = model.logits(Tensor([prompt]), 0).numpy().argmax()
  model._cached_tokens = []
  expected = first(prompt)
  assert expected[0] == whole
  for chunk in (1, 3, 4, 11):
    model._cached_tokens = []
    assert first(prompt, chunk_size=chunk) == expected, chunk
  assert first(prompt + expected[:3])[0] == expected[3]


def test_warmup_captures_the_steps_of_prompts_and_tokens():
  model = Transformer(config())
  model.warmup()
  assert sorted(model._steps) == [1, 32]
  for length in (2, 5, 9):
    assert isinstance(next(model.generate(list(range(length)))), int)
  assert sorted(model._steps) == [1, 32] and all(step.captured is not None for step in model._steps.values())


def test_recurrent_blocks_go_on_or_start_anew():
  model = Transformer(config(ssm=SSM, ssm_layers=(True, False)))
  assert model.has_recurrent_block
  model._cached_tokens = [1, 2, 3]
  assert model.get_start_pos([1, 2, 3, 4]) == 3
  assert model.get_start_pos([1, 2, 4, 5]) == model.get_start_pos([1, 2, 3]) == 0


def test_recurrent_state_starts_anew_at_position_0():
  block = GatedDeltaNetBlock(config(), SSMConfig(2, 4, 2, 4, 16))
  for t in (block.ssm_conv1d["weight"], block.ssm_a): t.assign(Tensor.rand(*t.shape) - 0.5)
  x = Tensor.rand(1, 3, 16)
  first = block(x, 0).numpy()
  np.testing.assert_equal(block(x, 0).numpy(), first)
  assert np.abs(block(x, 3).numpy() - first).max() > 1e-6


# ---- GGUF ----

def text(s): return struct.pack("<Q", len(s)) + s.encode()


def gguf(pairs, tensors, data, version=3, magic=b"GGUF"):
  out = magic + struct.pack("<IQQ", version, len(tensors), len(pairs))
  for key, kind, value in pairs: out += text(key) + struct.pack("<I", kind) + value
  for name, dims, kind, at in tensors: out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
  return Tensor(out + bytes(-len(out) % 32) + data)


def test_gguf():
  q8 = np.float16(0.5).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
  data = np.arange(6, dtype=np.float32).tobytes() + bytes(8) + q8
  kv, state = gguf_load(gguf([("a.name", 8, text("x")), ("a.n", 4, struct.pack("<I", 7)),
                              ("a.list", 9, struct.pack("<IQ", 5, 2) + struct.pack("<ii", -1, 2))],
                             [("w", (3, 2), 0, 0), ("q", (32,), 8, 32)], data))
  assert kv == {"a.name": "x", "a.n": 7, "a.list": [-1, 2]}
  assert state["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
  np.testing.assert_equal(state["q"].numpy(), np.arange(-16, 16) / 2)


@pytest.mark.parametrize("kind, elements, size",
                         [(2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (12, 256, 144), (13, 256, 176),
                          (14, 256, 210), (39, 32, 17)])
def test_blocks_have_their_size_and_scale(kind, elements, size):
  raw = np.random.default_rng(kind).integers(0, 256, (3, size), dtype=np.uint8)
  at = {14: 208}.get(kind, 0)
  if kind == 39: raw[:, 0] = 127
  else:
    raw[:, at:at + 2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    if kind in (3, 7, 12, 13): raw[:, 2:4] = 0  # no offset
  one = ggml_data_to_tensor(Tensor(raw.reshape(-1)), 3 * elements, kind).numpy()
  assert one.shape == (3 * elements,) and np.abs(one).max() > 1
  if kind == 39: raw[:, 0] = 128
  else: raw[:, at:at + 2] = np.frombuffer(np.float16(2).tobytes(), np.uint8)
  np.testing.assert_equal(ggml_data_to_tensor(Tensor(raw.reshape(-1)), 3 * elements, kind).numpy(), one * 2)


def test_corrupt_gguf_is_refused():
  good = [("w", (4,), 0, 0)], bytes(16)
  for t in (gguf([], *good, magic=b"GGUX"), gguf([], *good, version=9), gguf([], good[0], bytes(8)),
            gguf([("a", 13, b"")], *good),
            gguf([("a", 9, struct.pack("<IQ", 4, 1 << 60))], *good),
            gguf([("general.alignment", 4, struct.pack("<I", 0))], *good),
            gguf([], [("w", (1 << 40, 1 << 40), 0, 0)], bytes(16)), Tensor(b"GGUF"),
            gguf([], [("w", (33,), 8, 0)], bytes(64))):
    with pytest.raises(ValueError, match="gguf"): gguf_load(t)
  with pytest.raises(ValueError, match="type 99"): ggml_data_to_tensor(Tensor([0], dtype=dtypes.uint8), 1, 99)


def test_replies_are_routed_piece_by_piece():
  from tinygrad_cpp.llm.serve import StreamRouter
  text = '<think>hm</think>It is <tool_call>{"name": "sun", "arguments": {"at": 3}}</tool_call>'
  for pieces in ([text], list(text)):
    fields = {}
    router = StreamRouter()
    for i, piece in enumerate(pieces):
      for field, added in router.route(piece, final=i + 1 == len(pieces)): fields[field] = fields.get(field, "") + added
    assert fields.pop("content").strip() == "It is"
    assert fields == {"reasoning_content": "hm", "sun": '{"at": 3}'}
  assert StreamRouter(reasoning=True).route("why</think>so", final=True) == [("reasoning_content", "why"),
                                                                            ("content", "so")]
