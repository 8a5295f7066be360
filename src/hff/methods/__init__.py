"""Learning rules, one file each; importing the package registers all of them."""

from importlib import import_module
from pkgutil import iter_modules

from hff.methods.method import Facts, Method, ParameterSet, Stage, create, methods, register

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Facts", "Method", "ParameterSet", "Stage", "create", "methods", "register"]
