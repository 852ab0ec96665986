"""Files that are ZIP archives of XML (Office, OpenDocument, EPUB), unpacked with bounds: bombs are refused."""

import io
import posixpath
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, TypeAlias

from tasks.ingestion.parsing.refusals import corrupt, missing, protected, too_large

Element: TypeAlias = Any
"""Of lxml, which has no public name for the type of one."""

MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 100 * 2**20
MAX_GROWTH_BYTES = 400 * 2**20
"""By which all members are larger than the archive. Pictures and films are packed already: they do not count."""
MAX_RATIO = 200
_RATIO_FROM_BYTES = 2**20  # small members may compress as well as they like
_ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose members `read_member` reads; `format_name` is for messages."""

    file: zipfile.ZipFile
    format_name: str


def open_archive(data: bytes, format_name: str) -> Archive:
    """The archive, nothing of it unpacked yet.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`.
    """
    try:
        file = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise corrupt(format_name) from None
    members = file.infolist()
    if len(members) > MAX_MEMBERS:
        raise too_large(f"holds {len(members):,} parts, more than {MAX_MEMBERS:,}")
    if sum(member.file_size for member in members) - len(data) > MAX_GROWTH_BYTES:
        raise too_large(f"would grow by more than {MAX_GROWTH_BYTES:,} bytes when unpacked")
    return Archive(file, format_name)


def read_member(archive: Archive, name: str) -> bytes | None:
    """The bytes of a member; None: there is none of this name. The library unpacks no more than the size declared.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`.
    """
    member = archive.file.NameToInfo.get(name.lstrip("/"))
    if member is None:
        return None
    if member.flag_bits & _ENCRYPTED:
        raise protected(archive.format_name)
    size = member.file_size
    if size > MAX_MEMBER_BYTES or size > max(_RATIO_FROM_BYTES, MAX_RATIO * member.compress_size):
        raise too_large(f"would unpack to {size:,} bytes from {member.compress_size:,}, as bombs do")
    try:
        return archive.file.read(member)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError):
        raise corrupt(archive.format_name) from None


def read_xml(archive: Archive, name: str) -> Element | None:
    """The root element of a member; None: there is none of this name. Nothing is fetched, no entity is put in place.

    lxml's limits on depth (256) and on the length of a text stay on, so that recursion over the tree ends.

    Raises:
        DocumentFailed: as `read_member`, and `missing_parser`.
    """
    try:
        from lxml import etree  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("lxml") from None
    data = read_member(archive, name)
    if data is None:
        return None
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError:
        raise corrupt(archive.format_name) from None
    dtd = root.getroottree().docinfo.internalDTD
    if dtd is not None and next(dtd.iterentities(), None) is not None:  # within attributes they are put in place
        raise corrupt(archive.format_name)
    return root


def related(archive: Archive, part: str) -> dict[str, tuple[str, str]]:
    """What a part of an Office file is tied to within the file: id -> kind and name of the other part."""
    folder, name = posixpath.split(part)
    root = read_xml(archive, posixpath.join(folder, "_rels", f"{name}.rels"))
    found = {}
    for entry in root.iter("{*}Relationship") if root is not None else ():
        if attribute(entry, "TargetMode") != "External":
            target = posixpath.join("/", folder, attribute(entry, "Target").replace("\\", "/"))
            kind = attribute(entry, "Type").rpartition("/")[2]
            found[attribute(entry, "Id")] = (kind, posixpath.normpath(target).lstrip("/"))
    return found


def of_kind(parts: dict[str, tuple[str, str]], kind: str) -> str | None:
    """The name of the first part of this kind; None if there is none."""
    return next((name for found, name in parts.values() if found == kind), None)


def local_name(element: Element) -> str:
    """Without its namespace: strict and transitional Office files differ in nothing else."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element, name: str) -> str:
    """The first attribute of this local name, "" if there is none."""
    return next((str(value) for key, value in element.items() if key.rpartition("}")[2] == name), "")


def first_text(root: Element | None, name: str) -> str | None:
    """The text of the first element of this local name, such as `title` of a file of properties."""
    if root is None:
        return None
    return next((element.text for element in root.iter(f"{{*}}{name}")), None)
