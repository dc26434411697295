"""Records the samplers of diffusers, and a small Stable Diffusion 1 from tokens to images."""
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler
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

text = CLIPTextModel(CLIPTextConfig(vocab_size=60, hidden_size=24, intermediate_size=96, num_hidden_layers=2,
                                    num_attention_heads=4, max_position_embeddings=9, hidden_act="quick_gelu",
                                    eos_token_id=59, bos_token_id=58, attn_implementation="eager")).eval()
give_weights(text, lambda name: f"cond_stage_model.transformer.text_model.{name}")
network, rename = unet.network((16, 32, 32, 32), (4, 4, 4, 4), (True, True, True, False), 1, 24, False, 8)
give_weights(network, lambda name: f"model.diffusion_model.{rename(name)}")
vae, rename_vae = autoencoder_kl.network((16, 32, 32), 8)
give_weights(vae, lambda name: f"first_stage_model.{rename_vae(name)}")
with torch.no_grad():
  with_prompt = text(input_ids=numbers("prompt", 60, 2, 9)).last_hidden_state
  without = text(input_ids=numbers("empty", 60, 2, 9)).last_hidden_state

  def guided(x, t):
    plain, follows = network(x, t, without).sample, network(x, t, with_prompt).sample
    return plain + 7.5 * (follows - plain)

  latents = ddim(guided, noise, 4)
  result["latents"] = latents
  result["decoded"] = vae.decode(latents / 0.18215).sample
record("diffusion", result)
