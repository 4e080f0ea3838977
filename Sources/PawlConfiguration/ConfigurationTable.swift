import Envelope
import Protection
import Reports

extension ConfigurationKey {
    /// All keys, in the order of `config/pawl.yaml`.
    package static let table: [ConfigurationKey] = front + back + web + people + commands + own + records + service

    /// Returns the key of a name, or nil if there is none.
    package static func named(_ name: String) -> ConfigurationKey? { byName[name] }

    /// The names of the maps that hold keys: `upstream`, `upstream.tls` and so on.
    static let branches: Set<String> = Set(
        table.flatMap { key in
            let parts = key.name.split(separator: ".")
            return (1..<parts.count).map { parts.prefix($0).joined(separator: ".") }
        })

    private static let byName = Dictionary(uniqueKeysWithValues: table.map { ($0.name, $0) })

    /// All keys with default, environment variable, effect and reason: the text of `pawl config keys`.
    package static func describe() -> String {
        table.map { key in
            let effect = key.effect == .restart ? "at the next start" : "on reload"
            return """
                \(key.name)
                    default: \(key.standardDescription)
                    expects: \(key.kind.expectation)
                    variable: \(key.variable); takes effect \(effect)
                    \(key.reason)

                """
        }.joined(separator: "\n")
    }

    /// A key as scripts read it.
    package struct Listed: Encodable, Sendable {
        var key: String
        var standard: String
        var expects: String
        var variable: String
        var needsRestart: Bool
        var reason: String
    }

    /// Every key, in the order of the table.
    package static var listed: [Listed] {
        table.map {
            Listed(
                key: $0.name, standard: $0.standardDescription, expects: $0.kind.expectation, variable: $0.variable,
                needsRestart: $0.effect == .restart, reason: $0.reason)
        }
    }

    /// Returns the kind whose choices are the cases of a type.
    static func choice<Choice: CaseIterable & RawRepresentable<String>>(_: Choice.Type) -> Kind {
        .choice(Choice.allCases.map(\.rawValue))
    }

    static func one(_ value: some CustomStringConvertible) -> Value { .one(value.description) }
    private static func many(_ values: [some CustomStringConvertible]) -> Value { .many(values.map(\.description)) }
    static func optional(_ value: (some CustomStringConvertible)?) -> Value { .one(value?.description ?? "") }
    private static func secret(_ value: Secret?) -> Value { .secret(value?.value ?? "") }
}

// MARK: - The client's side

extension ConfigurationKey {
    static let listen = ConfigurationKey(
        "listen", .listeningURLs, standard: .many(["irc://127.0.0.1:6667"]),
        example: .many(["ircs://irc.example.org:6697"]), effect: .restart,
        reason: "Where clients connect. The default is loopback, so that plain text beyond this machine has to be "
            + "configured explicitly."
    ) { many($0.listen) }

    static let tlsCertificate = ConfigurationKey(
        "tls.certificate", .path, standard: .one(""), example: .one("/etc/pawl/certificate.pem"),
        reason: "A PEM file with the certificate and its chain, for ircs://, wss:// and https:// in `listen` and "
            + "for `starttls: terminate`."
    ) { optional($0.tls?.certificate) }

    static let tlsKey = ConfigurationKey(
        "tls.key", .path, standard: .one(""), example: .one("/etc/pawl/key.pem"),
        reason: "A PEM file with the private key of the certificate. It is read at the start and on reload."
    ) { optional($0.tls?.key) }

    static let clientCertificates = ConfigurationKey(
        "tls.client_certificates", choice(PawlConfiguration.ClientCertificates.self), standard: .one("ignore"),
        reason: "Whether IRC clients are asked for a certificate on ircs://, wss:// and after STARTTLS (`ask`). "
            + "Clients without one connect as before. Whoever has signed a certificate, its SHA-256 fingerprint is "
            + "announced to the backend by WEBIRC, for CertFP and SASL EXTERNAL. By default nobody is asked, because "
            + "few servers take the fingerprint and browsers show a dialog."
    ) { one($0.clientCertificates.rawValue) }

