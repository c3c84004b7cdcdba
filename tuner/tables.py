"""What commands print: a table for people, a JSON-able body for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from studies.trials import Trial
from tuner.answers import (
    BreakEven,
    Interval,
    Recommendation,
    Recommendations,
    Speedup,
)
from tuner.display import ratio
from tuner.errors import NotFoundError
from tuner.preflight import Report
from tuner.records import Estimate, Setting, Stage, StudyRecord
from tuner.spec import Load
from tuner.store import Store

if TYPE_CHECKING:
    from studies.live_k import Trust  # takes a second to import

STOPPED = {
    "decided": "the difference was clear",
    "precise": "any difference is smaller than the precision asked for",
    "limit": "no more pairs are measured than that",
}

NO_PRICE = "no price, so no dollars: add `price: {usd_per_hour: ..., devices: ...}` to the study"


def named(store: Store, name: str | None) -> StudyRecord:
    """The study of that name, or the one worked on last."""
    if name is not None:
        return store.study(name)
    known = store.studies()
    if not known:
        raise NotFoundError("the store has no study yet; try `tuner optimize quickstart`")
    return known[0]


def finished(store: Store, name: str | None) -> list[Recommendation]:
    """The answers of a study that has them."""
    record = named(store, name)
    if record.stage is not Stage.DONE:
        raise NotFoundError(
            f"study {record.name} is not done (stage {record.stage}), so it has no recommendation;"
            f" `tuner optimize {record.name}` goes on with it"
        )
    return store.recommendations(record.name)


def at_load(answers: Sequence[Recommendation], load: Load | None) -> Recommendation:
    """The answer for a load; the first one's without."""
    for answer in answers:
        if load in {None, answer.load}:
            return answer
    known = ", ".join(answer.load.key for answer in answers)
    raise NotFoundError(f"no recommendation for {load}; there is {known}")


def as_answer(answers: Sequence[Recommendation]) -> dict[str, Any]:
    return Recommendations(recommendations=list(answers)).model_dump(mode="json")


