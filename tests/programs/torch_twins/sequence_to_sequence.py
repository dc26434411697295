import torch
import torch.nn.functional as F
from common import initial, integers, log

VOCABULARY, DIM = 7, 8


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        L = torch.nn.Linear
        self.embed = torch.nn.Embedding(VOCABULARY, DIM)
        self.encoder, self.decoder = torch.nn.GRUCell(DIM, DIM), torch.nn.GRUCell(2 * DIM, DIM)
        self.query, self.key, self.energy, self.out = L(DIM, DIM), L(DIM, DIM), L(DIM, 1), L(2 * DIM, VOCABULARY)

    def encode(self, words):
        h, states = torch.zeros(words.shape[0], DIM), []
        for t in range(words.shape[1]):
            h = self.encoder(self.embed(words[:, t]), h)
            states.append(h)
        return torch.stack(states, 1), h

    def decode(self, word, h, states):
        scores = self.energy((self.query(h).unsqueeze(1) + self.key(states)).tanh()).squeeze(2)
        self.attention = scores.softmax(1)
        context = (self.attention.unsqueeze(1) @ states).squeeze(1)
        h = self.decoder(torch.cat([self.embed(word), context], 1), h)
        return self.out(torch.cat([h, context], 1)), h


model = Model()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
opt = torch.optim.Adam(model.parameters(), lr=0.02)
source = torch.tensor(integers(VOCABULARY - 1, 5, 4, seed=1) + 1).long()
target = source.flip(1)
for step in range(4):
    states, h = model.encode(source)
    word, loss = torch.zeros(5, dtype=torch.long), 0
    for t in range(4):
        logits, h = model.decode(word, h, states)
        word = target[:, t]
        loss = loss + F.cross_entropy(logits, word)
    log("attention", model.attention[0].tolist())
    opt.zero_grad()
    loss.backward()
    opt.step()
    log("loss", loss.item())
states, h = model.encode(source[:1])
beams = [([0], 0.0, h)]
for t in range(4):
    grown = []
    for words, score, h in beams:
        logits, new_h = model.decode(torch.tensor([words[-1]]), h, states)
        values, indices = logits[0].log_softmax(-1).topk(3)
        grown += [(words + [i], score + v, new_h) for v, i in zip(values.tolist(), indices.tolist())]
    beams = sorted(grown, key=lambda b: -b[1])[:3]
log("beams", [words for words, _, _ in beams])
log("scores", [score for _, score, _ in beams])
