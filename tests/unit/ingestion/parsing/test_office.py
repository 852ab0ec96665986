"""Presentations, texts, books and messages: file -> Markdown, what is said to be missing, and what is refused."""

# ruff: noqa: E501 - tables of files and their texts

import struct
from collections.abc import Callable, Mapping

import pytest

from tasks.ingestion.parsing.epub import read_epub
from tasks.ingestion.parsing.extracted import Extracted
from tasks.ingestion.parsing.opendocument import read_odt
from tasks.ingestion.parsing.outlook import read_msg
from tasks.ingestion.parsing.restructured import read_rst
from tasks.ingestion.parsing.rich_text import read_rtf
from tasks.ingestion.parsing.slides import read_pptx
from tests.document_files import archive as zipped
from tests.unit.ingestion.parsing.files import compound_file, damaged, outcome, relations, warnings

# Office files have two sets of namespaces, OpenDocument several: readers look at none of them.
_NAMES = " ".join(f'xmlns:{name}="{name}"' for name in ("a", "p", "r", "mc", "c", "dgm"))


def _pptx(*slides: str, parts: dict[str, str | bytes] | None = None, **related: str) -> bytes:
    """Slides of these shapes; they stand in the file in reverse, and `related` belongs to each."""
    order = range(1, len(slides) + 1)
    entries = "".join(f'<p:sldId id="{255 + number}" r:id="slide{number}"/>' for number in order)
    members: dict[str, str | bytes] = {
        "_rels/.rels": relations(officeDocument="ppt/presentation.xml"),
        "ppt/presentation.xml": f"<p:presentation {_NAMES}><p:sldIdLst>{entries}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(**{f"slide{n}": f"slides/s{100 - n}.xml" for n in order}),
    }
    for number in reversed(order):
        members[f"ppt/slides/s{100 - number}.xml"] = f"<p:sld {_NAMES}>{slides[number - 1]}</p:sld>"
        members[f"ppt/slides/_rels/s{100 - number}.xml.rels"] = relations(**related)
    return zipped(members | (parts or {}))


def _shape(*paragraphs: str, kind: str | None = None) -> str:
    place = "" if kind is None else f'<p:ph type="{kind}"/>' if kind else "<p:ph/>"
    inside = "".join(text if text.startswith("<a:p") else f"<a:p>{_run(text)}</a:p>" for text in paragraphs)
    return f"<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody>{inside}</p:txBody></p:sp>"


def _item(text: str, level: int, mark: str = "") -> str:
    return f'<a:p><a:pPr lvl="{level}">{mark}</a:pPr>{_run(text)}</a:p>'


def _run(text: str, baseline: int = 0) -> str:
    return f'<a:r><a:rPr baseline="{baseline}"/><a:t>{text}</a:t></a:r>'


_PICTURE = "<p:pic><p:nvPicPr/></p:pic>"
_AUTO = "<a:buAutoNum type='arabicPeriod'/>"
_CELLS = "".join(f"<a:tc><a:txBody><a:p>{_run(text)}</a:p></a:txBody></a:tc>" for text in ("Item", "Days"))
_TABLE = f"<p:graphicFrame><a:tbl><a:tr>{_CELLS}</a:tr><a:tr><a:tc/><a:tc/></a:tr></a:tbl></p:graphicFrame>"
_SLIDES = [
    (_shape("Body") + _shape("Quarterly", "review", kind="ctrTitle"), "## Quarterly review\n\nBody"),
    (_shape("one", _item("two", 1), "three", kind=""), "## Slide 1\n\n- one\n  - two\n- three"),
    (_shape(_item("a", 0, _AUTO), _item("b", 0, _AUTO), _item("c", 0)), "## Slide 1\n\n1. a\n2. b\n\nc"),
    (f"<p:grpSp><p:grpSp>{_shape('deep')}</p:grpSp>{_shape('in a group')}</p:grpSp>", "## Slide 1\n\ndeep\n\nin a group"),
    (_TABLE, "## Slide 1\n\n| Item | Days |\n| --- | --- |"),
    (_shape(f"<a:p>{_run('10')}{_run('-', 30000)}{_run('6', 30000)}{_run(' x', 0)}{_run('1', -25000)}</a:p>"), "## Slide 1\n\n10^-6 x_1"),
    (_shape("```", "# no heading") + _shape("a", "```", kind=""), "## Slide 1\n\n\\```\n\n\\# no heading\n\n- a\n- \\```"),
]  # fmt: skip


