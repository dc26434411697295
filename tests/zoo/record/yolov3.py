"""Records YOLOv3 and a network with pools, built here from lists of Darknet's layers, and writes those lists as
Darknet's configuration files."""
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from pattern import EXPECTED, give_weights, gradients, pattern, record, record_names

ANCHORS = [(10, 13), (16, 30), (33, 23), (30, 61), (62, 45), (59, 119), (116, 90), (156, 198), (373, 326)]


def conv(filters: int, size: int, stride: int = 1) -> dict:
  return dict(type="convolutional", batch_normalize=1, filters=filters, size=size, stride=stride, pad=1,
              activation="leaky")


def yolov3(classes: int, width: float = 1) -> list[dict]:
  """Returns the layers behind [net]; layers that others read are counted from the reader, as in the published file."""
  c = lambda filters, size, stride=1: conv(int(filters * width), size, stride)
  layers = [c(32, 3)]
  for filters, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
    layers.append(c(filters, 3, 2))
    layers += [c(filters // 2, 1), c(filters, 3), {"type": "shortcut", "from": -3, "activation": "linear"}] * blocks
  for filters, masks, lateral in ((512, (6, 7, 8), None), (256, (3, 4, 5), 61), (128, (0, 1, 2), 36)):
    if lateral: layers += [dict(type="route", layers=[-4]), c(filters, 1), dict(type="upsample", stride=2),
                           dict(type="route", layers=[-1, lateral])]
    layers += [c(filters, 1), c(filters * 2, 3)] * 3
    layers.append(dict(type="convolutional", filters=3 * (5 + classes), size=1, stride=1, pad=1, activation="linear"))
    layers.append(dict(type="yolo", mask=masks, classes=classes))
  return layers


POOLED = [conv(8, 3), dict(type="maxpool", size=2, stride=2), conv(12, 3), dict(type="maxpool", size=2, stride=1),
          conv(12, 3), dict(type="maxpool", size=3, stride=1), dict(type="route", layers=[-1, -3]),
          dict(type="convolutional", filters=14, size=1, stride=1, pad=0, activation="linear"),
          dict(type="yolo", mask=(1, 4), classes=2)]


class Darknet(nn.Module):
  def __init__(self, layers: list[dict]):
    super().__init__()
    self.layers, self.module_list, channels = layers, nn.ModuleList(), []
    for i, layer in enumerate(layers):
      before, module = channels[-1] if channels else 3, nn.Sequential()
      if layer["type"] == "convolutional":
        normed, size = "batch_normalize" in layer, layer["size"]
        module.append(nn.Conv2d(before, layer["filters"], size, layer["stride"], size // 2, bias=not normed))
        if normed: module.append(nn.BatchNorm2d(layer["filters"]))
        before = layer["filters"]
      elif layer["type"] == "route":
        before = sum(channels[j if j >= 0 else i + j] for j in layer["layers"])
      channels.append(before)
      self.module_list.append(module)

  def forward(self, x):
    height, results, boxes = x.shape[2], [], []
    for i, (layer, module) in enumerate(zip(self.layers, self.module_list)):
      match layer["type"]:
        case "convolutional":
          x = module(x)
          if layer["activation"] == "leaky": x = F.leaky_relu(x, 0.1)
        case "maxpool":
          more = layer["size"] - 1
          x = F.pad(x, (more // 2, more - more // 2) * 2, value=-torch.inf)
          x = F.max_pool2d(x, layer["size"], layer["stride"])
        case "upsample": x = F.interpolate(x, scale_factor=2, mode="nearest")
        case "route": x = torch.cat([results[j if j >= 0 else i + j] for j in layer["layers"]], 1)
        case "shortcut": x = x + results[i + layer["from"]]
        case "yolo": boxes.append(self.boxes(x, layer, height // x.shape[2]))
      results.append(x)
    return torch.cat(boxes, 1)

  def boxes(self, x, layer, stride):
    out = []
    for k, part in zip(layer["mask"], x.split(5 + layer["classes"], 1)):
      rows, columns = torch.meshgrid(torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing="ij")
      out.append(torch.stack([(part[:, 0].sigmoid() + columns) * stride, (part[:, 1].sigmoid() + rows) * stride,
                              part[:, 2].exp() * ANCHORS[k][0], part[:, 3].exp() * ANCHORS[k][1],
                              *part[:, 4:].sigmoid().unbind(1)], -1))
    return torch.stack(out, 3).flatten(1, 3)


def configuration(layers: list[dict]) -> str:
  text = "[net]\n# The sizes images are trained with\nwidth=416\nheight = 416\nchannels=3\n"
  for layer in layers:
    text += f"\n[{layer['type']}]\n"
    for key, value in layer.items():
      if key != "type": text += f"{key}={','.join(map(str, value)) if isinstance(value, (list, tuple)) else value}\n"
    if layer["type"] == "yolo": text += "anchors = " + ",  ".join(f"{w},{h}" for w, h in ANCHORS) + "\n"
  return text


def file_order(model: Darknet) -> list[str]:
  """Returns the names of weights in the order in which Darknet writes them."""
  out = []
  for i, module in enumerate(model.module_list):
    last = ("1.bias", "1.weight", "1.running_mean", "1.running_var", "0.weight") if len(module) == 2 else \
           ("0.bias", "0.weight") if len(module) == 1 else ()
    out += [f"module_list.{i}.{name}" for name in last]
  return out


def parts(boxes: torch.Tensor) -> dict[str, torch.Tensor]:
  return {"boxes": boxes[..., :4], "probabilities": boxes[..., 4:]}


if __name__ == "__main__":
  (EXPECTED / "yolov3.cfg").write_text(configuration(yolov3(80)))
  (EXPECTED / "yolov3_pooled.cfg").write_text(configuration(POOLED))
  with torch.device("meta"): record_names("yolov3", Darknet(yolov3(80)))

  model = Darknet(yolov3(3, 1 / 8))
  names = give_weights(model)
  state = model.state_dict()
  lines = [" ".join([n, *map(str, state[n].shape)]) + "\n" for n in file_order(model)]
  (EXPECTED / "yolov3_small.names").write_text("".join(lines))
  model.eval()
  boxes = model((pattern("images", 2, 3, 64, 96) + 1) / 2)
  out = parts(boxes) | gradients(model, boxes, names)
  model.train()
  with torch.no_grad(): model((pattern("images", 4, 3, 64, 64) + 1) / 2)
  out["module_list.80.1.running_var"] = model.module_list[80][1].running_var
  some = ("module_list.0.0.weight", "module_list.35.1.weight", "module_list.58.0.weight", "module_list.81.0.bias",
          "module_list.96.1.bias", "module_list.105.0.weight")
  record("yolov3", out, lambda key: not key.startswith("gradient.") or key.removeprefix("gradient.") in some)

  model = Darknet(POOLED)
  give_weights(model)
  record("yolov3_pooled", parts(model.eval()(pattern("images", 2, 3, 12, 20))))

  # What the network could have computed of an image: overlapping boxes, a few of which have an object.
  boxes = torch.cat([(pattern("centers", 90, 2) + 1) * 30, (pattern("sides", 90, 2) + 1.4) * 20,
                     (pattern("probabilities", 90, 4) + 1) / 2], 1)
  boxes = boxes[boxes[:, 4] > 0.4]
  corners = torch.cat([boxes[:, :2] - boxes[:, 2:4] / 2, boxes[:, :2] + boxes[:, 2:4] / 2], 1)
  label = boxes[:, 5:].argmax(1)
  last_pixels = corners + torch.tensor([0, 0, 1, 1])  # boxes include the pixels of their greatest coordinates
  kept = torchvision.ops.batched_nms(last_pixels, boxes[:, 4], label, 0.4)
  record("yolov3_detections", {"found": torch.cat([corners, boxes[:, 4:5], label[:, None].double()], 1)[kept]})
