"""For tables of files and what comes out: reading them, damaging them, and writing compound files ([MS-CFB])."""

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.extracted import Extracted

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


def compound_file(streams: dict[str, bytes]) -> bytes:
    """A file with these streams; `folder/name` lies in a folder. Every stream is filled up to 4,096 bytes."""
    folders = sorted({name.partition("/")[0] for name in streams if "/" in name})
    top = [*(name for name in streams if "/" not in name), *folders]
    inside = {folder: [name for name in streams if name.startswith(f"{folder}/")] for folder in folders}
    names = ["", *top, *(name for folder in folders for name in inside[folder])]
    brothers = {name: right for family in (top, *inside.values()) for name, right in pairwise(family)}
    chains, body, places = list[int](), bytearray(), dict[str, tuple[int, int]]()

    def append(data: bytes) -> None:
        nonlocal body
        sectors = -(-len(data) // _SECTOR)
        chains.extend([len(chains) + at + 1 for at in range(sectors - 1)] + [_END])
        body += data.ljust(sectors * _SECTOR, b"\0")

    for name, data in streams.items():
        places[name] = (len(chains), max(len(data), _SMALL))
        append(data.ljust(_SMALL, b"\0"))
    directory = len(chains)
    append(
        b"".join(
            _entry(name, names, places, brothers.get(name), top if not name else inside.get(name)) for name in names
        )
    )
    fat_at, fat_sectors = len(chains), 1
    while (len(chains) + fat_sectors) * 4 > fat_sectors * _SECTOR:
        fat_sectors += 1
    chains += [_FAT] * fat_sectors
    table = struct.pack(f"<{len(chains)}I", *chains).ljust(fat_sectors * _SECTOR, b"\xff")
    header = struct.pack(
        "<8s16x5H6x9I", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6,
        0, fat_sectors, directory, 0, _SMALL, _END, 0, _END, 0,
    )  # fmt: skip
    difat = [fat_at + at if at < fat_sectors else _FREE for at in range(109)]
    return header + struct.pack("<109I", *difat) + bytes(body) + table


def _entry(
    name: str, names: list[str], places: dict[str, tuple[int, int]], right: str | None, inside: list[str] | None
) -> bytes:
    """Of the directory, in which a tree of names is a list."""
    label = (name.rpartition("/")[2] or "Root Entry").encode("utf-16-le")
    kind = 5 if not name else 2 if name in places else 1
    start, size = places.get(name, (_END if kind == 5 else 0, 0))
    return struct.pack(
        "<64sHBBIII16x4x8x8xIQ", label, len(label) + 2, kind, 1, _FREE, names.index(right) if right else _FREE,
        names.index(inside[0]) if inside else _FREE, start, size,
    )  # fmt: skip
