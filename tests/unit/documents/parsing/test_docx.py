"""DOCX, of WordprocessingML written by hand and by python-docx."""

import io
import zipfile

import docx as python_docx
import pytest

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.docx import MAX_ENTRIES, parse_docx
from tests.document_files import CONTENT_TYPES, W, archive, docx, paragraph, shown

M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'


def code(data: bytes) -> str:
    with pytest.raises(DocumentFailed) as failed:
        parse_docx(data)
    return failed.value.error.code


def test_a_document_as_word_writes_it() -> None:
    document = python_docx.Document()
    document.core_properties.title = "A title"
    document.add_heading("Top", 0)
    document.add_heading("Section", 2)
    document.add_paragraph("Words\tand\nmore.")
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Number")
    table = document.add_table(2, 2)
    for number, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"c{number}"
    document.add_paragraph("end")
    out = io.BytesIO()
    document.save(out)
    parsed = parse_docx(out.getvalue())
    assert parsed.title == "A title"
    assert shown(parsed) == [
        ("heading1", "Top"),
        ("heading2", "Section"),
        ("paragraph", "Words\tand\nmore."),
        ("list", "- one\n- two"),
        ("table", "c0 | c1\nc2 | c3"),
        ("paragraph", "end"),
    ]


def test_headings_by_the_names_of_their_styles_and_of_what_these_are_based_on() -> None:
    styles = f"""<w:styles {W}><w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
      <w:style w:styleId="Mine"><w:name w:val="mine"/><w:basedOn w:val="berschrift2"/></w:style>
      <w:style w:styleId="Round"><w:name w:val="round"/><w:basedOn w:val="Round"/></w:style></w:styles>"""
    body = paragraph("a", "berschrift2") + paragraph("b", "Mine") + paragraph("c", "Round") + paragraph("d", "Gone")
    assert shown(parse_docx(docx(body, {"word/styles.xml": styles}))) == [
        ("heading2", "a"),
        ("heading2", "b"),
        ("paragraph", "c"),
        ("paragraph", "d"),
    ]


def test_text_in_controls_insertions_boxes_and_notes_is_read_and_deleted_text_is_not() -> None:
    body = f"""<w:sdt><w:sdtContent>{paragraph("control")}</w:sdtContent></w:sdt>
      <w:p><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p>
      <w:p {MC}><w:r><mc:AlternateContent><mc:Choice><w:txbxContent>{paragraph("box")}</w:txbxContent></mc:Choice>
      <mc:Fallback><w:txbxContent>{paragraph("box")}</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>
      <w:tbl><w:tr><w:tc>{paragraph("cell")}<w:tbl><w:tr><w:tc>{paragraph("inner")}</w:tc></w:tr></w:tbl></w:tc></w:tr></w:tbl>"""
    notes = f"""<w:footnotes {W}><w:footnote w:type="separator">{paragraph("-")}</w:footnote>
      <w:footnote>{paragraph("note")}</w:footnote></w:footnotes>"""
    texts = [text for _, text in shown(parse_docx(docx(body, {"word/footnotes.xml": notes})))]
    assert texts == ["control", "inserted", "box", "cell inner", "note"]


def test_an_equation_is_a_line() -> None:
    body = f"""<w:p {M}><w:r><w:t>Let </w:t></w:r><m:oMath><m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r>
      <m:t>c</m:t></m:r></m:den></m:f><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup>
      </m:sSup></m:oMath></w:p>"""
    assert shown(parse_docx(docx(body))) == [("paragraph", "Let (a+b)/cx^2")]


def test_another_name_for_the_document() -> None:
    relationships = '<r><x Type="http://…/officeDocument" Target="/word/document2.xml"/></r>'
    data = archive({
        CONTENT_TYPES: "",
        "_rels/.rels": relationships,
        "word/document2.xml": f"<w:document {W}><w:body>{paragraph('x')}</w:body></w:document>",
    })  # fmt: skip
    assert shown(parse_docx(data)) == [("paragraph", "x")]


def test_damaged_and_empty_documents() -> None:
    good = docx(paragraph("words " * 500))
    assert code(good[: len(good) // 2]) == "corrupt_document"
    assert code(good.replace(b"PK\x01\x02", b"PK\x01\x03", 1)) == "corrupt_document"
    assert code(docx("<w:p>")) == "corrupt_document"
    assert code(archive({CONTENT_TYPES: "", "word/styles.xml": ""})) == "corrupt_document"
    assert code(docx(paragraph(" "))) == "no_text"


def test_a_wrong_checksum_is_seen() -> None:
    data = bytearray(docx(paragraph("words")))
    end = data.index(b"PK\x01\x02")
    data[end - 3] ^= 0xFF
    assert code(bytes(data)) == "corrupt_document"


def test_a_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = docx(f"<w:p><w:r><w:t>{' ' * 8_000_000}x</w:t></w:r></w:p>")
    assert len(bomb) < 100_000
    assert code(bomb) == "document_too_large"


def test_a_bomb_that_understates_its_size_is_not_believed() -> None:
    data = bytearray(docx(paragraph("words " * 10_000)))
    for found in zipfile.ZipFile(io.BytesIO(bytes(data))).infolist():
        if found.filename == "word/document.xml":
            size = found.file_size.to_bytes(4, "little")
            while size in data:
                position = data.index(size)
                data[position : position + 4] = (100).to_bytes(4, "little")
    assert code(bytes(data)) == "corrupt_document"


def test_too_many_entries() -> None:
    assert code(docx(paragraph("x"), {str(n): "" for n in range(MAX_ENTRIES)})) == "document_too_large"


def test_a_billion_laughs_stay_one() -> None:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    before = f'<!DOCTYPE w:document [<!ENTITY l0 "ha">{entities}]>'
    assert code(docx(paragraph("&l9;"), before=before)) == "corrupt_document"


def test_an_outside_entity_is_not_fetched() -> None:
    before = '<!DOCTYPE w:document [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    assert code(docx(paragraph("&x;"), before=before)) == "corrupt_document"


def test_depth_is_bounded() -> None:
    deep = "<w:sdt>" * 5000 + paragraph("x") + "</w:sdt>" * 5000
    assert code(docx(deep)) == "corrupt_document"
    fine = "<w:sdt>" * 200 + paragraph("x") + "</w:sdt>" * 200
    assert shown(parse_docx(docx(fine))) == [("paragraph", "x")]
