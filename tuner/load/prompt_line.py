"""What is known of one prompt of a file, checked field by field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

MILLISECONDS_FROM, MILLISECONDS_TO = 1e11, 1e14
"""A number in between is milliseconds since 1970: seconds of that size lie after the year 5000."""


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise ValueError(f"holds half a character ({half} without its other half)") from error
    return text


def _joined(content: object) -> object:
    """OpenAI's list of content parts as one text."""
    if not isinstance(content, list):
        return content
    return "".join(_text_of(part) for part in content)


def _text_of(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise ValueError("must be text or a list of parts such as {type: text, text: ...}")  # noqa: TRY004
    text, kind = part.get("text"), str(part.get("type"))
    if isinstance(text, str):
        return text
    held = "an image" if "image" in kind else f"a part of type {kind}"
    raise ValueError(f"holds {held}; only text can be sent, so leave this request out")


def _no_token_ids(prompt: object) -> object:
    if not isinstance(prompt, list):
        return prompt
    if prompt and all(isinstance(part, str) for part in prompt):
        raise ValueError("must be one text; write a line for each")
    raise ValueError(
        "must be text, not token ids: on tokens that nobody wrote, such as random ones, acceptance"
        " means nothing (vllm#52536)"
    )


def _seconds(time: object) -> float | None:
    """Seconds, or an ISO 8601 date and time; one without a zone is taken as UTC."""
    if time is None:
        return None
    if isinstance(time, str):
        return _seconds_of_text(time.strip())
    if isinstance(time, int | float) and not isinstance(time, bool):
        return _scaled(time)
    raise ValueError("must be a number of seconds, or a date and time: 2026-11-29T12:00:00Z")


def _seconds_of_text(text: str) -> float:
    try:
        return _scaled(float(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("must be seconds, or a date and time: 2026-11-29T12:00:00Z") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _scaled(number: float) -> float:
    if abs(number) < MILLISECONDS_FROM:
        return float(number)
    if abs(number) < MILLISECONDS_TO:
        return number / 1000
    raise ValueError("must be seconds, or milliseconds since 1970")


Text = Annotated[str, AfterValidator(_whole)]


class Message(BaseModel):
    """A chat message."""

    model_config = ConfigDict(frozen=True)

    role: Text = Field(min_length=1)
    content: Annotated[Text, BeforeValidator(_joined)]


class Line(BaseModel):
    """One prompt: ``messages`` or ``prompt``. ``timestamp`` is in seconds."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    id: Text
    kind: Text = "unlabelled"
    messages: tuple[Message, ...] | None = None
    prompt: Annotated[Text | None, BeforeValidator(_no_token_ids)] = None
    output_tokens: int | None = Field(default=None, ge=2)
    timestamp: Annotated[float | None, BeforeValidator(_seconds)] = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.messages) == bool(self.prompt):
            raise ValueError("give 'messages' or 'prompt', one of the two, and not empty")
        return self
