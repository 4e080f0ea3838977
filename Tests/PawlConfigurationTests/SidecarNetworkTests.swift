import Foundation
import Testing

@testable import PawlConfiguration

/// Several networks in one configuration file of a sidecar.
@Suite struct SidecarNetworkTests {
    /// Runs a body with a file of these lines.
    @discardableResult
    private func file<Result>(_ yaml: String, _ body: (String) throws -> Result) throws -> Result {
        let url = FileManager.default.temporaryDirectory.appending(path: "networks-\(UUID()).yaml")
        try yaml.write(to: url, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: url) }
        return try body(url.path)
    }

    private static let two = """
        data: /keys
        sidecar: {marks: tags}
        networks:
          libera:
            listen: [irc://127.0.0.1:7001]
            upstream: {url: ircs://irc.libera.chat}
          oftc:
            listen: [irc://127.0.0.1:7002]
            upstream: {url: ircs://irc.oftc.net, network: OFTC}
            sidecar: {marks: off}
            data: /elsewhere
        """

    @Test func eachNetworkHasItsKeysOverTheCommonOnes() throws {
        try file(Self.two) { path in
            #expect(try SidecarNetworks.names(in: path) == ["libera", "oftc"])
            let networks = try ["libera", "oftc"].map { name in
                (name: name, configuration: try PawlConfiguration.load(file: path, network: name, protocols: protocols))
            }
            let (libera, oftc) = (networks[0].configuration, networks[1].configuration)
            #expect(libera.listen.map(\.description) == ["irc://127.0.0.1:7001"])
            #expect(libera.upstream.url.host == "irc.libera.chat" && libera.upstream.network == nil)
            #expect(libera.data == "/keys/libera" && libera.admin.socket == "/keys/libera/pawl.sock")
            #expect(libera.sidecar.marks == .tags)
            #expect(oftc.upstream.url.host == "irc.oftc.net" && oftc.upstream.network == "OFTC")
            #expect(oftc.data == "/elsewhere" && oftc.sidecar.marks == .off)
            try SidecarNetworks.check(networks)
        }
    }

    @Test func aFileOfOneNetworkStaysAsItIs() throws {
        try file("data: /keys\nlisten: [irc://127.0.0.1:7001]\n") { path in
            #expect(try SidecarNetworks.names(in: path).isEmpty)
            #expect(try PawlConfiguration.load(file: path, protocols: protocols).data == "/keys")
        }
        try file("") { #expect(try SidecarNetworks.names(in: $0).isEmpty) }
    }

    /// `pawl serve` is for one backend.
    @Test func aGatewayHasNoNetworks() throws {
        try file(Self.two) { path in
            let error = #expect(throws: ConfigurationError.self) {
                try PawlConfiguration.load(file: path, protocols: protocols)
            }
            #expect(error?.problems.map(\.code) == [.unknownKey])
        }
    }

    @Test(arguments: [
        "networks:", "networks: []", "networks: {}", "networks: {a: }", "networks: {a: 1}",
        "networks: {../a: {policy: off}}",
        "networks: {'': {policy: off}}", "networks: {.a: {policy: off}}", "networks: {a b: {policy: off}}",
        "networks: {[a]: {policy: off}}",
    ]) func wrongNetworksAreRefused(_ yaml: String) throws {
        try file(yaml) { path in
            #expect(throws: ConfigurationError.self, "\(yaml)") { try SidecarNetworks.names(in: path) }
        }
    }

    @Test func aWrongKeyOfANetworkIsNamedWithItsLine() throws {
        try file("networks:\n  a:\n    lsten: [irc://127.0.0.1:7001]\n") { path in
            let error = #expect(throws: ConfigurationError.self) {
                try PawlConfiguration.load(file: path, network: "a", protocols: protocols)
            }
            #expect(error?.description.contains("line 3") == true && error?.description.contains("`listen`") == true)
        }
    }

    @Test(arguments: [
        "networks: {a: {listen: [irc://127.0.0.1:7001], data: /a}, b: {listen: [irc://127.0.0.1:7001], data: /b}}",
        "networks: {a: {listen: [irc://127.0.0.1:7001]}, b: {listen: [irc://127.0.0.1:7002]}}",
    ]) func networksShareNothing(_ yaml: String) throws {
        try file(yaml) { path in
            let networks = try SidecarNetworks.names(in: path).map { name in
                (name: name, configuration: try PawlConfiguration.load(file: path, network: name, protocols: protocols))
            }
            #expect(throws: ConfigurationError.self) { try SidecarNetworks.check(networks) }
        }
    }
}
