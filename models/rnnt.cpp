/// \file Forward pass and greedy decoding of RNN-T.
#include "models/rnnt.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::models {
namespace {

nn::RecurrentOptions layers(int64_t n, const RnntOptions& o) { return {.layers = n, .dropout = o.dropout}; }

const RnntOptions& checked(const RnntOptions& o) {
  TG_CHECK(ValueError, o.vocab_size >= 2, "[Rnnt] got ", o.vocab_size, " characters, expected at least 2");
  TG_CHECK(ValueError, o.stack >= 1, "[Rnnt] got stack ", o.stack, ", expected at least 1");
  return o;
}

/// Returns the name in MLPerf's file for one in tinygrad, where each layer has weights of its own.
std::string published_name(std::string name) {
  constexpr std::array<std::pair<const char*, const char*>, 6> kNames{{{"prediction.emb.", "prediction.embed."},
                                                                       {"prediction.rnn.", "prediction.dec_rnn."},
                                                                       {"joint.l1.", "joint_net.0."},
                                                                       {"joint.l2.", "joint_net.3."},
                                                                       {".weights_ih", ".weight_ih"},
                                                                       {".weights_hh", ".weight_hh"}}};
  for (const auto& [from, to] : kNames)
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, std::string_view(from).size(), to);
  constexpr std::string_view kCells = ".cells.";
  const size_t at = name.find(kCells);
  if (at == std::string::npos) return name;
  const size_t number = at + kCells.size(), dot = name.find('.', number);
  return name.substr(0, at) + ".lstm" + name.substr(dot) + "_l" + name.substr(number, dot - number);
}

}  // namespace

RnntEncoder::RnntEncoder(const RnntOptions& o)
    : before(o.features, o.encoder_size, layers(o.layers_before, o)),
      after(o.stack * o.encoder_size, o.encoder_size, layers(o.layers_after, o)),
      stack(o.stack) {}

Tensor RnntEncoder::operator()(const Tensor& spectra) const {
  const Tensor x = before(spectra).output;
  const int64_t time = x.shape(0), missing = (stack - time % stack) % stack;
  const Tensor padded = x.pad({{0, missing}, {0, 0}, {0, 0}});
  // Adjacent vectors are concatenated.
  const Tensor stacked = padded.unflatten(0, {-1, stack}).transpose(1, 2).flatten(2);
  return after(stacked).output.transpose(0, 1);
}

void RnntEncoder::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("pre_rnn.lstm, post_rnn.lstm", before, after);
}

RnntPrediction::RnntPrediction(const RnntOptions& o)
    : embed(o.vocab_size - 1, o.prediction_size),
      lstm(o.prediction_size, o.prediction_size, layers(o.prediction_layers, o)) {}

nn::LSTM::Result RnntPrediction::operator()(const Tensor& labels, const std::optional<nn::LstmState>& state,
                                            bool start) const {
  Tensor x = labels.defined() ? embed(labels) : Tensor();
  if (start) {
    const int64_t batch = labels.defined() ? labels.shape(0) : 1;
    const Tensor zeros = Tensor::zeros({batch, 1, embed.weight.shape(1)},
                                       {.dtype = embed.weight.dtype(), .device = embed.weight.device()});
    x = x.defined() ? zeros.cat(x, 1) : zeros;
  }
  nn::LSTM::Result out = lstm(x.transpose(0, 1), state);
  out.output = out.output.transpose(0, 1);
  return out;
}

void RnntPrediction::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("embed, dec_rnn.lstm", embed, lstm);
}

Rnnt::Rnnt(const RnntOptions& o)
    : encoder(checked(o)),
      prediction(o),
      joint_in(o.encoder_size + o.prediction_size, o.joint_size),
      joint_out(o.joint_size, o.vocab_size),
      options(o) {}

Tensor Rnnt::joint(const Tensor& heard, const Tensor& said) const {
  // One product for each part, so that pairs are only added.
  const Tensors weights = joint_in.weight.split({options.encoder_size, options.prediction_size}, 1);
  const Tensor a = heard.linear(weights[0].T(), joint_in.bias).unsqueeze(2), b = said.dot(weights[1].T()).unsqueeze(1);
  return joint_out((a + b).relu().dropout(options.dropout));
}

Tensor Rnnt::operator()(const Tensor& spectra, const Tensor& labels, bool start) const {
  TG_CHECK(ShapeError, spectra.ndim() == 3 && spectra.shape(2) == options.features, "[Rnnt] got spectra ",
           spectra.shape(), ", expected (time, batch, ", options.features, ")");
  return joint(encoder(spectra), prediction(labels, {}, start).output);
}

