import torch
from common import initial, integers, log, normal


class ActorCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.actor, self.critic = torch.nn.Linear(4, 12), torch.nn.Linear(12, 3), torch.nn.Linear(12, 1)

    def forward(self, x):
        h = self.trunk(x).tanh()
        return self.actor(h).log_softmax(-1), self.critic(h).squeeze(1)


model = ActorCritic()
model.load_state_dict({k: torch.tensor(v) for k, v in initial(model.state_dict()).items()})
opt = torch.optim.Adam(model.parameters(), lr=0.02)
for batch in range(3):
    states, actions = torch.tensor(normal(20, 4, seed=batch)), torch.tensor(integers(3, 20, seed=100 + batch)).long()
    returns = states[:, 0] + (actions == 1).float() - 0.5
    old, values = (t.detach() for t in model(states))
    old_chosen = old.gather(1, actions.unsqueeze(1)).squeeze(1)
    advantage = returns - values
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log("advantage", advantage.abs().mean().item())
    for epoch in range(3):
        logits, value = model(states)
        ratio = (logits.gather(1, actions.unsqueeze(1)).squeeze(1) - old_chosen).exp()
        actor = -torch.minimum(ratio * advantage, ratio.clip(0.8, 1.2) * advantage).mean()
        critic = (value - returns).square().mean()
        entropy = -(logits.exp() * logits).sum(1).mean()
        log("parts", [actor.item(), critic.item(), entropy.item(), ratio.max().item()])
        opt.zero_grad()
        (actor + 0.5 * critic - 0.01 * entropy).backward()
        opt.step()
log("trunk", model.trunk.weight.tolist())
