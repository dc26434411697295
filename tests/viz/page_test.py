"""The page of tg viz in a headless browser: Debian's Chromium, driven by Selenium.

page_test.py TG runs everything; TG is the program. Recordings are those of a small program of tg's, and ones that
recording_writer.py makes."""
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from recording_writer import write_hostile, write_large

TG = None
LARGE = 100000  # nodes


def run_tg(*arguments, **options):
  subprocess.run([TG, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=100,
                 **options)


def start_browser():
  options = Options()
  options.binary_location = shutil.which("chromium")
  for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"): options.add_argument(flag)
  options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
  return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


class Server:
  """tg viz on a free port."""

  def __init__(self, *files):
    self.process = subprocess.Popen([TG, "viz", "-p", "0", *files], stdout=subprocess.PIPE, text=True)
    line = self.process.stdout.readline()
    self.address = re.search(r"http://127\.0\.0\.1:(\d+)", line)
    if not self.address: raise RuntimeError(f"tg viz said {line!r}")
    self.port = int(self.address[1])

  def status_of(self, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items(): connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status

  def stop(self):
    self.process.terminate()
    self.process.wait(timeout=20)
    self.process.stdout.close()


class Page(unittest.TestCase):
  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory(prefix="tinygrad-test-")
    cls.run_file = cls.path("run.viz")
    run_tg("viz", "record", "-o", cls.run_file, "--", TG, "bench", "--child", "first_result", "--threads", "1",
           env={**os.environ, "CACHELEVEL": "0"})
    cls.server = Server(cls.run_file)
    cls.browser = start_browser()

  @classmethod
  def tearDownClass(cls):
    cls.browser.quit()
    cls.server.stop()
    cls.folder.cleanup()

  @classmethod
  def path(cls, name): return os.path.join(cls.folder.name, name)

  def setUp(self): self.resize(1440, 900)

  def tearDown(self):
    errors = [e["message"] for e in self.browser.get_log("browser") if e["level"] == "SEVERE"]
    self.assertEqual(errors, [], "the browser's console")

  # ---- helpers ----

  def resize(self, width, height):
    self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                 {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

  def open(self, server=None, address=""):
    self.browser.get("about:blank")
    self.browser.get(f"http://127.0.0.1:{(server or self.server).port}/{address}")
    self.wait(lambda: self.script("return document.body.dataset.shown || document.querySelector('.failed')"))
    self.assertFalse(self.browser.find_elements(By.CLASS_NAME, "failed"))

  def script(self, text, *arguments): return self.browser.execute_script(text, *arguments)

  def wait(self, condition, seconds=20):
    return WebDriverWait(self.browser, seconds, poll_frequency=0.05).until(lambda _: condition())

  def at(self, selector): return self.browser.find_element(By.CSS_SELECTOR, selector)

  def all(self, selector): return self.browser.find_elements(By.CSS_SELECTOR, selector)

  def keys(self, *keys): self.at("body").send_keys(*keys)

  def state(self, key): return self.script("return window.tgviz.state[arguments[0]]", key)

  def graph(self, expression):
    return self.script(f"const view = window.tgviz.view, g = view.canvas.graph; return {expression}")

  def open_rewrites(self):
    """Opens the rewrites of a pass, by clicks: the first kernel, a pass of it that has some, its rewrites."""
    self.open()
    self.at(".row.kernel").click()
    self.wait(lambda: self.all(".row.pass.busy"))[0].click()
    self.wait(lambda: self.all(".row.rewrite"))[0].click()
    self.wait(lambda: self.at("#stepper").is_displayed() and self.graph("view.span.rewrites.length"))

  # ---- what people do ----

  def test_opens_with_a_graph(self):
    self.open()
    self.assertGreater(self.graph("g.nodes"), 3)
    self.assertIn("kernels", self.at("#summary").text)
    self.assertEqual(self.at("#file").text, "run.viz")
    # The canvas is not empty: it has colours of nodes, not the background alone.
    self.wait(lambda: self.script("""
        const c = document.getElementById('graph'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
        return seen.size > 10"""))

  def test_click_on_a_kernel_shows_its_source(self):
    self.open()
    rows = self.all(".row.kernel")
    self.assertGreaterEqual(len(rows), 1)
    name = rows[-1].find_element(By.CLASS_NAME, "name").text
    rows[-1].click()
    self.wait(lambda: name in self.at("#content").text)
    self.assertEqual(self.at(".row.on .name").text, name)
    self.assertIn(name, self.at("#title").text)

  def test_click_on_a_node_shows_it(self):
    self.open()
    x, y, op = self.graph("[g.x[0] * view.canvas.view.k + view.canvas.view.x,"
                          " g.y[0] * view.canvas.view.k + view.canvas.view.y, g.texts[g.op[0]]]")
    canvas = self.at("#graph")
    webdriver.ActionChains(self.browser).move_to_element_with_offset(
        canvas, x - canvas.size["width"] / 2, y - canvas.size["height"] / 2).click().perform()
    self.wait(lambda: self.state("node") == 0)
    self.assertIn(op, self.at("#content").text)
    self.assertIn(op, self.at("#tip").text)
    users = self.graph("g.sources.filter(s => s.includes(0)).length")
    self.assertIn(f"USERS ({users})", self.at("#content").text.upper())
    self.keys(Keys.ESCAPE)
    self.wait(lambda: self.state("node") is None)

  def test_steps_through_rewrites(self):
    self.open_rewrites()
    steps = self.graph("view.span.rewrites.length")
    self.assertEqual(self.at("#count").text, f"0 of {steps}")
    self.assertEqual(self.graph("g.state.length"), 0)
    before = self.graph("g.number")
    self.keys(Keys.ARROW_RIGHT)
    self.wait(lambda: self.at("#count").text == f"1 of {steps}" and self.graph("g.state.length"))
    self.assertRegex(self.at("#change").text, r"tinygrad/\w+/[\w/]+\.cpp:\d+")
    # What is neither new nor over something new was there before.
    added, same, removed = (self.graph(f"g.number.filter((n, i) => g.state[i] === {s})") for s in (1, 0, 2))
    self.assertTrue(set(same) <= set(before))
    self.assertFalse(set(added) & set(before))
    self.assertTrue({n for n in removed if n} <= set(before))
    self.assertTrue(added or removed or self.graph("g.state.includes(3)"))
    self.keys(Keys.END)
    self.wait(lambda: self.at("#count").text == f"{steps} of {steps}")
    self.keys(Keys.HOME)
    self.wait(lambda: self.at("#count").text == f"0 of {steps}")

  def test_link_shows_the_same(self):
    self.open_rewrites()
    self.keys(Keys.ARROW_RIGHT)
    self.wait(lambda: self.graph("g.state.length"))
    self.script("window.tgviz.go({node: 1})")
    self.wait(lambda: self.graph("view.canvas.selected") == 1)
    link = self.browser.current_url.split("/")[-1]
    numbers, title = self.graph("g.number"), self.at("#title").text
    self.open(address=link)
    self.wait(lambda: self.graph("view.canvas.selected") == 1)
    self.assertEqual(self.graph("g.number"), numbers)
    self.assertEqual(self.at("#title").text, title)
    self.assertTrue(self.at("#count").text.startswith("1 of "))

  def test_back_returns_to_the_kernel_before(self):
    self.open()
    rows = self.all(".row.kernel, .row.schedule")
    rows[0].click()
    first = self.wait(lambda: self.state("span"))
    self.all(".row.kernel, .row.schedule")[-1].click()
    self.wait(lambda: self.state("span") != first)
    self.browser.back()
    self.wait(lambda: self.state("span") == first)

  def test_search_finds_nodes(self):
    self.open()
    wanted = self.graph("g.texts[g.op[g.nodes - 1]]")
    count = self.graph(f"g.op.filter((op, i) => [op, g.type[i], g.argument[i], g.line[i], g.origin[i]].some("
                       f"t => g.texts[t].toLowerCase().includes('{wanted.lower()}'))).length")
    self.keys("/")
    box = self.browser.switch_to.active_element
    self.assertEqual(box.get_attribute("id"), "find")
    box.send_keys(wanted)
    self.wait(lambda: self.at("#found").text == f"{count} found")
    box.send_keys(Keys.ENTER)
    self.wait(lambda: self.at("#found").text == f"1 of {count}")
    self.assertIn(wanted, self.graph("g.texts[g.op[view.canvas.selected]]"))
    box.send_keys(Keys.ESCAPE)
    self.assertEqual(self.at("#found").text, "")

  def test_keys(self):
    self.open()
    theme = self.script("return document.documentElement.dataset.theme")
    back = self.script("return getComputedStyle(document.body).backgroundColor")
    self.keys("t")
    self.wait(lambda: self.script("return document.documentElement.dataset.theme") != theme)
    self.assertNotEqual(self.script("return getComputedStyle(document.body).backgroundColor"), back)
    nodes = self.graph("[g.nodes, g.all_nodes]")
    self.keys("c")
    self.wait(lambda: self.graph("g.nodes") == nodes[1])
    self.keys("c")
    self.wait(lambda: self.graph("g.nodes") == nodes[0])
    zoom = self.graph("view.canvas.view.k")
    self.keys("+")
    self.wait(lambda: self.graph("view.canvas.view.k") > zoom * 1.2)
    self.keys("f")
    self.wait(lambda: abs(self.graph("view.canvas.view.k") - zoom) < 1e-6)
    span = self.state("span")
    self.keys("j")
    self.wait(lambda: self.state("span") != span)
    self.keys("?")
    self.wait(lambda: self.at("#keys").is_displayed())
    self.keys(Keys.ESCAPE)
    self.wait(lambda: not self.at("#keys").is_displayed())

  def test_views(self):
    self.open()
    self.keys("2")
    self.wait(lambda: self.at("body").get_attribute("data-shown") == "timeline")
    self.assertIn("host", self.script("return window.tgviz.view.sections.map(s => s.title)"))
    self.keys("+")
    self.wait(lambda: self.state("end"))
    # The labels of neighbouring ticks differ, however close they are.
    for _ in range(20): self.keys("+")
    labels = self.script("""
        const seen = [], c = window.tgviz.view.canvas.getContext('2d'), write = c.fillText;
        c.fillText = (text, ...at) => {
          if (/^[0-9.]+ (ns|µs|ms|s)$/.test(text)) seen.push(text);
          write.call(c, text, ...at);
        };
        window.tgviz.view.paint();
        delete c.fillText;
        return seen""")
    self.assertGreater(len(labels), 2)
    self.assertEqual(len(labels), len(set(labels)), labels)
    self.keys("3")
    self.wait(lambda: self.all(".dot"))
    # The roof is the measured one of this machine, not the rate of a kernel whose data lie in caches.
    limits = self.script("return window.tgviz.machine()")
    self.assertLess(limits["bytes"], 1.2e12)
    self.assertGreater(limits["bytes"], 1e8)
    self.assertIn("by measurement", self.at("main").text)
    name = self.at("tbody td").text
    self.at("tbody tr").click()
    self.wait(lambda: self.state("view") == "graphs" and name in self.at("#title").text)
    self.keys("4")
    self.wait(lambda: self.at("body").get_attribute("data-shown") == "program")
    self.keys("5")
    self.wait(lambda: self.all("section svg path"))
    self.keys("6")
    self.wait(lambda: "symbolic.cpp:" in self.at("main").text)

  def test_two_recordings_are_compared(self):
    server = Server(self.run_file, self.run_file)
    try:
      self.open(server, "#view=compare")
      rows = self.wait(lambda: self.all("tbody tr"))
      self.assertIn("1.00 ×", rows[0].text)
      name = rows[0].find_element(By.TAG_NAME, "td").text
      rows[0].click()
      self.wait(lambda: self.all("#beside pre"))
      self.assertEqual([name in p.text for p in self.all("#beside pre")], [True, True])
    finally:
      server.stop()

  def test_narrow_pages_fit(self):
    for width in (1440, 800, 420):
      self.resize(width, 900)
      for view in ("graphs", "timeline", "kernels", "program", "memory", "rules"):
        self.open(address=f"#view={view}")
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), width, view)
        if view != "graphs": continue
        size = self.at("#graph").size
        self.assertGreater(size["width"], 180, width)
        self.assertGreater(size["height"], 180, width)

  # ---- what it must withstand ----

  def test_hostile_names_are_text(self):
    file = self.path("hostile.viz")
    write_hostile(file, "window.attacked=1")
    server = Server(file)
    try:
      for address in ("", "#span=1", "#span=4&step=1", "#span=2&node=1", "#span=2&node=0&graph=1", "#span=3",
                      "#view=timeline", "#view=kernels", "#view=program",
                      "#view=memory", "#view=rules", "#view=<img>&span=<img>"):
        self.open(server, address)
        self.assertIsNone(self.script("return window.attacked ?? null"), address)
        markup = "return document.querySelectorAll('img, main script, body > script').length"
        self.assertEqual(self.script(markup), 0)
      self.open(server, "#span=2")
      self.assertIn("<img src=x onerror=", self.at("#list").text)
    finally:
      server.stop()

  def test_pages_of_others_are_refused(self):
    self.assertEqual(self.server.status_of("/api/files"), 200)
    self.assertEqual(self.server.status_of("/api/files", Host=f"localhost:{self.server.port}"), 200)
    self.assertIn(self.server.status_of("/api/files", Host="evil.example"), (400, 403, 421))
    self.assertEqual(self.server.status_of("/api/files", Origin="https://evil.example"), 403)
    self.assertEqual(self.server.status_of("/../../../etc/passwd"), 404)

  def test_file_that_grows(self):
    file = self.path("grows.viz")
    write_large(file, 400)
    server = Server(file)
    try:
      self.open(server)
      self.assertEqual(self.graph("g.nodes"), 401)
      write_large(file, 800)
      self.wait(lambda: self.graph("g.nodes") == 801)
    finally:
      server.stop()

  def test_a_large_graph(self):
    """The first picture of 10^5 nodes, and frames while it is moved; --timings prints them."""
    file = self.path("large.viz")
    write_large(file, LARGE)
    server = Server(file)
    try:
      begin = time.monotonic()
      self.open(server)
      self.wait(lambda: self.graph("view.canvas.shown && view.canvas.shown.k === view.canvas.view.k"))
      first = time.monotonic() - begin
      self.assertEqual(self.graph("g.nodes"), LARGE + 1)
      frames = {}
      for name, zoom in (("whole", 1), ("part", 30), ("close", 150)):
        frames[name] = self.browser.execute_async_script("""
            const [zoom, done] = arguments, {canvas} = window.tgviz.view;
            canvas.fit(false);
            canvas.scale_by(zoom);
            setTimeout(() => {
              const times = [];
              let last = 0, angle = 0;
              const step = now => {
                if (last) times.push(now - last);
                last = now;
                angle += 0.1;
                const {k, x, y} = canvas.view;
                canvas.view = {k, x: x + 18 * Math.cos(angle), y: y + 18 * Math.sin(angle)};
                canvas.redraw();
                if (times.length < 120) requestAnimationFrame(step);
                else done(times);
              };
              requestAnimationFrame(step);
            }, 1500)""", zoom)
      if TIMINGS:
        print(f"first picture {first:.2f} s")
        for name, times in frames.items():
          print(f"{name}: median frame {sorted(times)[len(times) // 2]:.0f} ms, longest {max(times):.0f} ms")
      for times in frames.values(): self.assertEqual(len(times), 120)
    finally:
      server.stop()


TIMINGS = "--timings" in sys.argv

if __name__ == "__main__":
  if TIMINGS: sys.argv.remove("--timings")
  TG = os.path.abspath(sys.argv.pop(1))
  unittest.main()
