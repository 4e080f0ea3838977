#!/usr/bin/env python3
"""Plays two people in a page of headless Chromium, and prints each step with what was seen; the exit status is 1 if
a step has not brought what a person should see.

usage: browser.py --kind generic|matrix --page-port PORT --gateway URL --backend URL --room ROOM --policy POLICY
                  [--control URL] [--user NAME] [--password WORD]

The gateway and its backend run already; NAME and a second person (`bob`) have accounts and are in ROOM. The page is
served on http://127.0.0.1:PORT, which the backend's and the gateway's configuration allow. With `--control` (the control
port of Tests/ChatBackend) an outage is played too, and a foreign page on another port.
"""

import argparse
import asyncio
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
import urllib.request

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


class Browser:
    """Headless Chromium with an empty profile, driven over the DevTools protocol."""

    async def __aenter__(self):
        program = shutil.which("chromium")
        if program is None:
            raise SystemExit("chromium is not installed; Tests/run --long installs it")
        self.directory = tempfile.mkdtemp(prefix="webchat-")
        # In a group of its own, so that its children end with it.
        self.process = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-port=0",
                f"--user-data-dir={self.directory}", "about:blank",
            ], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        address = None
        for line in self.process.stderr:
            if line.startswith("DevTools listening on "):
                address = line.split()[-1]
                break
        if address is None:
            raise SystemExit("chromium does not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.socket = await websockets.connect(address, max_size=None)
        self.last, self.waiting, self.events = 0, {}, []
        self.reader = asyncio.create_task(self.read())
        return self

    async def __aexit__(self, *_):
        self.reader.cancel()
        await self.socket.close()
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

    async def click(self, name):
        """Clicks, and waits until the page is done with it."""
        await self.value(f"void document.getElementById({name!r}).click()")
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


def control(options, faults):
    request = urllib.request.Request(
        options.control + "/_control/faults", json.dumps(faults).encode(), {"Content-Type": "application/json"},
        method="PUT")
    urllib.request.urlopen(request).read()


async def chat(options, browser, steps, page, bob):
    name = options.user
    sealed = options.policy == "hosted"
    steps.see("login", await page.log_in(options, options.gateway, name), "")
    steps.see("the other logs in", await bob.log_in(options, options.gateway, "bob"), "")
    await bob.click("open")
    await page.fill(text="Sauerampfer")
    steps.see("send", await page.click("send"), "")
    own = ((await page.messages()) or [""])[-1]
    steps.see("history", own, lambda line: line.endswith(": Sauerampfer"))
    lines = "[...document.querySelectorAll('#messages li')]"
    received = await bob.until(lines + ".some((line) => line.textContent.endsWith(': Sauerampfer'))")
    steps.see("the other receives it", received, True)
    await page.fill(text="Wiesenkerbel")
    steps.see("edit", await page.click("edit"), "")
    own = ((await page.messages()) or [""])[-1]
    steps.see("edited", own, lambda line: line.endswith(": Wiesenkerbel (edited)"))
    await bob.click("open")
    read = ((await bob.messages()) or [""])[-1]
    steps.see("the other reads the edit", read, lambda line: line.endswith(": Wiesenkerbel (edited)"))

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        # So large that the answer comes while the browser is sending.
        file.write("Knabenkraut\n" * 400_000)
        file.flush()
        await page.choose(file.name)
        notice = await page.click("upload")
    if sealed and notice.startswith("403 "):
        steps.see("a file is refused in words", notice, lambda text: "file" in text)
    else:
        steps.see("a file", notice, "")
        steps.see("the file again", await page.text("file-text"), lambda text: text.startswith("Knabenkraut"))

    # Longer than what can be sealed.
    await page.fill(text="x" * 300_000)
    if sealed:
        notice = await page.click("send")
        steps.see("a refusal in words", notice, lambda text: text.startswith("413 ") and "too long" in text)
    await page.fill(text="Ackerwinde")


async def devices(options, steps, page, bob):
    other = options.user if options.kind == "generic" else await page.text("me")
    for person in (page, bob):
        steps.see("publish a device", await person.click("publish"), "")
        steps.see("its id", await person.text("device"), lambda text: len(text) == 16)
    await bob.fill(person=other)
    steps.see("check the devices of the other", await bob.click("check"), "")
    await page.fill(person=await bob.text("me"))
    await page.click("check")
    numbers = [await person.text("safety") for person in (page, bob)]
    steps.see("one safety number", numbers, lambda pair: pair[0] == pair[1] and len(pair[0].split()) == 12)


async def outage(options, steps, page):
    control(options, {"away": True})
    await page.fill(text="Ackerwinde")
    notice = await page.click("open")
    steps.see("an outage in words", notice, lambda text: text.startswith("502 ") and "chat server" in text)
    control(options, {})
    await page.until("document.body.dataset.socket === 'lost'")
    steps.see("after the outage", await page.click("open"), "")


FOREIGN = """fetch(URL, OPTIONS).then(async (answer) => [answer.type, answer.status, await answer.text()],
  (error) => ["error", error.message])"""


async def foreign(options, steps, browser):
    """A page that nobody has allowed, in a browser with a cookie for the chat."""
    page = await browser.page(f"http://127.0.0.1:{serve(0)}/index.html")
    token = json.loads(urllib.request.urlopen(urllib.request.Request(
        options.backend + "/login", json.dumps({"user": options.user, "password": options.password}).encode(),
        {"Content-Type": "application/json"})).read())["token"]
    await page.call("Network.setCookie", name="session", value=token, url=options.gateway)

    def request(path, method, mode="cors", body="null"):
        choice = f"{{method: {method!r}, mode: {mode!r}, credentials: 'include', body: {body}}}"
        return FOREIGN.replace("URL", json.dumps(options.gateway + path)).replace("OPTIONS", choice)

    for path, method in (("/_pawl/v1/me", "GET"), ("/_pawl/v1/device", "PUT"), ("/_pawl/v1/challenge", "POST")):
        seen = await page.value(request(path, method))
        steps.see(f"a foreign page: {method} {path}", seen, lambda seen: seen[0] == "error")
    # The browser sends this one, and hides the answer; the gateway has to refuse it.
    body = "JSON.stringify({registration: 'AAAA'})"
    steps.see("a foreign page sends", await page.value(request("/_pawl/v1/registrations", "POST", "no-cors", body)),
              lambda seen: seen[0] == "opaque")
    socket = """new Promise((done) => {
      const socket = new WebSocket(URL);
      socket.onopen = () => socket.send(JSON.stringify({pawl: {id: 7, method: "GET", path: "/_pawl/v1/me"}}));
      socket.onmessage = (event) => done(JSON.parse(event.data));
      socket.onerror = () => done("error");
    })""".replace("URL", json.dumps(options.gateway.replace("http", "ws", 1) + "/socket"))
    steps.see("a foreign page's socket", await page.value(socket),
              lambda seen: seen == "error" or seen.get("pawl", {}).get("status") in (401, 403))
    await page.call("Network.clearBrowserCookies")


async def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--kind", choices=["generic", "matrix"], required=True)
    parser.add_argument("--page-port", type=int, required=True)
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--backend")
    parser.add_argument("--control")
    parser.add_argument("--room", required=True)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--user", default="alice")
    parser.add_argument("--password", default="correct-horse")
    options = parser.parse_args()
    steps = Steps()
    url = f"http://127.0.0.1:{serve(options.page_port)}/index.html"
    async with Browser() as browser:
        page, bob = await browser.page(url), await browser.page(url)
        await chat(options, browser, steps, page, bob)
        if options.control:
            await outage(options, steps, page)
            await foreign(options, steps, browser)
        # Last: whoever has a device of their own is no longer written to by others without one.
        await devices(options, steps, page, bob)
        if steps.failed:
            print("\n".join(browser.events), file=sys.stderr)
    sys.exit(1 if steps.failed else 0)


asyncio.run(main())
