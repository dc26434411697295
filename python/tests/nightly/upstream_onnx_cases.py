"""The cases of upstream.py for the programs that run ONNX models. The models are written here with the package onnx,
with random weights."""
import importlib
import json
import os
import pickle
import re
import types
from pathlib import Path

import numpy as np

from upstream_harness import case


class GraphWriter:
    """Writes an ONNX graph node by node; names of values are those of the nodes' order."""

    def __init__(self, seed=0):
        self.nodes, self.constants, self.draw = [], [], np.random.RandomState(seed)

    def weight(self, *shape):
        return self.constant((self.draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32))

    def constant(self, array):
        from onnx import numpy_helper
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op, *inputs, output=None, **attributes):
        from onnx import helper
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def save(self, path, inputs, outputs, opset=17):
        """inputs, outputs: names and shapes."""
        from onnx import TensorProto, checker, helper, save
        info = lambda values: [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in values.items()]
        graph = helper.make_graph(self.nodes, "made", info(inputs), info(outputs), self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        checker.check_model(model)
        save(model, path)


def write_classifier(path, size=224, classes=1000, width=8, name="input"):
    """A small network for images: convolutions with batch norms, one of them by channel, a pooled linear layer."""
    g = GraphWriter()

    def block(x, inputs, outputs, stride, group=1):
        y = g.add("Conv", x, g.weight(outputs, inputs // group, 3, 3), strides=[stride] * 2, pads=[1] * 4, group=group)
        scale, shift = (g.constant(np.full(outputs, v, np.float32)) for v in (1.5, 0.1))
        mean, var = (g.constant(g.draw.uniform(0.5, 1.0, outputs).astype(np.float32)) for _ in range(2))
        return g.add("Relu", g.add("BatchNormalization", y, scale, shift, mean, var))
    x = block(name, 3, width, 4)
    x = block(block(x, width, width, 2, group=width), width, 2 * width, 2)
    x = g.add("Flatten", g.add("GlobalAveragePool", g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])))
    g.add("Gemm", x, g.weight(classes, 2 * width), g.weight(classes), transB=1, output="output")
    g.save(path, {name: [1, 3, size, size]}, {"output": [1, classes]})


def write_driver(path):
    """Two inputs as those of openpilot's models: frames, and a vector with a size by name."""
    g = GraphWriter(1)
    x = g.add("Elu", g.add("Conv", "input_imgs", g.weight(16, 12, 3, 3), strides=[2, 2], pads=[1] * 4))
    x = g.add("Elu", g.add("Conv", x, g.weight(16, 16, 3, 3), strides=[2, 2], pads=[1] * 4))
    x = g.add("Gemm", g.add("Flatten", x), g.weight(32, 16 * 4 * 8), transB=1)
    desire = g.add("Gemm", "desire", g.weight(32, 8), transB=1)
    x = g.add("Concat", g.add("Tanh", x), g.add("Sigmoid", desire), axis=1)
    g.add("MatMul", x, g.weight(64, 20), output="outputs")
    g.save(path, {"input_imgs": [1, 12, 16, 32], "desire": ["b", 8]}, {"outputs": ["b", 20]})


def write_imagenet(h, folder, images=4):
    """Pictures in folders of their categories, and the index of categories."""
    from PIL import Image
    imagenet = h.load("extra/datasets/imagenet.py")
    imagenet.BASEDIR = Path(folder).absolute()
    draw = np.random.RandomState(7)
    names = [f"n{i:08d}" for i in range(images)]
    for part in ("train", "val"):
        for i, name in enumerate(names):
            (imagenet.BASEDIR / part / name).mkdir(parents=True)
            rough = Image.fromarray(draw.randint(256, size=(6, 5, 3)).astype(np.uint8))
            rough.resize((300 + 10 * i, 260)).save(imagenet.BASEDIR / part / name / f"{i}.JPEG")
    (imagenet.BASEDIR / "imagenet_class_index.json").write_text(json.dumps({i: [n, n] for i, n in enumerate(names)}))
    return imagenet


def hits(printed):
    """target, prediction and accuracy of each picture."""
    return [[float(x) for x in row] for row in re.findall(r"target: +(\d+)  pred: +(\d+)  acc: ([\d.]+)%", printed)]


@case("examples/benchmark_onnx.py", "the program with a small classifier, checked by ONNX Runtime", env={"ORT": "1"})
def benchmark_onnx(h):
    write_classifier("model.onnx", size=64)
    g, printed = h.main("examples/benchmark_onnx.py", ["./model.onnx"])
    h.log("timed runs", printed.count("enqueue"))
    h.log("validated", "model validated" in printed)
    h.log("output", g["val"])
    h.log("inputs", {k: list(v.shape) for k, v in g["input_specs"].items()} == {"input": [1, 3, 64, 64]})


@case("examples/openpilot/compile3.py",
      "the program with a small model of two inputs: capture, pickle and load, checked by ONNX Runtime; its file as a "
      "stream of buffers; RUN_PICKLE with inputs made from what the file says of them", env={"SELFTEST": "1"})
def compile3(h):
    write_driver("model.onnx")
    args = ["./model.onnx", "model.pkl"]
    g, printed = h.main("examples/openpilot/compile3.py", args)
    h.log("output", g["outputs"])
    h.log("tested", [s in printed for s in ("jit run validated", "**** test done ****", "test vs onnx passed")])
    h.log("images", "read_image_count=0" in printed and "kernel_count=0," not in printed)
    captured = g["pickle_loaded"].captured
    h.log("names", captured.expected_names)
    info = captured.expected_input_info
    h.log("shapes and types", [f"{list(view.shape)} {dtype.name}" for view, _, dtype, _ in info])
    h.log("device of frames", info[1][3] == h.tg.Device.DEFAULT)
    compile3 = types.SimpleNamespace(**g)
    g["PICKLE_OOB"] = 1
    with open("stream.pkl", "wb") as f:
        compile3.dump_pickle(g["pickle_loaded"], f)
    with open("stream.pkl", "rb") as f:
        h.log("of the stream", compile3.load_pickle(f)(**g["inputs"]))
    source = "val = test_vs_compile(pickle_loaded, inputs)"
    g, printed = h.main("examples/openpilot/compile3.py", args,
                        replace=[('if getenv("RUN_PICKLE"):', "if 1:"),
                                 ("test_vs_compile(pickle_loaded, inputs)\n", source + "\n")])
    h.log("of made inputs", g["val"])


@case("examples/openpilot/load_pickle.py", "the program with the file that compile3.py wrote")
def load_pickle(h):
    write_driver("model.onnx")
    h.main("examples/openpilot/compile3.py", ["./model.onnx", "model.pkl"])
    _, printed = h.main("examples/openpilot/load_pickle.py", ["model.pkl"])
    h.log("loaded", printed.count("pickle load:"))


@case("examples/test_onnx_imagenet.py",
      "the program with made-up pictures and a small classifier, which ONNX Runtime makes one of 8 bits",
      env={"QUANT": "1", "CNT": "4"})
def test_onnx_imagenet(h):
    write_imagenet(h, "imagenet")
    write_classifier("model.onnx")
    g, printed = h.main("examples/test_onnx_imagenet.py", ["./model.onnx"],
                        replace=[("/tmp/model.quant.onnx", "./model.quant.onnx"), ("/tmp/im.pkl", "im.pkl"),
                                 ("random.shuffle(files)", "files.sort()")])
    h.log("predictions", hits(printed))
    h.log("output", g["p"], 3e-2)
    with open("im.pkl", "rb") as f:
        h.log("of the file", pickle.load(f)(**{g["t_name"]: g["img"]}), 3e-2)


@case("examples/test_pkl_imagenet.py", "the program with a pickled classifier and made-up pictures", env={"CNT": "3"})
def test_pkl_imagenet(h):
    write_imagenet(h, "imagenet")
    write_classifier("model.onnx")
    run, specs = h.load("examples/benchmark_onnx.py").load_onnx_model("./model.onnx")
    images = importlib.import_module("examples.test_onnx_imagenet")
    images.random.shuffle = lambda files: files.sort()
    for i, (image, _) in enumerate(images.imagenet_dataloader(3)):
        h.log(f"output {i}", run(input=image))
    with open("im.pkl", "wb") as f:
        pickle.dump(run, f)
    g, printed = h.main("examples/test_pkl_imagenet.py", ["./im.pkl"])
    h.log("name", g["input_name"])
    h.log("predictions", hits(printed))
    h.log("last output", g["p"])


@case("examples/yolov8-onnx.py", "the program with YOLOv8n-seg from its description, random weights, small pictures")
def yolov8_onnx(h):
    import torch
    torch.manual_seed(0)
    os.environ["YOLO_AUTOINSTALL"] = "false"
    g, _ = h.main("examples/yolov8-onnx.py",
                  replace=[('os.chdir("/tmp")', ""), ("yolov8n-seg.pt", "yolov8n-seg.yaml"), ("[480,640]", "[96,128]"),
                           ("run_onnx(get_example_inputs", "out = run_onnx(get_example_inputs")])
    for i, value in enumerate(g["out"].values()):
        h.log(f"output {i}", value, 3e-3)


def stand_for_keras(g):
    """The program's network, written here, in the places of TensorFlow and its converter."""
    import onnx
    w = GraphWriter(2)
    x = "x"
    for i, (inputs, outputs) in enumerate(((32, 16), (16, 32), (32, 4))):
        x = w.add("Add", w.add("MatMul", x, w.weight(inputs, outputs)), w.weight(outputs))
        x = w.add("Relu", x) if i < 2 else w.add("Sigmoid", x, output="predictions")
    w.save("keras.onnx", {"x": [1, 32]}, {"predictions": [1, 4]}, opset=13)
    written = onnx.load("keras.onnx"), None
    g["tf"] = types.SimpleNamespace(TensorSpec=lambda *args, **kw: None, float32=None)
    g["tf2onnx"] = types.SimpleNamespace(convert=types.SimpleNamespace(from_keras=lambda *args, **kw: written))


@case("examples/compile_tensorflow.py",
      "the network of Keras as an ONNX model, without TensorFlow a model of the same layers; the export to C comes "
      "with a later part of the project")
def compile_tensorflow(h):
    g, _ = h.main("examples/compile_tensorflow.py",
                  replace=[("from extra.export_model import", "pass  #"), ('if __name__ == "__main__":', "if 0:")])
    x, network = h.normal(1, 32), None
    if hasattr(importlib.import_module("tensorflow"), "__version__"):
        g["tf"].keras.utils.set_random_seed(3)
        network = g["get_uncompiled_model2"]()
    else:
        stand_for_keras(g)
    out = g["TinyOnnx"](network).forward(x)
    h.log("output", out)
    if network:
        np.testing.assert_allclose(out.numpy(), network(x.numpy()).numpy(), atol=1e-5, rtol=1e-5)
