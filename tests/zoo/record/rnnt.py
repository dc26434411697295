"""Records RNN-T, written here with torch's layers under the names of MLPerf's file."""
import torch
from torch import nn
from pattern import give_weights, gradients, numbers, pattern, record, record_names


class Recurrent(nn.Module):
  def __init__(self, size, hidden, layers):
    super().__init__()
    self.lstm = nn.LSTM(size, hidden, layers)

  def forward(self, x, state=None): return self.lstm(x, state)


class Rnnt(nn.Module):
  def __init__(self, features=240, vocabulary=29, encoder=1024, prediction=320, joint=512):
    super().__init__()
    self.encoder = nn.ModuleDict({"pre_rnn": Recurrent(features, encoder, 2),
                                  "post_rnn": Recurrent(2 * encoder, encoder, 3)})
    self.prediction = nn.ModuleDict({"embed": nn.Embedding(vocabulary - 1, prediction),
                                     "dec_rnn": Recurrent(prediction, prediction, 2)})
    self.joint_net = nn.Sequential(nn.Linear(encoder + prediction, joint), nn.ReLU(), nn.Identity(),
                                   nn.Linear(joint, vocabulary))

  def heard(self, spectra):
    x = self.encoder["pre_rnn"](spectra)[0]
    if len(x) % 2: x = torch.cat([x, torch.zeros_like(x[:1])])
    return self.encoder["post_rnn"](torch.cat([x[0::2], x[1::2]], dim=2))[0].transpose(0, 1)

  def said(self, vectors, state=None):
    out, state = self.prediction["dec_rnn"](vectors.transpose(0, 1), state)
    return out.transpose(0, 1), state

  def joint(self, heard, said):
    pairs = torch.cat([heard.unsqueeze(2).expand(-1, -1, said.shape[1], -1),
                       said.unsqueeze(1).expand(-1, heard.shape[1], -1, -1)], dim=-1)
    return self.joint_net(pairs)


model = Rnnt(12, 7, 16, 10, 14)
names = give_weights(model)
spectra, labels = pattern("spectra", 7, 2, 12) * 3, numbers("labels", 6, 2, 4)
embedded = model.prediction["embed"](labels)
logits = model.joint(model.heard(spectra), model.said(embedded)[0])
result = {"logits": logits}
result.update(gradients(model, logits, names))
embedded = model.prediction["embed"](labels)
started = torch.cat([torch.zeros_like(embedded[:, :1]), embedded], 1)
result["started"] = model.joint(model.heard(spectra), model.said(started)[0])



def loss_of(logits, labels):
  """Returns the loss of one text, place by place in the table of times and characters."""
  logs = logits.log_softmax(-1)
  reached = {}
  for t in range(logs.shape[0]):
    for u in range(len(labels) + 1):
      ways = []
      if t > 0: ways.append(reached[t - 1, u] + logs[t - 1, u, -1])
      if u > 0: ways.append(reached[t, u - 1] + logs[t, u - 1, labels[u - 1]])
      reached[t, u] = torch.logsumexp(torch.stack(ways), 0) if ways else logs.new_zeros(())
  return -(reached[logs.shape[0] - 1, len(labels)] + logs[-1, len(labels), -1])


loss = torch.stack([loss_of(result["started"][0], labels[0]), loss_of(result["started"][1, :2], labels[1, :3])])
result["loss"] = loss
result.update((key.replace("gradient.", "gradient.of_loss."), g)
              for key, g in gradients(model, loss, names).items())

# Larger weights and another bias, with which some times have several characters and one has none.
with torch.no_grad():
  for name, p in model.named_parameters():
    if "weight" in name: p *= 5
  model.joint_net[3].bias += torch.tensor([-0.5, -3.0, -3.5, 1.5, -0.5, 3.0, 4.5])
for i, length in enumerate((7, 4)):
  heard = model.heard(spectra)[i:i + 1]
  text, state = model.said(torch.zeros(1, 1, 10).double())
  out = []
  for t in range(-(-length // 2)):
    for _ in range(4):
      best = int(model.joint(heard[:, t:t + 1], text).argmax())
      if best == 6: break
      out.append(best)
      text, state = model.said(model.prediction["embed"](torch.tensor([[best]])), state)
  print("greedy", out)
  result[f"greedy{i}"] = torch.tensor(out)
some = ("logits", "started", "loss", "gradient.of_loss.joint_net.3.weight", "gradient.of_loss.prediction.embed.weight",
        "gradient.of_loss.encoder.post_rnn.lstm.weight_ih_l0", "greedy0", "greedy1",
        "gradient.encoder.pre_rnn.lstm.weight_ih_l0",
        "gradient.encoder.post_rnn.lstm.weight_hh_l2", "gradient.prediction.embed.weight",
        "gradient.prediction.dec_rnn.lstm.bias_hh_l1", "gradient.joint_net.0.weight")
record("rnnt", result, lambda key: key in some)
with torch.device("meta"): record_names("rnnt_mlperf", Rnnt())
