"""DOCX, of WordprocessingML written by hand and by python-docx, -> Markdown."""

import io

import docx as python_docx

from tasks.ingestion.parsing.archive import MAX_MEMBERS
from tasks.ingestion.parsing.docx import read_docx
from tests.document_files import CONTENT_TYPES, W, archive, docx, paragraph
from tests.unit.ingestion.parsing.files import outcome, relations

M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
RELATIONSHIPS = "word/_rels/document.xml.rels"
REFUNDS = "Refunds are paid within three days."


def text(body: str, parts: dict[str, str | bytes] | None = None) -> str:
    return outcome(read_docx, docx(body, parts))


def run(words: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{words}</w:t></w:r>'


def letter(name: str, words: str) -> str:
    return f"<m:{name}><m:r><m:t>{words}</m:t></m:r></m:{name}>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def cell(content: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>"


def test_a_document_as_word_writes_it() -> None:
    document = python_docx.Document()
    document.core_properties.title = "A title"
    document.add_heading("Top", 0)
    document.add_heading("Section", 2)
    document.add_paragraph("Words\tand\nmore.")
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Number")
    out = io.BytesIO()
    document.save(out)
    extracted = read_docx(out.getvalue())
    assert (extracted.title, extracted.structure, extracted.warnings) == ("A title", "markdown", [])
    assert extracted.text == "# Top\n\n## Section\n\nWords\tand\nmore.\n\n- one\n1. two"


def level(depth: int, form: str, label: str, style: str = "") -> str:
    shown = f'<w:start w:val="1"/><w:numFmt w:val="{form}"/><w:pStyle w:val="{style}"/><w:lvlText w:val="{label}"/>'
    return f'<w:lvl w:ilvl="{depth}">{shown}</w:lvl>'


def numbered(body: str, levels: str) -> str:
    numbering = f"""<w:numbering {W}><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>
      <w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>"""
    styles = f"""<w:styles {W}><w:style w:styleId="H1"><w:name w:val="heading 1"/>
      <w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>
      <w:style w:styleId="two"><w:name w:val="heading 2"/><w:basedOn w:val="H1"/></w:style>
      <w:style w:styleId="Mine"><w:name w:val="mine"/><w:basedOn w:val="two"/></w:style>
      <w:style w:styleId="Round"><w:name w:val="round"/><w:basedOn w:val="Round"/></w:style></w:styles>"""
    return text(body, {"word/numbering.xml": numbering, "word/styles.xml": styles})


def item(words: str, depth: int = 0) -> str:
    properties = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="1"/></w:numPr>'
    return f"<w:p><w:pPr>{properties}</w:pPr>{run(words)}</w:p>"


def test_headings_and_items_have_their_styles_and_numbers() -> None:
    levels = level(0, "decimal", "%1.", "H1") + level(1, "decimal", "%1.%2", "two") + level(2, "lowerLetter", "(%3)")
    body = (
        *(paragraph("Definitions", "H1"), paragraph("Words", "two"), paragraph("Term", "Mine")),
        *(paragraph("Payment", "H1"), item("Fees", 1), item("Late fees", 1), item("except in May", 2), item("June", 2)),
        *(item("Third", 1), item("again", 2), paragraph("c", "Round"), paragraph("d", "Gone")),
    )
    assert numbered("".join(body), levels) == (
        "# 1. Definitions\n\n## 1.1 Words\n\n## 1.2 Term\n\n# 2. Payment\n\n"
        "- 2.1 Fees\n- 2.2 Late fees\n  - (a) except in May\n  - (b) June\n- 2.3 Third\n  - (a) again\n\nc\n\nd"
    )
    for form, expected in {"decimal": "- Article 1 x", "upperRoman": "- Article I x", "bullet": "- x"}.items():
        assert numbered(item("x"), level(0, form, "Article %1")) == expected
    assert numbered(item("x") * 2, level(0, "decimal", "%1.")) == "1. x\n2. x"


MHTML = (
    'MIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"; type="text/html"\n\n--b\n'
    f"Content-Type: text/html\n\n<html><body><h1>Returns</h1><p class=x>{REFUNDS}</p></body></html>\n--b--\n"
)


def test_inserted_files_are_read_in_their_place() -> None:
    chunk = f'<w:sdt><w:sdtContent><w:altChunk {R} r:id="aFChunk"/></w:sdtContent></w:sdt>'
    for name, content, expected in (
        ("a.html", f"<html><h1>Returns</h1><p>{REFUNDS}</html>", f"# Returns\n\n{REFUNDS}"),
        ("a.mht", MHTML, f"# Returns\n\n{REFUNDS}"),
        ("a.docx", docx(table(cell(paragraph("a")) + cell(paragraph("b")))), "| a | b |\n| --- | --- |"),
        ("a.rtf", f"{{\\rtf1\\ansi {REFUNDS}\\par}}", REFUNDS),
    ):
        parts = {f"word/{name}": content, RELATIONSHIPS: relations(aFChunk=f"/word/{name}")}
        assert text(paragraph("Before") + chunk + paragraph("End"), parts) == f"Before\n\n{expected}\n\nEnd"


def test_text_in_controls_insertions_boxes_and_notes_is_read_and_deleted_text_is_not() -> None:
    box = f"<w:txbxContent>{paragraph('box')}</w:txbxContent>"
    body = f"""<w:sdt><w:sdtPr><w:alias w:val="no"/></w:sdtPr>
      <w:sdtContent>{paragraph("control")}</w:sdtContent></w:sdt>
      <w:p><w:ins>{run("inserted")}</w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>
      <w:moveFrom>{run("moved away")}</w:moveFrom><w:moveTo>{run(" moved here")}</w:moveTo></w:p>
      <w:p xmlns:mc="mc"><w:r><mc:AlternateContent><mc:Choice>{box}</mc:Choice>
      <mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r>{run("beside")}</w:p>
      <w:p><w:hyperlink>{run("link")}</w:hyperlink><w:r><w:instrText>PAGE</w:instrText></w:r>
      <w:fldSimple w:instr="DATE">{run(" today")}</w:fldSimple></w:p>"""
    parts: dict[str, str | bytes] = {
        "word/footnotes.xml": f"""<w:footnotes {W}><w:footnote w:type="separator">{paragraph("-")}</w:footnote>
          <w:footnote>{paragraph("note")}</w:footnote></w:footnotes>""",
        "word/comments9.xml": f"<w:comments {W}><w:comment>{paragraph('remark')}</w:comment></w:comments>",
        RELATIONSHIPS: relations(comments="comments9.xml"),
    }
    found = text(body, parts)
    assert found.split("\n\n") == ["control", "inserted moved here", "beside", "box", "link today", "note", "remark"]


EQUATIONS = {
    f"<m:f>{letter('num', 'a+b')}{letter('den', 'c')}</m:f>": "(a+b)/c",
    f"<m:sSubSup>{letter('e', 'x')}{letter('sub', 'i')}{letter('sup', 'n+1')}</m:sSubSup>": "x_i^(n+1)",
    f"<m:r><m:t>f</m:t></m:r><m:d>{letter('e', 'x')}{letter('e', 'y')}</m:d>": "f(x, y)",
    f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{letter("sub", "i")}{letter("e", "k")}</m:nary>': "∑_ik",
    f"<m:rad>{letter('deg', '3')}{letter('e', 'x+1')}</m:rad>": "√[3](x+1)",
}


def test_equations_tables_and_parts_without_text() -> None:
    lines = "".join(f"<w:p {M}>{run('Let ')}<m:oMath>{markup}</m:oMath></w:p>" for markup in EQUATIONS)
    assert text(lines).split("\n\n") == [f"Let {line}" for line in EQUATIONS.values()]
    body = table(
        cell(paragraph("a"), '<w:gridSpan w:val="2"/>') + cell(paragraph("b")),
        cell(paragraph("c"), '<w:vMerge w:val="restart"/>')
        + f"<w:sdt><w:sdtContent>{cell(paragraph('d') + paragraph('dd'))}</w:sdtContent></w:sdt>"
        + cell(paragraph("o") + table(cell(paragraph("i")) + cell(paragraph("j")))),
        "<w:trPr><w:del/></w:trPr>" + cell(paragraph("gone")),
        cell(paragraph(""), "<w:vMerge/>") + cell(paragraph("e|")) + cell(paragraph("")),
    )
    assert text(body) == "| a |  | b |\n| --- | --- | --- |\n| c | d dd | o i j |\n| c | e\\| |"
    body = f"""{paragraph("words " * 100)}<w:p><w:r><w:object><OLEObject ProgID="Excel.Sheet.12"/></w:object></w:r>
      <w:r><w:drawing><blip/></w:drawing></w:r><w:r><w:drawing><chart/></w:drawing></w:r>
      <w:r><w:sym w:font="Symbol" w:char="F062"/><w:sym w:font="Odd" w:char="F021"/><w:sym/></w:r></w:p><w:subDoc/>"""
    found = read_docx(docx(body))
    assert found.text.endswith("\n\nβ")
    assert {each.code: each.message.partition("(")[2].partition(")")[0] for each in found.warnings} == {
        "charts_left_out": "1 chart",
        "objects_left_out": "1 embedded object",
        "unread_parts": "1 linked document, 2 symbols",
    }


GOOD = docx(paragraph("words " * 500))
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
ENTITIES = [f'<!ENTITY l0 "ha">{LAUGHS}', '<!ENTITY l9 SYSTEM "file:///etc/hostname">']


def test_damaged_hostile_and_deep() -> None:
    for corrupt in (
        GOOD[: len(GOOD) // 2],
        GOOD.replace(b"PK\x01\x02", b"PK\x01\x03", 1),
        archive({CONTENT_TYPES: "", "word/styles.xml": "<x/>"}),
        docx("<w:sdt>" * 5000 + paragraph("x") + "</w:sdt>" * 5000),
        *(docx(paragraph("&l9;"), before=f"<!DOCTYPE x [{each}]>") for each in ENTITIES),
    ):
        assert outcome(read_docx, corrupt) == "<corrupt_document>"
    assert text(paragraph(" ")) == "<no_text>"
    assert text(paragraph("x"), {str(n): "" for n in range(MAX_MEMBERS)}) == "<document_too_large>"
    assert text("<w:sdt>" * 200 + paragraph("x") + "</w:sdt>" * 200) == "x"


def test_a_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = docx(f"<w:p><w:r><w:t>{' ' * 8_000_000}x</w:t></w:r></w:p>")
    assert len(bomb) < 100_000
    assert outcome(read_docx, bomb) == "<document_too_large>"


def test_what_is_said_once_is_not_written_a_thousand_times() -> None:
    long = "word " * 20_000
    rows = cell(paragraph(long), '<w:vMerge w:val="restart"/>') + cell(paragraph("a"))
    below = cell(paragraph(""), "<w:vMerge/>") + cell(paragraph("b"))
    assert len(text(table(rows, *[below] * 2000))) < 2 * len(long)
    assert len(numbered(item("x") * 2000, level(0, "decimal", long))) < 20_000 * 20
