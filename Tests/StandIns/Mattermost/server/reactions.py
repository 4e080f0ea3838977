"""Reactions and custom emoji, whose names people choose."""

import json
import re

from aiohttp import web

from .errors import APIError, forbidden, invalid_body
from .hub import Event
from .store import is_id, new_id
from .wire import Routes, answer, encode, ok

routes = Routes()

# The server's limits.
NAME_MAXIMUM = 64
REACTIONS_MAXIMUM = 50
IMAGE_MAXIMUM = 512 * 1024

NAME = re.compile(r"[a-z0-9+\-_]+")
NAME_IN_TEXT = re.compile(r":([a-z0-9+\-_]+):")

# Some of the 1,800 names that every server knows.
SYSTEM_EMOJI = frozenset("""
+1 -1 thumbsup thumbsdown heart broken_heart smile smiley grinning grin joy laughing wink blush cry sob angry rage
slightly_smiling_face thinking confused neutral_face scream sunglasses tada fire eyes rocket wave clap pray muscle
ok_hand white_check_mark heavy_check_mark x question exclamation warning zap star sparkles bulb memo bug coffee beer
cake lock speech_balloon calendar house car
""".split())


def reaction_json(row):
    return {
        "user_id": row["user_id"], "post_id": row["post_id"], "emoji_name": row["emoji_name"],
        "create_at": row["create_at"], "update_at": row["update_at"], "delete_at": 0, "remote_id": "",
        "channel_id": row["channel_id"],
    }


def emoji_json(row):
    return {
        "id": row["id"], "create_at": row["create_at"], "update_at": row["update_at"], "delete_at": 0,
        "creator_id": row["creator_id"], "name": row["name"],
    }


def emojis_of(store, message, reactions):
    """The custom emoji that a text or its reactions name."""
    names = dict.fromkeys([*NAME_IN_TEXT.findall(message), *(row["emoji_name"] for row in reactions)])
    rows = (store.one("SELECT * FROM emoji WHERE name = ?", name) for name in names if name not in SYSTEM_EMOJI)
    return [emoji_json(row) for row in rows if row]


def _require(call, post_id):
    post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", post_id)
    if post is None or not call.access.may_post(post["channel_id"], call.user_id):
        raise forbidden()
    return post


def _has_reactions(call, post_id):
    """A post knows whether it has reactions, and changes its time with them."""
    count = call.store.value("SELECT COUNT(*) FROM reactions WHERE post_id = ?", post_id)
    call.store.update("posts", {"id": post_id}, {"has_reactions": int(count > 0), "update_at": call.store.now()})


@routes.on("POST", "/reactions")
async def save_reaction(call):
    body = await call.body("reaction")
    user_id, post_id, name = (body.get(key) for key in ("user_id", "post_id", "emoji_name"))
    if not (is_id(user_id) and is_id(post_id) and isinstance(name, str) and 0 < len(name) <= NAME_MAXIMUM):
        raise APIError(400, "api.reaction.save_reaction.invalid.app_error")
    if user_id != call.user_id:
        raise APIError(403, "api.reaction.save_reaction.user_id.app_error")
    post = _require(call, post_id)
    if name not in SYSTEM_EMOJI and not call.store.one("SELECT id FROM emoji WHERE name = ?", name):
        raise APIError(404, "app.emoji.get_by_name.no_result")
    channel = call.access.channel(post["channel_id"])
    if channel["delete_at"]:
        raise APIError(403, "api.reaction.save.archived_channel.app_error")
    names = {row["emoji_name"] for row in call.store.all("SELECT emoji_name FROM reactions WHERE post_id = ?", post_id)}
    if name not in names and len(names) >= REACTIONS_MAXIMUM:
        raise APIError(400, "app.reaction.save.save.too_many_reactions")
    now = call.store.now()
    row = {
        "user_id": user_id, "post_id": post_id, "emoji_name": name, "create_at": now, "update_at": now,
        "channel_id": channel["id"],
    }
    with call.store.transaction():
        call.store.insert("reactions", row, or_replace=True)
        _has_reactions(call, post_id)
    call.hub.publish(Event("reaction_added", {"reaction": encode(reaction_json(row))}, channel_id=channel["id"]))
    return answer(reaction_json(row))


@routes.on("GET", "/posts/{post_id}/reactions")
async def list_reactions(call):
    post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", call.id("post_id"))
    if post is None or not call.access.may_read(call.access.channel(post["channel_id"]), call.user_id):
        raise forbidden()
    rows = call.store.all("SELECT * FROM reactions WHERE post_id = ? ORDER BY create_at", post["id"])
    return answer([reaction_json(row) for row in rows])


