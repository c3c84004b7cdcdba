from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from tuner.engine.fake_decode import NATURAL_END, Decoder, Step
from tuner.engine.fake_script import FakeScript
from tuner.engine.fake_text import FakeText, encode

DRAFT = {"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}


def _decoder(acceptance: float = 0.5, *, off: bool = False, **fields: Any) -> Decoder:
    script = FakeScript(
        prefill_ms=0,
        step_ms=0,
        step_ms_per_k=0,
        step_ms_per_request=0,
        acceptance={"draft": acceptance},
        **fields,
    )
    return Decoder(script, None if off else DRAFT)


async def _steps(
    decoder: Decoder, prompt: str, tokens: int, *, ignore_eos: bool = True
) -> list[Step]:
    request = decoder.request(encode(prompt), tokens, ignore_eos=ignore_eos)
    return [step async for step in decoder.decode(request)]


def _run(decoder: Decoder, use: Callable[[], Awaitable[None]]) -> None:
    async def both() -> None:
        loop = asyncio.create_task(decoder.run())
        await use()
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop

    asyncio.run(both())


def _lengths(steps: list[Step]) -> list[int]:
    return [len(step.tokens) for step in steps]


def test_a_step_yields_what_was_accepted_and_one_more() -> None:
    decoder = _decoder(1.0)

    async def use() -> None:
        assert _lengths(await _steps(decoder, "a", 9)) == [1, 4, 4]

    _run(decoder, use)
    totals = decoder.totals
    assert (totals.drafts, totals.draft_tokens, totals.accepted) == (2, 6, 6)
    assert totals.accepted_at == [2, 2, 2]
    assert totals.generation_tokens == 9


def test_a_cut_step_counts_what_it_accepted() -> None:
    decoder = _decoder(1.0)

    async def use() -> None:
        assert _lengths(await _steps(decoder, "a", 6)) == [1, 4, 1]

    _run(decoder, use)
    assert decoder.totals.accepted == 6
    assert decoder.totals.generation_tokens == 6


def test_nothing_accepted_is_one_token_a_step() -> None:
    decoder = _decoder(0.0)

    async def use() -> None:
        assert _lengths(await _steps(decoder, "a", 4)) == [1, 1, 1, 1]

    _run(decoder, use)
    assert (decoder.totals.drafts, decoder.totals.accepted) == (3, 0)


def test_off_has_no_positions() -> None:
    decoder = _decoder(off=True)

    async def use() -> None:
        await _steps(decoder, "a", 4)

    _run(decoder, use)
    assert (decoder.totals.drafts, decoder.totals.accepted_at) == (0, [])


def _answer(decoder: Decoder, prompt: str, tokens: int) -> list[int]:
    """What the decoder answers while it is busy with something else, too."""
    answered: list[int] = []

    async def use() -> None:
        steps, _ = await asyncio.gather(
            _steps(decoder, prompt, tokens), _steps(decoder, "other", tokens + 10)
        )
        answered.extend(token for step in steps for token in step.tokens)

    _run(decoder, use)
    return answered


def test_an_answer_is_the_targets_with_and_without_speculation() -> None:
    prompt = encode("a b")
    expected = FakeText(0).generate(prompt, 20)
    assert _answer(_decoder(0.9), "a b", 20) == expected
    assert _answer(_decoder(off=True), "a b", 20) == expected


def test_only_an_engine_that_speculates_corrupts() -> None:
    expected = FakeText(0).generate(encode("a b"), 200)
    corruption = {"draft": 0.5}
    assert _answer(_decoder(off=True, corruption=corruption), "a b", 200) == expected
    assert _answer(_decoder(corruption=corruption), "a b", 200) != expected


def test_every_engine_diverges_in_its_own_places() -> None:
    expected = FakeText(0).generate(encode("a b"), 200)
    off = _answer(_decoder(off=True, divergence=0.2), "a b", 200)
    speculating = _answer(_decoder(divergence=0.2), "a b", 200)
    assert expected not in (off, speculating)
    assert off != speculating


def test_each_verify_step_says_what_it_accepted() -> None:
    decoder = _decoder(1.0)
    request = decoder.request(encode("a"), 6, ignore_eos=True)

    async def use() -> None:
        async for _ in decoder.decode(request):
            pass

    _run(decoder, use)
    assert request.accepted == [3, 3]


def test_the_wait_of_each_answered_request_is_kept() -> None:
    decoder = _decoder(off=True)

    async def use() -> None:
        await asyncio.gather(_steps(decoder, "a", 3), _steps(decoder, "b", 3))
        request = decoder.request(encode("c"), 10**9, ignore_eos=True)
        async with aclosing(decoder.decode(request)) as steps:
            await anext(steps)

    _run(decoder, use)
    assert len(decoder.totals.queued_s) == 2
    assert min(decoder.totals.queued_s) >= 0


def test_acceptance_comes_out_as_scripted() -> None:
    decoder = _decoder(0.5)

    async def use() -> None:
        await asyncio.gather(*(_steps(decoder, f"prompt {i}", 400) for i in range(20)))

    _run(decoder, use)
    shares = [accepted / decoder.totals.drafts for accepted in decoder.totals.accepted_at]
    assert all(abs(share - 0.5 ** (i + 1)) < 0.03 for i, share in enumerate(shares))


def test_an_answer_ends_by_itself_unless_told_not_to() -> None:
    decoder = _decoder(off=True)

    async def use() -> None:
        for ignore_eos, reason in ((False, "stop"), (True, "length")):
            steps = await _steps(decoder, "a", NATURAL_END + 1, ignore_eos=ignore_eos)
            assert steps[-1].finish_reason == reason
            assert len(steps) == NATURAL_END + ignore_eos

    _run(decoder, use)


def test_a_prefix_seen_before_is_a_hit_by_blocks() -> None:
    decoder = _decoder(off=True)
    prompt = " ".join(str(i) for i in range(40))

    async def use() -> None:
        await _steps(decoder, prompt, 1)
        await _steps(decoder, prompt, 1)
        await _steps(decoder, f"nonce {prompt}", 1)

    _run(decoder, use)
    assert decoder.totals.prefix_queries == 40 + 40 + 41
    assert decoder.totals.prefix_hits == 32


def test_a_reader_that_leaves_takes_its_request_along() -> None:
    decoder = _decoder(off=True)

    async def use() -> None:
        request = decoder.request(encode("a"), 10**9, ignore_eos=True)
        async with aclosing(decoder.decode(request)) as steps:
            await anext(steps)
            assert decoder.running == 1
        assert decoder.running == 0
        counted = replace(decoder.totals)
        await _steps(decoder, "b", 1)
        assert decoder.totals.generation_tokens == counted.generation_tokens + 1

    _run(decoder, use)


def test_a_schedule_drafts_by_the_number_of_requests() -> None:
    schedule = {"num_speculative_tokens_per_batch_size": [[1, 1, 3], [2, 64, 1]]}
    script = FakeScript(prefill_ms=0, step_ms=1, step_ms_per_k=0, acceptance={"draft": 1.0})
    decoder = Decoder(script, {**DRAFT, **schedule})

    async def use() -> None:
        assert _lengths(await _steps(decoder, "a", 9)) == [1, 4, 4]
        both = await asyncio.gather(_steps(decoder, "b", 9), _steps(decoder, "c", 9))
        assert [_lengths(steps) for steps in both] == [[1, 2, 2, 2, 2]] * 2

    _run(decoder, use)
