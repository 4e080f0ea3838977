"""The error form of the API: `{"result": "error", "msg": ..., "code": ...}`."""


class RequestError(Exception):
    """A request that the server rejects; `members` are further members of the body."""

    def __init__(self, message, code="BAD_REQUEST", status=400, headers=None, **members):
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.headers = headers or {}
        self.members = members

    def body(self):
        return {"result": "error", "msg": self.message, "code": self.code, **self.members}


def not_logged_in():
    return RequestError(
        "Not logged in: API authentication or user session required", "UNAUTHORIZED", 401,
        {"WWW-Authenticate": 'Basic realm="zulip"'})


def invalid_api_key(message="Invalid API key"):
    return RequestError(message, "INVALID_API_KEY", 401)


def bad_narrow(description):
    return RequestError(f"Invalid narrow operator: {description}", "BAD_NARROW", desc=description)


def invalid_message():
    return RequestError("Invalid message(s)")


def no_channel_named(name):
    return RequestError(f"Channel '{name}' does not exist", "STREAM_DOES_NOT_EXIST", stream=name)


def no_channel_with(number):
    return RequestError(f"Channel with ID '{number}' does not exist", "STREAM_DOES_NOT_EXIST", stream_id=number)


def administrator_required():
    return RequestError("Must be an organization administrator", "UNAUTHORIZED_PRINCIPAL")
