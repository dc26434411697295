"""What wrong calls say: one line that names the function, what it got, and what to write."""
import numpy as np
import pytest

import tinygrad_cpp as tg
from tinygrad_cpp import Context, Tensor, TinyJit, _core, dtypes, nn
from tinygrad_cpp.uop.ops import KernelInfo, UOp

CALLS = [
    # what is given where a tensor belongs
    (lambda t: t.dot(None), r"\[dot\] got None for w, expected a Tensor or number; dot\(w, dtype=None\)"),
    (lambda t: t.dot(np.ones(3)), r"\[dot\] got a NumPy array for w.*write Tensor\(array\)"),
    (lambda t: t.dot([1, 2, 3]), r"\[dot\] got \[1, 2, 3\] for w.*write Tensor\(\[...\]\)"),
    (lambda t: t.dot(nn.Linear(3, 3)), r"\[dot\].*got Linear.*layer\(x\)"),
    (lambda t: t.cross_entropy(None),
     r"\[cross_entropy\] got None for Y, expected a Tensor; cross_entropy\(Y, reduction='mean'"),
    (lambda t: t * "a", r"\[mul\] expected a Tensor or number, got str"),
    (lambda t: t * [1, 2, 3], r"\[mul\].*got list: write Tensor\(\[...\]\)"),
    (lambda t: [1, 2] * t, r"\[rmul\].*got list"),
    (lambda t: t.cat(None), r"\[cat\] expected a Tensor, got NoneType"),
    (lambda t: t.gather(0, 1), r"\[gather\] got 1 for index, expected a Tensor; gather\(dim, index\)"),
    (lambda t: t.replace(3), r"\[replace\] got 3 for x, expected a Tensor"),
    # names of other libraries
    (lambda t: t.sum(dim=0), r"\[sum\] got an unknown argument dim: write axis=0, as in sum\(axis=None, "
                             r"keepdim=False, dtype=None\)"),
    (lambda t: t.max(keepdims=True), r"unknown argument keepdims: write keepdim=True"),
    (lambda t: t.softmax(dim=-1), r"write axis=-1, as in softmax\(axis=-1, dtype=None\)"),
    (lambda t: t.squeeze(axis=0), r"write dim=0"),
    (lambda t: t.clip(min=1), r"write min_=1"),
    (lambda t: t.roll(1, dim=0), r"write dims=0"),
    (lambda t: t.flatten(start=1), r"write start_dim=1"),
    (lambda t: t.linear(weight=t, b=t), r"write bias=a Tensor"),
    (lambda t: Tensor([1], foo=3),
     r"\[Tensor\] got an unknown argument foo, expected Tensor\(data=None, device=None, dtype=None"),
    (lambda t: Tensor.rand(2, low=1), r"\[rand\] got an unknown argument low"),
    # number and kind of arguments
    (lambda t: t.unsqueeze(), r"\[unsqueeze\] got no dim, expected unsqueeze\(dim\)"),
    (lambda t: t.where(1), r"\[where\] got no y, expected where\(x, y\)"),
    (lambda t: t.argmax(0, 1, 2), r"\[argmax\] got 3 arguments, expected at most 2"),
    (lambda t: t.item(1), r"\[item\] got 1 argument, expected none: item\(\)"),
    (lambda t: t.sum(0, axis=1), r"\[sum\] got axis twice"),
    (lambda t: t.sum("a"), r"\[sum\] got 'a' for axis, expected int | Sequence\[int\] | None"),
    (lambda t: t.mean(1.5), r"\[mean\] got 1.5 for axis"),
    (lambda t: t.cast(None), r"\[cast\] got None for dtype, expected a dtype, as dtypes.float32"),
    (lambda t: t.to(3), r"\[to\] got 3 for device.*\"CPU\""),
    (lambda t: t.sequential(nn.Linear(3, 3)), r"\[sequential\] got a Linear for ll.*write \[layer\]"),
    (lambda t: Tensor.sum(), r"\[sum\] got nothing to work on, expected a Tensor: x.sum\("),
    (lambda t: Tensor.sum(3), r"\[sum\] got 3, expected a Tensor"),
    (lambda t: Tensor.einsum("i->i", 1),
     r"\[einsum\] got \('i->i', 1\), expected einsum\(formula, \*operands, dtype=None\)"),
    (lambda t: Tensor.full((3,), "a"), r"\[full\] got \(\(3,\), 'a'\), expected full\(shape, fill_value"),
    (lambda t: Tensor.arange("a"), r"\[arange\] got \('a'\)"),
    (lambda t: Tensor.eye("a"), r"\[eye\] got 'a' for n, expected int"),
    (lambda t: Tensor.manual_seed("a"), r"\[manual_seed\] got 'a' for seed"),
    (lambda t: setattr(t, "grad", 3), r"\[grad\] got 3, expected"),
    (lambda t: float(Tensor([1, 2])), r"\[float\] got shape \(2,\), expected a tensor with one element"),
    (lambda t: int(Tensor([1, 2])), r"\[int\] got shape"),
    (lambda t: Tensor([np.float32(1)]), r"numpy.float32.*np.array"),
    (lambda t: Tensor([t, t]), r"write Tensor.stack"),
    # layers and optimizers
    (lambda t: nn.Linear(np.ones((3, 2)), 2),
     r"\[Linear\] got an object of type ndarray for in_features, expected an int"),
    (lambda t: nn.Linear(3, 3)(np.ones((1, 3))),
     r"\[Linear\] got an object of type ndarray, expected a Tensor: write Tensor\(x\)"),
    (lambda t: nn.Embedding(3, 4)([1, 2]), r"\[Embedding\] got an object of type list"),
    (lambda t: nn.optim.Adam(nn.Linear(3, 3)),
     r"\[Adam\] got an object of type Linear.*write Adam\(nn.state.get_parameters\(model\)\)"),
    (lambda t: nn.optim.SGD(t), r"write SGD\(\[tensor\]\)"),
    (lambda t: nn.optim.Adam([3]), r"\[Adam\] got an object of type int as parameter 0"),
    (lambda t: nn.optim.SGD([t], lr="a"), r"\[SGD\] got lr = 'a', expected a number"),
    (lambda t: nn.state.safe_save(t, "x"), r"\[safe_save\].*get_state_dict"),
    (lambda t: TinyJit(t), r"\[TinyJit\].*expected a function"),
    (lambda t: nn.state.safe_save({"a": 1}, "x"),
     r"\[safe_save\] got an object of type int for 'a', expected a Tensor"),
    (lambda t: nn.state.safe_save({1: t}, "x"), r"\[safe_save\] got the key 1"),
    (lambda t: nn.state.safe_save({"a": t}, None), r"\[safe_save\] got None, expected the path of a file"),
    (lambda t: nn.state.safe_load(None), r"\[safe_load\] got None, expected the path of a file"),
    # what no tensor can be made of
    (lambda t: Tensor("hello"), r"\[Tensor\] can't create a Tensor from an object of type str"),
    (lambda t: Tensor({}), r"\[Tensor\] can't create a Tensor from an object of type dict"),
    (lambda t: Tensor(np.array(["2020-01-01"], dtype="datetime64[D]")),
     r"\[Tensor\] got an array of datetime64\[D\], expected bool"),
    (lambda t: Tensor(np.datetime64("2020-01-01")), r"\[Tensor\] got an array of datetime64\[D\]"),
    (lambda t: Tensor(np.array(["a", "b"])), r"\[Tensor\] got an array of <U1"),
    (lambda t: Tensor(np.array([None, 1])), r"\[Tensor\] got an array of object"),
    (lambda t: Tensor.from_dlpack(5), r"\[from_dlpack\] got an object of type int, which has no __dlpack__"),
]


