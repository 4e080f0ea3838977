import Protection

extension PawlConfiguration {
    /// Reads the configuration of a gateway.
    ///
    /// - Parameters:
    ///   - file: the YAML file, or `nil` for none.
    ///   - network: of a file for several networks, the one that is read; see ``SidecarNetworks``.
    ///   - environment: the environment of the process; only variables that begin with `PAWL_` are read.
    ///   - overrides: the values from the command line.
    ///   - protocols: the chat protocols that URLs may name.
    package static func load(
        file: String? = nil, network: String? = nil, environment: [String: String] = [:],
        overrides: Overrides = Overrides(), protocols: [ChatProtocol]
    ) throws(ConfigurationError) -> PawlConfiguration {
        try ConfigurationReport(
            file: file, network: network, environment: environment, overrides: overrides, protocols: protocols
        ).configuration
    }

    /// Takes all values from a reading. The result is valid only if the reading has no problems afterwards.
    init(_ reading: inout ConfigurationReading, environment: [String: String], protocols: [ChatProtocol]) {
        self.listen = reading.many(.listen) { (text) throws(Mismatch) in
            try Endpoint(listening: text, of: protocols)
        }
        self.webSocketOrigins = reading.many(.webSocketOrigins, TextParsers.origin)
        let certificate = reading.optional(.tlsCertificate, TextParsers.path)
        let key = reading.optional(.tlsKey, TextParsers.path)
        self.clientCertificates = reading.choice(.clientCertificates)
        self.starttls = reading.choice(.starttls)
        self.accept = Accept(
            proxyProtocol: reading.flag(.acceptProxyProtocol),
            webircPassword: reading.secret(.acceptPassword, file: .acceptPasswordFile),
            trusted: reading.many(.acceptTrusted, CIDR.init(configuration:)))
        self.upstream = Upstream(&reading, protocols)
        self.mapping = reading.optional(.mapping, TextParsers.path)
        self.queueCredentials = reading.choice(.queueCredentials)
        self.queueRequestAge = reading.seconds(.queueRequestAge)
        self.push = Push(&reading)
        self.controlPlane = ControlPlane(
            socket: reading.optional(.controlPlaneSocket, TextParsers.path),
            socketMode: reading.choice(.controlPlaneSocketMode))
        self.kinds = KindTreatments()
        for kind in ContentKind.allCases { self.kinds[kind] = reading.choice(.kind(kind)) }
        self.commands = CommandTexts()
        for policy in ConfigurationKey.commandPolicies {
            for text in CommandText.allCases {
                self.commands[text, under: policy] = reading.choice(.command(text, policy))
            }
        }
        self.policy = reading.choice(.policy, named: Policy.init(name:))
        self.services = reading.many(.services, ServicePattern.init(configuration:))
        self.bots = reading.many(.bots, ServicePattern.init(configuration:))
        self.refusal = Refusal(
            outsider: reading.one(.refusalOutsider, Refusal.Text.init(configuration:)),
            required: reading.one(.refusalRequired, Refusal.Text.init(configuration:)),
            room: reading.one(.refusalRoom, Refusal.Text.init(configuration:)))
        self.detection = Detection(askVersion: reading.flag(.askVersion))
        self.sidecar = Sidecar(marks: reading.choice(.sidecarMarks), require: reading.flag(.sidecarRequire))
        self.data = reading.one(.data, TextParsers.path)
        self.storageKey = StorageKey(&reading, data: self.data)
        self.store = Store(
            url: reading.optional(.storeURL, TextParsers.database), pooled: reading.flag(.storePooled),
            standby: reading.flag(.storeStandby), gateway: reading.optional(.storeGateway, TextParsers.word))
        self.history = History(retention: reading.days(.historyRetention))
        self.limits = Limits(&reading)
        self.metrics = Metrics(listen: reading.optional(.metricsListen, Address.init(loopback:)))
        self.admin = Admin(
            socket: reading.optional(.adminSocket, TextParsers.path) ?? Self.path("pawl.sock", in: self.data))
        self.log = Log(level: reading.choice(.logLevel), format: reading.choice(.logFormat))
        self.tls = nil
        if let certificate, let key { self.tls = Identity(certificate: certificate, key: key) }

        self.checkIdentity(&reading, certificate: certificate, key: key)
        self.checkClientCertificates(&reading)
        self.checkAddresses(&reading)
        self.checkStartTLS(&reading)
        self.checkChat(&reading)
        self.checkSocket(&reading)
        self.checkControlPlane(&reading)
        var allowed: String?
        if case .environment(let name) = self.storageKey { allowed = name }
        reading.add(ConfigurationVariables.problems(in: environment, allowed: allowed))
    }

