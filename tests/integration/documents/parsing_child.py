"""A parsing process that misbehaves on demand: its parser of HTML does what the document says."""

import os
import sys
import time
from dataclasses import replace

from tasks.documents.parsing.child import main
from tasks.documents.parsing.html import HTML
from tasks.documents.parsing.parsed_document import Block, Parsed
from tasks.documents.parsing.parsers import BY_MEDIA_TYPE


def obey(data: bytes) -> Parsed:
    match data.decode().split():
        case ["hang"]:
            while True:
                time.sleep(60)
        case ["eat"]:
            return said(str(len(bytearray(2**40))))
        case ["abort"]:
            os.abort()
        case ["leave"]:
            os._exit(0)
        case ["raise"]:
            raise RuntimeError("secret words")
        case ["print"]:
            os.write(1, b"noise")
        case ["write", path]:
            with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - as a library would
                file.write("x")
        case ["environment"]:
            return said(" ".join(sorted(os.environ)))
    return said("done")


def said(text: str) -> Parsed:
    return Parsed(text, (Block("paragraph", 0, len(text)),), (), None, HTML.media_type)


if __name__ == "__main__":
    BY_MEDIA_TYPE[HTML.media_type] = replace(HTML, parse=obey)
    main(sys.argv[1:])
