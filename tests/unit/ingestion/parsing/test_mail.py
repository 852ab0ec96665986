"""E-mail as other programs write it: encodings, parts, archives, saved pages, and what only looks like mail."""

import base64

import pytest

from tasks.ingestion.parsing.mail import is_mail, is_mbox, read_mail, read_mbox
from tests.unit.ingestion.parsing.files import outcome

HEAD = b"From: Ada <ada@example.org>\nTo: bob@example.org\nSubject: Fees\nMIME-Version: 1.0\n"
SHOWN = "# Fees\n\nFrom: Ada <ada@example.org>\nTo: bob@example.org\n\n"
MAY = "THE CONTRACT ENDS IN MAY"
GERMAN = "Grüße aus Köln, die Gebühr beträgt 5 €"
RUSSIAN = "Договор действует до мая, затем он продлевается ещё на один год"


def read(data: bytes) -> str:
    """The text behind the head of the message."""
    return outcome(read_mail, data).removeprefix(SHOWN)


def many(kind: str, *parts: str) -> bytes:
    """A multipart message; each part begins with its header fields, if any, then a blank line."""
    body = "".join(f"--b=_1\n{part}\n" for part in parts)
    return HEAD + f'Content-Type: multipart/{kind};\n\tboundary="b=_1"\n\npreamble\n{body}--b=_1--\nepilogue\n'.encode()


def plain(text: str) -> str:
    return f"Content-Type: text/plain; charset=utf-8\n\n{text}\n"


def html(text: str) -> str:
    return f"Content-Type: text/html; charset=utf-8\n\n<html><body><p>{text}</p></body></html>\n"


def attached(kind: str = "image/png", how: str = "attachment") -> str:
    fields = f"Content-Type: {kind}; name=a\nContent-Disposition: {how}; filename=a\n"
    return f"{fields}Content-Transfer-Encoding: base64\n\n{base64.encodebytes(bytes(range(256))).decode()}"


@pytest.mark.parametrize(
    ("kind", "encoding", "text"),
    [
        ("", "cp1252", GERMAN),
        ("text/plain; charset=iso-8859-1", "cp1252", GERMAN),
        ("text/plain; charset=iso-8859-1", "utf-8", GERMAN),
        ("text/plain; charset*=us-ascii'en'iso-8859-15", "iso-8859-15", GERMAN),
        ("text/plain", "koi8-r", RUSSIAN),
        ("text/plain; charset=idna", "cp1252", GERMAN),
    ],
)
def test_a_body_is_decoded(kind: str, encoding: str, text: str) -> None:
    head, body = HEAD + (f"Content-Type: {kind}\n" if kind else "").encode(), text.encode(encoding)
    assert read(head + b"\n" + body) == text
    assert read(head + b"Content-Transfer-Encoding: BASE64\n\n" + base64.encodebytes(body)) == text


def test_subjects() -> None:
    for subject, text in (
        ("=?utf-8?B?w5xiZXIgS8M=?=\n =?utf-8?B?pHNl?=", "Über Käse"),
        ("Re: =?iso-8859-1?q?=DCber?= alles =?utf-8?q?K=C3=A4se?=", "Re: Über alles Käse"),
        ("=?x-unknown?q?=DCber_K=E4se?=", "Über Käse"),
        ("=?iso-2022-jp?B?GyRCN0BMcxsoQg==?=", "契約"),
        ("=?utf-8?b?!?=x", "x"),
    ):
        result = read_mail(f"Subject: {subject}\nFrom: a@example.org\n\nbody".encode())
        assert (result.title, result.text) == (text, f"# {text}\n\nFrom: a@example.org\n\nbody")


