"""Pages -> Markdown."""

import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.html import html_to_markdown, read_html
from tests.thorough import some

ANSWER = "Refunds are paid within three days."


def text(page: str) -> str:
    return html_to_markdown(page)[0]


def code(page: str | bytes) -> str:
    with pytest.raises(DocumentFailed) as failed:
        read_html(page if isinstance(page, bytes) else page.encode())
    return failed.value.error.code


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


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<ul><li>a<ul><li>b<p>bb</p></li></ul></li><li>c</li></ul>", "- a\n  - b\n    bb\n- c"),
        ("<ol start=3><li>a<li>b<ol><li>c</ol><li value=9>d</ol>", "3. a\n4. b\n   1. c\n9. d"),
        ("<ul><li><ul><li><ul><li>deep</ul></ul><li>flat</ul>", "- deep\n- flat"),
        ("<dl><dt>term<dd>what<dd>else<dt>other<dd>more</dl>", "- term\n  what\n  else\n- other\n  more"),
        ("<ul><li><h3>Step</h3><p>text</ul>", "- Step\n  text"),
        ("<ol><li><pre># x\ny</pre>z</ol>", "1.\n   ```\n   # x\n   y\n   ```\n   z"),
        ("<ul><li>a<table><tr><td>1<td>2</table></ul>", "- a\n  | 1 | 2 |\n  | --- | --- |"),
    ],
)
def test_a_list_is_lines_without_a_blank_one(page: str, expected: str) -> None:
    assert text(page) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "<table><caption>cap</caption><tr><th>x<th>y</tr><tr><td>1<p>p</p></td><td><b>2</b><br>3|4</td></table>z",
            "cap\n\n| x | y |\n| --- | --- |\n| 1 p | 2 3\\|4 |\n\nz",
        ),
        (
            "<table><tr><td>a<td>b<tr><td>c<td>o<table><tr><td>i<td>j</table></table>",
            "| a | b |\n| --- | --- |\n| c | o i j |",
        ),
        (
            "<table><tr><td colspan=2>a<td>b<tr><td>1<td>2<td>3</table>",
            "| a |  | b |\n| --- | --- | --- |\n| 1 | 2 | 3 |",
        ),
        (
            "<table><tr><td>a<td>b<tr><td rowspan=2>x<td>1<tr><td>2</table>",
            "| a | b |\n| --- | --- |\n| x | 1 |\n| x | 2 |",
        ),
        (
            "<table><tr><td colspan=2>T<tr><td>T2<tr><td>a<td>b<tr><td>1<td>2</table>",
            "T\n\nT2\n\n| a | b |\n| --- | --- |\n| 1 | 2 |",
        ),
        ("<table><tr><td>menu<td><h2>Title</h2>text</table>", "menu\n\n## Title\n\ntext"),
        (f"<table><tr><td>menu<td>{'word ' * 300}</table>", "menu\n\n" + ("word " * 300).strip()),
        ("<table><tr><td>a<ul><li>x<li>y</ul><td>b</table>", "| a - x - y | b |\n| --- | --- |"),
    ],
)
def test_a_table_has_a_row_of_rules_unless_it_only_places_things(page: str, expected: str) -> None:
    assert text(page) == expected


@pytest.mark.parametrize(
    ("opening", "language"),
    [
        ("<pre><code class='hljs language-python'>", "python"),
        ("<pre class=lang-c++>", "c++"),
        ("<div class='highlight-rust notranslate'><div class=highlight><pre>", "rust"),
        ("<div class='highlight highlight-source-shell'><pre>", "shell"),
        ("<div class=highlight-default><pre>", ""),
        ("<pre>", ""),
    ],
)
def test_code_has_the_language_that_its_class_names(opening: str, language: str) -> None:
    assert text(f"{opening}a\n  b</pre>") == f"```{language}\na\n  b\n```"


