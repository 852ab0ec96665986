"""Texts that fail, and a worker that must not fail with them."""

from tasks.item import Options
from tests.ledger_client import LedgerClient
from tests.processes import Roles

BAD = {"!!memory-error!!": "out_of_memory", "!!fail!!": "encoding_failed", "!!nan!!": "non_finite_vector"}


def test_a_bad_text_is_one_failed_item_and_the_process_lives(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker()
    child, parent = worker.child_pid, worker.pid
    for trigger, code in BAD.items():
        texts = [f"good text {n} beside {code}" for n in range(20)]
        texts[7] = f"bad {trigger}"
        task = client.ended(client.submit(texts))
        result = client.result(task.id)
        assert (task.completed, task.failed) == (19, 1), trigger
        assert {index: error.code for index, error in result.errors.items()} == {7: code}
        assert (worker.child_pid, worker.pid) == (child, parent), trigger
        client.completed(client.submit([f"it goes on after {code}"]))


def test_options_of_a_task_reach_the_model(roles: Roles, client: LedgerClient) -> None:
    roles.worker(fake_max_tokens=10)
    long = "word " * 20
    cut = client.result(client.ended(client.submit(["short", long], options=Options(dimensions=64))).id)
    refused = client.result(client.ended(client.submit(["short", long], options=Options(truncate=False))).id)
    unknown = client.ended(client.submit(["short"], options=Options(prompt_name="nope")))
    assert cut.vectors.shape == (2, 64)
    assert cut.truncated == {1}
    assert {i: e.code for i, e in refused.errors.items()} == {1: "input_too_long"}
    assert client.result(unknown.id).errors[0].code == "unknown_prompt"
    assert unknown.failed == unknown.total


def test_usage_counts_the_tokens_that_went_in(roles: Roles, client: LedgerClient) -> None:
    roles.worker()
    task = client.ended(client.submit(["one two three", "four"]))
    assert task.prompt_tokens == (3 + 2) + (1 + 2)