    static let starttls = ConfigurationKey(
        "starttls", choice(PawlConfiguration.StartTLS.self), standard: .one("hide"),
        reason: "TLS that begins with the backend's STARTTLS ends at the backend, so the gateway could not read the "
            + "connection. The gateway therefore hides STARTTLS from clients, or answers it with its own certificate."
    ) { one($0.starttls.rawValue) }

    static let acceptProxyProtocol = ConfigurationKey(
        "accept.proxy_protocol", .flag, standard: .one("false"),
        reason: "Whether connections from `accept.trusted` begin with a PROXY v1 or v2 header. Off by default: without "
            + "a proxy in front, a client could forge the header. On `ircs://` the header comes before TLS, as HAProxy "
            + "sends it."
    ) { one($0.accept.proxyProtocol) }

    static let acceptPassword = ConfigurationKey(
        "accept.webirc_password", .secret, standard: .one(""), example: .one("correct-horse"),
        reason: "The password with which gateways in `accept.trusted` announce a client's address by WEBIRC. If it is "
            + "unset, WEBIRC is not accepted."
    ) { secret($0.accept.webircPassword) }

    static let acceptPasswordFile = ConfigurationKey(
        "accept.webirc_password_file", .path, standard: .one(""), example: .one("/etc/pawl/webirc_accept"),
        reason: "The same password in a file of its own, so that more users may read the configuration."
    ) { _ in nil }

    static let acceptTrusted = ConfigurationKey(
        "accept.trusted", .blocks, standard: .many(["127.0.0.1/32", "::1/128"]),
        example: .many(["127.0.0.1/32", "10.0.0.0/8"]),
        reason: "The addresses from which PROXY and WEBIRC are accepted. By default this machine only: a peer at a "
            + "trusted address can claim any client address."
    ) { many($0.accept.trusted) }

    static let webSocketOrigins = ConfigurationKey(
        "websocket.origins", .words, standard: .many([]), example: .many(["https://chat.example.org"]),
        reason: "The sites whose pages may connect to the ws:// and wss:// URLs in `listen`, as browsers name them in "
            + "Origin; `*` is every site. By default none: a page that somebody visits could otherwise use their "
            + "browser to connect. Programs that are no browsers send no Origin and are not asked for one."
    ) { many($0.webSocketOrigins) }

    private static let front = [
        listen, webSocketOrigins, tlsCertificate, tlsKey, clientCertificates, starttls, acceptProxyProtocol,
        acceptPassword, acceptPasswordFile, acceptTrusted,
    ]
}

// MARK: - The backend's side

extension ConfigurationKey {
    static let upstreamURL = ConfigurationKey(
        "upstream.url", .url, standard: .one("irc://127.0.0.1:6668"), effect: .restart,
        reason: "The backend. The default is port 6668 on this machine: the gateway takes the public port 6667, and "
            + "the backend moves one port up."
    ) { one($0.upstream.url) }

    static let upstreamNetwork = ConfigurationKey(
        "upstream.network", .word, standard: .one(""),
        derived: "what the store holds; at its first start the host of upstream.url",
        example: .one("ExampleNet"), effect: .restart,
        reason:
            "The name of the network. It is bound to every sealed message, so the first start fixes it in the store, "
            + "and a later start under another name is refused. `pawl store network NAME` changes it."
    ) { optional($0.upstream.network) }

    static let upstreamEarlierNetworks = ConfigurationKey(
        "upstream.earlier_networks", .words, standard: .many([]), example: .many(["127.0.0.1"]), effect: .restart,
        reason:
            "Names that the network had before. Messages that were sealed under them can still be read; new ones are "
            + "sealed under `upstream.network`."
    ) { many($0.upstream.earlierNetworks) }

    static let upstreamAuthorities = ConfigurationKey(
        "upstream.tls.ca", .path, standard: .one(""), derived: "the authorities of the system",
        example: .one("/etc/pawl/backend-ca.pem"),
        reason: "A PEM file with the authorities that may sign the backend's certificate, if no public authority has "
            + "signed it."
    ) { optional($0.upstream.tls.authorities) }

    static let upstreamVerify = ConfigurationKey(
        "upstream.tls.verify", .flag, standard: .one("true"),
        reason: "Whether the backend's certificate is verified. If it is not, anyone between gateway and backend can "
            + "pose as the backend."
    ) { one($0.upstream.tls.verify) }

