// The identities of services: requested from the backend by WHOIS, cached for a short time.

package import IRCCodec
package import NIOCore
package import RequestQueue

/// The host and server of a nick, from the backend's reply to WHOIS.
package struct ServiceIdentity: Sendable, Equatable {
    package var host: String
    package var server: String
    package var until: Int64
}

/// The cached identities and the open queries. A query is `WHOIS nick`; the client does not see the replies.
package struct ServiceDirectory: Sendable {
    /// Ours: how long an answer is cached, in nanoseconds. Within that time a person could take a service's nick.
    package static let lifetime: Int64 = 30_000_000_000
    /// Ours: how long an answer may take, in nanoseconds.
    package static let patience: Int64 = 10_000_000_000
    /// Ours: maximum number of open queries. Above it the recipient counts as an outsider.
    static let probeLimit = 16

    package struct Probe: Sendable {
        package var nick: String
        package var deadline: Int64
        package var host = ""
        package var server = ""
        /// Outbound messages that wait for the answer.
        package var outbound: [(ticket: UInt64, message: OutboundMessage)] = []
        /// Inbound lines that wait for the answer.
        package var inbound: [(ticket: UInt64, line: IRCLine, raw: ByteBuffer)] = []
    }

    private var known: [ExactText: ServiceIdentity] = [:]
    package var probes: [ExactText: Probe] = [:]
    /// The number of the client's own unanswered WHOIS commands, by folded nick.
    var clientQuestions: [ExactText: Int] = [:]

    package var nextDeadline: Int64? { probes.values.map(\.deadline).min() }

    package func identity(_ nick: String, now: Int64) -> ServiceIdentity? {
        guard let identity = known[nick], identity.until > now else { return nil }
        return identity
    }

    mutating func learn(_ nick: String, host: String, server: String, now: Int64) {
        if known.count > 256 { known = known.filter { $0.value.until > now } }
        known[nick] = ServiceIdentity(host: host, server: server, until: now + Self.lifetime)
    }

    package mutating func forget(_ nick: String) { known[nick] = nil }
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
