"""Records ConvNeXt of timm."""
import re
import timm
import torch
from pattern import give_weights, gradients, pattern, record, record_names

NAMES = ((r"^stem\.", "downsample_layers.0."), (r"^stages\.(\d)\.downsample\.", r"downsample_layers.\1."),
         (r"\.blocks\.", "."), (r"\.conv_dw\.", ".dwconv."), (r"\.mlp\.fc", ".pwconv"), (r"^head\.norm\.", "norm."),
         (r"^head\.fc\.", "head."))


def renamed(name: str) -> str:
  """Returns the name that the published file has for a weight of timm."""
  for before, after in NAMES: name = re.sub(before, after, name)
  return name


for version in ("tiny", "small", "base", "large", "xlarge"):
  with torch.device("meta"): record_names(f"convnext_{version}", timm.create_model(f"convnext_{version}"), renamed)

SMALL = dict(depths=(1, 2, 1, 2), dims=(8, 24, 40, 56), in_chans=2)
for name, options in (("convnext_tiny", {}), ("convnext_odd", SMALL)):
  model = timm.create_model("convnext_tiny", num_classes=10, **options).eval()
  names = give_weights(model, renamed)
  images = pattern("images", 2, options.get("in_chans", 3), 64, 70)
  logits = model(images)
  out = {"logits": logits, **gradients(model, logits, names)}
  some = ("downsample_layers.0.0.weight", "downsample_layers.1.0.bias", "stages.0.0.gamma", "stages.2.0.dwconv.weight",
          "stages.3.1.pwconv1.weight", "norm.weight", "head.bias")
  record(name, out, lambda key: not key.startswith("gradient.") or key.removeprefix("gradient.") in some)
