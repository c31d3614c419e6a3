"""Import of the classifiers that the Lookback Lens authors released, which are pickles, without unpickling.

A pickle is a program for a stack machine that may call any function. Nothing of it is run here: the
instructions that such a file needs are followed on plain values, a class or function is kept as its name only,
what the program would build is kept as a note of what it would be built from, and anything else is refused.
Neither ``pickle`` nor scikit-learn takes part.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from groundscope.detectors.learned.lookback_lens import LookbackLens
from groundscope.errors import InputError, PrerequisiteError
from groundscope.learn.probe import LinearProbe
from groundscope.verdict import Threshold

# The shape of Llama-2-7B, on which all released classifiers were fitted.
LAYERS, HEADS = 32, 32
MODEL = "meta-llama/Llama-2-7b-chat-hf"
_LARGEST = 4 * 2**20  # bytes; the released files have about 9,000
_MOST = 10_000  # instructions; the released files have about 300

_CLASSIFIER = ("sklearn.linear_model._logistic", "LogisticRegression")
_DTYPE, _NDARRAY = ("numpy", "dtype"), ("numpy", "ndarray")
_ARRAY = {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}
_SCALAR = {(f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")}
_ADMITTED = {_CLASSIFIER, _DTYPE, _NDARRAY, *_ARRAY, *_SCALAR}
_NUMBERS = {"f8": 8, "f4": 4, "i8": 8, "i4": 4}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {
    "BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1", "SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES"
}  # fmt: skip
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_KEEP = {"PUT", "BINPUT", "LONG_BINPUT"}
_TAKE = {"GET", "BINGET", "LONG_BINGET"}


@dataclass(frozen=True)
class _Name:
    """A class or function that the file names; it is never looked up."""

    module: str
    name: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.module, self.name


@dataclass(eq=False)
class _Note:
    """What the file would build: out of what, and in which state."""

    maker: _Name
    arguments: tuple[Any, ...]
    state: Any = None


class _Mark:
    """Where on the stack a tuple or dictionary begins."""


def import_lookback_lens(path: str | Path) -> LookbackLens:
    """Read a classifier that the Lookback Lens authors released for Llama-2-7B, without running the file.

    The authors' label is 1 = factual; weights and threshold are turned round, so that the score is the
    probability of hallucination as everywhere. The file says nothing about the model: the fingerprint gives
    the 32 layers of 32 heads of the authors' model and leaves the rest open, so that a model of another shape
    is refused. The authors' prompts had no chat template; under others the scores are known to suffer.

    Args:
        path: A file such as ``classifier_anno-cnndm-7b_sliding_window_8.pkl``: a pickle of
            ``{"clf": LogisticRegression, "best_threshold": float}``.

    Returns:
        A fitted detector (``variant='official'``, windows of 8 tokens) with the authors' threshold.

    Raises:
        InputError: If the file holds anything else; nothing of it has been run then either.
        PrerequisiteError: If it cannot be read.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise _refusal(path, f"it has {size} bytes, more than {_LARGEST}")
        data = path.read_bytes()
    except OSError as exc:
        raise PrerequisiteError(f"The file {str(path)!r} cannot be read: {exc.strerror}.") from exc
    try:
        coef, intercept, threshold = _classifier(_follow(data))
    except _RefusedError as exc:
        raise _refusal(path, str(exc)) from None
    probe = LinearProbe(None)
    facts = {"iterations": 0, "converged": True}
    selected = np.ones(len(coef), dtype=np.bool_)
    probe.restore({"coef": -coef, "intercept": np.array([-intercept]), "selected": selected}, facts)
    detector = LookbackLens(variant="official")
    arrays, facts = probe.state()
    detector.restore(arrays, {**facts, "shape": [LAYERS, HEADS], "units": [0, 0]})
    detector.fingerprint_ = {
        "model": MODEL,
        "architecture": "LlamaForCausalLM",
        "weights": None,
        "layers": LAYERS,
        "attention_layers": list(range(LAYERS)),
        "heads": HEADS,
        "tokenizer": None,
        "template": None,
    }
    detector.trained_on_ = []
    detector.threshold_ = Threshold(1 - threshold, 1 - threshold, "released by the authors of Lookback Lens")
    return detector


class _RefusedError(Exception):
    """Why a file is not what it should be."""


def _refusal(path: Path, reason: str) -> InputError:
    return InputError(
        f"The file {str(path)!r} is not a classifier released for Lookback Lens: {reason}. Nothing of it was run."
    )


def _instructions(data: bytes) -> Iterator[tuple[str, Any]]:
    """Decode the instructions of a pickle; this only cuts bytes apart."""
    try:
        for number, (code, argument, _) in enumerate(pickletools.genops(data)):
            if number == _MOST:
                raise _RefusedError(f"it has more than {_MOST} instructions")
            yield code.name, argument
    except (ValueError, EOFError, OverflowError, AssertionError, IndexError, MemoryError) as exc:
        raise _RefusedError("it is no pickle, or a damaged one") from exc


