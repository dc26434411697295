/// \file Training loops as they are written for PyTorch's C++ interface, step by step with its losses.
#include "programs.h"

namespace programs {
namespace {

TEST(Training, LineByHand) {
  const Tensor x = wave({32, 3});
  Tensor w = Tensor::zeros(3).requires_grad_(), b = Tensor::zeros(Shape{}).requires_grad_();
  const Tensor y = x.matmul(Tensor({1.5f, -2.0f, 0.5f})) + 0.25;
  std::vector<double> losses;
  for (int step = 0; step < 20; step++) {
    const Tensor loss = (x.matmul(w) + b - y).square().mean();
    loss.backward();
    losses.push_back(loss.item<float>());
    for (Tensor* p : {&w, &b}) {
      *p -= 0.1 * p->grad().detach();
      p->zero_grad();
    }
  }
  Recorded want("line_fit");
  want.expect(losses, 1e-6, "loss");
  want.expect(w, 1e-5, "weight");
  want.expect(b, 1e-5, "bias");
}

struct Mlp {
  nn::Linear hidden{6, 16}, out{16, 3};
  Tensor operator()(const Tensor& x) const { return out(hidden(x).relu()); }
  TG_STATE(hidden, out)

  Mlp() {
    hidden.weight.assign(wave({16, 6}, 1, 0.4));
    hidden.bias.assign(Tensor::zeros(16));
    out.weight.assign(wave({3, 16}, 2, 0.4));
    out.bias.assign(Tensor::zeros(3));
  }
};

std::vector<double> train(const Mlp& model, nn::Optimizer& optimizer, int epochs) {
  const Tensor x = wave({24, 6}, 0.3), y = Tensor::arange(24) % 3;
  nn::DataLoader batches(nn::SampleSource::of({x, y}), {.batch_size = 8, .workers = 1});
  std::vector<double> losses;
  for (int epoch = 0; epoch < epochs; epoch++)
    for (const Tensors& batch : batches) {
      const nn::Training mode;
      optimizer.zero_grad();
      const Tensor loss = model(batch[0]).cross_entropy(batch[1]);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
  return losses;
}

TEST(Training, ClassifierWithMomentum) {
  Mlp model;
  nn::SGD optimizer(nn::get_parameters(model), {.lr = 0.1, .momentum = 0.9});
  Recorded("classifier_sgd").expect(train(model, optimizer, 3), 2e-5, "loss");
}

TEST(Training, ClassifierWithAdam) {
  Mlp model;
  nn::Adam optimizer(nn::get_parameters(model), {.lr = 0.01});
  Recorded want("classifier_adam");
  want.expect(train(model, optimizer, 4), 2e-5, "loss");
  want.expect(model.out.weight, 1e-4, "weight");
}

TEST(Training, XorFromNestedVectors) {
  const std::vector<std::vector<float>> inputs{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  const std::array<std::array<float, 1>, 4> labels{{{0}, {1}, {1}, {0}}};
  const Tensor x(inputs), y(labels);
  const Tensor w1 = wave({2, 8}, 0.5).requires_grad_(), w2 = wave({8, 1}, 0.1).requires_grad_();
  nn::SGD optimizer({w1, w2}, {.lr = 0.5});
  const auto step = jit([&] {
    const nn::Training mode;
    optimizer.zero_grad();
    const Tensor loss = x.dot(w1).tanh().dot(w2).binary_crossentropy_logits(y).backward();
    optimizer.step();
    return loss.realize();
  });
  std::vector<double> losses;
  for (int k = 0; k < 25; k++) losses.push_back(step().item<float>());
  Recorded("xor").expect(losses, 1e-4, "loss");
}

TEST(Training, ConvNet) {
  struct Net {
    nn::Conv2d conv{1, 4, 3, {.padding = 1}};
    nn::BatchNorm norm{4};
    nn::Linear fc{4 * 36, 4};
    Tensor operator()(const Tensor& x) const { return fc(norm(conv(x)).relu().max_pool2d().flatten(1)); }
    TG_STATE(conv, norm, fc)
  } net;
  net.conv.weight.assign(wave({4, 1, 3, 3}, 0.2, 0.3));
  net.conv.bias.assign(Tensor::zeros(4));
  net.fc.weight.assign(wave({4, 144}, 0.9, 0.1));
  net.fc.bias.assign(Tensor::zeros(4));
  const Tensor x = wave({4, 1, 12, 12}), y = Tensor::arange(4);
  nn::SGD optimizer(nn::get_parameters(net), {.lr = 0.05});
  std::vector<double> losses;
  for (int k = 0; k < 6; k++) {
    const nn::Training mode;
    optimizer.zero_grad();
    const Tensor loss = net(x).cross_entropy(y).backward();
    optimizer.step();
    losses.push_back(loss.item<float>());
  }
  Recorded want("convnet");
  want.expect(losses, 1e-4, "loss");
  want.expect(net.norm.running_mean, 1e-4, "running mean");
  want.expect(net.norm.running_var, 1e-4, "running variance");
  want.expect(net(x), 1e-3, "scores");
}

TEST(Training, SavedAndResumed) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("resumed-" + std::to_string(getpid()) + ".safetensors");
  Mlp whole, first, second;
  nn::SGD a(nn::get_parameters(whole), {.lr = 0.1}), b(nn::get_parameters(first), {.lr = 0.1});
  std::vector<double> straight = train(whole, a, 4), resumed = train(first, b, 2);
  nn::safe_save(nn::get_state_dict(first), file, {{"epoch", "2"}});
  nn::load_state_dict(second, nn::safe_load(file));
  EXPECT_EQ(nn::safe_metadata(file).at(0).second, "2");
  nn::SGD c(nn::get_parameters(second), {.lr = 0.1});
  for (double loss : train(second, c, 2)) resumed.push_back(loss);
  EXPECT_EQ(straight, resumed);
  std::filesystem::remove(file);
}

TEST(Training, StraightThroughRounding) {
  const auto quantize = custom_gradient([](const Tensor& x, const Tensor& s) { return (x / s).round() * s; },
                                        [](const Tensor& g, const Tensor& x, const Tensor& s) {
                                          return Tensors{g * (x.abs() < 0.8), (g * ((x / s).round() - x / s)).sum()};
                                        });
  const Tensor x = wave({12}).requires_grad_(), s = Tensor::full({}, 0.25f).requires_grad_();
  const Tensor y = quantize(x, s);
  (y * wave({12}, 1)).sum().backward();
  Recorded want("straight_through");
  want.expect(y, 1e-6, "value");
  want.expect(x.grad(), 1e-6, "gradient");
  want.expect(s.grad(), 1e-5, "gradient of the step");
}

TEST(Training, GradientPenalty) {
  const Tensor x = wave({5, 4}).requires_grad_(), w = wave({4}, 1).requires_grad_();
  const Tensor g = x.matmul(w).tanh().sum().gradient({x})[0];
  const Tensor loss = ((g.square().sum(1).sqrt() - 1).square()).mean();
  loss.backward();
  Recorded want("penalty");
  want.expect(loss, 1e-5, "loss");
  want.expect(w.grad(), 1e-5, "gradient of w");
  want.expect(x.grad(), 1e-5, "gradient of x");
}

TEST(Training, Lstm) {
  nn::LSTM net(3, 5, {.batch_first = true});
  int phase = 0;
  const nn::StateDict state = nn::get_state_dict(net);
  for (const char* name : {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}) {
    const Tensor& p = state.at(name);
    p.assign(wave(p.shape(), phase++, 0.3));
  }
  const auto [out, last] = net(wave({2, 7, 3}));
  const Tensor end = out(Slice(), -1);
  end.square().sum().backward();
  Recorded want("lstm");
  want.expect(end, 1e-5, "output");
  want.expect(last.h, 1e-5, "h");
  want.expect(last.c, 1e-5, "c");
  want.expect(state.at("weight_hh_l0").grad(), 1e-5, "gradient");
}

TEST(Training, TransformerBlock) {
  const Tensor x = wave({2, 6, 8}, 0, 0.5).requires_grad_();
  Tensors p;
  for (const Shape& s : {Shape{8, 24}, Shape{8, 8}, Shape{8, 16}, Shape{16, 8}})
    p.push_back(wave(s, static_cast<double>(p.size()), 0.2).requires_grad_());
  Tensors qkv;
  for (const Tensor& t : x.layernorm().dot(p[0]).chunk(3, -1))
    qkv.push_back(t.rearrange("b t (h d) -> b h t d", {{"h", 2}}));
  const Tensor attended =
      qkv[0].scaled_dot_product_attention(qkv[1], qkv[2], {.is_causal = true}).rearrange("b h t d -> b t (h d)");
  const Tensor h = x + attended.dot(p[1]);
  const Tensor y = h + h.layernorm().dot(p[2]).gelu().dot(p[3]);
  y.square().mean().backward();
  Recorded want("block");
  want.expect(y, 1e-5, "value");
  want.expect(x.grad(), 1e-5, "gradient of x");
  want.expect(p[0].grad(), 1e-5, "gradient of the weights");
}

}  // namespace
}  // namespace programs
