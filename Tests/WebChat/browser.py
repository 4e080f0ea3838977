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
import json
import sys
import tempfile
import urllib.request

from chromium import Browser, Steps, run, serve


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
    steps.see("what WebCrypto lacks", await page.text("lacks"), lambda text: "no AES-256-GCM-SIV" in text)
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


run(main())
