import Testing

@testable import PawlConfiguration

/// The program defines its chat protocols; the configuration knows no other.
@Suite struct ChatProtocolTests {
    private static let telnet = ChatProtocol(
        stored: "telnet", title: "Telnet", backend: "a Telnet backend", scheme: "telnet", ports: (23, 992))

    private func load(
        _ upstream: String, mapping: String? = nil, protocols: [ChatProtocol] = [.irc, telnet]
    ) throws -> PawlConfiguration {
        var overrides = PawlConfiguration.Overrides(listen: ["\(Self.telnet.scheme)://127.0.0.1:0"], upstream: upstream)
        if let mapping { overrides.set("mapping", to: .one(mapping), option: "--mapping") }
        return try PawlConfiguration.load(overrides: overrides, protocols: protocols)
    }

    private func refusal(
        _ upstream: String, mapping: String? = nil, protocols: [ChatProtocol] = [.irc, telnet]
    ) throws -> ConfigurationError {
        try #require(throws: ConfigurationError.self) {
            try load(upstream, mapping: mapping, protocols: protocols)
        }
    }

    @Test func aProtocolHasThreeSchemes() throws {
        let plain = try load("telnet://127.0.0.1").upstream.url
        #expect(plain.scheme == .init(Self.telnet, .loopback) && plain.port == 23 && !plain.isEncrypted)
        let encrypted = try load("telnets://chat.example").upstream.url
        #expect(encrypted.scheme == .init(Self.telnet, .tls) && encrypted.port == 992 && encrypted.isEncrypted)
        let insecure = try load("telnet+insecure://chat.example:24").upstream.url
        #expect(insecure.scheme == .init(Self.telnet, .insecure) && insecure.port == 24 && !insecure.isEncrypted)
        #expect("\(insecure)" == "telnet+insecure://chat.example:24")
        let refused = try refusal("telnet://chat.example")
        #expect(refused.problems.map(\.code) == [.wrongValue])
        // The remedy is in the protocol's own schemes.
        #expect(refused.description.contains("`telnets://`") && refused.description.contains("`telnet+insecure://`"))
    }

    @Test func aProtocolThatIsNotListedIsUnknown() throws {
        // In `listen` and in `upstream.url`.
        let codes = try refusal("telnet://127.0.0.1", protocols: [.irc]).problems.map(\.code)
        #expect(codes == [.wrongValue, .wrongValue])
    }

    @Test func bothSidesUseOneProtocol() throws {
        #expect(try refusal("irc://127.0.0.1").problems.map(\.code) == [.conflict])
    }

    @Test func aMappingIsForProtocolsThatUseOne() throws {
        #expect(try refusal("telnet://127.0.0.1", mapping: "m").problems.map(\.code) == [.conflict])
    }
}
