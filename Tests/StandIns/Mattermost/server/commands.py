"""Slash commands. What a command answers is a post for all, a post for the caller alone, or a change."""

from .channels import join, leave
from .errors import APIError, forbidden
from .posts import send_ephemeral
from .store import is_id
from .wire import Routes, answer, typed

routes = Routes()

# The server cuts longer names of commands in its error.
TRIGGER_MAXIMUM = 512


class Arguments:
    def __init__(self, call, channel, text, root_id):
        self.call = call
        self.server = call.server
        self.channel = channel
        self.text = text
        self.root_id = root_id
        self.user = call.access.user(call.user_id)

    def post(self, channel, message, kind="", root_id=""):
        self.server.posts.create(channel, self.user, {"message": message, "type": kind, "root_id": root_id})


def _response(kind="", text="", type="", goto=""):
    return {
        "response_type": kind, "text": text, "username": "", "channel_id": "", "icon_url": "", "type": type,
        "props": None, "goto_location": goto, "trigger_id": "", "skip_slack_parsing": False, "attachments": None,
        "extra_responses": None,
    }


def _private(text):
    return _response("ephemeral", text)


def me(arguments):
    return _response("in_channel", f"*{arguments.text}*", "me")


def shrug(arguments):
    shrug = "¯\\\\\\_(ツ)\\_/¯"
    return _response("in_channel", f"{arguments.text} {shrug}" if arguments.text else shrug)


def echo(arguments):
    if not arguments.text:
        return _private("A message is needed.")
    arguments.post(arguments.channel, arguments.text, root_id=arguments.root_id)
    return _response()


def code(arguments):
    if not arguments.text:
        return _private("A message is needed.")
    return _response("in_channel", "    " + "    ".join(arguments.text.splitlines(keepends=True)))


def _change(name):
    def change(arguments):
        if not arguments.text:
            return _private("A text is needed.")
        if arguments.channel["type"] in "DG" and name != "header":
            return _private("A direct or group channel has no such text.")
        try:
            arguments.server.channels.change(arguments.channel, {name: arguments.text}, arguments.user)
        except APIError as error:
            return _private(error.message)
        return _response()
    return change


def msg(arguments):
    name, _, text = arguments.text.partition(" ")
    other = arguments.call.store.one("SELECT * FROM users WHERE username = ?", name.lstrip("@").lower())
    if other is None or other["id"] == arguments.user["id"]:
        return _private("There is no such user.")
    channel = arguments.server.channels.direct(arguments.user["id"], other["id"])
    if text:
        arguments.post(channel, text)
    return _response(goto=f"/_redirect/messages/@{other['username']}")


def join_channel(arguments):
    name = arguments.text.lstrip("~").lower()
    channel = arguments.call.store.one(
        "SELECT * FROM channels WHERE team_id = ? AND name = ? AND type = 'O' AND delete_at = 0",
        arguments.channel["team_id"], name)
    if channel is None:
        return _private("There is no such channel.")
    if arguments.call.access.member(channel["id"], arguments.user["id"]) is None:
        join(arguments.server, channel, arguments.user, arguments.user)
    return _response(goto=f"/_redirect/channels/{channel['name']}")


def leave_channel(arguments):
    if arguments.channel["type"] in "DG":
        return _private("A direct or group channel cannot be left.")
    try:
        leave(arguments.server, arguments.channel, arguments.user, arguments.user)
    except APIError as error:
        return _private(error.message)
    return _response()


def _set_status(status):
    def set_status(arguments):
        arguments.server.statuses.set(arguments.user["id"], status, is_chosen=True)
        return _private(f"You are now {status}.")
    return set_status


COMMANDS = {
    "away": _set_status("away"), "code": code, "dnd": _set_status("dnd"), "echo": echo, "header": _change("header"),
    "join": join_channel, "leave": leave_channel, "me": me, "msg": msg, "offline": _set_status("offline"),
    "online": _set_status("online"), "purpose": _change("purpose"), "rename": _change("display_name"), "shrug": shrug,
}


@routes.on("POST", "/commands/execute")
async def execute(call):
    body = await call.body("command_args")
    command, channel_id = typed(body, "command", str, "", "command_args"), body.get("channel_id")
    if len(command) <= 1 or not command.startswith("/") or not is_id(channel_id):
        raise APIError(400, "api.command.execute_command.start.app_error")
    if not call.access.may_post(channel_id, call.user_id):
        raise forbidden()
    channel = call.access.channel(channel_id)
    if channel["delete_at"]:
        raise APIError(400, "api.command.execute_command.deleted.error")
    trigger, *rest = command.split(maxsplit=1) if command[1:2].strip() else [command[:1], command[1:]]
    trigger = trigger[1:].lower()
    if trigger not in COMMANDS:
        name = trigger if len(trigger) <= TRIGGER_MAXIMUM else trigger[:TRIGGER_MAXIMUM] + "..."
        raise APIError(404, "api.command.execute_command.not_found.app_error", Trigger=name)
    root_id = typed(body, "root_id", str, "", "command_args")
    arguments = Arguments(call, channel, rest[0] if rest else "", root_id)
    response = COMMANDS[trigger](arguments)
    if response["response_type"] == "in_channel":
        arguments.post(channel, response["text"], response["type"], root_id)
    elif response["text"]:
        send_ephemeral(
            call.server, call.user_id, call.user_id, channel_id, {"message": response["text"], "root_id": root_id})
    return answer(response)


def _command_json(trigger):
    return {
        "id": "", "token": "", "create_at": 0, "update_at": 0, "delete_at": 0, "creator_id": "", "team_id": "",
        "trigger": trigger, "method": "", "username": "", "icon_url": "", "auto_complete": True,
        "auto_complete_desc": "", "auto_complete_hint": "", "display_name": trigger, "description": "", "url": "",
    }


@routes.on("GET", "/commands")
async def list_commands(call):
    call.access.require_team(call, call.query.get("team_id", ""))
    return answer([_command_json(trigger) for trigger in sorted(COMMANDS)])


@routes.on("GET", "/teams/{team_id}/commands/autocomplete")
async def autocomplete(call):
    call.access.require_team(call, call.id("team_id"))
    return answer([_command_json(trigger) for trigger in sorted(COMMANDS)])


@routes.on("GET", "/teams/{team_id}/commands/autocomplete_suggestions")
async def suggestions(call):
    """What a user has typed so far stands in the URL."""
    call.access.require_team(call, call.id("team_id"))
    typed_text = call.query.get("user_input", "").lstrip("/").lower()
    return answer([
        {"Complete": trigger, "Suggestion": trigger, "Hint": "", "Description": "", "IconData": ""}
        for trigger in sorted(COMMANDS) if trigger.startswith(typed_text)
    ])
