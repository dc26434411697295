"""The cases of upstream.py for MLPerf's programs: small data sets in the layout of each are written here, and what is
too large for a CPU gets smaller networks; data sets and weights that a program would download are replaced."""
import contextlib
import functools
import importlib
import io
import json
import os
import pickle
import re
import struct
import sys
import types
from pathlib import Path

import numpy as np

from upstream_harness import AFTER_STEP, case
from upstream_onnx_cases import write_imagenet

SMALL_UNET = (2, 3, 4, 5, 6)  # channels, of 32 .. 320


class Recorder(types.ModuleType):
    """Stands for the package wandb: keeps what a program reports."""
    run = None

    def __init__(self):
        super().__init__("wandb")
        self.rows = []
        sys.modules["wandb"] = self

    def init(self, **kw):
        pass

    def log(self, row):
        self.rows.append({k: v for k, v in row.items() if not any(w in k for w in ("time", "GFLOPS", "mem"))})

    def report(self, h, of, tolerance):
        for i, row in enumerate(self.rows):
            for name, value in row.items():
                h.log(f"{of} {name} {i}", np.asarray(value, np.float64), tolerance)


def program(h, name, replace=()):
    """Runs eval_X or train_X of one of the programs: its globals and what it printed."""
    spawn = [("multiprocessing.set_start_method('spawn')", "")] if "train" in name else []
    return h.main(f"examples/mlperf/{name}.py", replace=[*spawn, *replace])


def changed(h, file, replace):
    """Imports a file of the checkout with changes (old, new) in its source, as if it lay in the current folder."""
    source = Path(h.checkout, file).read_text()
    for old, new in replace:
        assert old in source, old
        source = source.replace(old, new)
    name = file[:-3].replace("/", ".")
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = os.path.abspath(Path(file).name)
    exec(compile(source, file, "exec"), vars(module))
    return module


def filled(h, cls, gain=1.0):
    """Makes a class of models get values made here in place of those it would load."""
    cls.load_from_pretrained = lambda self, *args: h.fill(self, gain)
    return cls


# ---- data sets ----

def write_wikipedia(folder, samples=6, length=32, masked=4, vocab=200):
    """Pickles of samples, as wikipedia.py writes them."""
    draw = np.random.RandomState(3)

    def sample():
        return {"input_ids": draw.randint(vocab, size=(1, length)), "input_mask": np.ones((1, length)),
                "segment_ids": draw.randint(2, size=(1, length)),
                "masked_lm_positions": draw.randint(length, size=(1, masked)),
                "masked_lm_ids": draw.randint(vocab, size=(1, masked)), "masked_lm_weights": np.ones((1, masked)),
                "next_sentence_labels": draw.randint(2, size=(1, 1))}
    os.makedirs(f"{folder}/train")
    for name in ("eval.pkl", "train/0.pkl", "train/1.pkl"):
        Path(folder, name).write_bytes(pickle.dumps([sample() for _ in range(samples)]))


def kits19(h):
    """Writes the data set of volumes, two cases for training and one for evaluation; gives its module."""
    nib = importlib.import_module("nibabel")
    m = h.load("extra/datasets/kits19.py")
    m.BASEDIR, m.TRAIN_PREPROCESSED_DIR, m.VAL_PREPROCESSED_DIR = Path("data"), Path("done/train"), Path("done/val")
    for case_number, depth in ((0, 60), (1, 70), (2, 100)):
        draw = np.random.RandomState(case_number)
        folder = m.BASEDIR / f"case_{case_number:05d}"
        folder.mkdir(parents=True)
        label = np.zeros((depth, 50, 48), np.uint8)
        label[10:30, 8:30, 9:31], label[14:20, 12:20, 15:22] = 1, 2
        affine = np.diag([3.2, 2.4, 2.4, 1.0])  # twice the spacing it is resampled to
        image = (draw.standard_normal(label.shape) * 60 + 100 * label).astype(np.float32)
        for name, array in (("imaging", image), ("segmentation", label)):
            nib.save(nib.Nifti1Image(array, affine), folder / f"{name}.nii.gz")
    folders = sorted(m.BASEDIR.iterdir())
    m.get_train_files, m.get_val_files = lambda: folders[:2], lambda: folders[2:]
    return m


