"""Networks of the zoo rows that no common package has, or none without much besides, written with PyTorch's layers."""
import math
import torch
from torch import nn
from torch.nn import functional as F


# ---- 3-D U-Net, of MLPerf ----

def conv3d(inputs_: int, outputs: int, stride: int = 1) -> nn.Sequential:
  return nn.Sequential(nn.Conv3d(inputs_, outputs, 3, stride, 1, bias=False),
                       nn.InstanceNorm3d(outputs, affine=True), nn.ReLU(inplace=True))


class UNet3D(nn.Module):
  FILTERS = (32, 64, 128, 256, 320)
  def __init__(self):
    super().__init__()
    levels = list(zip((1,) + self.FILTERS, self.FILTERS))
    ups = [(self.FILTERS[-1],) * 2] + [(b, a) for a, b in reversed(levels[1:])]
    self.down = nn.ModuleList(nn.Sequential(conv3d(a, b, 2 if i else 1), conv3d(b, b))
                              for i, (a, b) in enumerate(levels))
    self.bottleneck = nn.Sequential(conv3d(320, 320, 2), conv3d(320, 320))
    self.up = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in ups)
    self.joined = nn.ModuleList(nn.Sequential(conv3d(2 * b, b), conv3d(b, b)) for _, b in ups)
    self.output = nn.Conv3d(32, 3, 1)
  def forward(self, x):
    skips = []
    for block in self.down:
      x = block(x)
      skips.append(x)
    x = self.bottleneck(x)
    for up, joined, skip in zip(self.up, self.joined, reversed(skips)): x = joined(torch.cat([up(x), skip], 1))
    return self.output(x)


# ---- YOLO ----

