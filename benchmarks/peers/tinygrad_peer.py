"""tinygrad on its CPU device with its default optimizations; everything is captured by TinyJit, so that only its
kernels are timed."""
import importlib.metadata
from tinygrad import Context, Device, Tensor, TinyJit, dtypes, nn
import inputs
from rows import RESNET_LABELS
from worker import Work


class ConvNet:
  def __init__(self):
    self.layers = [nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu, nn.BatchNorm(32),
                   Tensor.max_pool2d,
                   nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu, nn.BatchNorm(64),
                   Tensor.max_pool2d,
                   lambda x: x.flatten(1), nn.Linear(576, 10)]
  def __call__(self, x): return x.sequential(self.layers)


class BasicBlock:
  def __init__(self, inputs_: int, planes: int, stride: int):
    self.conv1, self.bn1 = nn.Conv2d(inputs_, planes, 3, stride, 1, bias=False), nn.BatchNorm(planes)
    self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm(planes)
    self.down = [] if stride == 1 and inputs_ == planes else [nn.Conv2d(inputs_, planes, 1, stride, bias=False),
                                                              nn.BatchNorm(planes)]
  def __call__(self, x): return (self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())) + x.sequential(self.down)).relu()


class ResNet18:
  def __init__(self):
    self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm(64)
    self.layers = [BasicBlock(planes if second else max(planes // 2, 64), planes, 1 if second or planes == 64 else 2)
                   for planes in (64, 128, 256, 512) for second in (False, True)]
    self.fc = nn.Linear(512, 1000)
  def __call__(self, x):
    x = self.bn1(self.conv1(x)).relu().pad((1, 1, 1, 1)).max_pool2d((3, 3), 2)
    return self.fc(x.sequential(self.layers).mean((2, 3)))


def half(blocks): return blocks[..., :2].bitcast(dtypes.float16).float()
def unpack_q4_0(blocks):
  q = blocks[..., 2:18]
  return (q.bitwise_and(15).cat(q.rshift(4), dim=-1).float() - 8) * half(blocks)
def unpack_q8_0(blocks): return blocks[..., 2:34].bitcast(dtypes.int8).float() * half(blocks)


def block(x, p):
  """A GPT-2 block; parameters in the order of rows.gpt2_parameters()."""
  batch, time, channels = x.shape
  q, k, v = (t.reshape(batch, time, inputs.HEADS, -1).transpose(1, 2)
             for t in (x.layernorm() * p[0] + p[1]).linear(p[2].T, p[3]).chunk(3, -1))
  y = x + q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(batch, time,
      channels).linear(p[4].T, p[5])
  return y + (y.layernorm() * p[6] + p[7]).linear(p[8].T, p[9]).gelu().linear(p[10].T, p[11])


class Peer:
  def __init__(self, name: str, threads: int):
    self.version = importlib.metadata.version("tinygrad")
    Device["CPU"]

  def _operands(self, row): return [Tensor(v).realize() for v in inputs.operands(row)]

  def _work(self, make) -> Work:
    last = []
    @TinyJit
    def f():
      out = make()
      out = list(out) if isinstance(out, (list, tuple)) else [out]
      Tensor.realize(*out)
      return out
    def run():
      last[:] = f()
      Device["CPU"].synchronize()
    return Work(run, lambda: [t.numpy() for t in last])

  def matmul(self, row) -> Work:
    a, b = (t.transpose(-1, -2) if row.args[f"transpose_{n}"] else t for n, t in zip("ab", self._operands(row)))
    return self._work(lambda: a @ b)

  def gemv(self, row) -> Work:
    a, v = self._operands(row)
    return self._work(lambda: a @ v)

  def gemv_quantized(self, row) -> Work:
    blocks, v = self._operands(row)
    unpack = {"q4_0": unpack_q4_0, "q8_0": unpack_q8_0}[row.args["format"]]
    return self._work(lambda: unpack(blocks).reshape(v.shape[0], v.shape[0]) @ v)

  def _conv(self, row, x, weight):
    return x.conv2d(weight, groups=row.args["groups"], stride=row.args["stride"], padding=row.args["padding"],
                                                dilation=row.args["dilation"])
  def conv(self, row) -> Work:
    x, weight = self._operands(row)
    return self._work(lambda: self._conv(row, x, weight))
  def conv_backward(self, row) -> Work:
    x, weight, dy = self._operands(row)
    return self._work(lambda: self._conv(row, x, weight).gradient(x, weight, gradient=dy))

  def add_mul(self, row) -> Work:
    a, b, c = self._operands(row)
    return self._work(lambda: a * b + c)

  def _map(self, row, f) -> Work:
    x, = self._operands(row)
    return self._work(lambda: f(x))
  def exp(self, row) -> Work: return self._map(row, Tensor.exp)
  def sin(self, row) -> Work: return self._map(row, Tensor.sin)
  def gelu(self, row) -> Work: return self._map(row, Tensor.gelu)
  def sum(self, row) -> Work: return self._map(row, lambda x: x.sum(row.args["axis"]))
  def max(self, row) -> Work: return self._map(row, lambda x: x.max(row.args["axis"]))
  def mean(self, row) -> Work: return self._map(row, lambda x: x.mean(row.args["axis"]))
  def softmax(self, row) -> Work: return self._map(row, Tensor.softmax)
  def layernorm(self, row) -> Work: return self._map(row, Tensor.layernorm)

  def attention(self, row) -> Work:
    q, k, v = self._operands(row)
    return self._work(lambda: q.scaled_dot_product_attention(k, v, is_causal=True))

  def gpt2(self, row) -> Work:
    x, p = self._operands(row)[0], [Tensor(v).realize() for v in inputs.gpt2_values()]
    return self._work(lambda: block(x, p))

  def gpt2_train(self, row) -> Work:
    (x, dy), p = self._operands(row), [Tensor(v).realize() for v in inputs.gpt2_values()]
    return self._work(lambda: block(x, p).gradient(*p, gradient=dy))

  def _training(self, optimizer, loss_of) -> Work:
    losses = []
    @TinyJit
    def step():
      optimizer.zero_grad()
      loss = loss_of().backward()
      return loss.realize(*optimizer.schedule_step())
    def run():
      with Context(TRAINING=1): losses.append(step().item())
    return Work(run, lambda: losses)

  def mnist_step(self, row) -> Work:
    Tensor.manual_seed(42)
    images, labels = (Tensor(v).realize() for v in inputs.mnist())
    model = ConvNet()
    def loss():
      rows = Tensor.randint(512, high=images.shape[0])
      return model(images[rows]).sparse_categorical_crossentropy(labels[rows])
    return self._training(nn.optim.Adam(nn.state.get_parameters(model)), loss)

  def resnet_step(self, row) -> Work:
    model, (x,), labels = ResNet18(), self._operands(row), Tensor(list(RESNET_LABELS)).realize()
    trained = [(name, t) for name,
               t in nn.state.get_state_dict(model).items() if "running_" not in name and "num_batches" not in name]
    for (_, t), v in zip(trained, inputs.layer_values([(name, t.shape) for name, t in trained])):
      t.replace(Tensor(v).realize())
    return self._training(nn.optim.SGD([t for _, t in trained], lr=0.01),
                          lambda: model(x).sparse_categorical_crossentropy(labels))
