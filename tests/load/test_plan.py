from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpecError
from tuner.load.plan import Arrival, Deck, RoundPlan, recorded_arrivals
from tuner.load.prompts import Prompt
from tuner.spec import Load, Workload

ALONE = Load(concurrency=1)
RECORDED = Load(request_rate="recorded")
LOADS = st.sampled_from(
    [ALONE, Load(concurrency=3), Load(concurrency=9), Load(request_rate=2.5), RECORDED]
)
SIZES = st.integers(min_value=1, max_value=20)

SOME = [
    Prompt(f"{kind}-{n}", kind, None, f"{kind} {n}", at_s=float(n * n))
    for kind, count in (("chat", 4), ("code", 2))
    for n in range(count)
]

PINNED = [("code-1", "Request 15c756c7\n\ncode 1"), ("chat-2", "Request 9be75276\n\nchat 2")]


def requests(count: int, *, shared_prefixes: bool = False) -> Workload:
    return Workload(requests=count, shared_prefixes=shared_prefixes)


def ids(plan: RoundPlan) -> list[str]:
    return [arrival.prompt.id for arrival in plan.counted]


def text(prompt: Prompt) -> str:
    """A plain prompt as it is in the file, without the line of its own."""
    start, _, rest = (prompt.prompt or "").partition("\n\n")
    assert start.startswith("Request ")
    return rest


class TestDeck:
    @given(st.text(), st.lists(st.tuples(LOADS, SIZES), min_size=1, max_size=5))
    def test_the_same_seed_deals_the_same(self, seed: str, asked: list[tuple[Load, int]]) -> None:
        one, two = Deck(SOME, seed), Deck(SOME, seed)

        for load, count in asked:
            plan, again = (deck.plan(load, requests(count)) for deck in (one, two))
            assert plan == again
            assert plan.sha256 == again.sha256
            assert list(islice(plan.padding(), 9)) == list(islice(again.padding(), 9))

    def test_another_seed_or_another_turn_deals_another(self) -> None:
        deck = Deck(SOME, "study/1")
        plans = [
            deck.plan(ALONE, requests(3)),
            deck.plan(ALONE, requests(3)),
            Deck(SOME, "study/2").plan(ALONE, requests(3)),
        ]

        assert len({plan.sha256 for plan in plans}) == 3

    def test_a_deal_stays_what_it_was(self) -> None:
        """Pairs measured before an upgrade and after it must have had the same prompts."""
        plan = Deck(SOME, "study/1/1").plan(ALONE, requests(2))

        assert [(a.prompt.id, a.prompt.prompt) for a in plan.counted] == PINNED

    @given(st.text(), st.lists(SIZES, min_size=1, max_size=6))
    def test_nothing_is_dealt_again_before_all_were(self, seed: str, counts: list[int]) -> None:
        deck = Deck(SOME, seed)

        plans = [deck.plan(ALONE, requests(count)) for count in counts]

        dealt = [one for plan in plans for one in ids(plan)]
        passes = [dealt[start : start + len(SOME)] for start in range(0, len(dealt), len(SOME))]
        assert all(len(set(one_pass)) == len(one_pass) for one_pass in passes)
        fresh = min(len(dealt), len(SOME))
        assert sum(plan.repeated for plan in plans) == len(dealt) - fresh
        assert all(0 <= plan.repeated <= len(plan.counted) for plan in plans)

    @given(st.text())
    def test_kinds_take_turns(self, seed: str) -> None:
        plan = Deck(SOME, seed).plan(ALONE, requests(3))

        assert Counter(a.prompt.kind for a in plan.counted) == {"chat": 2, "code": 1}

    @pytest.mark.parametrize(
        ("load", "count"),
        [(ALONE, 4), (Load(concurrency=9), 9), (Load(request_rate=2.0), 4), (RECORDED, 4)],
        ids=str,
    )
    def test_never_fewer_than_the_concurrency(self, load: Load, count: int) -> None:
        assert len(Deck(SOME, "s").plan(load, requests(4)).counted) == count

    def test_case_18_no_two_requests_begin_alike(self) -> None:
        """vllm#54227: with fixed prompts a second round hits the first one's prefix cache."""
        deck = Deck(SOME, "study")
        plans = [deck.plan(ALONE, requests(20)) for _ in range(10)]

        sent = [a.prompt for p in plans for a in (*p.counted, *islice(p.padding(), 20))]
        assert len({(prompt.prompt or "")[:16] for prompt in sent}) == 400
        assert {text(prompt) for prompt in sent} == {p.prompt for p in SOME}


class TestOwnLine:
    MESSAGES = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    )

    def sent(self, prompt: Prompt, *, shared_prefixes: bool) -> Prompt:
        workload = requests(1, shared_prefixes=shared_prefixes)
        (arrival,) = Deck([prompt], "s").plan(ALONE, workload).counted
        return arrival.prompt

    def test_messages_begin_with_it_and_are_otherwise_kept(self) -> None:
        sent = self.sent(Prompt("p", "chat", self.MESSAGES, None), shared_prefixes=False)

        assert sent.messages is not None
        assert sent.messages[0]["role"] == "system"
        assert sent.messages[0]["content"].startswith("Request ")
        assert sent.messages[0]["content"].endswith("\n\nBe brief.")
        assert sent.messages[1] == self.MESSAGES[1]
        assert self.MESSAGES[0]["content"] == "Be brief."

    def test_shared_beginnings_are_kept_and_the_end_is_its_own(self) -> None:
        sent = self.sent(Prompt("p", "chat", self.MESSAGES, None), shared_prefixes=True)

        assert sent.messages is not None
        assert sent.messages[0] == self.MESSAGES[0]
        assert sent.messages[1]["role"] == "user"
        assert sent.messages[1]["content"].startswith("Hi\n\nRequest ")

    def test_a_text_to_go_on_with_still_ends_as_it_did(self) -> None:
        prompt = Prompt("p", "code", None, "import os\n\ndef f(")

        sent = self.sent(prompt, shared_prefixes=True).prompt or ""

        assert sent.startswith("import os\n\nRequest ")
        assert sent.endswith("\n\ndef f(")

    def test_the_padding_of_shared_beginnings_shares_them_too(self) -> None:
        deck = Deck([Prompt("p", "chat", self.MESSAGES, None)], "s")
        plan = deck.plan(ALONE, requests(1, shared_prefixes=True))

        padding = next(plan.padding()).prompt

        assert padding.messages is not None
        assert padding.messages[0] == self.MESSAGES[0]
        assert padding.messages != plan.counted[0].prompt.messages


