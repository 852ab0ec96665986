"""The data model: the one place that names keys.

`R` is the root (`eq`), `Q` is `R:q:{queue}`, `{queue}` the served name of a model or `DOCUMENTS`. Scripts build these
names too: those of tasks, owners and accounts in `lua/shared/`, those of a record in the scripts of its kind
(`lua/file_*.lua`, `lua/batch_*.lua`, `lua/ingestion_*.lua`). All keys live in one Redis instance (derived keys rule
Redis Cluster out).

For ever, of bounded size:

    R:schema             string  version of this data model
    R:storage            string  id of the storage whose contents this Redis knows (tasks.records.storage_identity)
    R:ingestion-order    string  order of the ingestion that was created last: milliseconds, or one more than the one
                                 before
    R:keys               hash    API keys (tasks.records.api_keys): name -> JSON Key, also of revoked ones; `@stamp`:
                                 changes with each change, and stays when the last key is deleted; `@anonymous`:
                                 "generation unpurged time" of what is made without keys
    R:purged             zset    owner -> when the removal of all that it has began. Nobody has the id again
    R:litter             zset    "name owner" -> when the sweep may look at it: stored objects of files that
                                 expire, folders of batches and ingestions that have ended, each until
                                 it is deleted (tasks.records.litter)
    R:models             hash    model -> JSON ModelEntry, for each model that a worker has served; WATCH forgets one
                                 that had neither workers nor open tasks for a week, and its Q:state
    R:references         hash    revision of a model -> its vectors of a few texts, little-endian float32
                                 (tasks.embedding.reference)
    R:reserved           string  bytes of vectors that open tasks may still need
    Q:state              hash    backlog per lane (cost_{lane}, tasks_{lane}) and `bytes`; owners_{lane}: how many have
                                 open tasks, and of each of them cost_{lane}:{owner}, tasks_{lane}:{owner} and
                                 bytes:{owner}; `rate`; the stamp of the model that it
                                 `serves`; the time of the bell and its number of `rings`; the bulk lane's
                                 `credit`; virtual time vt_{lane}, and per owner pass_{lane}:{owner} and
                                 tvt_{lane}:{owner}, also with "suspects" for the lane; when WATCH or a beat looked at
                                 the clock, `last`; counters n_*; how tasks ended, for the metrics:
                                 took_{lane}_{k} (those that completed within 2^k ms) and took_{lane}_ms (their sum),
                                 ended_{lane}_{state} (the others), items_{lane}_{outcome}; of the documents
                                 queue batches_{status}, ingestions_{status}, ingested_{what} and
                                 setbacks_{what}; `idle`: since when the model has had neither workers nor open
                                 tasks; `absent`: when the last worker went, of those that lived

While there is something in them:

    Q:{lane}             zset    owner -> pass: owners with ready units, the lowest is next
    Q:{lane}:{owner}     zset    task -> tag: that owner's tasks with ready units, the lowest is next
    Q:suspects           zset    owner -> pass: owners with suspects, single items whose worker died while it held them.
                                 They are in no lane; each is claimed alone
    Q:suspects:{owner}   zset    task -> tag: that owner's tasks with suspects, the lowest is next
    Q:leases             zset    token -> deadline, one entry per claim
    Q:claim:{token}      set     "task unit" that the claim holds. No TTL of its own: its units would be lost
    Q:lingering          zset    stream (worker/number) -> until: those that wait for work, blocked
    Q:deadlines          zset    task -> deadline: ends tasks even when no worker lives
    R:held               hash    owner -> bytes of its open tasks (payload, and what is reserved for vectors) and of its
                                 results; "moment owner" -> bytes of the results that will have expired by then. A task
                                 knows its part (`held`). What comes to 0 is removed
    R:held-until         zset    "moment owner" -> moment, of those: WATCH counts them out
    Q:workers            zset    worker -> until: workers that beat; pruned by beats and WATCH
    Q:rates              hash    worker -> tokens/s; pruned with it
    R:open:{owner}       string  how many of the owner's listed tasks are open
    R:tasks:{owner}      zset    ids of the owner's listed tasks, all with score 0, so that they are ordered by time.
                                 While none is open it has the TTL of the one that ended last. Ids of tasks that are
                                 gone are removed when LIST meets them, and by SUBMIT, which looks at two at random: so
                                 about half of them at most are stale

With a TTL from the start:

    R:purge:{owner}      hash    where the removal of all that an owner has has come to: `server` and `cursor` of its
                                 SCAN, whether this round has `met` something (1 h; gone at the end)
    R:memory             string  "used limit" bytes of Redis memory, as last seen by WATCH (60 s)
    Q:asks:{stream}      string  JSON: the arguments of the CLAIM with which a stream lingers (60 s)
    Q:worker:{id}        string  JSON WorkerEntry (three beats)

Of one task; until it ends, then with its TTL, or gone:

    R:task:{id}          hash    state, counts, options, next fresh unit, number of units that were given back; what
                                 was `charged` to its owner beyond its cost; `made_by`: the stamp of the model of its
                                 vectors, once there are some; `ended_by`: another model; `wakes`: its end wakes the
                                 steppers; `meta`: there is R:meta:{id}; `answer`: the process that waits for its
                                 result; `trace`: W3C `traceparent`, of a traced one. Its 55 bytes fit: a value above 64
                                 would double the memory of the hash
    R:units:{id}         hash    u{unit} -> "first items cost attempts root offset token", p{root} -> payload, of units
                                 that are not done; deleted one by one at COMMIT, whole at the end
    R:back:{id}          list    units that were given back; taken before fresh ones; deleted at the end
    R:suspects:{id}      list    units of one item whose worker died; deleted at the end
    R:result:{id}        hash    v{first}+{items} -> float32 bytes, x{first} -> JSON errors and truncations
    R:meta:{id}          string  the client's metadata, JSON. Not in the task hash: a value above 64 bytes there would
                                 double its memory
    R:alias:{owner}:{name}  string  "task digest": a repetition of a request finds its task. Where a task
                                 with a deadline is not listed, it has a TTL from the start, that of both

Of files; the first as long as the file, those of an owner as long as the last of theirs (without end, if it has none):

    R:file:{id}          hash    a file's record: owner, filename, purpose, size, created, expires (0: never), stored
    R:files:{owner}      zset    file -> time of creation
    R:fileends:{owner}   zset    "file size" -> expiry, of those that expire
    R:filebytes:{owner}  string  bytes of all of the owner's files

Of one key with limits:

    R:rate:{owner}       hash    `requests`, `tokens` -> when its bucket is full again, in milliseconds; TTL until the
                                 last one is. A full bucket is none

Of one batch; with a TTL from the start (its window and a year, or the retention where that is more), and a new one at
its end (the retention):

    R:batch:{id}         hash    status, owner, input file, window, `t_{status}` times; `only_file`: an error file whose
                                 requests alone are made; model, counts, files, errors when they are known;
                                 `losses_{stage}`: how often its workers died, `again_at`: when it is tried again;
                                 `deleted_at`: when its owner deleted it, and it left the list; `trace` as of a task.
                                 Its tasks are `{id}-validate`, `{id}-embed`, `{id}-assemble`
    R:batch-alias:{owner}:{name}  string  "batch digest": a repetition of a request finds its batch
    R:batches:{owner}    zset    batch -> 0: that owner's batches, in the order of their ids, which is that of time.
                                 Ids of batches that are gone are removed when a list meets them, and at each creation,
                                 which looks at two at random
    R:batches-open:{owner}  zset  batch -> when its record ends by itself: those of the owner that have not ended
    R:open-batches       set     batches that have not ended, or whose traces are still to be removed. No TTL; each step
                                 of a documents worker looks at them

Of one ingestion; without TTL while it is open, and with one (the retention) from its end on:

    R:ingestion:{id}     hash    owner, status, spec (JSON), `t_{status}` times; order, by which receipts in a sink say
                                 which of two ingestions is the newer one; model revision, dimension, fingerprint,
                                 vectors, cursor and number of the next listing, stored name of the `ids` listed so far,
                                 numbers of the next page and load; counts (documents,
                                 loaded, chunks, bytes, …), `loaded_pages`: numbers of those that the last load
                                 closed, samples base, s0, s1 for rates, `setback_{job}`:
                                 "times until what" while such jobs wait for something that is away, `away_{job}`: since
                                 when; `losses_{job}`: how often in a row their workers died; `deleted_at` as of a batch
                                 (`deleted` is a count); `roots` (JSON) and `shares_table`: rights of the owner's key;
                                 `trace` as of a task. Tasks:
                                 `{id}-list-{n}`, `{id}-{page}-parse`, `{id}-{page}-embed`, `{id}-load-{n}` and
                                 `{id}-finish-{n}`
    R:ingestion-waiting:{id}  list   "page fence documents bytes": pages that are listed and not begun; gone at its
                                 end, unless it is resumable: it failed through no fault of its request
    R:ingestion-pages:{id}    hash   page -> JSON: pages in flight; deleted when its traces are removed
    R:ingestion-closed:{id}   hash   page -> JSON [stored, loaded, unchanged, failed]: pages that are done
    R:ingestion-alias:{owner}:{name}  string  "ingestion digest": a repetition of a request finds its ingestion
    R:ingestions:{owner} zset    ingestion -> 0: that owner's, in the order of their ids; no TTL while one is open. Ids
                                 of those that are gone leave it as those of batches do
    R:ingesting:{owner}  set     those of them that are open
    R:open-ingestions    set     ingestions that have not ended, or whose traces are still to be removed. No TTL

Channels (no keys): `R:ended`, one message per script that ended tasks: their ids, space-separated.
`R:answers:{process}`: of tasks for whose results that process waits, those that ended, with their results where they
are small (tasks.ledger.answers); nobody else is told of these.
`Q:wake:{stream}`: to one that lingers, "work" or the claim that was made for it (operations.handed_claim); of the
documents queue `steps` too, to the steppers of all documents workers. `R:promise`: to nobody, see
tasks/ledger/replicas.py.
"""

SCHEMA_VERSION = 5
ROOT = "eq"
ANONYMOUS = "anonymous"
"""The name of callers without an API key, and their first owner (tasks.records.api_keys.anonymous_owner)."""

DOCUMENTS = "@documents"
"""The queue of work that needs no model. No served name begins with an "@" (settings), and only models are in
R:models."""

ENDED_CHANNEL = f"{ROOT}:ended"


def queue_key(queue: str, part: str, root: str = ROOT) -> str:
    """`Q:{part}` of the table above."""
    return f"{root}:q:{queue}:{part}"


def answers_channel(process: str) -> str:
    """The channel of the results for which a process waits."""
    return f"{ROOT}:answers:{process}"


def wake_channel(queue: str, stream: str, root: str = ROOT) -> str:
    """The channel on which a lingering stream is woken; without a name: all processes whose bell cannot be sent."""
    return queue_key(queue, f"wake:{stream}", root)
