"""Prefixes of buckets, which count as folders."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tasks.documents.faults import DocumentFailed
from tasks.documents.sources.content import gone
from tasks.documents.sources.remote import answered
from tasks.documents.sources.trees import Child, Tree, shown, smallest

KEYS = 1000
"""Of one answer of S3, which gives no more."""
_LAST = "\U0010ffff"
"""Behind every other character, in S3's order too."""


def remote_tree(files: Any) -> Tree:
    """The tree for one of fsspec's drivers."""
    return S3Tree(files) if hasattr(files, "call_s3") else RemoteTree(files)


class RemoteTree:
    """Whatever fsspec has a driver for. Drivers list a folder as a whole: its names are all in memory for a while."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def first(self, number: int, folder: str, behind: str, progress: Callable[[], None]) -> list[Child]:
        """See `Tree`."""
        return smallest(number, self._listed(folder), behind, progress)

    def size_bytes(self, path: str, child: Child) -> int | None:  # noqa: ARG002 - the listing has said it
        """See `Tree`."""
        return child.size_bytes or 0

    def real(self, path: str) -> str:
        """See `Tree`."""
        return path

    def kind(self, path: str) -> str | None:
        """See `Tree`."""
        try:
            found = answered(lambda: self._files.info(path)).get("type")
        except DocumentFailed as failed:
            if failed.error.code == "gone":
                return None
            raise
        return "folder" if found == "directory" else "file"

    def _listed(self, folder: str) -> Iterator[Child]:
        for info in answered(lambda: self._files.ls(folder, detail=True)):
            name = str(info["name"]).rstrip("/").rpartition("/")[2]
            if info.get("type") == "directory":
                yield Child(f"{name}/")
            elif str(info["name"]).strip("/") != folder.strip("/"):  # the folder's own marker
                yield Child(name, info.get("size"))


class S3Tree(RemoteTree):
    """S3 lists in order and from any name on: a prefix of a million keys is read once, a window at a time."""

    def first(self, number: int, folder: str, behind: str, progress: Callable[[], None]) -> list[Child]:
        """See `Tree`."""
        return list(islice(shown(self._from(folder, behind, progress), behind, progress), number))

    def _from(self, folder: str, behind: str, progress: Callable[[], None]) -> Iterator[Child]:
        bucket, key, _ = self._files.split_path(folder)
        prefix = f"{key.strip('/')}/" if key.strip("/") else ""
        asked: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/", "MaxKeys": KEYS}
        if behind:
            # Behind a folder means behind all that is in it, or it would be listed again with the rest.
            asked["StartAfter"] = prefix + behind + (_LAST if behind.endswith("/") else "")
        seen = bool(behind)
        while True:
            progress()
            answer = answered(lambda: self._files.call_s3("list_objects_v2", **asked, **self._files.req_kw))
            children = _children(answer, prefix)
            seen = seen or bool(children or answer.get("KeyCount") or answer.get("IsTruncated"))
            if not seen:
                raise gone()
            yield from children
            if not answer.get("IsTruncated"):
                return
            asked["ContinuationToken"] = answer["NextContinuationToken"]


def _children(answer: Any, prefix: str) -> list[Child]:
    """Keys and common prefixes of one answer, which come apart and in order, in the order of both."""
    folders = [Child(found["Prefix"].removeprefix(prefix)) for found in answer.get("CommonPrefixes") or ()]
    files = [Child(found["Key"].removeprefix(prefix), found["Size"]) for found in answer.get("Contents") or ()]
    # A key that ends with a slash is the folder's own marker, with nothing left of its name.
    return sorted((child for child in folders + files if child.name), key=lambda child: child.name)
