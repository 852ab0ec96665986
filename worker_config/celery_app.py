"""The Celery app. Celery carries one kind of message here: the bell, which says "there is work" and nothing else.

The work itself lives in the ledger (`tasks.ledger`), so a lost or doubled message is harmless. The broker is the
Redis of the ledger. Every option below says which failure it prevents; the measurements behind them are in
docs/architecture.md.
"""

from celery import Celery
from kombu import Queue

from worker_config.redis_connection import broker_options
from worker_config.settings import Settings, forget_celery_variables

BELL_TASK = "embedq.bell"
"""Name of the one task. The API sends it by name and never imports the code behind it."""

POOL_S = 0.5
"""For a free connection, when a bell is sent."""

_OPTIONS = {
    "task_create_missing_queues": True,  # the API learns of models while it runs; a bell needs no declaration
    # A result backend in the API would subscribe once per message and never unsubscribe.
    "task_ignore_result": True,
    "accept_content": ["json"],  # pickle would be code execution by whoever reaches Redis
    "task_serializer": "json",
    # Publishing fails in about a second; the watchdog rings again later.
    "task_publish_retry": False,
    "broker_connection_timeout": 1,
    "broker_pool_limit": 4,
    "broker_pool_acquire_timeout": POOL_S,  # the default waits for ever
    # Prefork gives a child that may crash without taking the consumer along; one, because one model fills the machine.
    "worker_pool": "prefork",
    "worker_concurrency": 1,
    # Acknowledged early: the ledger holds the work. Late acknowledgement would redeliver bells, nothing more.
    "task_acks_late": False,
    # A busy worker must not hoard the bell behind its work.
    "worker_disable_prefetch": True,
    "worker_prefetch_multiplier": 1,
    # Never: a child that takes another's place waits for Redis and loads as long as that takes.
    "worker_proc_alive_timeout": 1e9,
    # Nobody who can PUBLISH may shut workers down, and nothing is gossiped.
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,  # a worker outlives any outage of Redis
    # Nor does it die of a Redis that refuses (READONLY after a failover, OOM): for kombu such a reply is an error of
    # the channel, for which Celery gives up unless told otherwise.
    "broker_channel_error_retry": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # A lost connection must not kill the child: its work is in the ledger, and a new child loads the model again.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # Warm stop: the work ends within a forward pass. Soft shutdown is a flat sleep in Celery 5.7.
    "worker_soft_shutdown_timeout": 0,
}

_TRANSPORT_OPTIONS = {
    "socket_keepalive": True,
    "health_check_interval": 5,
    # A bell may be lost, so it is not written down a second time. Writing it would end the parent for good when Redis
    # is full: BRPOP is allowed then, the note of what was popped is not.
    "ack_emulation": False,
    # Connect once.
    "max_retries": 0,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}


def bell_queue(queue: str) -> str:
    """The Celery queue of the bells for the workers of a queue of the ledger."""
    return f"embedq.bell.{queue}"


def make_celery(settings: Settings, *, queues: tuple[str, ...] = ()) -> Celery:
    """The app for one process. `queues`: whose bells a worker consumes; none: the web tier only sends bells.

    Every wait of the web tier is bounded to about a second, so that a stalled Redis makes no hanging thread.
    """
    forget_celery_variables()
    broker = broker_options(settings.redis_url, settings.sentinels)
    app = Celery("embedq", broker=broker["broker_url"], backend=None, set_as_current=False)
    names = queues or (settings.served_model_name,)
    consumes = bool(queues)
    app.conf.update(
        _OPTIONS,
        # A binding would be a write, which a full Redis refuses: a worker that starts beside one would die of it. The
        # queue needs none: it is a list that the first message makes.
        task_queues=[Queue(bell_queue(name), durable=True, no_declare=True) for name in names],
        task_default_queue=bell_queue(names[0]),
        broker_use_ssl=broker.get("broker_use_ssl"),
        broker_transport_options={
            **_TRANSPORT_OPTIONS,
            **broker.get("broker_transport_options", {}),
            # Above kombu's 1 s BRPOP; without it a half-open socket hangs the parent.
            "socket_timeout": 5 if consumes else 1,
            "socket_connect_timeout": 3 if consumes else 0.5,
        },
    )
    return app
