#!/usr/bin/env python3
"""Plays the steps of a stand-in directly and through Pawl, each against a fresh server, and prints the steps that differ.

usage: compare.py NAME --pawl PROGRAM --policy POLICY [--mapping FILE] [--expected FILE] [--canaries] [--keep DIRECTORY]
       [--brief]

NAME is a folder here. One line of JSON for each step that differs: its name, and what each run brought; with `--brief` a
line for each value that differs. A placeholder of one run may have another number in the other.

With `--expected` the file has the differences that are right, and only others are printed. `STEP: why` allows all of a
step, `STEP | PATH: why` the values at this path or below it; `*` stands for any characters in both. The exit status is 1
if others differ, or if a line of the file allows nothing. With `--canaries` the words of people that the server has stored
or received through the gateway are printed too, as `STORED KIND WORD`; `stored KIND` in the file allows them.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Waits end with what they wait for; these only bound a failure, on a machine that may be busy. A gateway or server that is
# not ready after this is not going to be.
READY_SECONDS = 600
STEPS_SECONDS = 1200
# For the end of a program, which writes what it has.
END_SECONDS = 60


class Program:
    """A program that is stopped at the end of the block, and whose output goes to a file."""

    def __init__(self, arguments, output, environment=None):
        self.output = output
        with open(output, "wb") as file:
            self.process = subprocess.Popen(
                arguments, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def line(self, beginning):
        """Waits for a line of the output that begins so."""
        # `tail` follows the file, so that nothing here polls; it ends with the program.
        with subprocess.Popen(
            ["tail", "-n", "+1", "-F", "-s", "0.1", f"--pid={self.process.pid}", self.output], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True) as tail:
            guard = subprocess.Popen(["sleep", str(READY_SECONDS)])
            try:
                for line in tail.stdout:
                    if line.startswith(beginning):
                        return line
                    if guard.poll() is not None:
                        break
            finally:
                tail.kill()
                guard.kill()
                guard.wait()
        text = pathlib.Path(self.output).read_text(errors="replace")[-2000:]
        raise SystemExit(f"no line begins with {beginning!r}:\n{text}")


def server(name, directory):
    database = directory / "server.db"
    arguments = [sys.executable, "-B", str(HERE / name / "standin.py"), "--database", str(database)]
    if name != "RocketChat":
        arguments.append("--keep-requests")
    return Program(arguments, directory / "server.log")


def steps(name, through, direct, directory):
    canaries = directory / "canaries"
    result = subprocess.run(
        [
            sys.executable, "-B", str(HERE / name / "steps.py"), f"http://127.0.0.1:{through}",
            f"http://127.0.0.1:{direct}", "--canaries", str(canaries),
        ], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=STEPS_SECONDS)
    if result.returncode != 0:
        raise SystemExit(f"the steps ended with {result.returncode}: {result.stderr[-2000:]}")
    # Not `splitlines`: U+2028 may stand in a text.
    return [json.loads(line) for line in result.stdout.split("\n") if line]


def gateway(arguments, upstream, directory):
    mapping = arguments.mapping or HERE.parent.parent / "config" / "mappings" / f"{arguments.name.lower()}.yaml"
    return Program(
        [
            arguments.pawl, "serve", "--listen", "http://127.0.0.1:0", "--upstream", f"http://127.0.0.1:{upstream}",
            "--policy", arguments.policy, "--data", str(directory / "data"), "--metrics", "",
        ], directory / "gateway.log", {"PAWL_MAPPING": str(mapping)})


def play(arguments, directory, isThrough):
    directory.mkdir(parents=True)
    with server(arguments.name, directory) as backend:
        port = int(backend.line("ready ").split()[1])
        if not isThrough:
            return steps(arguments.name, port, port, directory)
        with gateway(arguments, port, directory) as front:
            # pawl is ready: http://127.0.0.1:PORT in front of ...
            front_port = int(front.line("pawl is ready: ").split()[3].rsplit(":", 1)[1])
            return steps(arguments.name, front_port, port, directory)


def stored(directory):
    """The canaries that the server has, by their kinds."""
    # Logs of the database, uploads and kept requests have its name before theirs.
    data = b"".join(path.read_bytes() for path in directory.glob("server.db*/**/*") if path.is_file())
    data += b"".join(path.read_bytes() for path in directory.glob("server.db*") if path.is_file())
    found = collections.defaultdict(list)
    for line in (directory / "canaries").read_text().splitlines():
        # WORD KIND, or WORD, KIND and STEP with tabs between them.
        word, kind = re.split("[\t ]", line, maxsplit=1)
        if word.encode() in data:
            found[kind.split("\t")[0].strip()].append(word)
    return found


# As the steps print ids and times: `<id 7>`.
PLACEHOLDER = re.compile(r"<[a-z]+ \d+>")
# Characters of a value that differs, with `--brief`.
BRIEF = 160


class Names:
    """Which placeholders of the two runs stand for the same: a refused request shifts the numbers of all later ones."""

    def __init__(self):
        self.forward, self.backward = {}, {}
        self.hints = {}
        self.pending = {}

    def are_one(self, one, other):
        if one == other and not PLACEHOLDER.search(one):
            return True
        firsts, seconds = PLACEHOLDER.findall(one), PLACEHOLDER.findall(other)
        if PLACEHOLDER.split(one) != PLACEHOLDER.split(other):
            return False
        return all(self._pair(first, second) for first, second in zip(firsts, seconds))

    def _pair(self, first, second):
        if first.split(" ")[0] != second.split(" ")[0]:
            return False
        known, reverse = self.forward.get(first), self.backward.get(second)
        if known is None and reverse is None:
            known, reverse = self.pending.get(first), self.pending.get((second,))
        if known is None and reverse is None:
            self.pending[first], self.pending[second,] = second, first
            return True
        return known == second and reverse == first

    def translated(self, text):
        def other(match):
            first = match.group()
            return self.forward.get(first) or self.pending.get(first) or self.hints.get(first) or first
        return PLACEHOLDER.sub(other, text)

    def differences(self, one, other):
        """The places of one step that differ, as `PATH`, direct, through."""
        self.pending = {}
        found = list(self._differences(one, other, ""))
        pairs = {first: second for first, second in self.pending.items() if isinstance(first, str)}
        if found:
            self.hints |= pairs
        else:
            for first, second in pairs.items():
                self.forward[first], self.backward[second] = second, first
        return found

    def _differences(self, one, other, path):
        if isinstance(one, dict) and isinstance(other, dict):
            yield from self._of_objects(one, other, path)
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            for index, (first, second) in enumerate(zip(one, other)):
                yield from self._differences(first, second, f"{path}[{index}]")
        elif isinstance(one, str) and isinstance(other, str):
            if not self.are_one(one, other):
                yield path, one, other
        elif one != other or type(one) is not type(other):
            yield path, one, other

    def _of_objects(self, one, other, path):
        rest = dict(other)
        waiting = []
        for key, value in one.items():
            if not PLACEHOLDER.search(key):
                if key in rest:
                    yield from self._differences(value, rest.pop(key), f"{path}.{key}")
                else:
                    yield f"{path}.{key}", value, None
            else:
                waiting.append(key)
        unknown = []
        for key in waiting:
            name = self.translated(key)
            if name in rest and self.are_one(key, name):
                yield from self._differences(one[key], rest.pop(name), f"{path}.{key}")
            else:
                unknown.append(key)
        for key in unknown:
            name = next((name for name in rest if self.are_one(key, name)), None)
            if name is None:
                yield f"{path}.{key}", one[key], None
            else:
                yield from self._differences(one[key], rest.pop(name), f"{path}.{key}")
        for key, value in rest.items():
            yield f"{path}.{key}", None, value


class Expected:
    """The differences that are right."""

    def __init__(self, path):
        self.rules = {}
        self.used = set()
        lines = pathlib.Path(path).read_text().splitlines() if path else []
        for line in lines:
            if line and not line.startswith("#"):
                rule = line.split(": ", 1)[0]
                step, _, place = rule.partition(" | ")
                self.rules[rule] = self._pattern(step, ""), self._pattern(place, r"(?:[.\[].*)?") if place else None

    @staticmethod
    def _pattern(text, end):
        return re.compile(".*".join(map(re.escape, text.split("*"))) + end)

    def allow(self, step, place=""):
        rules = [
            rule for rule, (steps, places) in self.rules.items()
            if steps.fullmatch(step) and (places is None or places.fullmatch(place))]
        self.used.update(rules)
        return bool(rules)

    @property
    def unused(self):
        return sorted(set(self.rules) - self.used)


def brief(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= BRIEF else text[:BRIEF] + "..."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(path.parent.name for path in HERE.glob("*/standin.py")))
    parser.add_argument("--pawl", required=True, help="the program")
    parser.add_argument("--policy", default="observe")
    parser.add_argument("--mapping", help="by default config/mappings/NAME.yaml")
    parser.add_argument("--brief", action="store_true", help="prints only the values that differ")
    parser.add_argument("--expected", help="the steps that may differ, and why")
    parser.add_argument("--canaries", action="store_true", help="also prints the words that the server has")
    parser.add_argument("--keep", help="a new directory for the logs and databases")
    arguments = parser.parse_args()
    expected = Expected(arguments.expected)
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(arguments.keep or scratch)
        direct, through = play(arguments, root / "direct", False), play(arguments, root / "through", True)
        count = others = 0
        if len(direct) != len(through):
            count, others = 1, int(not expected.allow("all"))
            print(json.dumps({"step": "all", "direct": len(direct), "through": len(through)}))
        names = Names()
        for one, other in zip(direct, through):
            step = one["step"]
            differences = names.differences(one, other)
            count += bool(differences)
            differences = [entry for entry in differences if not expected.allow(step, entry[0][1:])]
            others += bool(differences)
            if differences and not arguments.brief:
                print(json.dumps({"step": step, "direct": one, "through": other}))
            for path, value, changed in differences if arguments.brief else []:
                print(f"{step} | {path[1:]}: {brief(value)} -> {brief(changed)}")
        for kind, words in sorted(stored(root / "through").items()) if arguments.canaries else []:
            count += 1
            if not expected.allow(f"stored {kind}"):
                others += 1
                print(f"STORED {kind}: {' '.join(words)}")
        print(f"{len(direct)} steps, {count} differences, {others} of them unexpected", file=sys.stderr)
        for rule in expected.unused:
            print(f"does not differ any more: {rule}", file=sys.stderr)
        return 1 if others or expected.unused else 0


if __name__ == "__main__":
    sys.exit(main())