def _too_long(out, x):
    i = UOp.range(8, 0)
    return out[i].store(x[i]).end(i).sink(arg=KernelInfo(name="too_long"))


@pytest.mark.parametrize("call, text", CALLS)
def test_wrong_arguments(call, text):
    with pytest.raises(TypeError, match=text) as e:
        call(Tensor.ones(3))
    message = str(e.value)
    assert "\n" not in message and "incompatible" not in message and "_core" not in message and len(message) < 250


@pytest.mark.parametrize("call, kind, text", [
    (lambda t: t.reshape("a"), ValueError, r"\[shape\] got 'a'"),
    (lambda t: t.cast(float), TypeError, r"\[cast\].*dtypes.float32"),
    (lambda t: Tensor.zeros(3, dtype=int), TypeError, r"\[zeros\].*dtypes.int32"),
    (lambda t: t @ 3, ValueError, r"\[dot\] got shapes \(3,\) and \(\)"),
    (lambda t: t.backward(), tg.GradientError, "call sum"),
    (lambda t: nn.optim.SGD([t]).step(), RuntimeError, "TRAINING=1"),
    (lambda t: nn.Linear(4, 3)(t), ValueError, r"\[Linear\] got shape \(3,\), expected \(..., 4\)"),
    (lambda t: nn.optim.Adam([t], lr=float("nan")), ValueError,
     r"\[Adam\] got lr = nan, expected a finite number, 0 or more"),
    (lambda t: nn.optim.SGD([t], lr=float("inf")), ValueError, r"\[SGD\] got lr = inf"),
    (lambda t: nn.optim.SGD([t], momentum=-1), ValueError, r"got momentum = -1, expected a finite number"),
    (lambda t: Tensor.empty(3).custom_kernel(t, fxn=lambda *_: None), ValueError,
     r"\[custom_kernel\] got nothing from the kernel function"),
    (lambda t: Tensor.empty(3).custom_kernel(t, fxn=_too_long), IndexError,
     r"\[custom_kernel\] too_long: got index 0 to 7 for axis 0 of parameter 0, shape \(3,\), expected 0 to 2"),
    (lambda t: nn.state.safe_load("/nope/x"), FileNotFoundError, r"\[safe_load\] /nope/x: No such file"),
    (lambda t: nn.state.safe_save({"a": t}, "/nope/x"), FileNotFoundError, r"\[safe_save\] /nope/x: cannot be written"),
    (lambda t: nn.Conv2d(3, 5, 3, groups=2), ValueError, r"\[Conv2d\] got groups=2"),
    (lambda t: t.softmax(5), IndexError, r"\[softmax\] got axis 5"),
    (lambda t: t.layernorm(5), IndexError, r"\[layernorm\] got axis 5"),
    (lambda t: nn.optim.Adam([]), ValueError, r"\[Adam\] got no tensor"),
    (lambda t: Context(DEBG=1).__enter__(), KeyError, "did you mean DEBUG"),
    (lambda t: Context(NOTHING_LIKE_IT=1).__enter__(), KeyError, "unknown variable NOTHING_LIKE_IT"),
])
def test_wrong_values(call, kind, text):
    with pytest.raises(kind, match=text):
        call(Tensor.ones(3))


