"""Types: names, promotion, rounding, NumPy's types, and arithmetic of every type against NumPy."""
import copy, math, operator, pickle, struct
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tinygrad_cpp import Context, Tensor, dtypes
from tinygrad_cpp import dtype as D

ints = {dtypes.int8: np.int8, dtypes.uint8: np.uint8, dtypes.int16: np.int16, dtypes.uint16: np.uint16,
        dtypes.int32: np.int32,
        dtypes.uint32: np.uint32, dtypes.int64: np.int64, dtypes.uint64: np.uint64}
few = settings(max_examples=40, deadline=None)


def test_there_is_one_object_of_each_type():
  assert dtypes.float is dtypes.float32 and dtypes.long is D.to_dtype("LONG") and D.to_dtype(dtypes.half) is dtypes.half
  for d in dtypes.all + dtypes.weaks:
    assert pickle.loads(pickle.dumps(d)) is d and copy.deepcopy(d) is d and hash(d) == hash(copy.copy(d)) and {d: 1}[
        d] == 1
    assert D.DType.new(d.priority, d.bitsize, d.name, d.fmt) is d
  assert dtypes.int != dtypes.uint and dtypes.int != "int" and dtypes.int is not None
  with pytest.raises(AttributeError): D.to_dtype("int7")
  with pytest.raises(AttributeError): Tensor([1], dtype="int7")
  with pytest.raises(AttributeError): Tensor([1]).cast("")


def test_what_a_type_shows():
  assert repr(dtypes.float32) == "dtypes.float" and str(dtypes.int8) == "dtypes.char" and repr(
      dtypes.weakint) == "dtypes.weakint"
  assert [(d.name, d.fmt, d.itemsize) for d in (dtypes.bool, dtypes.int8, dtypes.half, dtypes.bfloat16)] == \
         [("bool", "?", 1), ("signed char", "b", 1), ("half", "e", 2), ("__bf16", None, 2)]
  assert (dtypes.int8.min, dtypes.int8.max, dtypes.uint64.max) == (-128, 127, 2**64 - 1)
  assert (dtypes.float.min, dtypes.float.max, dtypes.bool.max) == (-math.inf, math.inf, True)
  assert dtypes.weakint.max == 2**799 - 1 and dtypes.weakint.min == -2**799
  assert sorted([dtypes.double, dtypes.bool, dtypes.half, dtypes.int8]) == [dtypes.bool, dtypes.int8, dtypes.half,
      dtypes.double]
  assert dtypes.finfo(dtypes.half) == (5, 10)
  with pytest.raises(ValueError): dtypes.finfo(dtypes.int)
  assert set(D.DTYPES_DICT.values()) == set(dtypes.all) and D.DTYPES_DICT["uchar"] is dtypes.uint8


def test_kinds():
  for d in dtypes.all: assert dtypes.is_int(d) + dtypes.is_float(d) + dtypes.is_bool(d) == 1
  assert dtypes.is_int(dtypes.weakint) and dtypes.is_float(dtypes.weakfloat) and dtypes.is_unsigned(
      dtypes.uint8) and not dtypes.is_unsigned(dtypes.int8)
  assert D.weak_dtype(dtypes.half) is dtypes.weakfloat and D.weak_dtype(
      dtypes.uint8) is dtypes.weakint and D.weak_dtype(dtypes.bool) is dtypes.bool


def test_types_of_python_values():
  assert [dtypes.from_py(x) for x in (True, 2, 3.0, [True], [True, 2], [2, 3.0], [], D.Invalid)] == \
         [dtypes.bool, dtypes.weakint, dtypes.weakfloat, dtypes.bool, dtypes.int, dtypes.float, dtypes.float,
          dtypes.bool]
  for x in (None, [None], {}, "a"):
    with pytest.raises(RuntimeError): dtypes.from_py(x)


def test_joined_tensors_have_the_common_type():
  x, y, z = (Tensor.ones(2, dtype=d) for d in (dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.bfloat16))
  for joined in Tensor.cat(x, y, z), Tensor.cat(z, y, x), Tensor.stack(x, y, z):
    assert joined.dtype is dtypes.bfloat16


@few
@given(st.lists(st.sampled_from(dtypes.all + dtypes.weaks), min_size=1, max_size=3))
def test_promotion_is_a_lattice(ds):
  d = D.least_upper_dtype(*ds)
  assert d is D.least_upper_dtype(*reversed(ds)) and D.least_upper_dtype(d, *ds) is d and not any(d < x for x in ds)


def test_promotion():
  for a, b, want in ((dtypes.int8, dtypes.uint8, dtypes.int16), (dtypes.half, dtypes.bfloat16, dtypes.float),
                     (dtypes.int64, dtypes.uint64, dtypes.weakfloat),
                     (dtypes.int64, dtypes.half, dtypes.half), (dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.half),
                     (dtypes.bool, dtypes.weakint, dtypes.weakint)):
    assert D.least_upper_dtype(a, b) is want
  assert D.least_upper_float(dtypes.int) is dtypes.float and D.least_upper_float(dtypes.weakint) is dtypes.weakfloat
  assert D.sum_acc_dtype(dtypes.uint8) is dtypes.uint and D.sum_acc_dtype(dtypes.half) is dtypes.float
  assert D.can_lossless_cast(dtypes.uint8, dtypes.half) and not D.can_lossless_cast(dtypes.int8, dtypes.uint64)


