"""The file of the batch that queries run beside."""

from bench import texts
from bench.scenarios.batch import requests_file
from tasks.batches.check_lines import FileCheck, split_lines
from tests.unit.batches.batch_lines import LIMITS, MODEL, models


def test_a_batch_would_take_every_line_of_it() -> None:
    found = FileCheck(models(), LIMITS)
    for line in split_lines([requests_file(MODEL, texts.queries(LIMITS.max_lines))], LIMITS.max_line_bytes):
        found.add(line)
    found.finish()
    assert not found.faults
    assert found.lines == LIMITS.max_lines
