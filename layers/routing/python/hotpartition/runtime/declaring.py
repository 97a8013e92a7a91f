"""Declares settings: one line each, with its meaning, default, allowed values, and which functions use it.

Plain classes: each cold start pays for its settings, and pydantic's models took 8 ms of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, cast

from hotpartition.core.errors import SettingsError

PREFIX = "HOTPARTITION_"

Functions = frozenset[str]
"""Names of functions."""

NumberT = TypeVar("NumberT", int, float)

_TRUTH: Mapping[str, bool] = {"true": True, "false": False}


class Setting:
    """One setting: its meaning, allowed values, default (None: it has to be given), users, and the reader of its value.

    `read` raises `ValueError` or `TypeError` for a value that is not allowed.
    """

    name = ""

    def __init__(
        self,
        description: str,
        allowed: str,
        default: object,
        used_by: Functions,
        read: Callable[[object], object],
    ) -> None:
        self.description = description
        self.allowed = allowed
        self.default = default
        self.used_by = used_by
        self.read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def take(self, given: object) -> object:
        """Read a value, or raise `ValueError` with what is wrong with it, to stand behind the setting's name."""
        if given is None and self.default is None:
            raise ValueError(f"is missing ({self.description})")
        try:
            return self.read(given)
        except (KeyError, OverflowError, TypeError, ValueError):
            raise ValueError(f"should be {self.allowed}, not {given!r}") from None

    def __get__(self, settings: Declared | None, kind: type) -> Setting:
        """Return the declaration, from the class; an instance has values of its own for what its function uses."""
        if settings is None:
            return self
        raise AttributeError(f"{self.name} is not a setting of {settings.function}")


def text(description: str, default: str | None = None, *, used_by: Functions, choices: Sequence[str] = ()) -> str:
    """Declare a text. It may be empty where its default is."""

    def read(given: object) -> object:
        if not isinstance(given, str) or (not given and default != "") or (choices and given not in choices):
            raise ValueError
        return given

    allowed = "a text" if default == "" else "a text that is not empty"
    allowed = f"one of {', '.join(choices)}" if choices else allowed
    return cast("str", Setting(description, allowed, default, used_by, read))


def flag(description: str, *, default: bool, used_by: Functions) -> bool:
    """Declare a setting that is either true or false."""

    def read(given: object) -> object:
        return given if isinstance(given, bool) else _TRUTH[str(given).lower()]

    return cast("bool", Setting(description, "true or false", default, used_by, read))


def number(description: str, default: NumberT, least: NumberT, most: NumberT, *, used_by: Functions) -> NumberT:
    """Declare a number: a whole one where its default is."""
    kind = type(default)
    called = "a whole number" if kind is int else "a number"

    def read(given: object) -> object:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise TypeError
        value = kind(given)
        if not least <= value <= most or (not isinstance(given, str) and value != given):  # NaN is not, either
            raise ValueError
        return value

    return cast("NumberT", Setting(description, f"{called}, between {least} and {most}", default, used_by, read))


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


class Declared:
    """The settings of one function. Frozen.

    A setting is an attribute that `text`, `flag` or `number` declares. Its name, in capitals and behind
    `HOTPARTITION_`, is its environment variable.
    """

    def __init__(self, function: str, values: Mapping[str, object]) -> None:
        """Take values that `read` has checked."""
        vars(self).update(values, function=function)

    function: str
    """The function's name."""

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
    def declared(cls, function: str) -> dict[str, Setting]:
        """List a function's settings by name."""
        classes = reversed(cls.__mro__)
        every = [value for each in classes for value in vars(each).values() if isinstance(value, Setting)]
        return {setting.name: setting for setting in every if function in setting.used_by}

    @classmethod
    def read(cls, values: Mapping[str, object], function: str, name_of: Callable[[str], str] = variable_name) -> Self:
        """Read values by name; missing ones have their default.

        Args:
            values: texts, numbers, true and false.
            function: whose settings they are.
            name_of: how a person calls a setting.

        Raises:
            SettingsError: naming every setting that is unknown, missing, malformed or out of range.
        """
        known = cls.declared(function)
        defaults = {name: setting.default for name, setting in known.items()}
        found, problems = _take(known, {**defaults, **values}, name_of)
        settings = cls(function, found)
        if not problems:
            problems.extend(settings.check(name_of))
        if problems:
            raise SettingsError(problems)
        return settings

    @classmethod
    def from_env(cls, environ: Mapping[str, str], function: str, **given: object) -> Self:
        """Read a function's settings, once, at cold start; values given in code come first.

        Raises:
            SettingsError: naming every variable, and every given name, that is missing, malformed or out of range.
        """
        variables = {name: variable_name(name) for name in cls.declared(function)}
        found = {name: environ[variable] for name, variable in variables.items() if variable in environ}
        return cls.read({**found, **given}, function, lambda name: name if name in given else variable_name(name))

    @classmethod
    def check_given(cls, function: str, given: Mapping[str, object]) -> None:
        """Refuse values given in code before anything is read beside them.

        Raises:
            SettingsError: naming every one that is unknown, malformed or out of range.
        """
        _, problems = _take(cls.declared(function), given, str)
        if problems:
            raise SettingsError(problems)

    @classmethod
    def defaults(cls, function: str, name_of: Callable[[str], str] = variable_name, /, **values: Any) -> Self:
        """Build settings in code; missing ones have their default, and a table or a Redis need not be named."""
        required = {name: "-" for name, setting in cls.declared(function).items() if setting.default is None}
        return cls.read({**required, **values}, function, name_of)

    @classmethod
    def select(cls, function: str, values: Mapping[str, str]) -> dict[str, str]:
        """Select the values, by name, that a function has settings for."""
        known = cls.declared(function)
        return {name: text for name, text in values.items() if name in known}

    @classmethod
    def build_environment(cls, function: str, values: Mapping[str, str]) -> dict[str, str]:
        """Build a function's environment from values by name; a setting that is not named keeps its default.

        Values are texts because at synthesis some of them are only known as CloudFormation references. Those that the
        function has no setting for are left out.

        Raises:
            SettingsError: a required setting is not among the values.
        """
        known = cls.declared(function).items()
        missing = [name for name, setting in known if setting.default is None and name not in values]
        if missing:
            raise SettingsError([f"{name} is missing for {function}" for name in missing])
        return {variable_name(name): value for name, value in cls.select(function, values).items()}


def _take(
    known: Mapping[str, Setting], values: Mapping[str, object], name_of: Callable[[str], str]
) -> tuple[dict[str, object], list[str]]:
    """Read values by name; return those that are allowed, and a problem for each of the others."""
    found: dict[str, object] = {}
    problems = [unknown(name_of(name), known) for name in values if name not in known]
    for name, setting in known.items():
        if name not in values:
            continue
        try:
            found[name] = setting.take(values[name])
        except ValueError as error:
            problems.append(f"{name_of(name)} {error}")
    return found, problems
