"""`hotpartition`, and `python -m hotpartition_cli`."""

import sys

from hotpartition_cli.errors import Status

NEEDS = "click pydantic rich urllib3"
"""The packages of the extra `cli`."""


def main() -> int:
    """Run the command line, or say how to install its packages: the library alone does not bring them."""
    try:
        from hotpartition_cli.main import main as run  # noqa: PLC0415 - its packages may be missing

        return run()
    except ModuleNotFoundError as error:
        print(f"hotpartition: {error.name} is not installed; pip install {NEEDS}", file=sys.stderr)
        return Status.FAILED
    except KeyboardInterrupt:  # while they are imported
        return Status.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
