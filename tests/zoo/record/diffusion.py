"""Records the samplers of diffusers, and small Stable Diffusions from tokens to latents and images."""
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler
from open_clip.model import CLIP
from transformers import CLIPTextConfig, CLIPTextModel
import autoencoder_kl
import unet
from pattern import give_weights, numbers, pattern, record

BETAS = dict(num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")


def toy(x, t):
  """Stands for a network."""
  return torch.tanh(x * 1.3 + t / 1000)


def ddim(network, noise, steps, prediction="epsilon"):
  scheduler = DDIMScheduler(**BETAS, clip_sample=False, set_alpha_to_one=True, steps_offset=1,
                            timestep_spacing="leading", prediction_type=prediction)
  scheduler.set_timesteps(steps)
  x = noise
  for t in scheduler.timesteps: x = scheduler.step(network(x, t), t, x).prev_sample
  return x


def dpm_solver(network, noise, steps, prediction="epsilon"):
  scheduler = DPMSolverMultistepScheduler(**BETAS, solver_order=2, algorithm_type="dpmsolver++", solver_type="midpoint",
                                          final_sigmas_type="zero", prediction_type=prediction)
  scheduler.set_timesteps(timesteps=[int(999 - i * 999 / steps) for i in range(steps)])
  x = noise
  for t in scheduler.timesteps: x = scheduler.step(network(x, t), t, x).prev_sample
  return x


noise = pattern("noise", 2, 4, 8, 8)
result = {}
for prediction in ("epsilon", "v_prediction"):
  result[f"ddim_{prediction}"] = ddim(toy, noise, 7, prediction)
  result[f"dpm_solver_{prediction}"] = dpm_solver(toy, noise, 7, prediction)
scheduler = DDIMScheduler(**BETAS)
result["noisy"] = scheduler.add_noise(pattern("image", 2, 4, 8, 8), noise, torch.tensor([10, 900]))


def closed_text(prefix):
  """Makes OpenAI's text encoder with the weights of names behind `prefix`."""
  text = CLIPTextModel(CLIPTextConfig(vocab_size=60, hidden_size=24, intermediate_size=96, num_hidden_layers=2,
                                      num_attention_heads=4, max_position_embeddings=9, hidden_act="quick_gelu",
                                      eos_token_id=59, bos_token_id=58, attn_implementation="eager")).eval()
  give_weights(text, lambda name: prefix + name)
  return text


def open_text(prefix, width, projection):
  """Makes OpenCLIP's text encoder; returns it and a function that gives the vectors of its layer before the last."""
  image = dict(image_size=14, patch_size=7, width=16, head_width=8, layers=1)
  text = CLIP(projection, image, dict(context_length=9, vocab_size=60, width=width, heads=4, layers=2)).eval()
  give_weights(text, lambda name: None if name.startswith("visual.") else prefix + name)
  text.double()

  def penultimate(tokens):
    seen = []
    hook = text.transformer.resblocks[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    text.encode_text(tokens)
    hook.remove()
    return seen[0]

  return text, penultimate


prompt, empty = numbers("prompt", 60, 2, 9), numbers("empty", 60, 2, 9)
text = closed_text("cond_stage_model.transformer.text_model.")
network, rename = unet.network((16, 32, 32, 32), (4, 4, 4, 4), (True, True, True, False), 1, 24, False, 8)
give_weights(network, lambda name: f"model.diffusion_model.{rename(name)}")
vae, rename_vae = autoencoder_kl.network((16, 32, 32), 8)
give_weights(vae, lambda name: f"first_stage_model.{rename_vae(name)}")
with torch.no_grad():
  with_prompt = text(input_ids=prompt).last_hidden_state
  without = text(input_ids=empty).last_hidden_state

  def guided(x, t):
    plain, follows = network(x, t, without).sample, network(x, t, with_prompt).sample
    return plain + 7.5 * (follows - plain)

  latents = ddim(guided, noise, 4)
  result["latents"] = latents
  result["decoded"] = vae.decode(latents / 0.18215).sample

text, penultimate = open_text("cond_stage_model.model.", 24, 24)
network, rename = unet.network((16, 32), (2, 4), (True, False), 1, 24, True, 8)
give_weights(network, lambda name: f"model.diffusion_model.{rename(name)}")
with torch.no_grad():
  with_prompt, without = text.ln_final(penultimate(prompt)), text.ln_final(penultimate(empty))
  result["latents2"] = dpm_solver(guided, noise, 4, "v_prediction")

first = closed_text("conditioner.embedders.0.transformer.text_model.")
second, penultimate = open_text("conditioner.embedders.1.model.", 16, 8)
network, rename = unet.network((16, 32), (2, 4), (False, True), (1, 2), 40, True, 8, (256, 8 + 6 * 256))
give_weights(network, lambda name: f"model.diffusion_model.{rename(name)}")
with torch.no_grad():
  context = torch.cat([first(input_ids=prompt, output_hidden_states=True).hidden_states[-2], penultimate(prompt)], -1)
  pooled, sizes = second.encode_text(prompt), torch.tensor([[32, 32, 0, 0, 32, 32]] * 2)

  def asked(x, t, context, pooled):
    return network(x, t, context, added_cond_kwargs={"text_embeds": pooled, "time_ids": sizes}).sample

  def guided_xl(x, t):
    plain, follows = asked(x, t, context * 0, pooled * 0), asked(x, t, context, pooled)
    return plain + 6 * (follows - plain)

  result["latents_xl"] = dpm_solver(guided_xl, noise, 4)
record("diffusion", result)
