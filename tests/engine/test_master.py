"""The master test: whatever happens to an engine, each request gets what it would get alone.

`make fuzz` tries as many more scenarios as one likes.
"""

from random import Random

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.engine.replay import check
from tests.engine.scenario import draw_scenario


@given(st.randoms(use_true_random=False))
@settings(
    max_examples=300,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
def test_every_request_gets_what_it_would_get_alone(chance: Random) -> None:
    scenario = draw_scenario(chance)
    note(str(scenario))
    check(scenario)
