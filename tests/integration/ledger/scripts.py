"""Which Lua files these tests run: the ledger's own, or a broken copy that `tests/mutants.py` names."""

import os
from pathlib import Path

from tasks.ledger import executor

SCRIPTS = Path(os.environ.get("LEDGER_SCRIPTS") or executor.SCRIPTS)
