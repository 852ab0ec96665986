"""A model worker with less patience than is usual, so that a trial of it takes no minutes.

`python -m tests.faults.quick_worker '{"parent_s": 2}'`; a child that died while it loads is followed at once.
"""

import json
import sys

from tasks.worker import __main__ as model_worker
from tasks.worker.process import child
from tasks.worker.process.hangs import Patience

if __name__ == "__main__":
    child.LOAD_PAUSES_S = (0.0, 0.0, 0.0)
    sys.exit(model_worker.main(Patience(**json.loads(sys.argv[1]))))