def _follow(data: bytes) -> Any:
    """Follow the few instructions that are needed, on plain values and notes."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def pop(wanted: type | tuple[type, ...] = object) -> Any:
        if not stack or not isinstance(stack[-1], wanted) or (isinstance(stack[-1], _Mark) and wanted is not _Mark):
            raise _RefusedError("its instructions do not fit together")
        return stack.pop()

    def pop_to_mark() -> list[Any]:
        items: list[Any] = []
        while stack and not isinstance(stack[-1], _Mark):
            items.append(stack.pop())
        pop(_Mark)
        return items[::-1]

    for code, argument in _instructions(data):
        if code in ("PROTO", "FRAME"):
            continue
        if code == "STOP":
            value = pop()
            if stack:
                raise _RefusedError("its instructions do not fit together")
            return value
        if code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _LITERALS:
            stack.append(argument)
        elif code == "MARK":
            stack.append(_Mark())
        elif code == "EMPTY_DICT":
            stack.append({})
        elif code in _TUPLES:
            stack.append(tuple([pop() for _ in range(_TUPLES[code])][::-1]))
        elif code == "TUPLE":
            stack.append(tuple(pop_to_mark()))
        elif code in ("SETITEM", "SETITEMS"):
            items = pop_to_mark() if code == "SETITEMS" else [pop(), pop()][::-1]
            target = pop(dict)
            if len(items) % 2 or not all(isinstance(key, str) for key in items[::2]):
                raise _RefusedError("it holds a dictionary whose keys are no strings")
            target.update(zip(items[::2], items[1::2], strict=True))
            stack.append(target)
        elif code == "MEMOIZE" or code in _KEEP:
            value = pop()
            memo[len(memo) if code == "MEMOIZE" else argument] = value
            stack.append(value)
        elif code in _TAKE:
            if argument not in memo:
                raise _RefusedError("its instructions do not fit together")
            stack.append(memo[argument])
        elif code == "STACK_GLOBAL":
            name = pop(str)
            stack.append(_named(pop(str), name))
        elif code == "GLOBAL":
            module, _, name = argument.partition(" ")
            stack.append(_named(module, name))
        elif code in ("NEWOBJ", "REDUCE"):
            arguments = pop(tuple)
            stack.append(_Note(pop(_Name), arguments))
        elif code == "BUILD":
            state = pop()
            stack.append(_with_state(pop(_Note), state))
        else:
            raise _RefusedError(f"it has the instruction {code}, which no such file needs")
    raise _RefusedError("it ends before its end")


def _named(module: str, name: str) -> _Name:
    if (module, name) not in _ADMITTED:
        raise _RefusedError(f"it names {f'{module}.{name}'[:100]!r}, which no such file needs")
    return _Name(module, name)


def _with_state(note: _Note, state: Any) -> _Note:
    if note.state is not None:
        raise _RefusedError("its instructions do not fit together")
    note.state = state
    return note


def _classifier(value: Any) -> tuple[npt.NDArray[np.float64], float, float]:
    """Return weights and intercept for 1 = factual, and the threshold on the probability of that."""
    if not isinstance(value, dict) or set(value) != {"clf", "best_threshold"}:
        raise _RefusedError("it does not hold 'clf' and 'best_threshold'")
    classifier = value["clf"]
    if not isinstance(classifier, _Note) or classifier.maker.pair != _CLASSIFIER or classifier.arguments != ():
        raise _RefusedError("its 'clf' is no logistic regression")
    state = classifier.state
    if not isinstance(state, dict) or not {"coef_", "intercept_", "classes_"} <= set(state):
        raise _RefusedError("its logistic regression is not fitted")
    classes = _array(state["classes_"], "classes_", (2,))
    if classes.tolist() != [0, 1]:
        raise _RefusedError(f"its classes are {classes.tolist()}, not [0, 1]")
    coef = _array(state["coef_"], "coef_", (1, LAYERS * HEADS))[0]
    intercept = _array(state["intercept_"], "intercept_", (1,))[0]
    threshold = value["best_threshold"]
    if isinstance(threshold, _Note) and threshold.maker.pair in _SCALAR and len(threshold.arguments) == 2:
        threshold = _numbers(*threshold.arguments, ())[()]
    if isinstance(threshold, bool) or not isinstance(threshold, float) or not 0 <= threshold <= 1:
        raise _RefusedError("its 'best_threshold' is no number in [0, 1]")
    if not (np.isfinite(coef).all() and math.isfinite(intercept)):
        raise _RefusedError("its weights are not finite")
    return coef.astype(np.float64), float(intercept), float(threshold)


def _array(note: Any, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the array that a note describes, if it has the one shape that is wanted."""
    if not isinstance(note, _Note) or note.maker.pair not in _ARRAY:
        raise _RefusedError(f"its {name!r} is no array")
    state = note.state
    if not isinstance(state, tuple) or len(state) != 5 or state[1] != shape or state[3] is not False:
        raise _RefusedError(f"its {name!r} is no array of the shape {shape}")
    return _numbers(state[2], state[4], shape)


def _numbers(kind: Any, data: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return little-endian numbers of a plain type, decoded from bytes."""
    wanted = isinstance(kind, _Note) and kind.maker.pair == _DTYPE and len(kind.arguments) == 3
    code = kind.arguments[0] if wanted else None
    if not isinstance(code, str) or code not in _NUMBERS or not isinstance(data, bytes):
        raise _RefusedError("it has an array of other things than plain numbers")
    if not isinstance(kind.state, tuple) or kind.state[1:2] != ("<",):
        raise _RefusedError("it has an array that is not little-endian")
    if len(data) != _NUMBERS[code] * math.prod(shape):
        raise _RefusedError("it has an array of the wrong length")
    return np.frombuffer(data, dtype=f"<{code}").reshape(shape)
