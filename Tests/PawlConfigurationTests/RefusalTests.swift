import Foundation
import Testing

@testable import PawlConfiguration

@Suite("Wrong configurations, word for word")
struct RefusalTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let yaml: String
        let message: String
        var testDescription: String { self.yaml }

        init(_ yaml: String, _ message: String) {
            self.yaml = yaml
            self.message = message
        }
    }

    @Test(arguments: [
        Case("listen: []\npolcy: off", "unknown key `polcy` in FILE line 2; did you mean `policy`?"),
        Case(
            "upstream:\n  ulr: irc://localhost",
            "unknown key `upstream.ulr` in FILE line 2; did you mean "
                + "`upstream.url`?"),
        Case("\nupstraem:\n  url: x", "unknown key `upstraem` in FILE line 2; did you mean `upstream`?"),
        Case("burst: 3", "unknown key `burst` in FILE line 1; did you mean `upstream.flood.burst`?"),
        Case("Policy: off", "unknown key `Policy` in FILE line 1; did you mean `policy`?"),
        Case(
            "accept: {proxy-protocol: true}",
            "unknown key `accept.proxy-protocol` in FILE line 1; did you mean `accept.proxy_protocol`?"),
        Case(
            "upstream.url: irc://localhost",
            "unknown key `upstream.url` in FILE line 1; write it as keys below each other: `upstream:`, then `url:`"),
        Case(
            "something_else: 1",
            "unknown key `something_else` in FILE line 1; no key has a name like it, see config/pawl.yaml for "
                + "all of them"),
        Case(
            "base: &a {x: 1}\n<<: *a",
            "unknown key `<<` in FILE line 2; no key has a name like it, see config/pawl.yaml for all of them"),
        Case("? [a]\n: b", "a key in FILE line 1 is a list; expected a name"),
    ])
    func unknownKeys(_ one: Case) throws {
        #expect(try messages(one.yaml).contains(one.message))
    }

    @Test(arguments: [
        Case("data: [a]", "`data` in FILE line 1 is a list; expected a path, for example `data: /var/lib/pawl`"),
        Case(
            "policy: {a: b}",
            "`policy` in FILE line 1 is a map; expected one of off, observe, opportunistic, hosted, required, "
                + "for example `policy: observe`"),
        Case(
            "policy:",
            "`policy` in FILE line 1 is without a value; expected one of off, observe, opportunistic, hosted, "
                + "required, for example `policy: observe`"),
        Case(
            "upstream: irc://localhost",
            "`upstream` in FILE line 1 is a text; expected keys indented below it, for example "
                + "`url: irc://127.0.0.1:6668`"),
        Case(
            "listen: irc://127.0.0.1",
            "`listen` in FILE line 1 is `irc://127.0.0.1`; expected a list of URLs `irc://HOST:PORT`, "
                + "`ircs://HOST:PORT` or "
                + "`irc+insecure://HOST:PORT`, or of such URLs with ws or http, for example `listen: [ircs://irc.example.org:6697]`"
        ),
        Case(
            "bots:\n  - [a]",
            "`bots` in FILE line 2 is a list with a list in it; expected a list of patterns `NICKMASK server=MASK` or "
                + "`NICKMASK host=MASK`, for example `bots: [weather host=bots.example.org]`"),
        Case(
            "accept:\n  webirc_password: [hunter2]",
            "`accept.webirc_password` in FILE line 2 is a list; expected a password of at most 200 bytes without "
                + "spaces that does not begin with `:`, for example `webirc_password: correct-horse`"),
        Case("[policy]", "FILE holds a list at its top; expected keys, for example `policy: observe`"),
        Case("policy", "FILE holds a text at its top; expected keys, for example `policy: observe`"),
    ])
    func wrongTypes(_ one: Case) throws {
        #expect(try messages(one.yaml) == [one.message])
    }

    @Test(arguments: [
        Case(
            "\n\npolicy: maybe",
            "`policy` in FILE line 3 is `maybe`; expected one of off, observe, opportunistic, hosted, required, "
                + "for example `policy: observe`"),
        Case(
            "starttls: pass",
            "`starttls` in FILE line 1 is `pass`; expected one of hide, terminate, for example "
                + "`starttls: hide`"),
        Case(
            "upstream: {tls: {verify: maybe}}",
            "`upstream.tls.verify` in FILE line 1 is `maybe`; expected true or false, for example `verify: true`"),
        Case(
            "upstream: {connect_timeout: soon}",
            "`upstream.connect_timeout` in FILE line 1 is `soon`; expected a number of seconds from 0.1 to 300, "
                + "for example `connect_timeout: 10`"),
        Case(
            "upstream: {connect_timeout: 0}",
            "`upstream.connect_timeout` in FILE line 1 is `0`; expected a number of seconds from 0.1 to 300, for "
                + "example `connect_timeout: 10`"),
        Case(
            "limits: {connections: 1.5}",
            "`limits.connections` in FILE line 1 is `1.5`; expected a whole number from 1 to 1000000, for example "
                + "`connections: 10000`"),
        Case(
            "limits: {held_lines: 99999999999999999999}",
            "`limits.held_lines` in FILE line 1 is `99999999999999999999`; expected a whole number from 1 to "
                + "65536, for example `held_lines: 512`"),
        Case("data: \"\"", "`data` in FILE line 1 is empty; expected a path, for example `data: /var/lib/pawl`"),
        Case(
            "log: {level: \"de\\nbug\"}",
            "`log.level` in FILE line 1 is `de\\nbug`; expected one of trace, debug, info, notice, warning, "
                + "error, critical, for example `level: info`"),
        Case(
            "storage_key: {environment: A-B}",
            "`storage_key.environment` in FILE line 1 is `A-B`; expected the name of an environment variable, for "
                + "example `environment: PAWL_STORAGE_KEY`"),
        Case(
            "upstream: {network: my net}",
            "`upstream.network` in FILE line 1 is `my net`; expected a name of at most 253 bytes without spaces, "
                + "for example `network: ExampleNet`"),
        Case(
            "upstream: {tls: {server_name: irc_/}}",
            "`upstream.tls.server_name` in FILE line 1 is `irc_/`, whose host is neither a name nor an address; "
                + "expected a host name, for example `server_name: irc.example.org`"),
        Case(
            "metrics: {listen: 0.0.0.0:9464}",
            "`metrics.listen` in FILE line 1 is `0.0.0.0:9464`, which is not on loopback; expected a loopback address "
                + "`HOST:PORT`, or an empty text for none, for example `listen: 127.0.0.1:9464`"),
        Case(
            "accept:\n  trusted:\n    - ::1\n    - 10.0.0.1/8",
            "`accept.trusted` in FILE line 4 is `10.0.0.1/8`, which names a block and an address in it at once; "
                + "the block is `10.0.0.0/8`; expected a list of address blocks `ADDRESS/PREFIX`, for example "
                + "`trusted: [127.0.0.1/32, 10.0.0.0/8]`"),
        Case(
            "bots: [weather]",
            "`bots` in FILE line 1 is `weather`, which is a nick alone, and anybody can take a nick; expected a "
                + "list of patterns `NICKMASK server=MASK` or `NICKMASK host=MASK`, for example `bots: [weather "
                + "host=bots.example.org]`"),
        Case(
            "refusal: {room: \"no, {nick}\"}",
            "`refusal.room` in FILE line 1 is `no, {nick}`, with the unknown placeholder `{nick}`; expected one "
                + "line of at most "
                + "300 bytes in which `{target}` may stand, for example `room: \"Not sent: messages must be "
                + "end-to-end encrypted here, and not everybody in {target} can do it yet. Run a sidecar beside your "
                + "client: pawl sidecar --upstream with this network's address.\"`"),
    ])
    func wrongValues(_ one: Case) throws {
        #expect(try messages(one.yaml) == [one.message])
    }

    @Test(arguments: [
        Case("127.0.0.1:6667", "without a scheme"),
        Case("ftp://127.0.0.1", "whose scheme is not known"),
        Case("irc://", "without a host"),
        Case("irc://:6667", "without a host"),
        Case("irc://me@localhost", "with a user, which has no place here"),
        Case("irc://localhost/", "with a path, which has no place here"),
        Case("irc://localhost?a", "with a path, which has no place here"),
        Case("irc://localhost:", "whose port is not a number from 0 to 65535"),
        Case("irc://localhost:66667", "whose port is not a number from 0 to 65535"),
        Case("irc://localhost:+1", "whose port is not a number from 0 to 65535"),
        Case("irc://::1", "whose IPv6 address is not in brackets, as in `[::1]`"),
        Case("irc://a:b:c", "with more than one `:`"),
        Case("irc://[::1", "whose `[` is not closed"),
        Case("irc://[localhost]:6667", "whose brackets do not hold an IPv6 address"),
        Case("irc://[fe80::1%eth0]:6667", "whose brackets do not hold an IPv6 address"),
        Case("irc://[::1]6667", "with something other than a port after `]`"),
        Case("irc://300.0.0.1", "whose host is neither a name nor an address"),
        Case("irc://a..b", "whose host is neither a name nor an address"),
        Case("irc://exa mple", "whose host is neither a name nor an address"),
        Case(
            "irc://0.0.0.0:6667",
            "which is plain text beyond loopback; write `ircs://` for TLS, or `irc+insecure://` if plain text "
                + "is meant"),
        Case(
            "irc://irc.example.org",
            "which is plain text beyond loopback; write `ircs://` for TLS, or `irc+insecure://` if plain text "
                + "is meant"),
    ])
    func wrongURLs(_ one: Case) throws {
        let rest =
            "; expected a URL `irc://HOST:PORT`, `ircs://HOST:PORT` or `irc+insecure://HOST:PORT`, or such a URL with http, "
            + "for example "
        #expect(
            try messages(nil, ["PAWL_UPSTREAM_URL": one.yaml]) == [
                "`PAWL_UPSTREAM_URL` in the environment is `\(one.yaml)`, \(one.message)\(rest)"
                    + "`PAWL_UPSTREAM_URL=irc://127.0.0.1:6668`"
            ])
    }

    @Test func upstreamPortZero() throws {
        #expect(try messages("upstream: {url: \"irc://localhost:0\"}").first?.contains("port is 0") == true)
        #expect(try load("listen: [\"irc://localhost:0\"]").listen[0].port == 0)
    }

    @Test func wrongOption() throws {
        #expect(
            try messages(overrides: .init(policy: "maybe")) == [
                "`--policy` on the command line is `maybe`; expected one of off, observe, opportunistic, hosted, "
                    + "required, for example `--policy observe`"
            ])
    }

    @Test(arguments: [
        Case("PAWL_POLCY", "unknown variable `PAWL_POLCY` in the environment; did you mean `PAWL_POLICY`?"),
        Case(
            "PAWL_TLS",
            "unknown variable `PAWL_TLS` in the environment; did you mean `PAWL_TLS_CERTIFICATE` or "
                + "`PAWL_TLS_KEY` or `PAWL_TLS_CLIENT_CERTIFICATES`?"),
        Case(
            "PAWL_STORAGE_KEY",
            "unknown variable `PAWL_STORAGE_KEY` in the environment; did you mean "
                + "`PAWL_STORAGE_KEY_FILE` or `PAWL_STORAGE_KEY_ENVIRONMENT`?"),
    ])
    func unknownVariables(_ one: Case) throws {
        #expect(try problems(nil, [one.yaml: "x"]) == [.init(code: .unknownVariable, message: one.message)])
    }

    /// Scripts around a gateway have variables of their own; a name that is like no key is nobody's slip.
    @Test(arguments: ["PAWL_WHATEVER", "PAWL_BIN", "PAWL_BINARY", "PAWL_LONG", "PAWL_EXTRA"])
    func variablesOfOthers(_ name: String) throws {
        #expect(try problems(nil, [name: "x"]).isEmpty)
    }

    @Test(arguments: [
        Case(
            "listen: [\"ircs://[::]:6697\"]",
            "`ircs://[::]:6697` in `listen` in FILE line 1 needs "
                + "`tls.certificate` and `tls.key`"),
        Case("starttls: terminate", "`terminate` in `starttls` in FILE line 1 needs `tls.certificate` and `tls.key`"),
        Case(
            "tls: {client_certificates: ask}\nupstream: {webirc_password: p}",
            "`ask` in `tls.client_certificates` in FILE line 1 needs `tls.certificate` and `tls.key`"),
        Case(
            "tls: {certificate: /c, key: /k, client_certificates: ask}",
            "`ask` in `tls.client_certificates` in FILE line 1 needs `upstream.webirc_password`: the backend learns "
                + "fingerprints by WEBIRC only"),
        Case(
            """
            tls: {certificate: /c, key: /k, client_certificates: ask}
            listen: ["http://127.0.0.1:1"]
            upstream: {url: "http://127.0.0.1:2"}
            mapping: /m
            """,
            "`ask` in `tls.client_certificates` in FILE line 1 has no use in front of `http://127.0.0.1:2`: it is for "
                + "IRC"),
        Case(
            "listen: [\"ws://127.0.0.1:80\", \"ircs://[::]:6697\"]\nstarttls: terminate\n"
                + "tls: {certificate: /c, key: /k}",
            "`terminate` in `starttls` in FILE line 2 needs a URL in `listen` whose clients can use STARTTLS, such as "
                + "`irc://127.0.0.1:6667`; connections to `ws://127.0.0.1:80` cannot"),
        Case("tls: {certificate: /c}", "`tls.certificate` in FILE line 1 needs `tls.key` beside it"),
        Case("tls: {key: /k}", "`tls.key` in FILE line 1 needs `tls.certificate` beside it"),
        Case(
            "upstream: {url: ircs://a, tls: {certificate: /c}}",
            "`upstream.tls.certificate` in FILE line 1 needs `upstream.tls.key` beside it"),
        Case(
            "upstream: {url: ircs://a, tls: {key: /k}}",
            "`upstream.tls.key` in FILE line 1 needs `upstream.tls.certificate` beside it"),
        Case(
            "upstream: {url: irc://127.0.0.1:1, tls: {certificate: /c, key: /k}}",
            "`upstream.tls.certificate` in FILE line 1 has no effect: `irc://127.0.0.1:1` in upstream.url is without TLS"
        ),
        Case(
            "storage_key:\n  file: /k\n  environment: KEY",
            "`storage_key.file` in FILE line 2 and `storage_key.environment` in FILE line 3 exclude each other; "
                + "keep one"),
        Case(
            "storage_key: {environment: PAWL_DATA}",
            "`storage_key.environment` in FILE line 1 is `PAWL_DATA`, the variable of another key; choose "
                + "another, for example `PAWL_STORAGE_KEY`"),
        Case(
            "accept:\n  webirc_password: a\n  webirc_password_file: /b",
            "`accept.webirc_password` in FILE line 2 and `accept.webirc_password_file` in FILE line 3 exclude "
                + "each other; keep one"),
        Case("listen: []", "`listen` in FILE line 1 is an empty list, so no client could connect"),
        Case("listen: [\"irc://[::1]\", \"irc://[::1]:6667\"]", "`listen` in FILE line 1 has `[::1]:6667` twice"),
        Case(
            "upstream: {url: \"irc://127.0.0.1:6667\"}",
            "`upstream.url` in FILE line 1 is `irc://127.0.0.1:6667`, an address in `listen`: the gateway would "
                + "connect to itself"),
        Case(
            "metrics: {listen: \"127.0.0.1:6667\"}",
            "`metrics.listen` in FILE line 1 is `127.0.0.1:6667`, an "
                + "address in `listen`"),
        Case(
            "data: /\(String(repeating: "d", count: 95))",
            "the control socket `/\(String(repeating: "d", count: 95))/paw…` has a path of more than 103 bytes, "
                + "too long for a "
                + "Unix socket; set `admin.socket` to a shorter one, for example `socket: /run/pawl/pawl.sock`"),
        Case(
            "control_plane: {socket: /run/pawl/control.sock}",
            "`control_plane.socket` in FILE line 1 is `/run/pawl/control.sock`, which an IRC backend does not use"),
    ])
    func conflicts(_ one: Case) throws {
        #expect(try problems(one.yaml) == [.init(code: .conflict, message: one.message)])
    }

    /// Clients of one listener use STARTTLS, those of the other cannot.
    @Test func startTLSBesideAWebSocket() throws {
        let yaml = "listen: [\"ws://127.0.0.1:80\", \"irc://127.0.0.1:6667\"]\nstarttls: terminate\n"
        #expect(try problems(yaml + "tls: {certificate: /c, key: /k}").isEmpty)
    }

    @Test func everythingAtOnce() throws {
        let yaml = "polcy: off\nlimits: {connections: many}\nlisten: {}\nstarttls: [a]\nupstream: {url: localhost}"
        let environment = ["PAWL_DATTA": "/x", "PAWL_LOG_LEVEL": "loud"]
        let codes = try problems(yaml, environment, overrides: .init(data: "")).map(\.code)
        #expect(
            codes == [
                .unknownKey, .wrongType, .wrongType, .wrongValue, .wrongValue, .wrongValue, .wrongValue,
                .unknownVariable,
            ])
    }

    /// What is wrong with one key does not make others look wrong.
    @Test func oneFaultIsReportedOnce() throws {
        #expect(try messages("listen: [\"ircs://[::]\"]\ntls: {certificate: [a], key: /k}").count == 1)
        #expect(try messages("tls: {certificate: \"a\\0\", key: /k}").count == 1)
        #expect(try messages("listen: [nonsense]").count == 1)
    }
}
