"""The ranked books choose as the router's own."""

from random import Random

import pytest

from deployments.routing.books import RoutingBooks
from deployments.routing.view import SeenRequest
from deployments.simulate.ranking import RankedBooks


@pytest.mark.parametrize("seed", range(5))
def test_the_best_is_the_first_of_all_whatever_happens(seed: int) -> None:
    draw = Random(seed)
    ranked, plain = RankedBooks(), RoutingBooks[int]()
    alive = list(range(12))
    for books in (ranked, plain):
        books.keep_only(alive)
    under_way: list[str] = []
    for number in range(600):
        match draw.randrange(8):
            case 0 if under_way:
                gone = under_way.pop(draw.randrange(len(under_way)))
                ranked.end(gone)
                plain.end(gone)
            case 1:
                replica, tokens = draw.choice(alive), float(draw.randrange(2000))
                ranked.hear(replica, tokens)
                plain.hear(replica, tokens)
            case 2 if number % 50 == 0:
                alive = sorted(draw.sample(range(16), 10))
                ranked.keep_only(alive)
                plain.keep_only(alive)
            case _:
                session = f"s{draw.randrange(20)}".encode()
                digests = (session,) if draw.random() < 0.5 else ()
                size = draw.choice((40, 400, 4000))
                seen = SeenRequest(size, digests, tokens_per_digest=size)
                best = ranked.best(seen)
                assert best == plain.choose(alive, seen)[0]
                request_id = str(number)
                under_way.append(request_id)
                ranked.send(request_id, best, seen)
                plain.send(request_id, best, seen)


def test_there_is_no_best_of_none() -> None:
    books = RankedBooks()
    assert books.best(SeenRequest(10)) is None
    books.keep_only([])
    assert books.best(SeenRequest(10)) is None
