"""Judges reports of pip-audit: `python3 audit_report.py FOLDER`, with a `.json` and a `.log` of each service asked.

pip-audit exits with 0 and says "no known vulnerabilities" although it has compared nothing, if an index without
advisories answers in place of the real one: all versions are skipped then.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

_UNREACHABLE = re.compile(r"ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|HTTPError|ServiceError")


UNREACHABLE = 77
"""As of deploy/smoke: what it needs is not there."""


def report(folder: Path) -> list[dict[str, Any]] | str:
    """What the best service says of each version, or why none says anything.

    Raises:
        SystemExit: pip-audit failed, and not because of the network, or it was given nothing to compare.
    """
    why = []
    for log in sorted(folder.glob("*.log"), reverse=True):
        file = log.with_suffix(".json")
        if not file.exists() or not file.stat().st_size:
            if not _UNREACHABLE.search(log.read_text()):
                sys.exit(f"pip-audit failed ({log.stem}):\n{log.read_text()[-2000:]}")
            why.append(f"{log.stem} cannot be reached")
            continue
        found: list[dict[str, Any]] = json.loads(file.read_text())["dependencies"]
        if not found:
            sys.exit(f"nothing was compared ({log.stem}): the report names no version")
        if any("skip_reason" not in one for one in found):
            return found
        why.append(f"{log.stem} knows none of the versions: an index without advisories answers in its place")
    return "; ".join(why)


def main(folder: Path) -> int:
    """Prints what was found; the exit code."""
    found = report(folder)
    if isinstance(found, str):
        print(f"NOT AUDITED: no source of advisories can be reached from here ({found})")
        return UNREACHABLE
    skipped = [one["skip_reason"] for one in found if "skip_reason" in one]
    bad = [(one, vulnerability) for one in found for vulnerability in one.get("vulns", [])]
    for one, vulnerability in bad:
        mended = ", ".join(vulnerability["fix_versions"]) or "no version"
        print(f"{one['name']} {one['version']}: {vulnerability['id']}, mended in {mended}")
    for reason in skipped:
        print(f"not compared: {reason}")
    print(f"{len(found) - len(skipped)} versions compared, {len(bad)} advisories fit")
    return 1 if bad or skipped else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