def test_slides_are_pages_with_notes_and_diagrams_and_what_is_left_out_is_said() -> None:
    found = read_pptx(_pptx(_shape("First", kind="title"), "", _shape("Third", kind="title")))
    assert found.text == "## First\n\n## Third"
    assert (len(found.pages), found.text[found.pages[2] :]) == (3, "## Third")
    parts: dict[str, str | bytes] = {
        "ppt/notes.xml": f"<p:notes {_NAMES}>{_shape('9', kind='sldNum')}{_shape('Say this', kind='body')}</p:notes>",
        "ppt/diagrams/data1.xml": f"<dgm:dataModel {_NAMES}>{_item('Plan', 0)}{_item('Do', 0)}</dgm:dataModel>",
        "docProps/core.xml": '<c:p xmlns:c="c" xmlns:dc="dc"><dc:title>Deck</dc:title></c:p>',
    }
    related = {"notesSlide": "../notes.xml", "diagramData": "/ppt/diagrams/data1.xml", "comments": "../c.xml"}
    shapes = '<p:graphicFrame><dgm:relIds r:dm="diagramData"/></p:graphicFrame><c:chart/><p:oleObj/>'
    found = read_pptx(_pptx(shapes, parts=parts, **related))
    assert (found.text, found.title) == ("## Slide 1\n\n- Plan\n- Do\n\nSay this", "Deck")
    codes = ["charts_left_out", "unread_parts", "objects_left_out"]
    assert [(warning.code, warning.pages) for warning in found.warnings] == [(code, (1,)) for code in codes]
    slides = [_shape("text"), _PICTURE, "", *[_PICTURE] * 200]
    [warning] = read_pptx(_pptx(*slides, *[_shape("text")] * 200)).warnings
    assert (warning.code, warning.pages[:3], len(warning.pages)) == ("pages_without_text", (2, 4, 5), 100)
    assert "201" in warning.message
    assert outcome(read_pptx, _pptx(*slides)) == "<no_text>"


_ODF_NAMES = " ".join(f'xmlns:{name}="{name}"' for name in ("office", "text", "table", "draw", "style", "xlink"))
_STYLES = (
    '<text:list-style style:name="N"><text:list-level-style-number text:level="1" style:num-format="1"/>'
    '<text:list-level-style-bullet text:level="2"/></text:list-style>'
    '<style:style style:name="U"><style:text-properties style:text-position="super 58%"/></style:style>'
    '<style:style style:name="D"><style:text-properties style:text-position="-33% 58%"/></style:style>'
)
_LOCKED = "<m><encryption-data/></m>"


def _odt(body: str, extra: dict[str, str | bytes] | None = None) -> bytes:
    content = (
        f"<office:document-content {_ODF_NAMES}><office:automatic-styles>{_STYLES}</office:automatic-styles><office:body>"
        f"<office:text>{body}</office:text></office:body></office:document-content>"
    )
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content, **(extra or {})})


def _p(text: str) -> str:
    return f"<text:p>{text}</text:p>"


def _list(*items: str, style: str = "") -> str:
    inside = "".join(f"<text:list-item>{item}</text:list-item>" for item in items)
    return f'<text:list text:style-name="{style}">{inside}</text:list>'


def _row(*cells: str) -> str:
    inside = "".join(f"<table:table-cell>{cell}</table:table-cell>" for cell in cells)
    return f"<table:table-row>{inside}</table:table-row>"


