import Protection

extension ConfigurationKey {
    /// Every key there is, in the order of `config/pawl.yaml`.
    package static let table: [ConfigurationKey] = front + back + web + people + own + records + service

    /// The row of one name.
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

    /// A typical choice as a kind.
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
        reason: "Where clients connect. Loopback by default: plain text beyond this machine is only ever "
            + "configured on purpose."
    ) { many($0.listen) }

    static let tlsCertificate = ConfigurationKey(
        "tls.certificate", .path, standard: .one(""), example: .one("/etc/pawl/certificate.pem"),
        reason: "A PEM file with the certificate and its chain, for ircs:// in `listen` and for `starttls: terminate`."
    ) { optional($0.tls?.certificate) }

    static let tlsKey = ConfigurationKey(
        "tls.key", .path, standard: .one(""), example: .one("/etc/pawl/key.pem"),
        reason: "A PEM file with the private key of the certificate. It is read at the start and on reload."
    ) { optional($0.tls?.key) }

    static let starttls = ConfigurationKey(
        "starttls", choice(PawlConfiguration.StartTLS.self), standard: .one("hide"),
        reason: "A backend's STARTTLS would end in the backend, where the gateway sees nothing. So clients do not "
            + "learn of it, or the gateway answers it with its own certificate."
    ) { one($0.starttls.rawValue) }

    static let acceptProxyProtocol = ConfigurationKey(
        "accept.proxy_protocol", .flag, standard: .one("false"),
        reason: "Whether connections from `accept.trusted` begin with a PROXY v1 or v2 header. Off: without a "
            + "proxy in front, such a header is a lie. On `ircs://` the header comes before TLS, as HAProxy sends it."
    ) { one($0.accept.proxyProtocol) }

    static let acceptPassword = ConfigurationKey(
        "accept.webirc_password", .secret, standard: .one(""), example: .one("correct-horse"),
        reason: "The password with which gateways in `accept.trusted` name a client's address by WEBIRC. Unset: "
            + "nobody may."
    ) { secret($0.accept.webircPassword) }

    static let acceptPasswordFile = ConfigurationKey(
        "accept.webirc_password_file", .path, standard: .one(""), example: .one("/etc/pawl/webirc_accept"),
        reason: "The same password, alone in a file, so that the configuration can be read by more people."
    ) { _ in nil }

    static let acceptTrusted = ConfigurationKey(
        "accept.trusted", .blocks, standard: .many(["127.0.0.1/32", "::1/128"]),
        example: .many(["127.0.0.1/32", "10.0.0.0/8"]),
        reason: "From where PROXY and WEBIRC are believed. This machine alone: whoever stands here can claim any "
            + "address."
    ) { many($0.accept.trusted) }

    private static let front = [
        listen, tlsCertificate, tlsKey, starttls, acceptProxyProtocol, acceptPassword, acceptPasswordFile,
        acceptTrusted,
    ]
}

// MARK: - The backend's side

extension ConfigurationKey {
    static let upstreamURL = ConfigurationKey(
        "upstream.url", .url, standard: .one("irc://127.0.0.1:6668"), effect: .restart,
        reason: "The backend. The port after 6667 on this machine: the gateway takes the public port and the "
            + "backend moves one up."
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
        reason: "A PEM file with the authorities that may sign the backend's certificate, when it is not a public one."
    ) { optional($0.upstream.tls.authorities) }

    static let upstreamVerify = ConfigurationKey(
        "upstream.tls.verify", .flag, standard: .one("true"),
        reason: "Whether the backend's certificate is checked. Without it, whoever stands between can be the backend."
    ) { one($0.upstream.tls.verify) }

    static let upstreamServerName = ConfigurationKey(
        "upstream.tls.server_name", .host, standard: .one(""), derived: "the host of upstream.url",
        example: .one("irc.example.org"),
        reason: "The name that the backend's certificate must carry, when the URL says an address."
    ) { optional($0.upstream.tls.serverName) }

    static let upstreamProxyProtocol = ConfigurationKey(
        "upstream.proxy_protocol", choice(PawlConfiguration.Upstream.ProxyProtocol.self), standard: .one("none"),
        example: .one("v2"),
        reason: "Tells the backend each client's address in a PROXY header. A backend that does not expect one "
            + "drops the connection. With `ircs://` the header goes inside TLS, as InspIRCd takes it."
    ) { one($0.upstream.proxyProtocol.rawValue) }