    static let upstreamServerName = ConfigurationKey(
        "upstream.tls.server_name", .host, standard: .one(""), derived: "the host of upstream.url",
        example: .one("irc.example.org"),
        reason: "The name that the backend's certificate must contain, if the URL has an IP address."
    ) { optional($0.upstream.tls.serverName) }

    static let upstreamCertificate = ConfigurationKey(
        "upstream.tls.certificate", .path, standard: .one(""), example: .one("/etc/pawl/client.pem"),
        reason: "A PEM file with a certificate that is shown to the backend, and its chain. In a sidecar it is the "
            + "person's, for SASL EXTERNAL and CertFP. In front of a backend it is the gateway's own, for all clients."
    ) { optional($0.upstream.tls.identity?.certificate) }

    static let upstreamKey = ConfigurationKey(
        "upstream.tls.key", .path, standard: .one(""), example: .one("/etc/pawl/client-key.pem"),
        reason: "A PEM file with the private key of that certificate. It may be the same file."
    ) { optional($0.upstream.tls.identity?.key) }

    static let upstreamProxyProtocol = ConfigurationKey(
        "upstream.proxy_protocol", choice(PawlConfiguration.Upstream.ProxyProtocol.self), standard: .one("none"),
        example: .one("v2"),
        reason: "Announces each client's address to the backend in a PROXY header. A backend that does not expect the "
            + "header drops the connection. With `ircs://` the header goes inside TLS, as InspIRCd expects it. Version 2 "
            + "also says which clients of an IRC gateway use TLS."
    ) { one($0.upstream.proxyProtocol.rawValue) }

    static let upstreamPassword = ConfigurationKey(
        "upstream.webirc_password", .secret, standard: .one(""), example: .one("correct-horse"),
        reason: "Announces each client's address to the backend by WEBIRC, whether it uses TLS (`secure`), and the "
            + "fingerprint of its certificate (`certfp-sha-256`). Without WEBIRC or PROXY, all clients have the "
            + "gateway's address and share its bans and its limits."
    ) { secret($0.upstream.webircPassword) }

    static let upstreamPasswordFile = ConfigurationKey(
        "upstream.webirc_password_file", .path, standard: .one(""), example: .one("/etc/pawl/webirc_upstream"),
        reason: "The same password in a file of its own, so that more users may read the configuration."
    ) { _ in nil }

    static let upstreamConnectTimeout = ConfigurationKey(
        "upstream.connect_timeout", .number(0.1...300, unit: "seconds"), standard: .one("10"),
        reason: "How long a connection to the backend may take to open. The default allows for several lost packets, "
            + "and is shorter than clients wait."
    ) { .one($0.upstream.connectTimeout.seconds.plain) }

    static let upstreamOutagePatience = ConfigurationKey(
        "upstream.outage_patience", .number(0...86_400, unit: "seconds"), standard: .one("900"),
        reason: "How long a client with protected messages stays connected after the backend has become unreachable, "
            + "while the gateway tries to reconnect. The default, a quarter of an hour, is longer than a restart or an "
            + "upgrade; 0 ends such connections at once."
    ) { .one($0.upstream.outagePatience.seconds.plain) }

    static let floodBurst = ConfigurationKey(
        "upstream.flood.burst", .whole(1...10_000), standard: .one("6"),
        reason: "How many lines may be sent to the backend at once. InspIRCd by default disconnects a client with more "
            + "than 4096 unread bytes; six full lines with their tags stay below that."
    ) { one($0.upstream.flood.burst) }

    static let floodLines = ConfigurationKey(
        "upstream.flood.lines_per_second", .number(0...100_000, unit: "lines a second"), standard: .one("1"),
        reason: "How many lines per second may follow the burst; 0 disables this limit. By default ngIRCd and InspIRCd "
            + "accept one line per second from a client without end; raise the value together with the backend's own "
            + "limit."
    ) { .one($0.upstream.flood.linesPerSecond.plain) }

