import itertools

import numpy as np
import torch
from common import initial, integers, log

TAGS, TIME = 3, 6


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(8, 5), torch.nn.Linear(5, TAGS)
        self.transition = torch.nn.Parameter(torch.zeros(TAGS, TAGS))

    def forward(self, words):
        return self.out(self.embed(words))


paths = torch.tensor(list(itertools.product(range(TAGS), repeat=TIME)))


def score_of(scores, transition, tags):
    return scores[torch.arange(TIME), tags].sum(-1) + transition[tags[..., :-1], tags[..., 1:]].sum(-1)


model = Tagger()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sentences, labels = torch.tensor(integers(8, 2, TIME, seed=1)).long(), torch.tensor(integers(TAGS, 2, TIME, seed=2))
labels = labels.long()
for step in range(4):
    opt.zero_grad()
    scores = model(sentences)
    values = [
        score_of(scores[i], model.transition, labels[i]) - score_of(scores[i], model.transition, paths).logsumexp(0)
        for i in range(2)
    ]
    log("likelihood", [v.item() for v in values])
    (-(values[0] + values[1])).backward()
    log("transition", model.transition.grad.tolist())
    opt.step()
every = score_of(model(sentences)[0], model.transition, paths)
tags = paths[every.argmax()].tolist()
log("tags", tags)
log("score", every.max().item())
log("right", int((np.array(tags) == labels[0].numpy()).sum()))
