// Which nicks are services: asked of the backend by WHOIS, believed for a short time.

package import IRCCodec
package import NIOCore
package import RequestQueue

/// What the backend said about a nick.
package struct ServiceIdentity: Sendable, Equatable {
    package var host: String
    package var server: String
    package var until: Int64
}

/// Remembers and asks. The question is `WHOIS nick`; its answers are kept from the client.
package struct ServiceDirectory: Sendable {
    /// Ours: how long an answer is believed. Longer would let somebody take a service's nick. In nanoseconds.
    package static let lifetime: Int64 = 30_000_000_000
    /// Ours: how long an answer may take. In nanoseconds.
    package static let patience: Int64 = 10_000_000_000
    /// Ours: more questions at once than this are not asked; the recipient counts as an outsider.
    static let probeLimit = 16

    package struct Probe: Sendable {
        package var nick: String
        package var deadline: Int64
        package var host = ""
        package var server = ""
        /// Outbound places that wait for the answer, with what to do about them.
        package var outbound: [(ticket: UInt64, message: OutboundMessage)] = []
        /// Inbound places that wait for the answer.
        package var inbound: [(ticket: UInt64, line: IRCLine, raw: ByteBuffer)] = []
    }

    private var known: [ExactText: ServiceIdentity] = [:]
    package var probes: [ExactText: Probe] = [:]
    /// WHOIS commands of the client itself that the backend has not finished answering, by folded nick.
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
    /// Whether what the backend said about somebody proves this exemption.
    func isProven(host: String, server: String) -> Bool {
        switch proof {
        case .server(let mask): !server.isEmpty && Mask.matches(mask, server)
        case .host(let mask): !host.isEmpty && Mask.matches(mask, host)
        }
    }
}
