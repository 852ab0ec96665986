"""`python -m embedq` is the `embedq` command."""

import sys

from embedq.cli import main

sys.exit(main())
