"""Sizes that are variables, from Python: reading gives the elements there are with the bound values."""
import numpy as np
import pytest
from tinygrad_cpp import Tensor, UOp


def test_reads_have_the_sizes_of_the_values():
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    n = UOp.variable("n", 1, 6).bind(3)
    part = Tensor(a)[:, :n]
    np.testing.assert_equal(part.numpy(), a[:, :3])
    np.testing.assert_equal((part + 1).tolist(), (a[:, :3] + 1).tolist())
    assert memoryview(part.data()).tolist() == a[:, :3].tolist()
    assert Tensor.ones(2, n).tolist() == [[1.0] * 3] * 2
    assert Tensor.eye(n).tolist() == np.eye(3).tolist()


def test_storage_has_room_for_the_greatest_size():
    v = UOp.variable("v", 1, 32)
    t = Tensor.empty(2, v, 4)
    assert t.max_shape == (2, 32, 4) and t.max_numel() == 256
    assert Tensor.rand(v.bind(5), 2).numpy().shape == (5, 2)


def test_a_size_without_value_cannot_be_read():
    with pytest.raises(ValueError):
        Tensor.ones(3, UOp.variable("n", 1, 6)).tolist()
