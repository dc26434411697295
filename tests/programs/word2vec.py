"""Skip-grams with negative samples: two tables indexed by tensors, sparse targets, nearest words by cosine at the
end."""

from common import integers, log, normal
from tinygrad_cpp import Context, Tensor, TinyJit, nn

words = "a cat and a dog sat on a mat the dog saw the cat and the mat saw a dog".split()
vocabulary = sorted(set(words))
codes = [vocabulary.index(word) for word in words]
pairs = [(codes[i], codes[j]) for i in range(len(codes)) for j in (i - 1, i + 1) if 0 <= j < len(codes)]
inner = nn.Embedding(len(vocabulary), 6)
outer = nn.Embedding(len(vocabulary), 6)
inner.weight = Tensor(normal(len(vocabulary), 6, seed=1) * 0.3)
outer.weight = Tensor(normal(len(vocabulary), 6, seed=2) * 0.3)
opt = nn.optim.SGD([inner.weight, outer.weight], lr=0.5)


@TinyJit
def step(centre, context, negative):
    opt.zero_grad()
    c = inner(centre)
    positive_score = (c * outer(context)).sum(axis=1)
    negative_score = (c.unsqueeze(1) * outer(negative)).sum(axis=2)
    loss = -(positive_score.logsigmoid().mean() + (-negative_score).logsigmoid().sum(axis=1).mean())
    loss.backward()
    opt.step()
    return loss.realize()


with Context(TRAINING=1):
    for i in range(7):
        chosen = [pairs[(i * 5 + k) % len(pairs)] for k in range(8)]
        centre, context = Tensor([p[0] for p in chosen]), Tensor([p[1] for p in chosen])
        log(
            "loss",
            step(centre.realize(), context.realize(), Tensor(integers(len(vocabulary), 8, 3, seed=i)).realize()).item(),
        )
unit = inner.weight / inner.weight.square().sum(axis=1, keepdim=True).sqrt()
similarity = unit @ unit[vocabulary.index("cat")]
log("similarity to cat", similarity.tolist())
log("nearest", [vocabulary[i] for i in (-similarity).argsort().tolist()[:3]])
