"""Loads the functions' modules, which all have one name, under names of their own."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def find_function(function: str) -> Path:
    """Find the folder of a function's code."""
    return ROOT / "lambdas" / function


def load_handler(function: str) -> ModuleType:
    """Load a function's module, once, as its environment would with the variables that a stack with Redis sets."""
    name = f"{function}_handler"
    if name not in sys.modules:
        os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "hotpartition")
        os.environ.setdefault("POWERTOOLS_SERVICE_NAME", function)
        spec = importlib.util.spec_from_file_location(name, find_function(function) / "handler.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        os.environ["HOTPARTITION_REGISTRY_HOST"] = "-"
        spec.loader.exec_module(module)
        del os.environ["HOTPARTITION_REGISTRY_HOST"]
    return sys.modules[name]
