/// \file Networks of models/: forward passes of captured functions, one sample, float32. benchmarks/peers/zoo_peer.py
/// has the same networks of the same sizes.
#include <cmath>
#include <functional>

#include "apps/tg/bench_kernel.h"
#include "models/autoencoder_kl.h"
#include "models/bert.h"
#include "models/clip.h"
#include "models/convnext.h"
#include "models/efficientnet.h"
#include "models/inception.h"
#include "models/mamba.h"
#include "models/mask_rcnn.h"
#include "models/resnet.h"
#include "models/retinanet.h"
#include "models/rnnt.h"
#include "models/t5.h"
#include "models/unet.h"
#include "models/unet3d.h"
#include "models/vit.h"
#include "models/vits.h"
#include "models/whisper.h"
#include "models/yolov3.h"
#include "models/yolov8.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::bench {
namespace {

/// Gives matrices and filters random values that keep the variance of what goes in, so that no activation vanishes;
/// returns how many numbers are trained.
int64_t give_weights(const nn::StateDict& weights) {
  uint64_t seed = 1;
  int64_t trained = 0;
  for (const auto& [name, t] : weights) {
    if (!t.is_floating_point()) t.realize();
    else if (t.ndim() < 2)
      t.replace(Tensor::full(t.shape(), name.ends_with("bias") || name.ends_with("mean") ? 0.f : 1.f)
                    .contiguous()
                    .is_param_(t.is_param())
                    .realize());
    else {
      const double terms = static_cast<double>(t.shape().numel() / t.shape(0));
      t.replace(input(t.shape(), seed++, static_cast<float>(std::sqrt(3 / terms))).is_param_(t.is_param()));
    }
    if (t.is_floating_point() && t.is_param()) trained += t.shape().numel();
  }
  return trained;
}

/// Times a network whose weights are `weights`, `parameters` of them trained. The replay has to give what the first
/// call gave, which was not captured.
template <class F>
Samples time_network(const Context& c, const nn::StateDict& weights, int64_t parameters, const F& forward,
                     const Tensors& inputs) {
  const int64_t trained = give_weights(weights);
  BENCH_CHECK(trained == parameters, "[bench] the network has ", trained, " parameters, expected ", parameters);
  const auto captured = jit([&](const Tensors& in) { return Tensors(forward(in)); }, {.name = "network"});
  std::vector<std::vector<float>> first;
  for (const Tensor& t : captured(inputs)) first.push_back(t.to_vector<float>());
  captured(inputs);
  const Tensors replayed = captured(inputs);
  for (size_t i = 0; i < replayed.size(); i++) {
    const std::vector<float> got = replayed[i].to_vector<float>();
    for (size_t j = 0; j < got.size(); j++)
      check_close("network", j, got[j], {first[i][j], 1 + std::abs(first[i][j])}, 1e-4);
  }
  return c.time({}, [&] {
    realize(captured(inputs));
    Device::synchronize();
  });
}

/// Times a network of one input and one result.
template <class M> Samples time_model(const Context& c, const M& model, int64_t parameters, const Tensor& x) {
  return time_network(c, nn::get_state_dict(model), parameters,
                      [&](const Tensors& in) { return Tensors{model(in[0])}; }, {x});
}

Tensor images(int64_t size) { return input({1, 3, size, size}, 7); }

/// Returns numbers below `below`, (1, time).
Tensor tokens(int64_t time, int64_t below) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < time; i++) out.push_back(static_cast<int32_t>(i * 7919 % below));
  return Tensor::from(out, Shape{1, time}).realize();
}

// ---- texts ----

Samples clip_text(const Context& c) {
  const models::ClosedClipText model;
  return time_network(c, nn::get_state_dict(model), 123060480,
                      [&](const Tensors& in) { return Tensors{model(in[0]).hidden}; }, {tokens(77, 49408)});
}

Samples bert(const Context& c) {
  const models::Bert model({.hidden_size = 768, .layers = 12, .heads = 12, .intermediate_size = 3072});
  const Tensor ids = tokens(128, 30522), mask = ids.ones_like().contiguous().realize(),
               types = ids.zeros_like().contiguous().realize();
  return time_network(c, nn::get_state_dict(model), 108891648,
                      [&](const Tensors& in) { return Tensors{model({in[0], in[1], in[2]})}; }, {ids, mask, types});
}

Samples t5(const Context& c) {
  const models::T5Encoder model({.dim = 768, .heads = 12, .hidden_dim = 2048, .layers = 12});
  return time_model(c, model, 109628544, tokens(128, 32128));
}

