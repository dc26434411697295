"""Records ViT of timm, which reads files in the published format, and the Transformer of torch's layers."""
import pathlib
import tempfile
import numpy as np
import torch
from timm.layers import GELUTanh
from timm.models.vision_transformer import VisionTransformer
from pattern import EXPECTED, gradients, numbers, pattern, record, weight


def arrays(layers: int, dim: int, heads: int, classes: int, image: int, patch: int) -> dict[str, tuple[int, ...]]:
  """Returns the names and shapes of a published file."""
  size, tall = dim // heads, 4 * dim
  out = {"cls": (1, 1, dim), "embedding/kernel": (patch, patch, 3, dim), "embedding/bias": (dim,),
         "head/kernel": (dim, classes), "head/bias": (classes,),
         "Transformer/posembed_input/pos_embedding": (1, 1 + (image // patch) ** 2, dim),
         "Transformer/encoder_norm/scale": (dim,), "Transformer/encoder_norm/bias": (dim,)}
  for i in range(layers):
    block = f"Transformer/encoderblock_{i}"
    for name in ("query", "key", "value"):
      out[f"{block}/MultiHeadDotProductAttention_1/{name}/kernel"] = (dim, heads, size)
      out[f"{block}/MultiHeadDotProductAttention_1/{name}/bias"] = (heads, size)
    out[f"{block}/MultiHeadDotProductAttention_1/out/kernel"] = (heads, size, dim)
    out[f"{block}/MultiHeadDotProductAttention_1/out/bias"] = (dim,)
    for norm in ("LayerNorm_0", "LayerNorm_2"):
      out[f"{block}/{norm}/scale"] = out[f"{block}/{norm}/bias"] = (dim,)
    out[f"{block}/MlpBlock_3/Dense_0/kernel"] = (dim, tall)
    out[f"{block}/MlpBlock_3/Dense_0/bias"] = (tall,)
    out[f"{block}/MlpBlock_3/Dense_1/kernel"] = (tall, dim)
    out[f"{block}/MlpBlock_3/Dense_1/bias"] = (dim,)
  return out


def lines(shapes: dict[str, tuple[int, ...]]) -> str:
  return "".join(" ".join([n, *map(str, s)]) + "\n" for n, s in sorted(shapes.items()))


def record_vit(name: str, layers: int, dim: int, heads: int, classes: int, image: int, patch: int) -> None:
  shapes = arrays(layers, dim, heads, classes, image, patch)
  (EXPECTED / f"{name}.names").write_text(lines(shapes))
  model = VisionTransformer(img_size=image, patch_size=patch, embed_dim=dim, depth=layers, num_heads=heads,
                            num_classes=classes, act_layer=GELUTanh)
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "weights.npz"
    np.savez(file, **{n: weight(n, s) for n, s in shapes.items()})
    model.load_pretrained(str(file))
  model.double().eval()
  logits = model(pattern("images", 2, 3, image, image))
  g = gradients(model, logits, {n: n for n, _ in model.named_parameters()})
  g = {n.removeprefix("gradient."): t for n, t in g.items()}
  ours = {"embedding.0": g["patch_embed.proj.weight"], "cls": g["cls_token"], "pos_embedding": g["pos_embed"],
          "tbs.0.query.0": g["blocks.0.attn.qkv.weight"][:dim].T,
          "tbs.1.value.1": g["blocks.1.attn.qkv.bias"][2 * dim:],
          "tbs.1.ln2.0": g["blocks.1.norm2.weight"], "tbs.0.ff1.0": g["blocks.0.mlp.fc1.weight"].T,
          "encoder_norm.1": g["norm.bias"], "head.0": g["head.weight"].T}
  record(name, {"logits": logits, **{f"gradient.{n}": t for n, t in ours.items()}})


record_vit("vit_small", 2, 24, 3, 10, 40, 8)
record_vit("vit_tiny", 12, 192, 3, 1000, 224, 16)
(EXPECTED / "vit_base.names").write_text(lines(arrays(12, 768, 12, 1000, 224, 16)))

# The Transformer: blocks with norms behind the sums, rows of a table for places and symbols.
dim, symbols, places = 24, 11, 6
w = lambda name, *shape: torch.from_numpy(weight(name, shape)).double().requires_grad_()
embed, final = w("embed", places + symbols, dim), w("final", dim, symbols)
x = numbers("symbols", symbols, 3, 5)
h = embed[:5] + embed[places + x]
first = None
for i in range(2):
  layer = torch.nn.TransformerEncoderLayer(dim, 4, 32, dropout=0.0, batch_first=True).double()
  block = {n: w(f"tbs.{i}.{n}.0", *s) for n, s in (("query", (dim, dim)), ("key", (dim, dim)), ("value", (dim, dim)),
           ("out", (dim, dim)), ("ff1", (dim, 32)), ("ff2", (32, dim)), ("ln1", (dim,)), ("ln2", (dim,)))}
  bias = {n: w(f"tbs.{i}.{n}.1", t.shape[-1]) for n, t in block.items()}
  first = first or block
  joined = {"self_attn.in_proj_weight": torch.cat([block[n].T for n in ("query", "key", "value")]),
            "self_attn.in_proj_bias": torch.cat([bias[n] for n in ("query", "key", "value")])}
  names = {"self_attn.out_proj": "out", "linear1": "ff1", "linear2": "ff2", "norm1": "ln1", "norm2": "ln2"}
  for theirs, ours in names.items():
    joined[f"{theirs}.weight"] = block[ours].T if block[ours].ndim == 2 else block[ours]
    joined[f"{theirs}.bias"] = bias[ours]
  h = torch.func.functional_call(layer, joined, h)
out = (h @ final).log_softmax(-1)
(out * pattern("output.gradient", *out.shape)).sum().backward()
record("transformer", {"output": out, "gradient.embed": embed.grad, "gradient.final": final.grad,
                       **{f"gradient.tbs.0.{n}.0": t.grad for n, t in first.items()}})
