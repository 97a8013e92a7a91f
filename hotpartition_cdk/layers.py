"""The layers: the library, the packages that it needs, and the code built on it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition_cdk.bundle import (
    LIBRARY,
    LOCK,
    DependencyBundle,
    SourceBundle,
    find_cache,
    find_interpreter,
    read_digest,
    run_uv,
)
from hotpartition_cdk.configuration import PYTHON_VERSIONS, LayerTarget

CACHE_KEY = "hotpartition:layers"
"""Context key: the folder of finished builds, where it is not the user's own."""

COMPILED_PYTHON = ["__pycache__", "*.pyc"]
"""Bytecode of the machine that synthesizes: of another Python, and different each time."""


class Layers(Construct):
    """Layers for one Python and architecture. Apart, so that a fix in the library rebuilds no dependencies.

    Where the functions' Python is at hand, all carry its bytecode: `/opt` is read-only, so a module without it would
    be compiled again at every cold start.
    """

    def __init__(
        self, scope: Construct, id_: str, *, target: LayerTarget, packages: frozenset[str] | None = None
    ) -> None:
        """Make the library's layer, and that of the named packages of the lock; None: all."""
        super().__init__(scope, id_)
        self.runtime = lambda_.Runtime(
            f"python{target.python_version}",
            lambda_.RuntimeFamily.PYTHON,
            supports_snap_start=True,
            # As the CDK's own constants say, with which it is compared.
            supports_inline_code=True,
        )
        self.is_newest_python = target.python_version == PYTHON_VERSIONS[-1]
        self.architecture = {
            "arm64": lambda_.Architecture.ARM_64,
            "x86_64": lambda_.Architecture.X86_64,
        }[target.architecture]
        self._interpreter = find_interpreter(target.python_version)
        cache: str | None = self.node.try_get_context(CACHE_KEY)
        self._cache = Path(cache) if cache else find_cache(os.environ)
        self.library = self.add_package("Routing", "hotpartition: routing logic shared by all functions", LIBRARY)
        bundle = DependencyBundle(
            lock=LOCK, target=target, cache=self._cache, interpreter=self._interpreter, only=packages
        )
        self.dependencies = self._layer(
            "Dependencies", "hotpartition: locked third-party packages", self._dependencies(bundle)
        )

    def add_package(self, id_: str, description: str, package: Path) -> lambda_.LayerVersion:
        """Add a layer of a package of sources, with its bytecode where that can be made."""
        bundle = SourceBundle(package=package, cache=self._cache, interpreter=self._interpreter)
        if self._is_bundled():
            return self._layer(id_, description, _finished(bundle.build()))
        return self._layer(id_, description, lambda_.Code.from_asset(str(package), exclude=COMPILED_PYTHON))

    def _layer(self, id_: str, description: str, code: lambda_.Code) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            id_,
            description=description,
            code=code,
            compatible_runtimes=[self.runtime],
            compatible_architectures=[self.architecture],
        )

    def _dependencies(self, bundle: DependencyBundle) -> lambda_.Code:
        """Take the built packages, or a stand-in where the CDK says that it will not look inside.

        The build runs here and not in a CDK bundling hook, whose errors would reach a person through two languages.
        The stand-in has a hash of its own: assets are taken from the output folder by hash, and it must never be
        deployed.
        """
        if self._is_bundled():
            return _finished(bundle.build(run_uv))
        # Which Python would compile it does not matter then, and is not the same on every machine.
        unbuilt = replace(bundle, interpreter=None)
        return lambda_.Code.from_asset(str(LOCK.parent), asset_hash=f"unbundled-{unbuilt.key}")

    def _is_bundled(self) -> bool:
        return cdk.Stack.of(self).bundling_required


def _finished(folder: Path) -> lambda_.Code:
    return lambda_.Code.from_asset(str(folder), asset_hash=read_digest(folder))
