"""Logistic regression by Newton's method with explicit Hessians, accuracy and a confusion matrix; and by gradients
with a penalty."""

from common import log, normal
from tinygrad_cpp import Tensor

X = normal(40, 2, seed=1)
x = Tensor.cat(Tensor(X), Tensor.ones(40, 1), dim=1).realize()
y = Tensor((X[:, 0] - 0.5 * X[:, 1] + 0.7 * normal(40, seed=2) > 0).astype("float32"))


def solve(a, b):
    """Cramer's rule for three unknowns."""

    def det(m):
        return (
            m[0, 0] * (m[1, 1] * m[2, 2] - m[1, 2] * m[2, 1])
            - m[0, 1] * (m[1, 0] * m[2, 2] - m[1, 2] * m[2, 0])
            + m[0, 2] * (m[1, 0] * m[2, 1] - m[1, 1] * m[2, 0])
        )

    columns = [(Tensor.arange(3) == i).where(b.unsqueeze(1), a) for i in range(3)]
    return Tensor.stack(*[det(c) for c in columns]) / det(a)


w = Tensor.zeros(3)
for step in range(5):
    p = (x @ w).sigmoid()
    log("loss", p.binary_crossentropy(y).item())
    gradient = x.T @ (p - y) + w
    hessian = x.T @ (x * (p * (1 - p)).unsqueeze(1)) + Tensor.eye(3)
    w = (w - solve(hessian, gradient)).realize()
log("w", w.tolist())
guess = (x @ w) > 0
truth = y > 0.5
log(
    "confusion",
    [
        [int((guess & truth).sum().item()), int((guess & ~truth).sum().item())],
        [int((~guess & truth).sum().item()), int((~(guess | truth)).sum().item())],
    ],
)

v = Tensor.zeros(3)
for step in range(6):
    loss = (x @ v).binary_crossentropy_logits(y) * 40 + 0.5 * v.square().sum()
    value = loss.item()
    v = (v - 0.05 * loss.gradient(v)[0]).detach()
    log("by gradients", value)
log("v", v.tolist())