@pytest.mark.parametrize("mark", ["# x", "###### x", "#", "```", "~~~ x", "===", "---"])
def test_text_that_looks_like_a_heading_or_a_fence_is_none(mark: str) -> None:
    assert text(f"<p>{mark}") == f"\\{mark}"
    assert text(f"<p>a<br>{mark}") == f"a\n\\{mark}"


# ---- XHTML -----------------------------------------------------------------------------------------------------------

DECLARED = '<?xml version="1.0" encoding="UTF-8"?>'
DOCTYPE = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">'
)
ROOT = '<html xmlns="http://www.w3.org/1999/xhtml">'


EMPTY = (
    *("<title/>", '<script src="a.js"/>', "<style />", '<textarea name="a"/>', '<iframe src="a"\n/>', "<noscript/>"),
    *('<div class="x"/>', '<a id="x"/>', "<nav/>", "<button/>", "<template/>", "<select/>", "<object/>", "<svg/>"),
    *("<p/>", "<li/>", "<table/>", "<head/>", "<header/>", "<xmp/>", '<video src="/a/"/>', '<td title="a>b"/>'),
)


@pytest.mark.parametrize("beginning", [DECLARED + ROOT, DOCTYPE + ROOT, ROOT, "<!DOCTYPE html><html>", "<html>"])
def test_an_element_that_is_written_as_empty_swallows_nothing(beginning: str) -> None:
    for empty in EMPTY:
        page = f"{beginning}<body>{empty}<p>{ANSWER}</p>{empty}<p>End</p></body></html>"
        assert text(page) == f"{ANSWER}\n\nEnd", empty


def test_what_else_only_xml_has() -> None:
    assert text(f"{DECLARED}{ROOT}<p>a&nbsp;&auml;&#x2014;&apos;<![CDATA[1 < 2 & 3]]></p></html>") == "a ä—'1 < 2 & 3"
    assert text(f"{DECLARED}{ROOT}<script><![CDATA[ a < b ]]></script><p>a</p><?php x ?><!-- b --></html>") == "a"


# ---- what is left out, and what is not -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "junk",
    [
        "<div role=navigation>h</div>",
        "<template><p>h</p></template>",
        "<noscript>h</noscript>",
        "<!-- h -->",
        "<button>h</button>",
        "<select><option>h</select>",
        "<svg><title>h</title><text>h</text></svg>",
        "<span hidden>h</span>",
        "<span aria-hidden=true><span>h</span> h</span>",
        "<a style='color: red; DISPLAY : none'>h</a>",
        "<div class='cookie-consent' style='display:none'>h</div>",
    ],
)
def test_what_is_no_content_is_left_out(junk: str) -> None:
    assert text(f"<p>a</p>{junk}<p>b</p>") == "a\n\nb"


QUESTION = "How long do refunds take?"


@pytest.mark.parametrize(
    "panel",
    [
        "<div hidden>{}</div>",
        "<div hidden='until-found'><p>{}</p></div>",
        "<section aria-hidden=true>{}</section>",
        "<div style='display:none'>{}</div>",
        "<div class=menu role=tabpanel hidden>{}</div>",
        "<p style='visibility: hidden'>{}</p>",
        "<my-panel hidden>{}</my-panel>",
    ],
)
@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("<h2><button aria-expanded=false>{}</button></h2>", "## "),
        ("<h3 class=q><span><button>{}</button></span></h3>", "### "),
        ("<button aria-controls=a>{}</button>", ""),
        ("<button class='accordion'>{}</button>", ""),
        ("<div role=tab>{}</div>", ""),
        ("<div role=heading aria-level=3><button>{}</button></div>", "### "),
    ],
)
def test_what_is_folded_away_is_read(label: str, expected: str, panel: str) -> None:
    page = f"<main><h1>FAQ</h1>{label.format(QUESTION)}{panel.format(ANSWER)}</main>"
    assert text(page) == f"# FAQ\n\n{expected}{QUESTION}\n\n{ANSWER}"