    static let floodBytes = ConfigurationKey(
        "upstream.flood.bytes_per_second", .whole(0...1_000_000_000), standard: .one("0"),
        reason: "How many bytes per second may be sent to the backend; 0 disables this limit. For backends that count "
            + "bytes instead of lines."
    ) { one($0.upstream.flood.bytesPerSecond) }

    private static let back = [
        upstreamURL, upstreamHost, upstreamNetwork, upstreamEarlierNetworks, upstreamAuthorities, upstreamVerify,
        upstreamServerName, upstreamCertificate, upstreamKey, upstreamProxyProtocol,
        upstreamPassword, upstreamPasswordFile, upstreamConnectTimeout, upstreamOutagePatience, floodBurst, floodLines,
        floodBytes,
    ]
}

// MARK: - Policy, exemptions and notices

extension ConfigurationKey {
    static let policy = ConfigurationKey(
        "policy", .choice(Policy.allCases.map(\.name)), standard: .one("observe"),
        reason: "The protection that messages must have. `observe` changes nothing and counts what each stricter "
            + "policy would do, so it is safe to start with. The policy is for everyone: rooms have the stricter of it "
            + "and their own. A policy that `pawl policy set` has stored overrides this key."
    ) { one($0.policy.name) }

    static let services = ConfigurationKey(
        "services", .services, standard: .many(["*Serv server=services.*", "Global server=services.*"]),
        reason: "The services of the network, which are exempt from the policy. The server must match too, because "
            + "anyone can take a nick."
    ) { many($0.services) }

    static let bots = ConfigurationKey(
        "bots", .services, standard: .many([]), example: .many(["weather host=bots.example.org"]),
        reason: "Bots that are exempt in the same way. None by default: messages to an exempt bot leave in plain text."
    ) { many($0.bots) }

    static let refusalOutsider = ConfigurationKey(
        "refusal.outsider", .sentence, standard: .one(NoticeTexts().outsider),
        reason: "The notice to a person who writes to someone who is not connected through this gateway, under "
            + "`hosted` and `required`."
    ) { one($0.refusal.outsider) }

    static let refusalRequired = ConfigurationKey(
        "refusal.required", .sentence, standard: .one(NoticeTexts().required),
        reason: "The notice under `required` if the client of sender or recipient cannot encrypt. Mention where people "
            + "get a sidecar. In front of a backend that speaks HTTP the default asks for an app that encrypts."
    ) { one($0.refusal.required) }

    static let refusalRoom = ConfigurationKey(
        "refusal.room", .sentence, standard: .one(NoticeTexts().room),
        reason: "The notice to a person who writes to a room under `required`, if not all its members can encrypt."
    ) { one($0.refusal.room) }

    static let askVersion = ConfigurationKey(
        "detection.ask_version", .flag, standard: .one("false"),
        reason: "Asks each client for its software with CTCP VERSION, for the listing of what blocks the migration. "
            + "Off by default: people see the request, and observing should change nothing. Without it the software "
            + "is known of clients that name it by themselves."
    ) { one($0.detection.askVersion) }

    private static let people = [
        policy, services, bots, refusalOutsider, refusalRequired, refusalRoom, askVersion,
    ]
}

// MARK: - A sidecar

extension ConfigurationKey {
    static let sidecarMarks = ConfigurationKey(
        "sidecar.marks", choice(PawlConfiguration.Sidecar.Marks.self), standard: .one("text"),
        reason: "How `pawl sidecar` marks end-to-end encrypted messages: `text` puts `[e2e]` before the text and adds "
            + "the tag `pawl/protection`, `tags` adds the tag only, `off` adds nothing. Most clients do not show tags, "
            + "so the default is text."
    ) { one($0.sidecar.marks.rawValue) }

    static let sidecarRequire = ConfigurationKey(
        "sidecar.require", .flag, standard: .one("false"),
        reason: "Whether `pawl sidecar` refuses to send, and withholds, messages that are not end-to-end encrypted. "
            + "Off by default: most people cannot encrypt yet, and a sidecar first offers its keys when you write to "
            + "someone in plain text."
    ) { one($0.sidecar.require) }

    private static let own = [sidecarMarks, sidecarRequire]
}

// MARK: - The store and its limits

