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
JAPANESE = "契約は五月に終わります。手数料は三日以内に支払われます。"
HEBREW = "שלום עולם"


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
        ('text/plain; charset=""', "utf-8", GERMAN),
        ("text/plain; charset=x-unknown", "cp1252", GERMAN),
        ("text/plain; charset=us-ascii", "utf-8", GERMAN),
        ("text/plain; charset=iso-8859-1", "cp1252", GERMAN),
        ("text/plain; charset=iso-8859-1", "utf-8", GERMAN),
        ("text/plain; charset=utf-8", "cp1252", GERMAN),
        ('TEXT/PLAIN;\n CHARSET = "ISO-8859-15"', "iso-8859-15", GERMAN),
        ("text/plain; charset*=us-ascii'en'iso-8859-15", "iso-8859-15", GERMAN),
        ("text/plain; charset=windows-1251; format=flowed", "cp1251", RUSSIAN),
        ("text/plain", "koi8-r", RUSSIAN),
        ("text/plain; charset=ISO-2022-JP", "iso2022_jp", JAPANESE),
        ("text/plain; charset=x-sjis", "cp932", JAPANESE),
        ("text/plain; charset=gb2312", "gb18030", "合同五月到期 費用為五€"),
        ("text/plain; charset=iso-8859-8-i", "iso-8859-8", HEBREW),
        ("text/plain; charset=utf-7", "utf-7", GERMAN),
        ("text/plain; charset=utf-16le", "utf-16-le", RUSSIAN),
        ("text/plain; charset=idna", "cp1252", GERMAN),
    ],
)
def test_a_body_is_decoded(kind: str, encoding: str, text: str) -> None:
    head, body = HEAD + (f"Content-Type: {kind}\n" if kind else "").encode(), text.encode(encoding)
    assert read(head + b"\n" + body) == text
    assert read(head + b"Content-Transfer-Encoding: BASE64\n\n" + base64.encodebytes(body)) == text


@pytest.mark.parametrize(
    ("encoding", "body", "text"),
    [
        ("base64", b"VEhFIENPTlRSQUNUIEVO\n!RFMgSU4gTUFZ\n\n", MAY),
        ("base64", b"VEhFIENPTlRSQUNUIEVORFMgSU4gTUE", MAY[:-1]),
        ("Quoted-Printable ", b"100 =ZZ =", "100 =ZZ"),
        ("binary", MAY.encode(), MAY),
    ],
)
def test_a_body_is_unpacked(encoding: str, body: bytes, text: str) -> None:
    assert read(HEAD + f"Content-Transfer-Encoding: {encoding}\n\n".encode() + body).rstrip() == text


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ("=?utf-8?B?w5xiZXIgS8Ok?=\n =?utf-8?B?c2U=?=", "Über Käse"),
        ("=?utf-8?B?w5xiZXIgS8M=?=\n =?utf-8?B?pHNl?=", "Über Käse"),
        ("Re: =?iso-8859-1?q?=DCber?= alles =?utf-8?q?K=C3=A4se?=", "Re: Über alles Käse"),
        ("=?x-unknown?q?=DCber_K=E4se?=", "Über Käse"),
        ("=?iso-2022-jp?B?GyRCN0BMcxsoQg==?=", "契約"),
        ("Über Käse", "Über Käse"),
        ("folded\n\tsubject", "folded subject"),
        ("=?utf-8?b?!?=x", "x"),
    ],
)
def test_subjects(subject: str, text: str) -> None:
    result = read_mail(f"Subject: {subject}\nFrom: a@example.org\n\nbody".encode())
    assert (result.title, result.text) == (text, f"# {text}\n\nFrom: a@example.org\n\nbody")


