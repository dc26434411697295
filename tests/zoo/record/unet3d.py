"""Records 3-D U-Net, written here with PyTorch's layers: MLPerf's network for the kidney data set KiTS19."""
import torch
from torch import nn
from pattern import give_weights, gradients, pattern, record, record_names


def conv(in_channels: int, out: int, stride: int = 1) -> nn.Sequential:
  return nn.Sequential(nn.Conv3d(in_channels, out, 3, stride, 1, bias=False), nn.InstanceNorm3d(out, affine=True),
                       nn.ReLU())


class Down(nn.Module):
  def __init__(self, in_channels: int, out: int, stride: int = 2):
    super().__init__()
    self.conv1, self.conv2 = conv(in_channels, out, stride), conv(out, out)

  def forward(self, x): return self.conv2(self.conv1(x))


class Up(nn.Module):
  def __init__(self, in_channels: int, out: int):
    super().__init__()
    self.upsample_conv = nn.Sequential(nn.ConvTranspose3d(in_channels, out, 2, 2))
    self.conv1, self.conv2 = conv(2 * out, out), conv(out, out)

  def forward(self, x, skip): return self.conv2(self.conv1(torch.cat([self.upsample_conv(x), skip], 1)))


class UNet3D(nn.Module):
  def __init__(self, in_channels: int = 1, classes: int = 3, filters: tuple[int, ...] = (32, 64, 128, 256, 320)):
    super().__init__()
    pairs = list(zip(filters, filters[1:]))
    self.input_block = Down(in_channels, filters[0], 1)
    self.downsample = nn.ModuleList(Down(a, b) for a, b in pairs)
    self.bottleneck = Down(filters[-1], filters[-1])
    self.upsample = nn.ModuleList([Up(filters[-1], filters[-1])] + [Up(b, a) for a, b in reversed(pairs)])
    self.output = nn.ModuleDict({"conv": nn.Conv3d(filters[0], classes, 1)})

  def forward(self, x):
    skips = [self.input_block(x)]
    for block in self.downsample: skips.append(block(skips[-1]))
    x = self.bottleneck(skips[-1])
    for block, skip in zip(self.upsample, reversed(skips)): x = block(x, skip)
    return self.output["conv"](x)


with torch.device("meta"): record_names("unet3d", UNet3D())

model = UNet3D(2, 4, (4, 8, 12))
names = give_weights(model)
logits = model(pattern("volumes", 2, 2, 16, 24, 8))
record("unet3d", {"logits": logits, **gradients(model, logits, names)})
