"""What `tuner verify` prints: a table for people, a JSON-able body for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tuner.answers import Verification, Verifications
from tuner.records import Setting
from tuner.tables import change, speedup

AS_IT_WAS = "engine, host, target, arguments and workload are what they were, as far as is known"


def verifications(found: Sequence[Verification]) -> RenderableType:
    """One column per load, then the verdicts in words and what else is not as it was."""
    first = found[0]
    table = Table(title=f"{first.study}: {first.target}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("stored, and measured again")
    for each in found:
        table.add_column(str(each.load), overflow="fold")
    columns = [_verified(each) for each in found]
    for heading in columns[0]:
        table.add_row(heading, *(column[heading] for column in columns))
    runner = f", runner {first.engine.runner}" if first.engine.runner else ""
    lines = [f"{each.load}: {each.outcome}: {each.reason}" for each in found]
    lines.append(f"now on {first.hardware}, {first.engine.name} {first.engine.version}{runner}")
    changed = dict.fromkeys(text for each in found for text in each.differences)
    lines += [f"not as it was: {text}" for text in changed] or [AS_IT_WAS]
    warnings = dict.fromkeys(text for each in found for text in each.warnings)
    lines += [f"warning: {text}" for text in warnings]
    return Group(table, *map(Text, lines))


def _verified(each: Verification) -> dict[str, str]:
    tpot: tuple[float | None, float | None] = (None, None)
    if each.baseline and each.measured:
        tpot = each.baseline.tpot_ms_p50, each.measured.tpot_ms_p50
    return {
        "recommended": Setting.of(each.speculative_config).label,
        "measured again": Setting.of(each.verified_config).label if each.verified_config else "-",
        f"speed-up then, {each.objective}": speedup(each.stored_speedup),
        "speed-up now": speedup(each.speedup),
        "pairs now": str(each.pairs),
        "TPOT p50 now, ms": change(*tpot),
        "the answer": each.outcome,
    }


def verifications_body(found: Sequence[Verification]) -> dict[str, Any]:
    return Verifications(verifications=list(found)).model_dump(mode="json")
