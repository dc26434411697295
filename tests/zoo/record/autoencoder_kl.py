"""Records the autoencoder of Stable Diffusion with diffusers, under the names of the published files."""
import re
import torch
from diffusers import AutoencoderKL
from pattern import EXPECTED, give_weights, gradients, pattern, record

PARTS = [("conv_norm_out", "norm_out"), ("conv_shortcut", "nin_shortcut"), (".resnets.", ".block."),
         ("mid_block.block.0", "mid.block_1"), ("mid_block.block.1", "mid.block_2"),
         ("mid_block.attentions.0", "mid.attn_1"), ("group_norm", "norm"), ("to_q", "q"), ("to_k", "k"), ("to_v", "v"),
         ("to_out.0", "proj_out"), ("downsamplers.0", "downsample"), ("upsamplers.0", "upsample"),
         ("down_blocks", "down")]


def name_here(levels: int):
  def rename(name: str) -> str:
    for old, new in PARTS: name = name.replace(old, new)
    return re.sub(r"up_blocks\.(\d)", lambda m: f"up.{levels - 1 - int(m[1])}", name)
  return rename


def network(channels, groups):
  levels = len(channels)
  return AutoencoderKL(
    in_channels=3, out_channels=3, latent_channels=4, block_out_channels=channels, layers_per_block=2,
    norm_num_groups=groups, down_block_types=("DownEncoderBlock2D",) * levels,
    up_block_types=("UpDecoderBlock2D",) * levels).eval(), name_here(levels)


if __name__ == "__main__":
  model, rename = network((16, 32, 32), 8)
  names = give_weights(model, rename)
  images = pattern("images", 2, 3, 32, 16)
  latents = model.encode(images).latent_dist
  decoded = model.decode(latents.mean).sample
  result = {"mean": latents.mean, "log_variance": latents.logvar, "decoded": decoded, "divergence": latents.kl()}
  # Projections of attention are 1x1 convolutions in the files.
  result.update((key, g[..., None, None] if ".attn_1." in key and g.dim() == 2 else g)
                for key, g in gradients(model, decoded, names).items())
  some = ("gradient.encoder.conv_in.weight", "gradient.encoder.down.0.downsample.conv.weight",
          "gradient.decoder.up.1.upsample.conv.bias", "gradient.encoder.mid.attn_1.q.weight",
          "gradient.decoder.up.0.block.0.nin_shortcut.weight", "gradient.post_quant_conv.weight")
  record("autoencoder_kl", result, lambda key: not key.startswith("gradient.") or key in some)

  with torch.device("meta"): model, rename = network((128, 256, 512, 512), 32)
  lines = [" ".join([rename(n), *map(str, t.shape), *(["1", "1"] if ".attentions." in n and t.dim() == 2 else [])])
           for n, t in model.state_dict().items()]
  (EXPECTED / "autoencoder_kl.names").write_text("\n".join(sorted(lines)) + "\n")
