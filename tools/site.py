#!/usr/bin/env python3
"""Builds the documentation as a web site: the pages by MkDocs Material, a reference of the public headers by Doxygen
in api/. Every page keeps its place in the repository, so links between pages, and to files beside them, are the same
in both; a link to a page that is not there is an error.

  site.py FOLDER       writes the site; mkdocs and doxygen are in PATH"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import check_docs
import snippets

ROOT = check_docs.ROOT
# The order in which to read; what is not named here comes behind it.
NAV = [
    ("Home", ["README.md"]),
    ("Learn", ["docs/tutorials/quickstart.md", "examples/lessons/README.md", "docs/guide/index.md"]),
    ("Guide", ["docs/guide/[0-9]*.md"]),
    ("Tutorials", ["docs/tutorials/memory.md", "docs/tutorials/custom_*.md"]),
    ("Use", ["docs/tensor.md", "docs/operations.md", "docs/nn.md", "docs/jit.md", "docs/custom.md", "docs/python.md",
             "docs/formats.md", "docs/onnx.md", "docs/models.md", "docs/llm.md", "docs/chat_templates.md",
             "docs/serve.md",
             "docs/multi.md", "docs/distributed.md", "docs/memory.md", "docs/env.md"]),
    ("Look inside", ["docs/tg.md", "docs/doctor.md", "docs/explain.md", "docs/viz.md", "docs/debug.md",
                     "docs/composition.md"]),
    ("Coming from", ["docs/migration.md", "docs/pitfalls.md"]),
    ("How it works", ["docs/architecture.md", "docs/ir.md", "docs/rewriting.md", "docs/scheduling.md",
                      "docs/kernels.md", "docs/gpu_codegen.md"]),
    ("Devices", ["docs/opencl.md", "docs/webgpu.md", "docs/cuda.md", "docs/metal.md", "docs/new_backend.md",
                 "docs/direct_drivers.md"]),
    ("Figures", ["docs/performance.md", "docs/benchmarks.md"]),
    ("Contribute", ["CONTRIBUTING.md", "docs/writing.md", "AGENTS.md"]),
]
DOXYFILE = """PROJECT_NAME = tinygrad.cpp
INPUT = {headers}
STRIP_FROM_PATH = {root}
OUTPUT_DIRECTORY = {out}
HTML_OUTPUT = api
GENERATE_LATEX = NO
JAVADOC_AUTOBRIEF = YES
DISTRIBUTE_GROUP_DOC = YES
SOURCE_BROWSER = YES
HAVE_DOT = NO
EXTRACT_ALL = YES
WARN_IF_UNDOCUMENTED = NO
QUIET = YES
WARNINGS = NO
"""


def pages():
  """Paths of all pages, from the root, in git's order."""
  listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
  return [p for p in listed.split("\n") if p and not p.startswith(("tests/", "data/"))]


def title_of(page):
  return re.search(r"^# (.*)", (ROOT / page).read_text(), re.M)[1].replace("`", "")


def navigation(all_pages):
  """[(section, [page])] of every page, each once."""
  left, out = list(all_pages), []
  for section, patterns in NAV:
    named = [str(p.relative_to(ROOT)) for pattern in patterns for p in sorted(ROOT.glob(pattern))]
    missing = [p for p in named if p not in left]
    if missing or not named: raise SystemExit(f"site: {section}: no page {missing or patterns}")
    left = [p for p in left if p not in named]
    out.append((section, named))
  return out + [("More", left)]


def copy_linked(page, to, all_pages):
  """Copies a page and the files it shows or links to."""
  (to / page).parent.mkdir(parents=True, exist_ok=True)
  shutil.copy(ROOT / page, to / page)
  for _, target, _ in snippets.links_of(ROOT / page):
    if target.is_file() and str(target.relative_to(ROOT)) not in all_pages:
      copy = to / target.relative_to(ROOT)
      copy.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(target, copy)


def configuration(source, site, all_pages):
  """The text of mkdocs.yml; quoting is JSON's, which is YAML too."""
  nav = [{section: [{title_of(p): p} for p in named]} for section, named in navigation(all_pages)]
  nav.append({"C++ reference": "api/index.html"})
  return json.dumps({
      "site_name": "tinygrad.cpp", "docs_dir": str(source), "site_dir": str(site), "nav": nav,
      "theme": {"name": "material", "font": False,
                "features": ["navigation.tabs", "navigation.indexes", "content.code.copy"],
                "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default"},
                            {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}]},
      "markdown_extensions": ["tables", "admonition", "toc", "pymdownx.highlight", "pymdownx.superfences"],
      "plugins": ["search"],
      # Folders and the reference are no pages; links to files are checked before.
      "validation": {"links": {"not_found": "info", "unrecognized_links": "info"}, "nav": {"not_found": "info"}},
  })


def main():
  site = pathlib.Path(sys.argv[1]).resolve()
  all_pages = pages()
  with tempfile.TemporaryDirectory() as folder:
    source = pathlib.Path(folder) / "source"
    wrong = [w for page in all_pages for w in snippets.broken_links(ROOT / page)]
    if wrong: raise SystemExit("site: " + "\n".join(wrong))
    for page in all_pages: copy_linked(page, source, all_pages)
    config = pathlib.Path(folder) / "mkdocs.yml"
    config.write_text(configuration(source, site, all_pages))
    subprocess.run(["mkdocs", "build", "--strict", "--quiet", "--config-file", config], check=True)
  headers = " ".join(sorted(str(ROOT / h) for h in check_docs.public_headers(ROOT)))
  subprocess.run(["doxygen", "-"], input=DOXYFILE.format(headers=headers, root=ROOT, out=site), text=True, check=True)
  print(f"site: {len(all_pages)} pages in {site}")


if __name__ == "__main__": main()
