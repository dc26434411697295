"""Tokenizers of language models, with the interface of tinygrad's SimpleTokenizer."""
from __future__ import annotations
import functools, re
from typing import Any, Callable
from .._core import Tokenizer

# What tinygrad takes as the same preset.
_ALIASES = {"qwen35": "qwen2", "qwen35moe": "qwen2"}
_PRESETS = ("llama3", "llama-v3", "llama-bpe", "qwen2", "olmo", "kimi-k2", "tekken", "glm4")


class SimpleTokenizer:
  """Byte-level BPE that merges the pair whose token has the smallest id; special tokens in a text are always read."""
  def __init__(self, normal_tokens: dict[str, int], special_tokens: dict[str, int], preset: str = "llama3",
               bos_id: int | None = None, eos_id: int = 0, eot_id: int | None = None):
    preset = _ALIASES.get(preset, preset)
    if preset not in _PRESETS: raise ValueError(f"Invalid tokenizer preset '{preset}'")
    self.preset, self.bos_id, self.eos_id, self.eot_id = preset, bos_id, eos_id, eot_id
    # ids may leave gaps, and need not be dense: here they are the places in this list
    self._ids = sorted({*normal_tokens.values(), *special_tokens.values()})
    place = {token: i for i, token in enumerate(self._ids)}
    self._place = place
    texts, types = [""] * len(place), [5] * len(place)
    for text, token in normal_tokens.items(): texts[place[token]], types[place[token]] = text, 1
    for text, token in special_tokens.items(): texts[place[token]], types[place[token]] = text, 3
    kv = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": preset, "tokenizer.ggml.tokens": texts or [""],
          "tokenizer.ggml.token_type": types or [5], "tokenizer.ggml.add_bos_token": False}
    self.tokenizer = Tokenizer.from_gguf_kv(kv, "SimpleTokenizer")

  @staticmethod
  def from_gguf_kv(kv: dict[str, Any]) -> SimpleTokenizer:
    tokens, types = kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"]
    special = {t: i for i, t in enumerate(tokens) if types[i] != 1}
    made = SimpleTokenizer.__new__(SimpleTokenizer)
    preset = _ALIASES.get(kv["tokenizer.ggml.pre"], kv["tokenizer.ggml.pre"])
    made.preset, made._ids, made._place = preset, range(len(tokens)), range(len(tokens))
    made.bos_id = kv.get("tokenizer.ggml.bos_token_id") if kv.get("tokenizer.ggml.add_bos_token", True) else None
    made.eos_id = kv.get("tokenizer.ggml.eos_token_id", 0)
    made.eot_id = kv.get("tokenizer.ggml.eot_token_id", special.get("<|im_end|>"))
    made.tokenizer = Tokenizer.from_gguf_kv(kv)
    return made

  def encode(self, text: str) -> list[int]:
    ids = self._ids
    return [ids[i] for i in self.tokenizer.encode(text, add_special=False, parse_special=True)]
  def decode(self, ids: list[int]) -> str:
    return self.tokenizer.decode([self._place[i] for i in ids], skip_special=False)
  def stream_decoder(self) -> Callable[..., str]:
    decoder = self.tokenizer.stream_decoder(skip_special=False)
    def decode(token: int | None = None) -> str:
      return decoder.finish() if token is None else decoder.push(self._place[token])
    return decode
  def is_end(self, token_id: int) -> bool: return token_id in (self.eos_id, self.eot_id)
