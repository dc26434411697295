"""SimCLR: two views of each sample, normalised embeddings, the NT-Xent loss over the whole similarity matrix."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

encoder = [nn.Linear(8, 16), Tensor.relu, nn.Linear(16, 6)]
load_state_dict(encoder, {k: Tensor(v) for k, v in initial(get_state_dict(encoder)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(encoder), lr=0.2, momentum=0.9)
N = 6


def nt_xent(a, b, temperature=0.5):
    z = Tensor.cat(a, b)
    z = z / z.square().sum(axis=1, keepdim=True).sqrt()
    similarity = (z @ z.T) / temperature
    similarity = Tensor.eye(2 * N).bool().where(-1e9, similarity)
    partner = Tensor.cat(Tensor.arange(N, 2 * N), Tensor.arange(N))
    return similarity.sparse_categorical_crossentropy(partner), similarity


data = normal(N, 8, seed=1)
with Context(TRAINING=1):
    for step in range(6):
        views = [Tensor(data + 0.1 * normal(N, 8, seed=10 + 2 * step + v)).sequential(encoder) for v in range(2)]
        loss, similarity = nt_xent(*views)
        log("nearest", similarity.argmax(axis=1).tolist())
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item())
        log("gradient", encoder[2].weight.grad.square().sum().sqrt().item())
log("embedding", Tensor(data).sequential(encoder).numpy())
