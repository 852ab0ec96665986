"""A process of records that has been taken over by the file it read: its answers keep the frame and lie within it."""

import os
import sys

from tasks.documents.sources.child import received, send
from tasks.documents.sources.frames import frame

if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    send(answers, frame({"ready": True}))
    while received(sys.stdin.buffer):
        send(answers, frame({"records": [["no number"]]}))
