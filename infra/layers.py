"""The two layers: our routing code, and the packages that it needs."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bundle import ROOT, build_bundle, run_pip
from infra.environments import LayerTarget

COMPILED_PYTHON = ["__pycache__", "*.pyc"]
"""Bytecode of the machine that synthesizes: of another Python, and different each time."""


class Layers(Construct):
    """Layers for one Python and architecture. Two, so that a fix in the routing code rebuilds no dependencies."""

    def __init__(self, scope: Construct, id_: str, *, target: LayerTarget) -> None:
        super().__init__(scope, id_)
        self.runtime = lambda_.Runtime(f"python{target.python_version}", lambda_.RuntimeFamily.PYTHON)
        self.architecture = {
            "arm64": lambda_.Architecture.ARM_64,
            "x86_64": lambda_.Architecture.X86_64,
        }[target.architecture]
        routing = lambda_.Code.from_asset(str(ROOT / "layers" / "routing"), exclude=COMPILED_PYTHON)
        self.all = [
            self._layer("Routing", "hotpartition: routing logic shared by all functions", routing),
            self._layer("Dependencies", "hotpartition: locked third-party packages", self._dependencies(target)),
        ]

    def _layer(self, id_: str, description: str, code: lambda_.Code) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            id_,
            description=description,
            code=code,
            compatible_runtimes=[self.runtime],
            compatible_architectures=[self.architecture],
        )

    def _dependencies(self, target: LayerTarget) -> lambda_.Code:
        """Take the built packages, or a stand-in where the CDK says that it will not look inside.

        The build runs here and not in a CDK bundling hook, whose errors would reach a person through two languages.
        The stand-in has a hash of its own: assets are taken from the output folder by hash, and it must never be
        deployed.
        """
        bundle = build_bundle(target)
        if cdk.Stack.of(self).bundling_required:
            return lambda_.Code.from_asset(str(bundle.build(run_pip)), asset_hash=bundle.key)
        return lambda_.Code.from_asset(str(bundle.lock.parent), asset_hash=f"unbundled-{bundle.key}")
