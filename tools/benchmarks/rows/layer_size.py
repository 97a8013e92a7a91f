"""`layer-size`: what is unzipped at a cold start, against the same packages as pip installs them."""

from __future__ import annotations

from tools.benchmarks.measuring import Bar, Measured, Samples
from tools.benchmarks.packages import build_layers, install_plain, size_bytes
from tools.benchmarks.setup import Setup

MEGABYTES = 1e-6


def measure(_: Setup) -> Measured:
    """Sum the files of all layers as they are built for this machine. Nothing is timed."""
    layers = build_layers()
    plain = install_plain()
    ours = sum(map(size_bytes, layers)) * MEGABYTES
    our_source = sum(size_bytes(layer, with_bytecode=False) for layer in layers) * MEGABYTES
    rival = size_bytes(plain) * MEGABYTES
    rival_source = size_bytes(plain, with_bytecode=False) * MEGABYTES
    return Measured(
        unit="MB",
        rival="libcurl, boto3, redis, Powertools and pydantic as pip installs them",
        samples=Samples((ours,), (rival,)),
        details={
            "without_bytecode_mb": our_source,
            "rival_without_bytecode_mb": rival_source,
            "ratio_without_bytecode": our_source / rival_source,
        },
        bars=(Bar("ratio", at_most=0.65),),
        conditions="bytes of all files; ours with the bytecode that is deployed, pip's with all, as is its default",
    )
