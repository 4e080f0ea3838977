"""The HTTP side: routes, authentication, transactions, the form of answers."""

import asyncio
import json
import logging
import re
import time
import traceback
import urllib.parse

from aiohttp import BasicAuth, web

from . import version
from .channels import Channels
from .errors import RequestError
from .messages import Messages
from .parameters import Parameters
from .people import BOT_EMAIL, People
from .personal import Personal
from .queues import Queues
from .registration import Registration
from .rendering import Renderer
from .store import Store
from .uploads import Uploads

BODY_LIMIT = (Uploads.LIMIT_MIB + 1) << 20
# Timers of the event loop do not reach further; a later one is set when this one fires.
LONGEST_TIMER = 86_400


class Call:
    """One request: who makes it, with which parameters, on what."""

    def __init__(self, user, parameters, path, client, files):
        self.user = user
        self.parameters = parameters
        self.path = path
        self.client = client
        self.files = files


class Server:
    # What clients without the capability `empty_topic_name` see for a topic without a name.
    EMPTY_TOPIC = "general chat"

    def __init__(self, path, heartbeat_seconds):
        self.store = Store(path)
        self.queues = Queues(heartbeat_seconds)
        self.people = People(self)
        self.channels = Channels(self)
        self.uploads = Uploads(self)
        self.messages = Messages(self)
        self.personal = Personal(self)
        self.registration = Registration(self)
        self.address = ""
        self.records = False
        self.timer = None
        self.people.add(BOT_EMAIL, "", "Notification Bot", is_bot=True)

    def shown_topic(self, topic, allow_empty):
        return topic if topic or allow_empty else self.EMPTY_TOPIC

    def topic_of_client(self, topic):
        return "" if topic == self.EMPTY_TOPIC else topic

    def render(self, text):
        return Renderer(self.people.by_mention, self.channels.by_name).render(text)

    # MARK: Scheduled messages

    def arm(self):
        """Sets the timer for the next scheduled message."""
        if self.timer is not None:
            self.timer.cancel()
        due = self.personal.next_due()
        if due is None:
            self.timer = None
            return
        self.timer = asyncio.get_running_loop().call_later(
            min(max(due - time.time(), 0), LONGEST_TIMER), self.send_due)

    def send_due(self):
        self.timer = None
        self.committed(self.personal.send_due)
        self.arm()

    def committed(self, work):
        """Does `work` in a transaction; its events go out after the commit."""
        isCommitted = False
        try:
            with self.store.transaction():
                result = work()
            isCommitted = True
            return result
        finally:
            self.queues.release(isCommitted)

    # MARK: Requests

    def settings(self, call):
        return {
            "authentication_methods": {"password": True, "ldap": False, "dev": False, "email": True, "remoteuser": False},
            "external_authentication_methods": [], "email_auth_enabled": True, "require_email_format_usernames": True,
            "zulip_version": version.VERSION, "zulip_merge_base": version.VERSION,
            "zulip_feature_level": version.FEATURE_LEVEL, "push_notifications_enabled": False, "is_incompatible": False,
            "realm_url": self.address, "realm_uri": self.address, "realm_name": version.REALM_NAME,
            "realm_icon": "/user_avatars/2/realm/icon.png?version=1", "realm_description": "",
            "realm_web_public_access_enabled": False}

    def routes(self):
        people, channels, messages = self.people, self.channels, self.messages
        personal, uploads, registration = self.personal, self.uploads, self.registration
        own = "/users/me/subscriptions"
        return [
            ("GET", "/server_settings", self.settings), ("POST", "/fetch_api_key", people.fetch_api_key),
            ("POST", "/register", registration.register), ("DELETE", "/events", registration.deregister),
            ("GET", "/users", people.all), ("GET", "/users/me", people.own),
            ("POST", "/users/me/presence", people.update_presence), ("POST", "/users/me/status", people.update_status),
            ("GET", "/realm/presence", people.realm_presence), ("GET", "/users/{who}/presence", people.presence),
            ("GET", r"/users/{who:\d+}/status", people.status),
            ("GET", own, channels.own), ("POST", own, channels.subscribe), ("DELETE", own, channels.unsubscribe),
            ("POST", own + "/properties", channels.update_settings), ("PATCH", own + "/muted_topics", personal.mute_topic),
            ("GET", r"/users/{who:\d+}/subscriptions/{stream:\d+}", channels.status),
            ("GET", r"/users/me/{stream:\d+}/topics", channels.topics),
            ("GET", "/users/me/alert_words", personal.alert_words),
            ("POST", "/users/me/alert_words", personal.add_alert_words),
            ("DELETE", "/users/me/alert_words", personal.remove_alert_words),
            ("GET", "/users/{who}", people.one), ("POST", "/user_topics", personal.update_topic),
            ("GET", "/streams", channels.all), ("GET", r"/streams/{stream:\d+}", channels.one),
            ("PATCH", r"/streams/{stream:\d+}", channels.update), ("DELETE", r"/streams/{stream:\d+}", channels.archive),
            ("GET", r"/streams/{stream:\d+}/members", channels.members),
            ("POST", r"/streams/{stream:\d+}/delete_topic", channels.delete_topic),
            ("GET", "/get_stream_id", channels.id_of),
            ("GET", "/messages", messages.fetch), ("POST", "/messages", messages.send),
            ("POST", "/messages/render", messages.render), ("POST", "/messages/flags", messages.update_flags),
            ("POST", "/messages/flags/narrow", messages.update_flags_in_narrow),
            ("GET", "/messages/matches_narrow", messages.matches_narrow),
            ("GET", r"/messages/{message:\d+}", messages.one), ("PATCH", r"/messages/{message:\d+}", messages.update),
            ("DELETE", r"/messages/{message:\d+}", messages.delete),
            ("GET", r"/messages/{message:\d+}/history", messages.history),
            ("GET", r"/messages/{message:\d+}/read_receipts", messages.read_receipts),
            ("POST", r"/messages/{message:\d+}/reactions", messages.react),
            ("DELETE", r"/messages/{message:\d+}/reactions", messages.unreact),
            ("POST", r"/messages/{message:\d+}/typing", messages.typing_edit),
            ("POST", "/typing", messages.typing), ("POST", "/submessage", messages.submessage),
            ("POST", "/mark_all_as_read", messages.mark_all), ("POST", "/mark_stream_as_read", messages.mark_channel),
            ("POST", "/mark_topic_as_read", messages.mark_topic), ("POST", "/zcommand", personal.command),
            ("GET", "/drafts", personal.drafts), ("POST", "/drafts", personal.add_drafts),
            ("PATCH", r"/drafts/{number:\d+}", personal.change_draft),
            ("DELETE", r"/drafts/{number:\d+}", personal.remove_draft),
            ("GET", "/scheduled_messages", personal.list_scheduled), ("POST", "/scheduled_messages", personal.schedule),
            ("PATCH", r"/scheduled_messages/{number:\d+}", personal.reschedule),
            ("DELETE", r"/scheduled_messages/{number:\d+}", personal.unschedule),
            ("GET", "/saved_snippets", personal.snippets), ("POST", "/saved_snippets", personal.add_snippet),
            ("PATCH", r"/saved_snippets/{number:\d+}", personal.change_snippet),
            ("DELETE", r"/saved_snippets/{number:\d+}", personal.remove_snippet),
            ("POST", "/user_uploads", uploads.add), ("GET", r"/user_uploads/{realm:\d+}/{name:.+}", uploads.temporary),
            ("GET", "/attachments", uploads.all), ("DELETE", r"/attachments/{attachment:\d+}", uploads.remove),
        ]

    def application(self):
        application = web.Application(client_max_size=BODY_LIMIT, middlewares=[self.answer_errors])
        for method, path, handler in self.routes():
            isOpen = path in ("/server_settings", "/fetch_api_key")
            application.router.add_route(method, "/api/v1" + path, self.endpoint(handler, isOpen))
        application.router.add_get("/api/v1/events", self.read_events)
        application.router.add_get("/user_uploads/temporary/{token}/{name}", self.uploads.download)
        application.on_startup.append(self.start)
        application.on_shutdown.append(self.stop)
        return application

    async def start(self, application):
        self.arm()

    async def stop(self, application):
        self.queues.close()
        if self.timer is not None:
            self.timer.cancel()

    def endpoint(self, handler, isOpen):
        async def handle(request):
            call = await self.call(request, isOpen)
            answer = self.committed(lambda: handler(call))
            return answer if isinstance(answer, web.Response) else self.success(call, answer)

        return handle

    async def read_events(self, request):
        call = await self.call(request, False)
        queue, last, blocks = self.registration.events(call)
        events = await self.queues.events(queue, last, blocks)
        return self.success(call, {"events": events})

    async def call(self, request, isOpen):
        form, files = {}, []
        if request.can_read_body:
            for name, value in (await request.post()).items():
                if isinstance(value, web.FileField):
                    files.append((value.filename, value.content_type, value.file.read()))
                    value.file.close()
                else:
                    form[name] = value
        parameters = Parameters(dict(request.query), form)
        if self.records:
            self.record(request, parameters, files)
        user = None if isOpen else self.people.authenticated(self.credentials(request))
        agent = re.match(r"[^/\s(]+", request.headers.get("User-Agent", "unspecified"))
        client = parameters.text("client", None) or (agent[0] if agent else "unspecified")
        return Call(user, parameters, request.match_info, client, files)

    def record(self, request, parameters, files):
        """Stores the parameters of a request, also those that the server does not keep; without passwords and keys."""
        kept = {name: value for name, value in parameters.values.items() if name != "password"}
        self.store.insert(
            "requests", method=request.method, path=urllib.parse.unquote(request.path),
            parameters=json.dumps(kept, ensure_ascii=False), files=json.dumps([each[0] for each in files], ensure_ascii=False))

    @staticmethod
    def credentials(request):
        header = request.headers.get("Authorization")
        if header is None:
            return None
        try:
            credentials = BasicAuth.decode(header, "utf-8")
        except ValueError:
            raise RequestError("Invalid authorization header for basic auth", "UNAUTHORIZED", 401) from None
        return credentials.login, credentials.password

    @staticmethod
    def success(call, answer):
        ignored = call.parameters.ignored()
        body = {"result": "success", "msg": "", **answer}
        if ignored:
            body["ignored_parameters_unsupported"] = ignored
        return web.json_response(body)

    @web.middleware
    async def answer_errors(self, request, handler):
        try:
            return await handler(request)
        except RequestError as error:
            return web.json_response(error.body(), status=error.status, headers=error.headers)
        except (OverflowError, UnicodeError):
            error = RequestError("A number is too large, or a text is not valid Unicode")
            return web.json_response(error.body(), status=error.status)
        except web.HTTPMethodNotAllowed as error:
            allowed = sorted(error.allowed_methods)
            return web.json_response(
                {"result": "error", "msg": "Method Not Allowed", "allowed_methods": allowed}, status=405,
                headers={"Allow": ", ".join(allowed)})
        except web.HTTPNotFound:
            return web.Response(status=404, text="<h1>Page not found</h1>", content_type="text/html")
        except web.HTTPException:
            raise
        except Exception:
            logging.error("%s %s: %s", request.method, request.path, traceback.format_exc())
            return web.json_response(
                {"result": "error", "msg": "Internal server error", "code": "INTERNAL_SERVER_ERROR"}, status=500)
