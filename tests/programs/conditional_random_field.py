"""A linear-chain CRF on an embedding: the partition function by logsumexp over time, Viterbi with argmax and
backtracking."""

import numpy as np
from common import initial, integers, log
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

TAGS, TIME = 3, 6


class Tagger:
    def __init__(self):
        self.embed, self.out = nn.Embedding(8, 5), nn.Linear(5, TAGS)
        self.transition = Tensor.zeros(TAGS, TAGS)

    def __call__(self, words):
        return self.out(self.embed(words))


def likelihood(scores, transition, tags):
    alpha = scores[0]
    path = scores[0, tags[0]]
    for t in range(1, TIME):
        alpha = (alpha.unsqueeze(1) + transition).logsumexp(axis=0) + scores[t]
        path = path + transition[tags[t - 1], tags[t]] + scores[t, tags[t]]
    return path - alpha.logsumexp()


def viterbi(scores, transition):
    best, back = scores[0], []
    for t in range(1, TIME):
        total = best.unsqueeze(1) + transition
        back.append(total.argmax(axis=0).tolist())
        best = total.max(axis=0) + scores[t]
    tags = [int(best.argmax().item())]
    for row in reversed(back):
        tags.append(row[tags[-1]])
    return tags[::-1], best.max().item()


model = Tagger()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(model), lr=0.1)
sentences, labels = integers(8, 2, TIME, seed=1), integers(TAGS, 2, TIME, seed=2).tolist()
with Context(TRAINING=1):
    for step in range(4):
        opt.zero_grad()
        scores = model(Tensor(sentences))
        values = [likelihood(scores[i], model.transition, labels[i]) for i in range(2)]
        log("likelihood", [v.item() for v in values])
        (-(values[0] + values[1])).backward()
        log("transition", model.transition.grad.tolist())
        opt.step()
tags, score = viterbi(model(Tensor(sentences))[0], model.transition)
log("tags", tags)
log("score", score)
log("right", int((np.array(tags) == np.array(labels[0])).sum()))
