"""Whether urgent texts are to be expected."""

from tasks.drain.lanes import QUIET_AFTER_S, Urgency


def test_urgent_texts_are_expected_for_a_while_after_the_last_one() -> None:
    now = [100.0]
    urgency = Urgency(lambda: now[0])
    expected = [urgency.expected]
    for passed_s in (QUIET_AFTER_S - 1, QUIET_AFTER_S - 1, QUIET_AFTER_S):
        urgency.seen()
        now[0] += passed_s
        expected.append(urgency.expected)
    assert expected == [False, True, True, False]
