"""Blocks of language models with the names of weights that GGUF files use, and a model that generates tokens.

Blocks keep what they have seen: keys and values by position, or a recurrent state. `start_pos` says how many tokens
came before those given."""
from __future__ import annotations
import enum, functools, itertools
from dataclasses import dataclass, replace
from .. import nn
from ..dtype import dtypes
from ..engine.jit import TinyJit
from ..tensor import Tensor
from ..uop.ops import UOp


class ExpertGating(enum.IntEnum):
  """How router logits become weights of experts."""
  SOFTMAX = 1
  SIGMOID = 2
  SOFTMAX_WEIGHT = 3  # softmax of those that were selected
  SQRT_SOFTPLUS = 4


@dataclass(frozen=True)
class SSMConfig:
  conv_kernel: int
  state_size: int
  group_count: int
  time_step_rank: int
  inner_size: int
  kda: bool = False  # a decay for every channel, and gates of low rank


@dataclass(frozen=True)
class TransformerConfig:
  num_blocks: int
  dim: int
  hidden_dim: int
  n_heads: int
  n_kv_heads: int
  norm_eps: float
  vocab_size: int
  head_dim: int
  rope_theta: float
  rope_dim: int
  v_head_dim: int
  max_context: int = 0
  qk_norm: int = 0
  num_experts: int = 0
  num_experts_per_tok: int = 0
  norm_topk_prob: bool = False
  expert_gating_func: ExpertGating = ExpertGating.SOFTMAX
  q_lora_rank: int = 0
  kv_lora_rank: int = 0
  shared_expert_dim: int = 0
  ssm_layers: tuple[bool, ...] = ()
  attn_output_gate: bool = False
  ssm: SSMConfig | None = None
  shared_expert_gate: bool = True
  leading_dense_blocks: int = 0
  dense_hidden_dim: int = 0
  routed_scaling_factor: float = 1.0
  qkv_bias: bool = False
  expert_bias: bool = False


# *** functions ***

