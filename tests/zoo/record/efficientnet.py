"""Records EfficientNet of the package efficientnet_pytorch, whose names of weights are those of the published files."""
import torch
from efficientnet_pytorch import EfficientNet
from pattern import give_weights, gradients, pattern, record, record_names


def renamed(name: str) -> str:
  """Returns the name that a network's weight has in C++."""
  layer, _, last = name.rpartition(".")
  if layer.rpartition(".")[2].startswith("_bn"): return name
  return layer if last == "weight" else f"{layer}_bias"


def network(number: int, size: tuple[int, int], classes: int) -> EfficientNet:
  model = EfficientNet.from_name(f"efficientnet-b{number}", image_size=size, num_classes=classes, dropout_rate=0.0,
                                 drop_connect_rate=0.0)
  model.set_swish(memory_efficient=False)
  return model


for number in range(8):
  with torch.device("meta"): record_names(f"efficientnet_b{number}", network(number, (224, 224), 1000))

# Odd sizes of images: windows of strided convolutions begin elsewhere.
for number, height, width in ((0, 64, 64), (1, 57, 70), (2, 34, 49)):
  model = network(number, (height, width), 10)
  names = {name: renamed(name) for name in give_weights(model)}
  record_names(f"efficientnet_b{number}_10", model)
  model.eval()
  images = pattern("images", 2, 3, height, width)
  logits = model(images)
  out = {"logits": logits}
  if number == 0:
    out.update(gradients(model, logits, names))
    model.train()
    with torch.no_grad(): out["trained"] = model(pattern("images", 8, 3, height, width))
    out["_bn0.running_mean"] = model._bn0.running_mean
    out["_blocks.3._bn1.running_var"] = model._blocks[3]._bn1.running_var
  some = ("_conv_stem", "_blocks.1._se_reduce", "_blocks.4._depthwise_conv", "_blocks.9._bn2.weight", "_fc_bias")
  record(f"efficientnet_b{number}", out,
         lambda key: not key.startswith("gradient.") or key.removeprefix("gradient.") in some)
