"""Records ResNet and ResNeXt of torchvision."""
import torch
import torchvision
from pattern import give_weights, gradients, pattern, record

for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d"):
  model = getattr(torchvision.models, name)(weights=None, num_classes=10)
  names = give_weights(model)
  images = pattern("images", 2, 3, 64, 64)
  model.eval()
  logits = model(images)
  out = {"logits": logits}
  if name in ("resnet18", "resnext50_32x4d"):
    out.update(gradients(model, logits, names))
    # Gradients through statistics of small batches depend on rounding: in float32 PyTorch's are 6 % off.
    model.train()
    with torch.no_grad(): out["trained"] = model(pattern("images", 4, 3, 64, 64))
    out["layer1.0.bn1.running_var"] = model.layer1[0].bn1.running_var
  some = ("conv1.weight", "layer1.0.bn1.bias", "layer2.0.downsample.0.weight", "layer3.1.conv2.weight", "fc.bias")
  record(name, out, lambda key: not key.startswith("gradient.") or key.removeprefix("gradient.") in some)