_TEXTS = [
    ('<text:h text:outline-level="2">Late <text:span>fees</text:span></text:h>' + _p("None."), "## Late fees\n\nNone."),
    (_list(_p("one"), _p("two") + _p("more") + _list(_p("deep")), _p("three"), style="N"), "1. one\n2. two\n   more\n   - deep\n3. three"),
    (f"<table:table><table:table-header-rows>{_row(_p('Item'), _p('Days') + _p('(work)'))}</table:table-header-rows>{_row('', _p('3'))}</table:table>",
     "| Item | Days (work) |\n| --- | --- |\n|  | 3 |"),
    ('<table:table><table:table-row><table:table-cell table:number-columns-spanned="2">' + _p("a") + "</table:table-cell>"
     "<table:covered-table-cell/></table:table-row>" + _row(_p("b"), _p("c")) + "</table:table>", "| a |  |\n| --- | --- |\n| b | c |"),
    (f"<text:tracked-changes><text:deletion>{_p('gone')}</text:deletion></text:tracked-changes>" + _p("kept<text:change-start/> and new"), "kept and new"),
    (_p(f"Refunds<text:note><text:note-citation>1</text:note-citation><text:note-body>{_p('In May.')}</text:note-body></text:note> are paid") + _p("End."),
     "Refunds[1] are paid\n\nEnd.\n\n[1] In May."),
    (_p(f"Beside<draw:frame><draw:text-box>{_p('a box')}</draw:text-box></draw:frame>") + _p("End."), "Beside\n\na box\n\nEnd."),
    (f"<text:section>{_p('within')}</text:section><text:table-of-content>{_p('within 1')}</text:table-of-content>", "within"),
]  # fmt: skip


def test_odt_title_and_embedded_documents() -> None:
    meta = f'<office:document-meta {_ODF_NAMES}><dc:title xmlns:dc="d"> Terms </dc:title></office:document-meta>'
    objects = "".join(f'<draw:object xlink:href="./Object {n}"/><draw:image/>' for n in (1, 2))
    body = _p(
        f"The sales of the year<office:annotation>{_p('a comment')}</office:annotation>{objects}<draw:object-ole/>"
    )
    chart = "<office:body><office:chart/></office:body>"
    found = read_odt(_odt(body, {"meta.xml": meta, "Object 2/content.xml": chart}))
    assert (found.text, found.title) == ("The sales of the year", "Terms")
    note = _p("deepest")
    for _ in range(60):  # twice each, the suite's time limit would end this
        note = _p(f"<text:note><text:note-body>{note}</text:note-body></text:note>")
    assert read_odt(_odt(note)).text.count("deepest") == 1
    assert warnings(found) == [
        ("charts_left_out", "Not read: chart (1)"),
        ("objects_left_out", "Not read: embedded document (2)"),
        ("unread_parts", "Not read: comment (1)"),
    ]


def _epub(chapters: dict[str, str], spine: str = '<itemref idref="i0"/>', locked: str = "") -> bytes:
    items = "".join(
        f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(chapters)
    )
    package = (
        '<!DOCTYPE package PUBLIC "+//ISBN 0-9673008-1-9//DTD OEB 1.2 Package//EN" "x.dtd">'
        f"<package><metadata><title>Moby\nDick</title></metadata><manifest>{items}<item id='nav' href='nav.xhtml' "
        f"properties='nav' media-type='application/xhtml+xml'/></manifest><spine><itemref idref='nav'/>{spine}</spine></package>"
    )
    encryption = f'<x><EncryptedData><CipherReference URI="{locked}"/></EncryptedData></x>'
    return zipped({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfile full-path="OPS/book.opf"/></container>',
        "META-INF/encryption.xml": encryption,
        "OPS/book.opf": package,
        "OPS/nav.xhtml": _page("Contents"),
        **{f"OPS/{name.replace('%20', ' ')}": text for name, text in chapters.items()},
    })  # fmt: skip


def _page(text: str) -> str:
    return f"<html><head><title>t</title></head><body><h1>{text}</h1><p>About {text}.</p></body></html>"