def recommendations(answers: Sequence[Recommendation]) -> RenderableType:
    """One column per load, then what they rest on."""
    first = answers[0]
    table = Table(title=f"{first.study}: {first.target}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("baseline → recommended")
    for answer in answers:
        table.add_column(str(answer.load), overflow="fold")
    columns = [_column(answer) for answer in answers]
    for heading in columns[0]:
        table.add_row(heading, *(column[heading] for column in columns))
    parts = [_breakdown(answer) for answer in answers if answer.breakdown]
    return Group(table, *parts, *_notes(answers))


def _breakdown(answer: Recommendation) -> Table:
    """The finalist by kind of prompt and by prompt length: one speed-up does not fit all."""
    config = answer.speculative_config or answer.considered[0].speculative_config
    title = f"{Setting.of(config).label} at {answer.load}, by kind and by prompt length"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("prompts", "answers", "TPOT p50, ms", "TPOT speed-up", "acceptance length"):
        table.add_column(heading)
    for part in answer.breakdown:
        table.add_row(
            part.name if part.by == "kind" else f"{part.name} prompt tokens",
            str(part.requests),
            change(part.baseline_tpot_ms_p50, part.tpot_ms_p50),
            _interval(part.tpot_speedup, "x"),
            _interval(part.acceptance_length),
        )
    return table


def _interval(found: Interval | None, unit: str = "") -> str:
    if found is None:
        return "-"
    bounds = "" if found.low is None else f" ({found.low:.2f}-{found.high:.2f})"
    return f"{found.value:.2f}{unit}{bounds}"


def _column(answer: Recommendation) -> dict[str, str]:
    s, measured, base, cost = answer.speedup, answer.measured, answer.baseline, answer.cost
    drafting, on = answer.drafting, answer.speculative_config is not None
    dollars = "-"
    if cost is not None:
        before, after = (
            cost.baseline_usd_per_million_output_tokens,
            cost.usd_per_million_output_tokens,
        )
        dollars = f"{before:.4f} → {after:.4f}"
    return {
        "run": Setting.of(answer.speculative_config).label,
        f"speed-up, {answer.objective}": speedup(s if on else None),
        "TPOT p50, ms": change(base.tpot_ms_p50, measured.tpot_ms_p50),
        "TTFT p95, ms": change(base.ttft_ms_p95, measured.ttft_ms_p95),
        "output, tok/s": change(base.output_throughput_tok_s, measured.output_throughput_tok_s),
        "acceptance length": _interval(drafting.acceptance_length if drafting else None),
        "tokens per decode step": _number(answer.tokens_per_decode_step, 2),
        "KV cache, tokens": change(answer.baseline_kv_cache_tokens, answer.kv_cache_tokens, 0),
        "$ per million output tokens": dollars,
    }


def change(before: float | None, after: float | None, digits: int = 1) -> str:
    return f"{_number(before, digits)} → {_number(after, digits)}"


def _notes(answers: Sequence[Recommendation]) -> list[Text]:
    first = answers[0]
    runner = f", runner {first.engine.runner}" if first.engine.runner else ""
    sure = f"{first.speedup.confidence:.0%} intervals"
    lines = [
        f"{sure}; measured {first.measured_at:%Y-%m-%d %H:%M} UTC",
        f"on {first.hardware}, {first.engine.name} {first.engine.version}{runner}",
    ]
    if first.cost is None:
        lines.append(NO_PRICE)
    for answer in answers:
        lines += [
            f"{answer.load}: best candidate {Setting.of(c.speculative_config).label} came to"
            f" {c.speedup.value:.2f}x ({c.speedup.low:.2f}-{c.speedup.high:.2f}), {c.reason}"
            for c in answer.considered
        ]
    lines += dict.fromkeys(
        _up_to(answer.break_even) for answer in answers if answer.break_even is not None
    )
    lines += [
        f"{answer.load}: {answer.pairs} pairs, stopped because {STOPPED[answer.stopped_because]}"
        for answer in answers
        if answer.stopped_because
    ]
    lines += [f"{answer.load}: {answer.sameness.reason}" for answer in answers if answer.sameness]
    common = [text for text in first.warnings if all(text in a.warnings for a in answers)]
    lines += [f"warning: {text}" for text in common]
    lines += [
        f"warning, {answer.load}: {text}"
        for answer in answers
        for text in answer.warnings
        if text not in common
    ]
    lines.append(f"start it: tuner export {first.study} --format sh -o serve.sh")
    return [Text(line) for line in lines]


def _up_to(found: BreakEven) -> str:
    label = Setting.of(found.speculative_config).label
    return (
        f"{label} pays up to about concurrency {found.concurrency:.1f}, or"
        f" {found.requests_per_s:.2f} requests/s: between {found.on_at} and {found.off_at}"
    )


def speedup(found: Speedup | None) -> str:
    return f"{found.value:.2f}x ({found.low:.2f}-{found.high:.2f})" if found else "-"


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def report(name: str, settings: int, found: Report) -> RenderableType:
    """What preflight says of a study."""
    lines = [Text(f"problem: {text}", style="red") for text in found.problems]
    lines += [Text(f"warning: {text}", style="yellow") for text in found.warnings]
    verdict = "cannot run" if found.problems else "can run"
    return Group(*lines, Text(f"{name}: {settings} settings, off included; the study {verdict}"))


def live_k(found: Sequence[Trust]) -> RenderableType:
    """Engines whose k was changed while they ran, beside plain ones of the same k."""
    if not found:
        return Text("live k: no candidate has two values of k that one engine could measure")
    title = "k changed live, against plain engines"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("method", "k", "pairs", "step time, live : plain", "acceptance, plain → live"):
        table.add_column(heading)
    for trust in found:
        for at in trust.at:
            lengths = (at.plain_acceptance_length, at.live_acceptance_length)
            plain, live = (length.value if length else None for length in lengths)
            table.add_row(
                trust.method,
                str(at.k),
                str(len(at.step_times)),
                _of_log(at.log_ratio),
                change(plain, live, 2),
            )
    lines = [
        f"{trust.method}: {'trusted' if trust.trusted else 'not trusted: '}{trust.reason}"
        f" ({trust.device}, vLLM {trust.version}, runner {trust.runner})"
        for trust in found
    ]
    return Group(table, *map(Text, lines))


def _of_log(found: Estimate) -> str:
    """A ratio whose log was estimated."""
    if found.low is None or found.high is None:
        return ratio(found.value)
    return f"{ratio(found.value)} ({ratio(found.low)} to {ratio(found.high)})"


def studies(records: Sequence[StudyRecord]) -> RenderableType:
    table = Table()
    for heading in ("study", "stage", "target", "objective", "loads", "worked", "updated"):
        table.add_column(heading, overflow="fold")
    for r in records:
        loads = ", ".join(map(str, r.spec.loads))
        table.add_row(
            r.name,
            str(r.stage),
            r.spec.target.model,
            r.spec.objective,
            loads,
            f"{r.spent_s / 60:.1f} min",
            f"{r.updated_at:%Y-%m-%d %H:%M} UTC",
        )
    return table


def studies_body(records: Sequence[StudyRecord]) -> dict[str, Any]:
    return {
        "studies": [
            {
                "name": r.name,
                "stage": r.stage,
                "target": r.spec.target.model,
                "objective": r.spec.objective,
                "loads": [load.model_dump() for load in r.spec.loads],
                "spent_s": r.spent_s,
                "created_at": r.created_at.isoformat(),
                "updated_at": r.updated_at.isoformat(),
                "done": r.stage is Stage.DONE,
            }
            for r in records
        ]
    }


def trials(found: Sequence[Trial]) -> RenderableType:
    table = Table()
    loads = list(
        dict.fromkeys(load for trial in found for load in (*trial.log_ratios, *trial.predicted))
    )
    for heading in ("setting", "state", *map(str, loads)):
        table.add_column(heading, overflow="fold")
    for trial in found:
        ratios = [_speedup_at(trial, load) for load in loads]
        state = trial.state if trial.failure is None else f"{trial.state}: {trial.failure}"
        table.add_row(trial.setting.label, state, *ratios)
    return Group(table, Text("explored speed-ups choose what is confirmed; they are not results"))


def _speedup_at(trial: Trial, load: Load) -> str:
    if load in trial.log_ratios:
        return ratio(trial.log_ratios[load])
    found = trial.predicted.get(load)
    return "" if found is None else f"predicted {ratio(found.mean)}"
