from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

from tuner.engine.fake_decode import NATURAL_END, Decoder, Step
from tuner.engine.fake_script import FakeScript

DRAFT = {"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}


def _decoder(acceptance: float = 0.5, *, off: bool = False) -> Decoder:
    script = FakeScript(
        prefill_ms=0,
        step_ms=0,
        step_ms_per_k=0,
        step_ms_per_request=0,
        acceptance={"draft": acceptance},
    )
    return Decoder(script, None if off else DRAFT)


async def _steps(
    decoder: Decoder, prompt: str, tokens: int, *, ignore_eos: bool = True
) -> list[Step]:
    request = decoder.request(prompt, tokens, ignore_eos=ignore_eos)
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
    return [len(step.words) for step in steps]


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


def test_an_answer_does_not_depend_on_speculation_or_company() -> None:
    texts: list[list[str]] = []
    for decoder in (_decoder(0.9), _decoder(off=True)):

        async def use(decoder: Decoder = decoder) -> None:
            steps, _ = await asyncio.gather(
                _steps(decoder, "a b", 20), _steps(decoder, "other", 30)
            )
            texts.append([word for step in steps for word in step.words])

        _run(decoder, use)
    assert texts[0] == texts[1]
    assert len(texts[0]) == 20


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
        request = decoder.request("a", 10**9, ignore_eos=True)
        async with aclosing(decoder.decode(request)) as steps:
            await anext(steps)
            assert decoder.running == 1
        assert decoder.running == 0

    _run(decoder, use)
