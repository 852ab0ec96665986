"""For tables of files and what comes out: reading them, damaging them, and writing compound files ([MS-CFB])."""

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.extracted import Extracted

RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_FREE, _END, _FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_SECTOR = 512
_SMALL = 4096  # streams below this would lie in a stream of small sectors: they are filled up to this size instead


def outcome(read: Callable[[bytes], Extracted], data: bytes) -> str:
    """The text of a document, or the code of its refusal in brackets."""
    try:
        return read(data).text
    except DocumentFailed as failed:
        return f"<{failed.error.code}>"


def warnings(found: Extracted) -> list[tuple[str, str]]:
    """Code and the words that say what was left out."""
    return [(warning.code, warning.message.partition(". ")[0]) for warning in found.warnings]


def damaged(data: bytes) -> Iterator[bytes]:
    """The file, cut off or with another byte, at two hundred places."""
    for at in range(0, len(data), max(1, len(data) // 200)):
        yield data[:at]
        yield data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def relations(**targets: str) -> str:
    """Of a part of an Office file: the kind of each other part is its id without its number."""
    each = (
        f'<Relationship Id="{name}" Type="{RELATIONS}/{name.rstrip("0123456789")}" Target="{to}"/>'
        for name, to in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}">{"".join(each)}</Relationships>'


def compound_file(streams: dict[str, bytes]) -> bytes:
    """A file with these streams, each filled up to 4,096 bytes, 64 KiB in all; `folder/name` lies in a folder."""
    inside = {"": [name for name in streams if "/" not in name]}
    for name in streams:
        if "/" in name:
            inside.setdefault(name.partition("/")[0], []).append(name)
    inside[""] += [folder for folder in inside if folder]
    names = ["", *(name for family in inside.values() for name in family)]
    brothers = {name: right for family in inside.values() for name, right in pairwise(family)}  # a tree that is a list
    body, entries, chains = b"", b"", list[int]()
    for name in names:
        data = streams[name].ljust(_SMALL, b"\0") if name in streams else b""
        label = (name.rpartition("/")[2] or "Root Entry").encode("utf-16-le")
        entries += struct.pack(
            "<64sHBBIII16x4x8x8xIQ", label, len(label) + 2, 5 if not name else 2 if data else 1, 1, _FREE,
            names.index(brothers[name]) if name in brothers else _FREE,
            names.index(inside[name][0]) if name in inside else _FREE, len(chains) if data else _END, len(data),
        )  # fmt: skip
        body += _sectors(data, chains)
    directory = len(chains)
    body += _sectors(entries, chains)
    table = struct.pack(f"<{len(chains) + 1}I", *chains, _FAT).ljust(_SECTOR, b"\xff")
    header = struct.pack(
        "<8s16x5H6x9I", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6,
        0, 1, directory, 0, _SMALL, _END, 0, _END, 0,
    )  # fmt: skip
    return header + struct.pack("<109I", len(chains), *[_FREE] * 108) + body + table


def _sectors(data: bytes, chains: list[int]) -> bytes:
    number = -(-len(data) // _SECTOR)
    chains += [*range(len(chains) + 1, len(chains) + number), _END][:number]
    return data.ljust(number * _SECTOR, b"\0")
