/// ngIRCd as Debian builds it: small, no IRCv3 but `multi-prefix`, WEBIRC but no PROXY protocol.
package final class NgIRCd: IRCServer {
    package struct Options: Sendable {
        /// `standard` keeps the penalties per command and the limit of commands read ahead.
        package var flood = FloodLimits.lifted
        package var webircPassword: String?
        package var connectionPassword: String?
        /// Adds `tlsPort`, with a certificate for `localhost`.
        package var tls = false
        /// Lets `Services` link to it.
        package var servicesLink = false
        /// The default of 5 bites at the sixth client behind one gateway; 0 means no limit.
        package var connectionsPerAddress = 0
        package var maximumNickLength = 31
        package var serverName = "ngircd.pawl.test"
        /// Another server of the network; the one without a port waits for the other.
        package var peer: (name: String, port: UInt16?)?
        /// Lines for the end of the configuration, with their section.
        package var extra = ""

        package init() {}
    }

    package static let servicesName = "services.pawl.test"
    package static let servicesPassword = "linkpassword"

    package let serverName: String
    package let tlsPort: UInt16?
    package let scratch: ScratchDirectory
    private let reservation: FreePort
    private let tlsReservation: FreePort?
    private let process = ServerProcess()

    package var port: UInt16 { reservation.number }

    /// Starts it; ready when this returns.
    package init(_ options: Options = Options()) throws {
        serverName = options.serverName
        scratch = try ScratchDirectory()
        reservation = try FreePort()
        tlsReservation = options.tls ? try FreePort() : nil
        tlsPort = tlsReservation?.number
        try scratch.write("ngircd.motd", "a server of a test\n")
        try scratch.write("ngircd.conf", configuration(options))
        try start()
    }

    deinit {
        stop()
    }

    package func start() throws {
        try process.start {
            let child = try ChildProcess(
                "ngircd", ["--nodaemon", "--config", scratch.file("ngircd.conf")], workingDirectory: scratch.path)
            try child.waitUntilListening(port)
            return child
        }
    }

    package func stop() {
        process.stop()
    }

    package func kill() {
        process.kill()
    }

    private func configuration(_ options: Options) throws -> String {
        // PAM is on in Debian's build and refuses everybody; DNS and Ident make every client wait
        var text = """
            [Global]
            Name = \(serverName)
            Info = a server of a test
            Network = PawlTest
            Listen = 127.0.0.1
            Ports = \(port)
            AdminInfo1 = test
            AdminEMail = root@pawl.test
            MotdFile = \(scratch.file("ngircd.motd"))
            \(options.connectionPassword.map { "Password = \($0)" } ?? "")
            [Limits]
            MaxConnections = 0
            ConnectRetry = 5
            PingTimeout = 3600
            PongTimeout = 600
            MaxConnectionsIP = \(options.connectionsPerAddress)
            MaxJoins = 0
            MaxNickLength = \(options.maximumNickLength)
            MaxListSize = 0
            \(options.flood == .lifted ? "MaxPenaltyTime = 0" : "")
            [Options]
            DNS = no
            Ident = no
            PAM = no
            MorePrivacy = no
            OperCanUseMode = yes
            \(options.webircPassword.map { "WebircPassword = \($0)" } ?? "")
            [Operator]
            Name = oper
            Password = operpassword

            """
        if let tlsPort {
            let certificate = try Certificate(in: scratch)
            text += """
                [SSL]
                CertFile = \(certificate.certificatePath)
                KeyFile = \(certificate.keyPath)
                Ports = \(tlsPort)

                """
        }
        if options.servicesLink {
            text += """
                [Server]
                Name = \(Self.servicesName)
                MyPassword = \(Self.servicesPassword)
                PeerPassword = \(Self.servicesPassword)
                Passive = yes
                ServiceMask = *Serv

                """
        }
        if let peer = options.peer {
            text += """
                [Server]
                Name = \(peer.name)
                Host = 127.0.0.1
                \(peer.port.map { "Port = \($0)" } ?? "Passive = yes")
                MyPassword = \(Self.servicesPassword)
                PeerPassword = \(Self.servicesPassword)

                """
        }
        return text + options.extra + "\n"
    }
}
