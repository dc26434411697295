"""Fine-tuning language models by low-rank adapters, beside PyTorch: logits, gradients, and losses that fall."""
import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="models are written by the gguf package")
torch = pytest.importorskip("torch", reason="the reference is in PyTorch")

from llm_reference import Reference  # noqa: E402
from test_llm_engine import MODELS, TOKENS, VOCABULARY, plain  # noqa: E402
from tinygrad_cpp import Tensor, TinyJit  # noqa: E402
from tinygrad_cpp.llm import AdaptedModel  # noqa: E402
from tinygrad_cpp.nn.optim import AdamW  # noqa: E402

ALL = ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
BATCH = np.array([TOKENS[:12], TOKENS[5:17]], dtype=np.int32)


def load(path, rank=3, alpha=6.0, targets=ALL, **options):
  """A model whose adapters are not zero any more."""
  model = AdaptedModel.load(str(path), rank=rank, alpha=alpha, targets=list(targets), **options)
  rng = np.random.default_rng(5)
  for name, t in model.adapters.items():
    t.assign(Tensor((0.2 * rng.standard_normal(t.shape)).astype(np.float32))).realize()
  return model


def reference(path, model, scale):
  """The same in PyTorch, and its adapters."""
  ref, adapters = Reference(path), {n: torch.from_numpy(t.numpy()).requires_grad_() for n, t in model.adapters.items()}
  for name in [n[:-len(".lora_a")] for n in adapters if n.endswith(".lora_a")]:
    ref.w[name] = ref.w[name] + scale * adapters[name + ".lora_b"] @ adapters[name + ".lora_a"]
  return ref, adapters


# Mixtures choose experts by hard maxima; recurrent ones are refused.
@pytest.mark.parametrize("name", ["llama", "llama partial rope, window", "qwen3", "phi3", "phi2", "gemma2", "olmo2",
                                  "deepseek2, joined", "gpt2", "granite", "mixtral"])
def test_logits_and_gradients_are_those_of_pytorch(name, tmp_path):
  path = MODELS[name]().write(tmp_path / "model.gguf")
  model = load(path)
  ref, adapters = reference(path, model, 2.0)
  logits = torch.stack([ref.logits(row.tolist()) for row in BATCH])
  np.testing.assert_allclose(model.logits(Tensor(BATCH)).numpy(), logits.detach().numpy(), rtol=1e-3, atol=1e-3)
  following = torch.from_numpy(BATCH[:, 1:].astype(np.int64)).flatten()
  expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), following)
  expected.backward()
  loss = model.loss(Tensor(BATCH))
  loss.backward()
  np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
  for n, t in model.adapters.items():
    want = adapters[n].grad.numpy()
    np.testing.assert_allclose(t.grad.numpy(), want, rtol=2e-3, atol=1e-4 * np.abs(want).max(), err_msg=n)


def test_a_new_adapter_changes_nothing(tmp_path):
  path = plain("llama").write(tmp_path / "model.gguf")
  model = AdaptedModel.load(path, rank=4)
  names = [f"blk.{i}.attn_{n}.weight.lora_{m}" for i in (0, 1) for n in "qv" for m in "ab"]
  assert sorted(model.adapters) == sorted(names)
  assert model.adapters["blk.1.attn_v.weight.lora_a"].shape == (4, 64)
  assert model.adapters["blk.1.attn_v.weight.lora_b"].shape == (32, 4)
  np.testing.assert_allclose(model.logits(Tensor(BATCH[:1])).numpy()[0], Reference(path).logits(BATCH[0].tolist()),
                             rtol=1e-4, atol=2e-4)


def test_the_loss_falls(tmp_path):
  model = AdaptedModel.load(plain("llama").write(tmp_path / "model.gguf"), targets=ALL)
  optimizer = AdamW(list(model.adapters.values()), lr=2e-2)
  @TinyJit
  @Tensor.train()
  def step(batch):
    optimizer.zero_grad()
    loss = model.loss(batch).backward()
    optimizer.step()
    return loss.realize()
  losses = [step(Tensor(BATCH).realize()).item() for _ in range(20)]
  assert losses[0] > 0.9 * np.log(VOCABULARY) and losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("options, message", [
  ({"rank": 0}, "got rank 0, expected 1 to"), ({"rank": 5000}, "got rank 5000"), ({"targets": []}, "no targets"),
  ({"targets": ["attn_x"]}, "no projection of llama"), ({"alpha": float("nan")}, "alpha"),
  ({"max_time": -1}, "max_time"),
])
def test_options_out_of_range(options, message, tmp_path):
  path = plain("llama").write(tmp_path / "model.gguf")
  with pytest.raises(ValueError, match=message): AdaptedModel.load(path, **options)


def test_what_cannot_be_adapted_is_refused(tmp_path):
  path = MODELS["qwen35"]().write(tmp_path / "model.gguf")
  with pytest.raises(ValueError, match="recurrent layers"): AdaptedModel.load(path)
  model = AdaptedModel.load(plain("llama").write(tmp_path / "l.gguf"), max_time=8)
  with pytest.raises(ValueError, match="with a time of 1 to 8"): model.logits(Tensor(BATCH))
  with pytest.raises(ValueError, match="2 or more"): model.loss(Tensor([[1]]))
