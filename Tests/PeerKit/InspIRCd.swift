/// InspIRCd 3 as Debian builds it, with every IRCv3 module that it has and a gateway may meet.
package final class InspIRCd: IRCServer {
    package struct Options: Sendable {
        /// `standard` names no limit in the connect class, so that the server's own defaults hold.
        package var flood = FloodLimits.lifted
        /// Lets `Services` link to it, and with them the `sasl` capability.
        package var servicesLink = false
        /// The plain port then wants a PROXY protocol header, version 2, from every client.
        package var proxyProtocol = false
        package var webircPassword: String?
        package var connectionPassword: String?
        /// Adds `tlsPort` and the `tls` capability (STARTTLS) on the plain one.
        package var tls = false
        /// With `tls`: the `sts` capability, which points clients at `tlsPort`.
        package var strictTransport = false
        /// Hides addresses: the host in a client's prefix is then as long as `hostLength` allows.
        package var cloaking = false
        /// Adds `webSocketPort`, which takes pages of every origin. InspIRCd 3 confirms no subprotocol.
        package var webSocket: WebSocketForm?
        /// Channel mode +H: replays history on join in a `chathistory` batch.
        package var history = true
        /// Modules left out, by the names used in `modules`.
        package var without: Set<String> = []
        package var serverName = "inspircd.pawl.test"
        /// Three characters that no other server of the network has.
        package var identifier = "1PT"
        /// Another server of the network; the one without a port waits for the other, at `linkPort`.
        package var peer: (name: String, port: UInt16?)?
        /// Lines for the end of the configuration.
        package var extra = ""

        package init() {}
    }

    /// What `m_websocket` makes of the lines for its clients. It takes messages of both kinds.
    package enum WebSocketForm: Sendable {
        /// Text; U+FFFD replaces what is not UTF-8.
        case text
        /// Binary messages of the line's bytes.
        case binary
    }

    package static let servicesName = "services.pawl.test"
    package static let servicesPassword = "linkpassword"

    private static let modules = [
        "cap", "ircv3", "ircv3_accounttag", "ircv3_batch", "ircv3_capnotify", "ircv3_chghost", "ircv3_ctctags",
        "ircv3_echomessage", "ircv3_invitenotify", "ircv3_labeledresponse", "ircv3_msgid", "ircv3_servertime",
        "namesx", "uhnames", "setname", "monitor", "botmode", "callerid", "knock", "services_account",
        "svshold", "hidechans", "noctcp", "deaf", "silence", "sajoin", "sanick", "sapart",
    ]

    package let serverName: String
    package let tlsPort: UInt16?
    /// Where services and other servers link.
    package let linkPort: UInt16?
    package let webSocketPort: UInt16?
    package let scratch: ScratchDirectory
    private let reservation: FreePort
    private let webSocketReservation: FreePort?
    private let tlsReservation: FreePort?
    private let linkReservation: FreePort?
    private let process = ServerProcess()

    package var port: UInt16 { reservation.number }

    /// Starts it; ready when this returns.
    package init(_ options: Options = Options()) throws {
        serverName = options.serverName
        scratch = try ScratchDirectory()
        reservation = try FreePort()
        tlsReservation = options.tls ? try FreePort() : nil
        tlsPort = tlsReservation?.number
        webSocketReservation = options.webSocket == nil ? nil : try FreePort()
        webSocketPort = webSocketReservation?.number
        linkReservation = options.servicesLink || options.peer.map { $0.port == nil } == true ? try FreePort() : nil
        linkPort = linkReservation?.number
        try scratch.write("motd.txt", "a server of a test\n")
        try scratch.write("inspircd.conf", configuration(options))
        try start()
    }

    deinit {
        stop()
    }

    /// Debian's build with TLS ends by a segmentation fault on SIGTERM, after it closed its connections in order.
    /// The core file, where the system writes one, lands in the scratch directory.
    package func start() throws {
        try process.start {
            let child = try ChildProcess(
                "inspircd", ["--runasroot", "--nofork", "--nopid", "--config", scratch.file("inspircd.conf")],
                workingDirectory: scratch.path)
            for port in [port, tlsPort, linkPort, webSocketPort].compactMap({ $0 }) {
                try child.waitUntilListening(port)
            }
            return child
        }
    }

    package func stop() {
        process.stop()
    }

    package func kill() {
        process.kill()
    }

    private func link(_ name: String, _ port: UInt16) -> String {
        """
        <link name="\(name)" ipaddr="127.0.0.1" port="\(port)" allowmask="127.0.0.0/8"
            recvpass="\(Self.servicesPassword)" sendpass="\(Self.servicesPassword)">
        """
    }

    private func configuration(_ options: Options) throws -> String {
        let flood =
            options.flood == .standard
            ? "" : "recvq=\"1M\" threshold=\"1000000\" commandrate=\"1000000000\" fakelag=\"no\""
        let password = options.connectionPassword.map { "password=\"\($0)\"" } ?? ""
        var text = """
            <server name="\(serverName)" description="a server of a test" id="\(options.identifier)" network="PawlTest">
            <admin name="test" nick="test" email="root@pawl.test">
            <bind address="127.0.0.1" port="\(port)" type="clients" \(options.proxyProtocol ? "hook=\"haproxy\"" : "")>
            <pid file="\(scratch.file("inspircd.pid"))">
            <path configdir="\(scratch.path)" datadir="\(scratch.path)" logdir="\(scratch.path)"
                runtimedir="\(scratch.path)">
            <log method="file" type="* -USERINPUT -USEROUTPUT" level="default" target="\(scratch.file("log"))">
            <connect name="main" allow="*" resolvehostnames="no" useident="no" timeout="600" pingfreq="3600"
                hardsendq="16M" softsendq="8M" localmax="100000" globalmax="100000" maxchans="100000"
                limit="100000" \(options.strictTransport ? "" : "usests=\"no\"") \(flood) \(password)>
            <class name="operators" commands="*" privs="*" usermodes="*" chanmodes="*">
            <type name="operator" classes="operators" maxchans="100000">
            <oper name="oper" password="operpassword" host="*@*" type="operator">
            <performance netbuffersize="65534" somaxconn="1024" softlimit="100000" clonesonconnect="no"
                quietbursts="yes">
            <options prefixquit="" casemapping="ascii" extbanformat="any">
            <security announceinvites="none" maxtargets="20">
            <limits maxnick="31" maxchan="64" maxmodes="20" maxident="11" maxline="512">
            <files motd="\(scratch.file("motd.txt"))">

            """
        for module in Self.modules where !options.without.contains(module) {
            text += "<module name=\"\(module)\">\n"
        }
        if options.history {
            text += "<module name=\"chanhistory\">\n<chanhistory maxlines=\"50\" bots=\"yes\">\n"
        }
        if options.proxyProtocol {
            text += "<module name=\"haproxy\">\n"
        }
        if let webSocketPort, let form = options.webSocket {
            text += """
                <module name="sha1">
                <module name="websocket">
                <wsorigin allow="*">
                <websocket sendastext="\(form == .text ? "yes" : "no")">
                <bind address="127.0.0.1" port="\(webSocketPort)" type="clients" hook="websocket">

                """
        }
        if options.cloaking {
            text += "<module name=\"cloaking\">\n"
            text += "<cloak mode=\"full\" key=\"a key of a test, at least thirty characters\" prefix=\"cloaked-\">\n"
        }
        if let password = options.webircPassword {
            text += "<module name=\"cgiirc\">\n"
            text += "<cgihost type=\"webirc\" mask=\"127.0.0.1\" password=\"\(password)\">\n"
        }
        if let tlsPort {
            let certificate = try Certificate(in: scratch)
            text += """
                <module name="ssl_gnutls">
                <module name="starttls">
                <sslprofile name="clients" provider="gnutls" certfile="\(certificate.certificatePath)"
                    keyfile="\(certificate.keyPath)" hash="sha256">
                <bind address="127.0.0.1" port="\(tlsPort)" type="clients" sslprofile="clients">

                """
            if options.strictTransport {
                text += "<module name=\"ircv3_sts\">\n"
                text += "<sts host=\"*\" duration=\"60s\" port=\"\(tlsPort)\" preload=\"no\">\n"
            }
        }
        if linkPort != nil || options.peer != nil { text += "<module name=\"spanningtree\">\n" }
        if let linkPort { text += "<bind address=\"127.0.0.1\" port=\"\(linkPort)\" type=\"servers\">\n" }
        if let linkPort, options.servicesLink {
            text += """
                <module name="sasl">
                \(link(Self.servicesName, linkPort))
                <uline server="\(Self.servicesName)" silent="yes">
                <sasl target="\(Self.servicesName)" requiressl="no">

                """
        }
        if let peer = options.peer {
            // Who waits for the other has a port for the other only.
            text += link(peer.name, peer.port ?? linkPort ?? 0) + "\n"
            if peer.port != nil { text += "<autoconnect period=\"1\" server=\"\(peer.name)\">\n" }
        }
        return text + options.extra + "\n"
    }
}
