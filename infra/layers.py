"""The layers: our routing code, the messages API, and the packages that they need."""

from __future__ import annotations

import os

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bundle import build_bundle, build_sources, run_pip
from infra.bytecode import Interpreter, find_interpreter
from infra.environments import PYTHON_VERSIONS, LayerTarget

COMPILED_PYTHON = ["__pycache__", "*.pyc"]
"""Bytecode of the machine that synthesizes: of another Python, and different each time."""


class Layers(Construct):
    """Layers for one Python and architecture. Apart, so that a fix of ours rebuilds no dependencies.

    Where the functions' Python is at hand, all carry its bytecode: `/opt` is read-only, so a module without it would
    be compiled again at every cold start.
    """

    def __init__(self, scope: Construct, id_: str, *, target: LayerTarget) -> None:
        super().__init__(scope, id_)
        self.runtime = lambda_.Runtime(
            f"python{target.python_version}", lambda_.RuntimeFamily.PYTHON, supports_snap_start=True
        )
        self.is_newest_python = target.python_version == PYTHON_VERSIONS[-1]
        self.architecture = {
            "arm64": lambda_.Architecture.ARM_64,
            "x86_64": lambda_.Architecture.X86_64,
        }[target.architecture]
        interpreter = find_interpreter(target.python_version, os.environ)
        routing = self._layer(
            "Routing", "hotpartition: routing logic shared by all functions", self._sources("routing", interpreter)
        )
        messages = self._layer("Messages", "hotpartition: the messages API", self._sources("messages", interpreter))
        dependencies = self._layer(
            "Dependencies", "hotpartition: locked third-party packages", self._dependencies(target, interpreter)
        )
        self.of_library = [routing, dependencies]
        self.of_api = [routing, messages, dependencies]

    def _layer(self, id_: str, description: str, code: lambda_.Code) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            id_,
            description=description,
            code=code,
            compatible_runtimes=[self.runtime],
            compatible_architectures=[self.architecture],
        )

    def _sources(self, layer: str, interpreter: Interpreter | None) -> lambda_.Code:
        """Take our code with its bytecode, or as it is where none can be made."""
        bundle = build_sources(layer, interpreter)
        if interpreter is not None and self._is_bundled():
            return lambda_.Code.from_asset(str(bundle.build()), asset_hash=bundle.key)
        return lambda_.Code.from_asset(str(bundle.folder), exclude=COMPILED_PYTHON)

    def _dependencies(self, target: LayerTarget, interpreter: Interpreter | None) -> lambda_.Code:
        """Take the built packages, or a stand-in where the CDK says that it will not look inside.

        The build runs here and not in a CDK bundling hook, whose errors would reach a person through two languages.
        The stand-in has a hash of its own: assets are taken from the output folder by hash, and it must never be
        deployed.
        """
        bundle = build_bundle(target, interpreter)
        if self._is_bundled():
            return lambda_.Code.from_asset(str(bundle.build(run_pip)), asset_hash=bundle.key)
        # Which Python would compile it does not matter then, and is not the same on every machine.
        unbuilt = build_bundle(target, None)
        return lambda_.Code.from_asset(str(unbuilt.lock.parent), asset_hash=f"unbundled-{unbuilt.key}")

    def _is_bundled(self) -> bool:
        return cdk.Stack.of(self).bundling_required
