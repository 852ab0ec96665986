"""E-mail (RFC 5322): subject, sender, recipients, date and the message. Attachments are left out."""

import email
import email.policy
from email.message import EmailMessage

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.html import parse_html
from tasks.documents.parsing.parsed_document import Builder, Parsed
from tasks.documents.parsing.plain_text import paragraphs
from tasks.documents.parsing.refusals import corrupt

_MEDIA_TYPE = "message/rfc822"
_SHOWN = ("From", "To", "Date")


def parse_eml(data: bytes) -> Parsed:
    """The subject as a heading, sender, recipients and date, and the plain text, or where there is none the HTML.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, and what `parse_html` raises.
    """
    try:
        message = email.message_from_bytes(data, EmailMessage, policy=email.policy.default)
        subject = str(message["Subject"] or "")
        head = "\n".join(f"{name}: {message[name]}" for name in _SHOWN if message[name])
        part = message.get_body(("plain", "html"))
        body = str(part.get_content()) if part is not None else ""
        is_html = part is not None and part.get_content_subtype() == "html"
    except (LookupError, ValueError, TypeError, AttributeError, IndexError):
        # The library promises to take everything, and raises all of these for one header or another.
        raise corrupt("an e-mail message") from None
    builder = Builder()
    builder.add("heading", subject, 1)
    builder.add("paragraph", head)
    if is_html:
        page = parse_html(body.encode("utf-8", "replace"))
        text, blocks = page.text, list(page.blocks)
    else:
        text, blocks = body, paragraphs(body)
    for block in blocks:
        builder.add(block.kind, text[block.start : block.end], block.level)
    return builder.parsed(_MEDIA_TYPE, subject)


EML = DocumentFormat(_MEDIA_TYPE, "e-mail (EML)", "text", parse_eml, endings=(".eml",))
