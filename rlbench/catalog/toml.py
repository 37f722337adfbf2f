"""Reads a TOML file into a pydantic model; every mistake becomes one sentence naming file, key and allowed values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlbench.errors import UserError, nearest

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the parsed file.

    Raises UserError when it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML ({error})") from None


def validated(model: type[Model], data: dict[str, Any], origin: str) -> Model:
    """Return ``data`` as a ``model``.

    Raises UserError with the first mistake: ``origin``, the dotted key, what is wrong, what is allowed.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{origin}: {_sentence(model, error)}") from None


def _sentence(model: type[BaseModel], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    key = ".".join(where)
    kind, context = first["type"], first.get("ctx", {})
    if kind == "extra_forbidden":
        allowed = _keys_at(model, where[:-1])
        return f"unknown key '{key}'{nearest(where[-1], allowed)} (allowed here: {', '.join(allowed)})"
    if kind == "missing":
        return f"key '{key}' is missing"
    if kind in ("union_tag_invalid", "literal_error"):
        options = context.get("expected_tags") or context.get("expected")
        tag = context.get("tag", first.get("input"))
        key = f"{key}.name" if kind == "union_tag_invalid" else key
        return f"'{key}' is {tag!r} but must be one of {options}"
    message = first["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return f"'{key}': {message}" if key else message
    return f"'{key}': {message} (it is {first.get('input')!r})"


def _keys_at(model: type[BaseModel], where: list[str]) -> list[str]:
    """Names of the keys allowed in the table at ``where``, following nested models and tagged unions."""
    current: Any = model
    for part in where:
        options = [current, *getattr(current, "__args__", ())]
        found = None
        for option in options:
            fields = getattr(option, "model_fields", None)
            if fields and part in fields:
                found = fields[part].annotation
                break
            tag = getattr(option, "model_fields", {}).get("name") if fields else None
            if tag is not None and part in getattr(tag.annotation, "__args__", ()):
                found = option
                break
        if found is None:
            return []
        current = found
    for option in [current, *getattr(current, "__args__", ())]:
        if hasattr(option, "model_fields"):
            return sorted(option.model_fields)
    return []
