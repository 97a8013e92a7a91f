"""Small functions of Lambda, and pools that run them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.loop import Loop
from tools.local.environment import Launcher, install_runtime
from tools.local.functions import FunctionPool
from tools.local.template import FunctionSpec

FUNCTION = Path(__file__).with_name("function")
RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    created = Loop()
    yield created
    created.close()


@pytest.fixture(scope="session")
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local") / "runtime"
    install_runtime(folder)
    return folder


@pytest.fixture
def make_pool(loop: Loop, runtime_dir: Path, tmp_path: Path) -> Iterator[Callable[..., FunctionPool]]:
    """Make pools of the small function; all are stopped afterwards."""
    pools: list[FunctionPool] = []
    layer = tmp_path / "layer"
    (layer / "python").mkdir(parents=True)
    (layer / "python" / "from_layer.py").write_text("WORD = 'layered'\n")

    def make(*, timeout_seconds: float = 600.0, reserved: int | None = None, **limits: Any) -> FunctionPool:
        function = FunctionSpec(
            name=f"f{len(pools)}",
            arn="arn:aws:lambda:eu-central-1:123456789012:function:f",
            handler="handler.handler",
            runtime=RUNTIME,
            timeout_seconds=timeout_seconds,
            memory_mb=128,
            code_dir=FUNCTION,
            layer_dirs=(layer,),
            environment={"GIVEN": "value"},
            reserved_concurrency=reserved,
        )
        launcher = Launcher(function, runtime_dir=runtime_dir, log_dir=tmp_path, dynamodb_endpoint="http://127.0.0.1:9")
        usual = {"min_environments": 0, "max_environments": 4, "queue_seconds": 600.0}
        pools.append(FunctionPool(launcher=launcher, rng=random.Random(1), **{**usual, **limits}))
        return pools[-1]

    yield make
    for pool in pools:
        loop.run(pool.stop())
