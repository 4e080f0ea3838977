"""Files: uploads, downloads, and how they get into posts."""

import hashlib
import hmac
import mimetypes
import os
import secrets
import struct
from urllib.parse import quote

from aiohttp import BodyPartReader, web

from .errors import APIError, forbidden, invalid_body, invalid_url
from .store import is_id, new_id
from .users import marks
from .wire import Routes, answer

routes = Routes()

# Ours; the server's default is 100 MB.
MAXIMUM_SIZE = 10 * 1024 * 1024
FILES_OF_POST_MAXIMUM = 10

# What browsers may show in place. Everything else is an attachment.
SHOWN = {"image/png", "image/jpeg", "image/gif", "image/bmp", "image/webp", "audio/mpeg", "video/mp4", "text/plain"}
# Everything but the bytes.
COLUMNS = (
    "id, user_id, post_id, channel_id, create_at, update_at, delete_at, name, extension, size, mime_type, width,"
    " height")
DEFAULT_TYPE = "application/octet-stream"


def file_json(row):
    body = {"id": row["id"], "user_id": row["user_id"]}
    if row["post_id"]:
        body["post_id"] = row["post_id"]
    for name in ("channel_id", "create_at", "update_at", "delete_at", "name", "extension", "size", "mime_type"):
        body[name] = row[name]
    if row["width"]:
        body |= {"width": row["width"], "height": row["height"], "has_preview_image": True}
    return body | {"mini_preview": None, "remote_id": "", "archived": False}


def image_size(content):
    """Width and height of a PNG or GIF; zero for everything else."""
    if content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) >= 24:
        return struct.unpack(">II", content[16:24])
    if content[:6] in (b"GIF87a", b"GIF89a") and len(content) >= 10:
        return struct.unpack("<HH", content[6:10])
    return 0, 0


class Files:
    def __init__(self, server):
        self.server = server
        self.store = server.store
        self.link_secret = secrets.token_bytes(16)

    def save(self, channel_id, user_id, name, content):
        now = self.store.now()
        name = os.path.basename(name)
        extension = os.path.splitext(name)[1].lower().lstrip(".")
        width, height = image_size(content)
        row = {
            "id": new_id(), "user_id": user_id, "post_id": "", "channel_id": channel_id, "create_at": now,
            "update_at": now, "delete_at": 0, "name": name, "extension": extension, "size": len(content),
            "mime_type": mimetypes.guess_type(name)[0] or DEFAULT_TYPE, "width": width, "height": height,
            "content": content,
        }
        self.store.insert("files", row)
        return row

    def attach(self, ids, post_id, channel_id, user_id):
        """Puts uploaded files into a post. Returns the ids of those that it may have."""
        attached = []
        for id in ids[:FILES_OF_POST_MAXIMUM]:
            if self.store.run(
                "UPDATE files SET post_id = ? WHERE id = ? AND post_id = '' AND channel_id = ? AND user_id = ?",
                post_id, id, channel_id, user_id,
            ):
                attached.append(id)
        return attached

    def infos(self, ids):
        rows = self.store.all(f"SELECT {COLUMNS} FROM files WHERE id IN ({marks(ids)}) ORDER BY create_at", *ids)
        return [file_json(row) for row in rows]

    def require_read(self, call, missing="app.file_info.get.app_error"):
        row = self.store.one("SELECT * FROM files WHERE id = ? AND delete_at = 0", call.id("file_id"))
        if row is None:
            raise APIError(404, missing)
        channel = call.access.channel(row["channel_id"])
        if row["user_id"] != call.user_id and not call.access.may_read(channel, call.user_id):
            raise forbidden()
        return row

    def link_hash(self, file_id):
        return hmac.new(self.link_secret, file_id.encode(), hashlib.sha256).hexdigest()


def _require_upload(call, channel_id):
    if not call.access.may_post(channel_id, call.user_id):
        raise forbidden()
    call.access.channel(channel_id)


@routes.on("POST", "/files")
async def upload(call):
    """A form with `channel_id` and any number of `files`, or the bytes of one file whose name stands in the URL."""
    if call.request.content_length == 0:
        raise APIError(400, "api.file.upload_file.read_request.app_error")
    if call.request.content_type.startswith("multipart/"):
        saved, client_ids = await _upload_form(call)
    else:
        channel_id, name = call.query.get("channel_id", ""), call.query.get("filename", "")
        if not is_id(channel_id):
            raise invalid_url("channel_id")
        if not name:
            raise invalid_url("filename")
        _require_upload(call, channel_id)
        content = await call.request.read()
        if len(content) > MAXIMUM_SIZE:
            raise APIError(413, "api.file.upload_file.too_large_detailed.app_error")
        saved = [call.server.files.save(channel_id, call.user_id, name, content)]
        client_ids = [call.query["client_id"]] if "client_id" in call.query else []
    return answer({"file_infos": [file_json(row) for row in saved], "client_ids": client_ids}, 201)


