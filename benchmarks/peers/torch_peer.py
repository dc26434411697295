"""PyTorch: eager, into given tensors where it can, and torch.compile."""
import os, time
import torch
import torch.nn.functional as F
from torch import nn
import inputs
from rows import RESNET_LABELS
from worker import Work


def kernels_of_mkl() -> str:
  """What MKL's products use: it takes AVX-512 on Intel's processors, and elsewhere when it is told that this is one."""
  with open("/proc/cpuinfo") as f: intel = "GenuineIntel" in f.read()
  told = "mkl_takes_this_for_intel" in os.environ.get("LD_PRELOAD", "")
  return f"MKL {'told to use AVX-512' if told else 'by its own choice' if intel else 'without AVX-512'}"


def product_of_casts(a, b): return (a.float() @ b.float()).half()


def casts_are_faster(a, b) -> bool:
  """Half has no instruction on most processors; PyTorch's own product then takes minutes where the product of float32
  casts, which users write instead, takes a second."""
  def seconds(product):
    product(a, b)
    start = time.perf_counter()
    product(a, b)
    return time.perf_counter() - start
  return seconds(product_of_casts) < seconds(torch.matmul)


class ConvNet(nn.Module):
  def __init__(self):
    super().__init__()
    self.conv1, self.conv2, self.bn1 = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 32, 5), nn.BatchNorm2d(32)
    self.conv3, self.conv4, self.bn2 = nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64)
    self.fc = nn.Linear(576, 10)
  def forward(self, x, labels):
    x = F.max_pool2d(self.bn1(F.relu(self.conv2(F.relu(self.conv1(x))))), 2)
    x = F.max_pool2d(self.bn2(F.relu(self.conv4(F.relu(self.conv3(x))))), 2)
    return F.cross_entropy(self.fc(x.flatten(1)), labels)


class BasicBlock(nn.Module):
  def __init__(self, inputs_: int, planes: int, stride: int):
    super().__init__()
    self.conv1, self.bn1 = nn.Conv2d(inputs_, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
    self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm2d(planes)
    same = stride == 1 and inputs_ == planes
    self.down = nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs_, planes, 1, stride, bias=False),
                                                         nn.BatchNorm2d(planes))
  def forward(self, x): return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.down(x))


