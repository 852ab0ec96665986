"""Writes the users of Redis: `python3 deploy/redis/make_users.py FOLDER [RIGHT …]`. Needs Python alone.

`FOLDER/users.acl` is for `aclfile` of Redis and holds digests alone. `FOLDER/passwords` has a line "user password" for
each user. A password that is there stays, so the command can be repeated after an upgrade; then `ACL LOAD`.
Further rights are for all roles: `+waitaof '+client|setinfo'` with Redis 7.2. Redis before it does not know these.
"""

import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

TEMPLATE = Path(__file__).with_name("users.acl")
_PRIVATE = 0o600


def entries(lines: Iterable[str], more: Sequence[str] = ()) -> Iterator[str]:
    """What the template says, without comments, an entry as one line with its lists filled in.

    `more`: rights for whoever has `<connection>`.
    """
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    lists: dict[str, str] = {}
    for entry in re.sub(r"\n +", " ", text).splitlines():
        name, _, rest = entry.partition(" ")
        if name == "user":
            yield re.sub(r"<(\w+)>", lambda found: lists.get(found[1], found[0]), entry)
        else:
            lists[name] = " ".join([rest, *(more if name == "connection" else ())])


def write_users(folder: Path, more: Sequence[str] = ()) -> dict[str, str]:
    """Writes both files into `folder`, which is made if it is missing; passwords by user."""
    folder.mkdir(parents=True, exist_ok=True)  # not private: Redis, as a user of its own, reads users.acl in it
    file = folder / "passwords"
    passwords = dict(line.split() for line in file.read_text().splitlines()) if file.exists() else {}
    users = []
    for entry in entries(TEMPLATE.read_text().splitlines(), more):
        if "<password>" in entry:
            password = passwords.setdefault(entry.split()[1], secrets.token_hex(32))
            entry = entry.replace("<password>", "#" + sha256(password.encode()).hexdigest())  # noqa: PLW2901
        users.append(entry)
    file.touch(_PRIVATE)
    file.write_text("".join(f"{user} {password}\n" for user, password in passwords.items()))
    (folder / "users.acl").write_text("\n".join(users) + "\n")
    return passwords


if __name__ == "__main__":
    if len(sys.argv) == 1 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    write_users(Path(sys.argv[1]), sys.argv[2:])
