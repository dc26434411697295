"""Records Inception v3 of torchvision, that of the package pytorch-fid, and the distance between statistics."""
import pytorch_fid.inception as fid
import torch
import torchvision
from pattern import give_weights, gradients, pattern, record, record_names


def network(classes: int, **options) -> torch.nn.Module:
  return torchvision.models.inception_v3(weights=None, num_classes=classes, init_weights=False, dropout=0.0, **options)


def fid_network() -> torch.nn.Module:
  """Returns the network that pytorch-fid downloads weights for."""
  model = network(1008, aux_logits=False)
  for name, block, *options in (("5b", fid.FIDInceptionA, 192, 32), ("5c", fid.FIDInceptionA, 256, 64),
                                ("5d", fid.FIDInceptionA, 288, 64), ("6b", fid.FIDInceptionC, 768, 128),
                                ("6c", fid.FIDInceptionC, 768, 160), ("6d", fid.FIDInceptionC, 768, 160),
                                ("6e", fid.FIDInceptionC, 768, 192), ("7b", fid.FIDInceptionE_1, 1280),
                                ("7c", fid.FIDInceptionE_2, 2048)):
    setattr(model, f"Mixed_{name}", block(*options))
  return model


with torch.device("meta"):
  record_names("inception3", network(1000, aux_logits=True))
  record_names("fid_inception", fid_network())

some = ("Conv2d_1a_3x3.conv.weight", "Mixed_5c.branch_pool.bn.bias", "Mixed_6c.branch7x7dbl_4.conv.weight",
        "Mixed_7a.branch7x7x3_2.bn.weight", "Mixed_7c.branch3x3_2b.conv.weight", "fc.bias")
model = network(10, aux_logits=True)
names = give_weights(model)
model.eval()
images = pattern("images", 2, 3, 107, 96)
logits = model(images)
out = {"logits": logits}
out.update((k, g) for k, g in gradients(model, logits, names).items() if k.removeprefix("gradient.") in some)
out["aux"] = model.AuxLogits(pattern("middle", 2, 768, 17, 17))
model.transform_input = True
out["transformed"] = model(images)
model.transform_input = False
model.AuxLogits = None
model.train()
with torch.no_grad(): out["trained"] = model(pattern("images", 4, 3, 139, 139)).logits
out["Mixed_5d.branch1x1.bn.running_mean"] = model.Mixed_5d.branch1x1.bn.running_mean
record("inception3", out)

built = fid_network()
give_weights(built)
fid.fid_inception_v3 = lambda: built
model = fid.InceptionV3([3], resize_input=False).double().eval()
images = (pattern("images", 2, 3, 50, 64) + 1) / 2
resized = torch.nn.functional.interpolate(images, size=(107, 107), mode="bilinear", align_corners=False)
record("fid_inception", {"activations": model(resized)[0]})

# Few samples give covariances of less than full rank.
out = {}
for samples, name in ((40, "full"), (7, "low")):
  a, b = pattern("a", samples, 12), pattern("b", samples, 12) * 0.5 + 0.2
  sa, sb = torch.cov(a.T), torch.cov(b.T)
  roots = torch.linalg.eigvals(sa @ sb).real.clamp(min=0).sqrt().sum()
  out[name] = (a.mean(0) - b.mean(0)).square().sum() + sa.trace() + sb.trace() - 2 * roots
  out[f"{name}.covariance"] = sa
record("frechet", out)
