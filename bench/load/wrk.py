"""The load generator `wrk`: the script it runs, and the line that script prints at the end."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.load.plan import Load, LoadResult

_MARK = "embedq-bench "
_SCRIPT = """
-- Written by bench/load/wrk.py. One body per line; JSON holds no line breaks of its own.
local requests, following = {{}}, 0
wrk.headers["Content-Type"] = "application/json"
{headers}
function init(_)
  for body in io.lines({bodies}) do
    requests[#requests + 1] = wrk.format("POST", nil, nil, body)
  end
end
function request()
  following = following % #requests + 1
  return requests[following]
end
function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    '{mark}{{"requests":%d,"errors":%d,"lost":%d,"us":%d,"p50":%d,"p90":%d,"p99":%d,"max":%d}}\\n',
    summary.requests, e.status, e.connect + e.read + e.write + e.timeout, summary.duration,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max))
end
"""


class WrkError(Exception):
    """`wrk` failed or printed no result."""


def available() -> bool:
    """Whether `wrk` is installed."""
    return shutil.which("wrk") is not None


def run(load: Load) -> LoadResult:
    """A closed loop of POSTs by `wrk` on one thread.

    Requests that are on their way when the time is over are not counted, which is fair only where each takes a small
    part of it.

    Raises:
        WrkError: it did not run.
    """
    with tempfile.TemporaryDirectory(prefix="embedq-wrk-") as folder:
        bodies = Path(folder, "bodies.jsonl")
        bodies.write_text("".join(f"{body}\n" for body in load.bodies))
        lua = Path(folder, "load.lua")
        lua.write_text(script(load, bodies))
        done = subprocess.run(_command(load, lua), capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrkError(f"wrk ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return parse(done.stdout)


def script(load: Load, bodies: Path) -> str:
    """The Lua source."""
    headers = "\n".join(f"wrk.headers[{_lua(name)}] = {_lua(value)}" for name, value in load.headers.items())
    return _SCRIPT.format(headers=headers, bodies=_lua(str(bodies)), mark=_MARK)


def parse(output: str) -> LoadResult:
    """The result that the script printed among wrk's own lines.

    Raises:
        WrkError: there is none.
    """
    line = next((line for line in output.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        raise WrkError(f"wrk printed no result: {output.strip()[-300:]}")
    measured = json.loads(line.removeprefix(_MARK))
    return LoadResult(
        requests=measured["requests"] - measured["errors"],  # wrk counts refused requests among the answered ones
        errors=measured["errors"] + measured["lost"],
        seconds=measured["us"] / 1e6,
        p50_ms=measured["p50"] / 1000,
        p90_ms=measured["p90"] / 1000,
        p99_ms=measured["p99"] / 1000,
        max_ms=measured["max"] / 1000,
    )


def _command(load: Load, lua: Path) -> list[str]:
    timeout_s = max(2, round(load.patience_s))
    options = [f"-c{load.connections}", "-t1", f"-d{max(1, round(load.seconds))}s", f"--timeout={timeout_s}s"]
    return ["wrk", *options, "-s", str(lua), load.url]


def _lua(text: str) -> str:
    # A JSON string is a Lua string as long as it holds no \u escapes or escaped slashes.
    return json.dumps(text, ensure_ascii=False)