def write_openimages(folder, images=2):
    """Pictures with boxes, described as COCO describes them, for training and evaluation."""
    from PIL import Image
    draw = np.random.RandomState(9)
    for part in ("train", "validation"):
        for sub in ("data", "labels"):
            Path(folder, part, sub).mkdir(parents=True)
        info, boxes = [], []
        for i in range(1, images + 1):
            width, height = 60 + 4 * i, 80
            Image.fromarray(draw.randint(256, size=(height, width, 3)).astype(np.uint8)).save(
                Path(folder, part, "data", f"{i}.jpg"))
            info.append({"id": i, "file_name": f"{i}.jpg", "height": height, "width": width, "subset": part})
            for x, y in draw.randint(5, 30, size=(3, 2)).tolist():
                boxes.append({"id": len(boxes) + 1, "image_id": i, "category_id": len(boxes) % 4, "iscrowd": 0,
                              "bbox": [x, y, 20 + 2 * i, 25], "area": (20 + 2 * i) * 25})
        text = {"info": {}, "images": info, "annotations": boxes,
                "categories": [{"id": i, "name": str(i)} for i in range(4)]}
        Path(folder, part, "labels", "openimages-mlperf.json").write_text(json.dumps(text))


def write_documents(path, documents=9):
    """Tokens of documents as Megatron's pair of files."""
    draw = np.random.RandomState(4)
    sizes = draw.randint(5, 40, size=documents).astype(np.int32)
    tokens = draw.randint(1000, size=sizes.sum()).astype(np.uint16)
    pointers = (np.concatenate([[0], np.cumsum(sizes)[:-1]]) * 2).astype(np.int64)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, documents, documents + 1)
    Path(f"{path}.idx").write_bytes(head + sizes.tobytes() + pointers.tobytes()
                                    + np.arange(documents + 1, dtype=np.int64).tobytes())
    Path(f"{path}.bin").write_bytes(tokens.tobytes())


def log_batches(h, name, batches, count=None):
    """What a loader gives, in an order of their own, as its processes are not done in the same order each time: sums of
    the rows of each tensor, other values as text."""
    def row(value):
        if not isinstance(value, h.Tensor):
            return (str(value) if isinstance(value, list) else "", [])
        rows = value.numpy().reshape(value.shape[0], -1).astype(np.float64)
        weights = np.arange(rows.shape[1]) / rows.shape[1]
        return f"{value.dtype} {list(value.shape)}", [rows.sum(1), (rows * weights).sum(1)]
    found = []
    for batch in batches:
        found.append([row(v) for v in (batch.values() if isinstance(batch, dict) else batch)])
        if len(found) == count:
            break
    found.sort(key=str)
    for number, batch in enumerate(found):
        h.log(f"{name} {number} types", [text for text, _ in batch])
        for i, (_, sums) in enumerate(batch):
            if sums:
                h.log(f"{name} {number}.{i}", sums, 1e-6)


@case("examples/mlperf/dataloader.py",
      "each loader with its processes and shared memory, on made-up pictures, volumes, boxes, pickles and documents, "
      "for training and evaluation; that of Stable Diffusion gives no tensors and needs webdataset",
      env={"BASEDIR": ".", "NUM_CPU_THREADS": "2"})
def dataloader(h):
    m = h.load("examples/mlperf/dataloader.py")
    imagenet = write_imagenet(h, "imagenet", images=5)
    for part in ("train", "val"):
        files = sorted(str(f) for f in (imagenet.BASEDIR / part).glob("*/*"))
        setattr(imagenet, f"get_{part}_files", lambda files=files: files)
    log_batches(h, "pictures", m.batch_load_resnet(2, val=True, shuffle=False, pad_first_batch=True))
    log_batches(h, "pictures for training", m.batch_load_resnet(2, val=False, seed=3))
    write_wikipedia(".")
    log_batches(h, "texts", m.batch_load_val_bert(4), 3)
    log_batches(h, "texts for training", m.batch_load_train_bert(3, seed=2), 3)
    volumes = kits19(h)
    volumes.preprocess_dataset(volumes.get_train_files(), volumes.TRAIN_PREPROCESSED_DIR, False)
    log_batches(h, "volumes", m.batch_load_unet3d(volumes.TRAIN_PREPROCESSED_DIR, batch_size=1, seed=5))
    write_openimages(".")
    coco = importlib.import_module("pycocotools.coco")
    for val in (True, False):
        data = coco.COCO(f"{'validation' if val else 'train'}/labels/openimages-mlperf.json")
        log_batches(h, f"boxes {val}", m.batch_load_retinanet(data, val, Path("."), 1, shuffle=False, seed=6))
    write_documents("c4-train.en_6_text_document")
    for _ in range(2):  # the second time from its own cache
        tokens = list(m.batch_load_llama3(2, 6, 12, Path("."), seed=7, val=False, small=True))
        h.log(f"tokens {_}", np.concatenate([t.numpy() for t in tokens]).astype(np.int64))


