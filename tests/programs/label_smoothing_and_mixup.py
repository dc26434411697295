"""Label smoothing, class weights, ignored labels, mixup with soft targets, knowledge distillation from a frozen
teacher."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

student, teacher = [nn.Linear(6, 10), Tensor.relu, nn.Linear(10, 4)], [nn.Linear(6, 14), Tensor.gelu, nn.Linear(14, 4)]
for net in (student, teacher):
    load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.SGD(get_parameters(student), lr=0.1, momentum=0.9)
X, Y = normal(14, 6, seed=1), integers(4, 14, seed=2)
Y[3] = Y[7] = -1
x, y = Tensor(X), Tensor(Y)
weights = Tensor([1.0, 2.0, 0.5, 1.5])


def weighted(logits):
    picked = -logits.log_softmax()[Tensor.arange(14), y.maximum(0)]
    w = (y >= 0).where(weights[y.maximum(0)], 0)
    return (picked * w).sum() / w.sum()


with Context(TRAINING=1):
    for step in range(8):
        logits = x.sequential(student)
        if step % 4 == 0:
            loss = logits.sparse_categorical_crossentropy(y, ignore_index=-1, label_smoothing=0.1)
        elif step % 4 == 1:
            loss = weighted(logits)
        elif step % 4 == 2:
            mixed = 0.3 * x + 0.7 * x.flip(0)
            hot = y.maximum(0).one_hot(4).float()
            loss = mixed.sequential(student).cross_entropy(0.3 * hot + 0.7 * hot.flip(0))
        else:
            soft = (x.sequential(teacher) / 2).softmax().detach()
            loss = 4 * (soft * (soft.log() - (logits / 2).log_softmax())).sum(axis=1).mean()
        log("loss", loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
log("teacher", teacher[0].weight.square().sum().item())
log("student", student[0].weight.numpy())
