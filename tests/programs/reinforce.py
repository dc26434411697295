"""REINFORCE on a corridor: actions are drawn from the policy with given noise, log probabilities of an episode are
kept for the loss."""

import numpy as np
from common import initial, log, uniform
from tinygrad_cpp import Context, Tensor, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict

LENGTH = 5
policy = [nn.Linear(LENGTH, 8), Tensor.tanh, nn.Linear(8, 2)]
load_state_dict(policy, {k: Tensor(v) for k, v in initial(get_state_dict(policy)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(policy), lr=0.05)
baseline = 0.0
with Context(TRAINING=1):
    for episode in range(5):
        noise, position, chosen, rewards = uniform(12, seed=episode), 2, [], []
        for t in range(12):
            state = np.eye(LENGTH, dtype=np.float32)[position]
            logits = Tensor(state).unsqueeze(0).sequential(policy).log_softmax()
            action = int(noise[t] > logits.exp()[0, 0].item())
            chosen.append(logits[0, action])
            position = max(0, min(LENGTH - 1, position + (1 if action else -1)))
            rewards.append(1.0 if position == LENGTH - 1 else -0.1)
            if position == LENGTH - 1:
                break
        returns = np.cumsum(np.array(rewards)[::-1] * 0.95 ** np.arange(len(rewards)))[::-1].astype(np.float32).copy()
        log("episode", [len(rewards), position])
        opt.zero_grad()
        loss = -(Tensor.stack(*chosen) * Tensor(returns - np.float32(baseline))).sum()
        loss.backward()
        opt.step()
        baseline = 0.8 * baseline + 0.2 * float(returns.mean())
        log("loss", loss.item())
log("policy", Tensor.eye(LENGTH).sequential(policy).softmax().numpy())