# ---- evaluation ----

class SmallUNet:
    """Makes the network for volumes with fewer channels; keeps those that were made."""

    def __init__(self, h):
        self.m, self.h, self.made = h.load("extra/models/unet3d.py"), h, []
        base, parts, widths = self.m.UNet3D, self.m, SMALL_UNET

        class Small(base):
            def __init__(self):
                down, up = parts.DownsampleBlock, parts.UpsampleBlock
                pairs = list(zip(widths[:-1], widths[1:]))
                self.input_block = down(1, widths[0], stride=1)
                self.downsample = [down(i, o) for i, o in pairs]
                self.bottleneck = down(widths[-1], widths[-1])
                self.upsample = [up(widths[-1], widths[-1])] + [up(o, i) for i, o in reversed(pairs)]
                self.output = {"conv": h.nn.Conv2d(widths[0], 3, kernel_size=(1, 1, 1))}
        self.m.UNet3D = self
        self.cls = filled(h, Small)

    def __call__(self):
        self.made.append(self.h.fill(self.cls()))
        return self.made[-1]


def narrow_resnet(h, classes=None):
    """A ResNet-18 with an eighth of its channels, of the layers that a program has chosen."""
    m = h.load("extra/models/resnet.py")

    class Narrow(m.ResNet):
        def __init__(self):
            self.num, self.block, self.in_planes, self.groups, self.base_width = 18, m.BasicBlock, 8, 1, 64
            self.conv1, self.bn1 = m.Conv2d(3, 8, kernel_size=7, stride=2, bias=False, padding=3), m.BatchNorm(8)
            for i in range(4):
                setattr(self, f"layer{i + 1}", self._make_layer(m.BasicBlock, 8 << i, 2, 1 if i == 0 else 2, False))
            self.fc = m.Linear(64, classes) if classes else None
    return filled(h, Narrow)()


def small_retinanet(h):
    """Makes RetinaNet one of 8 channels and classes on a narrow ResNet; gives the list of those that are made."""
    m, resnet, made = h.load("extra/models/retinanet.py"), h.load("extra/models/resnet.py"), []
    extra, pyramid, whole = m.ExtraFPNBlock, m.ResNetFPN, filled(h, m.RetinaNet, gain=0.7)
    m.ExtraFPNBlock = lambda inputs, outputs: extra(8, 8)
    m.ResNetFPN = functools.partial(pyramid, out_channels=8)

    def make(backbone, num_classes=None):
        made.append(h.fill(whole(backbone, num_classes=8), gain=0.7))
        return made[-1]
    m.RetinaNet = make
    resnet.ResNeXt50_32X4D = lambda num_classes=None: h.fill(narrow_resnet(h))
    return made


def run(function):
    """What a function gives and prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        return function(), printed.getvalue()


def take_floats(h, m):
    """Gives a module embeddings that look up floats, which tinygrad's refuse."""
    class Embedding(m.Embedding):
        def __call__(self, idx):
            return super().__call__(idx.cast(h.dtypes.int32))
    m.Embedding = Embedding


def eval_resnet(h, g):
    resnet = h.load("extra/models/resnet.py")
    made = []
    resnet.ResNet50 = lambda: made.append(narrow_resnet(h, 1000)) or made[-1]
    h.nn.state.safe_save(h.nn.state.get_state_dict(h.fill(resnet.ResNet50())), "resnet.safetensors")
    imagenet = write_imagenet(h, "imagenet", images=5)
    files = sorted(str(f) for f in imagenet.BASEDIR.glob("val/*/*"))
    imagenet.get_val_files = lambda: files
    _, printed = run(g["eval_resnet"])
    x = h.normal(2, 3, 224, 224).shard([f"{h.tg.Device.DEFAULT}:{i}" for i in range(2)], axis=0)
    h.log("resnet output", made[-1](x))
    h.log("resnet correct", re.findall(r"\*+ +(\d+)/ +(\d+)", printed)[-1])