    /// The path of a file in the data directory.
    fileprivate static func path(_ name: String, in data: String) -> String {
        data.hasSuffix("/") ? data + name : "\(data)/\(name)"
    }
}

extension PawlConfiguration.Upstream {
    init(_ reading: inout ConfigurationReading, _ protocols: [ChatProtocol]) {
        self.url = reading.one(.upstreamURL) { (text) throws(Mismatch) in
            try PawlConfiguration.Endpoint(connecting: text, of: protocols)
        }
        self.host = reading.optional(.upstreamHost, TextParsers.word)
        self.network = reading.optional(.upstreamNetwork, TextParsers.word)
        self.earlierNetworks = reading.many(.upstreamEarlierNetworks, TextParsers.word)
        if self.earlierNetworks.count > Self.earlierNetworkLimit {
            reading.conflict(
                "\(reading.place(of: .upstreamEarlierNetworks)) has \(self.earlierNetworks.count) names; at most "
                    + "\(Self.earlierNetworkLimit) are tried for each message")
        }
        self.tls = TLS(
            authorities: reading.optional(.upstreamAuthorities, TextParsers.path),
            verify: reading.flag(.upstreamVerify),
            serverName: reading.optional(.upstreamServerName, TextParsers.host))
        let certificate = reading.optional(.upstreamCertificate, TextParsers.path)
        let key = reading.optional(.upstreamKey, TextParsers.path)
        switch (certificate, key) {
        case (let certificate?, let key?): self.tls.identity = .init(certificate: certificate, key: key)
        case (_?, nil) where reading.isSound(.upstreamKey):
            reading.conflict("\(reading.place(of: .upstreamCertificate)) needs `upstream.tls.key` beside it")
        case (nil, _?) where reading.isSound(.upstreamCertificate):
            reading.conflict("\(reading.place(of: .upstreamKey)) needs `upstream.tls.certificate` beside it")
        case (_?, nil), (nil, _?), (nil, nil): break
        }
        if self.tls.identity != nil, reading.isSound(.upstreamURL), !self.url.isEncrypted {
            reading.conflict(
                "\(reading.place(of: .upstreamCertificate)) has no effect: `\(self.url)` in upstream.url is without TLS"
            )
        }
        self.proxyProtocol = reading.choice(.upstreamProxyProtocol)
        self.webircPassword = reading.secret(.upstreamPassword, file: .upstreamPasswordFile)
        self.connectTimeout = reading.seconds(.upstreamConnectTimeout)
        self.outagePatience = reading.seconds(.upstreamOutagePatience)
        self.flood = Flood(
            burst: reading.whole(.floodBurst),
            linesPerSecond: reading.number(.floodLines),
            bytesPerSecond: reading.whole(.floodBytes))
    }
}