@functools.cache
def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0, device: str | None = None) -> Tensor:
  """Cosines, then sines, of the angles position * theta^(-2i / dim): (end, dim)."""
  exponents = Tensor.arange(0, dim - dim % 2, 2).float() / -dim
  angles = Tensor.arange(end).float().reshape(end, 1) * (theta ** exponents).reshape(1, dim // 2)
  return Tensor.cat(angles.cos(), angles.sin(), dim=1).clone().to(device).is_param_(False)


def apply_rope(x: Tensor, freqs_cis: Tensor) -> Tensor:
  """Turns each pair (x[i], x[i + half]) of (batch, heads, time, dim) by the angles of its position; freqs_cis: (time,
  dim)."""
  half, odd = divmod(x.shape[-1], 2)
  assert not odd, f"[apply_rope] got a last axis of {x.shape[-1]}, expected an even one"
  cos, sin = freqs_cis[:, :half], freqs_cis[:, half:]
  a, b = x[..., :half], x[..., half:]
  return Tensor.cat(a * cos - b * sin, b * cos + a * sin, dim=-1)


def pairwise_topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
  """The k largest of the last axis and their positions (int32), the largest last, without sorting: an element's rank is
  how many it beats, an earlier one beating later equals."""
  n = x.shape[-1]
  this, other = x.unsqueeze(-1), x.unsqueeze(-2)
  number = Tensor.arange(n)
  beats = (this > other) | ((this == other) & (number.reshape(n, 1) < number.reshape(1, n)))
  rank = beats.sum(-1).cast(dtypes.int32)
  # the position whose rank is n - k, n - k + 1, ...
  wanted = (Tensor.arange(k) + (n - k)).reshape(*[1] * (x.ndim - 1), k, 1)
  place = (rank.unsqueeze(-2) == wanted).where(number, 0).sum(-1).cast(dtypes.int32)
  return x.gather(-1, place), place


def _is_one(time: int | UOp) -> bool: return isinstance(time, int) and time == 1


def _seen(time: int | UOp, start_pos: int | UOp, keys: int | UOp) -> Tensor:
  """(time, keys): the query at start_pos + i sees keys 0 to start_pos + i."""
  first = Tensor(start_pos) if isinstance(start_pos, UOp) else start_pos
  return Tensor.arange(keys).reshape(1, keys) <= Tensor.arange(time).reshape(time, 1) + first


# *** blocks ***

class ExpertWeights:
  """The weights (experts, out, in) of as many linear layers."""
  def __init__(self, num_experts: int, in_features: int, out_features: int):
    self.weight = Tensor.zeros(num_experts, out_features, in_features)
  def __call__(self, sel: Tensor, x: Tensor) -> Tensor:
    """sel (batch, time, k) names experts; x (batch, time, 1 or k, in) gives (batch, time, k, out)."""
    return self.weight[sel].matmul(x.unsqueeze(-1)).squeeze(-1).contiguous()


class FFNBlock:
  """A residual block: attention, which subclasses define, then a gated feed-forward network or a mixture of such."""
  def __init__(self, config: TransformerConfig):
    self.config = c = config
    self.attn_norm, self.ffn_norm = nn.RMSNorm(c.dim, c.norm_eps), nn.RMSNorm(c.dim, c.norm_eps)
    if c.num_experts == 0:
      self.ffn_gate, self.ffn_up = nn.Linear(c.dim, c.hidden_dim, bias=False), nn.Linear(c.dim, c.hidden_dim,
          bias=False)
      self.ffn_down = nn.Linear(c.hidden_dim, c.dim, bias=False)
      return
    self.ffn_gate_inp = nn.Linear(c.dim, c.num_experts, bias=False)
    if c.expert_bias: self.exp_probs_b = {"bias": Tensor.zeros(c.num_experts)}
    self.ffn_gate_exps, self.ffn_up_exps = ExpertWeights(c.num_experts, c.dim,
                                                         c.hidden_dim), ExpertWeights(c.num_experts, c.dim,
                                                             c.hidden_dim)
    self.ffn_down_exps = ExpertWeights(c.num_experts, c.hidden_dim, c.dim)
    if c.shared_expert_dim == 0: return
    self.ffn_gate_shexp, self.ffn_up_shexp = (nn.Linear(c.dim, c.shared_expert_dim, bias=False) for _ in range(2))
    self.ffn_down_shexp = nn.Linear(c.shared_expert_dim, c.dim, bias=False)
    if c.shared_expert_gate: self.ffn_gate_inp_shexp = {"weight": Tensor.zeros(c.dim)}

  def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
    """Experts for each token, and their weights."""
    c, logits = self.config, self.ffn_gate_inp(x)
    gating = c.expert_gating_func
    scores = {ExpertGating.SOFTMAX: lambda: logits.softmax(-1), ExpertGating.SIGMOID: logits.sigmoid,
              ExpertGating.SOFTMAX_WEIGHT: lambda: logits,
              ExpertGating.SQRT_SOFTPLUS: lambda: logits.softplus().sqrt()}[gating]()
    _, sel = pairwise_topk(scores + self.exp_probs_b["bias"] if hasattr(self, "exp_probs_b") else scores,
                           c.num_experts_per_tok)
    weights = scores.gather(-1, sel)
    if gating == ExpertGating.SOFTMAX_WEIGHT: weights = weights.softmax(-1)
    if c.norm_topk_prob: weights = weights / weights.sum(-1, keepdim=True)
    return sel, weights * c.routed_scaling_factor

  def _feed_forward(self, x: Tensor) -> Tensor:
    if hasattr(self, "ffn_gate"): return self.ffn_down(self.ffn_gate(x).silu() * self.ffn_up(x))
    sel, weights = self._route(x)
    each = x.unsqueeze(2)
    hidden = self.ffn_gate_exps(sel, each).silu() * self.ffn_up_exps(sel, each)
    y = (self.ffn_down_exps(sel, hidden) * weights.unsqueeze(-1)).sum(2)
    if not hasattr(self, "ffn_gate_shexp"): return y
    shared = self.ffn_down_shexp(self.ffn_gate_shexp(x).silu() * self.ffn_up_shexp(x))
    if hasattr(self, "ffn_gate_inp_shexp"):
      shared = shared * (x * self.ffn_gate_inp_shexp["weight"]).sum(-1, keepdim=True).sigmoid()
    return y + shared

  def _init_state(self, x: Tensor): raise NotImplementedError
  def _attention(self, x: Tensor, start_pos: int | UOp) -> Tensor: raise NotImplementedError
  def _written(self) -> list[Tensor]:
    """What is to be computed with the output although it does not depend on it."""
    return []
  def _reusable_prefix_len(self, prefix_len: int, cached_len: int) -> int:
    """How many of prefix_len tokens that are the same as before need not be given again."""
    return prefix_len

  def __call__(self, x: Tensor, start_pos: int | UOp) -> Tensor:
    self._init_state(x)
    h = x + self._attention(self.attn_norm(x), start_pos)
    out = (h + self._feed_forward(self.ffn_norm(h))).contiguous()
    if written := self._written(): Tensor.realize(out, *written)
    return out


class TransformerBlock(FFNBlock):
  """Attention with groups of heads that share keys and values, and rotary positions."""
  def __init__(self, config: TransformerConfig):
    super().__init__(config)
    c = config
    assert c.v_head_dim == c.head_dim, (
      f"[TransformerBlock] got v_head_dim {c.v_head_dim}, expected head_dim {c.head_dim}")
    self.attn_q = nn.Linear(c.dim, c.head_dim * c.n_heads * (2 if c.attn_output_gate else 1), bias=c.qkv_bias)
    self.attn_k, self.attn_v = (nn.Linear(c.dim, c.head_dim * c.n_kv_heads, bias=c.qkv_bias) for _ in range(2))
    self.attn_output = nn.Linear(c.head_dim * c.n_heads, c.dim, bias=False)
    if c.qk_norm:
      self.attn_q_norm, self.attn_k_norm = nn.RMSNorm(c.qk_norm, c.norm_eps), nn.RMSNorm(c.qk_norm, c.norm_eps)

  def _init_state(self, x: Tensor):
    if hasattr(self, "cache_kv"): return
    c = self.config
    cache = Tensor.zeros(2, x.shape[0], c.n_kv_heads, c.max_context, c.head_dim, dtype=dtypes.default_float,
                         device=x.device)
    self.cache_kv = cache.clone().is_param_(False)
    self.freqs_cis = precompute_freqs_cis(c.rope_dim, c.max_context, c.rope_theta, device=x.device)

  def _turned(self, x: Tensor, start_pos: int | UOp) -> Tensor:
    n = self.config.rope_dim
    y = apply_rope(x[..., :n], self.freqs_cis[start_pos:start_pos + x.shape[2]])
    return y if n == x.shape[-1] else Tensor.cat(y, x[..., n:], dim=-1)

  def _attention(self, x: Tensor, start_pos: int | UOp) -> Tensor:
    c, (batch, time, _) = self.config, x.shape
    q, k, v, gate = self.attn_q(x), self.attn_k(x), self.attn_v(x), None
    if c.qk_norm and c.qk_norm != c.head_dim: q, k = self.attn_q_norm(q), self.attn_k_norm(k)
    if c.attn_output_gate:
      both = q.reshape(batch, time, c.n_heads, 2, c.head_dim)
      q, gate = both[:, :, :, 0], both[:, :, :, 1].reshape(batch, time, -1)
    q, k, v = (t.reshape(batch, time, -1, c.head_dim).transpose(1, 2) for t in (q, k, v))
    if c.qk_norm == c.head_dim: q, k = self.attn_q_norm(q), self.attn_k_norm(k)
    q, k = self._turned(q, start_pos), self._turned(k, start_pos)

    self.cache_kv[:, :, :, start_pos:start_pos + time].assign(Tensor.stack(k, v).cast(self.cache_kv.dtype))
    keys = start_pos + time
    k, v = self.cache_kv[0, :, :, :keys], self.cache_kv[1, :, :, :keys]
    mask = None if _is_one(time) else _seen(time, start_pos, keys)
    y = q.scaled_dot_product_attention(k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2).reshape(batch, time, -1)
    return self.attn_output(y if gate is None else y * gate.sigmoid())


class MLATransformerBlock(FFNBlock):
  """Attention whose keys and values are one low-rank vector a token, and a part with rotary positions."""
  def __init__(self, config: TransformerConfig):
    super().__init__(config)
    c = config
    if c.q_lora_rank > 0:
      self.attn_q_a, self.attn_q_a_norm = nn.Linear(c.dim, c.q_lora_rank, bias=False), nn.RMSNorm(c.q_lora_rank,
          c.norm_eps)
      self.attn_q_b = nn.Linear(c.q_lora_rank, c.n_heads * c.head_dim, bias=False)
    else: self.attn_q = nn.Linear(c.dim, c.n_heads * c.head_dim, bias=False)
    self.attn_kv_a_mqa, self.attn_kv_a_norm = nn.Linear(c.dim, c.kv_lora_rank + c.rope_dim,
                                                        bias=False), nn.RMSNorm(c.kv_lora_rank, c.norm_eps)
    self.attn_k_b = {"weight": Tensor.zeros(c.n_heads, c.kv_lora_rank, c.head_dim - c.rope_dim)}
    self.attn_v_b = {"weight": Tensor.zeros(c.n_heads, c.v_head_dim, c.kv_lora_rank)}
    self.attn_output = nn.Linear(c.n_heads * c.v_head_dim, c.dim, bias=False)

  def _init_state(self, x: Tensor):
    if hasattr(self, "cache_k"): return
    c = self.config
    self.cache_k = Tensor.zeros(x.shape[0], 1, c.max_context, c.kv_lora_rank + c.rope_dim,
                                device=x.device).clone().is_param_(False)
    self.freqs_cis = precompute_freqs_cis(c.rope_dim, c.max_context, c.rope_theta, device=x.device)

  def _attention(self, x: Tensor, start_pos: int | UOp) -> Tensor:
    c, (batch, time, _) = self.config, x.shape
    def turned(t: Tensor) -> Tensor:
      return t if c.ssm and c.ssm.kda else apply_rope(t, self.freqs_cis[start_pos:start_pos + time])
    q = self.attn_q_b(self.attn_q_a_norm(self.attn_q_a(x))) if c.q_lora_rank > 0 else self.attn_q(x)
    q, plain = q.reshape(batch, time, c.n_heads, c.head_dim).transpose(1, 2), c.head_dim - c.rope_dim
    # queries are brought to the low-rank space, so that the cache is all keys there are
    q = Tensor.cat(q[..., :plain].matmul(self.attn_k_b["weight"].transpose(-1, -2)), turned(q[..., plain:]), dim=-1)
    kv = self.attn_kv_a_mqa(x)
    k = Tensor.cat(self.attn_kv_a_norm(kv[..., :c.kv_lora_rank]).unsqueeze(1),
                   turned(kv[..., c.kv_lora_rank:].unsqueeze(1)), dim=-1)

    self.cache_k[:, :, start_pos:start_pos + time].assign(k.cast(self.cache_k.dtype))
    keys = start_pos + time
    k = self.cache_k[:, :, :keys]
    scores = q.matmul(k.transpose(-1, -2)) * c.head_dim ** -0.5
    if not _is_one(time): scores = _seen(time, start_pos, keys).where(scores, float("-inf"))
    y = scores.softmax(-1).matmul(k[..., :c.kv_lora_rank]).matmul(self.attn_v_b["weight"].transpose(-1, -2))
    return self.attn_output(y.transpose(1, 2).reshape(batch, time, -1))


class GatedDeltaNetBlock(FFNBlock):
  """Linear attention: a matrix for each head, which decays and learns every token's value by the delta rule, behind a
  short convolution over time."""
  def __init__(self, config: TransformerConfig, ssm: SSMConfig):
    super().__init__(config)
    c, heads = config, ssm.time_step_rank
    assert heads % ssm.group_count == 0, (
      f"[GatedDeltaNetBlock] got {heads} heads of values for {ssm.group_count} of keys, expected a multiple")
    self.head_k_dim, self.num_k_heads = ssm.state_size, ssm.group_count
    self.num_v_heads, self.head_v_dim = heads, ssm.inner_size // heads
    self.ssm_conv_kernel, self.q_dim = ssm.conv_kernel, ssm.state_size * ssm.group_count
    self.conv_channels = ssm.inner_size + 2 * self.q_dim
    self.attn_qkv = nn.Linear(c.dim, self.conv_channels, bias=False)
    if ssm.kda:
      self.ssm_g_a, self.ssm_g_b = nn.Linear(c.dim, self.head_v_dim, bias=False), nn.Linear(self.head_v_dim,
          ssm.inner_size, bias=False)
      self.ssm_f_a, self.ssm_f_b = nn.Linear(c.dim, self.head_k_dim, bias=False), nn.Linear(self.head_k_dim,
          ssm.inner_size, bias=False)
    else:
      self.attn_gate, self.ssm_alpha = nn.Linear(c.dim, ssm.inner_size, bias=False), nn.Linear(c.dim, heads, bias=False)
    self.ssm_beta = nn.Linear(c.dim, heads, bias=False)
    self.ssm_conv1d = {"weight": Tensor.zeros(self.conv_channels, self.ssm_conv_kernel)}
    self.ssm_dt = {"bias": Tensor.zeros(ssm.inner_size if ssm.kda else heads)}
    self.ssm_a = Tensor.zeros(heads, 1) if ssm.kda else Tensor.zeros(heads)
    self.ssm_norm, self.ssm_out = nn.RMSNorm(self.head_v_dim, c.norm_eps), nn.Linear(ssm.inner_size, c.dim, bias=False)

  def _init_state(self, x: Tensor):
    if hasattr(self, "conv_state"): return
    def state(*shape: int) -> Tensor: return Tensor.zeros(x.shape[0], *shape, device=x.device).clone().is_param_(False)
    self.conv_state = state(self.ssm_conv_kernel - 1, self.conv_channels)
    self.recurrent_state = state(self.num_v_heads, self.head_v_dim, self.head_k_dim)

  def _written(self) -> list[Tensor]: return [self.conv_state, self.recurrent_state]

  def _convolved(self, x: Tensor, before: Tensor) -> Tensor:
    """Queries, keys and values, each the sum of the last tokens' with a weight for each channel; moves the state."""
    time, width = x.shape[1], self.ssm_conv_kernel
    window = Tensor.cat(before, self.attn_qkv(x).cast(before.dtype), dim=1).contiguous()
    self.conv_state.assign(window[:, time:].cast(self.conv_state.dtype))
    weight = self.ssm_conv1d["weight"]
    return sum((window[:, i:i + time] * weight[:, i] for i in range(1, width)), window[:, :time] * weight[:, 0]).silu()

  def _attention(self, x: Tensor, start_pos: int | UOp) -> Tensor:
    (batch, time, _), heads, kda = x.shape, self.num_v_heads, hasattr(self, "ssm_g_a")
    fresh = Tensor(start_pos).eq(0) if isinstance(start_pos, UOp) else start_pos == 0
    def unless_fresh(t: Tensor) -> Tensor:
      return fresh.where(0, t) if isinstance(fresh, Tensor) else t.zeros_like() if fresh else t
    x = x.half()
    gate = (self.ssm_g_b(self.ssm_g_a(x)).sigmoid() if kda else self.attn_gate(x).silu()).reshape(batch, time, heads,
        self.head_v_dim)
    rate = (self.ssm_f_b(self.ssm_f_a(x)) if kda else self.ssm_alpha(x)).float() + self.ssm_dt["bias"]
    # (batch, time, heads, 1 or values)
    decay = (rate.softplus().reshape(batch, time, heads, -1) * self.ssm_a.reshape(heads, -1)).exp()
    learn = self.ssm_beta(x).sigmoid().float()

    q, k, v = self._convolved(x, unless_fresh(self.conv_state)).split([self.q_dim, self.q_dim, heads * self.head_v_dim],
                                                                      dim=-1)
    def keys(t: Tensor) -> Tensor:
      t = t.reshape(batch, time, self.num_k_heads, self.head_k_dim).normalize(dim=-1, eps=1e-12 if kda else 1e-6)
      # against the state (batch, heads, values, keys)
      return t.repeat(1, 1, heads // self.num_k_heads, 1).float().unsqueeze(-2)
    q, k, v = keys(q) * self.head_k_dim ** -0.5, keys(k), v.reshape(batch, time, heads, self.head_v_dim).float()

    state, outs = unless_fresh(self.recurrent_state).float(), []
    for t in range(time):
      state = state * decay[:, t].unsqueeze(-1)
      error = (v[:, t] - (state * k[:, t]).sum(-1)) * learn[:, t].unsqueeze(-1)
      state = (state + error.unsqueeze(-1) * k[:, t]).contiguous()
      outs.append((state * q[:, t]).sum(-1))
    y = self.ssm_norm(Tensor.stack(*outs, dim=1).contiguous())
    self.recurrent_state.assign(state.cast(self.recurrent_state.dtype))
    return self.ssm_out((y * gate).cast(x.dtype).reshape(batch, time, -1))


# *** the model ***

class Transformer:
  """Tokens (1, time) and how many came before give the next token, drawn with a temperature."""
  def __init__(self, config: TransformerConfig):
    dense = replace(config, num_experts=0, num_experts_per_tok=0, shared_expert_dim=0,
                    hidden_dim=config.dense_hidden_dim or config.hidden_dim)
    if config.ssm: config, dense = (replace(c, qk_norm=c.head_dim) for c in (config, dense))
    attention = MLATransformerBlock if config.kv_lora_rank > 0 else TransformerBlock
    def block(i: int) -> FFNBlock:
      c = dense if i < config.leading_dense_blocks else config
      return GatedDeltaNetBlock(c, c.ssm) if c.ssm and c.ssm_layers[i] else attention(c)
    self.blk: list[FFNBlock] = [block(i) for i in range(config.num_blocks)]
    self.token_embd, self.output_norm = nn.Embedding(config.vocab_size, config.dim), nn.RMSNorm(config.dim,
        config.norm_eps)
    self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
    self.max_context = config.max_context
    self.has_recurrent_block = any(isinstance(b, GatedDeltaNetBlock) for b in self.blk)
    self._cached_tokens: list[int] = []
    self._steps: dict[int, TinyJit] = {}  # by the most tokens of a call

  def logits(self, tokens: Tensor, start_pos: int | UOp) -> Tensor:
    """Of the token after the last one: (1, vocab)."""
    x = self.token_embd(tokens).float()
    for block in self.blk: x = block(x, start_pos)
    return self.output(self.output_norm(x[:, -1]))

  def forward(self, tokens: Tensor, start_pos: int | UOp, temperature: Tensor) -> Tensor:
    """The next token (1, 1). The maximum of logits / temperature plus Gumbel noise is a draw from their softmax."""
    logits = self.logits(tokens, start_pos)
    noise = logits.rand_like().maximum(1e-12).log().neg().log()
    return (logits / temperature.maximum(1e-12) - noise).argmax(-1, keepdim=True)

  def __call__(self, tokens: Tensor, start_pos: int | UOp, temperature: Tensor) -> Tensor:
    """As forward. Where `start_pos` is a variable, steps with as many tokens, or as many at most, are captured once."""
    if not isinstance(start_pos, UOp): return self.forward(tokens, start_pos, temperature)
    step = self._steps.setdefault(tokens.max_shape[1], TinyJit(self.forward))
    return step(tokens.contiguous().realize(), start_pos, temperature)

  def warmup(self):
    """Captures the steps of `generate`: a prompt's and a token's."""
    for _ in range(2): list(zip(range(2), self.generate([0])))

  def get_start_pos(self, tokens: list[int]) -> int:
    """How many of these tokens the blocks know; at least the last one is given to them again."""
    known = self._cached_tokens
    # a recurrent state knows its last token only: no way back
    if self.has_recurrent_block: return len(known) if len(known) < len(tokens) and tokens[:len(known)] == known else 0
    same = sum(1 for _ in itertools.takewhile(lambda ab: ab[0] == ab[1], zip(tokens[:-1], known)))
    return min(b._reusable_prefix_len(same, len(known)) for b in self.blk)

  def generate(self, tokens: list[int], chunk_size: int = 32, temperature: float = 0.0):
    """Appends tokens to the list and yields them, until the context is full. Prompts are read in parts of at most
    chunk_size, whose length is a variable; recurrent blocks read them token by token."""
    if self.has_recurrent_block: chunk_size = 1
    position, length = UOp.variable("start_pos", 0, self.max_context - 1), UOp.variable("toks", 1, chunk_size)
    chosen, start, prompt = Tensor([temperature]), self.get_start_pos(tokens), len(tokens)
    # room behind the context, so that the longest part fits in wherever it starts
    given = Tensor([tokens + [0] * (self.max_context + chunk_size - prompt)], dtype=dtypes.int32).realize()
    while len(tokens) < self.max_context:
      n = min(chunk_size, len(tokens) - start)
      at = position.bind(start)
      if start < prompt: part = given[:, at:at + (length.bind(n) if chunk_size > 1 else 1)]
      else: part = Tensor([tokens[start:]], dtype=dtypes.int32)
      out = self(part, at, chosen).realize()
      start += n
      self._cached_tokens = tokens[:start]
      if start < len(tokens): continue
      tokens.append(int(out.item()))
      yield tokens[-1]
