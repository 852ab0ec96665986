"""HTML: a stand-in for the reader that is built elsewhere."""

import re


def html_to_markdown(markup: str) -> tuple[str, str | None]:
    """Markdown, and the title."""
    title = re.search(r"<title>([^<]*)</title>", markup)
    bare = re.sub(r"<(title|style|script)>[^<]*</\1>", "", markup)
    bare = re.sub(r"<h1[^<>]*>", "\n\n# ", bare)
    bare = re.sub(r"<li[^<>]*>", "\n- ", bare)
    bare = re.sub(r"<(?:p|/p|/h1|div|ul)\b[^<>]*>", "\n\n", bare)
    return re.sub(r"\n{2,}", "\n\n", re.sub(r"<[^<>]*>", "", bare)).strip(), title[1] if title else None
