"""Files that blocks of the documentation read, small enough to write in every run."""
import json
import os
import pathlib
import subprocess

from tinygrad_cpp import Tensor, nn


def write_model(path):
  """Writes a language model of random weights with a tokenizer of bytes to a GGUF file."""
  subprocess.run(["docs_snippets", "--tiny-model", str(path)], check=True)


def write_bert(folder):
  """Writes a BERT encoder of random weights as a Hugging Face folder."""
  Tensor.manual_seed(4)
  tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz.,", *[f"##{c}" for c in
                                                                                  "abcdefghijklmnopqrstuvwxyz"]]
  d, hidden, layers = 32, 64, 2
  config = {"model_type": "bert", "vocab_size": len(tokens), "hidden_size": d, "num_hidden_layers": layers,
            "num_attention_heads": 4, "intermediate_size": hidden, "max_position_embeddings": 40, "type_vocab_size": 2,
            "layer_norm_eps": 1e-12}
  shapes = {"embeddings.word_embeddings": (len(tokens), d), "embeddings.position_embeddings": (40, d),
            "embeddings.token_type_embeddings": (2, d), "embeddings.LayerNorm": (d,)}
  for i in range(layers):
    for name, shape in {"attention.self.query": (d, d), "attention.self.key": (d, d), "attention.self.value": (d, d),
                        "attention.output.dense": (d, d), "attention.output.LayerNorm": (d,),
                        "intermediate.dense": (hidden, d), "output.dense": (d, hidden),
                        "output.LayerNorm": (d,)}.items(): shapes[f"encoder.layer.{i}.{name}"] = shape
  state = {}
  for name, shape in shapes.items():
    state[name + ".weight"] = Tensor.randn(*shape)
    if "word" not in name and not name.endswith("_embeddings"): state[name + ".bias"] = Tensor.randn(shape[0])
  os.makedirs(folder)
  nn.state.safe_save(state, f"{folder}/model.safetensors")
  pathlib.Path(folder, "config.json").write_text(json.dumps(config))
  pathlib.Path(folder, "tokenizer.json").write_text(json.dumps({
    "added_tokens": [{"id": i, "content": tokens[i], "special": True} for i in range(4)],
    "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {t: i for i, t in enumerate(tokens)}}}))
