"""Profiles: a detector's lines for one domain, with what they promise; a folder of ``profile.json`` and a card."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groundscope._version import __version__
from groundscope.detectors.base import Detector
from groundscope.detectors.learnable import LearnedDetector
from groundscope.errors import GroundscopeError, InputError, MismatchError, PrerequisiteError
from groundscope.learn.calibration_scores import CalibrationScores, promised
from groundscope.learn.goal import Goal
from groundscope.outputs.places import FolderKind
from groundscope.outputs.writing import replaced_folder
from groundscope.verdict_parts import Threshold, is_threshold

PROFILE, CARD = "profile.json", "README.md"
SAVED_PROFILE = FolderKind("profile", PROFILE, parts=(CARD,))
_FORMAT = 1
_COUNTS = ("unlabelled", "faithful", "hallucinated")
_AGAIN = "Make it again with 'groundscope calibrate'."


@dataclass(frozen=True)
class Profile:
    """Where a detector's lines are drawn for one domain, and what they promise there.

    Attributes:
        name: What verdicts call it.
        detector: Name of the detector.
        detector_sha256: Digest of its parameters and of what it learnt; see :func:`detector_sha256`.
        fingerprint: Of the model and template that read; see ``LanguageModel.fingerprint``.
        threshold: The lines.
        goal: What they promise.
        unlabelled: Answers that counted as faithful without a label.
        faithful: Answers labelled as faithful that were used.
        hallucinated: Answers labelled as hallucinated: left out for false alarms, used for precision.
        unmet: Lines (``sentence``, ``span``) that the goal could not be shown for; they lie above all that was seen.
        groundscope: Version of this package.

    Raises:
        InputError: If a field is not what it must be.
    """

    name: str
    detector: str
    detector_sha256: str
    fingerprint: Mapping[str, Any]
    threshold: Threshold
    goal: Goal
    unlabelled: int = 0
    faithful: int = 0
    hallucinated: int = 0
    unmet: tuple[str, ...] = ()
    groundscope: str = __version__

    def __post_init__(self) -> None:
        for name in ("name", "detector", "detector_sha256", "groundscope"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise InputError(f"The field {name!r} of a profile must be text. Got {getattr(self, name)!r} instead.")
        if not isinstance(self.fingerprint, Mapping) or not isinstance(self.fingerprint.get("model"), str):
            raise InputError(f"The 'fingerprint' of a profile must name its model. Got {self.fingerprint!r} instead.")
        object.__setattr__(self, "fingerprint", _plain(self.fingerprint))
        if not is_threshold(self.threshold):
            raise InputError(f"The 'threshold' of a profile must hold finite numbers. Got {self.threshold!r} instead.")
        if not isinstance(self.goal, Goal):
            raise InputError(f"The 'goal' of a profile must be a Goal. Got {self.goal!r} instead.")
        for name in _COUNTS:
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise InputError(f"The field {name!r} of a profile must be a count of answers. Got {value!r} instead.")
        if not isinstance(self.unmet, tuple) or not set(self.unmet) <= {"sentence", "span"}:
            raise InputError(f"The 'unmet' lines of a profile are of sentence and span. Got {self.unmet!r} instead.")

    def applied(self, detector: Detector) -> Detector:
        """Return a copy of a detector that judges by this profile.

        Raises:
            MismatchError: If it is not the detector that the profile was made for, or this package is another version.
        """
        if detector.name != self.detector:
            raise MismatchError(
                f"The profile {self.name!r} was made for the detector {self.detector!r}. Got {detector.name!r} "
                "instead; name that one with --detector (detector=...), or calibrate this one."
            )
        if detector_sha256(detector) != self.detector_sha256:
            raise MismatchError(
                f"The profile {self.name!r} was made for a {self.detector!r} with other parameters, or that had learnt "
                f"something else. Use that one, or calibrate {detector!r} again with 'groundscope calibrate'."
            )
        if _series(self.groundscope) != _series(__version__):
            raise MismatchError(
                f"The profile {self.name!r} was made with groundscope {self.groundscope}, and scores of {__version__} "
                f"may differ. {_AGAIN}"
            )
        calibrated: Any = copy.copy(detector)
        calibrated.threshold_, calibrated.profile_ = self.threshold, self.name
        return calibrated  # type: ignore[no-any-return]

    def check_reader(self, fingerprint: Mapping[str, Any]) -> None:
        """Refuse what another model reads; a copy of the model under another name is the same model.

        Raises:
            MismatchError: If model, tokenizer or template differ.
        """
        differing = [
            f"{name} was {self.fingerprint.get(name)!r}, is {value!r}"
            for name, value in _plain(fingerprint).items()
            if name != "model" and self.fingerprint.get(name) != value
        ]
        if differing:
            raise MismatchError(
                f"The profile {self.name!r} was made with {self.fingerprint['model']!r} and does not hold for what "
                f"{fingerprint.get('model')!r} reads ({'; '.join(differing)}). Use that model and template, or "
                "calibrate again with 'groundscope calibrate'."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain JSON values."""
        return {"format": _FORMAT, **asdict(self), "unmet": list(self.unmet)}

    @classmethod
    def from_dict(cls, record: object) -> Profile:
        """Read what :meth:`to_dict` returned.

        Raises:
            InputError: If it is something else, or of another format.
        """
        if not isinstance(record, Mapping) or record.get("format") != _FORMAT:
            found = record.get("format") if isinstance(record, Mapping) else record
            raise InputError(f"A profile of the format {_FORMAT} is read by this version. Got {found!r:.100} instead.")
        values = {name: value for name, value in record.items() if name != "format"}
        try:
            values["threshold"] = Threshold(**values["threshold"])
            values["goal"] = Goal(**values["goal"])
            values["unmet"] = tuple(values["unmet"])
            return cls(**values)
        except (LookupError, TypeError, AttributeError) as exc:
            raise InputError(f"a field is missing or of the wrong kind ({exc!r})") from exc