class ResNet18(nn.Module):
  def __init__(self):
    super().__init__()
    self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
    self.layers = nn.Sequential(*[BasicBlock(planes if second else max(planes // 2, 64), planes,
                                             1 if second or planes == 64 else 2)
                                  for planes in (64, 128, 256, 512) for second in (False, True)])
    self.fc = nn.Linear(512, 1000)
  def forward(self, x, labels):
    x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
    return F.cross_entropy(self.fc(self.layers(x).mean((2, 3))), labels)


def block(x, p, causal=True):
  """A GPT-2 block; parameters in the order of rows.gpt2_parameters()."""
  batch, time, channels = x.shape
  q, k, v = (t.view(batch, time, inputs.HEADS, -1).transpose(1, 2)
             for t in F.linear(F.layer_norm(x, (channels,), p[0], p[1]), p[2], p[3]).chunk(3, -1))
  a = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(batch, time, channels)
  y = x + F.linear(a, p[4], p[5])
  return y + F.linear(F.gelu(F.linear(F.layer_norm(y, (channels,), p[6], p[7]), p[8], p[9]), approximate="tanh"), p[10],
                      p[11])


# What PyTorch calls our devices.
NAMES = {"CUDA": "cuda", "AMD": "cuda", "METAL": "mps"}


class Peer:
  def __init__(self, name: str, threads: int, device: str = "CPU"):
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    self.compiled = name == "torch_compile"
    self.device = NAMES.get(device, "cpu")
    self.module = getattr(torch, self.device)
    torch.backends.cudnn.allow_tf32 = False  # convolutions of float32 are what both compute; PyTorch's default is tf32
    what = self.module.get_device_name() if self.device == "cuda" else device
    self.version = f"{torch.__version__} ({kernels_of_mkl() if self.device == 'cpu' else what})"

  def wait(self) -> None: self.module.synchronize()

  def _tensor(self, values): return torch.from_numpy(values).to(self.device)
  def _operands(self, row): return [self._tensor(v) for v in inputs.operands(row)]

  def _work(self, make, eager, *x) -> Work:
    """make(*x) gives the result (compiled or eager); eager(out), when there is one, writes it into a tensor."""
    last = []
    with torch.no_grad(): out = make(*x)
    if self.compiled:
      torch._dynamo.reset()
      f = torch.compile(make, dynamic=False)
      def run():
        with torch.no_grad(): last[:] = [f(*x)]
    elif eager:
      last.append(out)
      def run():
        with torch.no_grad(): eager(out)
    else:
      def run():
        with torch.no_grad(): last[:] = [make(*x)]
    return Work(run, lambda: [(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t).cpu().numpy()
                              for t in (last[0] if isinstance(last[0], (tuple, list)) else last)])

  def matmul(self, row) -> Work:
    torch.backends.cuda.matmul.allow_tf32 = row.args["tf32"]
    a, b = (t.transpose(-1, -2) if row.args[f"transpose_{n}"] else t for n, t in zip("ab", self._operands(row)))
    return self._work(torch.matmul, lambda out: torch.matmul(a, b, out=out), a, b)

  def matmul_narrow(self, row) -> Work:
    """int8 to int32; of bfloat16 and half the result has their type, which is what there is."""
    a, b = (t.to(getattr(torch, row.args["type"])) for t in self._operands(row))
    if row.args["transpose_b"]: b = b.T
    if row.args["type"] == "int8": return self._work(torch._int_mm, lambda out: torch._int_mm(a, b, out=out), a, b)
    if row.args["type"] == "float16" and self.device == "cpu" and casts_are_faster(*(t[:256, :256] for t in (a, b))):
      return self._work(product_of_casts, lambda out: out.copy_(a.float() @ b.float()), a, b)
    return self._work(torch.matmul, lambda out: torch.matmul(a, b, out=out), a, b)

  def gemv(self, row) -> Work:
    a, v = self._operands(row)
    return self._work(torch.mv, lambda out: torch.mv(a, v, out=out), a, v)

  def conv(self, row) -> Work:
    a = row.args
    def f(x, weight): return F.conv2d(x, weight, None, a["stride"], a["padding"], a["dilation"], a["groups"])
    return self._work(f, None, *self._operands(row))

  def conv_backward(self, row) -> Work:
    a = row.args
    def f(x, weight, dy):
      return torch.ops.aten.convolution_backward(dy, x, weight, None, [a["stride"]] * 2, [a["padding"]] * 2,
                                                 [a["dilation"]] * 2, False, [0, 0], a["groups"],
                                                 [True, True, False])[:2]
    return self._work(f, None, *self._operands(row))

  def add_mul(self, row) -> Work:
    a, b, c = self._operands(row)
    return self._work(lambda a, b, c: a * b + c, lambda out: torch.addcmul(c, a, b, out=out), a, b, c)

  def copy(self, row) -> Work:
    x, = self._operands(row)
    return self._work(torch.clone, lambda out: out.copy_(x), x)

  def exp(self, row) -> Work:
    x, = self._operands(row)
    return self._work(torch.exp, lambda out: torch.exp(x, out=out), x)

  def sin(self, row) -> Work:
    x, = self._operands(row)
    return self._work(torch.sin, lambda out: torch.sin(x, out=out), x)

  def gelu(self, row) -> Work:
    x, = self._operands(row)
    return self._work(lambda x: F.gelu(x, approximate="tanh"),
                      lambda out: torch._C._nn.gelu(x, approximate="tanh", out=out), x)

  def _reduce(self, row, f) -> Work:
    x, = self._operands(row)
    axis = row.args["axis"]
    return self._work((lambda x: f(x)) if axis is None else (lambda x: f(x, dim=axis)),
                      None if axis is None else lambda out: f(x, dim=axis, out=out), x)
  def sum(self, row) -> Work: return self._reduce(row, torch.sum)
  def max(self, row) -> Work: return self._reduce(row, torch.max)
  def mean(self, row) -> Work: return self._reduce(row, torch.mean)

  def softmax(self, row) -> Work:
    x, = self._operands(row)
    return self._work(lambda x: torch.softmax(x, -1), lambda out: torch.softmax(x, -1, out=out), x)

  def layernorm(self, row) -> Work:
    x, = self._operands(row)
    mean, rstd = (torch.empty(x.shape[0], 1, device=self.device) for _ in range(2))
    into = torch.ops.aten.native_layer_norm.out
    return self._work(lambda x: F.layer_norm(x, x.shape[-1:]),
                      lambda out: into(x, x.shape[-1:], None, None, 1e-5, out0=out, out1=mean, out2=rstd), x)

  def groupnorm(self, row) -> Work:
    return self._work(lambda x: F.group_norm(x, row.args["groups"]), None, *self._operands(row))

  def embedding(self, row) -> Work:
    table, words = self._operands(row)
    return self._work(F.embedding,
                      lambda out: torch.index_select(table, 0, words.flatten(), out=out.view(-1, table.shape[1])),
                      words, table)

  def lstm(self, row) -> Work:
    x, wi, wh = self._operands(row)
    layer = nn.LSTM(row.args["size"], row.args["size"], bias=False).to(self.device)
    with torch.no_grad(): layer.weight_ih_l0.copy_(wi), layer.weight_hh_l0.copy_(wh)
    return self._work(lambda x: layer(x)[0], None, x)

  def vit(self, row) -> Work:
    p = [self._tensor(v) for v in inputs.gpt2_values()]
    return self._work(lambda x, *p: block(x, p, causal=False), None, self._operands(row)[0], *p)

  def attention(self, row) -> Work:
    return self._work(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), None,
                      *self._operands(row))

  def gpt2(self, row) -> Work:
    p = [self._tensor(v) for v in inputs.gpt2_values()]
    return self._work(lambda x, *p: block(x, p), None, self._operands(row)[0], *p)

  def gpt2_train(self, row) -> Work:
    x, dy = self._operands(row)
    p = [self._tensor(v).requires_grad_() for v in inputs.gpt2_values()]
    f = self._compile(block)
    last = []
    def run(): last[:] = torch.autograd.grad(f(x, p), p, dy)
    return Work(run, lambda: [t.cpu().numpy() for t in last])

  def _compile(self, f):
    if not self.compiled: return f
    torch._dynamo.reset()
    return torch.compile(f, dynamic=False)

  def _training(self, model, optimizer, batch) -> Work:
    f, losses = self._compile(model), []
    def run():
      optimizer.zero_grad()
      loss = f(*batch())
      loss.backward()
      optimizer.step()
      losses.append(loss.item())
    return Work(run, lambda: losses)

  def mnist_step(self, row) -> Work:
    torch.manual_seed(42)
    images, labels = (self._tensor(v) for v in inputs.mnist())
    model = ConvNet().to(self.device)
    def batch():
      rows = torch.randint(len(images), (512,), device=self.device)
      return images[rows].float(), labels[rows].long()
    return self._training(model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), batch)

  def resnet_step(self, row) -> Work:
    model, (x,) = ResNet18().to(self.device), self._operands(row)
    labels = torch.tensor(RESNET_LABELS, device=self.device)
    names = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    with torch.no_grad():
      for p, v in zip(model.parameters(), inputs.layer_values(names)): p.copy_(torch.from_numpy(v))
    return self._training(model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True), lambda: (x, labels))