Samples mamba(const Context& c) {
  const models::Mamba model;
  return time_model(c, model, 167750400, tokens(64, 50280));
}

// ---- speech ----

Samples whisper_encoder(const Context& c, const models::WhisperOptions& o, int64_t parameters) {
  const models::WhisperEncoder model(o);
  return time_model(c, model, parameters, input({1, 80, 3000}, 7));
}

/// Times the next token after a hundred others.
Samples whisper_step(const Context& c) {
  constexpr int64_t kBefore = 100;
  const models::WhisperOptions o;
  const models::WhisperDecoder model(o);
  const int64_t trained = give_weights(nn::get_state_dict(model));
  BENCH_CHECK(trained == 29551872, "[bench] the network has ", trained, " parameters, expected 29551872");
  const std::vector<models::WhisperLayerCache> cache = model.cache(input({1, o.audio_positions, o.audio_width}, 7));
  const auto step =
      jit([&](const Tensor& t, const BoundVariable& at) { return model.step(t, cache, at); }, {.name = "next token"});
  const BoundVariable at = Variable("at", 0, o.text_positions - 1).bind(kBefore);
  const Tensor token = tokens(1, o.vocab_size);
  const std::vector<float> first = step(token, at).to_vector<float>();
  step(token, at);
  const std::vector<float> got = step(token, at).to_vector<float>();
  for (size_t j = 0; j < got.size(); j++) check_close("logits", j, got[j], {first[j], 1 + std::abs(first[j])}, 1e-4);
  return c.time({}, [&] {
    step(token, at).realize();
    Device::synchronize();
  });
}

Samples rnnt(const Context& c) {
  const models::Rnnt model;
  return time_network(c, nn::get_state_dict(model), 45323037,
                      [&](const Tensors& in) { return Tensors{model(in[0], in[1])}; },
                      {input({200, 1, 240}, 7), tokens(20, 28)});
}

/// Times what follows the durations, 100 frames of audio, and the text encoder.
Samples vits(const Context& c) {
  const models::Vits model;
  const Tensor mask = Tensor::ones({1, 1, 100}).contiguous().realize(),
               text_mask = Tensor::ones({1, 1, 40}).contiguous().realize();
  return time_network(c, nn::get_state_dict(model), 36284592,
                      [&](const Tensors& in) {
                        const Tensor latents = model.flow(in[1], in[2], {}, true);
                        return Tensors{model.text_encoder(in[0], in[3]).means, model.decoder(latents, {})};
                      },
                      {tokens(40, 38), input({1, 192, 100}, 8), mask, text_mask});
}

// ---- images ----

Samples clip_image(const Context& c) {
  const models::OpenClipImage model({.width = 768, .layers = 12, .heads = 12, .patch_size = 16, .projection = 512});
  return time_model(c, model, 86192640, images(224));
}

Samples sd_unet(const Context& c) {
  const models::UNet model;
  return time_network(
      c, nn::get_state_dict(model), 859520964,
      [&](const Tensors& in) { return Tensors{model({.latents = in[0], .timesteps = in[1], .context = in[2]})}; },
      {input({1, 4, 32, 32}, 7), Tensor::full({1}, 500.f).contiguous().realize(), input({1, 77, 768}, 8)});
}

Samples vae_decoder(const Context& c) {
  const models::AutoencoderKL model;
  return time_network(c, nn::get_state_dict(model), 83653863,
                      [&](const Tensors& in) { return Tensors{model.decode(in[0])}; }, {input({1, 4, 16, 16}, 7)});
}

/// Times all that is computed per image, and the heads for as many regions as an image has, without what chooses them.
Samples mask_rcnn(const Context& c) {
  const models::MaskRCNN model(models::MaskRCNNOptions{.backbone = {.layers = 50}});
  return time_network(c, nn::get_state_dict(model), 44400693,
                      [&](const Tensors& in) {
                        Tensors out;
                        const auto add = [&](const std::pair<Tensor, Tensor>& both) {
                          out.insert(out.end(), {both.first, both.second});
                        };
                        for (const Tensor& level : model.backbone(in[0])) add(model.rpn.head(level));
                        add(model.roi_heads.box(in[1]));
                        out.push_back(model.roi_heads.mask(in[2]));
                        return out;
                      },
                      {images(320), input({100, 256, 7, 7}, 8), input({10, 256, 14, 14}, 9)});
}

Samples yolov8(const Context& c) {
  const models::YOLOv8 model;
  return time_model(c, model, 3157200, images(640));
}

