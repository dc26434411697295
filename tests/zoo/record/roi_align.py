"""Records features of regions with torchvision's roi_align, and their gradients."""
import torch
from torchvision.ops import roi_align
from pattern import pattern, record


def level_of(boxes: torch.Tensor, levels: int, first: int = 2) -> torch.Tensor:
  """Returns the level whose stride is 2^(first + level) for boxes that include the pixels of their last corners."""
  area = (boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)
  return (4 + torch.log2(area.sqrt() / 224 + 1e-6)).floor().clamp(first, first + levels - 1).long() - first


def pooled(levels: list[torch.Tensor], boxes: list[torch.Tensor], size: int) -> torch.Tensor:
  """Returns the features of the boxes of all images."""
  images = torch.cat([torch.full((len(b), 1), i, dtype=b.dtype) for i, b in enumerate(boxes)])
  regions = torch.cat([images, torch.cat(boxes)], 1)
  at = level_of(torch.cat(boxes), len(levels))
  out = torch.zeros(len(regions), levels[0].shape[1], size, size, dtype=levels[0].dtype)
  for i, level in enumerate(levels):
    chosen = (at == i).nonzero()[:, 0]
    found = roi_align(level, regions[chosen], size, spatial_scale=2.0**(-2 - i), sampling_ratio=2, aligned=False)
    out = out.index_put((chosen,), found)
  return out


if __name__ == "__main__":
  levels = [pattern(f"level.{i}", 2, 6, 96 >> i, 128 >> i).requires_grad_() for i in range(3)]
  # Some boxes are thin, some reach beyond the image of 384 by 512 pixels.
  corner = (pattern("corners", 24, 2) + 1) * 180 - 20
  sides = (pattern("sides", 24, 2) + 1.02) * 160
  boxes = torch.cat([corner, corner + sides], 1)
  regions = pooled(levels, [boxes[:10], boxes[10:]], 5)
  (regions * pattern("output.gradient", *regions.shape)).sum().backward()
  record("roi_align", {"regions": regions, "level_of": level_of(boxes, 3),
                       **{f"gradient.level.{i}": t.grad for i, t in enumerate(levels)}})