class Conv(nn.Sequential):
  """A convolution, batch norm, and an activation."""
  def __init__(self, inputs_: int, outputs: int, size: int = 1, stride: int = 1, act=lambda: nn.SiLU(inplace=True),
               eps: float = 1e-3):
    super().__init__(nn.Conv2d(inputs_, outputs, size, stride, size // 2, bias=False),
                     nn.BatchNorm2d(outputs, eps=eps), act())


def dark(inputs_: int, outputs: int, size: int = 1, stride: int = 1) -> Conv:
  return Conv(inputs_, outputs, size, stride, lambda: nn.LeakyReLU(0.1, inplace=True), 1e-5)


class DarkBlock(nn.Module):
  def __init__(self, channels: int):
    super().__init__()
    self.cv1, self.cv2 = dark(channels, channels // 2), dark(channels // 2, channels, 3)
  def forward(self, x): return x + self.cv2(self.cv1(x))


class YOLOv3(nn.Module):
  ANCHORS = torch.tensor([[[116, 90], [156, 198], [373, 326]], [[30, 61], [62, 45], [59, 119]],
                          [[10, 13], [16, 30], [33, 23]]])
  def __init__(self, classes: int = 80):
    super().__init__()
    self.stem = dark(3, 32, 3)
    self.stages = nn.ModuleList(nn.Sequential(dark(c // 2, c, 3, 2), *[DarkBlock(c) for _ in range(n)])
                                for c, n in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)))
    def five(inputs_, c):
      return nn.Sequential(dark(inputs_, c), dark(c, 2 * c, 3), dark(2 * c, c), dark(c, 2 * c, 3), dark(2 * c, c))
    self.bodies = nn.ModuleList(five(*sizes) for sizes in ((1024, 512), (768, 256), (384, 128)))
    self.heads = nn.ModuleList(nn.Sequential(dark(c, 2 * c, 3), nn.Conv2d(2 * c, 3 * (5 + classes), 1))
                               for c in (512, 256, 128))
    self.lateral = nn.ModuleList(dark(c, c // 2) for c in (512, 256))
  def forward(self, images):
    x, features = self.stem(images), []
    for stage in self.stages:
      x = stage(x)
      features.append(x)
    boxes = []
    for i, (body, head) in enumerate(zip(self.bodies, self.heads)):
      if i: x = torch.cat([F.interpolate(self.lateral[i - 1](x), scale_factor=2), features[4 - i]], 1)
      x = body(x)
      boxes.append(self.boxes(head(x), self.ANCHORS[i], images.shape[2] // x.shape[2]))
    return torch.cat(boxes, 1)
  def boxes(self, x, anchors, stride):
    x = x.unflatten(1, (3, -1)).permute(0, 3, 4, 1, 2)
    rows, columns = torch.meshgrid(torch.arange(x.shape[1]), torch.arange(x.shape[2]), indexing="ij")
    centre = (x[..., :2].sigmoid() + torch.stack([columns, rows], -1)[:, :, None]) * stride
    return torch.cat([centre, x[..., 2:4].exp() * anchors, x[..., 4:].sigmoid()], -1).flatten(1, 3)


class Bottleneck(nn.Module):
  def __init__(self, channels: int, shortcut: bool):
    super().__init__()
    self.cv1, self.cv2, self.shortcut = Conv(channels, channels, 3), Conv(channels, channels, 3), shortcut
  def forward(self, x): return x + self.cv2(self.cv1(x)) if self.shortcut else self.cv2(self.cv1(x))


class C2f(nn.Module):
  def __init__(self, inputs_: int, outputs: int, n: int, shortcut: bool):
    super().__init__()
    half = outputs // 2
    self.cv1, self.cv2 = Conv(inputs_, outputs), Conv((2 + n) * half, outputs)
    self.m = nn.ModuleList(Bottleneck(half, shortcut) for _ in range(n))
  def forward(self, x):
    parts = list(self.cv1(x).chunk(2, 1))
    for block in self.m: parts.append(block(parts[-1]))
    return self.cv2(torch.cat(parts, 1))


class SPPF(nn.Module):
  def __init__(self, channels: int):
    super().__init__()
    self.cv1, self.cv2, self.pool = Conv(channels, channels // 2), Conv(2 * channels, channels), nn.MaxPool2d(5, 1, 2)
  def forward(self, x):
    parts = [self.cv1(x)]
    for _ in range(3): parts.append(self.pool(parts[-1]))
    return self.cv2(torch.cat(parts, 1))


class YOLOv8n(nn.Module):
  def __init__(self, classes: int = 80):
    super().__init__()
    def stage(inputs_, outputs, n): return nn.Sequential(Conv(inputs_, outputs, 3, 2), C2f(outputs, outputs, n, True))
    self.stem, self.stages = Conv(3, 16, 3, 2), nn.ModuleList([stage(16, 32, 1), stage(32, 64, 2), stage(64, 128, 2),
                                                               stage(128, 256, 1)])
    self.sppf = SPPF(256)
    self.n1, self.n2 = C2f(384, 128, 1, False), C2f(192, 64, 1, False)
    self.n3, self.n4 = Conv(64, 64, 3, 2), C2f(192, 128, 1, False)
    self.n5, self.n6 = Conv(128, 128, 3, 2), C2f(384, 256, 1, False)
    def branch(c, inner, last):
      return nn.Sequential(Conv(c, inner, 3), Conv(inner, inner, 3), nn.Conv2d(inner, last, 1))
    self.box = nn.ModuleList(branch(c, 64, 64) for c in (64, 128, 256))
    self.cls = nn.ModuleList(branch(c, classes, classes) for c in (64, 128, 256))
    self.dfl = nn.Conv2d(16, 1, 1, bias=False)
  def forward(self, images):
    x, features = self.stem(images), []
    for stage in self.stages:
      x = stage(x)
      features.append(x)
    p5 = self.sppf(x)
    n1 = self.n1(torch.cat([F.interpolate(p5, scale_factor=2), features[2]], 1))
    n2 = self.n2(torch.cat([F.interpolate(n1, scale_factor=2), features[1]], 1))
    n4 = self.n4(torch.cat([self.n3(n2), n1], 1))
    return self.found([n2, n4, self.n6(torch.cat([self.n5(n4), p5], 1))], images.shape[2])
  def found(self, levels, size):
    boxes = torch.cat([b(x).flatten(2) for b, x in zip(self.box, levels)], 2)
    classes = torch.cat([c(x).flatten(2) for c, x in zip(self.cls, levels)], 2)
    sides = self.dfl(boxes.unflatten(1, (4, 16)).transpose(2, 1).softmax(1))[:, 0]
    places, strides = [], []
    for x in levels:
      rows, columns = torch.meshgrid(torch.arange(x.shape[2]) + 0.5, torch.arange(x.shape[3]) + 0.5, indexing="ij")
      places.append(torch.stack([columns, rows]).flatten(1))
      strides.append(torch.full((rows.numel(),), size / x.shape[2]))
    places, strides = torch.cat(places, 1), torch.cat(strides)
    low, high = places - sides[:, :2], places + sides[:, 2:]
    return torch.cat([torch.cat([(low + high) / 2, high - low], 1) * strides, classes.sigmoid()], 1)


# ---- RNN-T, of MLPerf ----

class Rnnt(nn.Module):
  def __init__(self):
    super().__init__()
    self.before, self.after = nn.LSTM(240, 1024, 2), nn.LSTM(2048, 1024, 3)
    self.embed, self.text = nn.Embedding(28, 320), nn.LSTM(320, 320, 2)
    self.joint_in, self.joint_out = nn.Linear(1344, 512), nn.Linear(512, 29)
  def forward(self, spectra, labels):
    x = self.before(spectra)[0]
    heard = self.after(torch.cat([x[0::2], x[1::2]], 2))[0].transpose(0, 1)
    said = self.text(self.embed(labels).transpose(0, 1))[0].transpose(0, 1)
    # A product for each part, so that pairs are only added.
    a, b = self.joint_in.weight.split([1024, 320], 1)
    return self.joint_out(F.relu(F.linear(heard, a, self.joint_in.bias)[:, :, None] + F.linear(said, b)[:, None]))


# ---- a step of Whisper's decoder, with a cache ----

class Attention(nn.Module):
  def __init__(self, width: int, heads: int):
    super().__init__()
    self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
    self.key, self.heads = nn.Linear(width, width, bias=False), heads
  def forward(self, x, keys, values):
    q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.query(x), keys, values))
    return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
  def __init__(self, width: int, heads: int):
    super().__init__()
    self.attn, self.cross_attn = Attention(width, heads), Attention(width, heads)
    self.attn_ln, self.cross_attn_ln, self.mlp_ln = (nn.LayerNorm(width) for _ in range(3))
    self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class WhisperStep(nn.Module):
  """The next token after a hundred others, whose keys and values are kept in storage for all positions."""
  BEFORE = 100
  def __init__(self, width: int = 384, layers: int = 4, heads: int = 6, vocabulary: int = 51864):
    super().__init__()
    self.token_embedding = nn.Embedding(vocabulary, width)
    self.positional_embedding = nn.Parameter(torch.empty(448, width))
    self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
    self.ln = nn.LayerNorm(width)
    self.cache = [[torch.rand(1, n, width) for n in (448, 448, 1500, 1500)] for _ in range(layers)]
  def forward(self, token):
    x, here = self.token_embedding(token) + self.positional_embedding[self.BEFORE], slice(0, self.BEFORE + 1)
    for block, (keys, values, audio_keys, audio_values) in zip(self.blocks, self.cache):
      a = block.attn_ln(x)
      keys[:, self.BEFORE], values[:, self.BEFORE] = block.attn.key(a)[:, 0], block.attn.value(a)[:, 0]
      x = x + block.attn(a, keys[:, here], values[:, here])
      x = x + block.cross_attn(block.cross_attn_ln(x), audio_keys, audio_values)
      x = x + block.mlp(block.mlp_ln(x))
    return F.linear(self.ln(x), self.token_embedding.weight)