    static let upstreamPassword = ConfigurationKey(
        "upstream.webirc_password", .secret, standard: .one(""), example: .one("correct-horse"),
        reason: "Tells the backend each client's address by WEBIRC. Without it or PROXY, all clients have the "
            + "gateway's address and share its bans and its limits."
    ) { secret($0.upstream.webircPassword) }

    static let upstreamPasswordFile = ConfigurationKey(
        "upstream.webirc_password_file", .path, standard: .one(""), example: .one("/etc/pawl/webirc_upstream"),
        reason: "The same password, alone in a file, so that the configuration can be read by more people."
    ) { _ in nil }

    static let upstreamConnectTimeout = ConfigurationKey(
        "upstream.connect_timeout", .number(0.1...300, unit: "seconds"), standard: .one("10"),
        reason: "How long a connection to the backend may take to open: several lost packets, and less than a "
            + "client waits."
    ) { .one($0.upstream.connectTimeout.seconds.plain) }

    static let upstreamOutagePatience = ConfigurationKey(
        "upstream.outage_patience", .number(0...86_400, unit: "seconds"), standard: .one("900"),
        reason:
            "How long a client whose messages are protected stays connected after the backend has gone, while it is "
            + "tried again. A quarter of an hour is longer than a restart or an upgrade; 0 ends such connections at once."
    ) { .one($0.upstream.outagePatience.seconds.plain) }

    static let floodBurst = ConfigurationKey(
        "upstream.flood.burst", .whole(1...10_000), standard: .one("6"),
        reason: "How many lines may be written to the backend at once. InspIRCd as delivered kills a client of whom "
            + "more than 4096 bytes wait; six full lines with their tags stay below that."
    ) { one($0.upstream.flood.burst) }

    static let floodLines = ConfigurationKey(
        "upstream.flood.lines_per_second", .number(0...100_000, unit: "lines a second"), standard: .one("1"),
        reason: "How many lines follow in each second after the burst; 0 does not pace. One is what ngIRCd and "
            + "InspIRCd as delivered take from a client for ever; raise it together with the backend's own limit."
    ) { .one($0.upstream.flood.linesPerSecond.plain) }

    static let floodBytes = ConfigurationKey(
        "upstream.flood.bytes_per_second", .whole(0...1_000_000_000), standard: .one("0"),
        reason: "How many bytes a second may be written to the backend; 0 does not pace. For backends that count "
            + "bytes and not lines."
    ) { one($0.upstream.flood.bytesPerSecond) }

    private static let back = [
        upstreamURL, upstreamHost, upstreamNetwork, upstreamEarlierNetworks, upstreamAuthorities, upstreamVerify,
        upstreamServerName, upstreamProxyProtocol,
        upstreamPassword, upstreamPasswordFile, upstreamConnectTimeout, upstreamOutagePatience, floodBurst, floodLines,
        floodBytes,
    ]
}

// MARK: - What people are told and what they may do

extension ConfigurationKey {
    static let policy = ConfigurationKey(
        "policy", .choice(Policy.allCases.map(\.name)), standard: .one("observe"),
        reason: "What is demanded of messages. `observe` changes nothing and counts what each stricter policy "
            + "would do: the safe first day. It is everyone's policy: rooms have the stricter of it and their own. What "
            + "`pawl policy set` has stored is stronger than this."
    ) { one($0.policy.name) }

    static let services = ConfigurationKey(
        "services", .services, standard: .many(["*Serv server=services.*", "Global server=services.*"]),
        reason: "Who is a service of the network and exempt from the policy. The server must match too: anybody "
            + "can take a nick."
    ) { many($0.services) }

    static let bots = ConfigurationKey(
        "bots", .services, standard: .many([]), example: .many(["weather host=bots.example.org"]),
        reason: "Bots that are exempt in the same way. None: each is a way for plain text to leave."
    ) { many($0.bots) }

