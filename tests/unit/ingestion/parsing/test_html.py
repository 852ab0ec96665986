"""Pages -> Markdown: a corpus, what is folded away, encodings, and pages that nobody should have written."""

import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.html import html_to_markdown, read_html
from tests.unit.ingestion.parsing.files import outcome

ANSWER = "Refunds are paid within three days."
NOTE = "<aside class='admonition'><p>No!</p></aside>"
QUOTE = "<blockquote>said<footer>somebody</footer></blockquote>"
DETAILS = f"<details><summary>Why?</summary>{ANSWER}</details>"
DECLARED = '<?xml version="1.0" encoding="UTF-8"?>'
ROOT = '<html xmlns="http://www.w3.org/1999/xhtml">'


def text(page: str) -> str:
    return html_to_markdown(page)[0]


def test_the_content_of_a_page() -> None:
    page = """<!DOCTYPE html><head><title> A
      page</title><style>p {}</style></head><body><header>brand</header><nav>menu</nav>
      <article><header><h1>Big</h1></header><p>One <b>two</b>three<br>four &amp; <i>five</i></p>loose
      <pre>
 code
   more</pre><nav>toc</nav><h3>Small<br>print</h3><blockquote>said</blockquote></article>
      <script>x()</script><footer>imprint</footer></body>"""
    extracted = read_html(page.encode())
    assert extracted.text == (
        "# Big\n\nOne twothree\nfour & five\n\nloose\n\n```\n code\n   more\n```\n\n### Small print\n\nsaid"
    )
    assert (extracted.title, extracted.structure) == ("A page", "markdown")


NO_CONTENT = [
    *("<div role=navigation>h</div>", "<template><p>h</p></template>", "<noscript>h</noscript>", "<!-- h -->"),
    *("<button>h</button>", "<select><option>h</select>", "<svg><title>h</title><text>h</text></svg>"),
    *("<span hidden>h</span>", "<span aria-hidden=true><span>h</span> h</span>"),
    *("<a style='color: red; DISPLAY : none'>h</a>", "<div class='cookie-consent' style='display:none'>h</div>"),
]
PAGES = {
    "<ul><li>a<ul><li>b<p>bb</p></li></ul></li><li>c</li></ul>": "- a\n  - b\n    bb\n- c",
    "<ol start=3><li>a<li>b<ol><li>c</ol><li value=9>d</ol>": "3. a\n4. b\n   1. c\n9. d",
    "<dl><dt>term<dd>what<dd>else<dt>other<dd>more</dl>": "- term\n  what\n  else\n- other\n  more",
    "<ol><li><pre># x\ny</pre>z</ol>": "1.\n   ```\n   # x\n   y\n   ```\n   z",
    "<table><caption>c</caption><tr><th>1<p>p</td><td><b>2</b><br>|</table>": "c\n\n| 1 p | 2 \\| |\n| --- | --- |",
    "<table><tr><td colspan=2>a<td>b<tr><td>1<td>2</table>": "| a |  | b |\n| --- | --- | --- |\n| 1 | 2 |",
    "<table><tr><td rowspan=2>1<td>2<tr><td>3</table>": "| 1 | 2 |\n| --- | --- |\n| 1 | 3 |",
    "<table><tr><td>menu<td><h2>Title</h2>text</table>": "menu\n\n## Title\n\ntext",
    f"<table><tr><td>menu<td>{'word ' * 300}</table>": "menu\n\n" + ("word " * 300).strip(),
    "<table><tr><td>a<ul><li>x<li>y</ul><td>b</table>": "| a - x - y | b |\n| --- | --- |",
    "<pre><code class='hljs language-python'>a\n  b</pre>": "```python\na\n  b\n```",
    "<div class='highlight-rust notranslate'><div class=highlight><pre>a</pre>": "```rust\na\n```",
    f"{DECLARED}{ROOT}<p>a&nbsp;&auml;&#x2014;&apos;<![CDATA[1 < 2 & 3]]></p></html>": "a ä—'1 < 2 & 3",
    f"{DECLARED}{ROOT}<script><![CDATA[ a < b ]]></script><p>a</p><?php x ?><!-- b --></html>": "a",
    "<div>around</div><main><p>content of it</p></main>": "content of it",
    f"<div>{'words ' * 50}</div><main>x</main>": ("words " * 50).strip() + "\n\nx",
    f"<main><p>a</p>{NOTE}{QUOTE}<nav>menu</nav></main><aside>advert</aside>": "a\n\nNo!\n\nsaid\n\nsomebody",
    "<div><header><h1>T</h1><p>by Ann</header><p>a</div><footer>f</footer>": "# T\n\nby Ann\n\na",
    f"<h2>FAQ</h2>{DETAILS}{DETAILS}": f"## FAQ\n\n### Why?\n\n{ANSWER}\n\n### Why?\n\n{ANSWER}",
    f"<html style='visibility:hidden'><main style='display:none'><p>{ANSWER}</p></main>": ANSWER,
    "<h2>a</h3>b<h2>c": "## a\n\nb\n\n## c",
    "<p>10<sup>-3</sup> mol, 10<sup>6</sup> times": "10^-3 mol, 10^6 times",
    "<p>H<sub>2</sub>O, <i>CO</i><sub>2</sub>, Al<sub>2</sub>(SO<sub>4</sub>)<sub>3</sub>": "H2O, CO2, Al2(SO4)3",
    "<p>the 1<sup>st</sup> and the 22<SUP>ND</SUP>": "the 1st and the 22ND",
    "<p>word<sup><a href=#1>12</a></sup> there<a href=#1><sup>13</sup></a>": "word 12 there 13",
    "<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</ruby>。": "漢字。",
    "<p>Donau&shy;dampf\u00adschiff cali&ZeroWidthSpace;fragi&#8203;x<wbr>on": "Donaudampfschiff califragixon",
    "<p><math><msup><mn>10</mn> <mn>6</mn></msup><mo>+</mo><mfrac><mi>a</mi><mi>b</mi></mfrac></math>": "10^6+a/b",
    "<p>1 < 2 and <3 or a<b": "1 < 2 and <3 or a",
    **{f"<p>a<br>{mark}": f"a\n\\{mark}" for mark in ("# x", "###### x", "#", "```", "~~~ x", "===", "---")},
    **{f"<p>a</p>{junk}<p>b</p>": "a\n\nb" for junk in NO_CONTENT},
}


