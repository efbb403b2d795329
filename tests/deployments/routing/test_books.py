"""Where requests go."""

from deployments.routing.books import MOST_IMBALANCE, PROMPT_SHARE, USUAL_NEW_TOKENS, RoutingBooks
from deployments.routing.view import SeenRequest

REPLICAS = ["a", "b", "c"]
SHORT = SeenRequest(40)


def talk(*digests: bytes, tokens: int = 4000) -> SeenRequest:
    return SeenRequest(tokens, digests, tokens_per_digest=1000)


def test_the_least_tokens_win_and_not_the_least_requests() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    books.send("1", "a", SeenRequest(100_000))
    for number in range(3):
        books.send(f"b{number}", "b", SHORT)
        books.send(f"c{number}", "c", SHORT)
    books.end("b0")
    assert books.choose(REPLICAS, SHORT) == ["b", "c", "a"]


def test_equals_take_turns() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    chosen = []
    for number in range(6):
        best = books.choose(REPLICAS, SHORT)[0]
        books.send(str(number), best, SHORT)
        books.end(str(number))
        chosen.append(best)
    assert chosen == ["a", "b", "c"] * 2


def test_a_known_beginning_is_followed() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    books.send("1", "b", talk(b"x", b"y"))
    books.end("1")
    books.send("2", "b", SHORT)  # a little more is outstanding there than elsewhere
    assert books.choose(REPLICAS, talk(b"x", b"y", b"z"))[0] == "b"
    assert books.choose(REPLICAS, talk(b"other"))[0] != "b"
    assert books.choose(REPLICAS, talk(b"other", b"y"))[0] != "b"


def test_it_is_followed_only_up_to_an_imbalance() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    beginning = talk(*(bytes([n]) for n in range(100)), tokens=100_000)
    books.send("1", "b", beginning)
    books.end("1")
    number = 0
    while books.outstanding("b") <= MOST_IMBALANCE:
        assert books.choose(REPLICAS, beginning)[0] == "b"
        books.send(f"b{number}", "b", SHORT)
        number += 1
    assert books.choose(REPLICAS, beginning)[0] != "b"


def test_what_is_cached_is_not_outstanding() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    books.send("1", "a", talk(b"x"))
    books.end("1")
    books.send("2", "a", talk(b"x"))
    assert books.outstanding("a") == 3000 * PROMPT_SHARE + USUAL_NEW_TOKENS


def test_one_that_goes_elsewhere_is_counted_there_alone() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    books.send("1", "a", SHORT)
    books.send("1", "b", SHORT)
    assert books.outstanding("a") == 0 < books.outstanding("b")
    books.end("1")
    books.end("1")
    assert books.outstanding("b") == 0


def test_what_came_by_others_counts_too() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    books.send("1", "a", SHORT)
    mine = books.outstanding("a")
    books.hear("a", mine)
    assert books.outstanding("a") == mine
    books.hear("a", mine + 500)
    assert books.outstanding("a") == mine + 500
    books.end("1")
    assert books.outstanding("a") == 500


def test_a_replica_that_is_gone_is_forgotten() -> None:
    books: RoutingBooks[str] = RoutingBooks()
    books.send("1", "a", talk(b"x"))
    books.hear("a", 9000.0)
    books.keep_only(["b", "c"])
    books.end("1")
    books.keep_only(REPLICAS)
    assert books.outstanding("a") == 0
    books.send("2", "b", SHORT)
    books.end("2")
    assert books.choose(["b", "a"], talk(b"x"))[0] == "a"  # by turns, not by its beginning


def test_memory_is_bounded_and_the_oldest_beginnings_go() -> None:
    books: RoutingBooks[str] = RoutingBooks(most_digests=2)
    for number, digest in enumerate((b"x", b"y", b"z")):
        books.send(str(number), "b", talk(digest))
        books.end(str(number))
    books.send("last", "b", SHORT)
    assert books.choose(REPLICAS, talk(b"x"))[0] != "b"
    assert books.choose(REPLICAS, talk(b"z"))[0] == "b"


def test_no_replicas_no_choice() -> None:
    assert RoutingBooks[str]().choose([], SHORT) == []
