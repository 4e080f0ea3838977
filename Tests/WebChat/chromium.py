"""Headless Chromium, driven over the DevTools protocol, for browser.py and irc.py."""

import asyncio
import ctypes
import functools
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import websockets

HERE = pathlib.Path(__file__).resolve().parent
# A step that takes longer is not going to end.
SECONDS = 120


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Quiet, directory=HERE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def die_with_parent():
    """The browser ends with this program however that ends. PR_SET_PDEATHSIG, prctl(2)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def run(main):
    """Runs it so that SIGTERM ends the browser as an error does."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    asyncio.run(main)


class Browser:
    """Headless Chromium with an empty profile, driven over the DevTools protocol."""

    async def __aenter__(self):
        program = shutil.which("chromium")
        if program is None:
            raise SystemExit("chromium is not installed; Tests/run --long installs it")
        self.directory = tempfile.mkdtemp(prefix="webchat-")
        self.process = None
        try:
            await self.start(program)
        except BaseException:
            self.end()
            raise
        return self

    async def start(self, program):
        # In a group of its own, so that its children end with it.
        self.process = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                "--remote-debugging-port=0", f"--user-data-dir={self.directory}", "about:blank",
            ], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            # Its temporary files are removed with the profile.
            env={**os.environ, "TMPDIR": self.directory}, preexec_fn=die_with_parent)
        address = None
        for line in self.process.stderr:
            if line.startswith("DevTools listening on "):
                address = line.split()[-1]
                break
        if address is None:
            raise SystemExit("chromium does not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        # Without the bounds of the library: on a busy machine the browser answers later than its ten and twenty seconds.
        self.socket = await websockets.connect(address, max_size=None, open_timeout=SECONDS, ping_interval=None)
        self.last, self.waiting, self.events = 0, {}, []
        self.reader = asyncio.create_task(self.read())

    async def __aexit__(self, *_):
        self.reader.cancel()
        self.end()

    def end(self):
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    async def read(self):
        async for text in self.socket:
            message = json.loads(text)
            if "id" in message:
                self.waiting.pop(message["id"]).set_result(message)
            elif message["method"] == "Log.entryAdded":
                self.events.append(message["params"]["entry"]["text"])

    async def call(self, method, session=None, **parameters):
        self.last += 1
        future = self.waiting[self.last] = asyncio.get_running_loop().create_future()
        message = {"id": self.last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        await self.socket.send(json.dumps(message))
        answer = await asyncio.wait_for(future, SECONDS)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def page(self, url):
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        await page.call("Log.enable")
        await page.call("Network.enable")
        await page.call("Page.navigate", url=url)
        await page.until("document.body?.dataset.ready === 'yes'")
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    async def call(self, method, **parameters):
        return await self.browser.call(method, self.session, **parameters)

    async def value(self, expression):
        """The value of an expression, or of its promise."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            return "threw " + details.get("exception", {}).get("description", details["text"])
        return answer["result"].get("value")

    async def until(self, condition):
        for _ in range(SECONDS * 10):
            try:
                if await self.value(f"Boolean({condition})") is True:
                    return True
            except RuntimeError:
                # The page is being loaded.
                pass
            await asyncio.sleep(0.1)
        return False

    async def fill(self, **values):
        for name, value in values.items():
            await self.value(f"void (document.getElementById({name!r}).value = {json.dumps(value)})")

    async def press(self, name):
        await self.value(f"void document.getElementById({name!r}).click()")

    async def click(self, name):
        """Clicks, and waits until the page is done with it."""
        await self.press(name)
        await self.until("document.body.dataset.busy === ''")
        return await self.text("notice")

    async def text(self, name):
        return await self.value(f"document.getElementById({name!r}).textContent")

    async def messages(self):
        return await self.value("[...document.querySelectorAll('#messages li')].map((line) => line.textContent)")

    async def choose(self, path):
        document = await self.call("DOM.getDocument")
        node = await self.call("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="#file")
        await self.call("DOM.setFileInputFiles", nodeId=node["nodeId"], files=[str(path)])

    async def log_in(self, options, server, user):
        await self.fill(kind=options.kind, server=server, user=user, password=options.password, room=options.room)
        return await self.click("log-in")


class Steps:
    def __init__(self):
        self.failed = False

    def see(self, name, seen, expected):
        isRight = expected(seen) if callable(expected) else seen == expected
        self.failed |= not isRight
        print(("ok    " if isRight else "WRONG ") + name + ": " + json.dumps(seen, ensure_ascii=False)[:600], flush=True)
