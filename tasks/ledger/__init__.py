"""The ledger: the single truth about work. Redis keys, changed only by the scripts in `lua/`.

Each module builds values (`scripts.Operation`) for the script of its name; `client` runs them: `Ledger` in workers,
`AsyncLedger` in the web tier. `task` has what goes in and comes out, `redis_keys` what Redis holds.
"""
