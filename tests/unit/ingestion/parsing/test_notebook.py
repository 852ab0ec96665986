"""Notebooks: prose and code, whatever came out of the cells."""

import base64
import json
from typing import Any

import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.markdown import blocks
from tasks.ingestion.parsing.notebook import read_notebook

PROSE = {"cell_type": "markdown", "source": ["Refunds take three days."]}


def notebook(*cells: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"nbformat": 4, "cells": cells, **more}).encode()


def code(source: str | list[str], **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, **more}


def test_a_notebook_is_its_cells_without_their_outputs() -> None:
    picture = base64.b64encode(bytes(range(256)) * 100).decode()
    data = notebook(
        {
            "cell_type": "markdown",
            "source": ["# Title\n", "\n", "- an item\n", f"![x](data:image/png;base64,{picture})"],
        },
        code("x = 1\n\ny = 2", outputs=[{"data": {"image/png": picture}}]),
        {"cell_type": "markdown", "source": " "},
        {"cell_type": "markdown", "source": None},
        code(" \n"),
        {"cell_type": "raw", "source": "as it is"},
        metadata={"kernelspec": {"language": "python"}},
    )
    extracted = read_notebook(data)
    assert extracted.title == "Title"
    assert extracted.structure == "markdown"
    assert extracted.text == (
        "# Title\n\n- an item\n![x](data:image/png)\n\n```python\nx = 1\n\ny = 2\n```\n\nas it is"
    )


@pytest.mark.parametrize("source", ["```py\nx", "a\n\n~~~\nx\n```", "````\n# x\n```"])
def test_a_fence_ends_with_its_cell(source: str) -> None:
    text = read_notebook(notebook({"cell_type": "markdown", "source": source}, PROSE)).text
    assert blocks(text, "markdown")[-1].kind == "paragraph"
    assert text.startswith(source)


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({"language_info": {"name": "julia"}}, "julia"),
        ({"kernelspec": {"language": "c++"}, "language_info": {"name": "x"}}, "c++"),
        (None, ""),
    ],
)
def test_code_is_in_the_language_of_the_kernel(metadata: Any, language: str) -> None:
    assert read_notebook(notebook(code("x"), metadata=metadata)).text == f"```{language}\nx\n```"


@pytest.mark.parametrize(
    "output",
    [
        '{"v": NaN}',
        '{"v": [Infinity, -Infinity]}',
        '{"v": "\\ud800"}',
        '{"v": "\\ud800\\udc00"}',
        '{"v": ' + "9" * 5000 + "}",
        '{"v": ' + "9" * 400 + ".5e400}",
        '{"v": "\t raw control \x01"}',
        "null",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_odd_outputs_do_no_harm(output: str, encoding: str) -> None:
    text = f'{{"cells": [{json.dumps(PROSE)}, {{"cell_type": "code", "source": "x", "outputs": [{output}]}}]}}'
    assert read_notebook(text.encode(encoding)).text == "Refunds take three days.\n\n```\nx\n```"


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"{}", b"5", b'"cells"', b"<html>", b"\xff\xfe{", b'{"cells": 5}', b'{"cells": [5]}'),
        *(b'{"cells": [{"source": 5}]}', b'{"cells": [{"source": [5]}]}', b'{"cells": [], "metadata": 5}'),
        *(
            b'{"worksheets": []}',
            b'{"cells": ' + b"[" * 100_000,
            b'{"cells": [], "x": ' + b'{"a":' * 100_000,
        ),
    ],
)
def test_what_is_no_notebook_is_damaged(data: bytes) -> None:
    with pytest.raises(DocumentFailed) as failed:
        read_notebook(data)
    assert failed.value.error.code == "corrupt_document"