std::vector<std::vector<int32_t>> Rnnt::greedy(const Tensor& spectra, const std::vector<int64_t>& lengths,
                                               int64_t most) const {
  TG_CHECK(ShapeError, spectra.ndim() == 3 && spectra.shape(1) == std::ssize(lengths), "[Rnnt] got spectra ",
           spectra.shape(), " and ", lengths.size(), " lengths, expected (time, batch, features) and as many");
  const Tensor heard = encoder(spectra).contiguous().realize();
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < lengths.size(); i++) {
    TG_CHECK(ValueError, lengths[i] >= 0 && lengths[i] <= spectra.shape(0), "[Rnnt] got length ", lengths[i], " for ",
             spectra.shape(0), " spectra");
    const int64_t length = (lengths[i] + options.stack - 1) / options.stack;
    out.push_back(greedy_of_one(heard[static_cast<int64_t>(i)], length, most));
  }
  return out;
}

std::vector<int32_t> Rnnt::greedy_of_one(const Tensor& heard, int64_t length, int64_t most) const {
  auto said = [&](const Tensor& label, const Tensor& h, const Tensor& c) {
    const nn::LSTM::Result r = prediction(label, nn::LstmState{h, c});
    return Tensors{r.output, r.state.h, r.state.c};
  };
  auto best = [&](const Tensor& now, const Tensor& text) { return joint(now, text).argmax().cast(dtypes::int32); };
  const auto next_said = jit(said, {.name = "prediction"});
  const auto next_best = jit(best, {.name = "joint"});
  const nn::LSTM::Result first = prediction({}, {}, true);
  // Text, and the state behind it; they change with each character.
  Tensors text = {first.output, first.state.h, first.state.c};
  for (Tensor& t : text) t = t.contiguous();
  realize(text);
  std::vector<int32_t> out;
  for (int64_t t = 0; t < length; t++) {
    const Tensor now = heard(None, Slice(t, t + 1)).contiguous().realize();
    for (int64_t added = 0; added < most; added++) {
      const int32_t character = next_best(now, text[0]).item<int32_t>();
      if (character == options.vocab_size - 1) break;
      out.push_back(character);
      text = next_said(Tensor::from(std::vector{character}).unsqueeze(0), text[1], text[2]);
      realize(text);
    }
  }
  return out;
}

void Rnnt::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("encoder, prediction, joint_net.0, joint_net.3", encoder, prediction, joint_in, joint_out);
}

Tensor rnnt_loss(const Tensor& logits, const Tensor& labels, const Tensor& times, const Tensor& lengths) {
  TG_CHECK(ShapeError,
           logits.ndim() == 4 && labels.ndim() == 2 && labels.shape(0) == logits.shape(0) &&
               labels.shape(1) + 1 == logits.shape(2) && times.shape() == (Shape{logits.shape(0)}) &&
               lengths.shape() == times.shape(),
           "[rnnt_loss] got logits ", logits.shape(), ", labels ", labels.shape(), " and lengths ", times.shape(),
           " and ", lengths.shape(), ", expected (batch, time, text + 1, vocabulary), (batch, text) and (batch,)");
  const int64_t batch = logits.shape(0), time = logits.shape(1), text = labels.shape(1);
  const Tensor logs = logits.log_softmax(), blank = logs(Ellipsis, -1).contiguous();
  const Tensor index = labels.reshape(batch, 1, text, 1).expand(batch, time, text, 1);
  const Tensor written = logs.slice(2, 0, text).gather(-1, index).squeeze(-1);
  // Logarithms of the probability to write the first characters at one time.
  const Tensor at_once = written.cumsum(-1).pad(Ints{1, 0}).contiguous();
  auto at = [](const Tensor& t, int64_t i) { return t.slice(1, i, i + 1).squeeze(1); };
  Tensors reached = {at(at_once, 0)};
  for (int64_t t = 1; t < time; t++) {
    const Tensor before = reached.back() + at(blank, t - 1) - at(at_once, t);
    reached.push_back((before.logcumsumexp(1) + at(at_once, t)).contiguous());
  }
  const Tensor ends = (Tensor::stack(reached, 1) + blank).flatten(1);
  return -ends.gather(1, ((times - 1) * (text + 1) + lengths).unsqueeze(1)).squeeze(1);
}

nn::StateDict rnnt_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    std::string mine = name.starts_with("state_dict.") ? name.substr(11) : name;
    bool known = false;
    for (const char* part : {"encoder.", "prediction.", "joint"}) known = known || mine.starts_with(part);
    if (known) out.emplace_back(published_name(std::move(mine)), t);
  }
  return out;
}

}  // namespace tg::models