LONG = MAY + " and so on" * 20
PGP = attached("application/octet-stream")
PARTS = [
    (many("alternative", plain(MAY), html("other")), MAY),
    (many("alternative", plain(" \n"), html(MAY)), MAY),
    (many("alternative", plain("Please view this in HTML."), html(LONG)), LONG),
    (many("mixed", plain("See the picture."), attached(), plain(MAY)), f"See the picture.\n\n{MAY}"),
    (many("mixed", plain("one"), html(MAY)), f"one\n\n{MAY}"),
    (many("mixed", plain("one"), "Content-Type: text/x-diff\n\n-a\n+b\n"), "one\n\n-a\n+b"),
    (many("related", html(MAY), attached().replace("Content-Disp", "Content-ID: <1>\nContent-Disp")), MAY),
    (many("signed", plain(MAY), attached("application/pkcs7-signature")), MAY),
    (many("report; report-type=x", plain(MAY), "Content-Type: message/delivery-status\n\nX: y\n"), MAY),
    (many("mixed", plain("one"), f"Content-Type: message/news\n\nSubject: News\n\n{MAY}"), f"one\n\n## News\n\n{MAY}"),
    (many("nonsense", plain("one"), plain(MAY)), f"one\n\n{MAY}"),
    (HEAD + b"Content-Type: multipart/mixed; boundary=b\n\nno boundary at all", "no boundary at all"),
]
REFUSED = [
    (many("encrypted", "Content-Type: application/pgp-encrypted\n\nVersion: 1\n", PGP), "<password_protected>"),
    (HEAD + b"Content-Type: application/x-pkcs7-mime; name=smime.p7m\n\nMIAGCS\n", "<password_protected>"),
    (HEAD + b"\n-----BEGIN PGP MESSAGE-----\n\nhQEMA\n-----END PGP MESSAGE-----\n", "<password_protected>"),
    (b"From: a@example.org\nTo: b@example.org\n\n \n", "<no_text>"),
    (b"From: a@example.org\nContent-Type: text/html\n\n<html><body></body></html>", "<no_text>"),
    (b"From: a@example.org\nContent-Type: image/png\n\nabc", "<no_text>"),
    (b"From: a@example.org\n\n\x01\x02\x03", "<no_text>"),
    (b"From a@b Mon Nov  3 10:00:00 2025\nFrom: a@b\n\n", "<no_text>"),
]
MULTIPART = b"Content-Type: multipart/mixed; boundary=b\n\n"
HOSTILE = [
    (HEAD + b"Content-Type: text/plain; " + b"; ".join(b'a%d="b"' % n for n in range(20_000)) + b"\n\nbody", "body"),
    (HEAD + b"Reply-To: " + b"=?utf-8?q?=C3=A4?= " * 20_000 + b"\n\nbody", "body"),
    (HEAD + b"X: y\n" * 20_000 + b"\nbody", "body"),
    (HEAD + b"Content-Type: text/plain; charset=punycode\n\n" + b"a-" + b"zz" * 50_000, "a-" + "zz" * 50_000),
    (HEAD + (MULTIPART + b"--b\n\nx\n--b\n") * 150 + b"\nend", "x"),
    (HEAD + b"".join(b"Content-Type: message/rfc822\n\nSubject: x\n" for _ in range(2000)), "<corrupt_document>"),
    (HEAD + MULTIPART + b"--b\n\nx\n" * 5_001, "<document_too_large>"),
]


@pytest.mark.parametrize(("data", "text"), [*PARTS, *REFUSED])
def test_which_parts_are_read(data: bytes, text: str) -> None:
    assert read(data) == text


@pytest.mark.parametrize(("data", "text"), HOSTILE)
def test_hostile_headers_and_nesting_end(data: bytes, text: str) -> None:
    assert read(data).startswith(text)


