import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.data_folder import locked
from stack.errors import StackError


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_second_stack_learns_who_is_there(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(StackError, match=rf"pid {os.getpid()}\) uses {tmp_path}.*--data"),
        locked(tmp_path, patience_s=0),
    ):
        pass


def test_the_lock_lives_on_in_whoever_inherited_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input()"]
    with locked(tmp_path) as descriptor:
        heir = subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.PIPE)
    with pytest.raises(StackError), locked(tmp_path, patience_s=0):
        pass
    heir.communicate(b"\n")
    with locked(tmp_path, patience_s=0) as again:
        assert os.pread(again, 32, 0).decode() == f"{os.getpid()}\n"


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match=r"Not a directory.*--data"), locked(tmp_path / "file" / "data"):
        pass
