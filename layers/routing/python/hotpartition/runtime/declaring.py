"""Declares settings: one line each, with its meaning, default and allowed values.

Plain classes: each cold start pays for its settings, and pydantic's models took 8 ms of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar, cast, get_type_hints

from hotpartition.core.errors import SettingsError

PREFIX = "HOTPARTITION_"

NumberT = TypeVar("NumberT", int, float)

_TRUTH: Mapping[str, bool] = {"true": True, "false": False}


class Setting(NamedTuple):
    """One setting: its meaning, allowed values, default (None: it has to be given), and the reader of its value.

    `read` raises `ValueError` or `TypeError` for a value that is not allowed.
    """

    description: str
    allowed: str
    default: object
    read: Callable[[object], object]


def text(description: str, default: str | None = None, *, choices: Sequence[str] = ()) -> str:
    """Declare a text. It may be empty where its default is."""

    def read(given: object) -> object:
        if not isinstance(given, str) or (not given and default != "") or (choices and given not in choices):
            raise ValueError
        return given

    allowed = "a text" if default == "" else "a text that is not empty"
    return cast("str", Setting(description, f"one of {', '.join(choices)}" if choices else allowed, default, read))


def flag(description: str, *, default: bool) -> bool:
    """Declare a setting that is either true or false."""

    def read(given: object) -> object:
        return given if isinstance(given, bool) else _TRUTH[str(given).lower()]

    return cast("bool", Setting(description, "true or false", default, read))


def whole(description: str, default: int, *, least: int, most: int) -> int:
    """Declare a whole number."""
    allowed = f"a whole number, between {least} and {most}"
    return cast("int", Setting(description, allowed, default, lambda given: _read_number(int, given, least, most)))


def number(description: str, default: float, *, least: float, most: float) -> float:
    """Declare a number."""
    allowed = f"a number, between {least} and {most}"
    return cast("float", Setting(description, allowed, default, lambda given: _read_number(float, given, least, most)))


def _read_number(kind: type[NumberT], given: object, least: NumberT, most: NumberT) -> NumberT:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise TypeError
    value = kind(given)
    if not least <= value <= most or (not isinstance(given, str) and value != given):  # NaN is not, either
        raise ValueError
    return value


def variable_name(name: str) -> str:
    """Build the environment variable's name of a setting."""
    return PREFIX + name.upper()


def unknown(name: str, known: Iterable[str]) -> str:
    """Say that nothing has this name, and which name is meant where one is near."""
    # Only a mistake needs it, and a cold start is short without it.
    from difflib import get_close_matches  # noqa: PLC0415

    names = list(known)
    near = get_close_matches(name.rpartition(" ")[2].strip("'"), names, n=1)
    return f"{name} is unknown; allowed are {', '.join(names)}" + (f". Did you mean {near[0]}?" if near else "")


class Settings:
    """Settings of one subject, or groups of them. Frozen.

    A setting is an attribute that `text`, `flag`, `whole` or `number` declares; a group is an annotated attribute whose
    type is another class of settings. A setting has the same name in all groups, which is its environment variable, in
    capitals and behind `HOTPARTITION_`.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        """Take values that `read` has checked."""
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are frozen: {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def check(self, name_of: Callable[[str], str]) -> Iterable[str]:
        """List the problems of the values together; `name_of` returns a setting's name for people."""
        del name_of
        return ()

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        """List the settings by name, those of the groups first."""
        groups = [group.declared() for group in cls._groups().values()]
        return {name: setting for each in (*groups, cls._own()) for name, setting in each.items()}

    @classmethod
    def read(cls, values: Mapping[str, object], name_of: Callable[[str], str] = variable_name) -> Self:
        """Read values by name; missing ones have their default.

        Args:
            values: texts, numbers, true and false.
            name_of: how a person calls a setting.

        Raises:
            SettingsError: naming every setting that is unknown, missing, malformed or out of range.
        """
        known = cls.declared()
        problems = [unknown(name_of(name), known) for name in values if name not in known]
        settings = cls.collect(values, name_of, problems)
        if problems:
            raise SettingsError(list(dict.fromkeys(problems)))
        return settings

    @classmethod
    def from_env(cls, environ: Mapping[str, str], **given: object) -> Self:
        """Read the settings, once, at cold start; values given in code come first.

        Raises:
            SettingsError: naming every variable that is missing, malformed or out of range.
        """
        variables = {name: variable_name(name) for name in cls.declared()}
        found = {name: environ[variable] for name, variable in variables.items() if variable in environ}
        return cls.read({**found, **given})

    @classmethod
    def defaults(cls, name_of: Callable[[str], str] = variable_name, /, **values: object) -> Self:
        """Build settings in code; missing ones have their default, and a table or a Redis need not be named."""
        required = {name: "-" for name, setting in cls.declared().items() if setting.default is None}
        return cls.read({**required, **values}, name_of)

    @classmethod
    def _own(cls) -> dict[str, Setting]:
        classes = reversed(cls.__mro__)
        return {name: value for each in classes for name, value in vars(each).items() if isinstance(value, Setting)}

    @classmethod
    def _groups(cls) -> dict[str, type[Settings]]:
        return get_type_hints(cls)

    @classmethod
    def collect(cls, values: Mapping[str, object], name_of: Callable[[str], str], problems: list[str]) -> Self:
        """Read this group's values; add their mistakes to the problems."""
        before = len(problems)
        found: dict[str, object] = {
            name: group.collect(values, name_of, problems) for name, group in cls._groups().items()
        }
        for name, setting in cls._own().items():
            given = values.get(name, setting.default)
            if given is None:
                problems.append(f"{name_of(name)} is missing ({setting.description})")
                continue
            try:
                found[name] = setting.read(given)
            except (KeyError, OverflowError, TypeError, ValueError):
                problems.append(f"{name_of(name)} should be {setting.allowed}, not {given!r}")
        settings = cls(found)
        if len(problems) == before:
            problems.extend(settings.check(name_of))
        return settings


def build_environment(settings: type[Settings], values: Mapping[str, str]) -> dict[str, str]:
    """Build a function's environment from values by name; a setting that is not named keeps its default.

    Values are texts because at synthesis some of them are only known as CloudFormation references.

    Raises:
        SettingsError: when a required setting is not among the values, or a name is unknown.
    """
    known = settings.declared()
    problems = [
        f"{name} is missing for {settings.__name__}"
        for name, setting in known.items()
        if setting.default is None and name not in values
    ]
    problems += [unknown(name, known) for name in values if name not in known]
    if problems:
        raise SettingsError(problems)
    return {variable_name(name): value for name, value in values.items()}