def eval_rnnt(h, g):
    import soundfile
    os.makedirs("librispeech")
    draw = np.random.RandomState(2)
    rows = []
    for i, seconds in enumerate((0.3, 0.4)):
        soundfile.write(f"librispeech/{i}.wav", draw.uniform(-0.5, 0.5, int(16000 * seconds)), 16000)
        rows.append({"files": [{"fname": f"{i}.wav"}], "transcript": "a cat sat"})
    Path("librispeech/dev-clean-wav.json").write_text(json.dumps(rows))
    changed(h, "extra/datasets/librispeech.py", [])  # its data lies beside it
    m = changed(h, "extra/models/rnnt.py", [(".argmax(axis=0).numpy()", ".argmax(axis=0).item()"),
                                            ("Tensor.zeros(1, 1)", "Tensor.zeros(1, 1, dtype='int32')")])
    m.RNNT = functools.partial(filled(h, m.RNNT, gain=4), enc_hidden_size=16, pred_hidden_size=10, joint_hidden_size=14)
    metrics, words = h.load("examples/mlperf/metrics.py"), []
    rate = metrics.word_error_rate
    metrics.word_error_rate = lambda texts, wanted: words.append(texts[0]) or rate(texts, wanted)
    g["eval_rnnt"]()
    h.log("rnnt texts", words)


def eval_bert(h, g):
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat sat on mat who where ? . dog ##s in yard".split()
    Path("bert_vocab.txt").write_text("\n".join(words))
    squad = h.load("extra/datasets/squad.py")
    squad.BASEDIR = Path("squad").absolute()
    squad.BASEDIR.mkdir()
    text = "the cat sat on the mat . a dog sat in the yard ."
    questions = [{"id": str(i), "question": q, "answers": [{"text": a}]} for i, (q, a) in
                 enumerate((("who sat on the mat ?", "the cat"), ("where sat the dog ?", "in the yard")))]
    data = {"data": [{"paragraphs": [{"context": " ".join([text] * 40), "qas": questions}]}]}
    Path(squad.BASEDIR, "dev-v1.1.json").write_text(json.dumps(data))
    m = h.load("extra/models/bert.py")
    take_floats(h, m)
    m.BertForQuestionAnswering = functools.partial(
        filled(h, m.BertForQuestionAnswering), hidden_size=32, intermediate_size=64, num_attention_heads=2,
        num_hidden_layers=2, vocab_size=len(words))
    helpers, answers = h.load("examples/mlperf/helpers.py"), []
    predict = helpers.get_bert_qa_prediction

    def keep(features, example, outs):
        answers.append((predict(features, example, outs), [np.asarray(o) for o in outs]))
        return answers[-1][0]
    helpers.get_bert_qa_prediction = keep
    g["eval_bert"]()
    for i, (answer, outs) in enumerate(answers):
        h.log(f"bert answer {i}", answer)
        h.log(f"bert outputs {i}", np.concatenate([o.ravel() for o in outs]))


def eval_unet3d(h, g):
    kits19(h)
    SmallUNet(h)
    metrics, scores = h.load("examples/mlperf/metrics.py"), []
    score = metrics.dice_score

    def keep(*args):
        scores.append(score(*args).realize())
        return scores[-1]
    metrics.dice_score = keep
    g["eval_unet3d"]()
    h.log("unet3d scores", np.stack([s.numpy() for s in scores]))


def eval_retinanet(h, g):
    write_openimages(".")
    small_retinanet(h)
    m = h.load("extra/models/retinanet.py")
    seen, forward = [], m.ResNetFPN.func.__call__
    m.ResNetFPN.func.__call__ = lambda self, x: seen.append(forward(self, x)) or seen[-1]
    g["eval_retinanet"]()
    for i, t in enumerate(seen[0]):
        h.log(f"retinanet features {i}", t)


