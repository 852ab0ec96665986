"""What an index that nobody uses any more leaves behind: nothing."""

import gc
import weakref
from pathlib import Path

from tasks.documents.sinks.parquet.receipt_index import ReceiptIndex
from tasks.storage.storage import Storage


def test_an_index_goes_with_its_last_user(tmp_path: Path) -> None:
    index = ReceiptIndex(Storage.open(str(tmp_path)))
    gone = weakref.ref(index)
    gc.disable()  # its files are open until then
    try:
        del index
        assert gone() is None
    finally:
        gc.enable()
