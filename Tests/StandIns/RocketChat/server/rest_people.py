"""REST: logging in, accounts, personal access tokens, presence, settings, information."""

from . import VERSION
from .rest import Answer, failure, forbidden, route
from .values import MeteorError


@route("POST", "login", login=False)
async def login(call):
    body = call.body
    request = body
    if body.get("password") is not None and not set(body) - {"user", "username", "email", "password", "code"}:
        name = body.get("user")
        if isinstance(name, str):
            criteria = {"email": name} if "@" in name else {"username": name}
        elif body.get("username"):
            criteria = {"username": body["username"]}
        else:
            criteria = {"email": body.get("email")}
        request = {"user": criteria, "password": body["password"]}
    try:
        user, result = call.world.people.login(request)
    except MeteorError as error:
        code, text = error.error, error.reason
        if text == "User not found":
            code = text = "Unauthorized"
        raise Answer(401, {"status": "error", "error": code, "message": text}) from None
    return {"status": "success", "data": {
        "userId": user["_id"], "authToken": result["token"], "me": call.world.people.me(user)}}


@route("POST", "logout", raw=True)
async def logout(call):
    call.world.people.logout(call.user, call.token)
    return {"status": "success", "data": {"message": "You've been logged out!"}}


@route("GET", "me")
async def me(call):
    return call.world.people.me(call.user)


@route("GET", "info", login=False)
async def info(call):
    return {"info": {"version": VERSION}} if call.user else {"version": ".".join(VERSION.split(".")[:2])}


def user_of(call, parameters):
    people = call.world.people
    user = people.get(parameters.get("userId")) or people.named(parameters.get("username") or parameters.get("user"))
    if not user and not any(parameters.get(key) for key in ("userId", "username", "user")):
        raise MeteorError("error-user-param-not-provided",
                          'The required "userId" or "username" param was not provided')
    if not user:
        raise MeteorError("error-invalid-user", 'The required "userId" or "username" param provided does not match any '
                          "users")
    return user


@route("GET", "users.info")
async def users_info(call):
    people = call.world.people
    user = people.get(call.query.get("userId")) or people.named(call.query.get("username"))
    if not user:
        raise failure("User not found.")
    own = user["_id"] == call.user["_id"]
    form = people.full(user) if own or people.may(call.user, "view-full-other-user-info") else people.public(user)
    return {"user": form | {"canViewAllInfo": own or people.may(call.user, "view-full-other-user-info")}}


@route("GET", "users.list")
async def users_list(call):
    people = call.world.people
    people.require(call.user, "view-d-room", "error-unauthorized", "User does not have the permissions")
    full = people.may(call.user, "view-full-other-user-info")
    users = [people.full(user) if full else people.public(user) for user in people.db.find("users")]
    return call.page("users", users, {"username": 1})


@route("GET", "users.presence")
async def users_presence(call):
    people, wanted = call.world.people, call.query.get("ids")
    users = people.changed_since(call.query.get("from"))
    users = [user for user in users if not wanted or user["_id"] in wanted.split(",")]
    keys = ("_id", "username", "name", "status", "utcOffset", "statusText")
    return {
        "users": [{key: user[key] for key in keys if key in user} for user in users],
        "full": "from" not in call.query}


@route("GET", "users.getPresence")
async def users_get_presence(call):
    if not call.query.get("userId") and not call.query.get("username"):
        return {"presence": call.user["status"], "connectionStatus": call.user["statusConnection"]}
    return {"presence": user_of(call, call.query)["status"]}


@route("GET", "users.getStatus")
async def users_get_status(call):
    user = user_of(call, call.query) if call.query else call.user
    return {"_id": user["_id"], "message": user.get("statusText", ""), "connectionStatus": user["statusConnection"],
            "status": user["status"]}


@route("POST", "users.setStatus")
async def users_set_status(call):
    if "message" not in call.body and "status" not in call.body:
        raise MeteorError("invalid-params", "must have required property 'status'")
    call.world.people.set_status(call.user, call.body.get("status"), call.body.get("message"))


