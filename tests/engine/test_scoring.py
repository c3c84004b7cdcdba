"""Scoring through running engines: real vLLM, and the fake that stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import httpx
import pytest

from tests.engine.asking import TEXTS, post
from tuner.engine.fake_text import OWN
from tuner.engine.server import Server
from tuner.errors import RoundError
from tuner.measure.sameness import judge
from tuner.measure.scoring import RANDOM_TOKENS_BELOW, mean_prompt_logprob, score_answers
from tuner.records import RequestSample, Sameness

TOKENS = 64
IN_FLIGHT = 4
PROMPTS = (
    *TEXTS,
    "Расскажите, пожалуйста, как лучше подготовиться к собеседованию на должность бухгалтера.",
    "请告诉我如何用平底锅做一份简单的早餐。我有两个鸡蛋、一些番茄和一片面包。",
    "Mein Nachbar spielt jeden Abend Schlagzeug. Schreibe ihm bitte einen freundlichen Zettel.",
    "def mean(values):\n    return sum(values) / len(values)\n\n\nprint(mean([1, 2, 3]))",
    "7f3a9c1e40b28d65 e19b04c7a2f85d30 9d2c67b10fa4e853 3be80f6c5a917d24",
    "q8Zt3vLw0XJk5RyN2bGh7MfPaU1sDcVeI6oTjQ9xKzYB4nHrWmFgEpLu",
)
"""What people send in other languages, as code, as numbers and as blobs."""


def answers(server: Server, texts: Sequence[str] = TEXTS) -> list[RequestSample]:
    """Greedy answers with their ids, several at once."""

    def ask(text: str) -> RequestSample:
        body = {
            "model": server.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": TOKENS,
            "temperature": 0,
            "return_token_ids": True,
        }
        answer = post(server.base_url, "/v1/chat/completions", body).json()
        return RequestSample(
            text,
            "chat",
            0.0,
            prompt_token_ids=tuple(answer["prompt_token_ids"]),
            token_ids=tuple(answer["choices"][0]["token_ids"]),
        )

    with ThreadPoolExecutor(IN_FLIGHT) as users:
        return list(users.map(ask, texts))


def corrupted(samples: Sequence[RequestSample], vocabulary: int) -> list[RequestSample]:
    """Three tokens in a hundred replaced by others."""
    random = Random(5)

    def token(right: int) -> int:
        return random.randrange(3, vocabulary) if random.random() < 0.03 else right

    return [replace(each, token_ids=tuple(map(token, each.token_ids))) for each in samples]


def judged(
    target: Server, baseline: Sequence[RequestSample], candidate: Sequence[RequestSample]
) -> Sameness:
    ours, theirs = (
        score_answers(
            target.base_url,
            target.model,
            [(name, number, each) for number, each in enumerate(samples)],
        )
        for name, samples in (("baseline", baseline), ("candidate", candidate))
    )
    assert [text.tokens for text in theirs] == [len(each.token_ids) for each in candidate]
    return judge(ours, theirs, temperature=0)


def prompt_ids(server: Server, texts: Sequence[str]) -> list[tuple[int, ...]]:
    bodies = [{"model": server.model, "prompt": text} for text in texts]
    return [tuple(post(server.base_url, "/tokenize", body).json()["tokens"]) for body in bodies]


def random_ids(vocabulary: int) -> list[tuple[int, ...]]:
    random = Random(6)
    return [tuple(random.randrange(vocabulary) for _ in range(n)) for n in (16, 32, 64, 128, 256)]


@pytest.mark.engine
class TestReal:
    VOCABULARY = 49152

    def test_a_healthy_draft_passes_and_a_corrupted_copy_is_caught(
        self, real_baseline: Server, real_own_draft: Server
    ) -> None:
        """The draft's engine even computes in float32, the target's in bfloat16."""
        baseline, candidate = answers(real_baseline), answers(real_own_draft)

        healthy = judged(real_baseline, baseline, candidate)
        bad = judged(real_baseline, baseline, corrupted(candidate, self.VOCABULARY))

        assert not healthy.worse, healthy.reason
        assert bad.worse, bad.reason

    def test_what_the_engine_says_itself_is_on_target(self, real_baseline: Server) -> None:
        """But for ties in bfloat16, which a batch of another shape may break the other way."""
        samples = answers(real_baseline)
        found = score_answers(
            real_baseline.base_url,
            real_baseline.model,
            [("m", number, each) for number, each in enumerate(samples)],
        )

        tokens = sum(text.tokens for text in found)
        assert tokens == sum(len(each.token_ids) for each in samples)
        assert sum(text.off_target for text in found) <= 0.01 * tokens

    def test_random_tokens_are_told_from_whatever_people_send(self, real_baseline: Server) -> None:
        target = real_baseline.base_url, real_baseline.model
        likeliest = mean_prompt_logprob(*target, random_ids(self.VOCABULARY))
        each = [mean_prompt_logprob(*target, [ids]) for ids in prompt_ids(real_baseline, PROMPTS)]

        assert likeliest is not None
        assert likeliest < RANDOM_TOKENS_BELOW - 2
        assert all(mean is not None and mean > RANDOM_TOKENS_BELOW + 1 for mean in each), each

    def test_an_answer_that_filled_the_context(self, real_baseline: Server) -> None:
        """It cannot be given back whole: the engine must have room for a token of its own."""
        models = httpx.get(f"{real_baseline.base_url}/v1/models", trust_env=False).json()
        context = models["data"][0]["max_model_len"]
        ids = tuple(Random(7).randrange(3, self.VOCABULARY) for _ in range(context))
        full = RequestSample("p", "chat", 0.0, prompt_token_ids=ids[:-9], token_ids=ids[-9:])

        [found] = score_answers(real_baseline.base_url, real_baseline.model, [("m", 0, full)])

        assert found.tokens == 8

    def test_a_refusal_carries_the_engine_s_words(self, real_baseline: Server) -> None:
        beyond = RequestSample("p", "chat", 0.0, prompt_token_ids=(1,), token_ids=(10**6,))

        with pytest.raises(RoundError, match=r"400.*vocabulary"):
            score_answers(real_baseline.base_url, real_baseline.model, [("m", 0, beyond)])


class TestFake:
    def test_it_is_scored_as_real_vllm_is(self, fake_baseline: Server) -> None:
        samples = answers(fake_baseline)

        healthy = judged(fake_baseline, samples, samples)
        bad = judged(fake_baseline, samples, corrupted(samples, OWN))

        assert sum(text.off_target for text in healthy.candidate) == 0
        assert bad.worse, bad.reason

    def test_random_tokens_are_told_from_text(self, fake_baseline: Server) -> None:
        target = fake_baseline.base_url, fake_baseline.model
        random = mean_prompt_logprob(*target, random_ids(OWN))
        text = mean_prompt_logprob(*target, prompt_ids(fake_baseline, TEXTS))

        assert random is not None
        assert text is not None
        assert random < RANDOM_TOKENS_BELOW < text
