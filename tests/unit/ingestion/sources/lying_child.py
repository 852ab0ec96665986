"""A sandbox's process that was taken over by the file it read: its answers keep the protocol and lie within it."""

import sys

from tasks.ingestion.parsing import sandbox_child

if __name__ == "__main__":
    sandbox_child.HANDLERS["records"] = lambda request, _: ({}, b'[["no number"]]')  # noqa: ARG005 - as of all
    sandbox_child.main(sys.argv[1:])
