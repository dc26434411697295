"""PyTorch's networks of the zoo rows: those of torchvision, transformers and diffusers, in eager mode, with random
weights; others are in zoo_networks.py. Sizes and numbers of parameters are those of `tg bench`."""
import importlib, math
import torch
from torch import nn
import inputs
from torch_peer import kernels_of_mkl
from worker import Work

def values(*shape: int, seed: int = 7) -> torch.Tensor: return torch.from_numpy(inputs.floats(shape, seed))
def images(size: int) -> torch.Tensor: return values(1, 3, size, size)

def tokens(time: int, below: int) -> torch.Tensor: return torch.arange(time)[None] * 7919 % below


def give_weights(model: nn.Module) -> None:
  """Random values that keep the variance of what goes in, as `tg bench` gives them: no activation vanishes, and none
  is so small that the processor takes its time."""
  with torch.no_grad():
    for name, p in model.named_parameters():
      if p.ndim < 2: p.fill_(0 if name.endswith("bias") else 1)
      else: p.uniform_(-1, 1).mul_(math.sqrt(3 * p.shape[0] / p.numel()))


class Joined(nn.Module):
  """Parts of a network, and how they are called: forward(parts, *inputs)."""
  def __init__(self, call, **parts: nn.Module):
    super().__init__()
    self.call = call
    for name, part in parts.items(): setattr(self, name, part)
  def forward(self, *x): return self.call(self, *x)


# Each returns a network and its inputs.

def torchvision_classifier(name: str, size: int = 224, **options):
  return getattr(importlib.import_module("torchvision").models, name)(**options), [images(size)]


def clip_text():
  from transformers import CLIPTextConfig, CLIPTextModel
  model = CLIPTextModel(CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
                                       num_attention_heads=12, eos_token_id=2))
  return Joined(lambda m, ids: m.text(input_ids=ids).last_hidden_state, text=model), [tokens(77, 49408)]


def clip_image():
  from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection
  model = CLIPVisionModelWithProjection(CLIPVisionConfig(patch_size=16, projection_dim=512, hidden_act="gelu"))
  return Joined(lambda m, x: m.image(pixel_values=x).image_embeds, image=model), [images(224)]


def bert():
  from transformers import BertConfig, BertModel
  ids = tokens(128, 30522)
  return (Joined(lambda m, i, a, t: m.bert(input_ids=i, attention_mask=a, token_type_ids=t).last_hidden_state,
                 bert=BertModel(BertConfig(), add_pooling_layer=False)),
          [ids, torch.ones_like(ids), torch.zeros_like(ids)])


def t5():
  from transformers import T5Config, T5EncoderModel
  model = T5EncoderModel(T5Config(vocab_size=32128, d_model=768, d_ff=2048, num_layers=12, num_heads=12,
                                  feed_forward_proj="gated-gelu"))
  return Joined(lambda m, ids: m.t5(input_ids=ids).last_hidden_state, t5=model), [tokens(128, 32128)]


def whisper_encoder(width: int, layers: int, heads: int):
  from transformers import WhisperConfig
  from transformers.models.whisper.modeling_whisper import WhisperEncoder
  model = WhisperEncoder(WhisperConfig(d_model=width, encoder_layers=layers, encoder_attention_heads=heads,
                                       encoder_ffn_dim=4 * width))
  return (Joined(lambda m, x: m.encoder(x).last_hidden_state, encoder=model),
          [values(1, 80, 3000)])


def whisper_step():
  from zoo_networks import WhisperStep
  return WhisperStep(), [tokens(1, 51864)]


def sd1_unet():
  from diffusers import UNet2DConditionModel
  model = UNet2DConditionModel(sample_size=32, cross_attention_dim=768, attention_head_dim=8)
  return (Joined(lambda m, x, t, c: m.unet(x, t, c).sample, unet=model),
          [values(1, 4, 32, 32), torch.tensor([500.0]),
           values(1, 77, 768, seed=8)])


def vae_decoder():
  from diffusers import AutoencoderKL
  model = AutoencoderKL(block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4,
                        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4)
  return (Joined(lambda m, x: m.vae.decode(x).sample, vae=model),
          [values(1, 4, 16, 16)])


def unet3d():
  from zoo_networks import UNet3D
  return UNet3D(), [values(1, 1, 64, 64, 64)]