extension ConfigurationKey {
    static let data = ConfigurationKey(
        "data", .path, standard: .one("/var/lib/pawl"), effect: .restart,
        reason: "The directory of the store. The default is where a system service keeps its state."
    ) { one($0.data) }

    static let storageKeyFile = ConfigurationKey(
        "storage_key.file", .path, standard: .one(""), derived: "storage.key in data",
        example: .one("/etc/pawl/storage.key"),
        effect: .restart,
        reason: "The key that seals private keys at rest, created with mode 0600 at the first start. Put it on another "
            + "disk than the store, so that a stolen store cannot be read."
    ) { if case .file(let path) = $0.storageKey { one(path) } else { .one("") } }

    static let storageKeyEnvironment = ConfigurationKey(
        "storage_key.environment", .variable, standard: .one(""), example: .one("PAWL_STORAGE_KEY"), effect: .restart,
        reason: "The environment variable that holds the same key in Base64, for secret stores that provide variables."
    ) { if case .environment(let name) = $0.storageKey { one(name) } else { .one("") } }

    static let storeURL = ConfigurationKey(
        "store.url", .database, standard: .one(""),
        example: .one("postgresql://pawl@db.example.org/pawl?sslmode=verify-full"), effect: .restart,
        reason: "The database of the store, instead of a file in data: a URI of PostgreSQL as libpq reads it. Unset "
            + "by default: a file needs no server. Passwords are refused here; put them into a file and name it "
            + "in PGPASSFILE. Beyond this machine it needs sslmode=verify-full. Several gateways may name one "
            + "database: one of them serves, the others stand by. Each has a data directory of its own, for the "
            + "control socket and the lock, with a copy of the same storage key."
    ) { one($0.store.url ?? "") }

    static let storePooled = ConfigurationKey(
        "store.pooled", .flag, standard: .one("false"), effect: .restart,
        reason: "Whether a pooler in transaction mode, such as PgBouncer, may stand between Pawl and the database. "
            + "Then no statement is prepared by name. Off by default: preparing saves a third of a millisecond "
            + "with each small commit."
    ) { one($0.store.pooled) }

    static let storeStandby = ConfigurationKey(
        "store.standby", .flag, standard: .one("true"), effect: .restart,
        reason: "Whether this gateway stands by while another one serves the same database, and takes over about three "
            + "seconds after that one is killed, at once if it is drained. If not, it does not start while another "
            + "one runs."
    ) { one($0.store.standby) }

    static let storeGateway = ConfigurationKey(
        "store.gateway", .word, standard: .one(""), derived: "the name of the host", example: .one("gateway-1"),
        effect: .restart,
        reason: "The name of this gateway among those of the database, for `pawl gateways` and `pawl gateways drain`. "
            + "Several gateways on one machine need names of their own."
    ) { optional($0.store.gateway) }

    static let historyRetention = ConfigurationKey(
        "history.retention", .number(0...36_500, unit: "days"), standard: .one("365"), example: .one("30"),
        effect: .restart,
        reason: "How long message keys are kept, sealed, if the backend keeps the messages. For that long people can "
            + "read messages again, and so can an attacker who obtains the store and its key. The default is a year: "
            + "older messages are rarely wanted, and a deleted key cannot be restored. If the backend keeps messages "
            + "for less time, use that time. 0 keeps the keys in memory only."
    ) { .one(($0.history.retention.seconds / 86_400).plain) }

    static let limitConnections = ConfigurationKey(
        "limits.connections", .whole(1...1_000_000), standard: .one("10000"),
        reason: "The number of clients that may be connected at one time. Ten thousand idle clients take 160 MB, or "
            + "350 MB with TLS; the limit of open files must be somewhat above twice this number."
    ) { one($0.limits.connections) }

    static let limitFragments = ConfigurationKey(
        "limits.message_fragments", .whole(1...Armour.maximumFragments), standard: one(Armour.maximumFragments),
        effect: .restart,
        reason: "The number of lines that a sealed message may take on IRC; a longer message is refused with a notice "
            + "to its sender. Sixteen lines hold the longest line of any client, sealed for several devices; use fewer "
            + "if the backend accepts few lines at once."
    ) { one($0.limits.messageFragments) }

