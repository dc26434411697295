"""A decoder in PyTorch, straight from the definitions: every weight dequantized to float32, no cache, all positions at
once. What models of GGUF files are compared with."""
import math

import gguf
import numpy as np
import torch
import torch.nn.functional as F

ADJACENT = {"llama", "mistral", "olmo", "deepseek", "deepseek2", "granite", "internlm2", "command-r", "smollm3"}


class Reference:
  def __init__(self, path, dtype=torch.float32):
    reader = gguf.GGUFReader(str(path))
    self.meta = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.")}
    self.w = {t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32)
                                       .reshape([int(n) for n in t.shape[::-1]])).to(dtype) for t in reader.tensors}
    self.arch, self.dtype = self.meta["general.architecture"], dtype
    self.layers = self.key("block_count") - self.key("nextn_predict_layers", 0)
    self.dim = self.key("embedding_length")
    heads = self.key("attention.head_count")
    self.heads = heads if isinstance(heads, list) else [heads] * self.layers
    kv = self.key("attention.head_count_kv", self.heads)
    self.kv_heads = kv if isinstance(kv, list) else [kv] * self.layers
    mla = "_mla" if self.key("attention.key_length_mla", 0) else ""
    self.head_dim = self.key("attention.key_length" + mla, self.dim // max(self.heads))
    self.value_dim = self.key("attention.value_length" + mla, self.dim // max(self.heads))
    self.eps = self.key("attention.layer_norm_rms_epsilon", self.key("attention.layer_norm_epsilon", 1e-5))
    self.layer_norm = "attention.layer_norm_epsilon" in "".join(self.meta)

  def key(self, name, default=None): return self.meta.get(f"{self.arch}.{name}", default)

  def norm(self, x, name):
    weight, bias = self.w.get(name + ".weight"), self.w.get(name + ".bias")
    if self.layer_norm: return F.layer_norm(x, x.shape[-1:], weight, bias, self.eps)
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps)
    return y if weight is None else y * weight

  def linear(self, x, name): return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

  def angles(self, time, local):
    n, base = self.key("rope.dimension_count", self.head_dim), self.key("rope.freq_base", 10000.0)
    scaling = self.key("rope.scaling.type", "none")
    factor, magnitude = self.key("rope.scaling.factor", 1.0), self.key("rope.scaling.attn_factor", 1.0)
    if local: base, scaling = 10000.0, "none"
    freq = base ** (-torch.arange(0, n, 2, dtype=torch.float64) / n)
    if "rope_freqs.weight" in self.w: freq = freq / self.w["rope_freqs.weight"].double()
    if scaling == "longrope": freq = freq / self.w["rope_factors_short.weight"].double()
    if scaling == "linear": freq = freq / factor
    if scaling == "yarn":
      context = self.key("rope.scaling.original_context_length")
      def pair(turns): return n * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))
      low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), n - 1)
      keep = 1 - ((torch.arange(n // 2).double() - low) / max(high - low, 0.001)).clamp(0, 1)
      freq = freq / factor * (1 - keep) + freq * keep
      if not self.key("rope.scaling.yarn_log_multiplier", 0): magnitude *= 0.1 * math.log(factor) + 1
    angle = torch.arange(time).double()[:, None] * freq
    return (angle.cos() * magnitude).to(self.dtype), (angle.sin() * magnitude).to(self.dtype)

  def turn(self, x, angles):
    """x (heads, time, dim)."""
    cos, sin = angles
    n = 2 * cos.shape[-1]
    part, rest = x[..., :n], x[..., n:]
    if self.arch in ADJACENT:
      a, b = part[..., 0::2], part[..., 1::2]
      y = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    else:
      a, b = part[..., :n // 2], part[..., n // 2:]
      y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((y, rest), -1)

  def window(self, i):
    size = self.key("attention.sliding_window", 0)
    if not size: return 0
    period = {"gemma2": 2, "gemma3": 6, "olmo2": 4}.get(self.arch)
    if period is None: return size if self.arch in ("llama", "mistral", "phi3") else 0
    return 0 if (i + 1) % period == 0 else size

  def attend(self, q, k, v, scale, window):
    """q, k, v (heads, time, dim) -> (time, heads * dim)."""
    time = q.shape[1]
    scores = q @ k.transpose(-1, -2) * scale
    cap = self.key("attn_logit_softcapping", 50.0 if self.arch == "gemma2" else 0)
    if cap: scores = torch.tanh(scores / cap) * cap
    at = torch.arange(time)
    seen = at[None] <= at[:, None]
    if window: seen &= at[None] > at[:, None] - window
    scores = scores.masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)

  def attention(self, x, i):
    p, time, heads, kv = f"blk.{i}.", x.shape[0], self.heads[i], self.kv_heads[i]
    sizes = [heads * self.head_dim, kv * self.head_dim, kv * self.value_dim]
    if p + "attn_qkv.weight" in self.w: q, k, v = self.linear(x, p + "attn_qkv").split(sizes, -1)
    else: q, k, v = (self.linear(x, p + "attn_" + n) for n in "qkv")
    gate = None
    if q.shape[-1] == 2 * sizes[0]:
      q, gate = q.reshape(time, heads, 2, self.head_dim).unbind(2)
      q, gate = q.flatten(1), gate.flatten(1)
    if clamp := self.key("attention.clamp_kqv", 0): q, k, v = (t.clamp(-clamp, clamp) for t in (q, k, v))
    def split(t, n, name):
      weight = self.w.get(p + name + ".weight")
      if weight is not None and weight.shape[0] != self.head_dim: t = self.norm(t, p + name)
      t = t.reshape(time, n, -1).transpose(0, 1)
      return self.norm(t, p + name) if weight is not None and weight.shape[0] == self.head_dim else t
    q, k, v = split(q, heads, "attn_q_norm"), split(k, kv, "attn_k_norm"), v.reshape(time, kv, -1).transpose(0, 1)
    window = self.window(i)
    if self.arch != "gpt2" and not (self.arch == "smollm3" and (i + 1) % 4 == 0):
      angles = self.angles(time, local=self.arch == "gemma3" and window > 0)
      q, k = self.turn(q, angles), self.turn(k, angles)
    k, v = (t.repeat_interleave(heads // kv, 0) for t in (k, v))
    y = self.attend(q, k, v, self.key("attention.scale", 0) or self.head_dim ** -0.5, window)
    return self.linear(y if gate is None else y * torch.sigmoid(gate), p + "attn_output")

  def latent_attention(self, x, i):
    p, time, heads, rank = f"blk.{i}.", x.shape[0], self.heads[i], self.key("attention.kv_lora_rank")
    rope = self.key("rope.dimension_count")
    plain = self.head_dim - rope
    if self.key("attention.q_lora_rank", 0):
      q = self.linear(self.norm(self.linear(x, p + "attn_q_a"), p + "attn_q_a_norm"), p + "attn_q_b")
    else: q = self.linear(x, p + "attn_q")
    q = q.reshape(time, heads, -1).transpose(0, 1)
    low, turned = self.linear(x, p + "attn_kv_a_mqa").split([rank, rope], -1)
    low, angles = self.norm(low, p + "attn_kv_a_norm"), self.angles(time, False)
    if p + "attn_k_b.weight" in self.w:
      k = torch.einsum("tr,hrp->htp", low, self.w[p + "attn_k_b.weight"])
      v = torch.einsum("tr,hvr->htv", low, self.w[p + "attn_v_b.weight"])
    else:
      both = (low @ self.w[p + "attn_kv_b.weight"].T).reshape(time, heads, -1).transpose(0, 1)
      k, v = both.split([plain, self.value_dim], -1)
    k = torch.cat((k, self.turn(turned[None], angles).expand(heads, -1, -1)), -1)
    q = torch.cat((q[..., :plain], self.turn(q[..., plain:], angles)), -1)
    stretch = 1 + self.key("rope.scaling.yarn_log_multiplier", 0) * math.log(self.key("rope.scaling.factor", 1.0))
    return self.linear(self.attend(q, k, v, stretch ** 2 * self.head_dim ** -0.5, 0), p + "attn_output")

  def delta_net(self, x, i):
    p, time = f"blk.{i}.", x.shape[0]
    groups, heads, keys = self.key("ssm.group_count"), self.key("ssm.time_step_rank"), self.key("ssm.state_size")
    inner, width = self.key("ssm.inner_size"), self.key("ssm.conv_kernel")
    qkv = self.linear(x, p + "attn_qkv")
    padded, weight = torch.cat(
      (torch.zeros(width - 1, qkv.shape[1], dtype=self.dtype), qkv)), self.w[p + "ssm_conv1d.weight"]
    qkv = F.silu(sum(padded[j:j + time] * weight[:, j] for j in range(width)))
    q, k, v = qkv.split([groups * keys, groups * keys, inner], -1)
    def unit(t):
      t = t.reshape(time, groups, keys)
      return (t * torch.rsqrt((t * t).sum(-1, keepdim=True) + 1e-6)).repeat_interleave(heads // groups, 1)
    q, k, v = unit(q) * keys ** -0.5, unit(k), v.reshape(time, heads, -1)
    decay = (F.softplus(self.linear(x, p + "ssm_alpha") + self.w[p + "ssm_dt.bias"]) * self.w[p + "ssm_a"]).exp()
    learn, state, out = torch.sigmoid(self.linear(x, p + "ssm_beta")), torch.zeros(heads,
                                      inner // heads, keys, dtype=self.dtype), []
    for t in range(time):
      state = state * decay[t][:, None, None]
      error = (v[t] - torch.einsum("hvk,hk->hv", state, k[t])) * learn[t][:, None]
      state = state + torch.einsum("hv,hk->hvk", error, k[t])
      out.append(torch.einsum("hvk,hk->hv", state, q[t]))
    y = self.norm(torch.stack(out), p + "ssm_norm") * F.silu(self.linear(x, p + "attn_gate")).reshape(time, heads, -1)
    return self.linear(y.flatten(1), p + "ssm_out")

  def activate(self, x):
    gelu = self.arch in ("gpt2", "gemma", "gemma2", "gemma3", "phi2", "gptneox", "starcoder2")
    return F.gelu(x, approximate="tanh") if gelu else F.silu(x)

  def dense(self, x, p, suffix=""):
    up = self.linear(x, p + "ffn_up" + suffix)
    if p + "ffn_gate" + suffix + ".weight" in self.w:
      hidden = self.activate(self.linear(x, p + "ffn_gate" + suffix)) * up
    elif self.arch == "phi3":
      gate, up = up.chunk(2, -1)
      hidden = self.activate(gate) * up
    else: hidden = self.activate(up)
    return self.linear(hidden, p + "ffn_down" + suffix)

  def experts(self, x, p):
    logits, used = self.linear(x, p + "ffn_gate_inp"), self.key("expert_used_count")
    gating = self.key("expert_gating_func", 1)
    scores = logits.softmax(-1) if gating == 1 else torch.sigmoid(logits)
    worth = scores + self.w.get(p + "exp_probs_b.bias", 0)
    groups, open_groups = self.key("expert_group_count", 1), self.key("expert_group_used_count", 1)
    if groups > open_groups:
      grouped = worth.reshape(len(x), groups, -1)
      best = grouped.topk(2, -1)[0].sum(-1) if p + "exp_probs_b.bias" in self.w else grouped.amax(-1)
      chosen = torch.zeros_like(best).scatter(1, best.topk(open_groups, -1)[1], 1).bool()
      worth = grouped.masked_fill(~chosen[..., None], -torch.inf).flatten(1)
    chosen = worth.topk(used, -1)[1]
    weights = scores.gather(1, chosen)
    normalize = self.arch in ("llama", "mistral", "qwen3moe", "glm4moe", "qwen35moe")
    if self.key("expert_weights_norm", normalize): weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * self.key("expert_weights_scale", 1.0)
    gate, up, down = (self.w[p + f"ffn_{n}_exps.weight"] for n in ("gate", "up", "down"))
    y = torch.stack([sum(w * (down[e] @ (self.activate(gate[e] @ row) * (up[e] @ row))) for w, e in zip(ws, es))
                     for row, ws, es in zip(x, weights, chosen)])
    if p + "ffn_up_shexp.weight" in self.w:
      shared = self.dense(x, p, "_shexp")
      mix = self.w.get(p + "ffn_gate_inp_shexp.weight")
      y = y + (shared if mix is None else shared * torch.sigmoid((x * mix.reshape(-1)).sum(-1, keepdim=True)))
    return y

  def feed_forward(self, x, i):
    p = f"blk.{i}."
    return self.experts(x, p) if p + "ffn_gate_inp.weight" in self.w else self.dense(x, p)

  def layer(self, x, i):
    p = f"blk.{i}."
    recurrent = p + "ssm_out.weight" in self.w
    mix = self.delta_net if recurrent else self.latent_attention if self.key(
      "attention.kv_lora_rank", 0) else self.attention
    late, scale = self.arch in ("qwen35", "qwen35moe", "glm4moe"), self.key("residual_scale", 1.0)
    plain = self.arch == "olmo"  # norms without weights
    before = self.norm(x, p + "attn_norm") if plain or p + "attn_norm.weight" in self.w else x
    y = mix(before, i)
    if self.key("use_parallel_residual", self.arch in ("phi2", "command-r")):
      other = self.norm(x, p + "ffn_norm") if p + "ffn_norm.weight" in self.w else before
      return x + y + self.feed_forward(other, i)
    if not late and p + "post_attention_norm.weight" in self.w: y = self.norm(y, p + "post_attention_norm")
    x = x + y * scale
    name = p + ("post_attention_norm" if late else "ffn_norm")
    y = self.feed_forward(self.norm(x, name) if plain or name + ".weight" in self.w else x, i)
    if p + "post_ffw_norm.weight" in self.w: y = self.norm(y, p + "post_ffw_norm")
    return x + y * scale

  def hidden(self, tokens):
    """What the last norm gives, (tokens, dim)."""
    x = self.w["token_embd.weight"][torch.tensor(tokens)]
    if self.arch.startswith("gemma"): x = x * math.sqrt(self.dim)
    x = x * self.key("embedding_scale", 1.0)
    if "position_embd.weight" in self.w: x = x + self.w["position_embd.weight"][:len(tokens)]
    for i in range(self.layers): x = self.layer(x, i)
    return self.norm(x, "output_norm")

  def logits(self, tokens):
    """(tokens, vocabulary)."""
    x = self.hidden(tokens)
    y = self.linear(x, "output") if "output.weight" in self.w else x @ self.w["token_embd.weight"].T
    scale = self.key("logit_scale", 1.0)
    y = y / scale if self.arch == "granite" else y * scale
    cap = self.key("final_logit_softcapping", 30.0 if self.arch == "gemma2" else 0)
    return torch.tanh(y / cap) * cap if cap else y
