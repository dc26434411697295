"""Records boxes of torchvision: overlaps, and which boxes non-maximum suppression keeps."""
import torch
import torchvision
from pattern import numbers, pattern, record


def boxes(name: str, count: int) -> torch.Tensor:
  """Returns boxes that overlap often: corners from 0 to 40, sides from 4 to 24."""
  corners = (pattern(f"{name}.corners", count, 2) + 1) * 20
  return torch.cat([corners, corners + (pattern(f"{name}.sides", count, 2) + 1.4) * 10], 1)


a, b, scores = boxes("a", 60), boxes("b", 30), pattern("scores", 60)
classes = numbers("classes", 3, 60)
record("detection", {
    "iou": torchvision.ops.box_iou(a, b), "nms": torchvision.ops.nms(a, scores, 0.3),
    "batched_nms": torchvision.ops.batched_nms(a, scores, classes, 0.3)})
