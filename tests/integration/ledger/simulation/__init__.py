"""Clients and workers that misbehave at random, against the real scripts, and what must hold after each step.

| file | holds |
|---|---|
| `world` | what the simulation knows: tasks, workers, messages on their way, faults it has caused |
| `clients` | steps of clients, of the broker and of time |
| `fleet` | steps of workers |
| `claims` | what must hold of every claim |
| `invariants` | what must hold of all keys after every step |
| `turns` | cost served to those who wait, compared pair by pair |
| `weighted` | a driver that chooses steps by weight, from a seed |
| `ending` | everything is worked off, and every item has ended once |
"""
