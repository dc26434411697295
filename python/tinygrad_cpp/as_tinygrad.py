"""Programs written for tinygrad run unchanged: after `import tinygrad_cpp.as_tinygrad`, `import tinygrad` and `import
tinygrad.nn` give this package and its modules.

    python -m tinygrad_cpp.as_tinygrad program.py its arguments
"""
import importlib
import importlib.machinery
import os
import runpy
import sys

import tinygrad_cpp

NAME, OURS = "tinygrad", tinygrad_cpp.__name__


class _Same:
    """Loads `tinygrad.x` as the very module `tinygrad_cpp.x`: one class Tensor, whichever name it was imported by."""

    def create_module(self, spec):
        ours = OURS + spec.name[len(NAME):]
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as e:
            if e.name != ours:
                raise
            raise ModuleNotFoundError(f"{OURS} has no module {spec.name}", name=spec.name) from None
        self.before = {k: vars(module)[k] for k in ("__name__", "__spec__", "__loader__", "__package__", "__path__")
                       if k in vars(module)}
        return module

    def exec_module(self, module):  # it ran when it was imported by its own name; the import system has just renamed it
        vars(module).update(self.before)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        ours = name == NAME or name.startswith(NAME + ".")
        return importlib.machinery.ModuleSpec(name, _Same(), is_package=True) if ours else None


def install():
    """Makes `tinygrad` a name of this package; a package tinygrad that was imported before stays what it is."""
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


if __name__ != "__main__":
    install()
elif len(sys.argv) < 2:
    sys.exit(f"usage: python -m {OURS}.as_tinygrad PROGRAM.py [ARGUMENT ...]")
else:
    install()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
