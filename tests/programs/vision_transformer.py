"""A vision transformer: patches by reshape and permute, a class token, dropout off, training jitted with the
learning rate as a tensor."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

DIM = 12


class Layer:
    def __init__(self):
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 24), nn.Linear(24, DIM)

    def __call__(self, x):
        h = self.n1(x)
        q, k, v = (f(h).reshape(x.shape[0], -1, 3, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(q.scaled_dot_product_attention(k, v).transpose(1, 2).flatten(2))
        return x + self.down(self.up(self.n2(x)).gelu())


class ViT:
    def __init__(self):
        self.embed, self.cls, self.position = nn.Linear(16, DIM), Tensor.zeros(1, 1, DIM), Tensor.zeros(1, 5, DIM)
        self.layers, self.norm, self.head = [Layer(), Layer()], nn.LayerNorm(DIM), nn.Linear(DIM, 3)

    def __call__(self, x):
        b = x.shape[0]
        patches = x.reshape(b, 2, 4, 2, 4).permute(0, 1, 3, 2, 4).reshape(b, 4, 16)
        x = self.cls.expand(b, 1, DIM).cat(self.embed(patches), dim=1) + self.position
        return self.head(self.norm(x.sequential(self.layers))[:, 0])


net = ViT()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.AdamW(get_parameters(net), lr=0.0, weight_decay=0.05)


@TinyJit
def step(x, y, rate):
    opt.lr.assign(rate)
    opt.zero_grad()
    logits = net(x)
    loss = logits.sparse_categorical_crossentropy(y, label_smoothing=0.1)
    loss.backward()
    opt.step()
    return loss.realize(), logits.argmax(axis=1).realize()


with Context(TRAINING=1):
    for i in range(6):
        x, y = Tensor(normal(5, 8, 8, seed=i)).realize(), Tensor(integers(3, 5, seed=30 + i)).realize()
        loss, guess = step(x, y, Tensor([0.002 * (i + 1)]).realize())
        log("loss", loss.item())
        log("guess", guess.tolist())
log("class token", net.cls.flatten().tolist(), rtol=1e-3)  # six steps of Adam
