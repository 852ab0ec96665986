"""The main content of pages."""

import pytest

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.html import parse_html
from tests.document_files import shown


def blocks(page: str) -> list[tuple[str, str]]:
    return shown(parse_html(page.encode()))


def test_the_content_of_a_page() -> None:
    page = """<!DOCTYPE html><head><title> A
      page</title><style>p {}</style></head><body><header>brand</header><nav>menu</nav>
      <article><header><h1>Big</h1></header><p>One <b>two</b>three<br>four &amp; <i>five</i></p>loose
      <pre>
 code
   more</pre><nav>toc</nav><h3>Small</h3><blockquote>said</blockquote></article>
      <script>x()</script><footer>imprint</footer></body>"""
    assert blocks(page) == [
        ("heading1", "Big"),
        ("paragraph", "One twothree\nfour & five"),
        ("paragraph", "loose"),
        ("code", " code\n   more"),
        ("heading3", "Small"),
        ("paragraph", "said"),
    ]
    assert parse_html(page.encode()).title == "A page"


def test_a_list_is_one_block_of_lines() -> None:
    page = "<ol><li>a<ul><li>b<p>bb</p></li></ul></li><li>c</li></ol><dl><dt>t<dd>d</dl>"
    assert blocks(page) == [("list", "- a\n  - b\n    bb\n- c"), ("list", "- t\n- d")]


def test_a_table_is_one_block_of_rows() -> None:
    page = """<table><caption>cap</caption><tr><th>x<th>y</tr><tr><td>1<p>p</p></td><td><b>2</b> 3</td></tr>
      <tr><td></td><td>o<table><tr><td>i</td><td>j</td></tr></table></td></tr></table>after"""
    assert blocks(page) == [("table", "cap\nx | y\n1 p | 2 3\n | o | i | j"), ("paragraph", "after")]


@pytest.mark.parametrize(
    "hidden",
    [
        "<div hidden>h</div>",
        "<div aria-hidden=true>h</div>",
        "<div style='color: red; DISPLAY : none'>h</div>",
        "<div role=navigation>h</div>",
        "<template><p>h</p></template>",
        "<noscript>h</noscript>",
        "<!-- h -->",
    ],
)
def test_what_is_not_seen_is_left_out(hidden: str) -> None:
    assert blocks(f"<p>a</p>{hidden}<p>b</p>") == [("paragraph", "a"), ("paragraph", "b")]


def test_main_is_preferred_where_it_holds_the_text() -> None:
    assert blocks("<div>around</div><main><p>content of it</p></main>") == [("paragraph", "content of it")]
    assert len(blocks(f"<div>{'words ' * 50}</div><main>x</main>")) == 2


def test_asides_and_footers_within_the_content_are_content() -> None:
    note = "<aside class='admonition'><p>Do not delete the database.</p></aside>"
    quote = "<blockquote>said<footer>somebody</footer></blockquote>"
    expected = [
        ("paragraph", "text"),
        ("paragraph", "Do not delete the database."),
        ("paragraph", "said"),
        ("paragraph", "somebody"),
    ]
    assert blocks(f"<main><p>text</p>{note}{quote}<nav>menu</nav></main><aside>advert</aside>") == expected
    assert blocks(f"<p>text</p><aside>advert</aside>{quote}") == [expected[0], *expected[2:]]


def test_a_title_in_a_header_outside_of_the_content_is_its_title() -> None:
    page = "<header>brand<h1>The title</h1></header><main><h2>Part</h2><p>content of it</p></main>"
    assert blocks(page)[:2] == [("heading1", "The title"), ("heading2", "Part")]
    own = "<header><h1>Brand</h1></header><main><h1>Own</h1><p>content of it</p></main>"
    assert blocks(own) == [("heading1", "Own"), ("paragraph", "content of it")]


def test_a_page_that_nests_beyond_all_measure_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(DocumentFailed, match="document_too_large"):
        parse_html(b"<ul><li>" * 300_000)
    assert blocks("<p>a<br>b</p>" * 9000)[0] == ("paragraph", "a\nb")
    assert len(blocks("<ul>" + "<li>x" * 9000)) == 1  # nothing has to end an item


def test_a_page_that_is_nothing_but_a_header_is_read() -> None:
    assert blocks("<header><h1>Title</h1></header><nav>menu</nav>") == [("heading1", "Title"), ("paragraph", "menu")]


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("<meta charset=windows-1251>", "cp1251"),
        ("<?xml version='1.0' encoding='iso-8859-7'?>", "iso8859-7"),
        ("", "utf-16"),
    ],
)
def test_the_declared_encoding_is_used(head: str, encoding: str) -> None:
    word = "слово" if encoding != "iso8859-7" else "λόγος"
    assert shown(parse_html(f"{head}<p>{word}</p>".encode(encoding))) == [("paragraph", word)]


@pytest.mark.parametrize("page", ["<html></html>", "<script>x</script>", "<p> &nbsp; </p>"])
def test_a_page_without_text_is_not_called_empty(page: str) -> None:
    with pytest.raises(DocumentFailed) as failed:
        parse_html(page.encode())
    assert failed.value.error.code == "no_text"


def test_nesting_costs_no_stack() -> None:
    depth = 3000  # Python's own limit is 1,000
    assert blocks("<div>" * depth + "deep" + "</div>" * depth) == [("paragraph", "deep")]
    assert blocks("<ul><li>" * depth + "deep")[0][1].endswith("- deep")


def test_broken_markup_loses_no_text() -> None:
    text = " ".join(found for _, found in blocks("<p>a<b>b</p>c</i><td>d</td><li>e<table>f<tr>g<td>h"))
    assert [letter for letter in "abcdefgh" if letter not in text] == []
