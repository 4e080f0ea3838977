#!/usr/bin/env python3
"""Plays two people in pages of headless Chromium that are web clients of IRC, and prints each step with what was seen;
the exit status is 1 if a step has not brought what a person should see, or what the reference shows.

usage: irc.py --page-port PORT --server URL --policy observe|hosted [--reference URL] [--outsider NICK]

URL is ws://HOST:PORT; the page is served on http://127.0.0.1:PORT, which the gateway's configuration allows. The reference
is the WebSocket port of a server (m_websocket of InspIRCd), which names no subprotocol. NICK is there and not behind the
gateway.
"""

import argparse
import json
import sys

from chromium import Browser, Steps, run, serve

LINES = "[...document.querySelectorAll('#messages li')].map((line) => line.textContent)"
# Cut by no server, and with what a page may send: marks of formats, characters beyond the first plane.
TEXT = "Sauerampfer \u00e4\u00f6\u00fc \u20ac \U0001f44b \x02fett\x02 : end"


class Person:
    def __init__(self, page, nick):
        self.page, self.nick = page, nick

    async def connect(self, server, protocol):
        await self.page.fill(server=server, protocol=protocol, nick=self.nick)
        await self.page.press("log-in")
        await self.page.until("['open', 'closed'].includes(document.body.dataset.state)")
        return await self.page.value("document.body.dataset.state")

    async def say(self, target, text):
        await self.page.fill(target=target, text=text)
        await self.page.press("send")

    async def lines(self):
        return await self.page.value(LINES)

    async def sees(self, text):
        """The first line that ends so; None if there is none."""
        await self.page.until(f"{LINES}.some((line) => line.endsWith({json.dumps(text)}))")
        return next((line for line in await self.lines() if line.endswith(text)), None)


async def play(browser, steps, url, server, protocol, policy):
    """What both pages show at the end, and the capabilities that they have."""
    alice, bob = [Person(await browser.page(url), name) for name in ("ann-page", "bob-page")]
    for person in (alice, bob):
        steps.see(f"{person.nick} connects to {server}", await person.connect(server, protocol), "open")
        steps.see("the subprotocol", await person.page.text("state"), protocol)
    await alice.say(bob.nick, TEXT)
    steps.see("a message arrives", await bob.sees(TEXT), f"<{alice.nick}> {TEXT}")
    await bob.say(alice.nick, "Wiesenkerbel")
    steps.see("and the answer", await alice.sees("Wiesenkerbel"), f"<{bob.nick}> Wiesenkerbel")
    for person in (alice, bob):
        await person.page.fill(target="#page")
        await person.page.press("join")
        await person.sees(f"{person.nick} joins #page")
    steps.see("who joins is shown", await alice.sees(f"{bob.nick} joins #page"), f"{bob.nick} joins #page")
    for number in range(20):
        await bob.say("#page", f"Knabenkraut {number}")
    await alice.sees("Knabenkraut 19")
    seen = [line for line in await alice.lines() if "Knabenkraut" in line]
    steps.see("the room, in order", seen, [f"#page <{bob.nick}> Knabenkraut {n}" for n in range(20)])
    if policy == "observe":
        await alice.say("nobody-here", "Ackerwinde")
        steps.see("nobody has that name", await alice.sees("No such nick"), "401 No such nick")
    await bob.page.press("leave")
    await bob.page.until("document.body.dataset.state === 'closed'")
    steps.see("the end of a page", await alice.sees(f"{bob.nick} quits"), f"{bob.nick} quits")
    return alice, [[await person.page.text("capabilities"), await person.lines()] for person in (alice, bob)]


async def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--page-port", type=int, required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--reference")
    parser.add_argument("--outsider")
    parser.add_argument("--policy", required=True)
    options = parser.parse_args()
    steps = Steps()
    url = f"http://127.0.0.1:{serve(options.page_port)}/irc.html"
    async with Browser() as browser:
        alice, seen = await play(browser, steps, url, options.server, "text.ircv3.net", options.policy)
        if options.policy == "hosted":
            await alice.say(options.outsider, "Ackerwinde")
            await alice.page.until(f"{LINES}.some((line) => line.startsWith('531 '))")
            refusal = (await alice.lines())[-1]
            steps.see("a refusal in words", refusal, lambda line: options.outsider in line)
        await alice.page.press("leave")
        await alice.page.until("document.body.dataset.state === 'closed'")
        steps.see("its own end", await alice.page.text("state"), "1000 clean")
        if options.reference:
            _, reference = await play(browser, steps, url, options.reference, "", options.policy)
            steps.see("as without the gateway", seen, reference)
        foreign = Person(await browser.page(f"http://127.0.0.1:{serve(0)}/irc.html"), "foreign")
        steps.see("a page of another site", await foreign.connect(options.server, "text.ircv3.net"), "closed")
        if steps.failed:
            print("\n".join(browser.events), file=sys.stderr)
    sys.exit(1 if steps.failed else 0)


run(main())
