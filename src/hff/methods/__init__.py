"""Learning rules, one file each; importing the package registers all of them."""

from importlib import import_module
from pkgutil import iter_modules

from hff.methods.facts import Group
from hff.methods.families.local import LocalMethod
from hff.methods.method import Form, Method, MethodInfo, ParameterSet, Stage, create_method, methods, register

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "Form",
    "Group",
    "LocalMethod",
    "Method",
    "MethodInfo",
    "ParameterSet",
    "Stage",
    "create_method",
    "methods",
    "register",
]
