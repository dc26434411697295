"""Reference tokenizers: those of Hugging Face `tokenizers` and of `sentencepiece`, and the metadata a GGUF file would
have for the same vocabulary."""
from __future__ import annotations
import io, json, struct
import tokenizer_lines

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SYMBOLS, _SPACES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS, _LETTERS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|\p{{N}}%s"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES)
# Published expressions (the pre-tokenizers of tokenizer.json files), by the name GGUF files use.
REGEXES = {
  "gpt-2": [GPT2],
  "llama-bpe": [_CONTRACTIONS + _LETTERS + r"|\p{N}{1,3}" + _SYMBOLS + _SPACES],
  "qwen2": [_CONTRACTIONS + _LETTERS + r"|\p{N}" + _SYMBOLS + _SPACES],
  "qwen35": [_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _SPACES],
  "tekken": [_CASED % ("", "", "")],
  "gpt-4o": [_CASED % (_CONTRACTIONS + "?", _CONTRACTIONS + "?", "{1,3}")],
  "kimi-k2": [r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}"
              r"\p{M}&&[^\p{Han}]]+"
              + _CONTRACTIONS + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}"
                                r"\p{Lo}\p{M}&&[^\p{Han}]]*"
              + _CONTRACTIONS + r"?|\p{N}{1,3}" + _SYMBOLS + _SPACES],
  "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
  "deepseek-v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                  r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?"
                  r"[\p{P}\p{S}]+[\r\n]*"
                  + _SPACES],
  "deepseek-llm": [r"[\r\n]",
                   "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"
                   "Ὀ-Ὅὐ-ὗὙὛὝὟ-\u1f7d"
                   "ᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ"
                   "Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
                   "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
                   "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}+"],
  "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
                 r"\s+(?!\S)|\s+"],
  "seed-coder": [_CONTRACTIONS + _LETTERS + r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + _SPACES],
  "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
  "bloom": [" ?[^(\\s|.,!?…。，、।۔،)]+"],
  "smollm": "smollm", "falcon": "falcon"}


def byte_alphabet() -> list[str]:
  """How byte-level vocabularies spell the 256 bytes."""
  printed, spelled = {*range(33, 127), *range(161, 173), *range(174, 256)}, []
  for b in range(256): spelled.append(chr(b) if b in printed else chr(256 + sum(c not in printed for c in range(b))))
  return spelled


def pre_tokenizer(name: str):
  from tokenizers import Regex
  from tokenizers import pre_tokenizers as p
  if name == "smollm": return p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False)])
  if name == "falcon":
    return p.Sequence([p.Punctuation("contiguous"), p.ByteLevel(add_prefix_space=False),
                       p.Digits(individual_digits=False), p.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
  splits = [p.Split(Regex(e), "isolated") for e in REGEXES[name]]
  return p.Sequence(splits + [p.ByteLevel(add_prefix_space=False, use_regex=False)])


def train_bpe(name: str, lines: list[str], size: int = 1500):
  """A byte-level BPE trained on lines, split as a published model does."""
  from tokenizers import Tokenizer, decoders, models, trainers
  from tokenizers import pre_tokenizers as p
  t = Tokenizer(models.BPE())
  t.pre_tokenizer, t.decoder = pre_tokenizer(name), decoders.ByteLevel()
  lines = [x for x in lines if "<|endoftext|>" not in x]  # else merges could give the special token
  t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                   special_tokens=["<|endoftext|>"],
                                                   initial_alphabet=p.ByteLevel.alphabet()))
  return t


def bpe_of(kv: dict, pre: str):
  """The `tokenizers` object for the vocabulary and merges of a GGUF file."""
  from tokenizers import AddedToken, Tokenizer, decoders, models
  vocab = {t: i for i, t in enumerate(kv["tokenizer.ggml.tokens"])}
  merges = [tuple(m.split(" ")) for m in kv["tokenizer.ggml.merges"]]
  t = Tokenizer(models.BPE(vocab, merges))
  t.pre_tokenizer, t.decoder = pre_tokenizer(pre), decoders.ByteLevel()
  types = kv["tokenizer.ggml.token_type"]
  t.add_special_tokens([AddedToken(text, special=True, normalized=False) for text, i in vocab.items() if types[i] == 3])
  return t


def kv_of_bpe(t, pre: str) -> dict:
  """The metadata of a GGUF file for a `tokenizers` object with byte-level BPE."""
  model = json.loads(t.to_str())["model"]
  tokens = [text for text, _ in sorted(t.get_vocab().items(), key=lambda e: e[1])]
  special = {a.content for a in t.get_added_tokens_decoder().values()}
  return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
          "tokenizer.ggml.token_type": [3 if text in special else 1 for text in tokens],
          "tokenizer.ggml.merges": [" ".join(m) if isinstance(m, list) else m for m in model["merges"]],
          "tokenizer.ggml.add_bos_token": False}


def train_sentencepiece(lines: list[str], **options) -> bytes:
  import sentencepiece
  out = io.BytesIO()
  options = {"vocab_size": 6000, "hard_vocab_limit": False, "character_coverage": 0.99, "minloglevel": 2,
             "normalization_rule_name": "identity", "max_sentence_length": 100000, **options}
  sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, **options)
  return out.getvalue()


def _fields(data: bytes):
  """The fields of a message of protocol buffers: (number, value)."""
  at = 0
  def varint() -> int:
    nonlocal at
    value = shift = 0
    while True:
      byte = data[at]
      at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
      if byte < 128: return value
  while at < len(data):
    key = varint()
    if key & 7 == 0: value = varint()
    else:
      size = {1: 8, 5: 4}.get(key & 7) or varint()
      value, at = data[at:at + size], at + size
    yield key >> 3, value


def kv_of_sentencepiece(model: bytes) -> dict:
  """The metadata of a GGUF file for a model of SentencePiece (sentencepiece_model.proto)."""
  pieces, spec, normalizer = [], {3: 1, 40: 0, 41: 1, 42: 2}, {2: b"", 3: 1, 4: 1}
  for number, value in _fields(model):
    if number == 1: pieces.append({3: 1, 2: b"\0" * 4, **dict(_fields(value))})
    if number == 2: spec.update(_fields(value))
    if number == 3: normalizer.update(_fields(value))
  return {"tokenizer.ggml.model": {1: "t5", 2: "llama"}[spec[3]],
          "tokenizer.ggml.tokens": [p[1].decode() for p in pieces],
          "tokenizer.ggml.scores": [struct.unpack("<f", p[2])[0] for p in pieces],
          "tokenizer.ggml.token_type": [p[3] for p in pieces], "tokenizer.ggml.unknown_token_id": spec[40],
          "tokenizer.ggml.bos_token_id": spec[41], "tokenizer.ggml.eos_token_id": spec[42],
          "tokenizer.ggml.add_space_prefix": bool(normalizer[3]),
          "tokenizer.ggml.remove_extra_whitespaces": bool(normalizer[4]),
          "tokenizer.ggml.precompiled_charsmap": list(normalizer[2])}


def differences(ours, theirs, texts, limit: int = 3) -> list[tuple]:
  """Texts for which two functions give different tokens: (text, ours, theirs)."""
  found = []
  for text in texts:
    a, b = ours(text), theirs(text)
    if a != b: found.append((text, a, b))
    if len(found) >= limit: break
  return found


def texts(count: int) -> tuple[list[str], list[bytes]]:
  return tokenizer_lines.lines(count), tokenizer_lines.broken(max(count // 10, 50))
