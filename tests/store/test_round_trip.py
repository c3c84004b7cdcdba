"""Whatever a record holds reads back exactly, over SQLite and PostgreSQL alike."""

from dataclasses import fields
from datetime import datetime, timedelta, timezone

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests import factories
from tuner.errors import Failure, FailureKind
from tuner.records import Counters, Figures, RequestSample, Round
from tuner.spec import Load

over_one_store = hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
odd_text = st.text(st.characters(codec=None), max_size=20)  # NUL and lone surrogates too
sound_float = st.floats(0, allow_nan=False, allow_infinity=False)
whole = st.integers(0, 2**62)


@over_one_store
@given(data=st.data())
def test_engine_start_reads_back_with_any_text(store, data):
    texts = st.builds(
        factories.engine_start,
        argv=st.lists(odd_text, max_size=3).map(tuple),
        env=st.dictionaries(odd_text, odd_text, max_size=3),
        log_path=odd_text,
        log_tail=odd_text,
        failure=st.none() | st.builds(Failure, st.sampled_from(FailureKind), odd_text),
    )
    start = data.draw(texts)
    factories.add_study(store)
    store.add_engine_start(start)
    assert {s.id: s for s in store.engine_starts("chat")}[start.id] == start


# Offsets, not zones: a time that a zone skips or has twice equals none of another zone.
moment = st.datetimes(
    datetime(1, 1, 2),  # noqa: DTZ001
    datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)


@over_one_store
@given(data=st.data())
def test_measurement_reads_back_exactly(store, data):
    start = factories.engine_start()
    factories.add_study(store)
    store.add_engine_start(start)
    measurement = data.draw(
        st.builds(
            factories.measurement,
            engine_start=st.just(start.id),
            figures=st.builds(
                Figures,
                **{
                    f.name: sound_float | st.none()
                    for f in fields(Figures)
                    if f.type == "float | None"
                },
                requests=whole,
                output_tokens=whole,
                duration_s=sound_float,
                output_throughput_tok_s=sound_float,
                acceptance_at_position=st.none() | st.lists(sound_float, max_size=4).map(tuple),
            ),
            counters=st.builds(
                Counters,
                **{f.name: whole for f in fields(Counters) if f.type == "int"},
                accepted_at_position=st.lists(whole, max_size=4).map(tuple),
            ),
            measured_at=moment,
            warnings=st.lists(odd_text, max_size=3).map(tuple),
            samples_path=odd_text,
        )
    )
    store.add_measurements([measurement])
    assert {m.id: m for m in store.measurements(study="chat")}[measurement.id] == measurement


@over_one_store
@given(data=st.data())
def test_samples_read_back_exactly(store, data):
    numbers = {name: st.none() | sound_float for name in ("ttft_ms", "e2e_ms")}
    counts = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
    numbers |= {
        name: st.none() | st.integers(0, 2**40) for name in ("prompt_tokens", "completion_tokens")
    }
    numbers |= dict.fromkeys(("chunk_tokens", "token_ids", "prompt_token_ids"), counts)
    numbers |= {name: st.none() | counts for name in ("accepted_per_step", "drafted_per_step")}
    sample = st.builds(
        RequestSample,
        prompt_id=odd_text,
        kind=odd_text,
        started_s=sound_float,
        text=odd_text,
        error=st.none() | odd_text,
        counted=st.booleans(),
        chunk_ms=st.lists(sound_float, max_size=3).map(tuple),
        **numbers,
    )
    samples = data.draw(st.lists(sample, max_size=3).map(tuple))
    path, _ = store.save_samples("m1", Round(Load(concurrency=1), samples))
    assert store.load_samples(path) == list(samples)
