"""What notebooks show: tables of tensors, schedules and kernels, pictures of graphs; small ones for large things."""
import xml.etree.ElementTree as ElementTree
import pytest
from tinygrad_cpp import Tensor, UOp, dtypes

LARGEST = 40_000  # bytes of any of these


def parsed(svg):
  root = ElementTree.fromstring(svg)
  assert root.tag == "{http://www.w3.org/2000/svg}svg"
  return [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]


def rows(html):
  """The cells of the first table, as texts."""
  table = html[html.index("<table"):html.index("</table>") + len("</table>")]
  return [[c.text for c in r] for r in ElementTree.fromstring(table).iter("tr")]


def test_small_tensors_show_their_values():
  x = Tensor([[1, 2], [3, 4]]).realize()
  html = x._repr_html_()
  assert "int of shape (2, 2) on CPU" in html
  assert rows(html) == [["1", "2"], ["3", "4"]]
  assert rows(Tensor([1.5, float("nan")]).realize()._repr_html_()) == [["1.5", "nan"]]
  assert rows(Tensor(3).contiguous().realize()._repr_html_()) == [["3"]]
  assert rows(Tensor([True, False]).realize()._repr_html_()) == [["True", "False"]]


def test_large_tensors_show_a_corner():
  for shape in ((1000, 1000), (4, 5, 600, 700), (100_000,)):
    x = Tensor.arange(int(__import__("math").prod(shape))).reshape(shape).contiguous().realize()
    html = x._repr_html_()
    assert len(html) < 5000, shape
    assert f"the first of {x.numel():,} values" in html
    assert rows(html)[0][:3] == ["0", "1", "2"]
  assert len(rows(Tensor.ones(1000, 1000).contiguous().realize()._repr_html_())) == 8


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 0, 2)])
def test_tensors_without_elements(shape):
  assert "no elements" in Tensor.empty(*shape).contiguous().realize()._repr_html_()


def test_nothing_is_computed_for_display():
  x = Tensor.rand(64, 64).realize()
  y = (x @ x).relu()
  html = y._repr_html_()
  assert "not computed" in html and "<svg" in html
  assert not y.uop.is_realized
  bundle = y._repr_mimebundle_()
  assert bundle["text/plain"] == repr(y) and bundle["text/html"] == html


def test_shown_tensors_keep_their_gradients():
  x = Tensor([1.0, 2.0], requires_grad=True)
  loss = (x.realize() * x).sum()
  x._repr_html_()
  loss.backward()
  assert x.grad.tolist() == [2.0, 4.0]


def test_graphs_are_pictures():
  a, b = UOp.variable("a", 0, 10), UOp.variable("b", 1, 5)
  texts = parsed(((a + b) * 3)._repr_svg_())
  assert any(t.startswith("ADD") for t in texts) and any("MUL" in t and "3" in t for t in texts)
  assert any("<" not in t for t in texts)


def test_pictures_of_large_graphs_are_small():
  x = Tensor([1.0]).realize()
  for i in range(3000): x = x + float(i)
  svg = x.uop._repr_svg_()
  assert len(svg) < LARGEST * 2
  assert any("are not shown" in t for t in parsed(svg))
  assert len(x._repr_html_()) < LARGEST


def test_schedules_are_tables():
  x = Tensor.rand(64, 64).realize()
  schedule = x.softmax().schedule()
  assert isinstance(schedule, list) and len(schedule) >= 1
  html = schedule._repr_html_()
  assert f"{len(schedule)} steps" in html and "softmax" in html and "float" in html
  step = schedule[0]._repr_html_()
  assert "<svg" in step and "kernel" in step
  parsed(step[step.index("<svg"):step.index("</svg>") + 6])


def test_inspections_are_tables():
  x = Tensor.rand(64, 64).realize()
  found = (x @ x).softmax().inspect(measure=False)
  assert set(found) == {"graph", "buffers", "kernels"}
  html = found._repr_html_()
  assert "stored" in html and "values in memory" in html
  for k in found["kernels"]: assert k["name"] in html
  assert "<script" not in html


def test_texts_are_escaped():
  x = Tensor.rand(4, dtype=dtypes.float32).realize()
  found = (x < 0.5).inspect(measure=False)
  found["kernels"][0]["name"] = "<script>alert(1)</script>"
  assert "<script>" not in found._repr_html_()


def test_a_notebook_shows_them():
  nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
  pytest.importorskip("ipykernel")
  cells = ["from tinygrad_cpp import Tensor\nx = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()", "x",
           "x.relu().schedule()", "(x @ x).inspect(measure=False)", "(x + 1).uop",
           "Tensor.zeros(500, 500).contiguous().realize()"]
  book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
  nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
  shown = [c["outputs"][0]["data"] if c["outputs"] else {} for c in book["cells"]]
  assert shown[0] == {}
  assert "<td" in shown[1]["text/html"] and "shape (2, 2)" in shown[1]["text/html"]
  assert "steps" in shown[2]["text/html"] and "kernels" in shown[3]["text/html"]
  parsed(shown[4]["image/svg+xml"])
  assert len(str(shown[5])) < 5000