    static let refusalOutsider = ConfigurationKey(
        "refusal.outsider", .sentence,
        standard: .one(
            "Not sent: {target} is not connected through this gateway, so a message to them cannot be "
                + "protected. Ask them to connect through it, or ask your operator."),
        reason: "What a person reads who writes to somebody outside, under `hosted` and `required`."
    ) { one($0.refusal.outsider) }

    static let refusalRequired = ConfigurationKey(
        "refusal.required", .sentence,
        standard: .one(
            "Not sent: messages must be end-to-end encrypted here, and your client or that of {target} cannot do it yet. "
                + "Run a sidecar beside it: pawl sidecar --upstream with this network's address. Your operator can help."
        ),
        reason:
            "What a person reads under `required` when one of the two cannot encrypt. Say where people get a sidecar. In front of a "
            + "backend that speaks HTTP the default asks for an app that encrypts."
    ) { one($0.refusal.required) }

    static let refusalRoom = ConfigurationKey(
        "refusal.room", .sentence,
        standard: .one(
            "Not sent: messages must be end-to-end encrypted here, and not everybody in {target} can do it yet. Run a "
                + "sidecar beside your client: pawl sidecar --upstream with this network's address."),
        reason: "What a person reads who writes to a room under `required`."
    ) { one($0.refusal.room) }

    static let askVersion = ConfigurationKey(
        "detection.ask_version", .flag, standard: .one("false"),
        reason: "Asks each client for its name with CTCP VERSION, for the listing of what holds the migration "
            + "back. Off: people see the question, and observing should change nothing."
    ) { one($0.detection.askVersion) }

    private static let people = [
        policy, services, bots, refusalOutsider, refusalRequired, refusalRoom, askVersion,
    ]
}

// MARK: - A sidecar

extension ConfigurationKey {
    static let sidecarMarks = ConfigurationKey(
        "sidecar.marks", choice(PawlConfiguration.Sidecar.Marks.self), standard: .one("text"),
        reason: "How `pawl sidecar` shows that a message came end to end: `[e2e]` before the text, and a tag; the tag "
            + "`pawl/protection` alone; or nothing. What nobody notices protects nobody, so it is text."
    ) { one($0.sidecar.marks.rawValue) }

    static let sidecarRequire = ConfigurationKey(
        "sidecar.require", .flag, standard: .one("false"),
        reason: "Whether `pawl sidecar` refuses what cannot go end to end, and withholds what did not come so. Off: "
            + "most people cannot encrypt yet, and writing to them in plain text is how keys are first offered."
    ) { one($0.sidecar.require) }

    private static let own = [sidecarMarks, sidecarRequire]
}

// MARK: - The store and its limits

extension ConfigurationKey {
    static let data = ConfigurationKey(
        "data", .path, standard: .one("/var/lib/pawl"), effect: .restart,
        reason: "The directory of the store: where a system service keeps its state."
    ) { one($0.data) }

    static let storageKeyFile = ConfigurationKey(
        "storage_key.file", .path, standard: .one(""), derived: "storage.key in data",
        example: .one("/etc/pawl/storage.key"),
        effect: .restart,
        reason: "The key that seals private keys at rest; made with mode 0600 at the first start. Put it on "
            + "another disk than the store, and a stolen store is of no use."
    ) { if case .file(let path) = $0.storageKey { one(path) } else { .one("") } }

    static let storageKeyEnvironment = ConfigurationKey(
        "storage_key.environment", .variable, standard: .one(""), example: .one("PAWL_STORAGE_KEY"), effect: .restart,
        reason: "The environment variable that holds the same key in Base64, for secret stores that hand out variables."
    ) { if case .environment(let name) = $0.storageKey { one(name) } else { .one("") } }

    static let historyRetention = ConfigurationKey(
        "history.retention", .number(0...36_500, unit: "days"), standard: .one("365"), example: .one("30"),
        effect: .restart,
        reason:
            "How long the keys of messages are kept, sealed, where the backend keeps the messages: so long people can "
            + "read them again, and so far back can read who takes store and key. A year, because what people look for is "
            + "hardly older and a key that is gone does not come back; better what the backend keeps, if that is less. 0 "
            + "keeps them in memory only."
    ) { .one(($0.history.retention.seconds / 86_400).plain) }

