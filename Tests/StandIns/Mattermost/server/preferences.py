"""Preferences, and the categories of the sidebar, whose names people write."""

from .errors import APIError, forbidden, invalid_body
from .hub import Event
from .store import new_id
from .wire import Routes, answer, encode, ok, typed

routes = Routes()

# The server's limits, in characters.
CATEGORY_MAXIMUM, NAME_MAXIMUM, VALUE_MAXIMUM = 32, 32, 20_000
PREFERENCES_MAXIMUM = 100

BUILT_IN_CATEGORIES = (
    ("favorites", "Favorites", ""), ("channels", "Channels", ""), ("direct_messages", "Direct Messages", "recent"))


def preference_json(row):
    return {name: row[name] for name in ("user_id", "category", "name", "value")}


async def _preferences(call, user_id, failure):
    call.access.require_user(call, user_id)
    entries = await call.json(invalid_body("preferences"))
    if not isinstance(entries, list) or not 0 < len(entries) <= PREFERENCES_MAXIMUM:
        raise invalid_body("preferences")
    rows = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise invalid_body("preferences")
        row = {name: typed(entry, name, str, "", "preferences") for name in ("user_id", "category", "name", "value")}
        if row["user_id"] != user_id:
            raise APIError(403, failure)
        if not 0 < len(row["category"]) <= CATEGORY_MAXIMUM or len(row["name"]) > NAME_MAXIMUM:
            raise invalid_body("preferences")
        if len(row["value"]) > VALUE_MAXIMUM:
            raise APIError(400, "model.preference.is_valid.value.app_error")
        rows.append(row)
    return rows


@routes.on("PUT", "/users/{user_id}/preferences")
async def save_preferences(call):
    user_id = call.id("user_id")
    rows = await _preferences(call, user_id, "api.preference.update_preferences.set.app_error")
    for row in rows:
        if row["category"] == "flagged_post":
            post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", row["name"])
            if post is None or not call.access.may_read(call.access.channel(post["channel_id"]), call.user_id):
                raise forbidden()
    with call.store.transaction():
        for row in rows:
            call.store.insert("preferences", row, or_replace=True)
    _publish(call, user_id, "preferences_changed", rows)
    return ok()


@routes.on("POST", "/users/{user_id}/preferences/delete")
async def delete_preferences(call):
    user_id = call.id("user_id")
    rows = await _preferences(call, user_id, "api.preference.delete_preferences.delete.app_error")
    with call.store.transaction():
        for row in rows:
            call.store.run(
                "DELETE FROM preferences WHERE user_id = ? AND category = ? AND name = ?", user_id, row["category"],
                row["name"])
    _publish(call, user_id, "preferences_deleted", rows)
    return ok()


def _publish(call, user_id, name, rows):
    call.hub.publish(Event("sidebar_category_updated", {}, user_id=user_id))
    call.hub.publish(Event(name, {"preferences": encode(rows)}, user_id=user_id))