LONG = MAY + " and so on" * 20
PGP = attached("application/octet-stream")
PACKED = b"Content-Transfer-Encoding: "
PARTS = [
    (HEAD + PACKED + b"base64\n\nVEhFIENPTlRSQUNUIEVO\n!RFMgSU4gTUFZ\n\n", MAY),
    (HEAD + PACKED + b"base64\n\nVEhFIENPTlRSQUNUIEVORFMgSU4gTUE", MAY[:-1]),
    (HEAD + PACKED + b"Quoted-Printable \n\n100 =ZZ =", "100 =ZZ "),
    (many("alternative", plain(MAY), html("other")), MAY),
    (many("alternative", plain(" \n"), html(MAY)), MAY),
    (many("alternative", plain("Please view this in HTML."), html(LONG)), LONG),
    (many("mixed", plain("See the picture."), attached(), plain(MAY)), f"See the picture.\n\n{MAY}"),
    (many("related", html(MAY), attached().replace("Content-Disp", "Content-ID: <1>\nContent-Disp")), MAY),
    (many("mixed", plain("one"), f"Content-Type: message/news\n\nSubject: News\n\n{MAY}"), f"one\n\n## News\n\n{MAY}"),
    (HEAD + b"Content-Type: multipart/mixed; boundary=b\n\nno boundary at all", "no boundary at all"),
]
REFUSED = [
    (many("encrypted", "Content-Type: application/pgp-encrypted\n\nVersion: 1\n", PGP), "<password_protected>"),
    (HEAD + b"Content-Type: application/x-pkcs7-mime; name=smime.p7m\n\nMIAGCS\n", "<password_protected>"),
    (HEAD + b"\n-----BEGIN PGP MESSAGE-----\n\nhQEMA\n-----END PGP MESSAGE-----\n", "<password_protected>"),
    (b"From: a@example.org\nContent-Type: text/html\n\n<html><body></body></html>", "<no_text>"),
    (b"From: a@example.org\n\n\x01\x02\x03", "<no_text>"),
    (b"From a@b Mon Nov  3 10:00:00 2025\nFrom: a@b\n\n", "<no_text>"),
]
MULTIPART = b"Content-Type: multipart/mixed; boundary=b\n\n"
HOSTILE = [
    (HEAD + b"Content-Type: text/plain; " + b"; ".join(b'a%d="b"' % n for n in range(20_000)) + b"\n\nbody", "body"),
    (HEAD + b"Reply-To: " + b"=?utf-8?q?=C3=A4?= " * 20_000 + b"\n\nbody", "body"),
    (HEAD + b"Content-Type: text/plain; charset=punycode\n\n" + b"a-" + b"zz" * 50_000, "a-" + "zz" * 50_000),
    (HEAD + b"".join(b"Content-Type: message/rfc822\n\nSubject: x\n" for _ in range(2000)), "<corrupt_document>"),
    (HEAD + MULTIPART + b"--b\n\nx\n" * 5_001, "<document_too_large>"),
]


@pytest.mark.parametrize(("data", "text"), [*PARTS, *REFUSED, *HOSTILE])
def test_which_parts_are_read(data: bytes, text: str) -> None:
    assert read(data) == text


@pytest.mark.parametrize("packed", [False, True])
def test_a_forwarded_message_has_its_own_head(*, packed: bool) -> None:
    how = "Content-Disposition: attachment; filename=a.eml\n"
    message = f"Subject: First\nFrom: eve@example.org\nDate: Mon, 3 Nov 2025 10:00:00 +0000\n\n{MAY}\n"
    if packed:
        how += "Content-Transfer-Encoding: base64\n"
        message = base64.encodebytes(message.encode()).decode()
    found = read_mail(many("mixed", plain("See below."), f"Content-Type: message/rfc822\n{how}\n{message}"))
    head = "## First\n\nFrom: eve@example.org\nDate: Mon, 3 Nov 2025 10:00:00 +0000"
    assert (found.text, found.warnings) == (f"{SHOWN}See below.\n\n{head}\n\n{MAY}", [])


def test_attachments_are_counted_and_a_plain_body_becomes_no_markdown() -> None:
    calendar = "Content-Type: text/calendar; method=REQUEST\n\nBEGIN:VCALENDAR\n"
    found = read_mail(many("mixed", plain("one"), attached(), attached("application/pdf", "inline"), calendar))
    assert found.text == SHOWN + "one"
    assert [(each.code, each.message[:2]) for each in found.warnings] == [("attachments_left_out", "3 ")]
    assert read_mail(many("alternative", plain(MAY), html(MAY), calendar)).warnings == []
    signature = "-----BEGIN PGP SIGNATURE-----\nComment: a-b\niQEz\n-----END PGP SIGNATURE-----\n"
    sent = f"# not a heading\n#hash\n> # quoted\ntext\n====\n-- \n- item\n```\n   ~~~~\n{signature}end"
    shown = "\\# not a heading\n#hash\n> # quoted\ntext\n\\====\n\\-- \n- item\n\\```\n   \\~~~~\n\nend"
    assert read(HEAD + b"\n" + sent.encode()) == shown


