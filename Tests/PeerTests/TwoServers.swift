import PeerKit
import TestKit

/// Two servers of one network, with a tap on the link between them.
final class TwoServers {
    static let secondName = "two.pawl.test"
    private static let firstName = "one.pawl.test"

    let first: any IRCServer
    let second: any IRCServer
    /// Between the servers.
    let link: WireTap

    init(_ backend: Backend) throws {
        switch backend {
        case .ngircd:
            var options = NgIRCd.Options()
            options.serverName = Self.firstName
            options.peer = (Self.secondName, nil)
            let server = try NgIRCd(options)
            first = server
            link = try WireTap(backend: server.port)
            options.serverName = Self.secondName
            options.peer = (Self.firstName, link.port)
            second = try NgIRCd(options)
        case .inspircd:
            var options = InspIRCd.Options()
            options.serverName = Self.firstName
            options.peer = (Self.secondName, nil)
            let server = try InspIRCd(options)
            guard let port = server.linkPort else { throw PeerError("the server has no port for another") }
            first = server
            link = try WireTap(backend: port)
            options.serverName = Self.secondName
            options.identifier = "2PT"
            options.peer = (Self.firstName, link.port)
            second = try InspIRCd(options)
        }
    }

    /// Waits until somebody on the first server sees the second one.
    func waitForLink(_ person: IRCClient) throws {
        try eventually("the servers are linked", every: .milliseconds(100)) {
            person.send("LINKS")
            let lines = try person.synchronize()
            return lines.contains { $0.command == "364" && $0.text.contains(Self.secondName) }
        }
    }

    /// Tears the link, and keeps it from being made again.
    func split() {
        link.refuse()
        link.resetAll()
    }

    /// Lets the link be made again.
    func heal() { link.refuse(false) }

    func stop() {
        second.stop()
        link.stop()
        first.stop()
    }
}

extension IRCClient {
    func join(_ room: String = "#room") throws {
        send("JOIN \(room)")
        try expect("366")
    }

    /// The nick that the server has given it last.
    var latestNick: String {
        transcript.reduce(nick) { $1.command == "NICK" && $1.nick == $0 ? $1.parameters.last ?? $0 : $0 }
    }

    /// The next line of a verb by somebody.
    @discardableResult
    func expect(_ verb: String, of nick: String) throws -> IRCLine {
        try expect("\(verb) of \(nick)") { $0.command == verb && $0.nick == nick }
    }
}
