import Glibc
import TestKit

/// Anope, linked to a server: NickServ with REGISTER, IDENTIFY and LOGOUT, and on InspIRCd the `sasl` capability.
package final class Services: Sendable {
    /// Anope waits three seconds before it starts as root, so it gets a user that has nothing.
    private static let unprivileged = "nobody"

    private let scratch: ScratchDirectory
    private let process = ServerProcess()
    private let clientPort: UInt16

    /// Starts them; NickServ answers when this returns. The server must have been made with `servicesLink`.
    package convenience init(on server: InspIRCd) throws {
        guard let port = server.linkPort else { throw PeerError("the server has no link for services") }
        try self.init(
            "inspircd3", linkPort: port, clientPort: server.port, name: InspIRCd.servicesName,
            password: InspIRCd.servicesPassword)
    }

    /// ngIRCd tells its clients nothing about accounts: no 900, no tag. NickServ answers in notices only.
    package convenience init(on server: NgIRCd) throws {
        try self.init(
            "ngircd", linkPort: server.port, clientPort: server.port, name: NgIRCd.servicesName,
            password: NgIRCd.servicesPassword)
    }

    private init(
        _ linkProtocol: String, linkPort: UInt16, clientPort: UInt16, name: String, password: String
    ) throws {
        self.clientPort = clientPort
        scratch = try ScratchDirectory()
        for directory in ["conf", "data", "logs"] {
            try scratch.directory(directory)
        }
        try scratch.write("conf/motd", "")
        try scratch.write(
            "conf/services.conf",
            Self.configuration(linkProtocol, port: linkPort, name: name, password: password, in: scratch))
        if getuid() == 0 {
            try scratch.give(to: Self.unprivileged)
        }
        try start()
    }

    deinit {
        stop()
    }

    package func start() throws {
        try process.start {
            let command = [
                "anope", "--nofork", "--modulesdir=/usr/lib/anope", "--confdir=\(scratch.file("conf"))",
                "--dbdir=\(scratch.file("data"))", "--logdir=\(scratch.file("logs"))",
                "--localedir=\(scratch.path)",
            ]
            guard getuid() == 0 else {
                return try ChildProcess(command[0], Array(command.dropFirst()), workingDirectory: scratch.path)
            }
            let user = ["--reuid=\(Self.unprivileged)", "--regid=nogroup", "--clear-groups", "--"]
            return try ChildProcess(
                "setpriv", user + command, environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"],
                workingDirectory: scratch.path)
        }
        try waitUntilAnswering()
    }

    package func stop() {
        process.stop()
    }

    private func waitUntilAnswering() throws {
        do {
            let client = try IRCClient(port: clientPort)
            defer { client.close() }
            try client.register(nick: "probe\(UInt16.random(in: .min ... .max))", caps: nil)
            try eventually("NickServ", every: .milliseconds(50)) {
                client.send("WHOIS NickServ")
                let answer = try client.expect("end of WHOIS") { $0.command == "318" || $0.command == "401" }
                if answer.command == "401" { _ = try client.expect("318") }
                return client.pending.contains { $0.command == "311" }
            }
        } catch {
            throw PeerError("\(error)\n\(process.output)")
        }
    }

    private static func configuration(
        _ linkProtocol: String, port: UInt16, name: String, password: String, in scratch: ScratchDirectory
    ) -> String {
        """
        uplink { host = "127.0.0.1"; ipv6 = no; ssl = no; port = \(port); password = "\(password)"; }
        serverinfo {
            name = "\(name)"; description = "services of a test";
            pid = "\(scratch.file("services.pid"))"; motd = "\(scratch.file("conf/motd"))";
        }
        module { name = "\(linkProtocol)"; use_server_side_mlock = no; use_server_side_topiclock = no; }
        networkinfo {
            networkname = "PawlTest"; nicklen = 31; userlen = 10; hostlen = 64; chanlen = 32; modelistsize = 100;
            vhost_chars = "abcdefghijklmnopqrstuvwxyz0123456789.-"; allow_undotted_vhosts = yes;
            disallow_start_or_end = ".-"; nick_chars = "";
        }
        options {
            casemap = "ascii"; seed = 1234567; strictpasswords = no; badpasslimit = 0; badpasstimeout = 1h;
            updatetimeout = 5m; expiretimeout = 30m; readtimeout = 5s; warningtimeout = 4h; timeoutcheck = 3s;
            retrywait = 1s; hidestatso = yes; botmodes = ""; usestrictprivmsg = no;
        }
        module { name = "enc_sha256"; }
        module { name = "db_flatfile"; database = "anope.db"; keepbackups = 1; fork = no; }
        module {
            name = "nickserv"; client = "NickServ"; forceemail = no; confirmemail = no; unregistered_notice = "";
            defaults = "msg"; regdelay = 0; expire = 0; secureadmins = no; modeonid = no; killquick = 20s;
            kill = 60s; enforceruser = "enforcer"; enforcerhost = "enforcer.test"; releasetimeout = 1m;
            guestnickprefix = "Guest"; nonicknameownership = yes; passlen = 32;
        }
        service { nick = "NickServ"; user = "services"; host = "\(name)"; gecos = "Nickname Registration Service"; }
        module { name = "m_sasl"; }
        module { name = "ns_register"; registration = "none"; nickregdelay = 0; resenddelay = 0; accountdelay = 0; }
        command { service = "NickServ"; name = "REGISTER"; command = "nickserv/register"; }
        module { name = "ns_identify"; }
        command { service = "NickServ"; name = "IDENTIFY"; command = "nickserv/identify"; }
        module { name = "ns_cert"; max = 5; }
        command { service = "NickServ"; name = "CERT"; command = "nickserv/cert"; }
        module { name = "ns_logout"; }
        command { service = "NickServ"; name = "LOGOUT"; command = "nickserv/logout"; }
        module { name = "help"; }
        command { service = "NickServ"; name = "HELP"; command = "generic/help"; }

        """
    }
}
