import numpy as np
import pytest

from backtest.agent.bank.placebo import placebo
from tests.backtest.agent.bank.plain import plain, stream


@pytest.mark.parametrize("representation", ["full", "direction_magnitude"])
def test_a_placebo_differs_in_directions_only(representation):
    rng = np.random.default_rng(16)
    bank = plain(slots=5, dim=70, representation=representation, alpha_unit="relative")
    bank.update_rows(*stream(rng, 100, 70))
    bank.close_collection()
    before = bank.content_hash()
    fake = placebo(bank, rng)
    assert bank.content_hash() == before
    arrays, other = bank.state_dict(), fake.state_dict()
    for name in arrays:
        if name not in ("directions", "corrections"):
            assert np.array_equal(arrays[name], other[name]), name
    used = arrays["used"] != 0
    assert used.sum() == 3 and not other["directions"][~used].any()
    real, random = bank.snapshot().shift[used], fake.snapshot().shift[used]
    assert np.allclose(np.linalg.norm(real, axis=1), np.linalg.norm(random, axis=1), rtol=1e-5)
    assert (np.abs((real * random).sum(1)) < 0.5 * (real**2).sum(1)).all()
    assert np.array_equal(fake.snapshot().eligible, bank.snapshot().eligible)
    assert placebo(bank, rng).content_hash() != fake.content_hash()