async def _upload_form(call):
    """Fields come in any order; the files are kept until the channel is known."""
    channel_id, client_ids, parts, size = call.query.get("channel_id", ""), [], [], 0
    try:
        reader = await call.request.multipart()
        while part := await reader.next():
            if not isinstance(part, BodyPartReader):
                raise ValueError
            content = bytearray()
            while chunk := await part.read_chunk():
                content += chunk
                size += len(chunk)
                if size > MAXIMUM_SIZE:
                    raise APIError(413, "api.file.upload_file.too_large_detailed.app_error")
            call.store.keep(f"part {part.name} {part.filename}", bytes(content))
            if part.filename is not None:
                parts.append((part.filename, bytes(content)))
            elif part.name == "channel_id":
                channel_id = content.decode()
            elif part.name == "client_ids":
                client_ids.append(content.decode())
    except (ValueError, AssertionError):
        raise APIError(400, "api.file.upload_file.read_request.app_error") from None
    if not is_id(channel_id):
        raise invalid_body("channel_id")
    _require_upload(call, channel_id)
    return [call.server.files.save(channel_id, call.user_id, name, content) for name, content in parts], client_ids


def _content(call, row, mime_type=None):
    mime_type = mime_type or row["mime_type"]
    place = "inline" if mime_type in SHOWN and not call.flag("download") else "attachment"
    name = quote(row["name"])
    return web.Response(body=row["content"], headers={
        "Cache-Control": "private, no-cache", "Content-Type": mime_type,
        "Content-Disposition": f"{place};filename=\"{name}\"; filename*=UTF-8''{name}",
        "Content-Security-Policy": "Frame-ancestors 'none'", "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    })


@routes.on("GET", "/files/{file_id}", trusted=True)
async def get_file(call):
    return _content(call, call.server.files.require_read(call, "api.file.get_file_info.app_error"))


@routes.on("GET", "/files/{file_id}/thumbnail", trusted=True)
async def get_thumbnail(call):
    row = call.server.files.require_read(call)
    if not row["width"]:
        raise APIError(400, "api.file.get_file_thumbnail.no_thumbnail.app_error")
    return _content(call, row)


@routes.on("GET", "/files/{file_id}/preview", trusted=True)
async def get_preview(call):
    row = call.server.files.require_read(call)
    if not row["width"]:
        raise APIError(400, "api.file.get_file_preview.no_preview.app_error")
    return _content(call, row)


@routes.on("GET", "/files/{file_id}/info")
async def get_info(call):
    row = call.server.files.require_read(call)
    return answer(file_json(row), headers={"Cache-Control": "max-age=2592000, private"})


@routes.on("GET", "/files/{file_id}/link")
async def get_link(call):
    if not call.server.has_public_links:
        raise APIError(403, "api.file.get_public_link.disabled.app_error")
    row = call.server.files.require_read(call)
    if not row["post_id"]:
        raise APIError(400, "api.file.get_public_link.no_post.app_error")
    origin = f"{call.request.scheme}://{call.request.host}"
    return answer({"link": f"{origin}/files/{row['id']}/public?h={call.server.files.link_hash(row['id'])}"})


async def get_public(call):
    """Without a session: who has the link has the file."""
    id = call.id("file_id")
    row = call.store.one("SELECT * FROM files WHERE id = ? AND delete_at = 0", id)
    if not call.server.has_public_links:
        raise APIError(403, "api.file.get_public_link.disabled.app_error")
    if row is None or not hmac.compare_digest(call.query.get("h", ""), call.server.files.link_hash(id)):
        raise APIError(400, "api.file.get_file.public_invalid.app_error")
    return _content(call, row)


async def _search(call, team_ids):
    """Words of the names. What stands in files is not searched."""
    body = await call.body("search")
    terms = body.get("terms")
    if not isinstance(terms, str) or not terms:
        raise invalid_body("terms")
    words = [word.strip("\"*").lower() for word in terms.split()]
    rows = call.store.all(
        f"SELECT {COLUMNS} FROM files WHERE post_id != '' AND delete_at = 0 AND channel_id IN"
        " (SELECT c.id FROM channels c JOIN channel_members m ON m.channel_id = c.id AND m.user_id = ?"
        f" WHERE c.team_id = '' OR c.team_id IN ({marks(team_ids)})) ORDER BY create_at DESC", call.user_id, *team_ids)
    found = [row for row in rows if all(word in row["name"].lower() for word in words)]
    return answer({
        "order": [row["id"] for row in found],
        "file_infos": {row["id"]: file_json(row) for row in sorted(found, key=lambda row: row["id"])},
        "next_file_info_id": "", "prev_file_info_id": "", "first_inaccessible_file_time": 0, "matches": None,
    })


@routes.on("POST", "/files/search")
async def search_in_all_teams(call):
    return await _search(call, [row["team_id"] for row in call.store.all(
        "SELECT team_id FROM team_members WHERE user_id = ? AND delete_at = 0", call.user_id)])


@routes.on("POST", "/teams/{team_id}/files/search")
async def search_in_team(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    return await _search(call, [team_id])
