// The machine of the identities of services: requested from the backend by WHOIS, cached for a short time.

import IRCCodec
import NIOCore
import RequestQueue

/// The host and server of a nick, from the backend's reply to WHOIS.
struct ServiceIdentity: Equatable {
    let host: String
    let server: String
    fileprivate let until: Int64
}

/// The cached identities and the open queries of one connection. All nicks are folded.
///
/// A query is `WHOIS nick`; the client does not see the replies.
struct ServiceDirectory {
    /// What is due after a message or a line was kept until its query is answered.
    enum Begun: Equatable {
        /// Send WHOIS.
        case asked
        /// The nick is being asked about.
        case waits
        /// Too many queries are open: the message or the line is not kept.
        case full
    }

    /// A message to a possible service, or a line of one, with its place in its lane.
    enum Waiting {
        case message(OutboundMessage, at: OutboundLane.Ticket)
        case line(IRCLine, raw: ByteBuffer, at: InboundLane.Ticket)
    }

    /// What a reply to WHOIS is.
    enum Answer {
        /// A reply to the client.
        case foreign
        /// Part of a reply to the gateway.
        case hidden
        /// The end of a reply to the gateway, with what has waited for it.
        case finished([Waiting])
    }

    private struct Probe {
        let deadline: Int64
        var host = ""
        var server = ""
        var waiting: [Waiting] = []
    }

    /// Ours: how long an answer is cached, in nanoseconds. Within that time a person could take a service's nick.
    static let lifetime: Int64 = 30_000_000_000
    /// Ours: how long an answer may take, in nanoseconds.
    static let patience: Int64 = 10_000_000_000
    /// Ours: maximum number of open queries. Above it the recipient counts as an outsider.
    static let probeLimit = 16
    /// Ours: cached identities, before expired ones are removed.
    private static let cacheLimit = 256
    /// Ours: nicks of the client's own queries; a client may send any number of WHOIS. A larger table is emptied.
    private static let clientLimit = 64

    private var known: [ExactText: ServiceIdentity] = [:]
    private var probes: [ExactText: Probe] = [:]
    /// The number of the client's own unanswered WHOIS commands, by folded nick.
    private var clientQuestions: [ExactText: Int] = [:]

    var nextDeadline: Int64? { probes.values.map(\.deadline).min() }

    func identity(_ nick: String, now: Int64) -> ServiceIdentity? {
        guard let identity = known[nick], identity.until > now else { return nil }
        return identity
    }

    // MARK: Events

    /// The client asks about a nick itself.
    mutating func clientAsked(about nick: String) {
        clientQuestions[nick, default: 0] += 1
        if clientQuestions.count > Self.clientLimit { clientQuestions.removeAll() }
    }

    /// Keeps a message or a line until it is known whether a nick is a service.
    ///
    /// - Parameter entry: evaluated only if it is kept, because it reserves a place.
    mutating func keep(_ entry: @autoclosure () -> Waiting, until nick: String, now: Int64) -> Begun {
        let isAsked = probes[nick] != nil
        guard isAsked || probes.count < Self.probeLimit else { return .full }
        probes[nick, default: Probe(deadline: now + Self.patience)].waiting.append(entry())
        return isAsked ? .waits : .asked
    }

    /// The backend has sent a numeric of WHOIS about a nick.
    ///
    /// - Parameter text: the text of a parameter of the line.
    mutating func answered(_ numeric: Int, _ nick: String, now: Int64, text: (Int) -> String?) -> Answer {
        if let waiting = clientQuestions[nick], waiting > 0 {
            if numeric == 318 { clientQuestions[nick] = waiting == 1 ? nil : waiting - 1 }
            return .foreign
        }
        guard probes[nick] != nil else { return .foreign }
        switch numeric {
        case 311: probes[nick]?.host = text(3) ?? ""
        case 312: probes[nick]?.server = text(2) ?? ""
        case 318: return .finished(finish(nick, now: now))
        default: break  // Of no use for the identity of a service.
        }
        return .hidden
    }

    /// Ends the queries that were not answered in time; returns what has waited for them.
    mutating func expire(now: Int64) -> [Waiting] {
        probes.filter { $0.value.deadline <= now }.keys.sorted().flatMap { finish($0.text, now: now) }
    }

    private mutating func finish(_ nick: String, now: Int64) -> [Waiting] {
        guard let probe = probes.removeValue(forKey: nick) else { return [] }
        if known.count > Self.cacheLimit { known = known.filter { $0.value.until > now } }
        known[nick] = ServiceIdentity(host: probe.host, server: probe.server, until: now + Self.lifetime)
        return probe.waiting
    }
}

extension Exemption {
    /// Whether a host or server proves this exemption.
    func isProven(host: String, server: String) -> Bool {
        switch proof {
        case .server(let mask): !server.isEmpty && Mask.matches(mask, server)
        case .host(let mask): !host.isEmpty && Mask.matches(mask, host)
        }
    }
}
