"""Records RetinaNet of torchvision: predictions, losses, anchors and detections."""
import re
import torch
import torchvision
from torchvision.models import resnet
from torchvision.models.detection import backbone_utils
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.retinanet import RetinaNet, retinanet_resnet50_fpn
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from pattern import give_weights, gradients, numbers, pattern, record, record_names


def renamed(name: str) -> str:
  """Returns the name of the published file, whose heads count activations as layers."""
  name = re.sub(r"(inner_blocks|layer_blocks)\.(\d)\.0\.", r"\1.\2.", name)
  return re.sub(r"head\.conv\.(\d)\.0\.", lambda m: f"head.conv.{2 * int(m[1])}.", name)


def resnext_retinanet(classes: int) -> RetinaNet:
  body = resnet.resnext50_32x4d(weights=None)
  backbone = backbone_utils._resnet_fpn_extractor(body, 5, returned_layers=[2, 3, 4],
                                                  extra_blocks=LastLevelP6P7(256, 256))
  return RetinaNet(backbone, classes)


def network(classes: int) -> RetinaNet:
  return retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=classes)


if __name__ == "__main__":
  with torch.device("meta"):
    record_names("retinanet_torchvision", network(91))
    record_names("retinanet_resnext50_32x4d", resnext_retinanet(264), renamed)

  model = network(5)
  names = give_weights(model, renamed)
  model.eval()
  height, width = 76, 64
  images = pattern("images", 2, 3, height, width)
  features = list(model.backbone(images).values())
  head = model.head(features)
  anchors = model.anchor_generator(ImageList(images, [(height, width)] * 2), features)
  out = {"offsets": head["bbox_regression"], "probabilities": head["cls_logits"].sigmoid(), "anchors": anchors[0]}

  targets = []
  for i, count in enumerate((3, 2)):
    corner = (pattern(f"corners.{i}", count, 2) + 1) * 15
    boxes = torch.cat([corner, corner + (pattern(f"sides.{i}", count, 2) + 2) * 14], 1)
    targets.append({"boxes": boxes, "labels": numbers(f"labels.{i}", 5, count)})
  matches = [model.proposal_matcher(torchvision.ops.box_iou(t["boxes"], anchors[0])) for t in targets]
  losses = model.head.compute_loss(targets, head, anchors, matches)
  out.update(classification=losses["classification"], regression=losses["bbox_regression"])
  out.update({f"matches.{i}": m for i, m in enumerate(matches)})
  total = (losses["classification"] + losses["bbox_regression"])[None]
  some = ("backbone.body.layer3.2.conv2.weight", "backbone.fpn.inner_blocks.0.bias",
          "backbone.fpn.layer_blocks.2.weight", "backbone.fpn.extra_blocks.p6.weight",
          "head.classification_head.conv.4.weight", "head.classification_head.cls_logits.bias",
          "head.regression_head.conv.0.bias", "head.regression_head.bbox_reg.weight")
  out.update((k, g) for k, g in gradients(model, total, names).items() if k.removeprefix("gradient.") in some)
  record("retinanet", out)

  # Detections of what a network could have computed: few probabilities above the threshold.
  counts = [f.shape[2] * f.shape[3] * 9 for f in features]
  places = sum(counts)
  offsets = pattern("offsets", 2, places, 4) * torch.tensor([0.5, 0.5, 1.0, 1.0])
  logits = pattern("logits", 2, places, 5) * 8 - 4
  for key, options in (("found", {}), ("few", dict(score_thresh=0.3, topk_candidates=20, detections_per_img=10))):
    tried = model
    for option, value in options.items(): setattr(tried, option, value)
    split = {"cls_logits": logits.split(counts, 1), "bbox_regression": offsets.split(counts, 1)}
    split = {k: list(v) for k, v in split.items()}
    found = tried.postprocess_detections(split, [list(a.split(counts)) for a in anchors], [(height, width)] * 2)
    record(f"retinanet_{key}", {
        f"{i}": torch.cat([d["boxes"], d["scores"][:, None], d["labels"][:, None].double()], 1)
        for i, d in enumerate(found)})
