import PawlMessenger
import PeerConnection

/// What one factory sends the other, as the metadata of a magic packet.
///
///     {"version":1,"kind":"offer","session":HEX (16 B),"user":TEXT,"password":TEXT,"fingerprint":HEX (32 B),
///      "setup":"actpass","section":TEXT,"sctpPort":PORT,
///      "candidates":[{"kind":"host","host":ADDRESS,"port":PORT,"priority":NUMBER}]}
///     {"version":1,"kind":"answer", ... the same, with "setup":"active" or "passive"}
///     {"version":1,"kind":"candidates","session":HEX,"candidates":[...]}
struct WebRTCPacket: Equatable {
    enum Kind: Equatable {
        case offer(WebRTCDescription)
        case answer(WebRTCDescription)
        case candidates
    }

    /// Bytes of a session's name, which the offer draws.
    static let sessionSize = 16

    let session: [UInt8]
    let kind: Kind
    let candidates: [WebRTCCandidate]

    init(session: [UInt8], kind: Kind, candidates: [WebRTCCandidate]) {
        (self.session, self.kind) = (session, kind)
        self.candidates = Array(candidates.prefix(WebRTCLimits.candidates))
    }

    private struct Form: Codable {
        struct Place: Codable {
            var kind: String
            var host: String
            var port: Int
            var priority: Int
        }
        var version: Int
        var kind: String
        var session: String
        var user: String?
        var password: String?
        var fingerprint: String?
        var setup: String?
        var section: String?
        var sctpPort: Int?
        var candidates: [Place]

        var description: WebRTCDescription? {
            guard let user, let password, let fingerprint = fingerprint.flatMap(Hexadecimal.bytes),
                let setup = setup.flatMap(WebRTCDescription.Setup.init(rawValue:)), let section, let sctpPort
            else { return nil }
            return WebRTCDescription(
                user: user, password: password, fingerprint: fingerprint, setup: setup, section: section,
                sctpPort: sctpPort)
        }

        mutating func fill(_ description: WebRTCDescription, _ kind: String) {
            self.kind = kind
            (user, password) = (description.user, description.password)
            (fingerprint, setup) = (Hexadecimal.text(description.fingerprint), description.setup.rawValue)
            (section, sctpPort) = (description.section, description.sctpPort)
        }
    }

    /// Reads a packet; nil if it has another form. Candidates that cannot be used are left out.
    init?(_ metadata: P2PMetadata) {
        guard let form = try? metadata.decode(Form.self), form.version == 1,
            let session = Hexadecimal.bytes(form.session), session.count == Self.sessionSize,
            form.candidates.count <= WebRTCLimits.candidates
        else { return nil }
        switch (form.kind, form.description) {
        case ("offer", let description?) where description.setup == .actpass: kind = .offer(description)
        case ("answer", let description?) where description.setup != .actpass: kind = .answer(description)
        case ("candidates", _): kind = .candidates
        default: return nil
        }
        self.session = session
        candidates = form.candidates.compactMap { place in
            WebRTCCandidate.Kind(rawValue: place.kind).flatMap {
                WebRTCCandidate(kind: $0, host: place.host, port: place.port, priority: place.priority)
            }
        }
    }

    /// The packet as it is sent.
    func metadata() throws -> P2PMetadata {
        let places = candidates.map {
            Form.Place(kind: $0.kind.rawValue, host: $0.host.text, port: $0.port, priority: $0.priority)
        }
        var form = Form(
            version: 1, kind: "candidates", session: Hexadecimal.text(session), candidates: places)
        switch kind {
        case .offer(let description): form.fill(description, "offer")
        case .answer(let description): form.fill(description, "answer")
        case .candidates: break
        }
        return try P2PMetadata(form)
    }
}