def test_details_are_read() -> None:
    one = f"<details><summary>{QUESTION}</summary>{ANSWER}</details>"
    assert text(one) == f"# {QUESTION}\n\n{ANSWER}"
    assert text(f"<h2>FAQ</h2>{one}{one}") == f"## FAQ\n\n### {QUESTION}\n\n{ANSWER}\n\n### {QUESTION}\n\n{ANSWER}"


@pytest.mark.parametrize("around", ["<body hidden>", "<body style='display:none'>", "<html style='visibility:hidden'>"])
def test_a_page_that_a_script_will_show_is_read(around: str) -> None:
    assert text(f"<!DOCTYPE html>{around}<main style='display:none'><p>{ANSWER}</p></main>") == ANSWER


def test_main_is_preferred_where_it_holds_the_text() -> None:
    assert text("<div>around</div><main><p>content of it</p></main>") == "content of it"
    assert text("<div>around</div><div role=main><p>content of it</p></div>") == "content of it"
    assert text("<div>around</div><article>content of it</article>") == "content of it"
    assert text(f"<div>{'words ' * 50}</div><main>x</main>").endswith("words\n\nx")
    assert text("<article>one</article><article>two</article>") == "one\n\ntwo"


def test_asides_and_footers_within_the_content_are_content() -> None:
    note = "<aside class='admonition'><p>Do not delete the database.</p></aside>"
    quote = "<blockquote>said<footer>somebody</footer></blockquote>"
    page = f"<main><p>text</p>{note}{quote}<nav>menu</nav></main><aside>advert</aside>"
    assert text(page) == "text\n\nDo not delete the database.\n\nsaid\n\nsomebody"
    assert text(f"<p>text</p><aside>advert</aside>{quote}") == "text\n\nsaid\n\nsomebody"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<section><header><h2>A</h2></header><p>a</p><footer>b</footer></section>", "## A\n\na\n\nb"),
        ("<div><header><h1>T</h1><p>by Ann</header><p>a</div><footer>f</footer>", "# T\n\nby Ann\n\na"),
        ("<div><p>a</p><aside>note</aside><footer>imprint</footer></div>", "a\n\nnote"),
        ("<header>brand<h1>T</h1></header><div><p>a</div><aside>advert</aside>", "# T\n\na"),
        ("<header><h1>Brand</h1></header><h1>T</h1><p>a", "# T\n\na"),
    ],
)
def test_headers_and_asides_around_the_page_are_not_those_of_a_part_of_it(page: str, expected: str) -> None:
    assert text(f"<html><body>{page}</body></html>") == expected


# ---- characters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("10<sup>-3</sup> mol, 10<sup>6</sup> times", "10^-3 mol, 10^6 times"),
        ("x<sub>1</sub>, x<sub>i</sub>, V<sub>max</sub>", "x_1, x_i, V_max"),
        ("H<sub>2</sub>O, <i>CO</i><sub>2</sub>, Al<sub>2</sub>(SO<sub>4</sub>)<sub>3</sub>", "H2O, CO2, Al2(SO4)3"),
        ("e<sup>x+1</sup> m<sup>2</sup> 2<sup>n</sup>", "e^(x+1) m^2 2^n"),
        ("the 1<sup>st</sup> and the 22<SUP>ND</SUP>", "the 1st and the 22ND"),
        ("word<sup><a href=#1>12</a></sup> there", "word 12 there"),
        ("word<a href=#1><sup>12</sup></a> there", "word 12 there"),
        ("<sup>1</sup> See there. <sup></sup>Name<sup>®</sup>", "1 See there. Name®"),
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</ruby>。", "漢字。"),
        (
            "Donau&shy;dampf\u00adschiff super&ZeroWidthSpace;cali&#8203;x long<wbr>word",
            "Donaudampfschiff supercalix longword",
        ),
        ("<math><msup><mn>10</mn> <mn>6</mn></msup><mo>+</mo><mfrac><mi>a</mi><mi>b</mi></mfrac></math>", "10^6+a/b"),
        ("1 < 2 and <3 or a<b", "1 < 2 and <3 or a"),
    ],
)
def test_characters(markup: str, expected: str) -> None:
    assert text(f"<p>{markup}") == expected


