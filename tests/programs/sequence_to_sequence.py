"""Sequence to sequence: a GRU cell encodes, another decodes with additive attention and teacher forcing; then beam
search."""

from common import initial, integers, log
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

VOCABULARY, DIM = 7, 8


class Model:
    def __init__(self):
        self.embed = nn.Embedding(VOCABULARY, DIM)
        self.encoder, self.decoder = nn.GRUCell(DIM, DIM), nn.GRUCell(2 * DIM, DIM)
        self.query, self.key, self.energy = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, 1)
        self.out = nn.Linear(2 * DIM, VOCABULARY)

    def encode(self, words):
        h, states = Tensor.zeros(words.shape[0], DIM), []
        for t in range(words.shape[1]):
            h = self.encoder(self.embed(words[:, t]), h)
            states.append(h)
        return Tensor.stack(*states, dim=1), h

    def decode(self, word, h, states):
        scores = self.energy((self.query(h).unsqueeze(1) + self.key(states)).tanh()).squeeze(2)
        self.attention = scores.softmax(axis=1)
        context = (self.attention.unsqueeze(1) @ states).squeeze(1)
        h = self.decoder(self.embed(word).cat(context, dim=1), h)
        return self.out(h.cat(context, dim=1)), h


model = Model()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(model), lr=0.02)
source = integers(VOCABULARY - 1, 5, 4, seed=1) + 1
target = source[:, ::-1].copy()
with Context(TRAINING=1):
    for step in range(4):
        states, h = model.encode(Tensor(source))
        word, loss = Tensor([0] * 5), Tensor(0.0)
        for t in range(4):
            logits, h = model.decode(word, h, states)
            word = Tensor(target[:, t].copy())
            loss = loss + logits.sparse_categorical_crossentropy(word)
        log("attention", model.attention[0].tolist())
        opt.zero_grad()
        loss.backward()
        opt.step()
        log("loss", loss.item())

states, h = model.encode(Tensor(source[:1]))
beams = [([0], 0.0, h)]
for t in range(4):
    grown = []
    for words, score, h in beams:
        logits, new_h = model.decode(Tensor([words[-1]]), h, states)
        values, indices = logits[0].log_softmax().topk(3)
        grown += [(words + [i], score + v, new_h) for v, i in zip(values.tolist(), indices.tolist())]
    beams = sorted(grown, key=lambda b: -b[1])[:3]
log("beams", [words for words, _, _ in beams])
log("scores", [score for _, score, _ in beams], rtol=1e-3)  # four steps of Adam
