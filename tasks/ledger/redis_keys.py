"""The data model: the one place that names keys.

`R` is the root (`eq`), `Q` is `R:q:{queue}`, `{queue}` the served name of a model or `DOCUMENTS`. Scripts build these
names too. All keys live in one Redis instance (derived keys rule Redis Cluster out). "packed" is MessagePack
(tasks.ledger.packed); `embedq debug` shows what is packed.

Nothing has a TTL but where it is said: `R:due` says when something ends, and housekeeping removes it with all that
counts it. So what counts is exact at every moment.

Of a task:

    R:task:{id}          hash    `s`: its record, packed; `m`: the client's metadata, JSON; `u{piece}`: "first items
                                 cost deaths offset bytes token" of one that is not done, "-" for no token; `d{piece}`:
                                 its payload; `v{first}+{items}`: an outcome; `x{first}`: JSON of its errors and
                                 truncations. A part of piece 3 is 3a, 3b, …, and has the payload of 3, from `offset`
                                 on
    R:due                zset    "task:id" -> the next moment at which something must happen: deadline of an open one,
                                 end of life of an ended one
    R:alias:{owner}:{name}  string  "id digest": a repetition of a request finds its task. Of one that somebody waits
                                 for it has a TTL

Of a queue:

    Q:{lane}             zset    task -> tag: those with pieces that are ready, the lowest tag is next
    Q:claims             hash    token -> "task piece task piece …", never changed
    Q:leases             zset    token -> deadline
    Q:state              string  packed numbers: work and open tasks of each lane, their owners, virtual times, bytes,
                                 memory as last seen, speed, bell, the model that it serves (shared/owner_account.lua)
    Q:counts             hash    name -> total since the data began, for metrics
    Q:lingering          zset    stream (worker/number) -> until: those that wait for work, blocked
    Q:workers            zset    worker -> until: workers that beat
    Q:entries            hash    worker -> JSON `heartbeat.Worker`, "{worker} rate" -> its speed
    Q:loading            hash    worker -> JSON `heartbeat.LoadingWorker`, with the moment until which it holds

Of an owner:

    R:owner:{id}         string  packed numbers: the one account (shared/owner_account.lua). Gone when all is 0;
                                 of buckets and debt alone it has a TTL, until they are full

Of all:

    R:schema             string  version of this data model
    R:storage            string  id of the storage whose contents this Redis knows (tasks.records.storage_identity)
    R:models             hash    served name -> JSON `Model`, for each that a worker has served
    R:references         hash    revision of a model -> its vectors of a few texts, little-endian float32
    R:memory             string  packed numbers: memory as housekeeping saw it last
    R:{kind}:{id}        hash    a record (tasks.records.store): `s`: JSON; `change`: random name of its last change;
                                 `weight`: its bytes. Of a batch and an ingestion (tasks.records.jobs) also `created`
                                 and `order` by the clock here, `o{page}`: JSON of an open page
    R:{kind}-done:{id}   hash    of such a job: page -> JSON of one that is done
    R:ends               zset    "kind:id" -> the end of life of a record; whose has no end is not there
    R:job-ends           zset    the same of jobs that have ended: the sweep deletes them, for they have left objects
    R:index:{kind}:{list}  zset  ids, all with score 0: in the order of time. `list` is an owner, of tasks too, or
                                 begins with "@": `@all` keys and marks, `@open` jobs that are driven, `@ended`
                                 jobs that the sweep has not done with, `@purge` and `@gone` marks,
                                 `@uploading:{owner}`, `@deleted:{owner}` jobs
    R:record-alias:{kind}:{scope}:{name}  string  "id digest": leads to a record while it is there
    R:changes            hash    kind -> random name of the last change of any record of this kind
    R:litter             zset    stored name -> when the sweep may delete it: of files whose record is gone
    R:job-order          string  order of the job that was made last: milliseconds x 1024, or one more than before
    R:driver             string  the documents worker that drives jobs; with a TTL

Channels (no keys):

    R:ended              to everybody: ids of tasks that have ended, with spaces between them
    R:answers:{process}  to the process that waits: results of tasks that have ended (lua/commit.lua). Nobody else is
                         told of these. A line of lengths, then pieces of these lengths: of each task its id, the number
                         of names and values that follow its record, the packed record, then these
    Q:wake:{stream}      to a stream that lingers: "work". It asks for it
    R:jobs               to all documents workers: a job may go on
    R:promise            to nobody (tasks.ledger.replicas)
"""

SCHEMA_VERSION = 9
ROOT = "eq"
ANONYMOUS = "anonymous"
"""The name of callers without an API key, and their first owner (tasks.records.api_keys.anonymous_owner)."""

DOCUMENTS = "@documents"
"""The queue of work that needs no model. No served name begins with an "@" (settings), and only models are in
R:models."""

SCHEMA = f"{ROOT}:schema"
REFERENCES = f"{ROOT}:references"
STORAGE = f"{ROOT}:storage"
CHANGES = f"{ROOT}:changes"
ENDED_CHANNEL = f"{ROOT}:ended"
JOBS_CHANNEL = f"{ROOT}:jobs"
DRIVER = f"{ROOT}:driver"
LITTER = f"{ROOT}:litter"
JOB_ENDS = f"{ROOT}:job-ends"


def queue_key(queue: str, part: str) -> str:
    """`Q:{part}` of the table above."""
    return f"{ROOT}:q:{queue}:{part}"


def task_key(task_id: str) -> str:
    """The hash of a task."""
    return f"{ROOT}:task:{task_id}"


def owner_key(owner: str) -> str:
    """The account of an owner."""
    return f"{ROOT}:owner:{owner}"


def record_key(kind: str, record_id: str) -> str:
    """The hash of a record; with a part in its kind (`ingestion-done`) what lies beside it."""
    return f"{ROOT}:{kind}:{record_id}"


def record_alias_key(kind: str, alias: str) -> str:
    """What leads to a record: of an alias with its scope."""
    return f"{ROOT}:record-alias:{kind}:{alias}"


def answers_channel(process: str) -> str:
    """The channel of the results for which a process waits."""
    return f"{ROOT}:answers:{process}"


def wake_channel(queue: str, stream: str) -> str:
    """The channel on which a lingering stream is woken."""
    return queue_key(queue, f"wake:{stream}")
