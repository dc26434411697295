"""Records CLIP: OpenAI's text encoder of transformers, OpenCLIP's encoders of open_clip_torch, and tokens of both."""
import numpy as np
import torch
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from safetensors.numpy import save_file
from transformers import CLIPTextConfig, CLIPTextModel
import gzip
import pathlib
import tempfile
from pattern import EXPECTED, give_weights, gradients, numbers, pattern, record, record_names

tokens = numbers("tokens", 50, 2, 9)
tokens[0, 4], tokens[1, 8] = 59, 59

closed = CLIPTextModel(CLIPTextConfig(vocab_size=60, hidden_size=32, intermediate_size=128, num_hidden_layers=3,
                                      num_attention_heads=4, max_position_embeddings=9, hidden_act="quick_gelu",
                                      eos_token_id=59, bos_token_id=58, attn_implementation="eager")).eval()
names = give_weights(closed)
out = closed(input_ids=tokens, output_hidden_states=True)
result = {"hidden": out.last_hidden_state, "penultimate": out.hidden_states[-2], "pooled": out.pooler_output}
result.update(gradients(closed, out.last_hidden_state, names))
some = ("hidden", "penultimate", "pooled", "gradient.embeddings.token_embedding.weight",
        "gradient.encoder.layers.0.self_attn.q_proj.weight", "gradient.encoder.layers.1.mlp.fc1.bias")
record("clip_closed", result, lambda key: key in some)

TEXT = dict(context_length=9, vocab_size=60, width=32, heads=4, layers=3)
IMAGE = dict(image_size=28, patch_size=7, width=40, head_width=10, layers=2)
model = CLIP(24, IMAGE, TEXT).eval()
names = give_weights(model)
images = pattern("images", 2, 3, 28, 28)
stages = []
model.transformer.resblocks[1].register_forward_hook(lambda module, inputs, output: stages.append(output))
texts = model.encode_text(tokens)
result = {"texts": texts, "images": model.encode_image(images), "penultimate": stages[0]}
unit = torch.nn.functional.normalize
logits = unit(result["images"], dim=-1) @ unit(texts, dim=-1).T * model.logit_scale.exp()
result.update({"logits": logits, "score": (unit(result["images"], dim=-1) * unit(texts, dim=-1)).sum(-1)})
result.update(gradients(model, logits, names))
some = ("texts", "images", "penultimate", "logits", "score", "gradient.visual.conv1.weight", "gradient.logit_scale",
        "gradient.visual.class_embedding", "gradient.transformer.resblocks.0.attn.in_proj_weight",
        "gradient.text_projection", "gradient.visual.transformer.resblocks.1.mlp.c_fc.weight")
record("clip_open", result, lambda key: key in some)

with torch.device("meta"):
  record_names("clip_vit_l", CLIPTextModel(CLIPTextConfig(
    hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_hidden_layers=12)))
  record_names("clip_vit_h", CLIP(1024, dict(image_size=224, layers=32, width=1280, head_width=80, patch_size=14),
                                  dict(context_length=77, vocab_size=49408, width=1024, heads=16, layers=24)))

# A short list of merges stands for the published one.
MERGES = ("\"bpe_simple_vocab_16e6.txt#version: 0.2\n" + "\n".join(
  ["t h", "th e</w>", "c a", "ca t</w>", "i n", "in g</w>", "a t</w>", "e a", "ea t", "eat ing</w>", "h o", "ho r",
   "hor s", "hors e</w>", "Ã ©", "1 2", "! !</w>", "' s</w>", "d og</w>", "o g</w>", "d o", "do g</w>"]))
(EXPECTED / "clip_merges.txt").write_text(MERGES)
TEXTS = ["a horse sized cat  eating\n the bagel!!", "", "The dog's café 12 34 ça", "HORSE horse\thorses don't",
         "cat " * 20, "日本語 the ½ x²"]
with tempfile.TemporaryDirectory() as folder:
  path = pathlib.Path(folder) / "merges.txt.gz"
  path.write_bytes(gzip.compress(MERGES.encode()))
  tokenizer = SimpleTokenizer(bpe_path=str(path), context_length=20, clean="lower")
  # OpenCLIP keeps begin and end at the ends of a vocabulary of any size.
  rows = [tokenizer.encode(text)[:18] for text in TEXTS]
begin, end = tokenizer.sot_token_id, tokenizer.eot_token_id
padded = [[begin, *row, end] + [0] * (18 - len(row)) for row in rows]
save_file({"tokens": np.array(padded, dtype=np.int32)}, EXPECTED / "clip_tokens.safetensors")
