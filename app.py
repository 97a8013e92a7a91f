"""The CDK app: `cdk deploy -c environment=dev|prod -c settings='{"sampling_distance_wcu": 2}'`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "layers" / "routing" / "python")]

from infra.app import main  # noqa: E402 - the line above makes it importable

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
