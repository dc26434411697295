import torch
import torch.nn.functional as F
from common import initial, log, normal

encoder = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6))
encoder.load_state_dict({k: torch.tensor(v) for k, v in initial(encoder.state_dict()).items()})
opt = torch.optim.SGD(encoder.parameters(), lr=0.2, momentum=0.9)
N, data = 6, torch.tensor(normal(6, 8, seed=1))
for step in range(6):
    z = F.normalize(
        torch.cat([encoder(data + 0.1 * torch.tensor(normal(N, 8, seed=10 + 2 * step + v))) for v in range(2)])
    )
    similarity = (z @ z.T / 0.5).masked_fill(torch.eye(2 * N).bool(), -1e9)
    loss = F.cross_entropy(similarity, torch.cat([torch.arange(N, 2 * N), torch.arange(N)]))
    log("nearest", similarity.argmax(1).tolist())
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
    log("gradient", encoder[2].weight.grad.norm().item())
log("embedding", encoder(data).tolist())
