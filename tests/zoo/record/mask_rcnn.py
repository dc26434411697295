"""Records Mask R-CNN as maskrcnn-benchmark published it, put together here from parts of torchvision: boxes include the
pixels of their greatest coordinates, the strides of the ResNet are in its 1x1 convolutions."""
import re
import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool
from pattern import EXPECTED, give_weights, pattern, record, record_names
from roi_align import pooled

SIZES = (32, 64, 128, 256, 512)


class Backbone(nn.Module):
  def __init__(self):
    super().__init__()
    self.body = torchvision.models.resnet50(weights=None)
    del self.body.fc
    for layer in (self.body.layer2, self.body.layer3, self.body.layer4):
      layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
    self.fpn = FeaturePyramidNetwork([256, 512, 1024, 2048], 256, LastLevelMaxPool())

  def forward(self, x):
    body = self.body
    x, out = body.maxpool(body.relu(body.bn1(body.conv1(x)))), {}
    for name in ("layer1", "layer2", "layer3", "layer4"): out[name] = x = getattr(body, name)(x)
    return list(self.fpn(out).values())


class MaskRCNN(nn.Module):
  def __init__(self, classes: int = 81, hidden: tuple[int, int] = (1024, 256)):
    super().__init__()
    linear, conv = hidden
    self.backbone = Backbone()
    self.rpn = nn.ModuleDict({"head": nn.ModuleDict({
        "conv": nn.Conv2d(256, 256, 3, padding=1), "cls_logits": nn.Conv2d(256, 3, 1),
        "bbox_pred": nn.Conv2d(256, 12, 1)})})
    box = {"feature_extractor": nn.ModuleDict({"fc6": nn.Linear(256 * 49, linear), "fc7": nn.Linear(linear, linear)}),
           "predictor": nn.ModuleDict({"cls_score": nn.Linear(linear, classes),
                                       "bbox_pred": nn.Linear(linear, 4 * classes)})}
    convs = {f"mask_fcn{i}": nn.Conv2d(256 if i == 1 else conv, conv, 3, padding=1) for i in range(1, 5)}
    mask = {"feature_extractor": nn.ModuleDict(convs),
            "predictor": nn.ModuleDict({"conv5_mask": nn.ConvTranspose2d(conv, conv, 2, 2),
                                        "mask_fcn_logits": nn.Conv2d(conv, classes, 1)})}
    self.roi_heads = nn.ModuleDict({"box": nn.ModuleDict(box), "mask": nn.ModuleDict(mask)})


def renamed(name: str) -> str: return re.sub(r"(inner_blocks|layer_blocks)\.(\d)\.0\.", r"\1.\2.", name)


def published(name: str) -> str | None:
  """Returns the name in the published file, whose norms do not count their batches."""
  if name.endswith("num_batches_tracked"): return None
  name = re.sub(r"(inner|layer)_blocks\.(\d)", lambda m: f"fpn_{m[1]}{int(m[2]) + 1}", renamed(name))
  return "module." + re.sub(r"body\.(conv1|bn1)", r"body.stem.\1", name)


def cells(stride: int, size: int) -> np.ndarray:
  """Returns the anchors in the middle of a square of `stride` pixels."""
  out = []
  for ratio in (0.5, 1.0, 2.0):
    width = np.round(np.sqrt(stride * stride / ratio))
    sides = np.array([width, np.round(width * ratio)]) * size / stride
    middle = (stride - 1) / 2
    out.append([*(middle - (sides - 1) / 2), *(middle + (sides - 1) / 2)])
  return np.array(out)


def grid(level: torch.Tensor, stride: int, size: int) -> torch.Tensor:
  y, x = torch.meshgrid(torch.arange(level.shape[2]), torch.arange(level.shape[3]), indexing="ij")
  places = torch.stack([x, y, x, y], -1).reshape(-1, 1, 4) * stride
  return (places + torch.from_numpy(cells(stride, size))).reshape(-1, 4)


def decoded(offsets: torch.Tensor, anchors: torch.Tensor, weights=(1.0, 1.0, 1.0, 1.0)) -> torch.Tensor:
  sides = anchors[..., 2:] - anchors[..., :2] + 1
  middle = anchors[..., :2] + sides / 2
  offsets = offsets / torch.tensor(weights)
  middle = middle + offsets[..., :2] * sides
  sides = sides * offsets[..., 2:].clamp(max=float(np.log(1000 / 16))).exp()
  return torch.cat([middle - sides / 2, middle + sides / 2 - 1], -1)


