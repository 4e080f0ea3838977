// What two peers have to know of each other, without SDP of the other side.
//
// A description of a session with one data channel has a fixed form. Only its fields are sent; each side makes the SDP for
// its own WebRTC library from fields that were checked. So no text of a peer reaches a parser in C, no name is resolved,
// and no address is tried that was not looked at.

import PeerConnection

/// A way to reach a peer over UDP.
struct WebRTCCandidate: Equatable {
    enum Kind: String {
        /// An address of the device, or of it as a STUN server sees it.
        case host, srflx
        /// An address of a TURN server.
        case relay
    }

    var kind: Kind
    var host: WebRTCAddress
    var port: Int
    var priority: Int

    init?(kind: Kind, host: String, port: Int, priority: Int) {
        guard let host = WebRTCAddress(host), (1024...65_535).contains(port), (1...Int(Int32.max)).contains(priority)
        else { return nil }
        (self.kind, self.host, self.port, self.priority) = (kind, host, port, priority)
    }

    /// Reads an attribute of SDP, without `a=`: `candidate:1 1 UDP 2015364095 192.0.2.1 53307 typ host`.
    ///
    /// Nil also for TCP, for other components, and for names in the place of addresses. What follows the type, such as
    /// an address behind a NAT, is left out.
    init?(attribute: String) {
        guard attribute.utf8.count <= 512 else { return nil }
        let words = attribute.split(separator: " ")
        guard words.count >= 8, words[0].hasPrefix("candidate:"), words[1] == "1", words[2].lowercased() == "udp",
            let priority = WebRTCDescription.number(words[3]), let port = WebRTCDescription.number(words[5]),
            words[6] == "typ", let kind = Kind(rawValue: String(words[7]))
        else { return nil }
        self.init(kind: kind, host: String(words[4]), port: port, priority: priority)
    }

    /// An attribute of SDP, without `a=`.
    ///
    /// - Parameter foundation: groups candidates of one kind and address; a number for each is right too.
    func attribute(foundation: Int) -> String {
        let base = "candidate:\(foundation) 1 UDP \(priority) \(host.text) \(port) typ \(kind.rawValue)"
        guard kind != .host else { return base }
        return base + (host.text.contains(":") ? " raddr :: rport 0" : " raddr 0.0.0.0 rport 0")
    }
}

/// The session of one side.
struct WebRTCDescription: Equatable {
    enum Setup: String {
        case actpass, active, passive
    }

    /// For ICE; 4 to 64 and 22 to 128 characters.
    var user: String
    var password: String
    /// SHA-256 of the certificate for DTLS.
    var fingerprint: [UInt8]
    var setup: Setup
    /// The name of the section in SDP; the answer has that of the offer.
    var section: String
    var sctpPort: Int

    init?(user: String, password: String, fingerprint: [UInt8], setup: Setup, section: String, sctpPort: Int) {
        guard (4...64).contains(user.utf8.count), (22...128).contains(password.utf8.count),
            user.utf8.allSatisfy(Self.isOfICE), password.utf8.allSatisfy(Self.isOfICE), fingerprint.count == 32,
            (1...16).contains(section.utf8.count), section.utf8.allSatisfy(Self.isAlphanumeric),
            (1...65_535).contains(sctpPort)
        else { return nil }
        (self.user, self.password, self.fingerprint) = (user, password, fingerprint)
        (self.setup, self.section, self.sctpPort) = (setup, section, sctpPort)
    }

    /// Ours: bytes of SDP that are read.
    static let textLimit = 16_384

    /// Reads the SDP of the own library; nil if it has anything but one data channel.
    init?(sdp: String) {
        guard sdp.utf8.count <= Self.textLimit else { return nil }
        var values: [Substring: Substring] = [:]
        var fingerprint: [UInt8]?
        var sections = 0
        for line in sdp.split(whereSeparator: \.isNewline) {
            if line.hasPrefix("m=") {
                let words = line.dropFirst(2).split(separator: " ")
                guard words.count == 4, words[0] == "application", words[2] == "UDP/DTLS/SCTP",
                    words[3] == "webrtc-datachannel"
                else { return nil }
                sections += 1
            }
            guard line.hasPrefix("a="), let colon = line.firstIndex(of: ":") else { continue }
            let (name, value) = (line[..<colon].dropFirst(2), line[line.index(after: colon)...])
            if name == "fingerprint" {
                // There may be others of other hashes.
                guard value.lowercased().hasPrefix("sha-256 ") else { continue }
                fingerprint = Hexadecimal.bytes(String(value.dropFirst(8).filter { $0 != ":" }))
            } else {
                values[name] = value
            }
        }
        guard sections == 1, let user = values["ice-ufrag"], let password = values["ice-pwd"], let fingerprint,
            let setup = values["setup"].flatMap({ Setup(rawValue: String($0)) }), let section = values["mid"],
            let port = values["sctp-port"].flatMap(Self.number)
        else { return nil }
        self.init(
            user: String(user), password: String(password), fingerprint: fingerprint, setup: setup,
            section: String(section), sctpPort: port)
    }

    /// The SDP for the own library, without candidates.
    var sdp: String {
        let lines = [
            "v=0", "o=- 1 1 IN IP4 0.0.0.0", "s=-", "t=0 0", "a=ice-options:trickle", "a=group:BUNDLE \(section)",
            "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "c=IN IP4 0.0.0.0", "a=setup:\(setup.rawValue)",
            "a=ice-ufrag:\(user)", "a=ice-pwd:\(password)", "a=mid:\(section)", "a=sctp-port:\(sctpPort)",
            "a=max-message-size:\(WebRTCLimits.messageSize)",
            "a=fingerprint:sha-256 "
                + fingerprint.map { Hexadecimal.text([$0]).uppercased() }.joined(separator: ":"),
        ]
        return lines.map { $0 + "\r\n" }.joined()
    }

    // MARK: Characters

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
    }

    private static func isOfICE(_ byte: UInt8) -> Bool { isAlphanumeric(byte) || byte == 0x2B || byte == 0x2F }

    /// A number of 1 to 10 digits.
    static func number(_ text: some StringProtocol) -> Int? {
        guard (1...10).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return Int(text)
    }
}
