"""`layer-size`: what is unzipped at a cold start, against the same packages as pip installs them."""

from __future__ import annotations

from benchmarks.measuring import Bar, Measured, Samples
from benchmarks.packages import install_plain, size_bytes
from benchmarks.setup import ROOT, Setup
from infra.bundle import build_bundle, run_pip
from infra.environments import Host, choose_environment

MEGABYTES = 1e-6


def measure(_: Setup) -> Measured:
    """Sum the files of both layers as they are built for this machine. Nothing is timed."""
    dependencies = build_bundle(choose_environment("local", Host.current()).target).build(run_pip)
    routing = size_bytes(ROOT / "layers" / "routing", with_bytecode=False)  # the CDK leaves this machine's bytecode out
    plain = install_plain()
    ours = (routing + size_bytes(dependencies)) * MEGABYTES
    rival = size_bytes(plain) * MEGABYTES
    rival_source = size_bytes(plain, with_bytecode=False) * MEGABYTES
    return Measured(
        unit="MB",
        rival="boto3, redis, Powertools and pydantic as pip installs them",
        samples=Samples((ours,), (rival,)),
        details={"rival_without_bytecode_mb": rival_source, "ratio_without_bytecode": ours / rival_source},
        bars=(Bar("ratio", at_most=0.5),),
        conditions="bytes of all files; pip compiles what it installs, as it does by default",
    )
