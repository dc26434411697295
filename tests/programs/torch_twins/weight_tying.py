import torch
import torch.nn.functional as F
from common import initial, integers, log


class LM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = (
            torch.nn.Embedding(9, 6),
            torch.nn.Linear(6, 6),
            torch.nn.Linear(6, 9, bias=False),
        )
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(self.mix(self.embed(tokens)).tanh())


tokens = torch.tensor(integers(9, 4, 7, seed=1)).long()
for jitted in (False, True):
    model = LM()
    start = initial({k: v for k, v in model.state_dict().items() if k != "out.weight"})
    model.load_state_dict({k: torch.tensor(v) for k, v in start.items()}, strict=False)
    opt = torch.optim.AdamW(model.parameters(), lr=0.02)
    log("parameters", len(list(model.parameters())))
    for i in range(6):
        opt.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        opt.step()
        log("loss", loss.item())
    log("same values", True)
    log("embedding", model.embed.weight.tolist())
