// The client's address from a trusted peer, before the client's first line: a PROXY header or a WEBIRC command.

package import NIOCore

/// Reads a PROXY header and a WEBIRC command before the first line of a client.
package struct ProxiedAddressReader {
    package enum Outcome {
        case waiting
        /// The header has been read; TLS follows.
        case secured
        case done(ProxiedAddresses?)
        case refused(String)
    }

    private enum Expectation { case proxyHeader, webIRC, nothing }

    private var expectation: Expectation
    private let webIRCPassword: String?
    private let isTLSNext: Bool
    /// Whether what a peer says of its client's TLS counts: nobody can have altered it on the way.
    private let isPeerSafe: Bool
    package private(set) var addresses: ProxiedAddresses?
    /// The client's TLS as the peer has announced it.
    package private(set) var security: ClientSecurity?
    /// Whether the connection is that of another gateway, so that its own TLS is not the client's.
    package private(set) var isGateway = false

    package var isDone: Bool { expectation == .nothing }
    /// Whether a cleartext header has to be read before TLS begins.
    package var isBeforeTLS: Bool { isTLSNext && expectation == .proxyHeader }

    /// - Parameter usesTLS: whether the listener uses TLS. The PROXY header comes before TLS, WEBIRC inside it.
    package init(options: DownstreamOptions, peer: SocketAddress?, usesTLS: Bool) {
        isTLSNext = usesTLS
        isPeerSafe = usesTLS || (peer?.isLoopback ?? false)
        let isTrusted = peer.map(options.trusts) ?? false
        webIRCPassword = isTrusted ? options.webIRCPassword : nil
        if isTrusted, options.acceptsProxyProtocol {
            expectation = .proxyHeader
        } else if webIRCPassword != nil {
            expectation = .webIRC
        } else {
            expectation = .nothing
        }
    }

    /// Removes the header and the command from the front of the bytes, as far as they are complete.
    package mutating func take(_ bytes: inout ByteBuffer) -> Outcome {
        if expectation == .proxyHeader {
            do throws(ProxyProtocolError) {
                switch try ProxyProtocol.read(&bytes) {
                case .incomplete: return .waiting
                case .header(let header, let isSecure):
                    addresses = header
                    if isSecure { security = ClientSecurity() }
                }
            } catch {
                expectation = .nothing
                return .refused("This port expects a PROXY protocol header from its proxy")
            }
            expectation = webIRCPassword == nil ? .nothing : .webIRC
            if isTLSNext { return .secured }
        }
        guard expectation == .webIRC else { return .done(addresses) }
        return takeWebIRC(&bytes)
    }

    /// Reads `WEBIRC password gateway hostname ip [:options]` (IRCv3 webirc). Any other first line is the client's own.
    private mutating func takeWebIRC(_ bytes: inout ByteBuffer) -> Outcome {
        let view = bytes.readableBytesView
        let verb = view.prefix(7)
        guard verb.elementsEqual("WEBIRC ".utf8) || "WEBIRC ".utf8.starts(with: verb) else {
            expectation = .nothing
            return .done(addresses)
        }
        guard let end = view.firstIndex(of: 0x0A) else {
            guard view.count < 512 else { return .refused("The WEBIRC line is too long") }
            return .waiting
        }
        let words = String(decoding: view[view.startIndex..<end], as: UTF8.self)
            .split(whereSeparator: { $0 == " " || $0 == "\r" })
        bytes.moveReaderIndex(forwardBy: end + 1 - view.startIndex)
        expectation = .nothing
        guard words.count >= 5, Secrets.equal(String(words[1]), webIRCPassword ?? "") else {
            return .refused("The WEBIRC password is wrong")
        }
        let ip = words[4].hasPrefix(":") ? String(words[4].dropFirst()) : String(words[4])
        guard let source = try? SocketAddress(ipAddress: ip, port: 0) else {
            return .refused("The WEBIRC command has no valid address")
        }
        let destination = addresses?.destination ?? source
        addresses = ProxiedAddresses(source: source, destination: destination)
        isGateway = true
        security = isPeerSafe ? ClientSecurity(options: Self.options(words)) : nil
        return .done(addresses)
    }

    /// The words behind the address, without the colon of the last parameter.
    private static func options(_ words: [Substring]) -> [Substring] {
        words.dropFirst(5).enumerated().map { $0 == 0 && $1.hasPrefix(":") ? $1.dropFirst() : $1 }
    }
}

extension SocketAddress {
    /// Whether the other end is on this machine.
    fileprivate var isLoopback: Bool {
        guard let text = ipAddress else { return false }
        return text == "::1" || text.hasPrefix("127.")
    }
}

/// Comparison of secrets.
package enum Secrets {
    /// Whether two texts are equal. The time depends on their lengths only.
    package static func equal(_ one: String, _ other: String) -> Bool {
        let (a, b) = (Array(one.utf8), Array(other.utf8))
        guard a.count == b.count else { return false }
        return zip(a, b).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
    }
}
