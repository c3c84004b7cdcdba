"""What `tuner optimize --until screen` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from studies.screening import Row
from tuner.records import Estimate


def screened(rows: Sequence[Row], seconds: float) -> RenderableType:
    """A setting per line: replayed tokens per decode step, by kind too, and predicted speed-ups."""
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.screen.by_kind))
    loads = list(dict.fromkeys(each.load for row in rows for each in row.predicted))
    table = Table(title="predicted, none of it measured", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("setting", "tokens per decode step", *kinds):
        table.add_column(heading, overflow="fold")
    for load in loads:
        table.add_column(f"speed-up at {load}")
        table.add_column("breaks even at")
    for row in rows:
        found = row.screen
        if found.reason is not None:
            table.add_row(found.setting.label, found.reason)
            continue
        predicted = [
            cell
            for each in row.predicted
            for cell in (
                f"{each.speedup:.2f}x ({each.low:.2f}-{each.high:.2f})",
                _needed(each.break_even_tokens_per_step),
            )
        ]
        by_kind = [_estimate(found.by_kind.get(kind)) for kind in kinds]
        table.add_row(
            found.setting.label,
            _estimate(found.tokens_per_decode_step, bounds=True),
            *by_kind,
            *predicted,
        )
    replayed = next((row.screen for row in rows if row.screen.tokens), None)
    said = "nothing could be replayed"
    if replayed is not None:
        said = f"replayed over {replayed.requests} answers of the baseline"
        said += f" ({replayed.tokens} tokens) in {seconds:.0f} s; no setting was started"
    return Group(table, Text(said))


def _estimate(found: Estimate | None, *, bounds: bool = False) -> str:
    if found is None:
        return "-"
    sure = f" ({found.low:.2f}-{found.high:.2f})" if bounds and found.low is not None else ""
    return f"{found.value:.2f}{sure}"


def _needed(tokens: float | None) -> str:
    return "never" if tokens is None else f"{tokens:.2f} tokens"
