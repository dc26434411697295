"""The rows of the comparison: what each computes, and how much arithmetic and memory traffic that is. Names and work
are those of `tg bench`."""
import dataclasses, math
from typing import Any

SIDE = 4096


@dataclasses.dataclass(frozen=True)
class Row:
  name: str
  group: str   # matmul, conv, memory, models, quantized: the sections of the report
  kind: str    # which work; peers have a function of that name
  flops: float = 0
  bytes: float = 0
  args: dict[str, Any] = dataclasses.field(default_factory=dict)


def _matmul(name: str, m: int, k: int, n: int, order: str = "nn", batch: int = 0, tf32: bool = False) -> Row:
  """tf32: factors may be rounded to 10 bits of mantissa."""
  count = max(batch, 1)
  return Row(f"matmul_{'tf32' if tf32 else 'f32'}_{name}_{order}", "matmul", "matmul", 2.0 * m * k * n * count,
             4.0 * count * (m * k + k * n + m * n),
             {"m": m, "k": k, "n": n, "transpose_a": order[0] == "t", "transpose_b": order[1] == "t", "batch": batch,
              "tf32": tf32})


# type; bytes of an element of both factors and the result
NARROW = {"i8_i32": ("int8", 6), "bf16": ("bfloat16", 6), "f16": ("float16", 6)}


def _narrow(short: str, n: int, order: str) -> Row:
  """int8 sums are int32, others have the type of the factors."""
  kind, size = NARROW[short]
  return Row(f"matmul_{short}_{n}_{order}", "matmul", "matmul_narrow", 2.0 * n ** 3, size * n ** 2,
             {"n": n, "type": kind, "transpose_b": order == "nt"})


