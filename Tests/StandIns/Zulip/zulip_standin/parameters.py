"""The parameters of a request: form fields and query values are strings, some of which hold JSON."""

import json

from .errors import RequestError

REQUIRED = object()


class Parameters:
    """Reads parameters and remembers which ones the endpoint knows."""

    def __init__(self, query, form):
        for name in form:
            if name in query:
                raise RequestError(f"Can't decide between '{name}' and '{name}' arguments", "REQUEST_CONFUSING_VAR")
        self.values = {**query, **form}
        self.known = set()

    def ignored(self):
        """The parameters that the client sent and the endpoint does not have, in order."""
        return sorted(set(self.values) - self.known)

    def text(self, name, default=REQUIRED, limit=None, strip=False, alias=None):
        value = self._raw(name, default, alias)
        if not isinstance(value, str):
            return value
        if strip:
            value = value.strip()
        if limit is not None and len(value) > limit:
            raise RequestError(f"{name} is too long (limit: {limit} characters)")
        return value

    def choice(self, name, choices, default=REQUIRED):
        value = self._raw(name, default)
        if value is not default and value not in choices:
            raise RequestError(f"Invalid {name}")
        return value

    def json(self, name, default=REQUIRED):
        value = self._raw(name, default)
        if value is default:
            return default
        try:
            return json.loads(value)
        except ValueError:
            raise RequestError(f"{name} is not valid JSON") from None

    def integer(self, name, default=REQUIRED, minimum=None):
        value = self._raw(name, default)
        if value is default:
            return default
        try:
            number = int(value)
        except ValueError:
            raise RequestError(f"{name} is not an integer") from None
        if minimum is not None and number < minimum:
            raise RequestError(f"{name} is too small")
        return number

    def boolean(self, name, default=REQUIRED):
        value = self._raw(name, default)
        if value is default:
            return default
        if value.lower() not in ("true", "false"):
            raise RequestError(f"{name} is not a boolean")
        return value.lower() == "true"

    def array(self, name, of=None, default=REQUIRED):
        value = self.json(name, default)
        if value is default or value is None:
            return default if default is not REQUIRED else []
        if not isinstance(value, list):
            raise RequestError(f"{name} is not a list")
        for index, item in enumerate(value):
            if of is not None and (not isinstance(item, of) or isinstance(item, bool)):
                kind = {int: "an integer", str: "a string", dict: "a dict"}[of]
                raise RequestError(f"{name}[{index}] is not {kind}")
        return value

    def object(self, name, default=REQUIRED):
        value = self.json(name, default)
        if value is not default and not isinstance(value, dict):
            raise RequestError(f"{name} is not a dict")
        return value

    def _raw(self, name, default, alias=None):
        self.known.add(name)
        if alias is not None:
            self.known.add(alias)
            if name not in self.values and alias in self.values:
                return self.values[alias]
        if name in self.values:
            return self.values[name]
        if default is REQUIRED:
            raise RequestError(f"Missing '{name}' argument", "REQUEST_VARIABLE_MISSING", var_name=name)
        return default
