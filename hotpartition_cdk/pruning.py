"""The files of the locked packages that layers omit, because no function uses them.

Paths are relative to the folder that holds the packages. A path that a later release no longer has is no error: the
tests bound the layer's size and run every function from the rest.
"""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

KEPT_SERVICES = frozenset({"dynamodb", "sts"})
"""Whose descriptions botocore keeps. All others make up more than half of the installed bytes."""

_UNUSED_UTILITIES = (
    "auth_alpha",
    "batch",
    "circuit_breaker",
    "data_classes",
    "data_masking",
    "feature_flags",
    "idempotency",
    "kafka",
    "parameters",
    "parser",
    "streaming",
)

DROPPED = (
    "aws_lambda_powertools/event_handler",
    "boto3/data",  # of its resources; only clients are used
    "boto3/examples",
    "pydantic/mypy.py",
    *(f"aws_lambda_powertools/utilities/{name}" for name in _UNUSED_UTILITIES),
)
"""Files and folders that are not part of the layer."""

_DROPPED_FILES = ("*.pyi", "examples-1.json")

_INSTALLED = (
    "bin",
    "**/__pycache__",
    "**/tests",
    *(f"*.dist-info/{name}" for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")),
)
"""Files for the installing machine only: scripts, its bytecode, tests, and pip's own notes. METADATA
stays, for importlib.metadata."""

NOT_COMPILED = (
    "aws_lambda_powertools/utilities/validation",
    "boto3/dynamodb",
    "boto3/ec2",
    "boto3/s3",
    "dateutil/rrule.py",
    "pydantic/deprecated/class_validators.py",
    "pydantic/experimental",
    "pydantic/v1",
    "redis/asyncio/http",
    "redis/asyncio/multidb",
    "redis/auth/token_manager.py",
    "redis/background.py",
    "redis/commands/bf",
    "redis/commands/json",
    "redis/commands/search",
    "redis/commands/timeseries",
    "redis/commands/vectorset",
    "redis/http",
    "redis/multidb",
    "redis/ocsp.py",
    "s3transfer/crt.py",
    "s3transfer/processpool.py",
    "urllib3/contrib/emscripten",
    "urllib3/contrib/pyopenssl.py",
    "urllib3/http2/connection.py",
)
"""Files that stay, since their packages may import them, but only as source: no function imports them."""


PRUNING = (sorted(KEPT_SERVICES), DROPPED, _DROPPED_FILES, NOT_COMPILED)
"""All that decides which files are omitted: a layer's name depends on it."""


def prune(packages: Path) -> None:
    """Remove the files that no function uses, and compress botocore's list of endpoints, which it also reads so."""
    for name in DROPPED:
        _remove(packages / name)
    services = packages / "botocore" / "data"
    for folder in services.glob("*/"):
        if folder.is_dir() and folder.name not in KEPT_SERVICES:
            _remove(folder)
    for pattern in (*(f"**/{name}" for name in _DROPPED_FILES), *_INSTALLED):
        for path in list(packages.glob(pattern)):
            _remove(path)
    endpoints = services / "endpoints.json"
    if endpoints.is_file():
        endpoints.with_suffix(".json.gz").write_bytes(gzip.compress(endpoints.read_bytes(), mtime=0))
        endpoints.unlink()


def source_only_pattern() -> str:
    """Build a regular expression of the paths that are not compiled, for `compileall -x`."""
    names = "|".join(re.escape(name) for name in NOT_COMPILED)
    return rf"/python/({names})(/|$)"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