extension PawlConfiguration.StorageKey {
    init(_ reading: inout ConfigurationReading, data: String) {
        let file = reading.optional(.storageKeyFile, TextParsers.path)
        let variable = reading.optional(.storageKeyEnvironment, TextParsers.variable)
        if file != nil, variable != nil { reading.bothSet(.storageKeyFile, .storageKeyEnvironment) }
        if let variable, ConfigurationKey.table.contains(where: { $0.variable == variable }) {
            reading.conflict(
                "\(reading.place(of: .storageKeyEnvironment)) is `\(variable)`, the variable of another key; "
                    + "choose another, for example `PAWL_STORAGE_KEY`")
        }
        self = variable.map(Self.environment) ?? .file(file ?? PawlConfiguration.path("storage.key", in: data))
    }
}

extension PawlConfiguration.Limits {
    init(_ reading: inout ConfigurationReading) {
        self.connections = reading.whole(.limitConnections)
        self.messageFragments = reading.whole(.limitFragments)
        self.fragmentTimeout = reading.seconds(.limitFragmentTimeout)
        self.pendingRequestsPerAccount = reading.whole(.limitPending)
        self.requestAge = reading.seconds(.limitRequestAge)
        self.evidenceRows = reading.whole(.limitEvidence)
        self.heldLines = reading.whole(.limitHeld)
        self.answerBytes = reading.whole(.limitAnswer)
        self.collectedBytes = reading.whole(.limitCollected)
        self.compressAbove = reading.whole(.limitCompress)
        self.relaysPerAccount = reading.whole(.limitRelays)
        self.relayBytesPerSecond = reading.whole(.limitRelayRate)
        self.relayIdle = reading.seconds(.limitRelayIdle)
        self.checkAnswer(&reading)
    }
}

extension PawlConfiguration.Limits {
    /// One answer of the largest size must have room, and an account gets half of it.
    private func checkAnswer(_ reading: inout ConfigurationReading) {
        guard reading.isSound(.limitAnswer, .limitCollected), self.collectedBytes < 2 * self.answerBytes else { return }
        reading.conflict(
            "\(reading.place(of: .limitCollected)) is \(self.collectedBytes), less than twice limits.answer_bytes "
                + "(\(self.answerBytes)): no answer of that size could be opened, because an account gets half of it")
    }
}

extension PawlConfiguration.Address {
    /// Reads an address that must be on loopback.
    init(loopback text: String) throws(Mismatch) {
        try self.init(configuration: text)
        guard self.isLoopback else { throw Mismatch("which is not on loopback") }
    }
}

// MARK: - Values that must go together

extension PawlConfiguration {
    private func checkIdentity(_ reading: inout ConfigurationReading, certificate: String?, key: String?) {
        guard reading.isSound(.tlsCertificate, .tlsKey) else { return }
        switch (certificate, key) {
        case (_?, nil): reading.conflict("\(reading.place(of: .tlsCertificate)) needs `tls.key` beside it")
        case (nil, _?): reading.conflict("\(reading.place(of: .tlsKey)) needs `tls.certificate` beside it")
        case (nil, nil):
            if let url = self.listen.first(where: \.isEncrypted) {
                reading.conflict("`\(url)` in \(reading.place(of: .listen)) needs `tls.certificate` and `tls.key`")
            }
            if self.starttls == .terminate {
                reading.conflict("`terminate` in \(reading.place(of: .starttls)) needs `tls.certificate` and `tls.key`")
            }
        case (_?, _?): break
        }
    }

    /// A fingerprint that cannot reach the backend would only make clients believe that it does.
    private func checkClientCertificates(_ reading: inout ConfigurationReading) {
        guard self.clientCertificates == .ask, reading.isSound(.upstreamURL, .tlsCertificate, .tlsKey) else { return }
        let place = "`ask` in \(reading.place(of: .clientCertificates))"
        if self.tls == nil { reading.conflict("\(place) needs `tls.certificate` and `tls.key`") }
        if self.upstream.url.scheme.chat.usesMapping {
            reading.conflict("\(place) has no use in front of `\(self.upstream.url)`: it is for IRC")
        } else if self.upstream.webircPassword == nil {
            reading.conflict(
                "\(place) needs `upstream.webirc_password`: the backend learns fingerprints by WEBIRC only")
        }
    }

