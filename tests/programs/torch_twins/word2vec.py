import torch
import torch.nn.functional as F
from common import integers, log, normal

words = "a cat and a dog sat on a mat the dog saw the cat and the mat saw a dog".split()
vocabulary = sorted(set(words))
codes = [vocabulary.index(word) for word in words]
pairs = [(codes[i], codes[j]) for i in range(len(codes)) for j in (i - 1, i + 1) if 0 <= j < len(codes)]
inner, outer = (torch.tensor(normal(len(vocabulary), 6, seed=s) * 0.3, requires_grad=True) for s in (1, 2))
opt = torch.optim.SGD([inner, outer], lr=0.5)
for i in range(7):
    chosen = [pairs[(i * 5 + k) % len(pairs)] for k in range(8)]
    centre, context = [p[0] for p in chosen], [p[1] for p in chosen]
    opt.zero_grad()
    c = inner[centre]
    positive_score = (c * outer[context]).sum(1)
    negative_score = (c.unsqueeze(1) * outer[torch.tensor(integers(len(vocabulary), 8, 3, seed=i)).long()]).sum(2)
    loss = -(F.logsigmoid(positive_score).mean() + F.logsigmoid(-negative_score).sum(1).mean())
    loss.backward()
    opt.step()
    log("loss", loss.item())
unit = F.normalize(inner)
similarity = unit @ unit[vocabulary.index("cat")]
log("similarity to cat", similarity.tolist())
log("nearest", [vocabulary[i] for i in (-similarity).argsort().tolist()[:3]])
