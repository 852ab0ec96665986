from stack.supervisor import Backoff


def delays(*lives_s: float) -> list[float]:
    backoff, result = Backoff(), []
    for lived_s in lives_s:
        backoff = backoff.after_death(lived_s)
        result.append(backoff.delay_s)
    return result


def test_the_first_start_is_not_delayed() -> None:
    assert Backoff().delay_s == 0


def test_delays_double_up_to_half_a_minute() -> None:
    assert delays(*[1.0] * 9) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_minute_of_health_makes_the_next_death_the_first() -> None:
    assert delays(1, 1, 1, 59.9, 60, 1) == [0.5, 1, 2, 4, 0.5, 1]