def retinanet():
  from torchvision.models.detection import retinanet_resnet50_fpn
  whole = retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=264, norm_layer=nn.BatchNorm2d)
  def call(m, x):
    found = m.head(list(m.backbone(x).values()))
    return torch.cat([found["bbox_regression"], found["cls_logits"].sigmoid()], -1)
  return Joined(call, backbone=whole.backbone, head=whole.head), [images(320)]


def mask_rcnn():
  from torchvision.models.detection import maskrcnn_resnet50_fpn
  whole = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=81, norm_layer=nn.BatchNorm2d)
  def call(m, x, boxes, masks):
    logits, offsets = m.rpn(list(m.backbone(x).values()))
    return *logits, *offsets, *m.box_predictor(m.box_head(boxes)), m.mask_predictor(m.mask_head(masks))
  heads = {name: getattr(whole.roi_heads, name) for name in ("box_head", "box_predictor", "mask_head",
                                                             "mask_predictor")}
  return (Joined(call, backbone=whole.backbone, rpn=whole.rpn.head, **heads),
          [images(320), values(100, 256, 7, 7, seed=8),
           values(10, 256, 14, 14, seed=9)])


def yolov3():
  from zoo_networks import YOLOv3
  return YOLOv3(), [images(416)]


def yolov8n():
  from zoo_networks import YOLOv8n
  return YOLOv8n(), [images(640)]


def rnnt():
  from zoo_networks import Rnnt
  return Rnnt(), [values(200, 1, 240), tokens(20, 28)]


def mamba():
  """The path of transformers without kernels of its own, which is what there is on a processor."""
  from transformers import MambaConfig, MambaForCausalLM
  model = MambaForCausalLM(MambaConfig(vocab_size=50280, hidden_size=768, num_hidden_layers=24,
                                       tie_word_embeddings=False, use_cache=False))
  return Joined(lambda m, ids: m.mamba(ids).logits, mamba=model), [tokens(64, 50280)]


def vits():
  from transformers import VitsConfig, VitsModel
  def call(m, ids, latents, mask, text_mask):
    text = m.vits.text_encoder(input_ids=ids, padding_mask=text_mask, attention_mask=text_mask[..., 0])
    return text.prior_means.transpose(1, 2), m.vits.decoder(m.vits.flow(latents, mask, reverse=True))
  return (Joined(call, vits=VitsModel(VitsConfig())),
          [tokens(40, 38), values(1, 192, 100, seed=8), torch.ones(1, 1, 100),
           torch.ones(1, 40, 1)])


NETWORKS = {
  "resnet18": lambda: torchvision_classifier("resnet18"), "resnet50": lambda: torchvision_classifier("resnet50"),
  "resnext50": lambda: torchvision_classifier("resnext50_32x4d"),
  "efficientnet_b0": lambda: torchvision_classifier("efficientnet_b0"),
  "convnext_tiny": lambda: torchvision_classifier("convnext_tiny"),
  "inception_v3": lambda: torchvision_classifier("inception_v3", 299, aux_logits=False, init_weights=False),
  "vit_b16": lambda: torchvision_classifier("vit_b_16"), "clip_text": clip_text, "clip_image": clip_image,
  "bert_base": bert, "t5_encoder": t5, "whisper_tiny_encoder": lambda: whisper_encoder(384, 4, 6),
  "whisper_base_encoder": lambda: whisper_encoder(512, 6, 8), "whisper_tiny_step": whisper_step,
  "sd1_unet": sd1_unet, "vae_decoder": vae_decoder, "unet3d": unet3d, "retinanet": retinanet, "mask_rcnn": mask_rcnn,
  "yolov3": yolov3, "yolov8n": yolov8n, "rnnt": rnnt, "mamba_130m": mamba, "vits": vits,
}


class Peer:
  def __init__(self, name: str, threads: int):
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    self.version = f"PyTorch {torch.__version__} ({kernels_of_mkl()})"

  def zoo(self, row) -> Work:
    torch.manual_seed(1)
    model, x = NETWORKS[row.name.removeprefix("zoo_")]()
    give_weights(model.eval())
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if count != row.args["parameters"]:
      raise inputs.WrongResult(f"the network has {count} parameters, expected {row.args['parameters']}")
    last = []
    def run():
      with torch.no_grad(): out = model(*x)
      last[:] = out if isinstance(out, (tuple, list)) else [out]
    return Work(run, lambda: [t.numpy() for t in last])
