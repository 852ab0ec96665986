"""The errors of parsing, in words for the owner of a document.

| code | what it means |
|---|---|
| `unsupported_type` | a known format that is not read |
| `binary_file` | bytes that are no text and no known format |
| `empty_document` | no bytes, or plain text of nothing but white space: the document is empty |
| `no_text` | content without text that can be read, such as a PDF of pictures: nobody knows what it says |
| `password_protected` | opens with a password only |
| `corrupt_document` | not what its format demands |
| `document_too_large` | more bytes or text than one document may have |
| `unknown_encoding` | text in an encoding that cannot be recognised |
| `parse_timeout`, `parse_memory`, `parser_crashed` | it was too much for its parser, which is replaced |
| `missing_parser` | the library for its format is not installed |
"""

from tasks.document_error import DocumentFailed, FailureStage
from tasks.ingestion.parsing.limits import ParseLimits

BEYOND_LIMITS = frozenset({"parse_timeout", "parse_memory", "parser_crashed"})


def refused(code: str, message: str) -> DocumentFailed:
    """The error to raise."""
    return DocumentFailed(code, message, "parsing")


def empty() -> DocumentFailed:
    """Nothing to embed."""
    return refused("empty_document", "The document has no text in it. Leave it out, or check how it was made.")


def no_text() -> DocumentFailed:
    """There is something in it, and no text was found: it is not empty."""
    return refused(
        "no_text",
        "The file has content, and no text in it that can be read. An earlier version of the document is kept. Look "
        "at how the file was made; to remove the document, delete the file or leave nothing in it.",
    )


def corrupt(format_name: str) -> DocumentFailed:
    """The file is damaged, cut off or made wrongly."""
    return refused(
        "corrupt_document",
        f"The file is damaged and cannot be read as {format_name}. Open it in its application and save it again.",
    )


def misnamed(what: str, promised: str) -> DocumentFailed:
    """The name promises another format than the bytes are of."""
    return refused(
        "corrupt_document",
        f"The file is {what}, and its name says {promised}. An earlier version of the document is kept. Fetch the "
        "file again, or give it the ending of what it is.",
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


def beyond_limits(code: str, limits: ParseLimits, stage: FailureStage = "parsing") -> DocumentFailed:
    """The document was too much for the process that read it; `code` is one of `BEYOND_LIMITS`."""
    match code:
        case "parse_timeout":
            what = f"Parsing was stopped after {limits.timeout_s:g} s (EMBEDQ_PARSE_TIMEOUT_S)."
        case "parse_memory":
            what = f"Parsing needs more than {limits.memory_bytes:,} bytes of memory (EMBEDQ_PARSE_MEMORY_BYTES)."
        case _:
            message = (
                "The parser broke down on this document, or ran out of memory (EMBEDQ_PARSE_MEMORY_BYTES). Open it in "
                "its application and save it again, or split it."
            )
            return DocumentFailed(code, message, stage)
    return DocumentFailed(code, f"{what} Split or simplify the document.", stage)


def missing(library: str) -> DocumentFailed:
    """An extra is not installed."""
    return refused(
        "missing_parser",
        f"The documents worker cannot read this type without {library}. Install it there: pip install "
        "'embedq[documents]'",
    )