constexpr const char* kGroup = "zoo";
constexpr Row kRows[] = {
    {"zoo_resnet18", "ms", "ResNet-18, 224 x 224",
     [](Context& c) { return time_model(c, models::resnet18(), 11689512, images(224)); }, kGroup},
    {"zoo_resnet50", "ms", "ResNet-50, 224 x 224",
     [](Context& c) { return time_model(c, models::resnet50(), 25557032, images(224)); }, kGroup},
    {"zoo_resnext50", "ms", "ResNeXt-50 32x4d, 224 x 224",
     [](Context& c) { return time_model(c, models::resnext50_32x4d(), 25028904, images(224)); }, kGroup},
    {"zoo_efficientnet_b0", "ms", "EfficientNet-B0, 224 x 224",
     [](Context& c) { return time_model(c, models::EfficientNet(), 5288548, images(224)); }, kGroup},
    {"zoo_convnext_tiny", "ms", "ConvNeXt-T, 224 x 224",
     [](Context& c) { return time_model(c, models::ConvNeXt(), 28589128, images(224)); }, kGroup},
    {"zoo_inception_v3", "ms", "Inception v3, 299 x 299",
     [](Context& c) { return time_model(c, models::Inception3({.aux_logits = false}), 23834568, images(299)); },
     kGroup},
    {"zoo_vit_b16", "ms", "ViT-B/16, 224 x 224",
     [](Context& c) { return time_model(c, models::ViT({.embed_dim = 768, .num_heads = 12}), 86567656, images(224)); },
     kGroup},
    {"zoo_clip_text", "ms", "the text encoder of CLIP ViT-L/14, 77 tokens", [](Context& c) { return clip_text(c); },
     kGroup},
    {"zoo_clip_image", "ms", "the image encoder of CLIP ViT-B/16, 224 x 224", [](Context& c) { return clip_image(c); },
     kGroup},
    {"zoo_bert_base", "ms", "BERT-base, 128 tokens", [](Context& c) { return bert(c); }, kGroup},
    {"zoo_t5_encoder", "ms", "the encoder of T5 1.1 base, 128 tokens", [](Context& c) { return t5(c); }, kGroup},
    {"zoo_whisper_tiny_encoder", "ms", "the encoder of Whisper tiny, 30 s",
     [](Context& c) { return whisper_encoder(c, {}, 7632384); }, kGroup},
    {"zoo_whisper_base_encoder", "ms", "the encoder of Whisper base, 30 s",
     [](Context& c) { return whisper_encoder(c, {.audio_width = 512, .audio_heads = 8, .audio_layers = 6}, 19822592); },
     kGroup},
    {"zoo_whisper_tiny_step", "ms", "a step of the decoder of Whisper tiny after 100 tokens",
     [](Context& c) { return whisper_step(c); }, kGroup},
    {"zoo_sd1_unet", "ms", "the U-Net of Stable Diffusion 1, latents 32 x 32", [](Context& c) { return sd_unet(c); },
     kGroup},
    {"zoo_vae_decoder", "ms", "the decoder of Stable Diffusion's autoencoder, latents 16 x 16",
     [](Context& c) { return vae_decoder(c); }, kGroup},
    {"zoo_unet3d", "ms", "3-D U-Net, 64 x 64 x 64",
     [](Context& c) { return time_model(c, models::UNet3D(), 31190243, input({1, 1, 64, 64, 64}, 7)); }, kGroup},
    {"zoo_retinanet", "ms", "RetinaNet with ResNet-50, 264 classes, 320 x 320",
     [](Context& c) { return time_model(c, models::RetinaNet(), 37657004, images(320)); }, kGroup},
    {"zoo_mask_rcnn", "ms", "Mask R-CNN with ResNet-50, 320 x 320, 100 boxes, 10 masks, without choosing them",
     [](Context& c) { return mask_rcnn(c); }, kGroup},
    {"zoo_yolov3", "ms", "YOLOv3, 416 x 416",
     [](Context& c) { return time_model(c, models::yolov3(), 61949149, images(416)); }, kGroup},
    {"zoo_yolov8n", "ms", "YOLOv8n, 640 x 640", [](Context& c) { return yolov8(c); }, kGroup},
    {"zoo_rnnt", "ms", "RNN-T, 200 spectra, 20 characters", [](Context& c) { return rnnt(c); }, kGroup},
    {"zoo_mamba_130m", "ms", "Mamba 130m, 64 tokens", [](Context& c) { return mamba(c); }, kGroup},
    {"zoo_vits", "ms", "VITS of the MMS voices without durations, 40 tokens, 100 frames",
     [](Context& c) { return vits(c); }, kGroup},
};

}  // namespace

std::span<const Row> zoo_rows() { return kRows; }

}  // namespace tg::bench