def test_epub_in_the_order_of_reading_with_scrambled_fonts() -> None:
    spine = '<itemref idref="i1"/><itemref idref="i0" linear="no"/><itemref idref="i1"/>'
    chapters = {"text/b%20b.xhtml": _page("Second"), "a.xhtml": _page("First")}
    found = read_epub(_epub(chapters, spine, locked="OPS/fonts/serif.otf"))
    assert found.text == "# First\n\nAbout First.\n\n# Second\n\nAbout Second."
    assert (found.title, found.warnings) == ("Moby Dick", [])


def _rtf(body: str) -> bytes:
    fonts = (
        r"{\fonttbl{\f0\fswiss\fcharset0 Arial;}{\f1\fcharset204{\*\fname x;}Arial Cyr;}{\f2\fcharset128 MS Mincho;}}"
    )
    return (r"{\rtf1\ansi\ansicpg1252\deff0" + fonts + body + "}").encode("latin-1")


_RTF = [
    (r"Gr\'fc\'dfe\par aus K\u246\'f6ln", "Grüße\n\naus Köln"),
    (r"\f1 \'c4\'ee\'e3\'ee\'e2\'ee\'f0\f0  \'e9", "Договор é"),
    (r"\trowd\pard\intbl Item\cell Days\par(work)\cell\row\intbl Refund\cell 3\cell\row\pard After",
     "| Item | Days (work) |\n| --- | --- |\n| Refund | 3 |\n\nAfter"),
    (r"Refunds{\footnote\pard\plain In May.\par} are paid\par End{\*\footnote of June}",
     "Refunds[1] are paid\n\n[1] In May.\n\nEnd[2]\n\n[2] of June"),
    (r"{\shp{\*\shpinst{\sp{\sn x}{\sv 1}}{\shptxt a box\par}}{\shprslt a box}}Beside", "Beside\n\na box"),
    (r"{\header Page 3}{\info{\title Terms of sale}{\author Ada}}{\stylesheet{\s1\outlinelevel0 heading 1;}}Text", "Text"),
    (r"{\*\shppict{\pict\pngblip\bin6 }}{\\}}}the rest of what it says{\pict 89504e47}", "the rest of what it says"),
    (r"10{\super -6} x{\sub 1}, H\sub 2\nosupersub O, 2\super 3\plain x", "10^-6 x_1, H2O, 2^3x"),
]  # fmt: skip
_RST = [
    ("=====\nTerms\n=====\n\nLate fees\n=========\n\nNone\n----\n\n\n\ntext\n\nRefunds\n=======\n",
     "# Terms\n\n## Late fees\n\n### None\n\ntext\n\n## Refunds"),
    ("So::\n\n    def f():\n        pass\n\nend", "So:\n\n```\ndef f():\n    pass\n```\n\nend"),
    (".. note:: Refunds\n   are paid\n\n   .. code::\n\n      x\n\n   in May\n\nend",
     "Note: Refunds\n   are paid\n\n```\nx\n```\n\n   in May\n\nend"),
    (".. _terms:\n\n.. a comment\n   goes on\n\n.. image:: a.png\n   :alt: The port\n   :width: 3\n\ntext", "The port\n\ntext"),
    ("==== ====\nItem Days\n==== ====\nTea  3\n==== ====", "==== ====\nItem Days\n==== ====\nTea  3\n==== ===="),
]  # fmt: skip


def _msg(streams: Mapping[str, str | bytes]) -> bytes:
    """Properties by tag; text is written as UTF-16, bytes as 8-bit text or, where that is HTML, as it is."""
    named = {}
    for tag, value in streams.items():
        folder, slash, name = tag.rpartition("/")
        kind = "001F" if isinstance(value, str) else "0102" if name in {"1013", "1009"} else "001E"
        raw = value.encode("utf-16-le") if isinstance(value, str) else value
        named[f"{folder}{slash}__substg1.0_{name}{kind}"] = raw
    pages = [struct.pack("<IIII", tag, 6, 1252, 0) for tag in (0x3FFD0003, 0x3FDE0003)]
    sent = struct.pack("<IIQ", 0x00390040, 6, 133_590_330_000_000_000)  # since 1601, in tenths of microseconds
    return compound_file(named | {"__properties_version1.0": b"\0" * 32 + b"".join(pages) + sent})