class TestPadding:
    @given(st.text(), LOADS, SIZES)
    def test_it_is_endless_and_no_prompt_is_sent_twice(
        self, seed: str, load: Load, count: int
    ) -> None:
        plan = Deck(SOME, seed).plan(load, requests(count))

        sent = [a.prompt.prompt for a in (*plan.counted, *islice(plan.padding(), 30))]

        assert len(set(sent)) == len(sent)

    def test_it_spares_what_will_be_counted_soon(self) -> None:
        """What padding has answered, suffix remembers."""
        deck = Deck(SOME, "s")
        first = deck.plan(ALONE, requests(2))
        padding = [a.prompt.id for a in islice(first.padding(), 2)]
        second = deck.plan(ALONE, requests(2))

        assert set(padding).isdisjoint([*ids(first), *ids(second)])
        assert [a.prompt.id for a in islice(second.padding(), 2)] == ids(first)

    def test_where_all_are_counted_it_takes_those(self) -> None:
        plan = Deck(SOME, "s").plan(ALONE, requests(6))

        assert {a.prompt.id for a in islice(plan.padding(), 6)} == set(ids(plan))


class TestGaps:
    def test_none_in_a_closed_loop(self) -> None:
        plan = Deck(SOME, "s").plan(Load(concurrency=3), requests(6))

        assert {a.gap_s for a in (*plan.counted, *islice(plan.padding(), 9))} == {0.0}

    @pytest.mark.parametrize("burstiness", [None, 1.0, 0.25])
    def test_arrivals_have_the_rate_and_the_burstiness(self, burstiness) -> None:
        """A gamma distribution of shape b: mean 1 / rate, deviation that over sqrt(b); 5 sigma."""
        load = Load(request_rate=4.0, burstiness=burstiness)
        plan = Deck(SOME, "s").plan(load, requests(10_000))
        deviation = 0.25 / (burstiness or 1.0) ** 0.5

        for arrivals in (plan.counted, list(islice(plan.padding(), 10_000))):
            gaps = [arrival.gap_s for arrival in arrivals]
            mean = sum(gaps) / len(gaps)
            spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
            assert mean == pytest.approx(0.25, abs=5 * deviation / 100)
            assert spread == pytest.approx(deviation, rel=0.1)

    def test_a_plan_differs_by_its_gaps(self) -> None:
        prompt = Arrival(SOME[0], 1.0)
        plan = RoundPlan(Load(request_rate=2.0), (prompt,))

        assert replace(plan, counted=(replace(prompt, gap_s=2.0),)).sha256 != plan.sha256


class TestRecorded:
    LOG = tuple(
        Prompt(f"r{n}", "chat", None, f"Say {n}", at_s=at_s)
        for n, at_s in enumerate([100.0, 103.5, 101.0, 101.0])
    )

    def test_in_the_order_of_their_times_at_their_distances(self) -> None:
        plan = Deck(self.LOG, "s").plan(RECORDED, requests(4))

        assert ids(plan) == ["r0", "r2", "r3", "r1"]
        assert [a.gap_s for a in plan.counted] == [pytest.approx(3.5 / 3), 1.0, 0.0, 2.5]

    def test_the_next_round_goes_on_where_this_one_ended(self) -> None:
        deck = Deck(self.LOG, "s")

        plans = [deck.plan(RECORDED, requests(3)) for _ in range(2)]

        assert [ids(plan) for plan in plans] == [["r0", "r2", "r3"], ["r1", "r0", "r2"]]
        assert [plan.repeated for plan in plans] == [0, 2]

    def test_padding_goes_on_through_the_log_and_starts_over(self) -> None:
        plan = Deck(self.LOG, "s").plan(RECORDED, requests(3))

        padding = list(islice(plan.padding(), 6))

        assert [a.prompt.id for a in padding] == ["r1", "r0", "r2", "r3", "r1", "r0"]
        assert [a.gap_s for a in padding[:4]] == [2.5, pytest.approx(3.5 / 3), 1.0, 0.0]

    @given(st.lists(st.floats(0, 1e10), min_size=2, max_size=30))
    def test_gaps_lead_from_the_first_time_to_the_last(self, times: list[float]) -> None:
        prompts = [replace(SOME[0], id=str(n), at_s=at_s) for n, at_s in enumerate(times)]

        _, *others = recorded_arrivals(prompts)

        assert all(arrival.gap_s >= 0 for arrival in others)
        assert sum(a.gap_s for a in others) == pytest.approx(max(times) - min(times))

    def test_without_times_it_is_refused(self) -> None:
        deck = Deck([replace(self.LOG[0], at_s=None), *self.LOG[1:]], "s")

        with pytest.raises(SpecError, match="1 of 4 have none, r0 first"):
            deck.plan(RECORDED, requests(1))