@pytest.mark.parametrize(
    ("head", "encoding", "word"),
    [
        ("<meta charset=windows-1251>", "cp1251", "слово"),
        ("<meta http-equiv=Content-Type content='text/html; charset=shift_jis'>", "shift_jis", "言葉"),
        ("<meta charset=ISO-2022-JP>", "iso2022_jp", "契約"),
        ("<meta charset=gb2312>", "gb18030", "合同五月到期 費用為五€"),
        ("", "utf-16", "слово"),
        ("<meta charset=utf-16>", "cp1252", "Größe"),
        ("<meta charset=iso-8859-1>", "utf-8", "слово"),
    ],
)
def test_the_declared_encoding_is_used(head: str, encoding: str, word: str) -> None:
    assert read_html(f"{head}<p>{word}</p>".encode(encoding)).text == word


@pytest.mark.parametrize(
    "page",
    ["<html></html>", "<script>x</script>", "<p> &nbsp; </p>", "<title>App</title><div id=root></div>", "<img alt=x>"],
)
def test_a_page_without_text_is_not_called_empty(page: str) -> None:
    assert code(page) == "no_text"


# ---- pages of any kind -----------------------------------------------------------------------------------------------


def test_broken_markup_loses_no_text() -> None:
    found = text("<p>a<b>b</p>c</i><td>d</td><li>e<table>f<tr>g<td>h</span></div><ul>i</table>j<h1>k<h2>l</h1>m<p/>n")
    assert [letter for letter in "abcdefghijklmn" if letter not in found] == []
    assert text("<div>a<!-- b") == "a"
    assert text("<h2>a</h3>b<h2>c") == "## a\n\nb\n\n## c"


@pytest.mark.parametrize("tag", ["div", "ul", "table", "tr", "td", "b", "font", "sup", "math", "h1", "rb", "main"])
def test_nesting_costs_no_stack(tag: str) -> None:
    depth = 3000  # Python's own limit is 1,000
    assert text(f"<{tag}>" * depth + "deep" + f"</{tag}>" * depth + "<p>end").strip("# ").endswith("end")
    assert "deep" in text(f"<{tag}>" * depth + "deep")


HOSTILE = (
    "<ul><li>" * 50_000,
    "<main>" * 50_000,
    "<table><tr><td colspan=100 rowspan=60000>" + "x<td rowspan=60000>y" * 20_000,
    "<p " + " ".join(f"a{n}=1" for n in range(50_000)) + " hidden>x",
    "<!--" * 50_000,
    "<a b='" * 50_000,
    "<![CDATA[" * 50_000,
    "<title>" * 40_000,
    "<div><table><td></div></table>" * 20_000,
    "<b><div></b>" * 40_000,
    "<math><msup>" + "<mi>x</mi>" * 40_000,
    "<table><tr><td>x" * 30_000,
    "".join(f"<font size={n}>" for n in range(10_000)) + "<p>text here" * 10_000,
)


@pytest.mark.untraced
@pytest.mark.parametrize("page", some(HOSTILE, *HOSTILE[:4]), ids=lambda page: page[:16])
def test_hostile_pages_end(page: str) -> None:
    """By the square of their length, each of them would take minutes, and the suite's time limit would end it."""
    try:
        found = text(page)
    except DocumentFailed as failed:
        found = failed.error.code
    assert found == "document_too_large" or len(found) < 10 * len(page)


@pytest.mark.untraced
@pytest.mark.thorough
def test_tags_may_be_more_than_words() -> None:
    assert text("<table>" + "<tr><td>12<td>5<td>7\n" * 13_000).count("| 12 |") == 13_000