@routes.on("POST", "/posts/ids/reactions")
async def list_reactions_of_posts(call):
    found = {}
    for id in (await call.array("post_ids"))[:1000]:
        post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", id)
        if post is None or not call.access.may_read(call.access.channel(post["channel_id"]), call.user_id):
            raise forbidden()
        found[id] = [reaction_json(row) for row in call.store.all(
            "SELECT * FROM reactions WHERE post_id = ? ORDER BY create_at", id)]
    return answer(dict(sorted(found.items())))


@routes.on("DELETE", "/users/{user_id}/posts/{post_id}/reactions/{emoji_name}")
async def delete_reaction(call):
    user_id, name = call.id("user_id"), call.text("emoji_name")
    post = _require(call, call.id("post_id"))
    call.access.require_user(call, user_id)
    if call.access.channel(post["channel_id"])["delete_at"]:
        raise APIError(403, "api.reaction.delete.archived_channel.app_error")
    row = {
        "user_id": user_id, "post_id": post["id"], "emoji_name": name, "create_at": 0,
        "update_at": call.store.now(), "channel_id": "",
    }
    with call.store.transaction():
        call.store.run(
            "DELETE FROM reactions WHERE user_id = ? AND post_id = ? AND emoji_name = ?", user_id, post["id"], name)
        _has_reactions(call, post["id"])
    call.hub.publish(Event(
        "reaction_removed", {"reaction": encode(reaction_json(row))}, channel_id=post["channel_id"]))
    return ok()


# Custom emoji

@routes.on("POST", "/emoji")
async def create_emoji(call):
    """A form with the emoji as JSON in a field, and the image."""
    unreadable = APIError(400, "api.emoji.create.parse.app_error")
    if not call.request.content_type.startswith("multipart/"):
        raise unreadable
    try:
        form = await call.request.post()
        call.store.keep("part emoji", str(form["emoji"]).encode())
        emoji = json.loads(form["emoji"])
        image = form["image"]
        name = emoji["name"]
    except (KeyError, TypeError, ValueError):
        raise unreadable from None
    if not isinstance(image, web.FileField):
        raise unreadable
    if emoji.get("creator_id") != call.user_id:
        raise forbidden()
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > NAME_MAXIMUM or name in SYSTEM_EMOJI:
        raise APIError(400, "model.emoji.name.app_error")
    if call.store.one("SELECT id FROM emoji WHERE name = ?", name):
        raise APIError(400, "api.emoji.create.duplicate.app_error")
    content = image.file.read(IMAGE_MAXIMUM + 1)
    if len(content) > IMAGE_MAXIMUM:
        raise invalid_body("image")
    now = call.store.now()
    row = {
        "id": new_id(), "create_at": now, "update_at": now, "creator_id": call.user_id, "name": name, "image": content}
    call.store.insert("emoji", row)
    call.hub.publish(Event("emoji_added", {"emoji": encode(emoji_json(row))}))
    return answer(emoji_json(row), 201)


def _emoji(call):
    row = call.store.one("SELECT * FROM emoji WHERE id = ?", call.id("emoji_id"))
    if row is None:
        raise APIError(404, "app.emoji.get.no_result")
    return row


@routes.on("GET", "/emoji")
async def list_emoji(call):
    rows = call.store.all(
        "SELECT * FROM emoji ORDER BY name LIMIT ? OFFSET ?", call.per_page, call.page * call.per_page)
    return answer([emoji_json(row) for row in rows])


@routes.on("GET", "/emoji/{emoji_id}")
async def get_emoji(call):
    return answer(emoji_json(_emoji(call)))


@routes.on("GET", "/emoji/name/{name}")
async def get_emoji_by_name(call):
    row = call.store.one("SELECT * FROM emoji WHERE name = ?", call.text("name"))
    if row is None:
        raise APIError(404, "app.emoji.get_by_name.no_result")
    return answer(emoji_json(row))


@routes.on("GET", "/emoji/{emoji_id}/image")
async def get_emoji_image(call):
    return web.Response(body=_emoji(call)["image"], headers={"Content-Type": "image/png"})


@routes.on("POST", "/emoji/search")
async def search_emoji(call):
    body = await call.body("emoji_search")
    term = body.get("term")
    if not isinstance(term, str) or not term:
        raise invalid_body("term")
    rows = [row for row in call.store.all("SELECT * FROM emoji ORDER BY name") if term in row["name"]]
    return answer([emoji_json(row) for row in rows])


@routes.on("DELETE", "/emoji/{emoji_id}")
async def delete_emoji(call):
    row = _emoji(call)
    if row["creator_id"] != call.user_id and not call.access.is_admin(call.user_id):
        raise forbidden()
    call.store.run("DELETE FROM emoji WHERE id = ?", row["id"])
    return ok()