_MAIL: dict[str, str | bytes] = {
    "0037": "Re: Grüße", "1000": "Hallo,\r\nbis Mai.", "0C1A": "Ada", "0C1F": "ada@x.org", "0E04": "Grace; Bob",
    "1013": b"no",
}  # fmt: skip


def test_msg() -> None:
    found = read_msg(_msg(_MAIL))
    assert found.text == (
        "# Re: Grüße\n\nFrom: Ada <ada@x.org>\nTo: Grace; Bob\nDate: 2024-05-01 10:30 UTC\n\nHallo,\nbis Mai."
    )
    assert (found.title, found.warnings) == ("Re: Grüße", [])
    folder = "__attach_version1.0_#0000000"
    attached = {f"{folder}0/3707": "contract.pdf", f"{folder}1/3712": "logo@x", f"{folder}1/370E": "image/png"}
    found = read_msg(_msg({"0037": "Contract", "1000": "See there.", "1009": b"LZFu", **attached}))
    assert [(warning.code, "(1)" in warning.message) for warning in found.warnings] == [("attachments_left_out", True)]
    assert not read_msg(_msg({"0037": "Contract"})).warnings


@pytest.mark.parametrize(
    ("read", "data", "expected"),
    [
        *((read_pptx, _pptx(shapes), text) for shapes, text in _SLIDES),
        *((read_odt, _odt(body), text) for body, text in _TEXTS),
        *((read_rtf, _rtf(body), text) for body, text in _RTF),
        *((read_rst, body.encode(), text) for body, text in _RST),
        (read_pptx, _pptx(_PICTURE), "<no_text>"),
        (read_odt, zipped({"META-INF/manifest.xml": _LOCKED, "content.xml": b"\x93\x12"}), "<password_protected>"),
        (read_epub, _epub({"a b.xhtml": _page("First")}, locked="OPS/a%20b.xhtml"), "<password_protected>"),
        (read_epub, _epub({"a.xhtml": "<html><body><img/></body></html>"}), "<no_text>"),
        (read_rtf, b"{\\rtf1" + b"{" * 100_000, "<corrupt_document>"),
        (read_msg, _msg({"0037": "Contract", "001A": "IPM.Note.SMIME"}), "<password_protected>"),
        (read_msg, _msg({"0037": "Contract", "1009": b"LZFu"}), "<no_text>"),
        (read_msg, _msg({"0037": "Contract"})[:2000], "<corrupt_document>"),
        (read_rst, b".. image:: a.png\n", "<no_text>"),
    ],
)  # fmt: skip
def test_a_file(read: Callable[[bytes], Extracted], data: bytes, expected: str) -> None:
    assert outcome(read, data) == expected


_WHOLE: dict[str, tuple[Callable[[bytes], Extracted], bytes]] = {
    "pptx": (read_pptx, _pptx(_shape("Terms", kind="title"))),
    "odt": (read_odt, _odt(_p("Terms"))),
    "epub": (read_epub, _epub({"a.xhtml": _page("First")})),
    "rtf": (read_rtf, _rtf(r"{\f1 \'c4}\u8364?{\footnote x}\par\trowd\intbl a\cell\row")),
    "msg": (read_msg, _msg({"0037": "Contract", "1000": b"text"})),
}


@pytest.mark.parametrize("name", _WHOLE)
def test_damage_anywhere_is_a_refusal_in_our_words(name: str) -> None:
    read, data = _WHOLE[name]
    for each in damaged(data):
        assert outcome(read, each) not in {"<missing_parser>", "<empty_document>"}
