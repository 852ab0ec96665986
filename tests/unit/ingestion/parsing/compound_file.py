"""Writes the compound files of Microsoft ([MS-CFB]) that hold messages and old workbooks: one level of folders."""

import struct

_FREE, _END, _FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_SECTOR = 512
_SMALL = 4096  # streams below this would lie in a stream of small sectors: they are filled up to this size instead


def compound_file(streams: dict[str, bytes], *, fill: bytes = b"\0") -> bytes:
    """A file with these streams; `folder/name` lies in a folder. Every stream is filled up to 4,096 bytes."""
    folders = sorted({name.partition("/")[0] for name in streams if "/" in name})
    names = ["Root Entry", *(name for name in streams if "/" not in name), *folders, *(n for n in streams if "/" in n)]
    chains, body = list[int](), bytearray()
    starts, sizes = dict[str, int](), dict[str, int]()
    for name, data in streams.items():
        padded = data if len(data) >= _SMALL else data + fill * (_SMALL - len(data))
        starts[name], sizes[name] = len(chains), len(padded)
        _append(body, chains, padded)
    top = [name for name in names[1:] if "/" not in name]
    children = {folder: [name for name in streams if name.startswith(f"{folder}/")] for folder in folders}
    entries = b"".join(
        _entry(
            name,
            names,
            top if name == "Root Entry" else children.get(name, []),
            starts,
            sizes,
            _next(name, top, children),
        )
        for name in names
    )
    directory = len(chains)
    _append(body, chains, entries + b"\0" * (-len(entries) % _SECTOR))
    fat_sectors = 1
    while (len(chains) + fat_sectors) * 4 > fat_sectors * _SECTOR:
        fat_sectors += 1
    fat_at = len(chains)
    chains += [_FAT] * fat_sectors
    table = struct.pack(f"<{len(chains)}I", *chains)
    body += table + b"\xff" * (fat_sectors * _SECTOR - len(table))
    header = struct.pack(
        "<8s16x5H6x9I", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6,
        0, fat_sectors, directory, 0, _SMALL, _END, 0, _END, 0,
    )  # fmt: skip
    difat = [fat_at + at if at < fat_sectors else _FREE for at in range(109)]
    return header + struct.pack("<109I", *difat) + bytes(body)


def _append(body: bytearray, chains: list[int], data: bytes) -> None:
    sectors = -(-len(data) // _SECTOR)
    chains += [len(chains) + at + 1 for at in range(sectors - 1)] + [_END]
    body += data + b"\0" * (sectors * _SECTOR - len(data))


def _next(name: str, top: list[str], children: dict[str, list[str]]) -> str | None:
    """The right brother: the tree of names is a list."""
    family = children[name.partition("/")[0]] if "/" in name else top
    at = family.index(name) + 1 if name in family else len(family)
    return family[at] if at < len(family) else None


def _entry(  # noqa: PLR0917 - the fields in their order
    name: str, names: list[str], inside: list[str], starts: dict[str, int], sizes: dict[str, int], right: str | None
) -> bytes:
    label = name.rpartition("/")[2].encode("utf-16-le")
    kind = 5 if name == "Root Entry" else 2 if name in starts else 1
    return struct.pack(
        "<64sHBBIII16x4x8x8xIQ", label, len(label) + 2, kind, 1, _FREE, names.index(right) if right else _FREE,
        names.index(inside[0]) if inside else _FREE, starts.get(name, _END if kind == 5 else 0), sizes.get(name, 0),
    )  # fmt: skip
