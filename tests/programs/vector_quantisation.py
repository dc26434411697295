"""VQ-VAE: nearest codes by argmin, the straight-through estimator by detach, commitment loss, code books moved by
running averages."""

from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

CODES, DIM = 6, 3
encoder, decoder = nn.Linear(5, DIM), nn.Linear(DIM, 5)
for net in (encoder, decoder):
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
book = Tensor(normal(CODES, DIM, seed=1)).realize()
counts, sums = Tensor.ones(CODES).contiguous().realize(), book.clone().realize()
opt = nn.optim.Adam(get_parameters([encoder, decoder]), lr=0.02)
x = Tensor(normal(20, 5, seed=2))
with Context(TRAINING=1):
    for step in range(6):
        z = encoder(x)
        distance = (z.unsqueeze(1) - book.unsqueeze(0)).square().sum(axis=2)
        index = distance.argmin(axis=1)
        log("codes", index.tolist())
        quantised = book[index]
        through = z + (quantised - z).detach()
        reconstruction = (decoder(through) - x).square().mean()
        commitment = (z - quantised.detach()).square().mean()
        log("losses", [reconstruction.item(), commitment.item()])
        opt.zero_grad()
        (reconstruction + 0.25 * commitment).backward()
        opt.step()
        hot = index.one_hot(CODES).float()
        counts.assign(counts * 0.8 + hot.sum(axis=0) * 0.2)
        sums.assign(sums * 0.8 + (hot.T @ z.detach()) * 0.2)
        book.assign(sums / counts.unsqueeze(1)).realize(counts, sums)
        log("perplexity", (-(hot.mean(axis=0) * (hot.mean(axis=0) + 1e-10).log()).sum()).exp().item())
log("book", book.numpy())
log("encoder", encoder.weight.numpy())