SAVED = (
    "From: <Saved by Blink>\nSubject: =?utf-8?q?A_page?=\nDate: Mon, 3 Nov 2025 10:00:00 +0000\n"
    "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n"
    "--x\nContent-Type: text/html\nContent-ID: <frame@x>\nContent-Transfer-Encoding: quoted-printable\n\n"
    f"<html><head><title>Overview</title></head><body><h1>=C3=9Cberblick</h1><p class=3D'x'>{MAY}</p></body></html>\n"
    "--x\nContent-Type: text/css\nContent-Location: cid:css@x\n\nbody {{ }}\n"
    "--x\nContent-Type: text/html\nContent-Location: cid:frame-2@x\n\n<p>advertisement</p>\n--x--\n"
)


def test_a_saved_page_is_the_page_alone() -> None:
    page = read_mail(SAVED.encode())
    assert page.text == f"# Überblick\n\n{MAY}"
    assert (page.title, page.warnings) == ("Overview", [])


FROM = "From ada@example.org Mon Nov  3 10:00:00 2025\n"


def test_an_archive_is_its_messages_and_those_that_cannot_be_read_are_counted() -> None:
    data = (
        f"{FROM}Subject: One\nFrom: ada@example.org\n\nfirst\n>From here on\nFrom 10:00 on\n\nFrom there on\n\n"
        f"From - Mon Nov  3 10:00:00 2025\nX-Mozilla-Status: 0001\n\nsecond\n"
        f"From 1849@xxx Mon Nov 03 10:00:00 +0000 2025\nX-GM-THRID: 1\nSubject: Three\n\n\n"
    )
    shown = "# One\n\nFrom: ada@example.org\n\nfirst\nFrom here on\nFrom 10:00 on\n\nFrom there on\n\n"
    for text in (data, data.replace("\n", "\r\n"), "\ufeff\n" + data):
        assert is_mbox(text.encode())
        archive = read_mbox(text.encode())
        assert archive.text == f"{shown}# (no subject)\n\nsecond\n\n# Three"
        assert archive == read_mail(text.encode())
    secret = f"{FROM}Content-Type: application/pkcs7-mime\n\nMIAG\n"
    archive = read_mbox(f"{FROM}Subject: One\n\nfirst\n\n{secret}\n{FROM}Subject: Three\n\nthird\n".encode())
    assert archive.text == "# One\n\nfirst\n\n# Three\n\nthird"
    assert ("unread_parts", "1 ") in [(each.code, each.message[:2]) for each in archive.warnings]
    assert read(secret.encode()) == "<password_protected>"


IS_MAIL = {
    "\ufeff" + HEAD.decode(): True,
    "\n\n" + HEAD.decode().replace("\n", "\r\n"): True,
    "Return-Path: <a@b>\nDelivered-To: c@d\nReceived: from x by y;\n\tMon, 3 Nov 2025 10:00:00 +0000\n": True,
    "From a@example.org\nSubject: a\nFrom: a@example.org\n\nbody": True,
    "From: Ada\nTo: Bob\nA line of prose\n": False,
    "---\ntitle: a\nfrom: a@b\nto: c\ndate: 2025-11-03\n---\n\n# A\n": False,
    "HTTP/1.1 200 OK\nDate: Mon, 03 Nov 2025 10:00:00 GMT\nContent-Type: text/html\n\n<html>": False,
}


@pytest.mark.parametrize(("text", "expected"), IS_MAIL.items())
def test_what_is_mail(text: str, *, expected: bool) -> None:
    assert is_mail(text.encode()) is expected
    assert not is_mbox(text.encode())
