"""Records the encoder of T5 1.1 of transformers."""
import torch
from transformers import T5Config, T5EncoderModel
from pattern import give_weights, gradients, numbers, record, record_names


def config(**sizes):
  return T5Config(feed_forward_proj="gated-gelu", attn_implementation="eager", **sizes)


def name_here(name: str) -> str | None:
  return None if name == "encoder.embed_tokens.weight" else name


model = T5EncoderModel(config(vocab_size=60, d_model=32, d_kv=8, num_heads=4, d_ff=48, num_layers=2)).eval()
names = give_weights(model, name_here)
ids = numbers("ids", 60, 2, 150)
hidden = model(input_ids=ids).last_hidden_state
bias = model.encoder.block[0].layer[0].SelfAttention.compute_bias(150, 150)
mask = (torch.arange(150) < torch.tensor([[150], [40]])).long()
result = {"hidden": hidden, "bias": bias, "masked": model(input_ids=ids, attention_mask=mask).last_hidden_state}
result.update(gradients(model, hidden, names))
some = ("hidden", "bias", "masked", "gradient.shared.weight",
        "gradient.encoder.block.1.layer.1.DenseReluDense.wi_0.weight",
        "gradient.encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "gradient.encoder.block.1.layer.0.layer_norm.weight")
record("t5", result, lambda key: key in some)
with torch.device("meta"):
  record_names("t5_xxl", T5EncoderModel(config(vocab_size=32128, d_model=4096, d_kv=64, num_heads=64, d_ff=10240,
                                               num_layers=24)), name_here)
