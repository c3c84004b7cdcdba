"""Study files: YAML text to a :class:`StudySpec`, or every mistake at once with its line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tuner.errors import Mistake, SpecError
from tuner.spec import StudySpec
from tuner.spec_mistakes import Location, field_at, part_at, plain

MAX_NODES = 10_000
"""More than any study needs; YAML's aliases can blow a short text up to any size."""

_OTHER_NAMES = {"k": "num_speculative_tokens"}
_NUMBERS_AND_SUCH = frozenset({"bool", "float", "int", "null"})
_TEXT = frozenset({"str", "timestamp", "merge", "value"})


def load_study(path: Path) -> StudySpec:
    """Read a study file. Relative ``workload.path`` and ``engine.python``, and models that start
    with ``./`` or ``../``, are taken from the file's own folder and come back absolute.

    Raises SpecError where the file cannot be read or :func:`parse_study` finds it wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise SpecError(str(path), [Mistake("", problem)]) from error
    except UnicodeDecodeError as error:
        raise SpecError(str(path), [Mistake("", "is not UTF-8 text")]) from error
    return _located(parse_study(text, str(path)), path.parent)


def parse_study(text: str, source: str) -> StudySpec:
    """The study that a YAML text describes. ``source`` names the text in mistakes.

    Raises SpecError with every mistake: not YAML, an empty text, keys that are unknown or given
    twice, values that are missing or wrong.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            raise SpecError(source, [_not_a_study(root)])
        tree = _Tree(root)
    except yaml.YAMLError as error:
        raise SpecError(source, [_not_yaml(error, text)]) from error
    except RecursionError as error:
        raise SpecError(source, [Mistake("", "is nested too deeply")]) from error
    mistakes = tree.mistakes
    try:
        study = StudySpec.model_validate(tree.data)
    except ValidationError as errors:
        known = {mistake.where for mistake in mistakes}
        found = [
            tree.mistake(error["loc"], plain(error))
            for error in errors.errors(include_url=False)
            if not _is_an_echo(error)
        ]
        mistakes = mistakes + [mistake for mistake in found if mistake.where not in known]
    if mistakes:
        raise SpecError(source, sorted(mistakes, key=lambda mistake: mistake.line or 0))
    return study


def _is_an_echo(error: ErrorDetails) -> bool:
    """A list that is called too short because all its entries are wrong, each said already."""
    return error["type"] == "too_short" and bool(error["input"])


class _Tree:
    """YAML's node tree, whose nodes know their lines, and the plain values in it."""

    def __init__(self, root: yaml.MappingNode) -> None:
        self.root = root
        self.mistakes: list[Mistake] = []
        self._nodes = 0
        self.data = self._value(root, "")

    def _value(self, node: yaml.Node, place: str) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise yaml.YAMLError(f"more than {MAX_NODES} values, aliases counted where they stand")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, f"{place}[{i}]") for i, item in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, place, "a key must be text")
                continue
            name, inner = key.value, _inside(place, key.value)
            if name in values:
                self._note(key, inner, f"given twice, first on line {lines[name]}; keep one")
                continue
            lines[name] = _line(key)
            values[name] = self._value(value, inner)
        return values

    def _scalar(self, node: yaml.Node, place: str) -> Any:
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        if tag in _TEXT:
            return node.value
        if tag not in _NUMBERS_AND_SUCH:
            self._note(node, place, f"the tag {node.tag} means nothing here; remove it")
            return None
        try:
            return yaml.constructor.SafeConstructor().construct_object(node)
        except (KeyError, ValueError):
            self._note(node, place, f"{node.value[:60]!r} is no {tag}")
            return None

    def _note(self, node: yaml.Node, place: str, message: str) -> None:
        self.mistakes.append(Mistake(place, message, _line(node)))

    def mistake(self, location: Location, message: str) -> Mistake:
        """A mistake at pydantic's location: on the value's line; on the key's where the key is
        what is wrong; on the parent's where there is none.
        """
        node: yaml.Node = self.root
        place, line = "", _line(node)
        for depth, step in enumerate(location, start=1):
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node, place = node.value[step], f"{place}[{step}]"
                line = _line(node)
            elif isinstance(node, yaml.MappingNode) and (entry := _entry(node, str(step))):
                key, node = entry
                place = _inside(place, key.value)
                about_key = location[depth:] == ("[key]",) or _is_unknown(location[:depth])
                line = _line(key if about_key else node)
            else:
                if isinstance(node, yaml.MappingNode) and field_at(location[:depth]):
                    place = _inside(place, str(step))
                break
        return Mistake(place, message, line)


def _is_unknown(location: Location) -> bool:
    """Whether the last step is a key that its part of a study does not have."""
    return part_at(location[:-1]) is not None and field_at(location) is None


def _entry(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    names = {name, _OTHER_NAMES.get(name, name)}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in names:
            return key, value
    return None


def _inside(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _not_a_study(root: yaml.Node | None) -> Mistake:
    wanted = "a study has at least name, target, candidates and loads"
    if root is None:
        return Mistake("", f"is empty; {wanted}")
    return Mistake("", f"must be a mapping (key: value); {wanted}", _line(root))


def _not_yaml(error: yaml.YAMLError, text: str) -> Mistake:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        if "'\\t'" in str(error.problem):
            return Mistake("", "is not YAML: a tab; indent with spaces", line)
        said = [text for text in (error.context, error.problem) if text]
        return Mistake("", f"is not YAML: {', '.join(said)}", line)
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Mistake("", "is not YAML: a character that cannot be printed", line)
    return Mistake("", str(error))


def _located(study: StudySpec, folder: Path) -> StudySpec:
    """The study with its relative paths made absolute, as seen from its file's folder."""
    engine, workload = study.engine, study.workload
    if engine.python:
        engine = engine.model_copy(update={"python": Path(_absolute(folder, engine.python))})
    if workload.path:
        workload = workload.model_copy(update={"path": Path(_absolute(folder, workload.path))})
    target = study.target.model_copy(update={"model": _model(folder, study.target.model)})
    candidates = tuple(
        c.model_copy(update={"model": _model(folder, c.model)}) if c.model else c
        for c in study.candidates
    )
    parts = {"engine": engine, "workload": workload, "target": target, "candidates": candidates}
    return study.model_copy(update=parts)


def _model(folder: Path, model: str) -> str:
    return _absolute(folder, model) if model.startswith(("./", "../")) else model


def _absolute(folder: Path, path: Path | str) -> str:
    # Not resolve(): a virtual environment's python is a link that must stay one.
    return os.path.normpath((folder / path).absolute())
