"""An energy-based model: negatives by Langevin steps that follow the input's gradient, a buffer of samples kept between
epochs, contrastive divergence; denoising score matching of the same net."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

energy = [nn.Linear(2, 12), Tensor.silu, nn.Linear(12, 12), Tensor.silu, nn.Linear(12, 1, bias=False)]
load_state_dict(energy, {k: Tensor(v) for k, v in initial(get_state_dict(energy)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(energy), lr=0.01)
data = Tensor(normal(10, 2, seed=1) * 0.4 + 1).realize()
samples = Tensor(normal(10, 2, seed=2)).realize()
with Context(TRAINING=1):
    for step in range(4):
        x = samples
        for k in range(3):
            (slope,) = x.sequential(energy).sum().gradient(x)
            x = (x - 0.1 * slope + 0.05 * Tensor(normal(10, 2, seed=100 * step + k))).detach()
        samples.assign(x).realize()
        log("samples", samples.mean(axis=0).tolist())
        positive, negative = data.sequential(energy), samples.sequential(energy)
        loss = positive.mean() - negative.mean() + 0.1 * (positive.square() + negative.square()).mean()
        log("loss", loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
    for step in range(3):
        noise = Tensor(normal(10, 2, seed=50 + step)) * 0.3
        noisy = data + noise
        (score,) = (-noisy.sequential(energy)).sum().gradient(noisy)
        loss = (score + noise / 0.09).square().sum(axis=1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("score matching", loss.item())
log("weight", energy[2].weight.numpy(), rtol=1e-3)  # seven steps of Adam