def test_defaults_can_be_set():
  with Context(DEFAULT_FLOAT=dtypes.half, DEFAULT_INT="int64"):
    assert (dtypes.default_float, dtypes.default_int) == (dtypes.half, dtypes.int64)
    assert Tensor([1.5]).dtype is dtypes.half and Tensor([1]).dtype is dtypes.int64 and Tensor(
        1.5).dtype is dtypes.weakfloat
  before = dtypes.default_float
  try:
    dtypes.default_float = dtypes.bfloat16
    assert Tensor.zeros(2).dtype is dtypes.bfloat16
  finally: dtypes.default_float = before
  assert Tensor.zeros(2).dtype is before


@few
@given(st.floats(), st.sampled_from((dtypes.half, dtypes.float, dtypes.double)))
def test_truncation_of_floats_is_numpys(x, d):
  with np.errstate(all="ignore"):
    np.testing.assert_equal(D.truncate[d](x), float(np.float64(x).astype(D._to_np_dtype(d))))


@few
@given(st.integers(-2**65, 2**65), st.sampled_from(list(ints)))
def test_truncation_of_integers_wraps(x, d):
  n = x % 2**d.bitsize
  assert D.truncate[d](x) == (n if dtypes.is_unsigned(d) or n < 2**(d.bitsize - 1) else n - 2**d.bitsize)


@pytest.mark.parametrize("d", dtypes.fp8s, ids=repr)
def test_eight_bit_floats(d):
  values = [D.fp8_to_float(i, d) for i in range(256)]
  for i, v in enumerate(values):
    if not math.isnan(v): assert D.float_to_fp8(v, d) == i
    else: assert math.isnan(D.truncate[d](v))
  top = max(v for v in values if math.isfinite(v))
  assert D.truncate[d](top * 1.01) == top and D.truncate[d](-1e30) == -top
  np.testing.assert_equal(Tensor(list(range(256)), dtype=dtypes.uint8).bitcast(d).tolist(), values)
  with pytest.raises(RuntimeError): D.float_to_fp8(1.0, dtypes.half)


def test_storage_of_scalars():
  assert D.to_storage_scalar(1.0, dtypes.bfloat16) == 0x3f80 and D.from_storage_scalar(0x3f80, dtypes.bfloat16) == 1.0
  assert D.bitcast(1.0, dtypes.float, dtypes.int) == 0x3f800000 and D.bitcast(0x3c00, dtypes.uint16, dtypes.half) == 1.0
  assert D.storage_fmt_for_dtype(dtypes.fp8e4m3) == "B" and D.float_to_fp16(65520) == math.inf and math.isnan(
      D.float_to_bf16(math.nan))
  assert D.float_to_bf16(struct.unpack("f", struct.pack("I", 0x3f808000))[0]) == 1.0  # half way: to even


def test_values_of_a_type():
  assert dtypes.int.const(3.9) == 3 and dtypes.bool.const(2) is True and dtypes.int.const(D.Invalid) is D.Invalid
  assert isinstance(dtypes.half.const(0.1), D.ConstFloat) and dtypes.half.const(0.1) == float(np.float16(0.1))
  assert D.ConstFloat(math.nan) == D.ConstFloat(-math.nan) and hash(D.ConstFloat(0.0)) != hash(D.ConstFloat(-0.0))
  assert D.InvalidType() is D.Invalid and f"{D.Invalid}" == "Invalid"
  assert pickle.loads(pickle.dumps(D.Invalid)) is D.Invalid


def test_numpy_types():
  for d, n in ints.items():
    assert np.dtype(D._to_np_dtype(d)) == n and D._from_np_dtype(n) is d and Tensor(np.ones(2, n)).dtype is d
  assert D._to_np_dtype(dtypes.bfloat16) is np.float32 and D._from_np_dtype(np.dtype("float16")) is dtypes.half


@few
@given(st.data(), st.sampled_from(list(ints)),
       st.sampled_from((operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor,
                        operator.lt, operator.eq,
                        operator.floordiv, operator.mod)), st.sampled_from(("", "long")))
def test_integers_are_numpys(data, d, op, emulated):
  value = st.integers(int(d.min), int(d.max))
  a, b = data.draw(value), data.draw(value)
  if op in (operator.floordiv, operator.mod) and (b == 0 or (b == -1 and a == d.min)): return
  with np.errstate(all="ignore"): want = op(np.array([a], ints[d]), np.array([b], ints[d]))
  with Context(EMULATED_DTYPES=emulated):
    np.testing.assert_equal(op(Tensor([a], dtype=d), Tensor([b], dtype=d)).numpy(), want)


@few
@given(st.floats(width=16), st.floats(width=16),
       st.sampled_from((operator.add, operator.sub, operator.mul, operator.lt, operator.eq)),
       st.sampled_from(("", "half")))
def test_halves_are_numpys(a, b, op, emulated):
  with np.errstate(all="ignore"): want = op(np.array([a], np.float16), np.array([b], np.float16))
  with Context(EMULATED_DTYPES=emulated):
    np.testing.assert_equal(op(Tensor([a], dtype=dtypes.half), Tensor([b], dtype=dtypes.half)).numpy(), want)


def test_weak_tensors():
  t = Tensor([1, 2], dtype=dtypes.int8) + 0.5
  assert t.dtype is dtypes.weakfloat and t.tolist() == [1.5,
                                                        2.5] and t.numpy().dtype == np.float32 and t.realize(
                                                            ).dtype is dtypes.weakfloat
  assert (t + Tensor([1.0], dtype=dtypes.half)).dtype is dtypes.half and t.data().format == "f" and t.sum(
      ).dtype is dtypes.float
  with pytest.raises(RuntimeError): Tensor([np.int32(1)])
  assert Tensor([np.int32(1)], dtype=dtypes.int8).tolist() == [1]