def test_no_function_of_the_module_dumps_types():
    """Every method, called with what no signature takes, says one short line."""
    class Strange:
        pass

    seen = 0
    for owner in (Tensor, _core):
        for name, f in vars(owner).items():
            if type(f).__name__ not in ("nb_func", "nb_method") or name == "__init__":
                continue
            try:
                f(Strange(), *[Strange()] * 20, strange=Strange())
            except TypeError as e:
                assert "incompatible" not in str(e) and "bad_cast" not in str(e) and "\n" not in str(e), (name, str(e))
                seen += 1
            except Exception:  # a function that takes anything and says something else
                pass
    assert seen > 200


def test_comparison_with_other_objects_is_false():
    t = Tensor.ones(3)
    assert not (t == None) and t != "a" and not (t == nn.Linear)  # noqa: E711


def test_numbers_of_one_element():
    assert float(Tensor(2.5)) == 2.5 and int(Tensor([3])) == 3 and float(Tensor([[1]])) == 1.0
    assert Tensor.ones(np.int64(3)).shape == (3,)
    assert Tensor([np.float32(1), 2], dtype=dtypes.float32).tolist() == [1, 2]


def test_a_captured_function_is_given_an_array():
    f = TinyJit(lambda x, scale: (x * scale).realize())
    for i in range(3): f(Tensor([float(i)]), scale=2)
    with pytest.raises(tg.JitError,
                       match=r"\[jit\] got an object of type ndarray as argument 0 of .*, which was captured with a "
                             r"Tensor there: "
                                          r"pass Tensor\(x\)"):
        f(np.ones(1, dtype=np.float32), scale=2)
    assert f(Tensor([5.0]), scale=2).tolist() == [10]


def test_a_failure_inside_a_called_function_is_kept():
    def layer(x):
        raise TypeError("expected something of its own")
    with pytest.raises(TypeError, match="of its own"):
        Tensor.ones(3).sequential([layer])


# ---- what errors say of kernels and sizes ----
def test_kernels_are_named_by_methods_and_lines():
    huge = Tensor.full((1 << 22, 1 << 22), 2.0)
    with pytest.raises(tg.OutOfMemoryError, match="made by exp2, add"):
        (huge.exp2() + 1).contiguous().realize()
    with Context(TRACEMETA=2):
        with pytest.raises(tg.OutOfMemoryError, match=r"made by exp2 at test_errors.py:\d+, mul at test_errors.py:\d+"):
            (huge.exp2() * 3).contiguous().realize()


def test_symbolic_sizes_read_as_algebra():
    i = tg.Variable("i", 1, 10)
    t = Tensor.ones(21)[:2 * i.bind(3) + 1].contiguous()
    for read in (lambda: t.reshape(4), lambda: len(t), lambda: memoryview(t), lambda: t + Tensor.ones(5)):
        with pytest.raises((ValueError, BufferError), match=r"2 \* i \+ 1") as e:
            read()
        assert "%" not in str(e.value) and "weakint" not in str(e.value)
    assert "(2 * i + 1,)" in repr(t) and "(i=3,)" in repr(Tensor.ones(10)[:i.bind(3)])
    with pytest.raises(ValueError, match=r"\[bind\] got i=11, expected 1 to 10"):
        i.bind(11)
    with pytest.raises(ValueError, match="got i=3, expected a variable without a value"):
        i.bind(3).bind(4)
