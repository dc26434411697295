"""Records YOLOv8 of Ultralytics, detections with torchvision's overlaps, and a letterboxed image."""
import torch
import torchvision
from ultralytics.nn.tasks import DetectionModel, yaml_model_load
from pattern import give_weights, gradients, numbers, pattern, record, record_names

LAYERS = {0: "net.b1.0", 1: "net.b1.1", 2: "net.b2.0", 3: "net.b2.1", 4: "net.b2.2", 5: "net.b3.0", 6: "net.b3.1",
          7: "net.b4.0", 8: "net.b4.1", 9: "net.b5.0", 12: "fpn.n1", 15: "fpn.n2", 16: "fpn.n3", 18: "fpn.n4",
          19: "fpn.n5", 21: "fpn.n6", 22: "head"}
FIXED = "model.22.dfl.conv.weight"  # the numbers 0 to 15, not trained


def renamed(name: str) -> str:
  """Returns tinygrad's name of a weight."""
  _, number, rest = name.split(".", 2)
  return f"{LAYERS[int(number)]}.{rest.replace('m.', 'bottleneck.', 1) if rest.startswith('m.') else rest}"


def network(variant: str, classes: int) -> DetectionModel:
  return DetectionModel(f"yolov8{variant}.yaml", nc=classes, verbose=False)


for variant in "nsmlx": record_names(f"yolov8{variant}", network(variant, 80))

# The last one has the depth and the ratio of l and x, and few channels.
for variant in ("n", "s", "m", "deep"):
  if variant == "deep":
    sizes = yaml_model_load("yolov8l.yaml")
    sizes["scales"]["l"] = [1.0, 0.25, 512]
    model = DetectionModel(sizes, nc=7, verbose=False)
  else:
    model = network(variant, 7)
  names = give_weights(model, lambda name: None if name == FIXED else renamed(name))
  model.eval()
  images = (pattern("images", 2, 3, 64, 96) + 1) / 2
  predictions = model(images)[0]
  out = {"boxes": predictions[:, :4], "classes": predictions[:, 4:]}
  if variant == "n":
    model.requires_grad_()
    out.update(gradients(model, model(images)[0], names))
    model.train()
    with torch.no_grad(): features = model(pattern("images", 4, 3, 64, 64))
    out["net.b1.0.bn.running_var"] = model.model[0].bn.running_var
    out["head.cv3.2.1.bn.running_mean"] = model.model[22].cv3[2][1].bn.running_mean
  some = ("net.b1.0.conv.weight", "net.b2.2.bottleneck.1.cv2.bn.bias", "net.b5.0.cv1.conv.weight",
          "fpn.n4.cv2.bn.weight", "head.cv2.1.2.bias", "head.cv3.2.0.conv.weight")
  record(f"yolov8{variant}", out, lambda key: not key.startswith("gradient.") or key.removeprefix("gradient.") in some)

# Predictions whose boxes overlap often. A better box of the class suppresses, even one that is suppressed itself.
centers = (pattern("centers", 2, 2, 80) + 1) * 30
sides = (pattern("sides", 2, 2, 80) + 1.4) * 20
classes = (pattern("classes", 2, 3, 80) + 1) / 2
found = []
for center, side, probability in zip(centers, sides, classes):
  boxes = torch.cat([center - side / 2, center + side / 2]).T
  score, label = probability.max(0)
  order = score.argsort(descending=True)[:40]
  boxes, score, label = boxes[order], score[order], label[order]
  overlap = (torchvision.ops.box_iou(boxes, boxes) > 0.45) & (label[:, None] == label)
  keep = (score >= 0.6) & ~overlap.triu(1).any(0)
  found.append(torch.cat([boxes, score[:, None], label[:, None].double()], 1) * keep[:, None])
image = numbers("image", 256, 50, 75, 3).double()
resized = torch.nn.functional.interpolate(image.permute(2, 0, 1)[None], size=(64, 96), mode="bilinear")[0]
record("yolov8_detections", {"found": torch.stack(found), "letterbox": resized / 255})