    /// TLS cannot begin inside the messages of a WebSocket, nor a second time.
    private func checkStartTLS(_ reading: inout ConfigurationReading) {
        guard reading.isSound(.listen, .starttls), self.starttls == .terminate, !self.listen.isEmpty else { return }
        guard self.listen.allSatisfy({ $0.isEncrypted || $0.scheme.isWebSocket }) else { return }
        reading.conflict(
            "`terminate` in \(reading.place(of: .starttls)) needs a URL in `listen` whose clients can use STARTTLS, such "
                + "as `irc://127.0.0.1:6667`; connections to `\(self.listen[0])` cannot")
    }

    private func checkAddresses(_ reading: inout ConfigurationReading) {
        guard reading.isSound(.listen) else { return }
        if self.listen.isEmpty {
            reading.conflict("\(reading.place(of: .listen)) is an empty list, so no client could connect")
        }
        var taken: Set<Address> = []
        for url in self.listen where url.port != 0 && !taken.insert(url.address).inserted {
            reading.conflict("\(reading.place(of: .listen)) has `\(url.address)` twice")
        }
        if reading.isSound(.upstreamURL), taken.contains(self.upstream.url.address) {
            reading.conflict(
                "\(reading.place(of: .upstreamURL)) is `\(self.upstream.url)`, an address in `listen`: "
                    + "the gateway would connect to itself")
        }
        if let metrics = self.metrics.listen, taken.contains(metrics) {
            reading.conflict("\(reading.place(of: .metricsListen)) is `\(metrics)`, an address in `listen`")
        }
    }

    private func checkChat(_ reading: inout ConfigurationReading) {
        guard reading.isSound(.listen, .upstreamURL, .mapping) else { return }
        let chat = self.upstream.url.scheme.chat
        if let other = self.listen.first(where: { $0.scheme.chat != chat }) {
            reading.conflict(
                "\(reading.place(of: .listen)) has `\(other)`, and \(reading.place(of: .upstreamURL)) is "
                    + "`\(self.upstream.url)`: both must use the same protocol")
        }
        if chat.usesMapping, self.mapping == nil {
            reading.conflict(
                "\(reading.place(of: .upstreamURL)) is `\(self.upstream.url)`, which needs a `mapping` of its requests; "
                    + "for example `mapping: config/mappings/matrix.yaml`")
        }
        if !chat.usesMapping, let mapping = self.mapping {
            reading.conflict(
                "\(reading.place(of: .mapping)) is \(quoted(mapping)), which \(chat.backend) does not use")
        }
    }

    /// The longest path of a Unix socket that all supported systems accept, in bytes.
    package static let socketPathLimit = 103

    private func checkSocket(_ reading: inout ConfigurationReading) {
        guard self.admin.socket.utf8.count > Self.socketPathLimit else { return }
        reading.conflict(
            "the control socket \(quoted(self.admin.socket)) has a path of more than \(Self.socketPathLimit) bytes, "
                + "too long for a Unix socket; set `admin.socket` to a shorter one, for example `socket: "
                + "/run/pawl/pawl.sock`")
    }

    private func checkControlPlane(_ reading: inout ConfigurationReading) {
        guard reading.isSound(.controlPlaneSocket, .upstreamURL), let socket = self.controlPlane.socket else { return }
        let place = reading.place(of: .controlPlaneSocket)
        let chat = self.upstream.url.scheme.chat
        if !chat.usesMapping {
            reading.conflict("\(place) is \(quoted(socket)), which \(chat.backend) does not use")
        }
        if socket.utf8.count > Self.socketPathLimit {
            reading.conflict(
                "\(place) is a path of more than \(Self.socketPathLimit) bytes, too long for a Unix socket")
        }
        if reading.isSound(.adminSocket, .data), socket == self.admin.socket {
            reading.conflict("\(place) is \(quoted(socket)), the socket of the commands (`admin.socket`)")
        }
    }
}
