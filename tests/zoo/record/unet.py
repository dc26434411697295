"""Records the U-Nets of Stable Diffusion with diffusers, whose names of weights are mapped to those of the files."""
import re
import torch
from diffusers import UNet2DConditionModel
from diffusers.models.embeddings import get_timestep_embedding
from pattern import give_weights, gradients, numbers, pattern, record, record_names

PARTS = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0",
         "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}
ENDS = {"conv_in": "input_blocks.0.0", "conv_norm_out": "out.0", "conv_out": "out.2",
        "time_embedding.linear_1": "time_embed.0", "time_embedding.linear_2": "time_embed.2",
        "add_embedding.linear_1": "label_emb.0.0", "add_embedding.linear_2": "label_emb.0.2"}


def res_part(rest: str) -> str:
  part, _, last = rest.partition(".")
  return f"{PARTS[part]}.{last}"


def name_here(name: str, attention_up: list[bool]) -> str:
  """Returns the name in published files; levels have two residual blocks."""
  for old, new in ENDS.items():
    if name.startswith(old + "."): return name.replace(old, new, 1)
  if m := re.match(r"mid_block\.(resnets|attentions)\.(\d)\.(.*)", name):
    if m[1] == "attentions": return f"middle_block.1.{m[3]}"
    return f"middle_block.{2 * int(m[2])}.{res_part(m[3])}"
  m = re.match(r"(down|up)_blocks\.(\d)\.(resnets|attentions|downsamplers|upsamplers)\.(\d)\.(.*)", name)
  level, kind, i, rest = int(m[2]), m[3], int(m[4]), m[5]
  if kind == "downsamplers": return f"input_blocks.{3 * level + 3}.0.{rest.replace('conv', 'op', 1)}"
  if kind == "upsamplers": return f"output_blocks.{3 * level + 2}.{2 if attention_up[level] else 1}.{rest}"
  block = f"input_blocks.{3 * level + 1 + i}" if m[1] == "down" else f"output_blocks.{3 * level + i}"
  return f"{block}.0.{res_part(rest)}" if kind == "resnets" else f"{block}.1.{rest}"


def network(channels, heads, attention, depth, context, linear, groups=32, vector=None):
  """Makes a network of levels with these channels, heads, and attention or not."""
  down = tuple("CrossAttnDownBlock2D" if a else "DownBlock2D" for a in attention)
  up = tuple("CrossAttnUpBlock2D" if a else "UpBlock2D" for a in reversed(attention))
  text_time = {} if vector is None else dict(addition_embed_type="text_time", addition_time_embed_dim=vector[0],
                                             projection_class_embeddings_input_dim=vector[1])
  model = UNet2DConditionModel(
    in_channels=4, out_channels=4, down_block_types=down, up_block_types=up, block_out_channels=channels,
    layers_per_block=2, cross_attention_dim=context, attention_head_dim=heads, use_linear_projection=linear,
    transformer_layers_per_block=depth, norm_num_groups=groups, **text_time)
  return model.eval(), lambda name: name_here(name, list(reversed(attention)))


if __name__ == "__main__":
  latents, steps, context = pattern("latents", 2, 4, 16, 8), torch.tensor([3, 981]), pattern("context", 2, 5, 24)
  result = {"embedding": get_timestep_embedding(steps, 32, flip_sin_to_cos=True, downscale_freq_shift=0)}
  for name, heads, linear in (("sd1", (4, 4, 4, 4), False), ("sd2", (2, 4, 4, 4), True)):
    model, rename = network((16, 32, 32, 32), heads, (True, True, True, False), 1, 24, linear, 8)
    give_weights(model, rename)
    result[name] = model(latents, steps, context).sample

  model, rename = network((16, 32), (2, 4), (False, True), (1, 2), 24, True, 8, (12, 82))
  names = give_weights(model, rename)
  text, sizes = pattern("text", 2, 10), numbers("sizes", 1024, 2, 6)
  out = model(latents, steps, context, added_cond_kwargs={"text_embeds": text, "time_ids": sizes}).sample
  result["xl"] = out
  result.update(gradients(model, out, names))
  some = ("gradient.input_blocks.0.0.weight", "gradient.time_embed.0.weight", "gradient.label_emb.0.2.weight",
          "gradient.input_blocks.5.1.transformer_blocks.1.attn2.to_k.weight",
          "gradient.output_blocks.2.2.conv.weight", "gradient.middle_block.1.proj_in.weight",
          "gradient.output_blocks.4.0.skip_connection.weight")
  record("unet", result, lambda key: not key.startswith("gradient.") or key in some)

  with torch.device("meta"):
    for name, *sizes in (
        ("sd1", (320, 640, 1280, 1280), 8, (True, True, True, False), 1, 768, False),
        ("sd2", (320, 640, 1280, 1280), (5, 10, 20, 20), (True, True, True, False), 1, 1024, True),
        ("sdxl", (320, 640, 1280), (5, 10, 20), (False, True, True), (1, 2, 10), 2048, True, 32, (256, 2816)),
        ("sdxl_refiner", (384, 768, 1536, 1536), (6, 12, 24, 24), (False, True, True, False), 4, 1280, True, 32,
         (256, 2560))):
      record_names(f"unet_{name}", *network(*sizes))