@pytest.mark.parametrize(("page", "expected"), PAGES.items())
def test_a_page(page: str, expected: str) -> None:
    assert text(page) == expected


EMPTY = (
    *("<title/>", '<script src="a.js"/>', "<style />", '<textarea name="a"/>', '<iframe src="a"\n/>', "<noscript/>"),
    *('<div class="x"/>', '<a id="x"/>', "<nav/>", "<button/>", "<template/>", "<select/>", "<object/>", "<svg/>"),
    *("<p/>", "<li/>", "<table/>", "<head/>", "<header/>", "<xmp/>", '<video src="/a/"/>', '<td title="a>b"/>'),
)


def test_an_element_that_is_written_as_empty_swallows_nothing() -> None:
    for beginning in (DECLARED + ROOT, ROOT, "<!DOCTYPE html><html>"):
        for empty in EMPTY:
            page = f"{beginning}<body>{empty}<p>{ANSWER}</p>{empty}<p>End</p></body></html>"
            assert text(page) == f"{ANSWER}\n\nEnd", empty


PANELS = (
    *("<div hidden>{}</div>", "<div hidden='until-found'><p>{}</p></div>", "<section aria-hidden=true>{}</section>"),
    *("<div style='display:none'>{}</div>", "<div class=menu role=tabpanel hidden>{}</div>"),
    *("<p style='visibility: hidden'>{}</p>", "<my-panel hidden>{}</my-panel>"),
)


LABELS = {
    "<h2><button aria-expanded=false>{}</button></h2>": "## ",
    "<h3 class=q><span><button>{}</button></span></h3>": "### ",
    "<button aria-controls=a>{}</button>": "",
    "<div role=tab>{}</div>": "",
    "<div role=heading aria-level=3><button>{}</button></div>": "### ",
}


@pytest.mark.parametrize("panel", PANELS)
def test_what_is_folded_away_is_read(panel: str) -> None:
    for label, mark in LABELS.items():
        page = f"<main><h1>FAQ</h1>{label.format('How long?')}{panel.format(ANSWER)}</main>"
        assert text(page) == f"# FAQ\n\n{mark}How long?\n\n{ANSWER}", label


def test_the_declared_encoding_is_used_and_no_text_is_not_called_empty() -> None:
    for head, encoding, word in (
        ("<meta charset=windows-1251>", "cp1251", "слово"),
        ("<meta http-equiv=Content-Type content='text/html; charset=gb2312'>", "gb18030", "合同五月到期 費用為五€"),
        ("", "utf-16", "слово"),
        ("<meta charset=utf-16>", "cp1252", "Größe"),
        ("<meta charset=iso-8859-1>", "utf-8", "слово"),
    ):
        assert read_html(f"{head}<p>{word}</p>".encode(encoding)).text == word
    for page in (b"<html></html>", b"<script>x</script>", b"<p> &nbsp; </p><template>x</template>", b"<img alt=x>"):
        assert outcome(read_html, page) == "<no_text>"


def test_broken_markup_loses_no_text_and_nesting_costs_no_stack() -> None:
    found = text("<p>a<b>b</p>c</i><td>d</td><li>e<table>f<tr>g<td>h</span></div><ul>i</table>j<h1>k<h2>l</h1>m<p/>n")
    assert {*"abcdefghijklmn"} <= {*found}
    for tag in ("div", "ul", "table", "td", "b", "sup", "math", "h1", "main"):
        depth = 3000  # Python's own limit is 1,000
        assert text(f"<{tag}>" * depth + "deep" + f"</{tag}>" * depth + "<p>end").strip("# ").endswith("end")
        assert "deep" in text(f"<{tag}>" * depth + "deep")


HOSTILE = (
    "<ul><li>" * 50_000,
    "<main>" * 50_000,
    "<table><tr><td colspan=100 rowspan=60000>" + "x<td rowspan=60000>y" * 20_000,
    "<p " + " ".join(f"a{n}=1" for n in range(50_000)) + " hidden>x",
    "<math><msup>" + "<mi>x</mi>" * 10_000,
)


@pytest.mark.untraced
@pytest.mark.parametrize("page", HOSTILE, ids=lambda page: page[:16])
def test_hostile_pages_end(page: str) -> None:
    """By the square of their length, each of them would take minutes, and the suite's time limit would end it."""
    try:
        found = text(page)
    except DocumentFailed as failed:
        found = failed.error.code
    assert found == "document_too_large" or len(found) < 10 * len(page)
