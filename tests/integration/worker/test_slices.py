"""What one slice of a stream claims, counted in units on a real ledger."""

import pytest
import redis

from tasks.drain import Drain, DrainLimits
from tasks.ledger import Claim, Lane, Ledger
from tasks.ledger.units import cost
from tasks.model.gate import Gate
from tasks.rate import Rate
from tasks.suspects import Suspects
from tasks.wakeup import Wakeup
from tests.ledger_client import LedgerClient

TEXT = "x" * 400
UNIT_S = 0.25
TOKENS_PER_S = cost(len(TEXT), 256) / UNIT_S
UNITS_IN_A_FULL_CLAIM, UNITS_IN_A_CLAIM_BESIDE_URGENT = 24, 8


def first_claim(client: LedgerClient, redis_client: redis.Redis, slice_s: float, *, urgent: bool = False) -> int:
    """Units that the first claim of a slice takes of thirty, each of `UNIT_S` at this speed."""
    client.submit([TEXT] * 30, lane=Lane.BULK, unit_items=1)
    ledger = Ledger(redis_client)
    claims: list[Claim] = []

    def work(claim: Claim, _: object) -> bool:
        claims.append(claim)
        return True

    wakeup = Wakeup(ledger, client.model, "w/0")
    drain = Drain(
        ledger,
        client.model,
        "w/0",
        DrainLimits(slice_s=slice_s, lease_s=15, unit_s=UNIT_S),
        wakeup=wakeup,
        work=work,
        rate=Rate(TOKENS_PER_S),
        suspects=Suspects(Gate(single=True)),
        single=True,
        hears=True,
        send_bell=lambda: None,
        stop=lambda: bool(claims),
        urgent=lambda: urgent,
    )
    try:
        drain.run_slice()
    finally:
        wakeup.close()
    return len(claims[0].units)


@pytest.mark.parametrize(("slice_s", "units"), [(60, UNITS_IN_A_FULL_CLAIM), (0, 1)])
def test_a_slice_that_is_over_takes_one_unit_more_at_most(
    client: LedgerClient, redis_client: redis.Redis, slice_s: float, units: int
) -> None:
    assert first_claim(client, redis_client, slice_s) == units


def test_what_is_left_of_a_slice_cuts_its_claim(client: LedgerClient, redis_client: redis.Redis) -> None:
    # The claim comes a moment after the slice has begun, so two units of half its length do not quite fit.
    assert first_claim(client, redis_client, 2 * UNIT_S) == 1


def test_claims_are_smaller_while_urgent_texts_come(client: LedgerClient, redis_client: redis.Redis) -> None:
    assert first_claim(client, redis_client, 60, urgent=True) == UNITS_IN_A_CLAIM_BESIDE_URGENT