    static let limitConnections = ConfigurationKey(
        "limits.connections", .whole(1...1_000_000), standard: .one("10000"),
        reason: "Clients at one time. Ten thousand idle ones fit in 200 MB; raise the limit of open files to "
            + "twice this and some."
    ) { one($0.limits.connections) }

    static let limitFragments = ConfigurationKey(
        "limits.message_fragments", .whole(1...16), standard: .one("16"), effect: .restart,
        reason:
            "Lines that a sealed message may take on IRC; a longer one is refused, and its sender told. Sixteen hold "
            + "the longest line of any client, sealed for several devices; fewer suit a backend that allows few at once."
    ) { one($0.limits.messageFragments) }

    static let limitFragmentTimeout = ConfigurationKey(
        "limits.fragment_timeout", .number(1...3600, unit: "seconds"), standard: .one("30"),
        reason: "How long an incomplete envelope waits for its next line: sixteen lines at one a second, nearly "
            + "twice over."
    ) { .one($0.limits.fragmentTimeout.seconds.plain) }

    static let limitPending = ConfigurationKey(
        "limits.pending_requests_per_account", .whole(1...65536), standard: .one("256"), effect: .restart,
        reason: "Messages of one account that wait for the backend. At one line a second that is four minutes; "
            + "then the person is told, and nobody fills the store for all."
    ) { one($0.limits.pendingRequestsPerAccount) }

    static let limitRequestAge = ConfigurationKey(
        "limits.request_age", .number(1...86400, unit: "seconds"), standard: .one("300"), effect: .restart,
        reason: "How old a message may grow before it is declared dead and its sender told: later, people have "
            + "moved on."
    ) { .one($0.limits.requestAge.seconds.plain) }

    static let limitEvidence = ConfigurationKey(
        "limits.evidence_rows", .whole(100...100_000_000), standard: .one("100000"), effect: .restart,
        reason: "Rows about which client could do what and when. Some for each account and client: ten thousand "
            + "accounts with ten clients each; the oldest go first."
    ) { one($0.limits.evidenceRows) }

    static let limitHeld = ConfigurationKey(
        "limits.held_lines", .whole(1...65536), standard: .one("512"),
        reason: "Lines of one connection that wait behind one that is not committed yet: 256 KB of lines without "
            + "tags; then reading stops."
    ) { one($0.limits.heldLines) }

    static let limitAnswer = ConfigurationKey(
        "limits.answer_bytes", .whole(65_536...1_073_741_824), standard: .one("67108864"),
        reason:
            "For a backend that speaks HTTP: bytes of one answer whose messages are opened. A longer one is refused, but to "
            + "readers for whom nothing is sealed. An answer takes three times its size in memory while it is opened; the first "
            + "synchronisation of a Matrix account with many rooms has some tens of megabytes."
    ) { one($0.limits.answerBytes) }

    private static let records = [
        data, storageKeyFile, storageKeyEnvironment, historyRetention, limitConnections, limitFragments,
        limitFragmentTimeout,
        limitPending,
        limitRequestAge, limitEvidence, limitHeld, limitAnswer,
    ]
}

// MARK: - Running it

extension ConfigurationKey {
    static let metricsListen = ConfigurationKey(
        "metrics.listen", .address, standard: .one("127.0.0.1:9464"), effect: .restart,
        reason: "The port of /metrics, /live and /ready; empty for none. Loopback only, since it asks for no password."
    ) { optional($0.metrics.listen) }

    static let adminSocket = ConfigurationKey(
        "admin.socket", .path, standard: .one(""), derived: "pawl.sock in data", example: .one("/run/pawl/pawl.sock"),
        effect: .restart,
        reason: "The Unix socket of `pawl status` and the other commands; mode 0600, so only who runs the gateway "
            + "may use it."
    ) { one($0.admin.socket) }

    static let logLevel = ConfigurationKey(
        "log.level", choice(PawlConfiguration.Log.Level.self), standard: .one("info"), effect: .restart,
        reason: "The least severe level that is written. `info` says what an operator did and what failed, "
            + "nothing per message."
    ) { one($0.log.level.rawValue) }

    private static let service = [metricsListen, adminSocket, logLevel]
}
