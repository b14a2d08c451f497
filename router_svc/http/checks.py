"""Errors of the generated validators and decoders: one wording for each broken limit."""

from router_svc.errors import ApiError, ErrorKind, invalid, quoted, shortened


def join(path: str, name: str) -> str:
    """Path of the field `name` of the object at `path`; "" is the body itself, or no field."""
    if not name:
        return path
    name = shortened(name)
    return f"{path}.{name}" if path else name


def missing(path: str, name: str) -> ApiError:
    """A required field is absent or null."""
    at = join(path, name)
    return invalid(at, f"{at} is required.", "missing_required_parameter")


def unset(path: str) -> ApiError:
    """A union has no member."""
    return invalid(path, f"{path} is empty: one of its forms is required.")


def refused(path: str, name: str, reason: str) -> ApiError:
    """A field that Octavo knows and does not accept."""
    at = join(path, name)
    return invalid(at, f"{at} is not supported: {reason}.", "unsupported_parameter")


def out_of_range(
    value: float,
    path: str,
    name: str,
    low: float | None,
    high: float | None,
    *,
    above: bool = False,
) -> ApiError:
    """A number beyond its bounds; with `above` the lower bound itself is out of range too."""
    at = join(path, name)
    if above:
        bounds = f"above {low:.16g}" + ("" if high is None else f" and at most {high:.16g}")
    elif low is not None and high is not None:
        bounds = f"between {_shown(low)} and {_shown(high)}"
    elif low is not None:
        bounds = f"at least {_shown(low)}"
    elif high is not None:
        bounds = f"at most {_shown(high)}"
    else:
        bounds = "finite"
    return invalid(at, f"{at} must be {bounds}, not {_shown(value)}.")


def wrong_count(count: int, path: str, low: int, high: int) -> ApiError:
    """A list or map with too few or too many elements; a `high` of 0 is no bound."""
    if count < low:
        return invalid(path, f"{path} must have at least {low} element(s), not {count}.")
    return invalid(path, f"{path} must have at most {high} elements, not {count}.")


def too_long(length: int, path: str, most: int) -> ApiError:
    """A string with more code points than allowed."""
    return invalid(path, f"{path} must have at most {most} characters, not {length}.")


def wrong_constant(value: str, path: str, expected: str) -> ApiError:
    """A field that can hold one value only."""
    return invalid(path, f"{path} must be {quoted(expected)}, not {quoted(value)}.")


def unknown_enum(value: object, path: str, names: tuple[str, ...]) -> ApiError:
    """A word or number that the enum lacks."""
    known = ", ".join(quoted(name) for name in names)
    given = quoted(value) if isinstance(value, str) else str(value)
    return invalid(path, f"{path} must be one of {known}, not {given}.")


def not_json(path: str, name: str) -> ApiError:
    """A field of JSON text whose text is something else."""
    at = join(path, name)
    return invalid(at, f"{at} must be JSON, nested no deeper than 128 levels.")


def too_deep(path: str, most: int) -> ApiError:
    """A value inside more objects than a request may nest."""
    return invalid(path, f"{path} is nested deeper than {most} levels.")


def not_finite(name: str) -> ApiError:
    """A number of an answer that JSON cannot carry; the fault is the server's."""
    return ApiError(
        ErrorKind.INTERNAL, f"The server computed a {name} that is not a finite number."
    )


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.16g}"
