"""Splitting documents into passages."""

from hypothesis import given
from hypothesis import strategies as st

from embedq.passages import Passage, split

LONG = "word " * 20

DOCUMENT = f"""{LONG}before any heading.

# Title #
{LONG}right below.

{LONG}second paragraph.
## Deeper

short

## Code
{LONG}
```sh
# not a heading

make demo
```
{LONG}after.
"""


def headings_and_texts(document: str, **options: int) -> list[tuple[str, str]]:
    return [(passage.heading, passage.text) for passage in split("a.md", document, **options)]


def test_sections_become_passages_under_their_headings() -> None:
    first, second, third = split("a.md", DOCUMENT)
    assert first == Passage("a.md", "", f"{LONG}before any heading.")
    assert second.heading == "Title"
    assert second.text == f"Title\n\n{LONG}right below.\n\n{LONG}second paragraph."
    assert third.heading == "Code"


def test_too_short_sections_are_left_out() -> None:
    assert "Deeper" not in [heading for heading, _ in headings_and_texts(DOCUMENT)]


def test_fenced_code_is_not_taken_apart() -> None:
    text = headings_and_texts(DOCUMENT)[-1][1]
    assert "```sh\n# not a heading\n\nmake demo\n```" in text
    assert text.endswith("after.")


def test_long_paragraphs_are_cut_at_white_space() -> None:
    texts = [text for _, text in headings_and_texts("word " * 1000, max_chars=100)]
    assert all(len(text) <= 100 for text in texts)
    assert {word for text in texts for word in text.split()} == {"word"}
    assert sum(len(text.split()) for text in texts) == 1000


def test_long_tables_are_cut_between_rows() -> None:
    rows = [f"| row {number} | {'cell ' * 6}|" for number in range(9)]
    texts = [text for _, text in headings_and_texts("\n".join(rows), max_chars=130)]
    assert [line for text in texts for line in text.splitlines()] == rows


def test_paragraphs_are_joined_up_to_the_limit() -> None:
    document = "\n\n".join(["x" * 60] * 5)
    assert [text.count("x") for _, text in headings_and_texts(document, max_chars=130)] == [120, 120, 60]


def test_an_unclosed_fence_ends_with_the_document() -> None:
    assert len(headings_and_texts(f"```\n{LONG}\n# inside")) == 1


def test_nothing_makes_no_passage() -> None:
    assert headings_and_texts("") == headings_and_texts("# Only\n\n## Headings\n") == []


@given(document=st.text(alphabet="ab \n#`", max_size=400), max_chars=st.integers(60, 200))
def test_passages_are_bounded(document: str, max_chars: int) -> None:
    for passage in split("a.md", document, max_chars=max_chars):
        assert 40 <= len(passage.text.removeprefix(f"{passage.heading}\n\n")) <= max_chars
