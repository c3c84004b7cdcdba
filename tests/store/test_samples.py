import gzip
import hashlib
import json
import math

import pytest

from tuner.errors import FailureKind, RoundError, StorageError
from tuner.records import RequestSample
from tuner.store.samples import read_samples, write_samples

SAMPLES = (
    RequestSample("p1", "chat", 0.0, 40.5, 900.25, 12, 64, "length", "zwölf \ud800"),
    RequestSample("p2", "code", 0.5, error="400 Bad Request"),
)


def test_file_is_gzipped_lines_beside_the_database(tmp_path):
    path, sha256 = write_samples(tmp_path, "m1", SAMPLES)
    content = (tmp_path / path).read_bytes()
    assert path == "samples/m1.jsonl.gz"
    assert sha256 == hashlib.sha256(content).hexdigest()
    lines = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    assert [line["prompt_id"] for line in lines] == ["p1", "p2"]
    assert read_samples(tmp_path, path) == list(SAMPLES)


def test_same_samples_same_hash(tmp_path):
    assert write_samples(tmp_path, "m1", SAMPLES)[1] == write_samples(tmp_path, "m2", SAMPLES)[1]


def test_nothing_else_is_left_in_the_folder(tmp_path):
    path, _ = write_samples(tmp_path, "m1", SAMPLES)
    write_samples(tmp_path, "m1", SAMPLES)
    assert list((tmp_path / "samples").iterdir()) == [tmp_path / path]


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.0])
def test_unsound_sample_is_refused(tmp_path, number):
    with pytest.raises(RoundError, match="measurement m1, request p1: ttft_ms") as refused:
        write_samples(tmp_path, "m1", [RequestSample("p1", "chat", 0.0, ttft_ms=number)])
    assert refused.value.failure.kind is FailureKind.BAD_COUNTERS
    assert list(tmp_path.iterdir()) == []


def test_pruned_samples(tmp_path):
    with pytest.raises(StorageError, match=r"samples/m1\.jsonl\.gz.*No such file"):
        read_samples(tmp_path, "samples/m1.jsonl.gz")


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_cut_off_samples(tmp_path, keep):
    path, _ = write_samples(tmp_path, "m1", SAMPLES)
    content = (tmp_path / path).read_bytes()
    (tmp_path / path).write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(StorageError, match=r"samples/m1\.jsonl\.gz"):
        read_samples(tmp_path, path)


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "samples").write_text("a file")
    with pytest.raises(StorageError, match="samples of measurement m1"):
        write_samples(tmp_path, "m1", SAMPLES)