@pytest.mark.parametrize("how", ["", "Content-Disposition: attachment; filename=a.eml\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_forwarded_message_has_its_own_head(how: str, *, packed: bool) -> None:
    message = f"Subject: First\nFrom: eve@example.org\nDate: Mon, 3 Nov 2025 10:00:00 +0000\n\n{MAY}\n"
    if packed:
        how += "Content-Transfer-Encoding: base64\n"
        message = base64.encodebytes(message.encode()).decode()
    data = many("mixed", plain("See below."), f"Content-Type: message/rfc822\n{how}\n{message}")
    expected = "## First\n\nFrom: eve@example.org\nDate: Mon, 3 Nov 2025 10:00:00 +0000"
    assert read(data) == f"See below.\n\n{expected}\n\n{MAY}"
    assert read_mail(data).warnings == []


def test_attachments_are_counted_without_their_names() -> None:
    calendar = "Content-Type: text/calendar; method=REQUEST\n\nBEGIN:VCALENDAR\n"
    found = read_mail(many("mixed", plain("one"), attached(), attached("application/pdf", "inline"), calendar))
    assert found.text == SHOWN + "one"
    assert [(each.code, each.message[:2]) for each in found.warnings] == [("attachments_left_out", "3 ")]
    assert read_mail(many("alternative", plain(MAY), html(MAY), calendar)).warnings == []


def test_a_plain_body_becomes_no_markdown() -> None:
    lines = [
        "# not a heading", "#hash", "> # quoted", "text", "====", "-- ", "- item", "```", "   ~~~~", "#include <a>",
        "-----BEGIN PGP SIGNATURE-----", "Comment: a-b", "iQEz", "-----END PGP SIGNATURE-----", "end",
    ]  # fmt: skip
    assert read(HEAD + b"\n" + "\n".join(lines).encode()).split("\n") == [
        "\\# not a heading", "#hash", "> # quoted", "text", "\\====", "\\-- ", "- item", "\\```", "   \\~~~~",
        "#include <a>", "", "end",
    ]  # fmt: skip


SAVED = (
    "Subject: =?utf-8?q?A_page?=\nDate: Mon, 3 Nov 2025 10:00:00 +0000\nMIME-Version: 1.0\n"
    'Content-Type: multipart/related;\n\ttype="text/html";\n\tboundary="----M--x----"\n\n'
    "------M--x----\nContent-Type: text/html\nContent-ID: <frame@x>\nContent-Transfer-Encoding: quoted-printable\n"
    "Content-Location: https://example.org/\n\n<html><head><title>Overview</title></head><body><h1>=C3=9Cberblick</h1>"
    f"<p class=3D'x'>{MAY}</p></body></html>\n"
    "------M--x----\nContent-Type: text/css\nContent-Location: cid:css@x\n\nbody {{ }}\n"
    "------M--x----\nContent-Type: text/html\nContent-Location: cid:frame-2@x\n\n<p>advertisement</p>\n"
    "------M--x------\n"
)


@pytest.mark.parametrize("head", ["From: <Saved by Blink>\nSnapshot-Content-Location: https://example.org/\n", ""])
def test_a_saved_page_is_the_page_alone(head: str) -> None:
    page = read_mail((head + SAVED).encode())
    assert page.text == f"# Überblick\n\n{MAY}"
    assert (page.title, page.warnings) == ("Overview", [])


FROM = "From ada@example.org Mon Nov  3 10:00:00 2025\n"


def test_an_archive_is_its_messages() -> None:
    data = (
        f"{FROM}Subject: One\nFrom: ada@example.org\n\nfirst\n>From here on\nFrom 10:00 on\n\nFrom there on\n\n"
        f"From - Mon Nov  3 10:00:00 2025\nX-Mozilla-Status: 0001\n\nsecond\n"
        f"From 1849@xxx Mon Nov 03 10:00:00 +0000 2025\nX-GM-THRID: 1\nSubject: Three\n\n\n"
    )
    for text in (data, data.replace("\n", "\r\n"), "\ufeff\n" + data):
        assert is_mbox(text.encode())
        archive = read_mbox(text.encode())
        assert archive.text.split("\n\n") == [
            "# One", "From: ada@example.org", "first\nFrom here on\nFrom 10:00 on", "From there on", "# (no subject)",
            "second", "# Three",
        ]  # fmt: skip
        assert (archive.title, archive == read_mail(text.encode())) == (None, True)


def test_messages_of_an_archive_that_cannot_be_read_are_counted() -> None:
    secret = f"{FROM}Content-Type: application/pkcs7-mime\n\nMIAG\n"
    archive = read_mbox(f"{FROM}Subject: One\n\nfirst\n\n{secret}\n{FROM}Subject: Three\n\nthird\n".encode())
    assert archive.text == "# One\n\nfirst\n\n# Three\n\nthird"
    assert ("unread_parts", "1 ") in [(each.code, each.message[:2]) for each in archive.warnings]
    assert read(secret.encode()) == "<password_protected>"


@pytest.mark.parametrize(
    "head",
    [
        b"\xef\xbb\xbf" + HEAD,
        b"\n\n" + HEAD.replace(b"\n", b"\r\n"),
        b"Return-Path: <a@b>\nDelivered-To: c@d\nReceived: from x by y;\n\tMon, 3 Nov 2025 10:00:00 +0000\n",
        b"Subject: a\nFrom: a@example.org\n\nbody",
        b"From a@example.org\nSubject: a\nFrom: a@example.org\n\nbody",
        SAVED.encode(),
    ],
)
def test_what_is_mail(head: bytes) -> None:
    assert is_mail(head)
    assert not is_mbox(head)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "From: Ada\nTo: Bob\nA line of prose\n",
        "From: the office\nTo: all staff\nSubject: party\n\nCome.",
        "---\ntitle: a\nfrom: a@b\nto: c\ndate: 2025-11-03\n---\n\n# A\n",
        "title: a\nfrom: a@b\nto: c@d\nsubject: x\n\n",
        "Title: My post\nDate: 2010-12-03 10:20\nCategory: Python\nAuthor: a@b\n\nText",
        "HTTP/1.1 200 OK\nDate: Mon, 03 Nov 2025 10:00:00 GMT\nContent-Type: text/html\n\n<html>",
        '10.0.0.1 - - [03/Nov/2025:10:00:00 +0000] "GET / HTTP/1.1" 200\n' * 3,
        "Metadata-Version: 2.1\nName: embedq\nAuthor-Email: a@b\nRequires-Dist: x\n\n",
        "From,To,Subject\na@b,c@d,x\n",
    ],
)
def test_what_is_no_mail(text: str) -> None:
    assert not is_mail(text.encode())
    assert not is_mbox(text.encode())
