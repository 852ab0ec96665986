"""What parses strangers' documents cannot read the secrets in the environment of a role, which has the same user."""

import os
import subprocess

import psutil

from tests.processes import Roles, wait_until

NOT_EVERYTHING = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""In front of a command: root can do no more than its files allow, as another user."""


def is_told(pid: int) -> bool:
    """Whether another process of this user reads a setting in the environment of that one."""
    command = [*NOT_EVERYTHING, "cat", f"/proc/{pid}/environ"]
    return b"EMBEDQ_" in subprocess.run(command, capture_output=True, check=False).stdout


def test_no_other_process_reads_the_environment_of_a_role(roles: Roles) -> None:
    plain = subprocess.Popen([*NOT_EVERYTHING, "sleep", "600"], env={"PATH": os.defpath, "EMBEDQ_X": "1"})
    try:
        wait_until(lambda: is_told(plain.pid), message="what anybody may read who is the same user")
    finally:
        plain.kill()
        plain.wait()
    stack = ("-m", "stack", "--data", str(roles.folder / "data"), "--port", "0")
    api = roles.api(start=False, api_processes=2)
    started = [
        api,
        roles.worker(start=False),
        roles.worker(start=False, module="tasks.ingestion"),
        roles.worker(start=False),
    ]
    started[-1].command[1:] = stack
    for process in started:
        process.command[:0] = NOT_EVERYTHING
        process.launch()
    api.wait_ready()
    found = [process for role in started for process in psutil.Process(role.pid).children(recursive=True)]
    assert len(found) > len(started)
    assert [each.cmdline() for each in found if is_told(each.pid)] == []
    assert [role.name for role in started if is_told(role.pid)] == []
