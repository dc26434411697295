"""Records VITS of transformers, with its random numbers replaced by patterns."""
from unittest import mock
import torch
from transformers import VitsConfig, VitsModel
from transformers.models.vits.modeling_vits import _unconstrained_rational_quadratic_spline as spline
from pattern import give_weights, gradients, numbers, pattern, record, record_names

SMALL = dict(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, window_size=2, ffn_dim=24,
             flow_size=8, spectrogram_bins=9, upsample_initial_channel=16, upsample_rates=(4, 2),
             upsample_kernel_sizes=(8, 4), resblock_kernel_sizes=(3, 5), resblock_dilation_sizes=((1, 3), (1, 3)),
             duration_predictor_num_flows=2, prior_encoder_num_flows=2, prior_encoder_num_wavenet_layers=2,
             posterior_encoder_num_wavenet_layers=3, wavenet_dilation_rate=2, pad_token_id=None,
             duration_predictor_filter_channels=12)


def fixed_numbers():
  """Replaces random numbers: the first draw is that of durations where there is one of two channels."""
  def like(t): return pattern("noise_of_latents", t.shape[0], t.shape[1], 64)[..., :t.shape[2]]
  return mock.patch.multiple(torch, randn=lambda *shape: pattern("noise_of_durations", *shape), randn_like=like)


def speak(model, ids, mask, speaker=None):
  with fixed_numbers(): return model(input_ids=ids, attention_mask=mask, speaker_id=speaker)


result = {}
x = pattern("x", 2, 3, 5) * 7
pieces = [pattern(name, 2, 3, 5, n) * 2 for name, n in (("widths", 4), ("heights", 4), ("slopes", 3))]
for name, reverse in (("spline", False), ("inverse", True)):
  result[name], result[name + "_change"] = spline(x, *(p.clone() for p in pieces), reverse=reverse)

ids = numbers("ids", 20, 2, 7)
mask = (torch.arange(7) < torch.tensor([[7], [5]])).long()
model = VitsModel(VitsConfig(**SMALL)).eval()
names = give_weights(model)
out = speak(model, ids, mask)
print("samples", out.sequence_lengths, out.waveform.shape)
result.update({"audio": out.waveform, "latents": out.spectrogram, "samples": out.sequence_lengths.long()})
result.update(gradients(model, out.waveform, names))
text = model.text_encoder(input_ids=ids, padding_mask=mask.unsqueeze(-1).double(), attention_mask=mask)
float_mask = mask.unsqueeze(1).double()
result.update({"hidden": text.last_hidden_state.transpose(1, 2), "means": text.prior_means.transpose(1, 2)})
with fixed_numbers():
  spoken = numbers("durations", 5, 2, 1, 7).double() + 1
  result["loss"] = model.duration_predictor(text.last_hidden_state.transpose(1, 2), float_mask,
                                            durations=spoken * float_mask)
  _, result["posterior_mean"], result["posterior_deviation"] = model.posterior_encoder(
    pattern("spectra", 2, 9, 7), float_mask)
result["forward_flow"] = model.flow(pattern("latents", 2, 8, 7), float_mask)
some = ("gradient.decoder.upsampler.0.weight", "gradient.decoder.resblocks.1.convs1.1.bias",
        "gradient.flow.flows.0.wavenet.in_layers.1.parametrizations.weight.original0",
        "gradient.flow.flows.1.wavenet.in_layers.0.parametrizations.weight.original1",
        "gradient.text_encoder.encoder.layers.0.attention.emb_rel_k",
        "gradient.text_encoder.encoder.layers.1.attention.emb_rel_v", "gradient.text_encoder.embed_tokens.weight")
record("vits", result, lambda key: not key.startswith("gradient.") or key in some)

voices = VitsModel(VitsConfig(num_speakers=3, speaker_embedding_size=6, use_stochastic_duration_prediction=False,
                              **SMALL)).eval()
give_weights(voices)
out = speak(voices, ids, mask, 2)
print("samples", out.sequence_lengths, out.waveform.shape)
record("vits_speakers", {"audio": out.waveform, "samples": out.sequence_lengths.long()})

with torch.device("meta"):
  record_names("vits_mms", VitsModel(VitsConfig()))
  record_names("vits_vctk", VitsModel(VitsConfig(vocab_size=178, num_speakers=109, speaker_embedding_size=256)))