@routes.on("GET", "/users/{user_id}/preferences")
async def list_preferences(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    rows = call.store.all("SELECT * FROM preferences WHERE user_id = ? ORDER BY category, name", user_id)
    return answer([preference_json(row) for row in rows])


@routes.on("GET", "/users/{user_id}/preferences/{category}")
async def list_category(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    rows = call.store.all(
        "SELECT * FROM preferences WHERE user_id = ? AND category = ? ORDER BY name", user_id, call.text("category"))
    if not rows:
        raise APIError(404, "api.preference.preferences_category.get.app_error")
    return answer([preference_json(row) for row in rows])


@routes.on("GET", "/users/{user_id}/preferences/{category}/name/{name}")
async def get_preference(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    row = call.store.one(
        "SELECT * FROM preferences WHERE user_id = ? AND category = ? AND name = ?", user_id, call.text("category"),
        call.text("name"))
    if row is None:
        raise APIError(400, "app.preference.get.app_error")
    return answer(preference_json(row))


# Categories of the sidebar

def category_json(row):
    return {
        "id": row["id"], "user_id": row["user_id"], "team_id": row["team_id"], "sort_order": row["sort_order"],
        "sorting": row["sorting"], "type": row["type"], "display_name": row["display_name"],
        "muted": bool(row["muted"]), "collapsed": bool(row["collapsed"]), "channel_ids": row["channel_ids"],
    }


def _categories(call, user_id, team_id):
    """All categories in their order. Those that everyone has are made when they are first asked for."""
    rows = call.store.all(
        "SELECT * FROM sidebar_categories WHERE user_id = ? AND team_id = ? ORDER BY sort_order", user_id, team_id)
    if rows:
        return rows
    for place, (kind, name, sorting) in enumerate(BUILT_IN_CATEGORIES):
        call.store.insert("sidebar_categories", {
            "id": f"{kind}_{user_id}_{team_id}", "user_id": user_id, "team_id": team_id, "sort_order": place * 10,
            "sorting": sorting, "type": kind, "display_name": name, "muted": 0, "collapsed": 0, "channel_ids": [],
        })
    return _categories(call, user_id, team_id)


def _place(call):
    user_id, team_id = call.id("user_id"), call.id("team_id")
    call.access.require_user(call, user_id)
    call.access.require_team(call, team_id)
    return user_id, team_id


@routes.on("GET", "/users/{user_id}/teams/{team_id}/channels/categories")
async def list_categories(call):
    """What is in no category of its own stands in that of its type."""
    user_id, team_id = _place(call)
    rows = _categories(call, user_id, team_id)
    placed = {id for row in rows for id in row["channel_ids"]}
    channels = call.store.all(
        "SELECT c.id, c.type FROM channels c JOIN channel_members m ON m.channel_id = c.id WHERE m.user_id = ?"
        " AND c.team_id IN (?, '') AND c.delete_at = 0 ORDER BY c.display_name, c.create_at", user_id, team_id)
    for row in rows:
        row["channel_ids"] = row["channel_ids"] + [
            channel["id"] for channel in channels if channel["id"] not in placed
            and row["type"] == ("direct_messages" if channel["type"] in "DG" else "channels")]
    return answer({"categories": [category_json(row) for row in rows], "order": [row["id"] for row in rows]})


@routes.on("POST", "/users/{user_id}/teams/{team_id}/channels/categories")
async def create_category(call):
    user_id, team_id = _place(call)
    body = await call.body("category")
    if body.get("user_id") != user_id or body.get("team_id") != team_id:
        raise invalid_body("category")
    rows = _categories(call, user_id, team_id)
    row = {
        "id": new_id(), "user_id": user_id, "team_id": team_id, "sort_order": rows[0]["sort_order"] + 5,
        "sorting": typed(body, "sorting", str, "", "category"), "type": "custom",
        "display_name": typed(body, "display_name", str, "", "category"), "muted": 0, "collapsed": 0,
        "channel_ids": typed(body, "channel_ids", list, [], "category"),
    }
    call.store.insert("sidebar_categories", row)
    call.hub.publish(Event(
        "sidebar_category_created", {"category_id": row["id"]}, team_id=team_id, user_id=user_id))
    return answer(category_json(row))


def _category(call, user_id, team_id):
    row = call.store.one(
        "SELECT * FROM sidebar_categories WHERE id = ? AND user_id = ? AND team_id = ?", call.text("category_id"),
        user_id, team_id)
    if row is None:
        raise APIError(404, "app.channel.sidebar_categories.app_error")
    return row


@routes.on("PUT", "/users/{user_id}/teams/{team_id}/channels/categories/{category_id}")
async def update_category(call):
    user_id, team_id = _place(call)
    body = await call.body("category")
    row = _category(call, user_id, team_id)
    changes = {
        "channel_ids": typed(body, "channel_ids", list, [], "category"),
        "muted": int(typed(body, "muted", bool, False, "category")),
        "collapsed": int(typed(body, "collapsed", bool, False, "category")),
        "sorting": typed(body, "sorting", str, "", "category"),
    }
    if row["type"] == "custom":
        changes["display_name"] = typed(body, "display_name", str, "", "category")
    call.store.update("sidebar_categories", {"id": row["id"]}, changes)
    row |= changes
    call.hub.publish(Event(
        "sidebar_category_updated", {"updatedCategories": encode([category_json(row)])}, team_id=team_id,
        user_id=user_id))
    return answer(category_json(row))


@routes.on("DELETE", "/users/{user_id}/teams/{team_id}/channels/categories/{category_id}")
async def delete_category(call):
    user_id, team_id = _place(call)
    row = _category(call, user_id, team_id)
    if row["type"] != "custom":
        raise invalid_body("category_id")
    call.store.run("DELETE FROM sidebar_categories WHERE id = ?", row["id"])
    call.hub.publish(Event(
        "sidebar_category_deleted", {"category_id": row["id"]}, team_id=team_id, user_id=user_id))
    return ok()
