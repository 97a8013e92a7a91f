"""`python -m tools.openapi`: write `docs/openapi.json`."""

from tools.openapi.document import DOCUMENT_FILE, build_document, render

if __name__ == "__main__":
    DOCUMENT_FILE.write_text(render(build_document()), encoding="utf-8")
    print(DOCUMENT_FILE.relative_to(DOCUMENT_FILE.parents[1]))
