/// \file Layers and optimizer steps on tensors the Python classes hold.
#include "tinygrad/nn/nn.h"

#include "bind.h"
#include "casters.h"
#include "interrupt.h"
#include "tinygrad/nn/datasets.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/nn/state.h"

namespace tg::python {

namespace {

using MaybeTensors = std::vector<std::optional<Tensor>>;

nn::RecurrentWeights weights_from(const MaybeTensors& w) {
  TG_CHECK(ValueError, w.size() == 4, "[nn] got ", w.size(), " weights of a cell, expected 4");
  return {tensor_or_none(w[0]), tensor_or_none(w[1]), tensor_or_none(w[2]), tensor_or_none(w[3])};
}

std::pair<Tensor, Tensors> recurrent(int gates, const Tensor& x, const Tensors& state,
                                     const std::vector<MaybeTensors>& weights, int64_t layers, bool batch_first,
                                     double dropout, bool bidirectional) {
  const nn::RecurrentOptions o{
      .layers = layers, .batch_first = batch_first, .dropout = dropout, .bidirectional = bidirectional};
  std::vector<nn::RecurrentWeights> w;
  for (const MaybeTensors& one : weights) w.push_back(weights_from(one));
  if (gates == 3) {
    nn::GRU::Result r = nn::GRU(w, o)(x, state.empty() ? Tensor() : state.at(0));
    return {r.output, {r.h}};
  }
  std::optional<nn::LstmState> start;
  if (!state.empty()) start = nn::LstmState{state.at(0), state.at(1)};
  nn::LSTM::Result r = nn::LSTM(w, o)(x, start);
  return {r.output, {r.state.h, r.state.c}};
}

nb::tuple dataset(const nn::datasets::Dataset& d) {
  return nb::make_tuple(d.train_images, d.train_labels, d.test_images, d.test_labels);
}

}  // namespace

void bind_nn(nb::module_& m) {
  m.def("nn_embedding", [](const Tensor& weight, const Tensor& indices) { return nn::embedding(weight, indices); });
  m.def(
      "nn_lstm_cell",
      [](const Tensor& x, const Tensors& state, const Tensor& wi, const Tensor& wh, std::optional<Tensor> bi,
         std::optional<Tensor> bh) {
        std::optional<nn::LstmState> s;
        if (!state.empty()) s = nn::LstmState{state.at(0), state.at(1)};
        nn::LstmState r = nn::lstm_cell(x, s, {wi, wh, tensor_or_none(bi), tensor_or_none(bh)});
        return std::pair(r.h, r.c);
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none());
  m.def(
      "nn_gru_cell",
      [](const Tensor& x, std::optional<Tensor> h, const Tensor& wi, const Tensor& wh, std::optional<Tensor> bi,
         std::optional<Tensor> bh) {
        return nn::gru_cell(x, tensor_or_none(h), {wi, wh, tensor_or_none(bi), tensor_or_none(bh)});
      },
      nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none());
  m.def("nn_recurrent", recurrent);
  m.def(
      "nn_attention",
      [](int64_t heads, const Tensor& q, const Tensor& k, const Tensor& v, const MaybeTensors& weights,
         std::optional<Tensor> mask, std::optional<Tensor> key_mask, bool causal, double dropout, bool batch_first) {
        Tensors w;
        for (const std::optional<Tensor>& t : weights) w.push_back(tensor_or_none(t));
        const nn::MultiheadAttention layer(heads, w, {.dropout = dropout, .batch_first = batch_first});
        nn::MultiheadAttention::Result r =
            layer.with_weights(q, k, v, {tensor_or_none(mask), tensor_or_none(key_mask), causal});
        return std::pair(r.output, r.weights);
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(),
      nb::arg());

  m.def("nn_lars_updates",
        [](const Tensors& params, const Tensors& grads, const Tensors& momentum, const Tensor& lr, double coefficient,
           double weight_decay, int ns_steps, std::vector<double> ns_coefficients, bool nesterov, bool classic,
           bool pre_wd, double trust) {
          return nn::lars_updates(params, grads, momentum, lr,
                                  {.momentum = coefficient,
                                   .weight_decay = weight_decay,
                                   .nesterov = nesterov,
                                   .classic = classic,
                                   .trust = trust,
                                   .decay_first = pre_wd,
                                   .ns_steps = ns_steps,
                                   .ns_coefficients = std::move(ns_coefficients)});
        });
  m.def("nn_lamb_updates", [](const Tensors& params, const Tensors& grads, const Tensors& mean, const Tensors& square,
                              const Tensor& b1_power, const Tensor& b2_power, const Tensor& lr, double b1, double b2,
                              double eps, double weight_decay, bool adam) {
    return nn::lamb_updates(params, grads, {mean, square, b1_power, b2_power}, lr,
                            {.b1 = b1, .b2 = b2, .eps = eps, .weight_decay = weight_decay, .adam = adam});
  });
  m.def("nn_rmsprop_updates", [](const Tensors& params, const Tensors& grads, const Tensors& square,
                                 const Tensors& mean, const Tensors& velocity, const Tensor& lr, double alpha,
                                 double eps, double weight_decay, double momentum) {
    return nn::rmsprop_updates(
        params, grads, {square, mean, velocity}, lr,
        {.alpha = alpha, .eps = eps, .weight_decay = weight_decay, .momentum = momentum, .centered = !mean.empty()});
  });

  m.def(
      "nn_mnist",
      [](const DeviceName& device, bool fashion) { return dataset(nn::datasets::mnist(device.name, fashion)); },
      nb::arg().none(), nb::arg());
  m.def(
      "nn_cifar", [](const DeviceName& device) { return dataset(nn::datasets::cifar(device.name)); }, nb::arg().none());

  m.def("is_packed", &nn::is_packed);
  m.def("written_in_place", &nn::written_in_place);
}

}  // namespace tg::python
