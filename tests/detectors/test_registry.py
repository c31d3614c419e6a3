"""Detectors by name: built in, registered, and from installed packages."""

from __future__ import annotations

import sys

import pytest

from groundscope.detectors import registry
from groundscope.detectors.base import Detector
from groundscope.detectors.untrained.lumina import Lumina
from groundscope.errors import InputError, PrerequisiteError, UnknownNameError

BUILT_IN = sorted(registry._BUILT_IN)
KNOWN = {
    "aggtruth", "contrast", "eigenscore", "energy", "entropy", "hidden-state", "length", "lookback-lens", "lumina",
    "max-surprise", "nli", "novelty", "p-true", "perplexity", "redeep-chunk", "redeep-token", "saplma", "selfcheck",
}  # fmt: skip
PLUG_IN = '''
from groundscope.detectors.base import Detector


class Doubt(Detector):
    """Twice the entropy."""

    name = "plugged"
    summary = "twice the entropy"
    reference = "none"

    @property
    def signals(self):
        return ("token_entropy",)

    def token_scores(self, trace):
        return 2.0 * trace["token_entropy"].astype("float64")
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package by its metadata on the path, as pip would leave it."""

    def add(name, module, source):
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[groundscope.detectors]\n{name} = {module}:Doubt\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return add


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})


def named(name: str) -> type[Detector]:
    attributes = {"name": name, "summary": "s", "reference": "r", "signals": property(lambda self: ("mmd",))}
    return type("Named", (Detector,), {**attributes, "token_scores": lambda self, trace: trace["mmd"]})


def test_built_in_names_come_back_with_their_parameters():
    assert set(BUILT_IN) >= KNOWN and registry.names() == BUILT_IN
    detector = registry.from_name("lumina", weight=0.25)
    assert isinstance(detector, Lumina) and detector.get_params()["weight"] == 0.25
    for name, info in registry.available().items():
        assert info.name == name and info.summary and info.signals == registry.from_name(name).signals


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(
        UnknownNameError, match=r"detector 'contrats'. Did you mean 'contrast'\? Known: aggtruth, contrast"
    ):
        registry.from_name("contrats")
    with pytest.raises(UnknownNameError) as error:
        registry.from_name("zzz")
    assert "Did you mean" not in str(error.value)


def test_a_detector_can_be_registered_once(clean_registry):
    mine = registry.register("mine")(named("mine"))
    assert registry.class_of("mine") is mine and "mine" in registry.names() and "mine" in registry.available()
    assert registry.register("mine")(mine) is mine  # a module that is imported again
    for taken in ("mine", "contrast"):
        with pytest.raises(InputError, match=f"named '{taken}' exists already"):
            registry.register(taken)(named(taken))


def test_a_plug_in_is_found_by_its_entry_point(install):
    install("plugged", "groundscope_doubt", PLUG_IN)
    assert "plugged" in registry.names()
    detector = registry.from_name("plugged")
    assert type(detector).__name__ == "Doubt" and detector.signals == ("token_entropy",)
    assert registry.available()["plugged"].summary == "twice the entropy"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module_at_all", "could not be imported: No module named 'no_such_module_at_all'"),
        ("1 / 0", "could not be imported: division by zero"),
        ("x = 1", "could not be imported: .*Doubt"),
        ("class Doubt: pass", "is not a subclass of Detector"),
        ("def Doubt(): pass", "is not a subclass of Detector"),
    ],
)
def test_a_broken_plug_in_is_a_prerequisite_that_is_missing(install, source, message):
    install("plugged", "groundscope_broken", source)
    with pytest.raises(PrerequisiteError, match=f"'plugged' .*{message}"):
        registry.from_name("plugged")
    assert registry.from_name("contrast").name == "contrast"  # the others still work


def test_a_plug_in_cannot_take_a_built_in_name(install):
    install("contrast", "groundscope_taken", PLUG_IN)
    assert type(registry.from_name("contrast")).__module__ == "groundscope.detectors.untrained.contrast"
    assert registry.names() == BUILT_IN


def test_a_wrong_parameter_name_is_refused_with_the_right_ones():
    with pytest.raises(InputError, match="Its parameters: weight"):
        registry.from_name("lumina", wieght=1)
