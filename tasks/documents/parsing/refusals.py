"""Why a document cannot be parsed, in words for its owner.

| code | what it means |
|---|---|
| `unsupported_type` | a known format that is not read |
| `binary_file` | bytes that are no text and no known format |
| `empty_document` | no bytes, or nothing but white space |
| `no_text` | a PDF of pictures |
| `password_protected` | opens with a password only |
| `corrupt_document` | not what its format demands |
| `document_too_large` | more bytes or text than one document may have |
| `unknown_encoding` | text, but nobody can say in which encoding |
| `parse_timeout`, `parse_memory`, `parser_crashed` | it was too much for its parser, which is replaced |
| `missing_parser` | the library for its format is not installed |
"""

from tasks.documents.faults import DocumentFailed

SUPPORTED = "Supported are plain text, Markdown, HTML, PDF and DOCX."


def refused(code: str, message: str) -> DocumentFailed:
    """The error to raise."""
    return DocumentFailed(code, message, "parsing")


def empty() -> DocumentFailed:
    """Nothing to embed."""
    return refused("empty_document", "The document has no text in it. Leave it out, or check how it was made.")


def corrupt(format_name: str) -> DocumentFailed:
    """Damaged, cut off or made wrongly."""
    return refused(
        "corrupt_document",
        f"The file is damaged and cannot be read as {format_name}. Open it in its application and save it again.",
    )


def protected(format_name: str) -> DocumentFailed:
    """Encrypted."""
    return refused(
        "password_protected",
        f"The {format_name} opens only with a password. Save a copy without one and ingest that.",
    )


def too_large(what: str) -> DocumentFailed:
    """Over a limit, which `what` names."""
    return refused("document_too_large", f"The document {what}. Split it into smaller documents.")


def missing(library: str) -> DocumentFailed:
    """An extra is not installed."""
    return refused(
        "missing_parser",
        f"The documents worker cannot read this type without {library}. Install it there: pip install "
        "'embedq[documents]'",
    )
