"""Numbers about each byte of an object, held against an array of them."""

from __future__ import annotations

import numpy as np
import pytest

from gpuperf_engine.device.spans import Marks, Span, marked

SIZE = 24


def _spans(random: np.random.Generator) -> Span:
    start, end = sorted(random.integers(0, SIZE + 1, 2).tolist())
    if start == end or random.random() < 0.3:
        return Span(0, SIZE)
    return Span(start, end, random.random(end - start) < 0.5 if random.random() < 0.5 else None)


@pytest.mark.parametrize("seed", range(20))
def test_marks_are_an_array_of_numbers(seed: int) -> None:
    random = np.random.default_rng(seed)
    marks, model = Marks(SIZE), np.zeros(SIZE, np.uint8)
    for _ in range(30):
        span, number = _spans(random), int(random.integers(0, 4))
        chosen = span.within(SIZE)
        if random.random() < 0.5:
            marks.put(span, number)
            model[chosen] = number
        else:
            marks.add(span, number)
            model[chosen] |= number
        asked = _spans(random)
        np.testing.assert_array_equal(marks.part(asked.slice), model[asked.slice])
        numbers = model[asked.within(SIZE)].tolist()
        counts = {number: size for number, size in marks.counts(asked).items() if size}
        assert counts == {number: numbers.count(number) for number in numbers}
        assert marks.uniform in (None, model[0]) and (marks.uniform is None or len({*model}) == 1)


def test_marked_bytes() -> None:
    flags = np.zeros(200_000, np.uint8)
    assert marked(flags) is None
    flags[70_000:150_000] = 1
    assert marked(flags) == Span(70_000, 150_000)
    flags[100_000] = 0
    span = marked(flags)
    assert span is not None and (span.start, span.end, span.count) == (70_000, 150_000, 79_999)
