"""Labels from a judge: a chat model behind an OpenAI-compatible endpoint points at unsupported stretches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

from groundscope.data.labelling.judge_prompt import judge_messages, read_answer, repair_message
from groundscope.data.labelling.occurrences import ALL, FIRST, place_quotes
from groundscope.errors import GroundscopeError, InputError, PrerequisiteError, check_choice, check_count, is_finite
from groundscope.example import Example, Label

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

_NO_KEY = "none"  # local servers want some key; the client refuses an empty one


@dataclass(frozen=True)
class Usage:
    """What requests used.

    Attributes:
        requests: Answers received (repeats by the client after a 429, a 5xx or a time-out do not count).
        prompt_tokens: Tokens read by the judge, where it says so.
        completion_tokens: Tokens written by the judge, where it says so.
        uncounted: Answers that came without token counts.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.uncounted + other.uncounted,
        )

    def cost(self, price_in: float, price_out: float) -> float:
        """Return the price of the counted tokens, in the currency of the prices per million tokens."""
        return (self.prompt_tokens * price_in + self.completion_tokens * price_out) / 1e6


class JudgeError(GroundscopeError):
    """The judge gave no usable answer on one example; others are not concerned.

    Attributes:
        usage: What was used in the attempt.
    """

    def __init__(self, message: str, usage: Usage) -> None:
        super().__init__(message)
        self.usage = usage


class NothingToJudgeError(JudgeError):
    """The example has no response or no context."""


class RequestLimitError(GroundscopeError):
    """``max_requests`` is used up."""


@dataclass(frozen=True)
class Judgement:
    """What the judge says on one response.

    Attributes:
        hallucinated: Whether it named any unsupported stretch.
        labels: Where the stretches stand.
        unmatched: Stretches that do not stand in the response word for word.
        reasons: The judge's reason for each stretch, by its text.
        usage: What was used.
    """

    hallucinated: bool
    labels: tuple[Label, ...]
    unmatched: tuple[str, ...]
    reasons: Mapping[str, str]
    usage: Usage

    def applied(self, example: Example) -> dict[str, Any]:
        """Return the fields that label an example: spans, or the whole response if none could be placed."""
        placed = bool(self.labels) or not self.hallucinated
        fields: dict[str, Any] = {
            "labels": [label.to_dict() for label in self.labels] if placed else None,
            "hallucinated": self.hallucinated,
            "label_kind": "span" if placed else "response",
        }
        if self.unmatched:
            fields["unmatched_spans"] = list(self.unmatched)
        if self.reasons:
            fields["label_reasons"] = dict(self.reasons)
        return fields


