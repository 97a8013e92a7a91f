"""The CDK app: `cdk deploy -c environment=dev|prod [-c config=FILE] [-c options=JSON] [-c settings=JSON]`.

`python app.py -c bundling=off -o FOLDER` writes the assembly without uv and network, from a fresh clone as well: the
dependency layer's place is taken by a stand-in, and the CDK's command line refuses to deploy the result.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), *(str(ROOT / "layers" / layer / "python") for layer in ("routing", "messages"))]

from infra.app import main  # noqa: E402 - the line above makes it importable

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