def clipped(boxes: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
  last = torch.tensor([size[1] - 1, size[0] - 1] * 2).double()
  return boxes.clamp(min=0).minimum(last)


def nms(boxes: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor, threshold: float) -> torch.Tensor:
  return torchvision.ops.batched_nms(boxes + torch.tensor([0, 0, 1, 1]), scores, labels, threshold)


def proposals(model: MaskRCNN, levels: list[torch.Tensor], sizes: list[tuple[int, int]], candidates: int,
              count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
  head, found = model.rpn["head"], [[] for _ in sizes]
  for i, level in enumerate(levels):
    x = F.relu(head["conv"](level))
    scores = head["cls_logits"](x).permute(0, 2, 3, 1).flatten(1).sigmoid()
    offsets = head["bbox_pred"](x).permute(0, 2, 3, 1).reshape(len(sizes), -1, 4)
    anchors = grid(level, 4 << i, SIZES[i])
    for k, size in enumerate(sizes):
      score, at = scores[k].topk(min(candidates, scores.shape[1]))
      boxes = clipped(decoded(offsets[k][at], anchors[at]), size)
      keep = nms(boxes, score, torch.zeros_like(at), 0.7)
      found[k].append((boxes[keep], score[keep]))
  out = []
  for of_image in found:
    boxes, scores = (torch.cat(t) for t in zip(*of_image))
    best = scores.argsort(descending=True)[:count]
    out.append((boxes[best], scores[best]))
  return out


def objects(model: MaskRCNN, levels: list[torch.Tensor], boxes: list[torch.Tensor], sizes: list[tuple[int, int]],
            count: int) -> list[torch.Tensor]:
  head = model.roi_heads["box"]
  x = pooled(levels[:4], boxes, 7).flatten(1)
  for name in ("fc6", "fc7"): x = F.relu(head["feature_extractor"][name](x))
  scores = head["predictor"]["cls_score"](x).softmax(1)
  offsets = head["predictor"]["bbox_pred"](x).reshape(len(x), -1, 4)
  out = []
  for size, around, score, offset in zip(sizes, boxes, scores.split([len(b) for b in boxes]),
                                         offsets.split([len(b) for b in boxes])):
    moved = clipped(decoded(offset, around[:, None], (10.0, 10.0, 5.0, 5.0)), size)
    row, label = (score[:, 1:] > 0.05).nonzero().T
    label = label + 1
    candidates, p = moved[row, label], score[row, label]
    keep = nms(candidates, p, label, 0.5)[:count]
    out.append(torch.cat([candidates[keep], p[keep, None], label[keep, None].double()], 1))
  return out


def masks(model: MaskRCNN, levels: list[torch.Tensor], found: list[torch.Tensor]) -> list[torch.Tensor]:
  head = model.roi_heads["mask"]
  x = pooled(levels[:4], [f[:, :4] for f in found], 14)
  for layer in head["feature_extractor"].values(): x = F.relu(layer(x))
  x = head["predictor"]["mask_fcn_logits"](F.relu(head["predictor"]["conv5_mask"](x))).sigmoid()
  labels = torch.cat(found)[:, 5].long()
  return x[torch.arange(len(x)), labels].split([len(f) for f in found])


if __name__ == "__main__":
  with torch.device("meta"): model = MaskRCNN()
  record_names("mask_rcnn", model, renamed)
  record_names("mask_rcnn_published", model, published)
  with open(EXPECTED / "mask_rcnn_published.names", "a") as names:
    for i in range(5): names.write(f"module.rpn.anchor_generator.cell_anchors.{i} 3 4\n")

  model = MaskRCNN(7, (64, 32))
  give_weights(model, renamed)
  model.eval()
  sizes = [(60, 90), (64, 80)]
  images = [F.pad(pattern(f"image.{i}", 3, h, w), (0, 96 - w, 0, 64 - h)) for i, (h, w) in enumerate(sizes)]
  with torch.no_grad():
    levels = model.backbone(torch.stack(images))
    proposed = proposals(model, levels, sizes, 60, 20)
    found = objects(model, levels, [boxes for boxes, _ in proposed], sizes, 8)
    out = {f"level.{i}": level for i, level in enumerate(levels)}
    for i, (boxes, scores) in enumerate(proposed): out.update({f"boxes.{i}": boxes, f"scores.{i}": scores})
    for i, mask in enumerate(masks(model, levels, found)): out.update({f"objects.{i}": found[i], f"masks.{i}": mask})
    for i, level in enumerate(levels): out[f"anchors.{i}"] = grid(level, 4 << i, SIZES[i])
  record("mask_rcnn", out)