def _conv(name: str, backward: bool, n: int, cin: int, cout: int, size: int, kernel: int, stride: int = 1,
          padding: int = 0, groups: int = 1,
          dilation: int = 1) -> Row:
  out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
  flops = 2.0 * kernel ** 2 * n * (cin // groups) * cout * out ** 2
  x, y = 4.0 * n * cin * size ** 2, 4.0 * n * cout * out ** 2
  return Row(f"{name}_{'bwd' if backward else 'fwd'}", "conv", "conv_backward" if backward else "conv",
             flops * (2 if backward else 1),
             2 * x + y if backward else x + y,
             {"x": (n, cin, size, size), "weight": (cout, cin // groups, kernel, kernel), "y": (n, cout, out, out),
              "stride": stride, "padding": padding,
              "groups": groups, "dilation": dilation})


def _conv_both(*args: Any, **named: Any) -> list[Row]:
  return [_conv(args[0], backward, *args[1:], **named) for backward in (False, True)]


def _map(kind: str, count: int, scale: float, inputs: int = 1) -> Row:
  return Row(f"{kind}_{count >> 20}m", "memory", kind, bytes=4.0 * (inputs + 1) * count,
             args={"inputs": inputs, "scale": scale, "count": count})


_MIB64 = 4.0 * SIDE * SIDE  # bytes of 2^24 floats


def _block(name: str, kind: str, time: int = 128, passes: int = 1) -> Row:
  return Row(name, "models", kind, passes * (2.0 * time * 768 * 12 * 768 + 4.0 * time * time * 768),
             args={"time": time})


ROWS: list[Row] = [
  *[_matmul(str(n), n, n, n, order) for n in (256, 512, 1024, 2048) for order in ("nn", "nt", "tn")],
  _matmul("1000", 1000, 1000, 1000),
  _matmul("1023x777x513", 1023, 777, 513),
  _matmul("4096", SIDE, SIDE, SIDE),
  _matmul("batched_32x256", 256, 256, 256, batch=32),
  *[_narrow(short, 1024, order) for short in NARROW for order in ("nn", "nt")],
  *[_narrow(short, SIDE, order) for short in ("bf16", "f16") for order in ("nn", "nt")],
  Row("gemv_f32_4096", "matmul", "gemv", 2.0 * SIDE ** 2, _MIB64),
  *_conv_both("conv3x3_64", 8, 64, 64, 64, 3, padding=1),
  *_conv_both("conv1x1_256", 8, 256, 256, 32, 1),
  *_conv_both("conv7x7_s2", 8, 3, 64, 224, 7, stride=2, padding=3),
  *_conv_both("conv_depthwise3x3", 8, 128, 128, 64, 3, padding=1, groups=128),
  *_conv_both("conv5x5_32_56", 4, 32, 64, 56, 5, padding=2),
  *_conv_both("conv3x3_dil2_64", 4, 64, 64, 56, 3, padding=2, dilation=2),
  _map("add_mul", 1 << 24, 1, inputs=3),
  _map("exp", 1 << 24, 20),
  _map("gelu", 1 << 24, 4),
  _map("sin", 1 << 22, 20),
  Row("sum_16m", "memory", "sum", bytes=_MIB64, args={"axis": None}),
  Row("max_16m", "memory", "max", bytes=_MIB64, args={"axis": None}),
  Row("sum_4096_axis0", "memory", "sum", bytes=_MIB64, args={"axis": 0}),
  Row("sum_4096_axis1", "memory", "sum", bytes=_MIB64, args={"axis": 1}),
  Row("mean_4096_axis1", "memory", "mean", bytes=_MIB64, args={"axis": 1}),
  Row("softmax_4096", "memory", "softmax", bytes=2 * _MIB64, args={"shape": (SIDE, SIDE)}),
  Row("softmax_128x50257", "memory", "softmax", bytes=8.0 * 128 * 50257, args={"shape": (128, 50257)}),
  Row("layernorm_4096", "memory", "layernorm", bytes=2 * _MIB64, args={"shape": (SIDE, SIDE)}),
  Row("groupnorm_8x128x56", "layers", "groupnorm", bytes=8.0 * 8 * 128 * 56 * 56,
      args={"shape": (8, 128, 56, 56), "groups": 32}),
  Row("embedding_50257x768", "layers", "embedding", bytes=8.0 * 8 * 512 * 768,
      args={"table": (50257, 768), "shape": (8, 512)}),
  Row("lstm_64x32x256", "layers", "lstm", 2.0 * 64 * 32 * 2 * 256 * 4 * 256,
      args={"time": 64, "batch": 32, "size": 256}),
  Row("vit_block_fwd", "layers", "vit", 8 * (2.0 * 197 * 768 * 12 * 768 + 4.0 * 197 * 197 * 768),
      args={"batch": 8, "time": 197}),
  Row("attention_causal_12x1024x64_fwd", "models", "attention", 2.0 * 12 * 1024 * 1024 * 64),
  _block("gpt2_block_fwd", "gpt2"),
  _block("gpt2_block_train", "gpt2_train", passes=3),
  _block("gpt2_block_train_4096", "gpt2_train", 4096, passes=3),
  Row("mnist_step_512", "models", "mnist_step"),
  Row("resnet18_step_8", "models", "resnet_step"),
  Row("gemv_q4_0_4096", "quantized", "gemv_quantized", bytes=SIDE * SIDE / 32 * 18,
      args={"format": "q4_0", "block": 18}),
  Row("gemv_q8_0_4096", "quantized", "gemv_quantized", bytes=SIDE * SIDE / 32 * 34,
      args={"format": "q8_0", "block": 34}),
]
# Networks of models/, by their numbers of parameters: forward passes of one sample.
ZOO_ROWS: list[Row] = [Row(f"zoo_{name}", "zoo", "zoo", args={"parameters": n}) for name, n in (
  ("resnet18", 11689512), ("resnet50", 25557032), ("resnext50", 25028904), ("efficientnet_b0", 5288548),
  ("convnext_tiny", 28589128), ("inception_v3", 23834568), ("vit_b16", 86567656), ("clip_text", 123060480),
  ("clip_image", 86192640), ("bert_base", 108891648), ("t5_encoder", 109628544), ("whisper_tiny_encoder", 7632384),
  ("whisper_base_encoder", 19822592), ("whisper_tiny_step", 29551872), ("sd1_unet", 859520964),
  ("vae_decoder", 83653863), ("unet3d", 31190243), ("retinanet", 37657004), ("mask_rcnn", 44400693),
  ("yolov3", 61949149), ("yolov8n", 3157200), ("rnnt", 45323037), ("mamba_130m", 167750400), ("vits", 36284592))]
# Processes are as many as threads.
COLLECTIVE_ROWS: list[Row] = [
  Row(f"allreduce_{name}", "collective", "allreduce", args={"bytes": n, "repeats": repeats})
  for name, n, repeats in (("64mb", 64_000_000, 1), ("1mb", 1_000_000, 5), ("4kb", 4_000, 100))
] + [Row("ddp_mnist_step_512", "collective", "mnist_ddp"),
     Row("ddp_gpt2_block_step", "collective", "gpt2_ddp")]
# Sizes that fill an accelerator.
LARGE = 2 * SIDE
_MIB256 = 4.0 * LARGE * LARGE
LARGE_ROWS: list[Row] = [
  _matmul("8192", LARGE, LARGE, LARGE),
  _matmul("4096", SIDE, SIDE, SIDE, tf32=True),
  _matmul("8192", LARGE, LARGE, LARGE, tf32=True),
  _narrow("bf16", LARGE, "nn"), _narrow("bf16", LARGE, "nt"), _narrow("f16", LARGE, "nn"),
  _narrow("i8_i32", LARGE, "nt"),
  _map("copy", 1 << 26, 1),
  _map("add_mul", 1 << 26, 1, inputs=3),
  _map("exp", 1 << 26, 20),
  _map("gelu", 1 << 26, 4),
  Row("sum_64m", "memory", "sum", bytes=_MIB256, args={"axis": None, "side": LARGE}),
  Row("sum_8192_axis0", "memory", "sum", bytes=_MIB256, args={"axis": 0, "side": LARGE}),
  Row("sum_8192_axis1", "memory", "sum", bytes=_MIB256, args={"axis": 1, "side": LARGE}),
  Row("softmax_8192", "memory", "softmax", bytes=2 * _MIB256, args={"shape": (LARGE, LARGE)}),
]
BY_NAME = {row.name: row for row in ROWS + ZOO_ROWS + COLLECTIVE_ROWS + LARGE_ROWS}

# Losses of a float64 program. Adam's first steps go by the signs of gradients, so that rounding grows; and only
# programs that draw tinygrad's random numbers
# start from those weights: others are held to begin near them and to learn.
MNIST_LOSSES = (2.74020784, 1.69549121, 1.23384937)
MNIST_BATCH_LOSSES = (2.72725721, 1.43219257, 0.895903568)  # of the first 512 images, again and again
GPT2_LOSSES = (0.708488667, 0.616047416, 0.529812897)
RESNET_LOSSES = (6.69620022, 4.73630130, 3.29236237)
RESNET_LABELS = tuple(3 + 125 * i for i in range(8))


def gpt2_parameters() -> list[tuple[str, tuple[int, ...]]]:
  c = 768
  shapes = {"ln_1": (c,), "c_attn": (3 * c, c), "attn_proj": (c, c), "ln_2": (c,), "c_fc": (4 * c, c),
            "mlp_proj": (c, 4 * c)}
  return [(f"{name}.{part}", shape if part == "weight" else shape[:1]) for name,
          shape in shapes.items() for part in ("weight", "bias")]


def bound(shape: tuple[int, ...]) -> float:
  """Weights of a layer are uniform within this."""
  return 1 / math.sqrt(math.prod(shape[1:]))