@route("POST", "users.updateOwnBasicInfo")
async def users_update_own_basic_info(call):
    changes = call.need("data")
    for key in ("name", "nickname", "bio", "statusText", "username"):
        if key in changes:
            call.user[key] = changes[key]
    call.world.db.put("users", call.user)
    call.world.streams.emit("stream-notify-logged", "Users:NameChanged", call.world.people.short(call.user))
    return {"user": call.world.people.full(call.user)}


@route("GET", "users.getPreferences")
async def users_get_preferences(call):
    return {"preferences": call.user["settings"].get("preferences", {})}


@route("POST", "users.setPreferences")
async def users_set_preferences(call):
    call.user["settings"]["preferences"] = call.user["settings"].get("preferences", {}) | call.need("data")
    call.world.db.put("users", call.user)
    return {"user": {"_id": call.user["_id"], "settings": call.user["settings"]}}


@route("GET", "users.getUsernameSuggestion")
async def users_get_username_suggestion(call):
    return {"result": call.user["username"]}


@route("POST", "users.register", login=False)
async def users_register(call):
    username, password, email = call.need("username", "pass", "email")
    if call.world.settings["Accounts_RegistrationForm"] == "Disabled":
        raise failure("User registration is disabled [error-user-registration-disabled]")
    user = call.world.people.create(username, password, email, call.body.get("name"))
    join_default_rooms(call.world, user)
    return {"user": call.world.people.public(call.world.people.get(user["_id"]))}


def join_default_rooms(world, user):
    for room in world.db.find("rooms", "json_extract(body, '$.default') = 1"):
        world.rooms.add(room, user)


@route("POST", "users.create")
async def users_create(call):
    username, password, email = call.need("username", "password", "email")
    call.world.people.require(call.user, "create-user", "error-unauthorized", "Not authorized", "insertOrUpdateUser")
    extra = {key: call.body.get(key) for key in ("bio", "nickname", "statusText", "customFields")}
    user = call.world.people.create(
        username, password, email, call.body.get("name"), call.body.get("roles") or ["user"], **extra)
    if call.body.get("joinDefaultChannels", True):
        join_default_rooms(call.world, user)
    return {"user": call.world.people.full(call.world.people.get(user["_id"]))}


@route("POST", "users.delete")
async def users_delete(call):
    call.world.people.require(call.user, "delete-user", method="deleteUser")
    user = user_of(call, call.body)
    for row in call.world.db.find("subscriptions", "uid = ?", user["_id"]):
        call.world.db.remove("subscriptions", row)
    call.world.db.remove("users", user, trash=False)


@route("POST", "users.generatePersonalAccessToken")
async def generate_personal_access_token(call):
    name = call.need("tokenName")
    return {"token": call.world.people.generate_token(call.user, name, bool(call.body.get("bypassTwoFactor")))}


@route("POST", "users.regeneratePersonalAccessToken")
async def regenerate_personal_access_token(call):
    return {"token": call.world.people.regenerate_token(call.user, call.need("tokenName"))}


@route("GET", "users.getPersonalAccessTokens")
async def get_personal_access_tokens(call):
    keys = ("name", "createdAt", "lastTokenPart", "bypassTwoFactor")
    return {"tokens": [{key: row[key] for key in keys} for row in call.world.people.personal_tokens(call.user)]}


@route("POST", "users.removePersonalAccessToken")
async def remove_personal_access_token(call):
    call.world.people.remove_token(call.user, call.need("tokenName"))


@route("GET", "settings.public", login=False)
async def settings_public(call):
    rows = call.world.db.find("settings", "json_extract(body, '$.public') = 1", order="_id")
    wanted = call.query.get("_id")
    rows = [{"_id": row["_id"], "value": row["value"], "enterprise": False} for row in rows
            if not wanted or row["_id"] in wanted.split(",")]
    return call.page("settings", rows)


