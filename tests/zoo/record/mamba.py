"""Records Mamba of transformers."""
import torch
from transformers import MambaConfig, MambaForCausalLM
from pattern import give_weights, gradients, numbers, record, record_names


def name_here(name: str) -> str:
  return name.replace("backbone.embeddings.", "backbone.embedding.")


def config(**sizes):
  return MambaConfig(tie_word_embeddings=False, pad_token_id=None, use_cache=False, **sizes)


model = MambaForCausalLM(config(vocab_size=40, hidden_size=32, num_hidden_layers=2, state_size=8)).eval()
names = give_weights(model, name_here)
tokens = numbers("tokens", 40, 2, 13)
logits = model(tokens).logits
result = {"logits": logits}
result.update(gradients(model, logits, names))
text = torch.tensor([[5, 17, 33]])
with torch.no_grad():
  for _ in range(8): text = torch.cat([text, model(text).logits[:, -1].argmax(-1, keepdim=True)], 1)
result["greedy"] = text[0, 3:]
some = ("logits", "greedy", "gradient.backbone.embedding.weight", "gradient.backbone.layers.0.mixer.A_log",
        "gradient.backbone.layers.0.mixer.conv1d.weight", "gradient.backbone.layers.0.mixer.dt_proj.bias",
        "gradient.backbone.layers.1.mixer.x_proj.weight", "gradient.backbone.layers.1.mixer.D",
        "gradient.backbone.layers.1.norm.weight")
record("mamba", result, lambda key: key in some)
with torch.device("meta"):
  record_names("mamba_130m", MambaForCausalLM(config(vocab_size=50280, hidden_size=768, num_hidden_layers=24)),
               name_here)
