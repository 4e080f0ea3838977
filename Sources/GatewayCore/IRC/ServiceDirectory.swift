// Which nicks are services: asked of the backend by WHOIS, believed for a short time.

import IRCCodec
import NIOCore
import RequestQueue

/// What the backend said about a nick.
struct ServiceIdentity: Sendable, Equatable {
    var host: String
    var server: String
    var until: Int64
}

/// Remembers and asks. The question is `WHOIS nick`; its answers are kept from the client.
struct ServiceDirectory: Sendable {
    /// Ours: how long an answer is believed. Longer would let somebody take a service's nick. In nanoseconds.
    static let lifetime: Int64 = 30_000_000_000
    /// Ours: how long an answer may take. In nanoseconds.
    static let patience: Int64 = 10_000_000_000
    /// Ours: more questions at once than this are not asked; the recipient counts as an outsider.
    static let probeLimit = 16

    struct Probe: Sendable {
        var nick: String
        var deadline: Int64
        var host = ""
        var server = ""
        /// Outbound places that wait for the answer, with what to do about them.
        var outbound: [(ticket: UInt64, message: OutboundMessage)] = []
        /// Inbound places that wait for the answer.
        var inbound: [(ticket: UInt64, line: IRCLine, raw: ByteBuffer)] = []
    }

    private var known: [ExactText: ServiceIdentity] = [:]
    var probes: [ExactText: Probe] = [:]
    /// WHOIS commands of the client itself that the backend has not finished answering, by folded nick.
    var clientQuestions: [ExactText: Int] = [:]

    var nextDeadline: Int64? { probes.values.map(\.deadline).min() }

    func identity(_ nick: String, now: Int64) -> ServiceIdentity? {
        guard let identity = known[nick], identity.until > now else { return nil }
        return identity
    }

    mutating func learn(_ nick: String, host: String, server: String, now: Int64) {
        if known.count > 256 { known = known.filter { $0.value.until > now } }
        known[nick] = ServiceIdentity(host: host, server: server, until: now + Self.lifetime)
    }

    mutating func forget(_ nick: String) { known[nick] = nil }
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