@route("GET", "settings")
async def settings(call):
    call.world.people.require(
        call.user, "view-privileged-setting", "unauthorized", "unauthorized")
    if call.rest:
        row = call.world.db.get("settings", call.rest[0])
        if not row:
            raise failure("Setting not found")
        return {key: row[key] for key in ("_id", "value")}
    rows = call.world.db.find("settings", order="_id")
    return call.page("settings", [{"_id": row["_id"], "value": row["value"]} for row in rows])


@route("POST", "settings")
async def settings_update(call):
    people = call.world.people
    if not people.may(call.user, "edit-privileged-setting"):
        raise forbidden()
    if not call.rest or call.rest[0] not in call.world.settings.values:
        raise MeteorError("error-invalid-setting", "Invalid setting")
    call.world.settings.set(call.rest[0], call.body.get("value"))


@route("GET", "spotlight")
async def spotlight(call):
    return call.world.rooms.spotlight(call.user, call.need("query"))


@route("GET", "directory")
async def directory(call):
    wanted = call.json("query")
    text = (wanted.get("text") or "").lower()
    people, rooms = call.world.people, call.world.rooms
    if wanted.get("type") == "users":
        found = [people.public(user) for user in people.db.find("users", order="username")
                 if text in (user["username"] + " " + user["name"]).lower()]
    else:
        found = [rooms.public(room) for room in rooms.db.find("rooms", "t = 'c'", order="name")
                 if text in " ".join(room.get(key) or "" for key in ("name", "fname", "topic")).lower()]
    offset, count = call.paging()
    part = found[offset:offset + count] if count else found[offset:]
    return {"result": part, "count": len(part), "offset": offset, "total": len(found)}


@route("GET", "commands.list")
async def commands_list(call):
    return call.page("commands", call.world.commands.list())


@route("GET", "commands.get")
async def commands_get(call):
    name = call.need("command")
    found = [command for command in call.world.commands.list() if command["command"] == name.lower()]
    if not found:
        raise failure(f"There is no command in the system by the name of: {name}")
    return {"command": found[0]}


@route("POST", "commands.run")
async def commands_run(call):
    for name, text in (("command", "You must provide a command to run."),
                       ("roomId", "The room's id where to execute this command must be provided and be a string.")):
        if not isinstance(call.body.get(name), str):
            raise failure(text)
    parameters, tmid = call.body.get("params") or "", call.body.get("tmid")
    if not isinstance(parameters, str):
        raise failure("The parameters for the command must be a single string.")
    known = {command["command"] for command in call.world.commands.list()}
    if call.body["command"].lower() not in known:
        raise failure("The command provided does not exist (or is disabled).")
    if not call.world.rooms.may_access_id(call.body["roomId"], call.user):
        raise forbidden()
    if tmid:
        thread = call.world.messages.get(tmid)
        if not thread or thread["rid"] != call.body["roomId"]:
            raise failure("Invalid thread.")
    call.world.commands.run(call.user, call.body["command"], parameters, call.body["roomId"], tmid)


@route("GET", "rooms.get")
async def rooms_get(call):
    return changes(call, call.world.rooms.rooms_since(call.user, call.moment("updatedSince")))


@route("GET", "subscriptions.get")
async def subscriptions_get(call):
    return changes(call, call.world.rooms.subscriptions_since(call.user, call.moment("updatedSince")))


def changes(call, result):
    return {"update": result, "remove": []} if isinstance(result, list) else result


@route("GET", "subscriptions.getOne")
async def subscriptions_get_one(call):
    return {"subscription": call.world.rooms.subscription(call.need("roomId"), call.user["_id"])}


@route("POST", "subscriptions.read")
async def subscriptions_read(call):
    call.world.rooms.read(call.body.get("rid") or call.need("roomId"), call.user)


@route("POST", "subscriptions.unread")
async def subscriptions_unread(call):
    call.world.rooms.unread(call.user, call.body.get("roomId"), call.body.get("firstUnreadMessage"))
