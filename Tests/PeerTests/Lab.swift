import Foundation
import PeerKit
import TestKit

/// The real servers that the gateway is tested in front of.
enum Backend: String, CaseIterable, Sendable {
    case ngircd, inspircd

    func start(_ flood: FloodLimits = .lifted) throws -> any IRCServer {
        switch self {
        case .ngircd:
            var options = NgIRCd.Options()
            options.flood = flood
            return try NgIRCd(options)
        case .inspircd:
            var options = InspIRCd.Options()
            options.flood = flood
            return try InspIRCd(options)
        }
    }
}

extension ChildProcess.Output {
    /// The code of the failure of a command of pawl; nil if there is none.
    var failureCode: String? {
        let prefix = "code: "
        let last = stderr.split(separator: "\n").last
        return last.flatMap { $0.hasPrefix(prefix) ? String($0.dropFirst(prefix.count)) : nil }
    }

    /// The token that a command gave, to be sent with `--confirm`; nil if it asked for none.
    var token: String? { stderr.firstMatch(of: /--confirm ([a-z0-9-]+)/).map { String($0.1) } }

    /// The output of a command with `--json`; null if it is not JSON.
    var json: JSONValue { (try? JSONValue(Array(stdout.utf8))) ?? .null }
}

/// A gateway between a tap, which keeps what the backend sees, and clients.
final class Lab {
    let server: any IRCServer
    let tap: WireTap
    let gateway: PawlProcess

    init(
        _ server: any IRCServer, policy: String, paced: Bool = false, environment: [String: String] = [:],
        arguments: [String] = []
    ) throws {
        self.server = server
        tap = try WireTap(backend: server.port)
        gateway = try PawlProcess(
            upstream: tap.port,
            Self.options(policy, paced: paced, environment: environment, arguments: arguments))
    }

    static func options(
        _ policy: String, paced: Bool = false, environment: [String: String] = [:], arguments: [String] = []
    ) -> PawlProcess.Options {
        var options = PawlProcess.Options(policy: policy, arguments: ["--metrics", ""] + arguments)
        options.environment = environment
        if !paced { options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0" }
        return options
    }

    /// Somebody behind the gateway.
    func person(_ nick: String, caps: [String]? = nil) throws -> IRCClient {
        let client = try IRCClient(port: gateway.port)
        try client.register(nick: nick, caps: caps)
        return client
    }

    /// Somebody who is connected to the backend without the gateway.
    func outsider(_ nick: String) throws -> IRCClient {
        let client = try IRCClient(port: server.port)
        try client.register(nick: nick, caps: nil)
        return client
    }

    func stop() {
        gateway.stop()
        tap.stop()
        server.stop()
    }
}

/// An InspIRCd with services and some accounts.
final class AccountLab {
    static let password = "correct-horse"
    let server: InspIRCd
    let services: Services

    init(accounts: [String], _ configure: (inout InspIRCd.Options) -> Void = { _ in }) throws {
        var options = InspIRCd.Options()
        options.servicesLink = true
        configure(&options)
        server = try InspIRCd(options)
        services = try Services(on: server)
        for account in accounts {
            let client = try IRCClient(port: server.port)
            try client.register(nick: account, caps: nil)
            client.send("PRIVMSG NickServ :REGISTER \(Self.password) \(account)@example.org")
            try client.expect("900")
            client.send("QUIT")
            client.close()
        }
    }

    /// A backend that is silent for too long counts as one without CAP: then another connection is tried.
    static func login(
        _ port: UInt16, nick: String, account: String, caps: [String] = ["sasl"]
    ) throws -> IRCClient {
        var found: IRCClient?
        var last: any Error = PeerError("\(nick) cannot log in")
        try? eventually("a login of \(nick)", every: .milliseconds(200)) {
            do {
                let client = try IRCClient(port: port)
                try client.register(nick: nick, caps: caps, login: (account, password))
                found = client
            } catch {
                last = error
            }
            return found != nil
        }
        guard let found else { throw last }
        return found
    }
}