@case("examples/mlperf/model_eval.py",
      "each evaluation but those of Llama and Stable Diffusion, on made-up data of the layout of ImageNet, KiTS19, "
      "LibriSpeech, SQuAD and Open Images, with a narrow ResNet-18 and fewer channels of the other networks; those "
      "of text and speech look up floats, that of speech makes tensors of lists of arrays: this fails in tinygrad, and "
      "is replaced",
      env={"MODEL": "none", "GPUS": "2", "BS": "2", "BASEDIR": ".", "NUM_CPU_THREADS": "2",
           "RESNET_MODEL": "resnet.safetensors"})
def model_eval(h):
    vocabulary = 'str(Path(__file__).parents[2] / "extra/weights/bert_vocab.txt")'
    g, _ = program(h, "model_eval", [(vocabulary, '"bert_vocab.txt"'), ("Tensor([X[1]])", "Tensor(X[1])")])
    for evaluate in (eval_bert, eval_rnnt, eval_resnet, eval_unet3d, eval_retinanet):
        with h.Context(TRAINING=0):
            evaluate(h, g)


# ---- training ----

def train_resnet(h, g):
    resnet, made = h.load("extra/models/resnet.py"), []
    resnet.ResNet50 = lambda classes: made.append(narrow_resnet(h, classes)) or made[-1]
    imagenet = write_imagenet(h, "imagenet", images=6)
    for part in ("train", "val"):
        files = sorted(str(f) for f in imagenet.BASEDIR.glob(f"{part}/*/*"))
        setattr(imagenet, f"get_{part}_files", lambda files=files: files)
    g["train_resnet"]()
    return made[0]


def train_bert(h, g):
    write_wikipedia(".")
    m, helpers, made = h.load("extra/models/bert.py"), h.load("examples/mlperf/helpers.py"), []
    filled(h, m.BertForPretraining)
    config, make = helpers.get_mlperf_bert_config, helpers.get_mlperf_bert_model
    helpers.get_mlperf_bert_config = lambda: {**config(), "vocab_size": 200, "hidden_size": 32,
                                             "intermediate_size": 64}
    helpers.get_mlperf_bert_model = lambda: made.append(make()) or made[-1]
    g["train_bert"]()
    return made[0]


def train_unet3d(h, g):
    kits19(h)
    small = SmallUNet(h)
    g["train_unet3d"]()
    return small.made[0]


def train_retinanet(h, g):
    write_openimages(".")
    made = small_retinanet(h)
    g["train_retinanet"]()
    return made[0]


@case("examples/mlperf/model_train.py",
      "steps and an evaluation of a narrow ResNet-18, BERT of one small layer, and UNet3D and RetinaNet with fewer "
      "channels, on made-up data, on two devices; RNN-T is empty in tinygrad; Llama and GPT-OSS need the compiler of "
      "AMD's GPUs, Stable Diffusion downloads",
      env={"MODEL": "none", "GPUS": "2", "BS": "2", "EVAL_BS": "2", "BASEDIR": ".", "NUM_CPU_THREADS": "1",
           "WANDB": "1", "SEED": "5", "RUNMLPERF": "1", "EPOCHS": "1", "NUM_EPOCHS": "3", "START_EVAL_AT": "2",
           "LR_WARMUP_EPOCHS": "3", "BERT_SIZE": "tiny", "BERT_LAYERS": "1", "DISABLE_DROPOUT": "1", "TRAIN_STEPS": "3",
           "MAX_EVAL_STEPS": "2", "WARMUP_EPOCHS": "1", "LR": "0.01"},
      differs={"unet3d train/loss": AFTER_STEP})
def model_train(h):
    volumes = "return x.shard(GPUS, axis=0).realize(), y.shard(GPUS, axis=0), cookie"
    part = "[:, :, :64, :64, :64].contiguous().shard(GPUS, axis=0).realize()"
    fewer = [("assert 10000 <= (EVAL_BS * max_eval_steps)", "assert 0 < (EVAL_BS * max_eval_steps)"),
             (volumes, f"return x.to('CPU'){part}, y.to('CPU'){part}, cookie")]
    g, _ = program(h, "model_train", fewer)
    for train in (train_resnet, train_bert, train_unet3d, train_retinanet):
        name, reports = train.__name__.removeprefix("train_"), Recorder()
        with h.Context(TRAINING=1):
            model = train(h, g)
        reports.report(h, name, 1e-2)
        h.log_parameters(model, 1e-2, prefix=name + " ")
