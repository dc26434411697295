"""Records Whisper of transformers: spectrograms, logits, gradients and greedy tokens."""
import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
from pattern import EXPECTED, give_weights, gradients, numbers, pattern, record, record_names

# Pieces of names in PyTorch and in C++, the longer before those they contain.
PIECES = [("model.", ""), ("embed_tokens", "token_embedding"), ("embed_positions.weight", "positional_embedding"),
          (".layers.", ".blocks."), ("self_attn_layer_norm", "attn_ln"), ("encoder_attn_layer_norm", "cross_attn_ln"),
          ("final_layer_norm", "mlp_ln"), ("self_attn", "attn"), ("encoder_attn", "cross_attn"), ("q_proj", "query"),
          ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out"), ("fc1", "mlp.0"), ("fc2", "mlp.2"),
          ("encoder.layer_norm", "encoder.ln_post"), ("decoder.layer_norm", "decoder.ln")]


def name_here(name: str) -> str | None:
  if name.startswith("proj_out"): return None
  for old, new in PIECES: name = name.replace(old, new)
  return name


def network(width, heads, layers, mels, vocab, audio, text):
  return WhisperForConditionalGeneration(WhisperConfig(
    vocab_size=vocab, num_mel_bins=mels, d_model=width, encoder_layers=layers, decoder_layers=layers,
    encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width,
    max_source_positions=audio, max_target_positions=text, attn_implementation="eager", pad_token_id=0, bos_token_id=0,
    eos_token_id=0, decoder_start_token_id=0))


model = network(32, 4, 2, 8, 60, 20, 16).eval()
model.model.decoder.embed_tokens.padding_idx = None  # its gradient would be left out
names = give_weights(model, name_here)
mel, tokens = pattern("mel", 2, 8, 40), numbers("tokens", 60, 2, 7)
logits = model(input_features=mel, decoder_input_ids=tokens).logits
result = {"logits": logits, "audio": model.model.encoder(mel).last_hidden_state}
result.update(gradients(model, logits, names))
# Positions count more from here on, so that texts vary.
with torch.no_grad(): model.model.decoder.embed_positions.weight *= 4
text = torch.tensor([[3, 14], [3, 14]])
with torch.no_grad():
  for _ in range(10):
    last = model(input_features=mel, decoder_input_ids=text).logits[:, -1]
    text = torch.cat([text, last.argmax(-1, keepdim=True)], 1)
print("greedy", text)
result["greedy"] = text[:, 2:]

# Audio of two and a half segments: each sees the last five tokens of text before it.
extractor = WhisperFeatureExtractor(feature_size=8)
extractor.n_samples, extractor.nb_max_frames = 19200, 120
speech = pattern("speech", 16000).float().numpy()
spectrogram = torch.tensor(extractor([speech], sampling_rate=16000, return_tensors="np").input_features).double()
end, written = 50, []
for first in (0, 40, 80):
  prompt = ([57] + written[-5:] if written else []) + [3, 14]
  text = torch.tensor([prompt])
  with torch.no_grad():
    while text.shape[1] < len(prompt) + 6 and text[0, -1] != end:
      last = model(input_features=spectrogram[..., first:first + 40], decoder_input_ids=text).logits[:, -1]
      text = torch.cat([text, last.argmax(-1, keepdim=True)], 1)
  written += [t for t in text[0, len(prompt):].tolist() if t < end]
print("transcribed", written)
result["transcribed"] = torch.tensor(written)
some = ("logits", "audio", "greedy", "transcribed", "gradient.encoder.conv1.weight",
        "gradient.encoder.blocks.0.attn.query.weight",
        "gradient.decoder.token_embedding.weight", "gradient.decoder.positional_embedding",
        "gradient.decoder.blocks.1.cross_attn.value.bias", "gradient.decoder.blocks.0.mlp.2.weight")
record("whisper", result, lambda key: key in some)

audio = pattern("audio", 2, 20000).float().numpy() * np.array([[1.0], [0.01]], dtype=np.float32)
audio += np.sin(np.arange(20000) * (2 * np.pi * 440 / 16000)).astype(np.float32) * 0.5
result = {}
for bands in (80, 128):
  extractor = WhisperFeatureExtractor(feature_size=bands, chunk_length=1)
  result[f"filters{bands}"] = torch.tensor(extractor.mel_filters.T)
  result[f"mel{bands}"] = torch.tensor(extractor([a[:16000] for a in audio], sampling_rate=16000,
                                                 return_tensors="np").input_features)
extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=2)
result["padded"] = torch.tensor(extractor(list(audio), sampling_rate=16000, return_tensors="np").input_features)
record("whisper_audio", result)

with torch.device("meta"):
  record_names("whisper_tiny_en", network(384, 6, 4, 80, 51864, 1500, 448), name_here)
  record_names("whisper_large", network(1280, 20, 32, 128, 51866, 1500, 448), name_here)

# A file as OpenAI's: sizes and weights.
dims = dict(n_mels=4, n_audio_ctx=6, n_audio_state=8, n_audio_head=2, n_audio_layer=1, n_vocab=9, n_text_ctx=5,
            n_text_state=8, n_text_head=2, n_text_layer=1)
model = network(8, 2, 1, 4, 9, 6, 5)
state = {name_here(n): torch.full_like(t, 0.5) for n, t in model.state_dict().items() if name_here(n)}
torch.save({"dims": dims, "model_state_dict": state}, EXPECTED / "whisper_file.pt")
