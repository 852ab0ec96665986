"""All mutants of the driver, or those whose name holds a text: `python -m tests.simulation.advance [TEXT]`."""

import sys

from tests.simulation.advance.mutants import killer, mutants

if __name__ == "__main__":
    text = " ".join(sys.argv[1:])
    chosen = [mutant for mutant in mutants() if text in mutant.name]
    survivors = [mutant for mutant in chosen if not killer(mutant)]
    for mutant in survivors:
        print(f"SURVIVED {mutant.line + 1} {mutant.name}")  # noqa: T201
    print(f"mutants of the driver: {len(chosen) - len(survivors)} of {len(chosen)} noticed")  # noqa: T201
    sys.exit(bool(survivors))
