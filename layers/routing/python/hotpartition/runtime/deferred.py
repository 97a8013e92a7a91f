"""Lets a package's own `__init__` wait until somebody needs it; its modules are imported one by one before.

redis-py and Powertools import all they have in their packages' `__init__`, for whoever wants it: asyncio clients,
AppSync, the events of twenty services. The functions use a few modules of it, and their cold starts should pay for no
more. Nothing is replaced: a name that is asked for later is there, from where it always is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.abc import Loader
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


def defer(name: str, homes: Mapping[str, str] | None = None, *, functions: Collection[str] = ()) -> None:
    """Put a package in place without running its `__init__`, unless it is there already.

    Args:
        name: the package's; its parents are imported.
        homes: names that its `__init__` only passes on, and the modules of the package that they come from. Any other
            name that is no module of the package runs the `__init__`.
        functions: functions of its `__init__`; who imports one gets one that asks the real one when it is called.

    Raises:
        ModuleNotFoundError: there is no such package.
    """
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = module_from_spec(spec)
    vars(package)["__getattr__"] = _Waiting(package, spec.loader, homes or {}, functions).find
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


class _Waiting:
    """What a package does about a name that it does not have yet."""

    def __init__(
        self, package: ModuleType, loader: Loader, homes: Mapping[str, str], functions: Collection[str]
    ) -> None:
        self._package = package
        self._loader = loader
        self._homes = homes
        self._functions = functions

    def find(self, attribute: str) -> object:
        name = self._package.__name__
        if attribute in self._functions:
            return self._forward(attribute)
        if attribute in self._homes:
            return getattr(import_module(f"{name}.{self._homes[attribute]}"), attribute)
        if find_spec(f"{name}.{attribute}") is not None:
            return import_module(f"{name}.{attribute}")
        return self._find_really(attribute)

    def _forward(self, function: str) -> Callable[..., object]:
        def call(*arguments: Any, **options: Any) -> object:
            real: Callable[..., object] = self._find_really(function)
            return real(*arguments, **options)

        return call

    def _find_really(self, attribute: str) -> Any:
        """Run the `__init__`, once, and take the name from it."""
        if vars(self._package).pop("__getattr__", None) is not None:
            self._loader.exec_module(self._package)
        return getattr(self._package, attribute)