def detector_sha256(detector: Detector) -> str:
    """Return a digest of what decides a detector's scores: name, parameters, window and what was learnt."""
    content: dict[str, Any] = {"name": detector.name, "params": detector.get_params(), "window": detector.window}
    digest = hashlib.sha256()
    if isinstance(detector, LearnedDetector) and detector.is_fitted:
        arrays, content["facts"] = detector.state()
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
    digest.update(json.dumps(content, sort_keys=True, default=repr).encode())
    return digest.hexdigest()


def save_profile(profile: Profile, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a profile and its card; the folder is there whole or not at all.

    Args:
        profile: The profile.
        folder: Where to.
        overwrite: Whether a profile that is there may be replaced; nothing else ever is.

    Raises:
        InputError: If the folder holds something else, or a profile that is not to be replaced.
        PrerequisiteError: If it cannot be written.
    """
    SAVED_PROFILE.check(folder, overwrite=overwrite)
    text = json.dumps(profile.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    with replaced_folder(folder) as made:
        (made / PROFILE).write_text(text + "\n", encoding="utf-8")
        (made / CARD).write_text(_card(profile), encoding="utf-8")
    return Path(folder)


def load_profile(folder: str | Path) -> Profile:
    """Load a profile from its folder.

    Raises:
        InputError: If there is none, it is damaged, or of another format.
    """
    place = Path(folder)
    if place.is_file() and place.name == PROFILE:
        place = place.parent
    try:
        record = json.loads((place / PROFILE).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise InputError(f"{str(folder)!r} is no profile: there is no {PROFILE} in it. {_AGAIN}") from exc
    except (OSError, ValueError, RecursionError) as exc:
        raise InputError(f"The profile in {str(folder)!r} is damaged: {exc}. {_AGAIN}") from exc
    try:
        return Profile.from_dict(record)
    except GroundscopeError as exc:
        raise InputError(f"The profile in {str(folder)!r} cannot be used: {str(exc).rstrip('.')}. {_AGAIN}") from exc


def with_lines(
    detector: Detector,
    profile: Profile | str | Path | None = None,
    max_false_alarm: float | None = None,
    confidence: float | None = None,
) -> tuple[Detector, Profile | None]:
    """Return a detector whose lines are those of a profile, or keep a promise on the scores that it brings along.

    Args:
        detector: Left as it is; a copy takes the lines.
        profile: A profile, or its folder.
        max_false_alarm: See :class:`groundscope.learn.goal.Goal`.
        confidence: Likewise; 0.9 if it is not given.

    Raises:
        InputError: If several ways are given at once, or the promise cannot be made.
        MismatchError: If the profile is of another detector.
        PrerequisiteError: If the detector brings no scores along.
    """
    if confidence is not None and max_false_alarm is None:
        raise InputError("A confidence goes with max_false_alarm (--max-false-alarm). Got it alone.")
    if profile is not None:
        if max_false_alarm is not None:
            raise InputError("A profile has its promise already. Give either a profile or max_false_alarm, not both.")
        if not isinstance(profile, (Profile, str, Path)):
            raise InputError(f"The 'profile' parameter of Scope must be a Profile or its folder. Got {profile!r}.")
        known = profile if isinstance(profile, Profile) else load_profile(profile)
        return known.applied(detector), known
    if max_false_alarm is None:
        return detector, None
    goal = Goal(max_false_alarm, confidence=0.9 if confidence is None else confidence)
    scores = getattr(detector, "calibration_", None)
    if not isinstance(scores, CalibrationScores):
        raise PrerequisiteError(
            f"The detector {detector.name!r} brings no scores of faithful answers along, so it can promise nothing by "
            "itself. Make a profile from your own answers with 'groundscope calibrate', and use --profile."
        )
    calibrated: Any = copy.copy(detector)
    calibrated.threshold_ = promised(scores, goal, detector.name)
    return calibrated, None


def _plain(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(dict(fingerprint)))
    return values


def _series(version: str) -> str:
    """The part of a version within which scores stay the same: its first two numbers."""
    return ".".join(version.split(".")[:2])


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"it holds {constant} where a number must stand")


def _card(profile: Profile) -> str:
    line = profile.threshold
    used = f"{profile.unlabelled} without a label, taken as faithful; {profile.faithful} labelled as faithful"
    if profile.goal.precision is not None:
        used = f"{profile.faithful} labelled as faithful, {profile.hallucinated} as hallucinated"
    sentence = "" if line.sentence is None else f"| sentence | {line.sentence:.6g} |\n"
    unmet = f"\nNo line for {' and '.join(profile.unmet)} could be shown to keep this.\n" if profile.unmet else ""
    return (
        f"# {profile.name}\n\nA groundscope profile for the detector `{profile.detector}` and the model "
        f"`{profile.fingerprint['model']}`.\n\nPromise: {profile.goal}. Answers: {used}.\n\n"
        f"| line for | score |\n|---|---|\n| response | {line.response:.6g} |\n{sentence}| span | {line.span:.6g} |\n"
        f"{unmet}\nThe promise is about answers drawn like those that the profile was made from: the same kind of "
        "questions, passages and writer, read in the same way. It says nothing about how many unsupported answers are "
        "found. Each line keeps it for itself.\n"
    )