class Judge:
    """Asks a chat model for the stretches of a response that its context does not support.

    May be used from several threads at once.

    Args:
        url: Base address of the endpoint, such as ``http://localhost:8000/v1``.
        model: The judge's name there.
        api_key: The key; ``None`` sends none. It is never logged, stored or shown in an error.
        timeout: Seconds that one request may take.
        max_retries: How often the client repeats a request after 429, 5xx or a time-out, waiting longer each time.
        attempts: How often a judge that answers nonsense is asked in all.
        occurrences: Label ``all`` places where a stretch stands in the response, or the ``first``.
        max_requests: Answers to be had in all; :class:`RequestLimitError` when they are used up.

    Raises:
        PrerequisiteError: If the ``openai`` package is missing.
        InputError: If an argument is not usable.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 5,
        attempts: int = 3,
        occurrences: str = ALL,
        max_requests: int | None = None,
    ) -> None:
        self.url = checked_url(url)
        if not model.strip():
            raise InputError("The 'model' parameter of Judge must name a model. Got an empty one.")
        check_choice("Judge", "occurrences", occurrences, (ALL, FIRST))
        check_count("Judge", "attempts", attempts)
        if max_requests is not None:
            check_count("Judge", "max_requests", max_requests)
        if not is_finite(timeout) or timeout <= 0:
            raise InputError(f"The 'timeout' parameter of Judge must be a positive number. Got {timeout!r} instead.")
        self.model = model
        self.attempts = attempts
        self.occurrences = occurrences
        self.max_requests = max_requests
        try:
            import openai
        except ImportError as exc:
            raise PrerequisiteError("A judge needs the package 'openai': pip install 'groundscope[label]'") from exc
        self._openai = openai
        self._key = api_key
        self._client = openai.OpenAI(
            base_url=self.url, api_key=api_key or _NO_KEY, timeout=timeout, max_retries=max_retries
        )
        # Not every server takes these; see _ask.
        self._options: dict[str, Any] = {"response_format": {"type": "json_object"}, "temperature": 0}
        self._lock = threading.Lock()
        self._begun = 0

    def judge(self, example: Example) -> Judgement:
        """Ask about one example.

        Raises:
            JudgeError: If no usable answer came for this example, or (:class:`NothingToJudgeError`) it has no response
                or no context.
            InputError: If the endpoint or the model does not exist.
            RequestLimitError: If ``max_requests`` are used up.
            PrerequisiteError: If the endpoint cannot be reached or refuses the key, or its limit of requests holds
                on after all repeats.
        """
        if not example.response.strip() or not any(passage.strip() for passage in example.passages):
            missing = "response" if not example.response.strip() else "context"
            raise NothingToJudgeError(f"there is nothing to judge: the {missing} is empty", Usage())
        messages = judge_messages(example)
        usage, problem = Usage(), ""
        for _ in range(self.attempts):
            completion = self._ask(messages + ([repair_message(problem)] if problem else []), usage)
            usage += _usage_of(completion)
            try:
                spans = read_answer(_text_of(completion))
            except InputError as exc:
                problem = str(exc)
                continue
            placed = place_quotes(example.response, [span.text for span in spans], self.occurrences)
            reasons = {span.text: span.reason for span in spans if span.reason}
            return Judgement(bool(spans), placed.labels, placed.unmatched, reasons, usage)
        raise JudgeError(f"no usable answer in {self.attempts} attempts: {problem}", usage)

    def _ask(self, messages: list[dict[str, str]], usage: Usage) -> ChatCompletion:
        openai = self._openai
        self._count()
        options = dict(self._options)
        while True:
            try:
                completion = self._client.chat.completions.create(
                    model=self.model, messages=cast("Any", messages), **options
                )
            except (openai.BadRequestError, openai.UnprocessableEntityError) as exc:
                if not options:
                    raise JudgeError(f"the judge refuses the request: {self._shown(exc)}", usage) from None
                named = [name for name in options if name in str(exc)]
                options.pop(named[0] if named else next(iter(options)))
            except (openai.AuthenticationError, openai.PermissionDeniedError) as exc:
                raise PrerequisiteError(
                    f"The judge at {self.url} refuses access ({exc.status_code}). "
                    + ("Check the API key." if self._key else "It wants an API key: --api-key-env NAME.")
                ) from None
            except openai.NotFoundError as exc:
                raise InputError(
                    f"There is no model {self.model!r} at {self.url} (404: {self._shown(exc)}). "
                    "Check --judge-model, and --judge-url, which usually ends in /v1."
                ) from None
            except openai.RateLimitError as exc:
                raise PrerequisiteError(
                    f"The judge's limit holds on after every repeat (429: {self._shown(exc)}). "
                    "Lower --concurrency, or run the same command again later: it goes on where it stopped."
                ) from None
            except openai.APITimeoutError:
                raise JudgeError("the judge did not answer in time, also after every repeat", usage) from None
            except openai.APIConnectionError as exc:
                raise PrerequisiteError(f"The judge at {self.url} cannot be reached: {exc.__cause__ or exc}.") from None
            except (openai.OpenAIError, ValueError) as exc:
                raise JudgeError(f"the judge failed: {self._shown(exc)}", usage) from None
            else:
                with self._lock:  # what was refused here and not missed is not tried again
                    self._options = {name: self._options[name] for name in options if name in self._options}
                return cast("ChatCompletion", completion)

    def _count(self) -> None:
        with self._lock:
            if self.max_requests is not None and self._begun >= self.max_requests:
                raise RequestLimitError(f"The limit of {self.max_requests} requests is reached.")
            self._begun += 1

    def _shown(self, error: Exception) -> str:
        text = " ".join(str(error).split())[:300]
        return text.replace(self._key, "[key]") if self._key else text


def checked_url(url: str) -> str:
    """Return the address of an endpoint without anything secret in it.

    Raises:
        InputError: If it is no http address, or holds a user name, a password or a query.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"The judge's address must begin with http:// or https://. Got {url!r} instead.")
    if parts.username or parts.password or parts.query:
        raise InputError("The judge's address must not hold a password or a query. Pass a key by --api-key-env NAME.")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def _text_of(completion: Any) -> str:
    choices = getattr(completion, "choices", None) or [None]
    text = getattr(getattr(choices[0], "message", None), "content", None)
    if not isinstance(text, str) or not text.strip():
        raise InputError("It is empty.")
    if getattr(choices[0], "finish_reason", None) == "length":
        raise InputError("It was cut off; make it shorter.")
    return text


def _usage_of(completion: Any) -> Usage:
    usage = getattr(completion, "usage", None)
    read, written = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    if isinstance(read, int) and isinstance(written, int):
        return Usage(1, read, written)
    return Usage(requests=1, uncounted=1)
