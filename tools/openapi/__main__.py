"""`python -m tools.openapi`: write `docs/openapi.json`."""

from __future__ import annotations

import sys

from tools.openapi.document import DOCUMENT_FILE, build_document, render


def main() -> int:
    """Write the document."""
    DOCUMENT_FILE.write_text(render(build_document()), encoding="utf-8")
    print(DOCUMENT_FILE.relative_to(DOCUMENT_FILE.parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
