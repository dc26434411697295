"""A decoder of random weights in a GGUF file, small enough to run in every test: tokens are bytes, chats are ChatML."""
import numpy as np

CHAT_TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def byte_tokens():
  """The characters that byte-level vocabularies spell bytes with."""
  extra, out = 256, []
  for b in range(256):
    visible = 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255
    out.append(chr(b if visible else extra))
    extra += not visible
  return out


def write(path, *, context=512, dim=64, layers=2, heads=4, kv_heads=2, hidden=96, seed=7):
  import gguf
  rng = np.random.default_rng(seed)
  tokens = byte_tokens() + ["<|im_end|>", "<|im_start|>"]
  w = gguf.GGUFWriter(str(path), "llama")
  w.add_context_length(context)
  w.add_embedding_length(dim)
  w.add_block_count(layers)
  w.add_feed_forward_length(hidden)
  w.add_head_count(heads)
  w.add_head_count_kv(kv_heads)
  w.add_layer_norm_rms_eps(1e-5)
  w.add_rope_dimension_count(dim // heads)
  w.add_rope_freq_base(10000.0)
  w.add_vocab_size(len(tokens))
  w.add_tokenizer_model("gpt2")
  w.add_tokenizer_pre("gpt-2")
  w.add_token_list(tokens)
  w.add_token_types([1] * 256 + [3, 3])
  w.add_eos_token_id(256)
  w.add_add_bos_token(False)
  w.add_chat_template(CHAT_TEMPLATE)

  def add(name, *shape, scale=None):
    values = rng.standard_normal(shape) * (scale or shape[-1] ** -0.5)
    w.add_tensor(name, values.astype(np.float32))
  add("token_embd.weight", len(tokens), dim, scale=1.0)
  add("output.weight", len(tokens), dim, scale=2.0)
  w.add_tensor("output_norm.weight", np.ones(dim, np.float32))
  head = dim // heads
  for i in range(layers):
    for norm in ("attn_norm", "ffn_norm"): w.add_tensor(f"blk.{i}.{norm}.weight", np.ones(dim, np.float32))
    add(f"blk.{i}.attn_q.weight", heads * head, dim)
    add(f"blk.{i}.attn_k.weight", kv_heads * head, dim)
    add(f"blk.{i}.attn_v.weight", kv_heads * head, dim)
    add(f"blk.{i}.attn_output.weight", dim, heads * head)
    add(f"blk.{i}.ffn_gate.weight", hidden, dim)
    add(f"blk.{i}.ffn_up.weight", hidden, dim)
    add(f"blk.{i}.ffn_down.weight", dim, hidden)
  w.write_header_to_file()
  w.write_kv_data_to_file()
  w.write_tensors_to_file()
  w.close()
