"""E-mail and notebooks: what somebody wrote, without what is attached to it or came out of it."""

import base64
import json
from email.message import EmailMessage

import pytest

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.eml import EML, parse_eml
from tasks.documents.parsing.notebook import NOTEBOOK, parse_notebook
from tasks.documents.parsing.sniff import sniff
from tests.document_files import shown


def mail(*, plain: str | None = None, html: str | None = None) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ännä <a@example.org>", "b@example.org", "Über Käse"
    if plain is not None:
        message.set_content(plain, cte="base64")
    if html is not None:
        (message.add_alternative if plain is not None else message.set_content)(html, subtype="html")
    message.add_attachment(b"%PDF secret attachment" * 1000, maintype="application", subtype="pdf", filename="x.pdf")
    return message.as_bytes()


HEAD = [("heading1", "Über Käse"), ("paragraph", "From: Ännä <a@example.org>\nTo: b@example.org")]


def test_a_message_is_its_plain_text() -> None:
    data = mail(plain="Erster Absatz.\n\nZweiter.", html="<p>other</p>")
    assert sniff(data, "a.eml") is EML
    assert shown(parse_eml(data)) == [*HEAD, ("paragraph", "Erster Absatz."), ("paragraph", "Zweiter.")]
    assert parse_eml(data).title == "Über Käse"


def test_a_message_without_plain_text_is_its_html() -> None:
    data = mail(html="<ul><li>eins<li>zwei</ul><p>drei</p>")
    assert shown(parse_eml(data)) == [*HEAD, ("list", "- eins\n- zwei"), ("paragraph", "drei")]


@pytest.mark.parametrize(
    "data", [b"Content-Type: text/plain; charset=x-unknown\n\n\xff", b"Subject: =?x?q?y?=\n\nbody"]
)
def test_odd_messages_fail_with_a_reason_or_are_read(data: bytes) -> None:
    try:
        assert parse_eml(data).text
    except DocumentFailed as failed:
        assert failed.error.code in {"corrupt_document", "empty_document"}  # noqa: PT017 - either is right


def test_a_notebook_is_its_cells_without_their_outputs() -> None:
    picture = base64.b64encode(bytes(range(256)) * 100).decode()
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "- an item\n"]},
        {"cell_type": "code", "source": "x = 1\n\ny = 2", "outputs": [{"data": {"image/png": picture}}]},
        {"cell_type": "markdown", "source": " "},
    ]
    data = json.dumps({"nbformat": 4, "cells": cells}).encode()
    assert sniff(data, "a.ipynb") is NOTEBOOK
    parsed = parse_notebook(data)
    assert shown(parsed) == [("heading1", "# Title"), ("list", "- an item"), ("code", "x = 1\n\ny = 2")]
    assert parsed.title == "Title"
    older = {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["a = 1"]}]}]}
    assert shown(parse_notebook(json.dumps(older).encode())) == [("code", "a = 1")]


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"{}", b'{"cells": 5}', b'{"cells": [5]}', b'{"cells": [{"source": 5}]}']
)
def test_what_is_no_notebook_is_damaged(data: bytes) -> None:
    with pytest.raises(DocumentFailed, match="corrupt_document"):
        parse_notebook(data)
