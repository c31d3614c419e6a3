"""The doors: every one opens, every one is used, and there is no other way to import a room by its name."""

import ast
import inspect
from pathlib import Path

import pytest

import groundscope
from groundscope import doors
from groundscope.detectors import registry

SOURCE = Path(groundscope.__file__).parent
TREES = {
    file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in SOURCE.rglob("*.py")
}
# Who may import modules of this package by name: the doors, the lazy public names, the built-in detectors.
BY_NAME = {"doors.py", "__init__.py", "detectors/registry.py"}


@pytest.mark.parametrize("name", doors.DOORS)
def test_every_door_opens(name):
    behind = doors.open_door(name)
    assert inspect.isfunction(behind)
    assert f"{behind.__module__}:{behind.__qualname__}" == doors.DOORS[name]


def calls(tree, name):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
            yield node


def test_every_door_is_the_method_that_it_is_named_after():
    found = set()
    for tree in TREES.values():
        for cls in ast.walk(tree):
            for method in cls.body if isinstance(cls, ast.ClassDef) else ():
                for call in calls(method, "open_door"):
                    assert ast.literal_eval(call.args[0]) == f"{cls.name}.{method.name}"
                    found.add(f"{cls.name}.{method.name}")
    assert found == set(doors.DOORS)


def test_nothing_else_imports_by_name():
    found = {
        file for file, tree in TREES.items() if any(list(calls(tree, name)) for name in ("import_module", "__import__"))
    }
    assert found == BY_NAME


def test_the_table_of_detectors_names_the_rooms_below_it():
    for place in registry._BUILT_IN.values():
        assert place.startswith(("groundscope.detectors.learned.", "groundscope.detectors.untrained."))