    static let limitFragmentTimeout = ConfigurationKey(
        "limits.fragment_timeout", .number(1...3600, unit: "seconds"),
        standard: one(FragmentAssembler.Limits().inactivity / 1_000_000_000),
        reason: "How long an incomplete envelope waits for its next line. The default is nearly twice the time of "
            + "sixteen lines at one per second."
    ) { .one($0.limits.fragmentTimeout.seconds.plain) }

    static let limitPending = ConfigurationKey(
        "limits.pending_requests_per_account", .whole(1...65536), standard: .one("256"), effect: .restart,
        reason: "The number of messages of one account that may wait for the backend: about four minutes at one line "
            + "per second. On IRC a client with a quarter of them under way is not read until fewer are. Further "
            + "messages are refused with a notice, so that one account cannot fill the store."
    ) { one($0.limits.pendingRequestsPerAccount) }

    static let limitRequestAge = ConfigurationKey(
        "limits.request_age", .number(1...86400, unit: "seconds"), standard: .one("300"), effect: .restart,
        reason: "How long a message may wait before it is declared dead and its sender is notified. After five minutes "
            + "a conversation has usually moved on."
    ) { .one($0.limits.requestAge.seconds.plain) }

    static let limitEvidence = ConfigurationKey(
        "limits.evidence_rows", .whole(100...100_000_000), standard: .one("100000"), effect: .restart,
        reason: "The number of rows about the capabilities of clients. The default is enough for ten thousand accounts "
            + "with ten clients each; the oldest rows are removed first."
    ) { one($0.limits.evidenceRows) }

    static let limitHeld = ConfigurationKey(
        "limits.held_lines", .whole(1...65536), standard: .one("512"),
        reason: "The number of lines of one connection that may wait for a commit before the gateway stops reading "
            + "from it. The default is 256 KB of lines without tags."
    ) { one($0.limits.heldLines) }

    static let limitAnswer = ConfigurationKey(
        "limits.answer_bytes", .whole(65_536...1_073_741_824), standard: .one("67108864"),
        reason: "For a backend that speaks HTTP: the largest answer whose messages are opened, in bytes. A longer "
            + "answer is refused, unless nothing is sealed for its reader. While it is opened, an answer takes three "
            + "times its size in memory; the first synchronisation of a Matrix account with many rooms has some tens "
            + "of megabytes."
    ) { one($0.limits.answerBytes) }

    private static let records = [
        data, storageKeyFile, storageKeyEnvironment, storeURL, storePooled, storeStandby, storeGateway,
        historyRetention, limitConnections, limitFragments, limitFragmentTimeout,
        limitPending,
        limitRequestAge, limitEvidence, limitHeld, limitAnswer, limitCollected, limitCompress, limitRelays,
        limitRelayRate, limitRelayIdle,
    ]
}

// MARK: - Operation

extension ConfigurationKey {
    static let metricsListen = ConfigurationKey(
        "metrics.listen", .address, standard: .one("127.0.0.1:9464"), effect: .restart,
        reason: "The port of /metrics, /live and /ready; empty for none. It must be on loopback, because it requires "
            + "no password."
    ) { optional($0.metrics.listen) }

    static let adminSocket = ConfigurationKey(
        "admin.socket", .path, standard: .one(""), derived: "pawl.sock in data", example: .one("/run/pawl/pawl.sock"),
        effect: .restart,
        reason: "The Unix socket of `pawl status` and the other commands. It has mode 0600, so that only the user who "
            + "runs the gateway may use it."
    ) { one($0.admin.socket) }

    static let logLevel = ConfigurationKey(
        "log.level", choice(PawlConfiguration.Log.Level.self), standard: .one("info"), effect: .restart,
        reason: "The least severe level that is written. `info` logs what an operator did and what failed, and nothing "
            + "per message."
    ) { one($0.log.level.rawValue) }

    static let logFormat = ConfigurationKey(
        "log.format", choice(PawlConfiguration.Log.Format.self), standard: .one("text"), effect: .restart,
        reason: "The form of each line on standard error. Both have the time; `json` is for programs that collect logs."
    ) { one($0.log.format.rawValue) }

    private static let service = [metricsListen, adminSocket, logLevel, logFormat]
}
