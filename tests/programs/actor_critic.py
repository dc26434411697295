"""Advantage actor-critic with PPO's clipped ratio: one trunk, two heads, old log probabilities kept as constants,
three epochs a batch."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class ActorCritic:
    def __init__(self):
        self.trunk, self.actor, self.critic = nn.Linear(4, 12), nn.Linear(12, 3), nn.Linear(12, 1)

    def __call__(self, x):
        h = self.trunk(x).tanh()
        return self.actor(h).log_softmax(), self.critic(h).squeeze(1)


model = ActorCritic()
load_state_dict(model, {k: Tensor(v) for k, v in initial(get_state_dict(model)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(model), lr=0.02)
with Context(TRAINING=1):
    for batch in range(3):
        states, actions = Tensor(normal(20, 4, seed=batch)), Tensor(integers(3, 20, seed=100 + batch))
        returns = (states[:, 0] + (actions == 1).float() - 0.5).detach()
        old, values = (t.detach() for t in model(states))
        old_chosen = old.gather(1, actions.unsqueeze(1)).squeeze(1)
        advantage = returns - values
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        log("advantage", advantage.abs().mean().item())
        for epoch in range(3):
            logits, value = model(states)
            ratio = (logits.gather(1, actions.unsqueeze(1)).squeeze(1) - old_chosen).exp()
            actor = -(ratio * advantage).minimum(ratio.clip(0.8, 1.2) * advantage).mean()
            critic = (value - returns).square().mean()
            entropy = -(logits.exp() * logits).sum(axis=1).mean()
            log("parts", [actor.item(), critic.item(), entropy.item(), ratio.max().item()])
            opt.zero_grad()
            (actor + 0.5 * critic - 0.01 * entropy).backward()
            opt.step()
log("trunk", model.trunk.weight.numpy())
