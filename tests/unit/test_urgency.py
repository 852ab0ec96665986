"""Whether urgent texts are to be expected."""

from tasks.urgency import QUIET_AFTER_S, Urgency


def test_urgent_texts_are_expected_for_a_while_after_the_last_one() -> None:
    now = [100.0]
    urgency = Urgency(lambda: now[0])
    assert not urgency.expected
    urgency.seen()
    now[0] += QUIET_AFTER_S - 1
    assert urgency.expected
    urgency.seen()
    now[0] += QUIET_AFTER_S - 1
    assert urgency.expected
    now[0] += 1
    assert not urgency.expected
