import numpy as np
import torch
from common import initial, log, uniform

LENGTH = 5
policy = torch.nn.Sequential(torch.nn.Linear(LENGTH, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
policy.load_state_dict({k: torch.tensor(v) for k, v in initial(policy.state_dict()).items()})
opt = torch.optim.Adam(policy.parameters(), lr=0.05)
baseline = 0.0
for episode in range(5):
    noise, position, chosen, rewards = uniform(12, seed=episode), 2, [], []
    for t in range(12):
        logits = policy(torch.eye(LENGTH)[position]).log_softmax(-1)
        action = int(noise[t] > logits.exp()[0].item())
        chosen.append(logits[action])
        position = max(0, min(LENGTH - 1, position + (1 if action else -1)))
        rewards.append(1.0 if position == LENGTH - 1 else -0.1)
        if position == LENGTH - 1:
            break
    returns = np.cumsum(np.array(rewards)[::-1] * 0.95 ** np.arange(len(rewards)))[::-1].astype(np.float32).copy()
    log("episode", [len(rewards), position])
    opt.zero_grad()
    loss = -(torch.stack(chosen) * torch.tensor(returns - np.float32(baseline))).sum()
    loss.backward()
    opt.step()
    baseline = 0.8 * baseline + 0.2 * float(returns.mean())
    log("loss", loss.item())
log("policy", policy(torch.eye(LENGTH)).softmax(-1).tolist())
