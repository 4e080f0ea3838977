"""The server as a whole: its parts, and the way of a request through them."""

import logging
import re

from aiohttp import web

from . import (
    channels, commands, drafts, files, hub, posts, preferences, reactions, system, teams, threads, users,
)
from .access import Access
from .errors import APIError
from .store import Store, new_id
from .wire import Call, answer

PREFIX = "/api/v4"
RELEASE = "11.4.0"

PARTS = (users, teams, channels, posts, threads, reactions, files, preferences, drafts, commands, system, hub)

PLACES = re.compile(r"\{(\w+)\}")


class Server:
    def __init__(self, database, site_url, has_public_links=False, keeps_requests=False):
        self.release = RELEASE
        # Release, build, hash of the settings, whether it has a licence.
        self.version = f"{RELEASE}.standin.0.false"
        self.site_url = site_url
        self.has_public_links = has_public_links
        self.maximum_message = posts.MESSAGE_MAXIMUM
        self.maximum_file_size = files.MAXIMUM_SIZE
        self.store = Store(database, keeps_requests)
        self.access = Access(self)
        self.hub = hub.Hub(self)
        self.statuses = users.Statuses(self)
        self.teams = teams.Teams(self)
        self.channels = channels.Channels(self)
        self.files = files.Files(self)
        self.threads = threads.Threads(self)
        self.posts = posts.Posts(self)
        self.scheduled = drafts.ScheduledPosts(self)

    def application(self):
        application = web.Application(middlewares=[self._serve], client_max_size=files.MAXIMUM_SIZE + 65536)
        for part in PARTS:
            for method, path, handler, session, trusted in part.routes.entries:
                # A name in a path is what the server's own patterns accept, no more.
                pattern = PLACES.sub(r"{\1:[A-Za-z0-9_.@+\\-]+}", path)
                self._add(application, method, PREFIX + pattern, handler, session, trusted)
        self._add(application, "GET", "/files/{file_id:[A-Za-z0-9]+}/public", files.get_public, False, True)
        application.on_response_prepare.append(self._prepare)
        application.on_startup.append(self._start)
        application.on_shutdown.append(self._stop)
        return application

    def _add(self, application, method, path, handler, session, trusted):
        async def run(request):
            # A form is kept part by part, where it is read.
            is_form = request.content_type.startswith("multipart/")
            self.store.keep(f"{request.method} {request.path_qs}", b"" if is_form else await request.read())
            return await handler(Call(self, request, self.access.session_of(request, session, trusted)))
        if method == "GET":
            application.router.add_get(path, run)
        else:
            application.router.add_route(method, path, run)

    async def _start(self, application):
        self.scheduled.set_timer()

    async def _stop(self, application):
        if self.scheduled.timer:
            self.scheduled.timer.cancel()
        await self.hub.close()

    @web.middleware
    async def _serve(self, request, handler):
        request["id"] = new_id()
        # The server's router sends clients to the path without empty parts.
        if "//" in request.path:
            location = re.sub("/+", "/", request.path)
            query = f"?{request.query_string}" if request.query_string else ""
            return web.Response(status=301, headers={"Location": location + query})
        try:
            return await handler(request)
        except APIError as error:
            response = answer(error.body(request["id"]), error.status)
            if error.status == 401 and request.cookies.get("MMAUTHTOKEN"):
                response.del_cookie("MMAUTHTOKEN", path="/")
            return response
        except web.HTTPRequestEntityTooLarge:
            error = APIError(413, "api.context.request_body_too_large.app_error")
            return answer(error.body(request["id"]), 413)
        except web.HTTPNotFound:
            error = APIError(404, "api.context.404.app_error")
            return answer(error.body(request["id"]), 404)
        except web.HTTPException:
            raise
        except Exception:
            logging.exception("%s %s failed", request.method, request.path)
            raise

    async def _prepare(self, request, response):
        headers = response.headers
        headers.pop("Server", None)
        if not request.path.startswith(PREFIX) or response.status == 301:
            return
        headers["X-Request-Id"] = request.get("id") or new_id()
        headers["X-Version-Id"] = self.version
        headers.setdefault("Permissions-Policy", "")
        headers.setdefault("X-Content-Type-Options", "nosniff")
        headers.setdefault("Referrer-Policy", "no-referrer")
        if request.method == "GET":
            headers.setdefault("Expires", "0")
