import torch
import torch.nn.functional as F
from common import initial, log, normal

CODES, DIM = 6, 3
encoder, decoder = torch.nn.Linear(5, DIM), torch.nn.Linear(DIM, 5)
for net in (encoder, decoder):
    net.load_state_dict({k: torch.tensor(v) for k, v in initial(net.state_dict()).items()})
book = torch.tensor(normal(CODES, DIM, seed=1))
counts, sums = torch.ones(CODES), book.clone()
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
x = torch.tensor(normal(20, 5, seed=2))
for step in range(6):
    z = encoder(x)
    index = (z.unsqueeze(1) - book.unsqueeze(0)).square().sum(2).argmin(1)
    log("codes", index.tolist())
    quantised = book[index]
    reconstruction = (decoder(z + (quantised - z).detach()) - x).square().mean()
    commitment = (z - quantised.detach()).square().mean()
    log("losses", [reconstruction.item(), commitment.item()])
    opt.zero_grad()
    (reconstruction + 0.25 * commitment).backward()
    opt.step()
    hot = F.one_hot(index, CODES).float()
    counts = counts * 0.8 + hot.sum(0) * 0.2
    sums = sums * 0.8 + (hot.T @ z.detach()) * 0.2
    book = sums / counts.unsqueeze(1)
    log("perplexity", (-(hot.mean(0) * (hot.mean(0) + 1e-10).log()).sum()).exp().item())
log("book", book.tolist())
log("encoder", encoder.weight.tolist())
